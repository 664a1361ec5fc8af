"""TransactionalMessageCheckService: when its thread recovers, checks and settles."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from broker.transaction import transactional_message_check_service
from broker.transaction.transactional_message_check_service import TransactionalMessageCheckService
from tests.broker.broker_fakes import FakeClock

WAIT_S = 10


class Rounds:
    """TransactionalMessageService: says what it is told, remembers what it was asked."""

    def __init__(self) -> None:
        self.recovers = [False, True]
        self.settles = [False, True]
        self.heard: list[str] = []
        self.changed = threading.Condition()

    def _hear(self, what: str) -> None:
        with self.changed:
            self.heard.append(what)
            self.changed.notify_all()

    def wait_for(self, what: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: what in self.heard, WAIT_S), self.heard

    def recover(self, _is_stopped: object = None) -> bool:
        recovered = self.recovers.pop(0) if self.recovers else True
        self._hear(f"recover {recovered}")
        return recovered

    def check(self, is_stopped: Callable[[], bool]) -> None:
        self._hear(f"check {is_stopped()}")

    def settle(self, *, at_once: bool = False) -> bool:
        settled = at_once or not self.settles or self.settles.pop(0)
        self._hear(f"settle {at_once} {settled}")
        return settled


def start(
    rounds: Rounds, interval_ms: int = 600_000, clock: FakeClock | None = None
) -> TransactionalMessageCheckService:
    service = TransactionalMessageCheckService(
        rounds,  # type: ignore[arg-type]
        interval_ms,
        clock or FakeClock(),
    )
    service.start()
    return service


def test_it_recovers_waits_checks_and_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_message_check_service, "_FLUSH_WAIT_MS", 1)
    rounds = Rounds()
    service = start(rounds)
    rounds.wait_for("settle False True")
    assert rounds.heard == [
        "recover False",
        "recover True",
        "settle False False",
        "settle False True",
    ]
    service.wakeup()
    rounds.wait_for("check False")
    assert service.shutdown()
    assert rounds.heard[4] == "check False"
    assert rounds.heard.count("check False") == 1
    assert rounds.heard[-1] == "settle True True"


def test_a_round_comes_after_each_interval() -> None:
    clock = FakeClock()
    rounds = Rounds()
    settle = rounds.settle

    def passes(*, at_once: bool = False) -> bool:
        clock.advance(1)
        return settle(at_once=at_once)

    rounds.settle = passes  # type: ignore[method-assign]
    service = start(rounds, 2, clock)
    rounds.wait_for("check False")
    with rounds.changed:
        assert rounds.changed.wait_for(lambda: rounds.heard.count("check False") >= 3, WAIT_S)
    assert service.shutdown()


@pytest.mark.parametrize("recovered", [False, True])
def test_a_stop_runs_no_round(recovered: bool) -> None:
    rounds = Rounds()
    rounds.recovers = [recovered] * 100_000
    service = start(rounds)
    rounds.wait_for(f"recover {recovered}")
    assert service.shutdown()
    assert not any(what.startswith("check") for what in rounds.heard)
    assert rounds.heard[-1] == "settle True True"


def test_a_stop_does_not_wait_for_the_disk() -> None:
    rounds = Rounds()
    rounds.settles = [False] * 100_000
    service = start(rounds)
    rounds.wait_for("settle False False")
    assert service.shutdown()
    assert rounds.heard[-1] == "settle True True"
