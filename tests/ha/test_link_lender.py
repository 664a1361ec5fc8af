"""LinkLender: which connection may be lent, to whom, and what is done with what comes back.

Pure but for socket pairs; the whole is in test_lent_link.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec
import pytest

from ha.control_slots import LENT_ACKED, LENT_NUMBER, LENT_SENT, LOAN
from ha.link_lender import Lendable, LinkLender
from ha.link_loan import MAX_PACKET, Lent, Recall, Returned
from ha.reader_pause import ReadState
from ha.slave_progress import SlaveProgress
from ha.transport import PlainTransport
from ipc.command_channel import create_channel
from ipc.control_page import ENDS, STARTS, ProcessIndex
from tests.ha.replica_world import ReplicaWorld

STATE = ReadState(b"\1\2", 17)


class _Told:
    """Instead of GroupTransferService."""

    def __init__(self) -> None:
        self.acked: list[int] = []

    def notify_lent(self, progress: SlaveProgress, at_risk: int) -> None:
        assert at_risk == 0
        self.acked.append(progress.ack_offset)


class _Desk:
    """A lender, and the other end of its channel."""

    def __init__(self, in_sync_replicas: int = 2) -> None:
        self.replicas = ReplicaWorld()
        self.counters = self.replicas.page.counters
        self.counters[LOAN] = 4711
        ours, self.channel = create_channel()
        self.channel.settimeout(5)
        self.told = _Told()
        self.lender = LinkLender(
            ours,
            self.replicas.page,
            self.replicas.clock,
            self.replicas.registry,
            in_sync_replicas,
            self.told,
        )
        self.sent: list[tuple[str, int]] = []
        self.ends = [ours, self.channel]
        assert msgspec.json.decode(self.channel.recv(MAX_PACKET), type=Recall).number == 0

    def connect(self, remote: str, ack: int = 100) -> Lendable:
        sock = socket.socket()
        self.ends.append(sock)
        return Lendable(
            PlainTransport(sock),
            self.replicas.connect(remote, ack),
            is_checked=False,
            report_key=None,
            sent=lambda ip, end: self.sent.append((ip, end)),
        )

    def take(self) -> Lent:
        """As the borrower; its descriptor is closed."""
        packet, fds, _flags, _address = socket.recv_fds(self.channel, MAX_PACKET, 1)
        socket.socket(fileno=fds[0]).close()
        return msgspec.json.decode(packet, type=Lent)

    def give(self, lent: Lent, **changes: object) -> None:
        returned = msgspec.structs.replace(lent.unused(), **changes)
        self.channel.send(msgspec.json.encode(returned))


@pytest.fixture
def desk() -> Iterator[_Desk]:
    desk = _Desk()
    yield desk
    for end in desk.ends:
        end.close()


def test_a_loan_of_a_predecessor_is_over(desk: _Desk) -> None:
    assert desk.counters[LOAN] == 0


@pytest.mark.parametrize(("in_sync_replicas", "may"), [(1, False), (2, True), (3, False)])
def test_only_what_one_replica_decides_is_lent(in_sync_replicas: int, may: bool) -> None:
    desk = _Desk(in_sync_replicas)
    link = desk.connect("10.0.0.1:1")
    assert desk.lender.may_lend(link.progress) is may
    assert desk.lender.lend(link, STATE, 1) is may
    for end in desk.ends:
        end.close()


def test_only_the_newest_connection_of_a_slave_is_lent(desk: _Desk) -> None:
    registry = desk.replicas.registry
    old, new = (desk.connect(f"10.0.0.1:{port}") for port in (1, 2))
    for port in (1, 2):
        registry.announce(f"10.0.0.1:{port}", "b", 1)
    assert len(registry.live()) == 1
    assert not desk.lender.may_lend(old.progress)
    assert desk.lender.may_lend(new.progress)


def test_beside_a_replica_that_may_count_soon_nothing_is_lent(desk: _Desk) -> None:
    registry = desk.replicas.registry
    named, _nameless = desk.connect("10.0.0.1:1"), desk.connect("10.0.0.1:2")
    registry.announce("10.0.0.1:1", "b", 1)
    assert registry.counted == (named.progress,)
    assert not desk.lender.may_lend(named.progress)


def test_what_is_lent_is_not_lent_again(desk: _Desk) -> None:
    link = desk.connect("10.0.0.1:1")
    assert desk.lender.lend(link, STATE, 1)
    lent = desk.take()
    assert not desk.lender.lend(link, STATE, 1)
    assert desk.counters[LOAN] == lent.number


def test_what_cannot_be_handed_over_is_not_lent(desk: _Desk) -> None:
    link = desk.connect("10.0.0.1:1")
    desk.channel.close()
    assert not desk.lender.lend(link, STATE, 1)
    assert desk.counters[LOAN] == 0


def test_numbers_grow(desk: _Desk) -> None:
    link, before = desk.connect("10.0.0.1:1"), 0
    for _ in range(3):
        assert desk.lender.lend(link, STATE, 1)
        lent = desk.take()
        assert lent.number > before
        before = lent.number
        desk.lender.drop()
        assert desk.counters[LOAN] == 0


def test_what_came_back_of_an_earlier_loan_is_not_this_one(desk: _Desk) -> None:
    link = desk.connect("10.0.0.1:1")
    desk.lender.lend(link, STATE, 1)
    early = desk.take()
    desk.lender.drop()
    desk.lender.lend(link, STATE, 1)
    late = desk.take()
    desk.give(early)
    assert desk.lender.take_back() is None
    desk.give(late)
    assert desk.lender.take_back() == late.unused()
    assert desk.lender.take_back() is None


def test_what_an_earlier_loan_has_acknowledged_is_not_taken_up(desk: _Desk) -> None:
    link = desk.connect("10.0.0.1:1")
    desk.lender.lend(link, STATE, 1)
    desk.counters[LENT_NUMBER], desk.counters[LENT_SENT], desk.counters[LENT_ACKED] = 1, 300, 200
    desk.lender.refresh()
    assert (link.progress.sent_offset, link.progress.ack_offset, desk.sent) == (100, 100, [])


def test_what_was_done_is_taken_up_while_it_is_lent_and_when_it_is_back(desk: _Desk) -> None:
    link = desk.connect("10.0.0.1:1")
    desk.lender.lend(link, STATE, 1)
    lent = desk.take()
    desk.counters[LENT_SENT], desk.counters[LENT_ACKED] = 300, 200
    desk.counters[LENT_NUMBER] = lent.number
    desk.lender.refresh()
    progress = link.progress
    assert (progress.sent_offset, progress.ack_offset, progress.transferred) == (300, 200, 200)
    desk.lender.recall()
    assert desk.counters[LOAN] == 0, "what is reported now counts when it is back"
    assert msgspec.json.decode(desk.channel.recv(MAX_PACKET), type=Recall).number == lent.number
    desk.give(lent, next_offset=400, ack_offset=350)
    assert isinstance(desk.lender.take_back(), Returned)
    assert (progress.sent_offset, progress.ack_offset, progress.transferred) == (400, 350, 300)
    assert desk.sent == [("10.0.0.1", 300), ("10.0.0.1", 400)]
    assert desk.told.acked == [200, 350]


def test_what_counts_until_a_recall_is_taken_up_before_it_counts_no_more(desk: _Desk) -> None:
    link = desk.connect("10.0.0.1:1")
    desk.lender.lend(link, STATE, 1)
    number = desk.take().number
    desk.counters[LENT_SENT], desk.counters[LENT_ACKED] = 300, 200
    desk.counters[LENT_NUMBER] = number
    desk.lender.recall()
    assert desk.told.acked == [200]


def test_it_ends_with_its_borrower(desk: _Desk) -> None:
    for slot in (STARTS, ENDS):
        link = desk.connect("10.0.0.1:1")
        desk.lender.lend(link, STATE, 1)
        desk.take()
        assert desk.lender.take_back() is None
        desk.counters[slot + ProcessIndex.REMOTING] += 1
        with pytest.raises(OSError, match="has ended"):
            desk.lender.take_back()
        desk.lender.drop()
        desk.replicas.service.remove(link.progress, None, "")


def test_what_came_back_before_its_borrower_ended_is_good(desk: _Desk) -> None:
    link = desk.connect("10.0.0.1:1")
    desk.lender.lend(link, STATE, 1)
    lent = desk.take()
    desk.give(lent)
    desk.counters[ENDS + ProcessIndex.REMOTING] += 1
    assert desk.lender.take_back() == lent.unused()


def test_untaken_it_is_back_as_it_was(desk: _Desk) -> None:
    link = desk.connect("10.0.0.1:1")
    desk.lender.lend(link, STATE, 23)
    back = desk.lender.take_untaken()
    assert back is not None
    assert (bytes.fromhex(back.rest), back.read_ms, back.sent_ms) == (b"\1\2", 17, 23)
    assert (back.next_offset, back.ack_offset, back.frame_left, back.reason) == (100, 100, 0, None)
    assert desk.counters[LOAN] == 0
    assert desk.lender.lend(link, STATE, 1)


def test_taken_it_is_never_untaken(desk: _Desk) -> None:
    link = desk.connect("10.0.0.1:1")
    desk.lender.lend(link, STATE, 1)
    desk.counters[LENT_NUMBER] = desk.take().number
    assert desk.lender.is_taken
    assert desk.lender.take_untaken() is None
    # Its borrower's successor has begun.
    desk.counters[STARTS + ProcessIndex.REMOTING] += 1
    desk.counters[LENT_NUMBER] = 0
    assert desk.lender.take_untaken() is None
