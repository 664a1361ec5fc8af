"""HAConnection and HAConnections: one end for both threads, once, and nothing left behind."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ha.ha_config import HaConfig
from ha.refusals import RefusalReason
from tests.ha.master_world import FILE_SIZE, FakeSlave, MasterWorld
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock


def _service_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if "SocketService 127" in t.name]


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_both_threads_end_and_everything_is_given_back(tmp_path: Path) -> None:
    with MasterWorld(tmp_path) as world:
        end = world.log.append(FILE_SIZE + 100_000)
        before = _open_descriptors()
        for _ in range(20):
            with FakeSlave(world.address, 0) as slave:
                slave.read_up_to(end)
        wait_until(lambda: len(world.group_transfer.removed) == 20)
        wait_until(lambda: not _service_threads())
        assert _open_descriptors() <= before
        assert world.connections._connections == []


def test_fast_failures_leak_nothing(tmp_path: Path) -> None:
    """Report and reset in one breath: added before it runs, removed once."""
    with MasterWorld(tmp_path) as world:
        world.log.append(3 * FILE_SIZE)
        for _ in range(50):
            slave = FakeSlave(world.address, 0)
            linger = struct.pack("ii", 1, 0)
            slave.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            slave.close()
        wait_until(
            lambda: (
                len(world.group_transfer.removed) == len(world.group_transfer.added)
                and sum(world.refusals().values()) == 50
            )
        )
        assert world.connections._connections == []
        removed = [progress for progress, _, _ in world.group_transfer.removed]
        assert len(set(map(id, removed))) == len(removed)
        wait_until(lambda: not _service_threads())


def test_an_orderly_stop_is_no_refusal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = 16 << 20
    with MasterWorld(tmp_path, file_size=size) as world:
        world.log.append(size)
        with (
            FakeSlave(world.address, size) as idle,
            FakeSlave(world.address, 0, receive_buffer=4096, file_size=size) as blocked,
        ):
            wait_until(lambda: len(world.group_transfer.added) == 2)
            wait_until(lambda: all(p.sent_offset for p in world.group_transfer.added))
            with caplog.at_level(logging.WARNING):
                assert world.connections.close_all()
            assert not _service_threads()
            assert idle.is_closed_by_master()
            blocked.skip_to_end()
            assert [reason for _, reason, _ in world.group_transfer.removed] == [None, None]
            assert world.refusals() == {}
            assert caplog.messages == []
            with FakeSlave(world.address, 0) as late:
                assert late.is_closed_by_master()
                world.wait_for_refusal(RefusalReason.TOO_MANY_CONNECTIONS)


def test_the_first_reason_stays(tmp_path: Path) -> None:
    with MasterWorld(tmp_path) as world:
        world.log.append(10)
        with FakeSlave(world.address, 0) as slave:
            wait_until(lambda: world.connections._connections)
            (connection,) = world.connections._connections
            connection.end(RefusalReason.AHEAD, "first")
            connection.end(RefusalReason.NETWORK, "second")
            slave.skip_to_end()
            wait_until(lambda: world.group_transfer.removed)
        assert world.group_transfer.removed[0][1:] == (RefusalReason.AHEAD, "first")


def test_a_writer_without_descriptors_costs_one_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EMFILE while the services are made: that slave is refused, nothing stays registered."""
    with MasterWorld(tmp_path, HaConfig(ha_max_connections=1)) as world:
        end = world.log.append(10)

        def no_selector() -> None:
            raise OSError(24, "Too many open files")

        environment = world.connections._environment
        poor = replace(environment, new_selector=no_selector)
        monkeypatch.setattr(world.connections, "_environment", poor)
        with FakeSlave(world.address, 0) as slave:
            assert slave.is_closed_by_master()
            world.wait_for_refusal(RefusalReason.NETWORK)
        assert world.group_transfer.added == []
        monkeypatch.setattr(world.connections, "_environment", environment)
        with FakeSlave(world.address, 0) as slave:
            slave.read_up_to(end)


class _Slaves:
    """ReplicaVerifier's view of what slaves hold; answers when it may."""

    def __init__(self, holds: bool | None) -> None:
        self.holds = holds
        self.may_answer = threading.Event()

    def verify(self, _ip: str, _offset: int) -> bool | None:
        assert self.may_answer.wait(10)
        return self.holds


def _try(world: MasterWorld, report: int, source: str = "127.0.0.1") -> None:
    """It comes and is refused; then what was asked about it is answered."""
    before = world.refusals().get("beyond_max", 0)
    with FakeSlave(world.address, report, source=source) as slave:
        assert slave.is_closed_by_master()
        world.wait_for_refusal(RefusalReason.BEYOND_MAX, before + 1)
    assert world.group_transfer.added == []


def test_the_tail_of_another_time_is_not_acknowledged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The master lost [1000, 1400) in a power failure; a slave still has it and reports 1400 when
    other records lie there."""
    slaves, clock = _Slaves(holds=False), ManualClock()
    with MasterWorld(tmp_path, opened_at=1000, verify=slaves.verify, clock=clock) as world:
        world.log.append(1500)
        _try(world, 1400)
        assert "its records are being compared with ours" in caplog.text
        assert "beyond 1000" in caplog.text
        slaves.may_answer.set()
        wait_until(lambda: not world.verifier._questions)
        clock.advance(10_000)  # a line every ten seconds
        _try(world, 1400)
        assert "its records are not ours" in caplog.text
        with FakeSlave(world.address, 1000) as honest:
            honest.read_up_to(1500)
        assert [p.ack_offset for p in world.group_transfer.added] == [1000]


def test_a_slave_that_cannot_be_asked_is_told_the_way_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slaves, clock = _Slaves(holds=None), ManualClock()
    slaves.may_answer.set()
    with MasterWorld(tmp_path, opened_at=1000, verify=slaves.verify, clock=clock) as world:
        world.log.append(1500)
        _try(world, 1001)
        wait_until(lambda: not world.verifier._questions)
        clock.advance(10_000)
        _try(world, 1001)
        assert "must be registered as a slave of this group" in caplog.text
        assert "start it with an empty store" in caplog.text


def test_verifying_blocks_nobody_and_the_seeded_are_served(tmp_path: Path) -> None:
    slaves = _Slaves(holds=True)
    with MasterWorld(tmp_path, opened_at=1000, verify=slaves.verify) as world:
        end = world.log.append(1500)
        _try(world, 1400)
        with FakeSlave(world.address, 0) as other:
            other.read_up_to(end)
        slaves.may_answer.set()
        wait_until(lambda: not world.verifier._questions)
        with FakeSlave(world.address, 1400) as slave:
            slave.read_up_to(end)
            assert slave.received == world.log.bytes_from(1400)


def test_what_was_sent_to_a_slave_may_be_reported(tmp_path: Path) -> None:
    """To that one: of two that hold the lost tail, one may have come back already."""
    with MasterWorld(tmp_path, opened_at=1000) as world:
        world.log.append(1500)
        with FakeSlave(world.address, 1000, source="127.0.0.2") as slave:
            slave.read_up_to(1500)
        with FakeSlave(world.address, 1400) as old:
            assert old.is_closed_by_master()
            world.wait_for_refusal(RefusalReason.BEYOND_MAX)
        end = world.log.append(100)
        with FakeSlave(world.address, 1500, source="127.0.0.2") as slave:
            slave.read_up_to(end)
