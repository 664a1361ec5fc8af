"""WriteSocketService over real sockets: what a slave gets, when, and in which pieces."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ha.frame import FRAME_HEADER, MAX_FRAME_BODY
from ha.ha_config import HaConfig
from ha.refusals import RefusalReason
from ha.slave_progress import SlaveProgress
from ha.transport import PlainTransport
from ha.write_socket_service import SENDFILE_FROM, WriteSocketService
from ipc.clock import SystemClock
from store.control_slots import MAX_PHY_OFFSET
from tests.ha.master_world import FILE_SIZE, FakeSlave, MasterWorld, RecordingGroupTransfer
from tests.support.deadline import wait_until


@pytest.mark.parametrize("batch", [1, 700, 32 << 10, 64 << 10, 1 << 20, 4 << 20, 1 << 30])
def test_whole_log_arrives_in_frames_within_files(tmp_path: Path, batch: int) -> None:
    size = 3 * FILE_SIZE + 1000 if batch > 700 else 3000
    file_size = FILE_SIZE if batch > 700 else 1024
    config = HaConfig(ha_transfer_batch_size=batch)
    with MasterWorld(tmp_path, config, file_size=file_size) as world:
        end = world.log.append(size)
        with FakeSlave(world.address, 0, file_size=file_size) as slave:
            slave.read_up_to(end, report=True)
            assert slave.received == world.log.content
            assert max(slave.sizes) == min(batch, file_size)
            wait_until(lambda: _admitted(world).transferred == end)
            wait_until(lambda: world.group_transfer.acknowledged[-1:] == [end])


def test_no_frame_is_larger_than_a_java_slave_takes(tmp_path: Path) -> None:
    size = 8 << 20
    with MasterWorld(tmp_path, HaConfig(ha_transfer_batch_size=1 << 30), file_size=size) as world:
        end = world.log.append(size)
        with FakeSlave(world.address, 1, file_size=size) as slave:
            slave.read_up_to(end)
            assert max(slave.sizes) == MAX_FRAME_BODY
            assert slave.received == world.log.bytes_from(1)


def test_new_records_leave_at_once_and_together(tmp_path: Path) -> None:
    """The heartbeat is far away: only the bell can be the reason that they come."""
    with MasterWorld(tmp_path, HaConfig(ha_send_heartbeat_interval=60_000)) as world:
        world.log.append(100)
        with FakeSlave(world.address, 100) as first, FakeSlave(world.address, 50) as second:
            second.read_up_to(100)
            for size in (1, 200, 3000, 70_000, 300_000, 5):
                end = world.log.append(size)
                first.read_up_to(end)
                second.read_up_to(end)
            assert first.received == world.log.bytes_from(100)
            assert second.received == world.log.bytes_from(50)


def test_frames_are_sent_ahead_without_acknowledgement(tmp_path: Path) -> None:
    config = HaConfig(ha_transfer_batch_size=10_000)
    with MasterWorld(tmp_path, config) as world:
        end = world.log.append(100_000)
        with FakeSlave(world.address, 0) as slave:
            slave.read_up_to(end)
            assert len(slave.sizes) >= 10
            assert world.group_transfer.acknowledged == []


def test_heartbeat_says_what_comes_next(tmp_path: Path) -> None:
    with MasterWorld(tmp_path, HaConfig(ha_send_heartbeat_interval=30)) as world:
        end = world.log.append(1000)
        with FakeSlave(world.address, 0) as slave:
            slave.read_up_to(end)
            began = time.monotonic()
            assert [slave.read_frame() for _ in range(3)] == [0, 0, 0]  # read_frame checks offset
            assert time.monotonic() - began > 0.06
            slave.read_up_to(world.log.append(10))


def test_an_empty_slave_gets_the_history_from_min(tmp_path: Path) -> None:
    with MasterWorld(tmp_path, start=2 * FILE_SIZE) as world:
        end = world.log.append(FILE_SIZE + 10)
        with FakeSlave(world.address, 0) as slave:
            slave.read_up_to(end)
            assert slave.received == world.log.content
            assert world.group_transfer.added[0].sent_offset == end


def test_an_empty_log_begins_at_its_min(tmp_path: Path) -> None:
    with (
        MasterWorld(tmp_path, HaConfig(ha_send_heartbeat_interval=20), start=FILE_SIZE) as world,
        FakeSlave(world.address, 0) as slave,
    ):
        assert slave.read_frame() == 0
        assert slave.offset == FILE_SIZE


@pytest.mark.fault(21)
def test_a_slave_that_never_reads_hurts_nobody(tmp_path: Path) -> None:
    """Its socket is full in the middle of a frame; another gets everything, and it can go on."""
    size = 24 << 20
    with MasterWorld(tmp_path, file_size=size) as world:
        end = world.log.append(size - 1)
        with (
            FakeSlave(world.address, 0, file_size=size, receive_buffer=4096) as stuck,
            FakeSlave(world.address, 0, file_size=size) as other,
        ):
            other.read_up_to(end)
            assert other.received == world.log.content
            sent = world.group_transfer.added[0].sent_offset
            assert sent < end  # bounded by socket buffers and one frame
            assert world.group_transfer.added[0].transferred < sent, "its frame is cut"
            stuck.read_up_to(end)
            assert stuck.received == world.log.content
            wait_until(lambda: world.group_transfer.added[0].transferred == end)


def test_small_frames_survive_partial_writes(tmp_path: Path) -> None:
    size = 12 << 20
    config = HaConfig(ha_transfer_batch_size=50_000)
    with MasterWorld(tmp_path, config, file_size=size) as world:
        end = world.log.append(size - 7)
        with FakeSlave(world.address, 0, file_size=size, receive_buffer=4096) as slave:
            progress = _admitted(world)
            seen = -1
            while seen != progress.sent_offset:  # until the sockets are full
                seen = progress.sent_offset
                threading.Event().wait(0.05)
            assert seen < end
            slave.read_up_to(end)
            assert slave.received == world.log.content
            wait_until(lambda: progress.transferred == end)


def test_a_deleted_file_closes_the_link(tmp_path: Path) -> None:
    size = 16 << 20
    with MasterWorld(tmp_path, file_size=size) as world:
        world.log.append(size + 100)
        with FakeSlave(world.address, 0, file_size=size, receive_buffer=4096) as slave:
            progress = _admitted(world)
            wait_until(lambda: progress.sent_offset)
            world.log.delete_below(size)
            world.wait_for_refusal(RefusalReason.BELOW_MIN)
            slave.skip_to_end()
            (_, reason, text) = world.group_transfer.removed[0]
            assert reason is RefusalReason.BELOW_MIN
            assert "must start over" in text


def test_a_log_that_is_cut_back_closes_the_link(tmp_path: Path) -> None:
    with MasterWorld(tmp_path) as world:
        end = world.log.append(1000)
        with FakeSlave(world.address, 0) as slave:
            slave.read_up_to(end)
            world.page.counters[MAX_PHY_OFFSET] = 500
            world.bell.ring()
            assert slave.is_closed_by_master()
            world.wait_for_refusal(RefusalReason.BEYOND_MAX)


def test_flow_control_holds_for_all_slaves_together(tmp_path: Path) -> None:
    limit = 1_000_000
    with MasterWorld(tmp_path, HaConfig(ha_flow_control=limit)) as world:
        end = world.log.append(250_000)
        began = time.monotonic()
        with FakeSlave(world.address, 0) as first, FakeSlave(world.address, 0) as second:
            readers = [
                threading.Thread(target=slave.read_up_to, args=(end,)) for slave in (first, second)
            ]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join(10)
            took = time.monotonic() - began
            count = len(first.received) + len(second.received)
            count += FRAME_HEADER.size * (len(first.sizes) + len(second.sizes))
            assert count >= 500_000
            # The first frame of a tenth of a second leaves at once.
            assert count <= limit * (took + 0.1)
            assert first.received == second.received == world.log.content


def test_heartbeats_go_out_while_flow_control_holds_the_log_back(tmp_path: Path) -> None:
    config = HaConfig(ha_flow_control=100, ha_send_heartbeat_interval=30)
    with MasterWorld(tmp_path, config) as world:
        world.log.append(5000)
        with FakeSlave(world.address, 0) as slave:
            assert slave.read_frame() == 1024
            assert [slave.read_frame() for _ in range(3)] == [0, 0, 0]


class _WatchingTransport(PlainTransport):
    """Notes what SlaveProgress says while a frame is handed over."""

    def __init__(self, sock: socket.socket, group_transfer: RecordingGroupTransfer) -> None:
        super().__init__(sock)
        self.group_transfer = group_transfer
        self.seen: list[tuple[int, int]] = []
        """(the frame's end, sent_offset)."""

    def send(self, parts: Sequence[bytes | bytearray | memoryview], *, more: bool = False) -> int:
        offset, size = FRAME_HEADER.unpack(parts[0])
        self.seen.append((offset + size, self.group_transfer.added[0].sent_offset))
        return super().send(parts, more=more)


@pytest.mark.parametrize("size", [100, SENDFILE_FROM])
def test_an_acknowledgement_cannot_come_before_its_frame_is_known(
    tmp_path: Path, size: int
) -> None:
    """On a fast link the report is there before sendmsg returns: it must not look BEYOND_SENT."""
    with MasterWorld(tmp_path) as world:
        end = world.log.append(size)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            slave = FakeSlave(listening.getsockname())
            transport = _WatchingTransport(listening.accept()[0], world.group_transfer)
        assert world.connections.admit(transport, 0, transport.remote) is None
        slave.read_up_to(end)
        assert transport.seen == [(end, end)]
        slave.close()


class _CountingClock(SystemClock):
    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = 0

    def monotonic_ms(self) -> int:
        self.asked += 1
        return super().monotonic_ms()


@pytest.mark.parametrize("flow_control", [0, 500])
def test_waiting_is_no_spinning(tmp_path: Path, flow_control: int) -> None:
    """Neither an idle link nor one that flow control holds back asks for the time all the while."""
    clock = _CountingClock()
    config = HaConfig(ha_flow_control=flow_control, ha_send_heartbeat_interval=300)
    with MasterWorld(tmp_path, config, clock=clock) as world:
        world.log.append(1100)
        with FakeSlave(world.address, 0) as slave:
            assert slave.read_frame() == (1024 if flow_control else 1100)
            before = clock.asked
            assert slave.read_frame() == 0
            assert clock.asked - before < 20


class _CountingTransport(PlainTransport):
    """Counts what is handed to the socket, taken or not."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.sends = 0

    def send(self, parts: Sequence[bytes | bytearray | memoryview], *, more: bool = False) -> int:
        self.sends += 1
        return super().send(parts, more=more)

    def send_file(self, descriptor: int, position: int, size: int) -> int:
        self.sends += 1
        return super().send_file(descriptor, position, size)


@contextlib.contextmanager
def _stuck_slave(world: MasterWorld, size: int) -> Iterator[tuple[_CountingTransport, FakeSlave]]:
    """Its socket is full in the middle of a frame."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        slave = FakeSlave(listening.getsockname(), file_size=size, receive_buffer=4096)
        transport = _CountingTransport(listening.accept()[0])
    assert world.connections.admit(transport, 0, transport.remote) is None
    seen = -1
    while seen != transport.sends:
        seen = transport.sends
        threading.Event().wait(0.1)
    with slave:
        yield transport, slave


def _writer(world: MasterWorld) -> WriteSocketService:
    wait_until(lambda: world.connections._connections)
    writer = world.connections._connections[0]._writer
    assert writer is not None
    return writer


def test_a_wake_does_not_let_a_slow_slave_s_thread_spin(tmp_path: Path) -> None:
    """Others wake who counts as asleep; this one waits for its socket by then."""
    size = 16 << 20
    with MasterWorld(tmp_path, file_size=size) as world:
        end = world.log.append(size - 1)
        with _stuck_slave(world, size) as (transport, slave):
            before = transport.sends
            _writer(world)._waiter.wake()
            threading.Event().wait(0.3)
            assert transport.sends - before <= 3
            slave.read_up_to(end)


def test_a_stop_is_not_missed_on_the_way_to_bed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread takes the wake for an old one when it lies down: the stop was said before."""
    with MasterWorld(tmp_path, HaConfig(ha_send_heartbeat_interval=60_000)) as world:
        end = world.log.append(100)
        with FakeSlave(world.address, 0) as slave:
            slave.read_up_to(end)
            writer = _writer(world)
            wake = writer._waiter.wake

            def wake_and_let_it_lie_down_again() -> None:
                wake()
                threading.Event().wait(0.2)

            monkeypatch.setattr(writer._waiter, "wake", wake_and_let_it_lie_down_again)
            assert writer.shutdown(2000)


def test_a_stop_while_a_slave_does_not_read(tmp_path: Path) -> None:
    size = 16 << 20
    with MasterWorld(tmp_path, file_size=size) as world:
        world.log.append(size - 1)
        with _stuck_slave(world, size):
            assert _writer(world).shutdown(3000)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), RefusalReason.BELOW_MIN),
        (OSError(errno.EMFILE, "Too many open files"), RefusalReason.NETWORK),
    ],
)
def test_a_file_that_cannot_be_opened_costs_one_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: OSError, reason: RefusalReason
) -> None:
    """Retention may delete it between the look at its length and open; descriptors may run out."""
    with MasterWorld(tmp_path) as world:
        end = world.log.append(100)
        really_open = os.open
        monkeypatch.setattr("store.mapped_file.os.open", _raiser(cause, str(world.log.directory)))
        with FakeSlave(world.address, 0) as slave:
            assert slave.is_closed_by_master()
            world.wait_for_refusal(reason)
        monkeypatch.setattr("store.mapped_file.os.open", really_open)
        with FakeSlave(world.address, 0) as slave:
            slave.read_up_to(end)
        assert world.failures == []


def _raiser(cause: OSError, directory: str) -> Callable[..., int]:
    really_open = os.open

    def refuse(path: object, *arguments: Any, **options: Any) -> int:
        if str(path).startswith(directory):
            raise cause
        return really_open(path, *arguments, **options)  # type: ignore[arg-type]

    return refuse


def _admitted(world: MasterWorld) -> SlaveProgress:
    wait_until(lambda: world.group_transfer.added)
    return world.group_transfer.added[0]
