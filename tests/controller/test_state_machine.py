"""One group's life, request by request, with the codes and epochs that a 5.3.3 controller gave to
the same requests (recorded from its DLedger kind), and each place where ours answers otherwise."""

from __future__ import annotations

from typing import Final, NamedTuple

from controller.election import Liveness, LogReport
from controller.group_state import GroupState
from controller.requests import (
    MAX_MEMBERS,
    AlterSyncStateSet,
    Answer,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    GetNextBrokerId,
    GetReplicaInfo,
    RegisterBroker,
    Request,
)
from controller.state_machine import decide
from remoting.response_code import ResponseCode

PC: Final = ("PC", "pb")
ALIVE: Final = Liveness({number: LogReport(1, 0) for number in (1, 2, 3)})


class Asked(NamedTuple):
    """One request and what came back: master id, master epoch, the set's epoch; None: not named."""

    what: str
    request: Request
    java: int
    epochs: tuple[int | None, int, int] | None = None
    ours: int | None = None
    """Our code, where it is another one."""


def _alter(master: int, epoch: int, members: set[int], set_epoch: int) -> AlterSyncStateSet:
    return AlterSyncStateSet(*PC, master, epoch, frozenset(members), set_epoch)


def _apply(number: int, code: str = "a:1;1") -> ApplyBrokerId:
    return ApplyBrokerId(*PC, number, code)


BEFORE_A_MASTER: Final = [
    Asked("1004 unknown set", GetReplicaInfo(*PC), 2008),
    Asked("1002 unknown set", ElectMaster(*PC, 1), 2010),
    Asked("1003 unknown set", RegisterBroker(*PC, 1, "a:1"), 2010),
    Asked("1012 unknown set", GetNextBrokerId(*PC), 0),
    Asked("1013 id 2 of unknown set", _apply(2), 2014),
    Asked("1013 id 1", _apply(1), 0),
    Asked("1013 id 1 again, same code", _apply(1), 0),
    Asked("1013 id 1, other code", _apply(1, "b:1;1"), 2014),
    Asked("1013 a gap: only what 1012 offers is given", _apply(7), 0, ours=2014),
    Asked("1004 no master yet", GetReplicaInfo(*PC), 0, (None, 0, 0)),
    Asked("1003 no master yet, other address", RegisterBroker(*PC, 1, "c:1"), 0),
    Asked("1003 never applied", RegisterBroker(*PC, 5, "c:1"), 2010),
    Asked("1001 before any master", _alter(1, 0, {1}, 0), 2002),
    Asked("1002 by a stranger, first ever", ElectMaster(*PC, 99), 0, ours=2010),
]
THREE_BROKERS: Final = [
    *(Asked(f"1013 {number}", _apply(number, f"a:{number};1"), 0) for number in (1, 2, 3)),
    Asked("1002 by 2", ElectMaster(*PC, 2), 0, (2, 1, 1)),
    Asked("1002 by 1", ElectMaster(*PC, 1), 2011, (2, 1, 1)),
    Asked("1001 equal set from wrong master", _alter(1, 1, {2}, 1), 2013, ours=2002),
    Asked("1001 wrong master", _alter(1, 1, {1, 2}, 1), 2002),
    Asked("1001 wrong master epoch", _alter(2, 9, {1, 2}, 1), 2000),
    Asked("1001 wrong set epoch", _alter(2, 1, {1, 2}, 9), 2001),
    Asked("1001 unknown member", _alter(2, 1, {2, 8}, 1), 2003),
    Asked("1001 without master", _alter(2, 1, {1, 3}, 1), 2013),
    Asked("1001 ok", _alter(2, 1, {1, 2, 3}, 1), 0, (2, 1, 2)),
    Asked("1001 repeated (answer lost)", _alter(2, 1, {1, 2, 3}, 1), 2013, (2, 1, 2), ours=0),
    Asked("1002 designate 3", ElectMaster(*PC, 3, True), 0, (3, 2, 3)),
    Asked("1002 designate 9 (unknown)", ElectMaster(*PC, 9, True), 2012, ours=2010),
    Asked("1002 designate 1 (not in the set)", ElectMaster(*PC, 1, True), 2012),
    Asked("1001 master 3", _alter(3, 2, {1, 2, 3}, 3), 0, (3, 2, 4)),
    Asked("1011 whole set, alive", CleanBrokerData(*PC, frozenset()), 2009),
    Asked("1011 one, alive", CleanBrokerData(*PC, frozenset((1,))), 2009),
    Asked("1011 whole, living", CleanBrokerData(*PC, frozenset(), True), 0, ours=2009),
]


def _play(requests: list[Asked]) -> GroupState | None:
    group: GroupState | None = None
    for one in requests:
        group, answer, _ = decide(group, one.request, ALIVE)
        wanted = one.java if one.ours is None else one.ours
        assert answer.code == wanted, (one.what, answer)
        if one.epochs is not None:
            assert _epochs(answer) == one.epochs, one.what
    return group


def _epochs(answer: Answer) -> tuple[int | None, int, int]:
    group = answer.group
    assert group is not None
    return group.master_broker_id, group.master_epoch, group.sync_state_set_epoch


def test_before_a_master() -> None:
    group = _play(BEFORE_A_MASTER)
    assert group is not None
    assert (group.replicas[1].address, group.next_broker_id) == ("c:1", 2)


def test_three_brokers() -> None:
    group = _play(THREE_BROKERS)
    assert group is not None
    assert group.sync_state_set == {1, 2, 3}


def test_a_dead_newcomer_does_not_join() -> None:
    group = _play(THREE_BROKERS[:4])
    only_two = Liveness({2: LogReport(1, 0)})
    assert decide(group, _alter(2, 1, {1, 2}, 1), only_two).answer.code == 2006


def test_the_same_set_asked_anew_outruns_what_was_asked_before() -> None:
    """A request with the current epoch makes a newer one, so that a late one is fenced."""
    group = _play(THREE_BROKERS[:4])
    same = decide(group, _alter(2, 1, {2}, 1), ALIVE).group
    assert decide(same, _alter(2, 1, {1, 2}, 1), ALIVE).answer.code == 2001


def test_cleaning_keeps_epochs_and_ids() -> None:
    group = _play(THREE_BROKERS)
    nobody = Liveness({})
    cleaned = decide(group, CleanBrokerData(*PC, frozenset()), nobody).group
    assert cleaned is not None
    assert (cleaned.replicas, cleaned.next_broker_id, cleaned.master_epoch) == ({}, 4, 3)
    assert decide(cleaned, GetReplicaInfo(*PC), nobody).answer.code == 2008
    anew = decide(cleaned, _apply(4), nobody).group
    elected = decide(anew, ElectMaster(*PC, 4), nobody).group
    assert elected is not None
    assert (elected.master_broker_id, elected.master_epoch) == (4, 4)


def test_the_last_who_have_everything_are_not_cleaned() -> None:
    group = _play(THREE_BROKERS[:4])
    nobody = Liveness({})
    assert decide(group, CleanBrokerData(*PC, frozenset((2,))), nobody).answer.code == 2009


def test_the_last_member_may_ask_again() -> None:
    """Its answer was lost. One more is refused, and what is refused makes no group."""
    group = None
    for number in range(1, MAX_MEMBERS + 1):
        decision = decide(group, ApplyBrokerId(*PC, number, f"h:{number};1"), ALIVE)
        assert decision.answer.code == 0
        group = decision.group
    assert group is not None
    last = ApplyBrokerId(*PC, MAX_MEMBERS, f"h:{MAX_MEMBERS};1")
    assert decide(group, last, ALIVE) == (group, Answer(ResponseCode.SUCCESS), False)
    more = decide(group, ApplyBrokerId(*PC, MAX_MEMBERS + 1, "h:1;1"), ALIVE)
    assert (more.group, more.answer.code) == (group, ResponseCode.CONTROLLER_INVALID_REQUEST)
    assert decide(None, ApplyBrokerId(*PC, 2, "h:2;1"), ALIVE).group is None
