"""Leadership by a lease: who leads when, by a clock of the test's own, over a store in memory.

The store is what a linearizable one is to its clients; what a real one answers is in
test_etcd_store.py. Several controllers of one test share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.controller_service import ControllerService
from controller.core import ControllerCore, ControllerSettings
from controller.election import LogReport
from controller.etcd_client import EtcdError
from controller.etcd_store import Groups, LeaderSeen, Lease
from controller.events import Stored, Swap, SwapEnded
from controller.leader import Leader
from controller.leadership import Leadership
from controller.live_brokers import Heartbeat
from controller.requests import Answer, GetReplicaInfo
from tests.controller.etcd_capture import group

LEASE_S = 5
NOBODY = LeaderSeen(None, 0, 0)
NOTHING = Groups({}, {}, 1)


@dataclass
class Place:
    """What all stores of one etcd see."""

    now_ms: int = 1_000_000
    revision: int = 1
    leader: LeaderSeen = NOBODY
    leases: dict[int, int] = field(default_factory=dict)
    """Until when."""
    groups: Groups = NOTHING
    calls: list[str] = field(default_factory=list)
    pages_ms: list[int] = field(default_factory=list)
    """How long each page of the groups takes."""
    failing: dict[str, str] = field(default_factory=dict)
    """Calls that end unknown: "before" or "after" what they do."""

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.leases = {key: until for key, until in self.leases.items() if until > self.now_ms}
        if self.leader.lease and self.leader.lease not in self.leases:
            self.leader = LeaderSeen(None, 0, 0)


class PlaceStore:
    """One controller's."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def _call(self, name: str, what: Callable[[], Any]) -> Any:
        self.place.calls.append(name)
        fails = self.place.failing.get(name)
        if fails == "before":
            raise EtcdError(f"{name} fails")
        found = what()
        if fails == "after":
            raise EtcdError(f"{name} fails")
        return found

    leader_key = "/p/leader"

    def look(self) -> LeaderSeen:
        found: LeaderSeen = self._call("look", lambda: self.place.leader)
        return found

    def make_lease(self, lease_s: int) -> Lease:
        def make() -> Lease:
            self.place.revision += 1
            self.place.leases[self.place.revision] = self.place.now_ms + lease_s * 1_000
            return Lease(self.place.revision, self.place.now_ms)

        found: Lease = self._call("lease", make)
        return found

    def acquire(self, leader: Leader, lease: int) -> int | None:
        def acquire() -> int | None:
            if self.place.leader.fence:
                return None
            self.place.revision += 1
            self.place.leader = LeaderSeen(leader, self.place.revision, lease)
            return self.place.revision

        found: int | None = self._call("acquire", acquire)
        return found

    def renew(self, lease: int, fence: int, lease_s: int) -> int | None:
        def renew() -> int | None:
            if lease not in self.place.leases:
                return None
            self.place.leases[lease] = self.place.now_ms + lease_s * 1_000
            return self.place.now_ms if self.place.leader.fence == fence else None

        found: int | None = self._call("renew", renew)
        return found

    def revoke(self, lease: int) -> None:
        def revoke() -> None:
            self.place.leases.pop(lease, None)
            self.place.pass_ms(0)

        self._call("revoke", revoke)

    def load_all(self, since: int = 0, between: Callable[[], None] | None = None) -> Groups:
        found: Groups = self._call(f"load since {since}", lambda: self.place.groups)
        for ms in self.place.pages_ms:
            self.place.pass_ms(ms)
            if between is not None:
                between()
        return found

    def swap(self, swap: Swap) -> SwapEnded:
        raise AssertionError

    def load(self, broker_name: str) -> Stored:
        raise AssertionError

    def close(self) -> None:
        self.place.calls.append("close")


class Controller:
    """One, without sockets; `run` lets it run until nothing is under way."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self._todo: list[Callable[[], None]] = []
        self.me = Leader(name, f"{name}:9877")
        self.core = ControllerCore(ControllerSettings(lease_ms=LEASE_S * 1_000))
        store: Any = PlaceStore(place)
        self.service = ControllerService(
            self.core, store, self._now_ms, self._todo.append, lambda _notice: None
        )
        self.leadership = Leadership(
            store, self.me, LEASE_S, self.service, self._now_ms, self._todo.append
        )

    def _now_ms(self) -> int:
        return self.place.now_ms

    def run(self) -> list[str]:
        """A tick and what follows; the calls to the store that it made."""
        before = len(self.place.calls)
        self.leadership.tick()
        self.leadership._pool.submit(lambda: None).result(60)
        while self._todo:
            self._todo.pop(0)()
        self.service.tick()
        return self.place.calls[before:]

    def ask(self) -> Answer:
        found: list[Answer] = []
        self.service.ask(GetReplicaInfo("C", "b"), 1, found.append)
        return found[0]

    def stop(self) -> None:
        self.service.shutdown()
        self.leadership.shutdown()


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def pair(place: Place) -> Iterator[tuple[Controller, Controller]]:
    one, two = Controller(place, "n1"), Controller(place, "n2")
    yield one, two
    for controller in (one, two):
        controller.stop()


Pair = tuple[Controller, Controller]


def test_one_leads_and_the_other_names_it(pair: Pair, place: Place) -> None:
    one, two = pair
    place.groups = Groups({"b": Stored(3, group("b"))}, {}, 9)
    assert one.run() == ["look", "lease", "acquire", "load since 0"]
    assert two.run() == ["look", "load since 0"]
    assert (one.service.is_leader, two.service.is_leader) == (True, False)
    assert (one.leadership.leader, two.leadership.leader) == (None, one.me)
    assert (one.ask().code, two.ask().code) == (0, 2007)
    assert two.run() == ["look", "load since 9"]


def test_groups_that_take_longer_to_read_than_the_lease_lasts(pair: Pair, place: Place) -> None:
    """Thousands, from an etcd that is far away: nobody would ever lead."""
    one, _ = pair
    place.pages_ms = [700] * 20
    calls = one.run()
    assert calls[:4] == ["look", "lease", "acquire", "load since 0"]
    assert set(calls[4:]) == {"renew"}
    assert one.service.is_leader
    place.pages_ms = []
    place.pass_ms(LEASE_S * 1_000)
    place.pages_ms = [6_000, 10]
    one.run()
    assert not one.service.is_leader, "it ended meanwhile"


def test_a_store_that_goes_back_is_read_anew(pair: Pair, place: Place) -> None:
    """Of what is written after it was put back, the number is lower than what was read before."""
    one, two = pair
    one.run()
    for revision, since in ((9, 0), (4, 9), (5, 0), (6, 5)):
        place.groups = Groups({}, {}, revision)
        assert two.run() == ["look", f"load since {since}"]
    place.failing["load since 6"] = "before"
    assert two.run() == ["look", "load since 6"]
    assert two.run() == ["look", "load since 0"], "a number that etcd does not take"


def test_it_is_renewed_each_second_and_kept(pair: Pair, place: Place) -> None:
    one, _ = pair
    one.run()
    calls = []
    for _ in range(40):
        place.pass_ms(500)
        calls += one.run()
        assert one.service.is_leader
    assert calls == ["renew"] * 20


def test_whoever_stood_still_answers_nothing_as_leader(pair: Pair, place: Place) -> None:
    """It goes on a second before its lease ends: it is nobody's leader, although the store still
    has its key; the other one waits for the end of it."""
    one, two = pair
    one.run()
    place.pass_ms(4_000)
    assert place.leader.leader == one.me
    assert one.ask().code == 2007
    assert two.run() == ["look", "load since 0"]
    assert not two.service.is_leader
    place.pass_ms(1_000)
    two.run()
    assert two.service.is_leader
    assert one.run() == ["look", "load since 0"]
    assert (one.service.is_leader, one.leadership.leader) == (False, two.me)


def test_a_leadership_that_time_took_is_given_back_not_renewed(pair: Pair, place: Place) -> None:
    """Renewed, it would keep all others from leading."""
    one, _ = pair
    one.run()
    fence = place.leader.fence
    place.pass_ms(4_500)
    calls = one.run()
    assert calls == ["look", "revoke", "look", "lease", "acquire", "load since 0"]
    assert one.service.is_leader
    assert place.leader.fence > fence


def test_a_late_answer_to_a_renewal_prolongs_from_when_it_was_asked(
    pair: Pair, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = pair
    one.run()
    place.pass_ms(1_000)
    real = PlaceStore.renew

    def slow(self: PlaceStore, lease: int, fence: int, lease_s: int) -> int | None:
        sent_ms = real(self, lease, fence, lease_s)
        place.pass_ms(2_500)
        return sent_ms

    monkeypatch.setattr(PlaceStore, "renew", slow)
    one.run()
    assert one.service.is_leader
    place.pass_ms(1_499)
    assert one.service.is_leader
    place.pass_ms(1)
    assert not one.service.is_leader


def test_a_removed_key_ends_it_at_once(pair: Pair, place: Place) -> None:
    one, _ = pair
    one.run()
    place.leader = LeaderSeen(None, 0, 0)
    place.pass_ms(1_000)
    assert one.run() == ["renew"]
    assert not one.service.is_leader
    one.run()
    assert one.service.is_leader


@pytest.mark.parametrize("name", ["lease", "acquire", "load since 0"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_take_over_that_ends_unknown_is_none(
    pair: Pair, place: Place, name: str, when: str
) -> None:
    one, two = pair
    place.failing = {name: when}
    one.run()
    assert not one.service.is_leader
    place.failing = {}
    place.pass_ms(500)
    one.run()
    assert one.service.is_leader, "it gave back what it may have got"
    two.run()
    assert two.leadership.leader == one.me


def test_its_own_name_is_no_leader(pair: Pair, place: Place) -> None:
    """From a former life: it is not sure of itself."""
    one, _ = pair
    place.leases[77] = place.now_ms + 5_000
    place.leader = LeaderSeen(one.me, 5, 77)
    one.run()
    assert (one.service.is_leader, one.leadership.leader) == (False, None)


def test_an_old_word_names_nobody(pair: Pair, place: Place) -> None:
    one, two = pair
    one.run()
    two.run()
    place.failing = {"look": "before"}
    place.pass_ms(1_999)
    two.run()
    assert two.leadership.leader == one.me
    place.pass_ms(1)
    assert two.leadership.leader is None


def test_a_key_without_a_lease_is_said_once(
    pair: Pair, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = pair
    place.leader = LeaderSeen(None, 5, 0)
    for _ in range(3):
        one.run()
    assert not one.service.is_leader
    assert caplog.text.count("/p/leader has no lease") == 1


def test_a_stop_gives_it_back(pair: Pair, place: Place) -> None:
    one, two = pair
    one.run()
    two.run()
    one.stop()
    assert one.ask().code == 2007
    two.run()
    assert two.service.is_leader


def test_a_bug_ends_the_process(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(_self: PlaceStore) -> LeaderSeen:
        raise ZeroDivisionError

    monkeypatch.setattr(PlaceStore, "look", bug)
    with pytest.raises(ZeroDivisionError):
        pair[0].run()


def beat() -> Heartbeat:
    return Heartbeat("b", 1, "127.0.0.1:1", 5, 10_000, LogReport(1, 100))


def test_heartbeats_count_before_it_leads(pair: Pair, place: Place) -> None:
    """904 goes to all controllers: whoever leads next knows who is alive."""
    one, two = pair
    place.groups = Groups({"b": Stored(3, group("b"))}, {}, 9)
    one.run()
    assert two.service.find("b") is None, "of a group that it has not read it takes none"
    two.run()
    seen = two.service.find("b")
    assert seen is not None
    assert seen.presumed_alive, "it has only begun to listen"
    two.service.heard(beat())
    one.stop()
    two.run()
    seen = two.service.find("b")
    assert two.service.is_leader
    assert seen is not None
    assert (seen.alive, seen.presumed_alive) == ({1}, True)
