"""ReadSocketService over real sockets: good reports pass on, wrong ones and silence close."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ha.ha_config import HaConfig
from ha.refusals import RefusalReason
from ha.slave_progress import REPORT_REFUSALS
from tests.ha.master_world import MASTER, FakeSlave, MasterWorld, OwnSlave
from tests.support.deadline import wait_until

SECRET = b"a secret of the group"


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


@pytest.mark.parametrize("secret", [None, SECRET])
@pytest.mark.parametrize("bit", [0, 8 * 5, 8 * 6 + 3, 63, 64, 191])
def test_a_flipped_bit_in_a_sealed_report_acknowledges_nothing(
    tmp_path: Path, secret: bytes | None, bit: int
) -> None:
    """5955 became 8003, which had been sent: that was a SEND_OK for what the slave did not have."""
    own = dataclasses.replace(MASTER, secret=secret)
    with MasterWorld(tmp_path, own=own) as world:
        end = world.log.append(9000)
        with OwnSlave(world.address, 1, secret) as slave:
            slave.read_up_to(end)
            report = bytearray(slave.reports.pack(5955))
            report[bit // 8] ^= 1 << (7 - bit % 8)
            slave.sock.sendall(report)
            assert slave.is_closed_by_master()
            world.wait_for_refusal(RefusalReason.BAD_CHECKSUM)
        wait_until(lambda: world.group_transfer.removed)
        ((progress, _, text),) = world.group_transfer.removed
        assert "wrong seal" in text
        assert progress.ack_offset == 1
        assert world.group_transfer.acknowledged == []


def test_a_flipped_bit_in_the_first_report_admits_nobody(tmp_path: Path) -> None:
    """It says from where the log is wanted, and counts as an acknowledgement."""
    with MasterWorld(tmp_path) as world:
        world.log.append(9000)
        with OwnSlave(world.address, None) as slave:
            report = bytearray(slave.reports.pack(5955))
            report[6] ^= 8
            slave.sock.sendall(report)
            assert slave.is_closed_by_master()
        world.wait_for_refusal(RefusalReason.BAD_CHECKSUM)
        assert world.group_transfer.added == []


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_slave_of_the_first_version_is_served_as_before(
    tmp_path: Path, secret: bytes | None
) -> None:
    own = dataclasses.replace(MASTER, secret=secret)
    with MasterWorld(tmp_path, own=own) as world:
        end = world.log.append(1000)
        with OwnSlave(world.address, 0, secret, version=1) as slave:
            assert len(slave.reports.pack(0)) == 8
            slave.read_up_to(end, report=True)
            wait_until(lambda: world.group_transfer.acknowledged[-1:] == [end])


def test_of_several_sealed_reports_in_any_pieces_none_is_lost(tmp_path: Path) -> None:
    with MasterWorld(tmp_path) as world:
        end = world.log.append(5000)
        with OwnSlave(world.address, 1) as slave:
            slave.read_up_to(end)
            data = b"".join(map(slave.reports.pack, range(1, 5001, 50))) + slave.reports.pack(end)
            for at in range(0, len(data), 499):
                slave.sock.sendall(data[at : at + 499])
            wait_until(lambda: world.group_transfer.acknowledged[-1:] == [end])


def test_a_report_that_falls_and_rises_again_within_one_read_closes_the_link(
    tmp_path: Path,
) -> None:
    with MasterWorld(tmp_path) as world:
        end = world.log.append(1000)
        with FakeSlave(world.address, 500) as slave:
            slave.read_up_to(end)
            slave.sock.sendall(b"".join(map(slave.reports.pack, (700, 600, 1000))))
            assert slave.is_closed_by_master()
            world.wait_for_refusal(RefusalReason.DECREASING)
        assert world.group_transfer.added[0].ack_offset == 700
