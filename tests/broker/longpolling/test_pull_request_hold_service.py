"""PullRequestHoldService: who is run again, who stays, who is forgotten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.longpolling.pull_request_hold_service import PullRequestHoldService
from tests.broker.broker_fakes import FakeConnection


class Service:
    """`answers` decides per pull name whether it is answered when run."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, bool]] = []
        self.answered: set[str] = set()
        self.on_run: Any = None
        self.service = PullRequestHoldService(self.run_again)

    def run_again(self, pull: Any, time_is_up: bool) -> bool:
        self.runs.append((pull.name, time_is_up))
        if self.on_run is not None:
            self.on_run()
        return time_is_up or pull.name in self.answered

    def hold(self, name: str, key: tuple[str, int] = ("T", 0), deadline_ms: int = 100) -> Any:
        pull: Any = SimpleNamespace(
            name=name,
            deadline_ms=deadline_ms,
            request=SimpleNamespace(
                connection=FakeConnection(), header=SimpleNamespace(subscription="*")
            ),
        )
        self.service.hold(key, pull)
        return pull

    def take_runs(self) -> list[tuple[str, bool]]:
        runs, self.runs = self.runs, []
        return runs


@pytest.fixture
def held() -> Service:
    return Service()


def test_wake_runs_the_pulls_of_one_queue_in_order(held: Service) -> None:
    for name in "abc":
        held.hold(name)
    held.hold("other queue", ("T", 1))
    held.hold("other topic", ("U", 0))
    held.answered = {"b"}
    held.service.wake(("T", 0))
    assert held.take_runs() == [("a", False), ("b", False), ("c", False)]
    held.service.wake(("T", 0))
    assert held.take_runs() == [("a", False), ("c", False)]
    held.service.wake(("unknown", 0))
    assert held.take_runs() == []


def test_wake_all_runs_everything(held: Service) -> None:
    for number in range(5):
        held.hold(f"p{number}", ("T", number % 2))
    held.answered = {f"p{number}" for number in range(5)}
    held.service.wake_all()
    assert len(held.take_runs()) == 5
    assert held.service.is_empty


@pytest.mark.parametrize(("now_ms", "runs"), [(99, []), (100, [("a", True)]), (500, [("a", True)])])
def test_scan_runs_only_what_is_due(
    held: Service, now_ms: int, runs: list[tuple[str, bool]]
) -> None:
    held.hold("a", deadline_ms=100)
    held.hold("b", deadline_ms=1000)
    held.service.scan(now_ms)
    assert held.take_runs() == runs
    assert held.service.figures().pulls == 2 - len(runs)


def test_closed_connections_are_forgotten_by_wake_and_scan(held: Service) -> None:
    first, second = held.hold("a"), held.hold("b", ("T", 1))
    first.request.connection.is_open = second.request.connection.is_open = False
    held.service.wake(("T", 0))
    held.service.scan(100)
    assert held.take_runs() == []
    assert held.service.is_empty


def test_a_pull_that_is_held_while_another_runs_is_kept(held: Service) -> None:
    held.hold("a")
    held.on_run = lambda: held.hold("new") if len(held.runs) == 1 else None
    held.service.wake(("T", 0))
    assert held.take_runs() == [("a", False)]
    assert held.service.figures().pulls == 2


def test_figures(held: Service) -> None:
    assert held.service.is_empty
    assert (held.service.figures().pulls, held.service.figures().queues) == (0, 0)
    for number in range(5):
        held.hold(str(number), ("T", number % 2))
    assert (held.service.figures().pulls, held.service.figures().queues) == (5, 2)


def test_a_pull_is_run_in_the_tenth_of_a_second_after_its_time(held: Service) -> None:
    held.hold("a", deadline_ms=5_900)
    held.hold("b", deadline_ms=9_000)
    held.service.scan(5_100)
    assert held.take_runs() == []
    held.service.scan(5_950)
    assert held.take_runs() == [("a", True)]
    held.service.scan(8_999)
    assert held.take_runs() == []
    held.service.scan(12_000)
    assert held.take_runs() == [("b", True)]
    assert held.service.is_empty


def test_a_pull_that_was_woken_before_its_time_is_not_run_when_it_comes(held: Service) -> None:
    held.hold("a", deadline_ms=2_000)
    held.answered = {"a"}
    held.service.wake(("T", 0))
    assert held.take_runs() == [("a", False)]
    held.service.scan(3_000)
    assert held.take_runs() == []


def test_the_pulls_of_a_closed_connection_are_forgotten_at_once(held: Service) -> None:
    stays = held.hold("stays", deadline_ms=1 << 40)
    gone = [held.hold("gone", key, deadline_ms=1 << 40) for key in (("T", 0), ("U", 0))]
    for pull in gone:
        pull.request.connection.is_open = False
        held.service.forget(pull.request.connection)
    assert (held.service.figures().pulls, held.service.figures().queues) == (1, 1)
    held.service.forget(FakeConnection())
    held.service.wake(("T", 0))
    held.service.wake(("U", 0))
    assert held.take_runs() == [("stays", False)]
    held.service.forget(stays.request.connection)
    assert held.service.is_empty
    assert not held.service.hold(("T", 0), gone[0]), "nothing would forget it again"
    assert held.service.is_empty


def test_a_look_visits_only_what_is_due_and_some_of_it_a_turn(held: Service) -> None:
    """Pulls of other queues, and later ones of the same, are not even looked at."""
    for number in range(100):
        held.hold(str(number), ("T", number), deadline_ms=1_000 + number)
    for now_ms in range(0, 1_000, 100):
        assert not held.service.scan(now_ms)
    assert held.take_runs() == []
    held.hold("later", ("T", 1), deadline_ms=2_000)
    turns = []
    more = True
    while more:
        more = held.service.scan(1_100)
        turns.append(held.take_runs())
    assert max(map(len, turns)) <= 8, "sends and pulls are served in between"
    runs = [run for turn in turns for run in turn]
    assert sorted(runs) == sorted((str(number), True) for number in range(100))
    assert not held.service.scan(1_999)
    assert held.take_runs() == []
    assert not held.service.scan(2_000)
    assert held.take_runs() == [("later", True)]
    assert held.service.is_empty


def test_the_first_that_times_out_is_told_of_once(held: Service) -> None:
    """The loop sleeps until then: nothing looks at held pulls ten times a second."""
    told: list[int | None] = []
    held.service.on_first_due = lambda: told.append(held.service.next_due_ms())
    assert held.service.next_due_ms() is None
    for name, deadline_ms in {"a": 5_000, "b": 5_000, "c": 9_000, "d": 2_001}.items():
        held.hold(name, deadline_ms=deadline_ms)
    assert told == [5_000, 2_100]
    assert held.service.scan(2_100) is False
    assert held.take_runs() == [("d", True)]
    assert held.service.next_due_ms() == 5_000
    assert held.service.scan(9_000) is False
    assert held.service.next_due_ms() is None
