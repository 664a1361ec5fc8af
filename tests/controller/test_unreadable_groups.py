"""Groups whose value in the store is nobody's: named, refused, and never taken for empty ones."""

from __future__ import annotations

import pytest

from controller.controller_metrics import ControllerMetrics
from controller.core import ControllerCore, ControllerSettings
from controller.events import (
    Asked,
    Event,
    Followed,
    LeadershipGranted,
    LeadershipLost,
    Loaded,
    Outcome,
    Ready,
    Reply,
    Stored,
    Swap,
    SwapEnded,
    Tick,
    Unreadable,
)
from controller.group_store import ControllerStoreError, UnreadableGroupError
from controller.requests import Answer, ApplyBrokerId, GetReplicaInfo
from controller.watched_store import WatchedStore
from tests.controller.etcd_capture import group

SCAN_MS = 5_000
SWAP = Swap("b", 1, 0, 1, None)


class Brain:
    """A core, and its clock."""

    def __init__(self) -> None:
        self.core = ControllerCore(ControllerSettings(lease_ms=60_000))
        self.now = 100_000
        self.tickets = 0

    def step(self, event: Event) -> Ready:
        return self.core.step(event, self.now)

    def ask(self, name: str) -> Answer | None:
        """None: it waits."""
        self.tickets += 1
        ready = self.step(Asked(self.tickets, GetReplicaInfo("C", name)))
        return ready.sends[0].answer if ready.sends and isinstance(ready.sends[0], Reply) else None

    def answer(self, name: str) -> Answer:
        """At once."""
        found = self.ask(name)
        assert found is not None
        return found

    def apply(self, name: str, broker_id: int = 1) -> Ready:
        self.tickets += 1
        request = ApplyBrokerId("C", name, broker_id, f"127.0.0.1:{broker_id};2")
        return self.step(Asked(self.tickets, request))

    def scan(self) -> Ready:
        self.now += SCAN_MS
        return self.step(Tick())


def granted(**unreadable: str) -> LeadershipGranted:
    return LeadershipGranted(1, 100_000, {"good": Stored(5, group("good"))}, unreadable)


def test_it_is_refused_and_the_others_are_served() -> None:
    brain = Brain()
    brain.step(granted(bad="its value is none"))
    assert brain.answer("good").code == 0
    assert brain.ask("bad") == Answer(1, remark="its value is none")
    ready = brain.apply("bad")
    assert ready.swaps == (), "an id that is given twice would be two brokers"
    assert brain.ask("bad") == Answer(1, remark="its value is none"), "and it is not forgotten"
    assert brain.core.find("bad", brain.now) is None


def test_it_is_read_again_at_each_scan_and_served_once_it_is_whole() -> None:
    brain = Brain()
    brain.step(granted(bad="x"))
    assert brain.scan().loads == ("bad",)
    assert brain.scan().loads == (), "one at a time"
    brain.step(Unreadable("bad", "y"))
    assert brain.ask("bad") == Answer(1, remark="y")
    assert brain.scan().loads == ("bad",)
    brain.step(Loaded("bad", Stored(9, group("bad"))))
    assert brain.answer("bad").code == 0
    assert brain.scan().loads == ()


def test_one_that_turns_unreadable_answers_who_waits() -> None:
    brain = Brain()
    brain.step(granted())
    number = brain.apply("new").swaps[0].number
    ready = brain.step(SwapEnded("new", number, Outcome.CONFLICT))
    assert ready.loads == ("new",)
    assert brain.ask("new") is None
    ready = brain.step(Unreadable("new", "z"))
    answers = [one.answer for one in ready.sends if isinstance(one, Reply)]
    assert answers == [Answer(1, remark="z")] * 2


def test_a_store_that_has_gone_back_is_not_believed() -> None:
    """A key that was removed, or an etcd that was put back to an older state: epochs would fall."""
    for found in (Stored(0, None), Stored(4, group("good"))):
        brain = Brain()
        brain.step(granted())
        number = brain.apply("good", 2).swaps[0].number
        brain.step(SwapEnded("good", number, Outcome.UNKNOWN))
        brain.step(Loaded("good", found))
        answer = brain.answer("good")
        assert answer.code == 1
        assert "held version 5 of this group and holds" in answer.remark
        assert brain.scan().loads == ("good",)
        ready = brain.step(Loaded("good", Stored(6, group("good"))))
        assert [one.version for one in ready.swaps] == [6], "the barrier against the unknown write"


def test_nor_at_a_take_over_by_who_has_seen_more() -> None:
    brain = Brain()
    brain.step(Followed({"good": Stored(7, group("good")), "gone": Stored(3, group("gone"))}))
    brain.step(granted())
    for name in ("good", "gone"):
        answer = brain.answer(name)
        assert answer.code == 1
        assert "was removed" in answer.remark


def test_nor_is_it_believed_later_where_it_is_read_again() -> None:
    """Each scan reads what is not served; that it says the same again makes it no newer."""
    brain = Brain()
    known = {name: Stored(7, group(name)) for name in ("good", "gone", "bad")}
    brain.step(Followed(known))
    brain.step(granted(bad="its value is none"))
    for _ in range(2):
        assert set(brain.scan().loads) == known.keys()
        brain.step(Loaded("good", Stored(5, group("good"))))
        brain.step(Loaded("gone", Stored(0, None)))
        brain.step(Loaded("bad", Stored(6, group("bad"))))
        for name in known:
            answer = brain.answer(name)
            assert answer.code == 1, name
            assert "was removed" in answer.remark
    brain.scan()
    brain.step(Loaded("good", Stored(7, group("good"))))
    assert brain.answer("good").code == 0, "it was put back"


def test_whoever_follows_does_not_forget_what_it_has_seen() -> None:
    """A leader loses its lease as etcd stops; etcd comes back from a snapshot, and the controller
    follows somebody before it leads again."""
    brain = Brain()
    brain.step(granted())
    brain.step(LeadershipLost())
    older = {"good": Stored(4, group("good"))}
    brain.step(Followed(older))
    brain.step(LeadershipGranted(2, brain.now, older))
    assert brain.answer("good").code == 1
    brain = Brain()
    brain.step(Followed({"good": Stored(5, group("good"))}))
    brain.step(Followed({"good": Stored(9, group("good"))}))
    brain.step(LeadershipGranted(2, brain.now, {"good": Stored(8, group("good"))}))
    assert brain.answer("good").code == 1


def test_what_a_leader_knew_it_remembers() -> None:
    brain = Brain()
    brain.step(granted())
    brain.apply("good", 2)
    ready = brain.step(LeadershipLost())
    assert [one.answer.code for one in ready.sends if isinstance(one, Reply)] == [2007]
    assert not brain.core.is_leader(brain.now)
    assert brain.core.find("good", brain.now) is not None
    brain.step(LeadershipGranted(2, brain.now, {"good": Stored(4, group("good"))}))
    assert brain.answer("good").code == 1


def test_what_others_lead_changes_nothing_of_a_leader() -> None:
    brain = Brain()
    brain.step(granted())
    brain.step(Followed({"good": Stored(9, None)}))
    assert brain.answer("good").code == 0


class Broken:
    """A store, and what its reads raise."""

    def __init__(self, error: ControllerStoreError | None) -> None:
        self.error = error
        self.swap_error: ControllerStoreError | None = None

    def load(self, _broker_name: str) -> Stored:
        if self.error is not None:
            raise self.error
        return Stored(0, None)

    def swap(self, swap: Swap) -> SwapEnded:
        if self.swap_error is not None:
            raise self.swap_error
        return SwapEnded(swap.broker_name, swap.number, Outcome.DONE, 1)

    def close(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("error", "trouble"), [(UnreadableGroupError("x"), ""), (ControllerStoreError("x"), "x")]
)
def test_one_group_is_no_trouble_of_the_store(error: ControllerStoreError, trouble: str) -> None:
    """Else one bad value would make every controller unready."""
    store = WatchedStore(Broken(error), ControllerMetrics())
    with pytest.raises(ControllerStoreError):
        store.load("bad")
    assert store.seen.trouble == trouble


def test_trouble_of_reading_ends_with_the_next_read() -> None:
    """Stable groups are not written for weeks: a controller that said for so long that nothing
    works would be taken out of service. A full disk can be read: that stays until a write."""
    broken = Broken(ControllerStoreError("x"))
    store = WatchedStore(broken, ControllerMetrics())
    with pytest.raises(ControllerStoreError):
        store.load("b")
    broken.error = None
    store.load("b")
    assert store.seen.trouble == ""
    broken.swap_error = ControllerStoreError("disk full")
    with pytest.raises(ControllerStoreError):
        store.swap(SWAP)
    store.load("b")
    assert store.seen.trouble == "disk full"
    broken.swap_error = None
    store.swap(SWAP)
    assert store.seen.trouble == ""
