"""LinkBorrower and LentLink: what the loop does with a lent connection, and what it gives back.

On the test's thread, with socket pairs; the whole is in test_lent_link.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ha import lent_link
from ha.control_slots import LENT_ACKED, LENT_NUMBER, LENT_SENT, LOAN
from ha.frame import FRAME_HEADER
from ha.link_borrower import LinkBorrower
from ha.link_loan import MAX_PACKET, Lent, Recall, Returned
from ha.source_files import LogSource, SourceFiles
from ipc.bell import Bell
from ipc.command_channel import create_channel
from ipc.control_page import ProcessIndex
from store.errors import StoreError
from tests.ha.master_world import GrowingLog
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import close_page, fresh_page

FILE_SIZE = 64 << 10


class _Loop:
    """What is watched, as SelectorLoop knows it."""

    def __init__(self) -> None:
        self.callbacks: dict[int, Callable[[int], None]] = {}
        self.at_turn_end: list[Callable[[], None]] = []

    def register(
        self, sock: socket.socket | int, _events: int, callback: Callable[[int], None]
    ) -> None:
        fd = sock if isinstance(sock, int) else sock.fileno()
        assert fd not in self.callbacks
        self.callbacks[fd] = callback

    def unregister(self, sock: socket.socket | int) -> None:
        del self.callbacks[sock if isinstance(sock, int) else sock.fileno()]

    def add_turn_end(self, function: Callable[[], None]) -> None:
        self.at_turn_end.append(function)


class _Desk:
    """A borrower, the other end of its channel, and a slave."""

    def __init__(self, root: Path) -> None:
        self.page = fresh_page()
        self.counters = self.page.counters
        self.counters[LENT_NUMBER] = 4711
        self.bell_fd = Bell.create()
        bell = Bell(self.page, ProcessIndex.HA, self.bell_fd)
        self.log = GrowingLog(root / "commitlog", self.page, bell, file_size=FILE_SIZE, start=0)
        self.log.append(100)
        self.loop, self.clock = _Loop(), ManualClock(monotonic_ms=1_000)
        self.channel, ours = create_channel()
        self.channel.settimeout(5)
        self.acknowledged = 0
        self.borrower = LinkBorrower(
            ours,
            LogSource(self.log.directory, FILE_SIZE, self.page),
            self.clock,
            self.loop,
            acknowledged=self._acknowledge,
        )
        self.borrower.start()
        self._channel_fd = ours.fileno()
        self.lent, self.slave = socket.socketpair()
        for sock in (self.lent, self.slave):
            sock.setblocking(False)
        self.ends = [self.channel, ours, self.lent, self.slave]

    def _acknowledge(self) -> None:
        self.acknowledged += 1

    def lend(self, number: int = 1, *, at: int = 100, rest: str = "", take: bool = True) -> Lent:
        lent = Lent(
            number=number,
            remote="10.0.0.1:1",
            next_offset=at,
            ack_offset=at,
            is_checked=False,
            report_key=None,
            rest=rest,
            read_ms=7,
            sent_ms=8,
        )
        self.counters[LOAN] = number
        socket.send_fds(self.channel, [msgspec.json.encode(lent)], [self.lent.fileno()])
        if take:
            self.receive()
        return lent

    def receive(self) -> None:
        """The channel is readable."""
        self.loop.callbacks[self._channel_fd](1)

    def recall(self, number: int) -> None:
        self.channel.send(msgspec.json.encode(Recall(number=number)))
        self.receive()

    def report(self, *offsets: int) -> None:
        self.slave.sendall(b"".join(offset.to_bytes(8, "big") for offset in offsets))
        self.read()

    def read(self) -> None:
        assert self.borrower.link is not None
        self.loop.callbacks[self.borrower.link.fileno()](1)

    def returned(self) -> Returned:
        assert self.borrower.link is None
        assert list(self.loop.callbacks) == [self._channel_fd], "nothing is watched any more"
        return msgspec.json.decode(self.channel.recv(MAX_PACKET), type=Returned)

    def frame(self) -> tuple[int, int]:
        offset, size = FRAME_HEADER.unpack(self.slave.recv(FRAME_HEADER.size))
        assert self.slave.recv(size + 1) == self.log.bytes_from(offset)[:size]
        return offset, size


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[_Desk]:
    before = len(os.listdir("/proc/self/fd"))
    desk = _Desk(tmp_path)
    yield desk
    desk.borrower.stop()
    for end in desk.ends:
        end.close()
    os.close(desk.bell_fd)
    close_page(desk.page)
    assert len(os.listdir("/proc/self/fd")) <= before, "no descriptor is left"


def test_a_predecessor_s_loan_is_none_of_its(desk: _Desk) -> None:
    assert desk.counters[LENT_NUMBER] == 0


def test_what_was_published_meanwhile_leaves_with_the_taking(desk: _Desk) -> None:
    desk.log.append(50)
    desk.lend()
    assert desk.frame() == (100, 50)
    assert (desk.counters[LENT_SENT], desk.counters[LENT_ACKED]) == (150, 100)


def test_it_is_said_how_far_it_is_sent_before_a_byte_leaves(
    desk: _Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.lend()
    said: list[int] = []

    class Socket:
        def sendmsg(self, parts: list[bytes]) -> int:
            said.append(desk.counters[LENT_SENT])
            return sum(map(len, parts))

    assert desk.borrower.link is not None
    with contextlib.closing(desk.borrower.link._sock):
        monkeypatch.setattr(desk.borrower.link, "_sock", Socket())
        desk.log.append(50)
        desk.borrower.link.send_new()
        monkeypatch.undo()
        assert said == [150]
        desk.borrower.stop()


def test_a_recalled_loan_is_left_alone(desk: _Desk) -> None:
    lent = desk.lend(take=False)
    desk.log.append(50)
    desk.slave.sendall(bytes(8))
    desk.counters[LOAN] = 0
    desk.receive()
    assert desk.returned() == lent.unused()
    assert desk.lent.recv(9) == bytes(8)
    with pytest.raises(BlockingIOError):
        desk.slave.recv(1)


def test_nothing_is_taken_behind_a_stop(desk: _Desk) -> None:
    desk.lend()
    desk.borrower.stop()
    desk.returned()
    desk.log.append(50)
    lent = desk.lend(2)
    assert desk.returned() == lent.unused()


def test_only_its_own_recall_counts(desk: _Desk) -> None:
    desk.lend(2)
    desk.recall(1)
    assert desk.borrower.link is not None
    desk.recall(2)
    assert desk.returned().number == 2
    desk.recall(2)


def test_a_new_process_ha_gets_nothing_back(desk: _Desk) -> None:
    desk.lend()
    desk.lent.close()
    desk.recall(0)
    assert desk.borrower.link is None
    assert desk.slave.recv(1) == b""
    desk.channel.setblocking(False)
    with pytest.raises(BlockingIOError):
        desk.channel.recv(1)


def test_a_new_loan_ends_the_old_one(desk: _Desk) -> None:
    desk.lend()
    old = desk.borrower.link
    desk.lend(2)
    assert old is not None
    assert old.fileno() == -1
    assert desk.borrower.link is not None
    assert desk.borrower.link.number == desk.counters[LENT_NUMBER] == 2
    assert len(desk.loop.callbacks) == 2


@pytest.mark.parametrize("size", [lent_link.MOST_AT_ONCE, lent_link.MOST_AT_ONCE + 1])
def test_what_is_too_much_at_once_is_given_back_unsent(desk: _Desk, size: int) -> None:
    lent = desk.lend()
    desk.log.append(size)
    desk.borrower.send_awaited()
    if size == lent_link.MOST_AT_ONCE:
        assert desk.frame() == (100, size)
    else:
        assert desk.returned() == lent.unused()


def test_what_lies_in_two_files_is_given_back_unsent(desk: _Desk) -> None:
    desk.log.append(FILE_SIZE - 200)
    desk.lend(at=FILE_SIZE - 100)
    desk.log.append(100)
    desk.borrower.send_awaited()
    assert desk.frame() == (FILE_SIZE - 100, 100)
    desk.report(FILE_SIZE)
    desk.borrower.stop()
    assert desk.returned().next_offset == FILE_SIZE
    desk.borrower._is_stopped = False
    desk.lend(2, at=FILE_SIZE - 100)
    assert desk.frame() == (FILE_SIZE - 100, 100)
    desk.borrower.stop()
    desk.returned()
    desk.borrower._is_stopped = False
    desk.log.append(100)
    lent = desk.lend(3, at=FILE_SIZE - 100)
    assert desk.returned() == lent.unused()


def test_a_log_that_was_cut_is_given_back(desk: _Desk) -> None:
    lent = desk.lend(at=101)
    assert desk.returned() == lent.unused()


def test_what_comes_back_goes_on_where_it_stopped(desk: _Desk) -> None:
    desk.lend(rest="0000000000000000"[:6])
    desk.clock.advance(500)
    desk.log.append(50)
    desk.borrower.send_awaited()
    desk.clock.advance(500)
    desk.slave.sendall((120).to_bytes(8, "big")[3:] + bytes(2))
    desk.read()
    assert desk.counters[LENT_ACKED] == 120
    assert desk.acknowledged == 1
    desk.borrower.stop()
    back = desk.returned()
    assert (back.frame_at, back.next_offset, back.frame_left, back.ack_offset) == (100, 150, 0, 120)
    assert (back.sent_ms, back.read_ms, back.rest, back.reason) == (1_500, 2_000, "0000", None)


@pytest.mark.parametrize(("offset", "reason"), [(99, "DECREASING"), (151, "BEYOND_SENT")])
def test_a_wrong_report_counts_nothing(desk: _Desk, offset: int, reason: str) -> None:
    desk.lend()
    desk.log.append(50)
    desk.borrower.send_awaited()
    desk.report(offset)
    assert (desk.acknowledged, desk.counters[LENT_ACKED]) == (0, 100)
    assert desk.returned().reason == reason


def test_who_reports_the_same_again_frees_nothing(desk: _Desk) -> None:
    desk.lend()
    desk.report(100, 100)
    assert desk.acknowledged == 0


def test_the_end_and_errors_of_the_socket_are_told(desk: _Desk) -> None:
    desk.lend()
    desk.slave.shutdown(socket.SHUT_WR)
    desk.read()
    back = desk.returned()
    assert (back.reason, back.text) == ("NETWORK", "the slave closed the connection")

    desk.lend(2)
    desk.slave.shutdown(socket.SHUT_RD)
    desk.log.append(50)
    desk.borrower.send_awaited()
    back = desk.returned()
    assert (back.reason, back.text) == ("NETWORK", "sending failed: Broken pipe")
    assert back.frame_left == FRAME_HEADER.size + 50


def test_an_error_in_reading_is_told(desk: _Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        slave = socket.create_connection(listening.getsockname())
        desk.lent, _address = listening.accept()
    desk.ends.append(desk.lent)
    desk.lend()
    slave.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    slave.close()  # A reset.
    desk.read()
    back = desk.returned()
    assert (back.reason, back.text) == ("NETWORK", "reading failed: Connection reset by peer")


def test_a_channel_that_takes_nothing_ends_nothing_else(
    desk: _Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.lend()
    desk.channel.close()
    desk.borrower.stop()
    assert desk.borrower.link is None
    assert "giving the link to the slave back to process ha failed" in caplog.text


def test_the_file_is_unmapped_with_the_loan(desk: _Desk) -> None:
    desk.lend()
    desk.log.append(50)
    desk.borrower.send_awaited()
    assert _maps_of(desk.log.directory)
    link = desk.borrower.link
    desk.borrower.stop()
    assert not _maps_of(desk.log.directory)
    assert link is not None, "whoever still has it"


def _maps_of(directory: Path) -> int:
    return sum(str(directory) in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no descriptors"), StoreError("size 0")])
def test_a_file_that_cannot_be_mapped_here_ends_the_loan_and_nothing_else(
    desk: _Desk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def reach(_self: SourceFiles, _offset: int) -> bool:
        raise error

    monkeypatch.setattr(SourceFiles, "reach", reach)
    lent = desk.lend()
    desk.log.append(50)
    desk.borrower.send_awaited()
    assert desk.returned() == lent.unused()


@pytest.mark.parametrize("count", [511, 512])
def test_a_flood_of_reports_is_left_to_process_ha(desk: _Desk, count: int) -> None:
    desk.lend()
    desk.log.append(50)
    desk.borrower.send_awaited()
    desk.report(*[150] * count)
    assert (desk.acknowledged, desk.counters[LENT_ACKED]) == (1, 150)
    if count == 512:
        assert desk.returned().ack_offset == 150
    else:
        assert desk.borrower.link is not None
