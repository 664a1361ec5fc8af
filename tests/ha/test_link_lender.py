"""LinkLender and LendableLink: what may be lent, how long, and what is done with what comes back.

Pure but for socket pairs; the whole is in test_lent_link.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec
import pytest

from ha import lendable_link
from ha.control_slots import LENT_ACKED, LENT_AT_RISK, LENT_NUMBER, LENT_SENT, LOAN
from ha.lendable_link import LendableLink
from ha.link_lender import Lendable, LinkLender
from ha.link_loan import MAX_PACKET, Lent, Recall, Returned
from ha.reader_pause import ReadState
from ha.slave_progress import SlaveProgress
from ha.transport import PlainTransport
from ipc.command_channel import create_channel
from ipc.control_page import ENDS, STARTS, ProcessIndex
from remoting.selector_seam import new_selector
from tests.ha.replica_world import ReplicaWorld

STATE = ReadState(b"\1\2", 17)


class _Told:
    """Instead of GroupTransferService."""

    def __init__(self) -> None:
        self.acked: list[int] = []
        self.at_risk: list[int] = []

    def notify_lent(self, progress: SlaveProgress, at_risk: int) -> None:
        self.acked.append(progress.ack_offset)
        self.at_risk.append(at_risk)


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


def test_what_was_done_is_taken_up_when_the_connection_ends(desk: _Desk) -> None:
    link = desk.connect("10.0.0.1:1")
    desk.lender.lend(link, STATE, 1)
    desk.counters[LENT_SENT], desk.counters[LENT_ACKED] = 300, 200
    desk.counters[LENT_NUMBER] = desk.take().number
    desk.lender.drop()
    desk.lender.drop()
    assert (desk.told.acked, desk.sent) == ([200], [("10.0.0.1", 300)])


def test_each_look_reads_what_was_at_risk_since_the_look_before(desk: _Desk) -> None:
    link = desk.connect("10.0.0.1:1")
    desk.lender.lend(link, STATE, 1)
    desk.counters[LENT_NUMBER] = desk.take().number
    desk.counters[LENT_AT_RISK], desk.counters[LENT_AT_RISK + 1] = 70, 90
    for end in (200, 200, 300):
        desk.counters[LENT_SENT] = desk.counters[LENT_ACKED] = end
        desk.lender.refresh()
    assert desk.told.at_risk == [70, 90]


# -- LendableLink ------------------------------------------------------------------------------


class _Pause:
    """Instead of ReaderPause: a reader that rests, or does not."""

    def __init__(self) -> None:
        self.state: ReadState | None = STATE
        self.is_wanted = False
        self.ended: list[ReadState | None] = []

    def begin(self, _timeout_ms: float) -> ReadState | None:
        self.is_wanted = True
        return self.state

    def end(self, state: ReadState | None = None) -> None:
        self.is_wanted = False
        self.ended.append(state)


class _Owner:
    """As WriteSocketService of the only slave."""

    def __init__(self, desk: _Desk) -> None:
        self.desk = desk
        self.clock = desk.replicas.clock
        self.lendable = desk.connect("10.0.0.1:1")
        self.progress = self.lendable.progress
        self.pause = _Pause()
        self.loan = LendableLink(
            desk.lender,
            self.lendable,
            self.pause,  # type: ignore[arg-type]
            self.clock,
            new_selector,
            heartbeat_ms=5_000,
        )
        self.is_in_file = True
        self.clock.advance(lendable_link._REST_MS)

    def lends(self) -> bool:
        now_ms = self.clock.monotonic_ms()
        return self.loan.begin(now_ms, sent_ms=now_ms, is_in_file=lambda: self.is_in_file)

    def take(self) -> Lent:
        lent = self.desk.take()
        self.desk.counters[LENT_SENT], self.desk.counters[LENT_ACKED] = (
            lent.next_offset,
            lent.ack_offset,
        )
        self.desk.counters[LENT_NUMBER] = lent.number
        return lent

    def is_over_after(self, ms: int) -> bool:
        """Whether it is recalled then."""
        self.clock.advance(ms)
        self.loan.wait()
        return not self.desk.counters[LOAN]


@pytest.fixture
def owner(desk: _Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Owner]:
    monkeypatch.setattr(lendable_link, "_LOOK_MS", 1)
    owner = _Owner(desk)
    yield owner
    owner.loan.close()


def test_a_slave_that_is_busy_is_not_lent(owner: _Owner) -> None:
    owner.progress.sent_offset += (64 << 10) + 1
    assert not owner.lends()
    owner.progress.sent_offset -= 1
    assert owner.lends()


def test_no_reader_is_stopped_in_vain(owner: _Owner) -> None:
    owner.is_in_file = False
    assert not owner.lends()
    owner.is_in_file = True
    other = owner.desk.connect("10.0.0.2:1")
    assert not owner.lends()
    owner.desk.replicas.service.remove(other.progress, None, "")
    assert owner.pause.ended == []
    assert owner.lends()
    assert owner.pause.is_wanted


def test_a_reader_that_does_not_rest_goes_on(owner: _Owner) -> None:
    owner.pause.state = None
    assert not owner.lends()
    assert (owner.pause.ended, owner.loan.is_out, owner.desk.counters[LOAN]) == ([None], False, 0)
    owner.pause.state = STATE
    assert not owner.lends(), "not at once"
    owner.clock.advance(lendable_link._REST_MS)
    assert owner.lends()


def test_it_is_recalled_for_a_heartbeat(owner: _Owner) -> None:
    owner.lends()
    owner.take()
    assert not owner.is_over_after(4_999)
    owner.desk.counters[LENT_SENT] = owner.desk.counters[LENT_ACKED] = 300
    assert not owner.is_over_after(1), "something was sent"
    assert not owner.is_over_after(4_999)
    assert owner.is_over_after(1)


def test_it_is_recalled_when_the_slave_does_not_answer(owner: _Owner) -> None:
    owner.lends()
    owner.take()
    assert not owner.is_over_after(3_000), "nothing was sent"
    owner.desk.counters[LENT_SENT] = 300
    assert not owner.is_over_after(999)
    owner.desk.counters[LENT_ACKED] = 200
    assert not owner.is_over_after(1)
    assert not owner.is_over_after(999)
    assert owner.is_over_after(1)


def test_it_is_recalled_when_another_slave_counts(owner: _Owner) -> None:
    owner.lends()
    owner.take()
    assert not owner.is_over_after(100)
    owner.desk.connect("10.0.0.2:1")
    assert owner.is_over_after(0)


def test_untaken_it_is_recalled_and_back_at_the_next_look(owner: _Owner) -> None:
    owner.lends()
    assert not owner.is_over_after(999)
    assert owner.is_over_after(1)
    assert owner.loan.wait()[1] is None, "who takes it just now says so before looking"
    assert owner.loan.is_out
    owner.clock.advance(1)
    _events, back = owner.loan.wait()
    assert back is not None
    assert not owner.loan.is_out
    assert owner.pause.ended == [STATE]


def test_taken_it_is_waited_for_but_not_for_ever(owner: _Owner) -> None:
    owner.lends()
    lent = owner.take()
    assert owner.is_over_after(5_000)
    owner.clock.advance(5_000)
    assert owner.loan.wait()[1] is None
    owner.clock.advance(1)
    with pytest.raises(OSError, match="does not give the connection back"):
        owner.loan.wait()
    owner.loan.close()
    assert owner.pause.ended == [None]
    owner.desk.give(lent)
    assert owner.desk.lender.take_back() == lent.unused(), "and nobody is told"


def test_it_comes_back_with_the_reader_s_state(owner: _Owner) -> None:
    owner.lends()
    lent = owner.take()
    owner.desk.give(lent, rest="0304", read_ms=99)
    _events, back = owner.loan.wait()
    assert back is not None
    assert owner.pause.ended == [ReadState(b"\3\4", 99)]
    assert not owner.lends(), "not at once"


def test_behind_a_wrong_report_the_reader_rests_on(owner: _Owner) -> None:
    owner.lends()
    lent = owner.take()
    owner.desk.give(lent, reason="BEYOND_SENT", text="no slave of this log")
    _events, back = owner.loan.wait()
    assert back is not None
    assert owner.pause.ended == []
    owner.loan.close()
    assert owner.pause.ended == [None]
