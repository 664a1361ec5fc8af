"""broker.metrics.readiness: why a broker should get no requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.broker_startup import load_startup_options
from broker.metrics.readiness import (
    REMOTING_SILENT_MS,
    STORE_SILENT_MS,
    ready_reason,
    replicas_needed,
)
from broker.supervisor.child_state import ChildState
from broker.supervisor.control_slots import REMOTING_READY
from ha.control_slots import ISOLATED
from ipc.control_page import ControlPage
from store.control_slots import RUNNING_FLAGS, STORE_STATE, StoreState
from tests.broker.metrics_world import child
from tests.support.shared_memory import close_page, fresh_page

SEEN_MS = 50_000


class World:
    """Every process has beaten until SEEN_MS."""

    def __init__(self, page: ControlPage) -> None:
        self.page = page
        self.children = {name: child(name) for name in ("store", "ha", "remoting")}
        self.page.counters[STORE_STATE], self.page.counters[REMOTING_READY] = StoreState.READY, 1
        for each in self.children.values():
            self.see(each)

    def see(self, each: Any) -> None:
        """As the supervisor does, at SEEN_MS."""
        each.last_beat, each.beat_at_ms = self.page.beats(each.spec.index), SEEN_MS

    def reason(self, later_ms: int = 0, **replicas: int) -> str:
        children: list[ChildState] = list(self.children.values())
        return ready_reason(self.page, children, SEEN_MS + later_ms, **replicas)


@pytest.fixture
def world() -> Iterator[World]:
    page = fresh_page()
    yield World(page)
    close_page(page)


def test_what_the_page_says(world: World) -> None:
    counters = world.page.counters
    assert world.reason() == ""
    for slot, value, reason in (
        (RUNNING_FLAGS, 2, "the store rejects writes: see store.log"),
        (ISOLATED, 1, "isolated until its group is linked (totalReplicas)"),
        (ISOLATED, 2, "isolated until its group is linked (totalReplicas), waits for broker id 0"),
        (REMOTING_READY, 0, "remoting is not ready"),
        (STORE_STATE, StoreState.RECOVERING, "the store is not ready"),
    ):
        counters[slot] = value
        assert world.reason() == reason


@pytest.mark.parametrize(
    ("name", "patience_ms"), [("remoting", REMOTING_SILENT_MS), ("store", STORE_SILENT_MS)]
)
def test_a_process_that_hangs(world: World, name: str, patience_ms: int) -> None:
    for other in world.children.keys() - {name}:
        world.page.beat(world.children[other].spec.index)
    assert world.reason(patience_ms) == ""
    assert world.reason(patience_ms + 1) == f"process {name} hangs"
    world.page.beat(world.children[name].spec.index)  # The supervisor has not seen it yet.
    assert world.reason(patience_ms + 1) == ""
    world.see(world.children[name])
    assert world.reason(patience_ms + 1) == f"process {name} hangs"


def test_a_hanging_ha_takes_no_requests_away(world: World) -> None:
    for name in ("remoting", "store"):
        world.page.beat(world.children[name].spec.index)
    assert world.reason(3_600_000) == ""
    world.children["ha"].process = None
    assert world.reason(3_600_000) == ""


def test_without_remoting_nobody_is_served(world: World) -> None:
    """Its word is still on the page."""
    world.children["remoting"].process = None
    assert world.reason() == "remoting is not ready"


def test_a_store_that_comes_back_soon_is_not_missed(world: World) -> None:
    store = world.children["store"]
    world.page.beat(world.children["remoting"].spec.index)
    world.page.beat(store.spec.index)  # Its last one, before anybody looked.
    store.process = None
    assert world.reason(STORE_SILENT_MS) == ""
    assert world.reason(STORE_SILENT_MS + 1) == "process store is down"
    store.process = "runs"
    world.see(store)
    assert world.reason(STORE_SILENT_MS) == ""


@pytest.mark.parametrize(
    ("name", "patience_ms"), [("remoting", REMOTING_SILENT_MS), ("store", STORE_SILENT_MS)]
)
def test_a_process_that_was_started_again_and_is_slow(
    world: World, name: str, patience_ms: int
) -> None:
    """It has not beaten yet; its predecessor's word is on the page."""
    for other in world.children.keys() - {name}:
        world.page.beat(world.children[other].spec.index)
    world.children[name].has_beaten = False
    assert world.reason(patience_ms) == ""
    assert world.reason(patience_ms + 1) == f"process {name} is starting"


@pytest.mark.parametrize(("found", "ready"), [(0, False), (1, False), (2, True), (3, True)])
def test_replicas(world: World, found: int, ready: bool) -> None:
    reason = world.reason(replicas=found, replicas_needed=2)
    assert reason == ("" if ready else f"{found} of 2 replicas in sync (readyNeedsReplicas)")


@pytest.mark.parametrize(
    ("lines", "needed"),
    [
        ("brokerRole=SYNC_MASTER", 0),
        ("brokerRole=SYNC_MASTER\nreadyNeedsReplicas=true", 1),
        ("brokerRole=SYNC_MASTER\nreadyNeedsReplicas=true\ninSyncReplicas=3", 2),
        ("brokerRole=SYNC_MASTER\nreadyNeedsReplicas=true\ninSyncReplicas=1", 1),
        ("brokerRole=ASYNC_MASTER\nreadyNeedsReplicas=true", 1),
        ("brokerRole=SLAVE\nbrokerId=1\nreadyNeedsReplicas=true", 0),
    ],
)
def test_whom_it_needs(tmp_path: Path, lines: str, needed: int) -> None:
    path = tmp_path / "b.conf"
    path.write_text(f"storePathRootDir={tmp_path}/s\n{lines}\n")
    options = load_startup_options(["-c", str(path)], {"ROCKETMQ_HOME": "/opt/mq"})
    assert replicas_needed(options) == needed
