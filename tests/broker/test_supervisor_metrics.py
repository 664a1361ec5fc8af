"""/metrics, /healthz and /readyz over a real socket."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.listening_sockets import bind_listener, port_of
from broker.supervisor_metrics import SupervisorMetrics
from ha.refusals import RefusalReason
from store.control_page import (
    DISPATCHED_OFFSET,
    FLUSHED_OFFSET,
    HA_REFUSALS,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    REMOTING_READY,
    REPLICA_COUNT,
    REPLICATED_OFFSET,
    RUNNING_FLAGS,
    SLAVE_SYNC_FAILURES,
    SLAVE_SYNC_SUCCESS,
    STORE_STATE,
    StoreState,
)
from tests.broker.broker_fakes import CONFIG
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import fresh_page

CLOCK = ManualClock()


class World:
    def __init__(self) -> None:
        self.page = fresh_page()
        self.children: list[Any] = [self.child("store"), self.child("remoting")]
        sock = bind_listener("127.0.0.1", 0, 5, "metricsPort")
        self.port = port_of(sock)
        self.metrics = SupervisorMetrics(sock, self.page, lambda: self.children, CONFIG, CLOCK)
        self.metrics.start()

    @staticmethod
    def child(name: str, *, process: object = "runs", restarts: int = 0) -> Any:
        spec = SimpleNamespace(name=name)
        return SimpleNamespace(spec=spec, process=process, restarts=restarts)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as found:
                return found.status, found.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def samples(self) -> dict[str, float]:
        status, text = self.get("/metrics")
        assert status == 200
        found = re.findall(r"^(rocketmq\S+) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in found}


@pytest.fixture(scope="module")
def server() -> Iterator[World]:
    world = World()
    yield world
    world.metrics.shutdown()
    world.metrics._server.socket.close()


@pytest.fixture
def world(server: World) -> World:
    """The one server, with a fresh page and two living children."""
    for slot in range(len(server.page.counters)):
        server.page.counters[slot] = 0
    server.children = [server.child("store"), server.child("remoting")]
    return server


LABELS = 'cluster="GoldenCluster",broker="broker-g"'


def labelled(name: str, more: str = "") -> str:
    pairs = dict(re.findall(r'(\w+)="([^"]*)"', f"{LABELS},{more}"))
    return name + "{" + ",".join(f'{k}="{v}"' for k, v in sorted(pairs.items())) + "}"


def test_offsets_of_the_page(world: World) -> None:
    slots = {
        "min": MIN_PHY_OFFSET,
        "max": MAX_PHY_OFFSET,
        "dispatched": DISPATCHED_OFFSET,
        "flushed": FLUSHED_OFFSET,
        "replicated": REPLICATED_OFFSET,
    }
    for number, slot in enumerate(slots.values()):
        world.page.counters[slot] = 2**33 + number
    samples = world.samples()
    for number, kind in enumerate(slots):
        name = labelled("rocketmq_store_offset_bytes", f'kind="{kind}"')
        assert samples[name] == 2**33 + number


@pytest.mark.parametrize(("flags", "writable"), [(0, 1), (1, 0), (16, 0)])
def test_writable(world: World, flags: int, writable: int) -> None:
    world.page.counters[RUNNING_FLAGS] = flags
    assert world.samples()[labelled("rocketmq_store_writable")] == writable


def test_replicas_and_refused_links(world: World) -> None:
    world.page.counters[REPLICA_COUNT] = 2
    world.page.counters[HA_REFUSALS + RefusalReason.BEYOND_SENT] = 5
    samples = world.samples()
    assert samples[labelled("rocketmq_ha_replicas")] == 2
    for reason, count in (("beyond_sent", 5), ("unknown_peer", 0)):
        name = labelled("rocketmq_ha_links_refused_total", f'reason="{reason}"')
        assert samples[name] == count


def test_the_age_of_what_a_slave_took_over(world: World) -> None:
    world.page.counters[SLAVE_SYNC_SUCCESS + 1] = CLOCK.now_ms() - 2_500
    world.page.counters[SLAVE_SYNC_FAILURES + 3] = 7
    samples = world.samples()
    age, failures = "rocketmq_slave_sync_age_seconds", "rocketmq_slave_sync_failures_total"
    assert samples[labelled(age, 'kind="consumer_offsets"')] == 2.5
    assert labelled(age, 'kind="topics"') not in samples
    assert samples[labelled(failures, 'kind="subscription_groups"')] == 7


def test_a_child_that_is_down_is_a_value(world: World) -> None:
    world.children = [world.child("store", process=None, restarts=3), world.child("ha")]
    samples = world.samples()
    for name, up, restarts in (("store", 0, 3), ("ha", 1, 0)):
        label = f'process="{name}"'
        assert samples[labelled("rocketmq_process_up", label)] == up
        assert samples[labelled("rocketmq_process_restarts_total", label)] == restarts


def test_healthz(world: World) -> None:
    assert world.get("/healthz") == (200, "ok\n")
    world.children.append(world.child("ha", process=None))
    assert world.get("/healthz") == (503, "down: ha\n")


def test_readyz_says_what_is_missing(world: World) -> None:
    counters = world.page.counters
    assert world.get("/readyz") == (503, "the store is not ready\n")
    counters[STORE_STATE] = StoreState.READY
    assert world.get("/readyz") == (503, "remoting is not ready\n")
    counters[REMOTING_READY] = 1
    assert world.get("/readyz?x=1") == (200, "ready\n")
    counters[RUNNING_FLAGS] = 2
    assert world.get("/readyz") == (503, "the store refuses writes\n")


@pytest.mark.parametrize("path", ["/", "/nothing", "/metrics/x", "/../etc/passwd"])
def test_other_paths(world: World, path: str) -> None:
    assert world.get(path)[0] == 404
