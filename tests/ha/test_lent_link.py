"""A slave's connection that is lent to process `remoting`: LinkLender, LendableLink, LinkBorrower.

A real HAService, and the other process's loop on a thread of the test.
"""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ha import lendable_link, write_socket_service
from ha.control_slots import (
    HA_REFUSALS,
    LENT_ACKED,
    LENT_NUMBER,
    LENT_SENT,
    LOAN,
    REPLICA_COUNT,
    REPLICATED_OFFSET,
)
from ha.flow_monitor import FlowMonitor
from ha.ha_config import HaConfig
from ha.ha_connection import HAConnection
from ha.ha_environment import HaEnvironment
from ha.ha_service import Bells, HAService
from ha.handshake import OwnIdentity
from ha.lent_link import MOST_AT_ONCE
from ha.link_borrower import MOST_UNAWAITED, LinkBorrower
from ha.link_loan import Returned, replicated_offset
from ha.reader_pause import ReaderPause
from ha.refusals import RefusalReason
from ha.report_ceiling import ReportCeiling
from ha.served_link import ServedLink
from ha.slave_progress import SlaveProgress
from ha.source_files import LogSource, SourceFiles
from ha.transport import PlainTransport
from ha.wait_notify_object import WaitNotifyObject
from ha.write_socket_service import WriteSocketService
from ipc.bell import Bell
from ipc.clock import SystemClock
from ipc.command_channel import create_channel
from ipc.control_page import STARTS, ProcessIndex
from remoting.selector_loop import SelectorLoop
from remoting.selector_seam import new_selector
from store.control_slots import LOG_OPENED
from store.mapped_file import file_name
from tests.ha.master_world import EVERYTHING, FakeSlave, GrowingLog, OwnSlave
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import close_page, fresh_page

FILE_SIZE = 8 << 20


def _not_for_a_master(*_arguments: Any, **_named: Any) -> NoReturn:
    raise AssertionError


class _World:
    """Both processes of a SYNC_MASTER, as far as its slaves are concerned."""

    def __init__(self, root: Path, config: HaConfig) -> None:
        self.page = fresh_page()
        self.counters = self.page.counters
        self.bell_fd = Bell.create()
        bell = Bell(self.page, ProcessIndex.HA, self.bell_fd)
        self.log = GrowingLog(root / "commitlog", self.page, bell, file_size=FILE_SIZE, start=0)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.listening.getsockname()
        self.log.append(1)
        self.counters[LOG_OPENED] = EVERYTHING + 1
        self._ends = create_channel()
        self._config = config
        self._bell = bell
        self._source = LogSource(self.log.directory, FILE_SIZE, self.page)
        self.service = self._new_service()
        self.loop = SelectorLoop("remoting")
        self.acknowledged: list[int] = []
        self.borrower = LinkBorrower(
            self._ends[1],
            self._source,
            SystemClock(),
            self.loop,
            acknowledged=lambda: self.acknowledged.append(replicated_offset(self.counters)),
        )
        self.borrower.start()
        self.loop.start()
        self.service.start()

    def _new_service(self) -> HAService:
        return HAService(
            HaEnvironment(self._config, SystemClock(), new_selector),
            self.listening,
            self._source,
            Bells(self._bell, lambda: None, lambda: None),
            OwnIdentity("b", 0, "127.0.0.1:10911"),
            self,
            None,
            loans=self._ends[0],
        )

    def fetch_members(self) -> None:
        return None

    def verify_replica(self, _ip: str, _offset: int) -> bool:
        return True

    inspect_master = begin_log = end_log = request_resync = staticmethod(_not_for_a_master)

    def publish(self, size: int) -> int:
        """As the loop does; the new end."""
        end = self.log.append(size)
        self.on_loop(self.borrower.send_awaited)
        return end

    def on_loop(self, function: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(lambda: function() and None)

    @property
    def is_lent(self) -> bool:
        loan = self.counters[LOAN]
        return bool(loan) and self.counters[LENT_NUMBER] == loan and self.borrower.link is not None

    def wait_lent(self) -> None:
        """It is lent when something was sent; a ring is enough."""
        wait_until(lambda: self._bell.ring() or self.is_lent)

    def wait_replicated(self, end: int) -> None:
        wait_until(lambda: replicated_offset(self.counters) == end)

    def refusals(self, reason: RefusalReason) -> int:
        return self.counters[HA_REFUSALS + reason]

    def close(self) -> None:
        self.on_loop(self.borrower.stop)
        self.loop.stop()
        self.loop.close()
        assert self.service.shutdown()
        assert self.borrower.link is None
        for end in (*self._ends, self.listening):
            end.close()
        os.close(self.bell_fd)
        close_page(self.page)


@pytest.fixture(autouse=True)
def _short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lendable_link, "_REST_MS", 200)
    monkeypatch.setattr(lendable_link, "_LOOK_MS", 20)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[_World]:
    # A heartbeat that is due would end a loan, too.
    world = _World(tmp_path, HaConfig(ha_send_heartbeat_interval=60_000))
    yield world
    world.close()


@pytest.mark.parametrize("kind", [FakeSlave, OwnSlave])
def test_a_lent_slave_gets_the_log_and_its_reports_count(
    world: _World, kind: type[FakeSlave]
) -> None:
    world.log.append(999)
    with kind(world.address, 1, file_size=FILE_SIZE) as slave:
        slave.read_up_to(1000, report=True)
        world.wait_lent()
        for size in (1, 700, 3000, MOST_AT_ONCE):
            end = world.publish(size)
            slave.read_frame()
            assert slave.offset == end, "one frame"
            slave.report(end)
            world.wait_replicated(end)
        assert world.acknowledged == [1001, 1701, 4701, 4701 + MOST_AT_ONCE]
        assert world.is_lent
        wait_until(lambda: world.counters[REPLICATED_OFFSET] == end)  # What others read.
        (progress,) = world.service.registry.live()
        assert progress.ack_offset == progress.sent_offset == end
        assert progress.transferred == end - 1
        assert slave.received == world.log.bytes_from(1)


def test_what_nobody_waits_for_is_left_to_process_ha(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing else ends the loan, and it is not lent again.
    monkeypatch.setattr(lendable_link, "_UNANSWERED_MS", 60_000)
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        monkeypatch.setattr(lendable_link, "_REST_MS", 60_000)
        for number in range(3 * MOST_UNAWAITED):
            awaited = number == MOST_UNAWAITED
            send = world.borrower.send_awaited if awaited else world.borrower.send_rest
            # In one turn: what comes between two is sent at the end of the turn that it wakes.
            world.on_loop(lambda send=send: world.log.append(10) and send())
            slave.read_up_to(1 + 10 * (number + 1), report=True)
            if number == 2 * MOST_UNAWAITED - 1:
                assert world.is_lent
        assert not world.is_lent


def test_reports_of_a_loan_that_is_over_do_not_count(world: _World) -> None:
    counters = world.counters
    counters[LENT_ACKED], counters[REPLICATED_OFFSET] = 500, 100
    assert replicated_offset(counters) == 100
    counters[LENT_NUMBER] = 7
    assert replicated_offset(counters) == 100
    counters[LOAN] = 7
    assert replicated_offset(counters) == 500
    counters[REPLICATED_OFFSET] = 600
    assert replicated_offset(counters) == 600, "process ha has looked meanwhile"
    counters[REPLICATED_OFFSET] = 100
    counters[LOAN] = 8
    assert replicated_offset(counters) == 100
    counters[LOAN] = counters[LENT_NUMBER] = 0


def test_it_is_handed_over_and_back_in_traffic(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each moment one process writes and one reads: not a byte is missing, or twice."""
    monkeypatch.setattr(lendable_link, "_REST_MS", 0)
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        loans = set()
        for number in range(300):
            end = world.publish(100 if number % 20 else MOST_AT_ONCE + 1)  # which ends the loan
            slave.read_up_to(end)
            slave.report(end)
            world.wait_replicated(end)
            loans.add(world.counters[LOAN])
            if number % 20 == 10:
                world.wait_lent()
        assert len(loans) > 10
        assert slave.received == world.log.bytes_from(1)
        (progress,) = world.service.registry.live()
        wait_until(lambda: progress.transferred == end - 1)


@pytest.mark.parametrize("size", [1, MOST_AT_ONCE - 1])
def test_a_frame_that_the_socket_does_not_take_is_finished(world: _World, size: int) -> None:
    """Cut in its body, or not begun."""
    with FakeSlave(world.address, 1, file_size=FILE_SIZE, receive_buffer=4096) as slave:
        slave.read_up_to(world.log.append(99), report=True)
        world.wait_lent()
        assert world.borrower.link is not None
        world.borrower.link._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        while world.is_lent:
            world.publish(size)
            wait_until(lambda: world.counters[LENT_SENT] == world.log.end or not world.is_lent)
        assert world.log.end < FILE_SIZE
        slave.read_up_to(world.log.end, report=True)
        assert slave.received == world.log.bytes_from(1)
        (progress,) = world.service.registry.live()
        wait_until(lambda: progress.transferred == world.log.end - 1)
        wait_until(lambda: replicated_offset(world.counters) == world.log.end)
        world.wait_lent()


def test_a_report_in_two_pieces_to_two_processes(world: _World) -> None:
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        first, second = world.publish(100), world.publish(100)
        slave.read_up_to(second)
        data = slave.reports.pack(first) + slave.reports.pack(second)
        slave.sock.sendall(data[:30])
        wait_until(lambda: replicated_offset(world.counters) == first)
        with FakeSlave(world.address, 1, source="127.0.0.2", file_size=FILE_SIZE) as other:
            wait_until(lambda: not world.is_lent)
            slave.sock.sendall(data[30:])
            wait_until(lambda: world.counters[REPLICATED_OFFSET] == second)
            other.read_up_to(second)
        slave.sock.sendall(slave.reports.pack(second)[:5])
        world.wait_lent()
        slave.sock.sendall(slave.reports.pack(second)[5:])
        end = world.publish(10)
        slave.read_up_to(end)
        slave.report(end)
        world.wait_replicated(end)


def test_with_two_slaves_nothing_is_lent(world: _World) -> None:
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        with FakeSlave(world.address, 1, source="127.0.0.2", file_size=FILE_SIZE) as other:
            wait_until(lambda: world.counters[REPLICA_COUNT] == 2 and not world.is_lent)
            end = world.publish(100)
            for each in (slave, other):
                each.read_up_to(end, report=True)
            world.wait_replicated(end)
            assert not world.is_lent
        world.wait_lent()


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (-5, RefusalReason.NEGATIVE),
        (99, RefusalReason.DECREASING),
        (1001, RefusalReason.BEYOND_SENT),
        ((1 << 63) - 1, RefusalReason.BEYOND_SENT),
    ],
)
def test_a_wrong_report_to_the_borrower_closes_the_link_and_frees_nothing(
    world: _World, report: int, reason: RefusalReason
) -> None:
    world.log.append(99)
    with FakeSlave(world.address, 100, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        end = world.publish(900)
        slave.read_up_to(end)
        slave.report(report)
        assert slave.is_closed_by_master()
        wait_until(lambda: world.refusals(reason) == 1)
        wait_until(lambda: world.counters[REPLICA_COUNT] == 0)
        assert world.acknowledged == []
        assert replicated_offset(world.counters) <= 100


def test_a_damaged_report_closes_the_link(world: _World) -> None:
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        end = world.publish(900)
        slave.read_up_to(end)
        slave.sock.sendall(slave.reports.pack(end - 1)[:8] + slave.reports.pack(end)[8:])
        assert slave.is_closed_by_master()
        wait_until(lambda: world.refusals(RefusalReason.BAD_CHECKSUM) == 1)
        assert world.acknowledged == []


def test_a_slave_that_goes_and_comes_back(world: _World) -> None:
    for _ in range(3):
        with OwnSlave(world.address, max(world.log.end, 1), file_size=FILE_SIZE) as slave:
            world.wait_lent()
            end = world.publish(100)
            slave.read_up_to(end)
            slave.report(end)
            world.wait_replicated(end)
        wait_until(lambda: world.counters[REPLICA_COUNT] == 0)
        assert world.borrower.link is None
        assert replicated_offset(world.counters) == 0, "nobody has it now"
        world.publish(50)


def test_heartbeats_and_silence_are_seen_to(tmp_path: Path) -> None:
    config = HaConfig(ha_send_heartbeat_interval=100, ha_housekeeping_interval=1500)
    world = _World(tmp_path, config)
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        end = world.publish(100)
        slave.read_up_to(end)
        slave.report(end)
        assert [slave.read_frame() for _ in range(3)] == [0, 0, 0]
        world.wait_lent()
        slave.skip_to_end()
        wait_until(lambda: world.refusals(RefusalReason.SILENT) == 1)
    world.close()


class _Loan:
    """Instead of LendableLink: out, then back with a frame that was sent over it."""

    def __init__(self, sent_ms: int) -> None:
        self.selector = new_selector()
        self.is_out = True
        self._sent_ms = sent_ms
        self.begun: list[int] = []

    def wait(self) -> tuple[tuple[()], Returned]:
        self.is_out = False
        return (), Returned(
            number=1, frame_at=1, frame_left=0, next_offset=101, ack_offset=101, rest="",
            read_ms=self._sent_ms, sent_ms=self._sent_ms,
        )  # fmt: skip

    def begin(self, _now_ms: int, *, sent_ms: int, is_in_file: object) -> bool:
        self.begun.append(sent_ms)
        return True

    def close(self) -> None:
        self.selector.close()


def test_a_frame_of_the_loan_puts_off_the_heartbeat(world: _World) -> None:
    """The slave was sent something 100 ms ago, by whichever process."""
    clock, loan = ManualClock(), _Loan(sent_ms=1_400)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    peer.setblocking(False)
    world.log.append(100)
    now = {"now_ms": clock.monotonic_ms(), "wall_ms": clock.now_ms()}
    link = ServedLink(
        PlainTransport(ours),
        SlaveProgress("10.0.0.1:1", 1, 101, **now),
        _not_for_a_master,
        lambda: None,
    )
    notify = WaitNotifyObject(Bell(world.page, ProcessIndex.HA, world.bell_fd))
    service = WriteSocketService(
        HaEnvironment(HaConfig(ha_send_heartbeat_interval=1_000), clock, new_selector),
        link,
        LogSource(world.log.directory, FILE_SIZE, world.page),
        FlowMonitor(0),
        notify,
        ReportCeiling(world.page),
        loan=loan,  # type: ignore[arg-type]
    )
    clock.advance(1_500)
    service.step()
    service.step()
    assert loan.begun == [1_400], "lent again, with what was sent last"
    with peer, pytest.raises(BlockingIOError):
        peer.recv(1)
    service.finish()
    link.transport.close()


def test_a_slave_that_takes_and_acknowledges_nothing_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lendable_link, "_UNANSWERED_MS", 100)
    world = _World(
        tmp_path, HaConfig(ha_housekeeping_interval=800, ha_send_heartbeat_interval=60_000)
    )
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        end = world.publish(100)
        slave.read_up_to(end)
        wait_until(lambda: not world.is_lent)
        slave.skip_to_end()
        wait_until(lambda: world.refusals(RefusalReason.SILENT) == 1)
    world.close()


def test_a_borrower_that_ends_loses_the_connection(world: _World) -> None:
    """Nobody knows how much of a frame it has sent."""
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        loan = world.counters[LOAN]
        world.counters[STARTS + ProcessIndex.REMOTING] += 1
        assert slave.is_closed_by_master()
        wait_until(lambda: world.refusals(RefusalReason.NETWORK) == 1)
    with OwnSlave(world.address, 1, file_size=FILE_SIZE):
        world.wait_lent()
        assert world.counters[LOAN] != loan


def test_a_borrower_that_does_not_answer_loses_the_connection(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lendable_link, "_RETURN_MS", 100)
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        world.on_loop(lambda: world.loop.unregister(world._ends[1]))
        with FakeSlave(world.address, 1, source="127.0.0.2", file_size=FILE_SIZE):
            assert slave.is_closed_by_master()
            wait_until(lambda: world.refusals(RefusalReason.NETWORK) == 1)


def test_a_new_process_ha_closes_what_its_predecessor_lent(world: _World) -> None:
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        (connection,) = world.service._connections._connections
        assert connection._writer is not None
        # Killed: nothing of it runs any more, its descriptors are closed.
        connection._writer._loan._lender.drop()
        successor = world._new_service()
        assert world.counters[LOAN] == 0
        wait_until(lambda: world.borrower.link is None)
        assert replicated_offset(world.counters) == world.counters[REPLICATED_OFFSET]
        connection.end(None, "killed")
        assert slave.is_closed_by_master()
        del successor


def test_what_was_at_risk_is_measured_by_who_takes_the_reports(world: _World) -> None:
    observer = world.service.new_observer()
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        observer.observe()
        for size in (10, 3000, 20):
            end = world.publish(size)
            slave.read_up_to(end)
            slave.report(end)
            world.wait_replicated(end)
        facts = observer.observe()
        assert facts.at_risk.at_least == facts.at_risk.at_most == 3000
        assert observer.observe().at_risk.at_most == 0


def test_the_last_bytes_of_an_orderly_stop_leave_through_ha(world: _World) -> None:
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        world.on_loop(world.borrower.stop)
        wait_until(lambda: not world.is_lent)
        end = world.log.append(100)
        slave.read_up_to(end)
        slave.report(end)
        wait_until(lambda: world.counters[REPLICATED_OFFSET] == end)


# -- what the borrower cannot do, or does not see ----------------------------------------------


def test_a_loan_that_nobody_takes_up_is_over(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process remoting is starting. What it finds later it leaves alone."""
    monkeypatch.setattr(lendable_link, "_UNTAKEN_MS", 50)
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        slave.read_up_to(world.log.append(99))
        world.on_loop(lambda: world.loop.unregister(world._ends[1]))
        wait_until(lambda: world._bell.ring() or world.counters[LOAN])
        slave.sock.sendall(slave.reports.pack(100)[:5])  # It is not read twice.
        end = world.log.append(900)
        slave.read_up_to(end)
        slave.sock.sendall(slave.reports.pack(100)[5:])
        slave.report(end)
        wait_until(lambda: world.counters[REPLICATED_OFFSET] == end)
        receive = world.borrower._receive
        world.on_loop(lambda: world.loop.register(world._ends[1], 1, receive))
        world.wait_lent()
        end = world.publish(10)
        slave.read_up_to(end)
        slave.report(end)
        world.wait_replicated(end)
        assert slave.received == world.log.bytes_from(1)
        assert world.refusals(RefusalReason.NETWORK) == 0


def test_a_loan_whose_borrower_has_ended_is_never_untaken(world: _World) -> None:
    """Its successor's page looks like that, and nobody knows what it has sent."""
    counters = world.counters
    with OwnSlave(world.address, 1, file_size=FILE_SIZE):
        world.wait_lent()
        lender = world.service._lender
        assert lender is not None
        assert lender.take_untaken() is None
        counters[STARTS + ProcessIndex.REMOTING] += 1
        counters[LENT_NUMBER] = 0
        assert lender.take_untaken() is None


def test_a_borrower_without_descriptors_gives_it_back_at_once(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Channel:
        """As the kernel, when the process may open no more."""

        def __init__(self, channel: socket.socket) -> None:
            self._channel = channel
            self.returned: list[bytes] = []

        def recvmsg(self, *arguments: int) -> tuple[bytes, list[Any], int, None]:
            packet, ancillary, _flags, _address = self._channel.recvmsg(*arguments)
            for _level, _kind, data in ancillary:
                os.close(array.array("i", data)[0])
            return packet, [], socket.MSG_CTRUNC if ancillary else 0, None

        def send(self, packet: bytes) -> int:
            self.returned.append(packet)
            return self._channel.send(packet)

    channel = Channel(world._ends[1])
    monkeypatch.setattr(world.borrower, "_channel", channel)
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        wait_until(lambda: world._bell.ring() or channel.returned)
        wait_until(lambda: not world.counters[LOAN])
        end = world.publish(100)
        slave.read_up_to(end)
        slave.report(end)
        wait_until(lambda: world.counters[REPLICATED_OFFSET] == end)
        assert slave.received == world.log.bytes_from(1)
        monkeypatch.undo()


def test_the_file_that_is_being_made_is_not_looked_into(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    class Files(SourceFiles):
        def reach(self, offset: int) -> bool:
            seen.append(offset)
            return super().reach(offset)

    monkeypatch.setattr(write_socket_service, "SourceFiles", Files)
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        (world.log.directory / file_name(FILE_SIZE)).touch()
        slave.read_up_to(world.log.append(FILE_SIZE - 1))
        slave.report(FILE_SIZE)
        wait_until(lambda: world._bell.ring() or FILE_SIZE in seen)
        (world.log.directory / file_name(FILE_SIZE)).unlink()
        slave.read_up_to(world.log.append(100))
        assert world.refusals(RefusalReason.NETWORK) == 0


def test_the_descriptor_is_of_this_process_alone(world: _World) -> None:
    with OwnSlave(world.address, 1, file_size=FILE_SIZE):
        world.wait_lent()
        assert world.borrower.link is not None
        assert not os.get_inheritable(world.borrower.link.fileno())


# -- what others see meanwhile -----------------------------------------------------------------


@pytest.fixture
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes up what was done but who asks."""
    monkeypatch.setattr(lendable_link, "_LOOK_MS", 2_000)


@pytest.mark.usefixtures("rare_looks")
def test_a_slave_that_keeps_up_counts_while_it_is_lent(tmp_path: Path) -> None:
    world = _World(tmp_path, HaConfig(ha_slave_fallbehind_max=500))
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        for _ in range(3):
            end = world.publish(400)
            slave.read_up_to(end)
            slave.report(end)
            world.wait_replicated(end)
        world.service._transfer.evaluate()
        assert world.counters[REPLICA_COUNT] == 1
    world.close()


@pytest.mark.usefixtures("rare_looks")
def test_what_has_counted_is_not_forgotten_of_a_slave_that_leaves(world: _World) -> None:
    with OwnSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        world.service._transfer.refresh = lambda: None
        end = world.publish(400)
        slave.read_up_to(end)
        slave.report(end)
        world.wait_replicated(end)
        world.counters[STARTS + ProcessIndex.REMOTING] += 1
        slave.is_closed_by_master()
        wait_until(lambda: not world.service.registry.live())
        (replica,) = world.service.registry.replicas()
        assert replica.position == end


def test_nothing_counts_that_comes_behind_a_wrong_report(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even until the connection is closed, which is on another thread."""
    resting: list[object] = []
    end_of = HAConnection.end

    def end(self: HAConnection, reason: RefusalReason | None, text: str) -> None:
        assert self._reader is not None
        if reason is RefusalReason.DECREASING:
            resting.append(self._reader._pause._state)
        end_of(self, reason, text)

    monkeypatch.setattr(HAConnection, "end", end)
    with FakeSlave(world.address, 1, file_size=FILE_SIZE) as slave:
        world.wait_lent()
        end_offset = world.publish(900)
        slave.read_up_to(end_offset)
        slave.sock.sendall(bytes(8) + end_offset.to_bytes(8, "big"))
        assert slave.is_closed_by_master()
        wait_until(lambda: world.refusals(RefusalReason.DECREASING) == 1)
        assert len(resting) == 1
        assert resting[0] is not None
        assert replicated_offset(world.counters) <= 1


# -- what is never lent ------------------------------------------------------------------------


def _may_be_lent(world: _World, transport: Any, *, reports_flushed: bool = False) -> bool:
    progress = SlaveProgress(
        "10.0.0.1:1", 1, 1, now_ms=0, wall_ms=0, reports_flushed=reports_flushed
    )
    connection, pause = HAConnection(transport, progress), ReaderPause()
    loan = world.service._connections._loan_of(connection, None, pause)
    pause.close()
    if loan is not None:
        loan.selector.close()
    return loan is not None


def test_only_plain_connections_of_slaves_that_report_what_they_have_received(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as sock:
        plain = PlainTransport(sock)
        assert _may_be_lent(world, plain)
        assert not _may_be_lent(world, object()), "TLS has state"
        assert not _may_be_lent(world, plain, reports_flushed=True)
        monkeypatch.setattr(world.service._connections, "_flow", FlowMonitor(1 << 20))
        assert not _may_be_lent(world, plain)
