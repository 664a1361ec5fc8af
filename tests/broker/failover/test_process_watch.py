"""ProcessWatch: which process is missing or stands still, and what is only a pause of its own."""

from __future__ import annotations

from broker.failover.messages import Fitness, Moved
from broker.failover.process_watch import ProcessWatch
from ipc.control_page import ENDS, ControlPage, ProcessIndex
from tests.support.manual_clock import ManualClock

REMOTING, STORE = ProcessIndex.REMOTING, ProcessIndex.STORE
SILENCE_MS = 3_000
LOOK_MS = 200


class World:
    """A watch whose processes have both begun to beat."""

    def __init__(self) -> None:
        self.page = ControlPage(ControlPage.create())
        self.clock = ManualClock(monotonic_ms=50_000)
        self.seen: list[str] = []
        self.moves = 0
        self.watch = ProcessWatch(self.page, self.clock, SILENCE_MS, self._take)
        self.look(REMOTING, STORE)

    def _take(self, event: Fitness | Moved) -> None:
        if isinstance(event, Fitness):
            self.seen.append(event.lacking)
        else:
            self.moves += 1

    def look(self, *beat: ProcessIndex, ms: int = LOOK_MS) -> list[str]:
        """One look `ms` later, after beats of these; what was ever delivered."""
        for process in beat:
            self.page.beat(process)
        self.clock.advance(ms)
        self.watch.look()
        return self.seen

    def looks(self, ms: int, *beat: ProcessIndex) -> list[str]:
        for _ in range(ms // LOOK_MS):
            self.look(*beat)
        return self.seen


def test_a_process_that_has_ended_is_missing_until_its_successor_beats() -> None:
    world = World()
    world.page.counters[ENDS + REMOTING] += 1
    ended = "process remoting has ended"
    assert world.look(STORE) == [ended]
    assert world.looks(10_000, STORE) == [ended], "its start takes time"
    assert world.look(REMOTING, STORE) == [ended, ""]


def test_the_last_beat_of_the_one_that_ended_is_no_sign_of_life() -> None:
    world = World()
    world.page.counters[ENDS + STORE] += 1
    assert world.look(REMOTING, STORE) == ["process store has ended"]
    assert world.look(REMOTING) == ["process store has ended"]


def test_a_leader_that_hands_over_hears_of_its_log_at_each_look() -> None:
    world = World()
    world.looks(1_000, REMOTING, STORE)
    world.page.counters[ENDS + STORE] += 1
    world.look(REMOTING)
    assert world.moves == 0
    world.looks(1_000, REMOTING)
    assert world.moves == 5
    world.looks(1_000, REMOTING, STORE)
    assert world.moves == 5


def test_one_that_stands_still() -> None:
    world = World()
    assert world.looks(SILENCE_MS, REMOTING) == []
    assert world.look(REMOTING) == ["process store stands still"]
    assert world.look(REMOTING, STORE) == ["process store stands still", ""]


def test_its_own_pause_makes_nobody_stand_still() -> None:
    """SIGSTOP to all of the broker, and nobody else may have gone on yet."""
    world = World()
    assert world.look(ms=60_000) == []
    assert world.looks(SILENCE_MS) == [], "they have as long as ever"
    assert world.look() == ["process remoting stands still"]


def test_who_ended_and_came_back_in_its_own_pause() -> None:
    world = World()
    world.page.counters[ENDS + REMOTING] += 1
    assert world.look(REMOTING, STORE, ms=60_000) == []
    assert world.look(REMOTING, STORE) == []


def test_who_has_not_beaten_yet_starts() -> None:
    page, clock, seen = ControlPage(ControlPage.create()), ManualClock(), list[Fitness | Moved]()
    watch = ProcessWatch(page, clock, SILENCE_MS, seen.append)
    for _ in range(100):
        clock.advance(LOOK_MS)
        watch.look()
    assert seen == []
