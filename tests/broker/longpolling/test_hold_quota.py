"""HoldQuota: what a connection may have held, and what all of them together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.longpolling.hold_quota import MAX_PULLS_OF_A_QUEUE, HoldQuota
from broker.longpolling.pull_request_hold_service import PullRequestHoldService
from tests.broker.broker_fakes import FakeConnection

QUEUE = ("T", 0)


def pull_of(connection: FakeConnection, text: str | None = "*", deadline_ms: int = 100) -> Any:
    header = SimpleNamespace(subscription=text)
    request = SimpleNamespace(connection=connection, header=header)
    return SimpleNamespace(request=request, deadline_ms=deadline_ms)


def test_pulls_of_one_queue() -> None:
    """Each is run again for every message of the queue, whoever sends it."""
    quota, greedy = HoldQuota(), FakeConnection()
    pulls = [pull_of(greedy) for _ in range(MAX_PULLS_OF_A_QUEUE)]
    assert all(quota.take(QUEUE, pull) for pull in pulls)
    assert not quota.take(QUEUE, pull_of(greedy))
    assert quota.take(("T", 1), pull_of(greedy))
    assert quota.take(QUEUE, pull_of(FakeConnection()))
    quota.give_back(QUEUE, pulls[0])
    assert quota.take(QUEUE, pulls[0])


def test_expressions_count_by_their_length() -> None:
    quota, greedy = HoldQuota(per_connection=1 << 20), FakeConnection()
    assert not quota.take(QUEUE, pull_of(greedy, "x" * (1 << 20)))
    assert quota.size == 0
    taken = sum(quota.take(("T", n), pull_of(greedy, "x" * 10_000)) for n in range(100))
    assert taken == 5
    assert quota.take(QUEUE, pull_of(greedy, None))


def test_when_all_hold_too_much_each_has_an_equal_share() -> None:
    quota = HoldQuota(total=100_000, per_connection=90_000)
    greedy = FakeConnection()
    held = sum(quota.take(("T", n), pull_of(greedy)) for n in range(200))
    assert held == 86
    others = [FakeConnection() for _ in range(9)]
    for other in others:
        assert all(quota.take(("T", n), pull_of(other)) for n in range(8)), "a fair share"
    assert not quota.take(("T", 200), pull_of(greedy))
    assert quota.size < 2 * 100_000


@pytest.mark.parametrize("end", ["answered", "time", "closed", "forgotten"])
def test_whatever_ends_a_pull_gives_back(end: str) -> None:
    quota = HoldQuota()
    service = PullRequestHoldService(
        lambda _pull, time_is_up: time_is_up or end == "answered", quota
    )
    connection = FakeConnection()
    deadline_ms = 1_000 if end == "time" else 1 << 40
    for number in range(3):
        assert service.hold(QUEUE, pull_of(connection, deadline_ms=deadline_ms + number))
    service.wake(("other", 0))
    assert quota.size > 0
    connection.is_open = end in ("answered", "time")
    if end in ("answered", "closed"):
        service.wake(QUEUE)
    elif end == "forgotten":
        service.forget(connection)
    else:
        service.scan(60_000)
    assert quota.size == 0
    assert service.is_empty


def test_a_pull_that_is_not_held_is_not_kept() -> None:
    service = PullRequestHoldService(lambda _pull, _time: False, HoldQuota(per_queue=1))
    connection = FakeConnection()
    assert service.hold(QUEUE, pull_of(connection))
    assert not service.hold(QUEUE, pull_of(connection))
    assert service.figures().pulls == 1
