"""Pulls that wait: whoever has lost a right meanwhile is given nothing, whatever the pull waits
for. With whole brokers: tests/broker/acl/test_acl_served.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.coldctr.cold_data_pull_request_hold_service import HOLD_MS
from broker.pull.cold_pulls import ColdPulls
from broker.store_access.pages_ahead import PagesMissingError
from remoting.errors import RequestError
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from tests.broker.hot_path_world import HotPathWorld, pull_request, send_request


class Rights:
    """HoldRights of one account, which may lose what it has."""

    def __init__(self) -> None:
        self.held: list[tuple[int, str | None, str, str]] = []
        self.are_lost = False

    def hold(
        self, _connection: ConnectionLike, code: int, key: str | None, group: str, topic: str
    ) -> Callable[[], None]:
        self.held.append((code, key, group, topic))
        return self.check

    def check(self) -> None:
        if self.are_lost:
            raise RequestError(ResponseCode.NO_PERMISSION, "it has lost its right")


class Disk:
    """PagesAhead that are missing, and come when `go_on` is called."""

    def check(self, units: bytes) -> None:
        raise PagesMissingError(units)

    def bring(self, _units: bytes, then: Callable[[], None]) -> None:
        self.go_on = then


def wait_for_pages(world: HotPathWorld) -> Callable[[], None]:
    disk = Disk()
    world.pull_processor._pages = cast(Any, disk)
    return lambda: disk.go_on()


def wait_for_cold_data(world: HotPathWorld) -> Callable[[], None]:
    """All of the log is cold, and the group has read too much of it."""
    cold = ColdPulls(
        cast(Any, SimpleNamespace(is_limited=lambda group: True)),
        cast(Any, SimpleNamespace(cold_edge=lambda end: end)),
        world.page,
        world.table,
        world.checked_units,
        lambda group: None,
        world.clock.monotonic_ms,
        enabled=True,
    )
    cold.serve_with(lambda pull: world.pull_processor._run_again(pull, True))
    world.pull_processor._cold = cold

    def go_on() -> None:
        world.clock.advance(HOLD_MS)
        cold.hold_service.scan(world.clock.monotonic_ms())

    return go_on


@pytest.mark.parametrize("wait", [wait_for_pages, wait_for_cold_data])
@pytest.mark.parametrize("lost", [False, True])
def test_who_has_lost_the_right_is_given_nothing(
    tmp_path: Path, wait: Callable[[HotPathWorld], Callable[[], None]], lost: bool
) -> None:
    world, rights = HotPathWorld(tmp_path), Rights()
    world.topic()
    client = world.client()
    assert client.call(send_request(b"secret")).code == 0
    world.dispatch()
    world.pull_processor._hold_rights = rights.hold
    go_on = wait(world)
    client.send(pull_request(AccessKey="application"))
    world.turn()
    assert client.answers() == []
    assert rights.held == [(11, "application", "G", "T")]
    rights.are_lost = lost
    go_on()
    world.turn()
    (answer,) = client.answers()
    if lost:
        assert (answer.code, answer.remark) == (16, "it has lost its right")
    assert (b"secret" in (answer.body or b"")) is not lost
