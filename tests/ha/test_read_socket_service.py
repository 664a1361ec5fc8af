"""ReadSocketService over real sockets: good reports pass on, wrong ones and silence close."""

from __future__ import annotations

from pathlib import Path

import pytest

from ha.ha_config import HaConfig
from ha.refusals import RefusalReason
from ha.slave_progress import REPORT_REFUSALS
from tests.ha.master_world import FakeSlave, MasterWorld
from tests.support.deadline import wait_until


@pytest.mark.fault(17, 18, 20)
@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (-5, RefusalReason.NEGATIVE),
        (499, RefusalReason.DECREASING),
        (1001, RefusalReason.BEYOND_SENT),
        ((1 << 63) - 1, RefusalReason.BEYOND_SENT),
    ],
)
def test_a_wrong_report_closes_the_link_and_frees_nothing(
    tmp_path: Path, report: int, reason: RefusalReason
) -> None:
    with MasterWorld(tmp_path) as world:
        end = world.log.append(1000)
        with FakeSlave(world.address, 500) as slave:
            slave.read_up_to(end)
            slave.report(report)
            assert slave.is_closed_by_master()
            world.wait_for_refusal(reason)
            wait_until(lambda: world.group_transfer.removed)
        assert world.refusals() == {reason.name.lower(): 1}
        assert world.refusal_log.rejected_handshakes() == {}, "it was served"
        assert reason in REPORT_REFUSALS
        ((progress, why, text),) = world.group_transfer.removed
        assert why is reason
        assert f"report {report}" in text
        assert progress.ack_offset == 500
        assert world.group_transfer.acknowledged == []


@pytest.mark.fault(18)
def test_of_several_reports_the_last_counts_in_any_pieces(tmp_path: Path) -> None:
    with MasterWorld(tmp_path) as world:
        end = world.log.append(5000)
        with FakeSlave(world.address, 1) as slave:
            slave.read_up_to(end)
            data = b"".join(offset.to_bytes(8, "big") for offset in range(1, 5001))
            for at in range(0, len(data), 999):
                slave.sock.sendall(data[at : at + 999])
            acknowledged = world.group_transfer.acknowledged
            wait_until(lambda: acknowledged[-1:] == [5000])
            assert acknowledged == sorted(acknowledged)


def test_reports_without_progress_keep_the_link_alive(tmp_path: Path) -> None:
    with MasterWorld(tmp_path, HaConfig(ha_housekeeping_interval=400)) as world:
        end = world.log.append(10)
        with FakeSlave(world.address, 0) as slave:
            slave.read_up_to(end)
            slave.sock.settimeout(0.1)
            for _ in range(8):
                slave.report(end)
                with pytest.raises(TimeoutError):
                    slave.sock.recv(1)
            slave.sock.settimeout(10)
            assert slave.is_closed_by_master()
            world.wait_for_refusal(RefusalReason.SILENT)


def test_the_slave_goes(tmp_path: Path) -> None:
    with MasterWorld(tmp_path) as world:
        end = world.log.append(10)
        with FakeSlave(world.address, 0) as slave:
            slave.read_up_to(end)
        world.wait_for_refusal(RefusalReason.NETWORK)
        wait_until(lambda: world.connections._connections == [])
