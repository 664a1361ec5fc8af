"""The collector and its text: sources, formats, escapes, caps; dead processes are values."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from broker.metrics import metrics_table as table
from broker.slave.sync_kind import SLAVE_SYNC_FAILURES, SLAVE_SYNC_SUCCESS
from broker.supervisor.control_slots import REMOTING_READY
from ha.control_slots import HA_REFUSALS, REPLICA_COUNT, REPLICATED_OFFSET
from ha.refusals import RefusalReason
from ipc.metric_slots import OVERFLOW, SERIES_CAPPED
from remoting.metrics.metrics_text import MetricsText, family
from store.compaction.compaction_slots import COMPACTION_ENDED_MS
from store.control_slots import (
    DIFFERING_CHUNKS,
    DISPATCHED_OFFSET,
    EMERGENCY_BYTES,
    FENCE_COUNT,
    FENCED_BYTES,
    FLUSHED_OFFSET,
    LIGHT_QUEUES_UNWRITABLE,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    PUT_OFF,
    QUEUE_UNITS_LOST,
    QUEUE_UNITS_REBUILT,
    QUEUES_REBUILDING,
    RUNNING_FLAGS,
    SCRUB_PASS_ENDED_MS,
    STORE_STATE,
    PutOffBy,
    StoreState,
)
from store.message import Message
from store.message_codec import encode_record
from tests.broker.metrics_world import (
    BASE,
    OPENMETRICS,
    MetricsWorld,
    child,
    families_of,
    samples_of,
)

FORMATS = pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["text", "openmetrics"])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[MetricsWorld]:
    made = MetricsWorld(tmp_path)
    yield made
    made.close()


# -- control page, files, children ---------------------------------------------------------------


def test_offsets_of_the_page(world: MetricsWorld) -> None:
    slots = {
        "min": MIN_PHY_OFFSET,
        "max": MAX_PHY_OFFSET,
        "dispatched": DISPATCHED_OFFSET,
        "flushed": FLUSHED_OFFSET,
        "replicated": REPLICATED_OFFSET,
    }
    for number, slot in enumerate(slots.values()):
        world.page.counters[slot] = 2**33 + number
    offsets = world.samples()["rocketmq_store_offset_bytes"]
    assert offsets == {(kind,): 2**33 + n for n, kind in enumerate(slots)}


def test_damage(world: MetricsWorld) -> None:
    assert world.collector.damage() == ""
    world.page.counters[FENCE_COUNT] = 2
    world.page.counters[FENCED_BYTES] = 700
    assert world.samples()["rocketmq_store_fenced_ranges"] == {(): 2}
    assert "rocketmq_store_scrub_pass_end_timestamp_seconds" not in world.samples()
    world.page.counters[SCRUB_PASS_ENDED_MS] = 1_500
    world.page.counters[DIFFERING_CHUNKS] = 3
    assert world.samples()["rocketmq_store_scrub_pass_end_timestamp_seconds"] == {(): 1.5}
    assert world.samples()["rocketmq_store_differing_chunks"] == {(): 3}
    assert world.samples()["rocketmq_store_fenced_bytes"] == {(): 700}
    assert world.collector.damage().startswith("2 damaged ranges of the commit log (700 bytes)")


@pytest.mark.parametrize(("flags", "writable"), [(0, 1), (1, 0), (16, 0)])
def test_writable(world: MetricsWorld, flags: int, writable: int) -> None:
    world.page.counters[RUNNING_FLAGS] = flags
    assert world.samples()["rocketmq_store_writable"] == {(): writable}


@pytest.mark.parametrize(("flags", "full"), [(0, 0), (1, 0), (16, 1), (17, 1)])
def test_a_full_disk(world: MetricsWorld, flags: int, full: int) -> None:
    world.page.counters[RUNNING_FLAGS] = flags
    world.page.counters[EMERGENCY_BYTES] = 4096
    samples = world.samples()
    assert samples["rocketmq_store_disk_full"] == {(): full}
    assert samples["rocketmq_store_emergency_space_bytes"] == {(): 4096}
    used = samples["rocketmq_store_disk_used_ratio"]
    assert all(0 < ratio <= 1 for ratio in used.values())
    assert used.keys() >= {("store",)}


def test_queues_that_are_rebuilt(world: MetricsWorld) -> None:
    counters = world.page.counters
    for slot, value in ((QUEUES_REBUILDING, 2), (QUEUE_UNITS_REBUILT, 30), (QUEUE_UNITS_LOST, 1)):
        counters[slot] = value
    samples = world.samples()
    assert samples["rocketmq_store_queues_rebuilding"] == {(): 2}
    assert samples["rocketmq_store_queue_units_rebuilt_total"] == {(): 30}
    assert samples["rocketmq_store_queue_units_lost_total"] == {(): 1}
    assert "2 consume queues" in world.collector.ready_detail()
    counters[QUEUES_REBUILDING] = 0
    assert world.collector.ready_detail() == ""


def test_light_queues_that_cannot_be_written(world: MetricsWorld) -> None:
    world.page.counters[LIGHT_QUEUES_UNWRITABLE] = 2
    assert world.samples()["rocketmq_store_light_queues_unwritable"] == {(): 2}
    assert "2 light queues cannot be written" in world.collector.ready_detail()


def test_messages_that_wait_for_room(world: MetricsWorld) -> None:
    assert set(world.samples()["rocketmq_messages_put_off_total"].values()) == {0}
    world.page.counters[PUT_OFF + PutOffBy.TIMER_DELIVERY] = 3
    world.page.counters[PUT_OFF + PutOffBy.POP_REVIVAL] = 4
    assert world.samples()["rocketmq_messages_put_off_total"] == {
        ("timer_delivery",): 3,
        ("delay_delivery",): 0,
        ("pop_revival",): 4,
    }
    words = "due messages wait for room in the queue table: put off 7 times"
    assert world.collector.ready_detail() == words


def test_storage(world: MetricsWorld) -> None:
    counters = world.page.counters
    for slot, value in ((MAX_PHY_OFFSET, 1000), (FLUSHED_OFFSET, 900), (DISPATCHED_OFFSET, 1001)):
        counters[slot] = value
    samples = world.samples()
    where = ("disk", "local")  # storage_medium, storage_type
    assert samples[table.STORAGE_FLUSH_BEHIND.name] == {where: 100}
    assert samples[table.STORAGE_DISPATCH_BEHIND.name] == {where: 0}
    assert samples[table.STORAGE_SIZE.name][where] > 0


def test_age_of_the_oldest_message(world: MetricsWorld) -> None:
    name = table.STORAGE_MESSAGE_RESERVE_TIME.name
    counters = world.page.counters
    assert name not in world.samples()
    counters[MIN_PHY_OFFSET], counters[MAX_PHY_OFFSET] = 1024, 4096
    assert name not in world.samples()  # The file is not there (yet, any more).
    path = world.root / "commitlog" / f"{1024:020d}"
    path.parent.mkdir()
    path.write_bytes(bytes(512))
    assert name not in world.samples()
    stored = world.clock.now_ms() - 5_000
    message = Message(topic="t", body=b"b", queue_id=0, store_timestamp=stored)
    path.write_bytes(encode_record(message) + bytes(512))
    assert world.samples()[name] == {("disk", "local"): 5_000}
    path.unlink()
    world.clock.advance(1_000)
    assert world.samples()[name] == {("disk", "local"): 6_000}
    counters[MIN_PHY_OFFSET] = 2048
    assert name not in world.samples()


def test_replicas_and_refused_links(world: MetricsWorld) -> None:
    world.page.counters[REPLICA_COUNT] = 2
    world.page.counters[HA_REFUSALS + RefusalReason.BEYOND_SENT] = 5
    samples = world.samples()
    assert samples["rocketmq_ha_replicas"] == {(): 2}
    refused = samples["rocketmq_ha_links_refused_total"]
    assert refused["beyond_sent",] == 5
    assert refused["unknown_peer",] == 0


def test_the_age_of_what_a_slave_took_over(world: MetricsWorld) -> None:
    world.page.counters[SLAVE_SYNC_SUCCESS + 1] = world.clock.now_ms() - 2_500
    world.page.counters[SLAVE_SYNC_FAILURES + 3] = 7
    samples = world.samples()
    assert samples["rocketmq_slave_sync_age_seconds"] == {("consumer_offsets",): 2.5}
    assert samples["rocketmq_slave_sync_failures_total"]["subscription_groups",] == 7


def test_a_child_that_is_down_is_a_value(world: MetricsWorld) -> None:
    world.children[0] = child("store", process=None, restarts=3)
    samples = world.samples()
    assert samples["rocketmq_process_up"] == {("store",): 0, ("ha",): 1, ("remoting",): 1}
    restarts = {("store",): 3, ("ha",): 0, ("remoting",): 0}
    assert samples["rocketmq_process_restarts_total"] == restarts


def test_the_dump(world: MetricsWorld) -> None:
    names = [f"rocketmq_metrics_dump_{n}" for n in ("lines_total", "failures_total")]
    names.append("rocketmq_metrics_dump_interval_seconds")
    assert not {*names} & {*world.samples()}
    world.collector.watch_dump(SimpleNamespace(lines=7, failures=2))
    assert [world.samples()[name][()] for name in names] == [7, 2, 5]


def test_ready(world: MetricsWorld) -> None:
    counters = world.page.counters
    assert world.samples()["rocketmq_ready"] == {(): 0}
    assert world.collector.ready_reason() == "the store is not ready"
    counters[STORE_STATE], counters[REMOTING_READY] = StoreState.READY, 1
    assert world.samples()["rocketmq_ready"] == {(): 1}
    assert world.collector.ready_reason() == ""
    world.children[2].process = None
    assert world.collector.ready_reason() == "remoting is not ready"
    assert world.collector.processes_down() == ["remoting"]


def test_ready_with_replicas(tmp_path: Path) -> None:
    """Those that rocketmq_ha_replica_in_sync shows; each connection that counts for nobody less."""
    world = MetricsWorld(tmp_path, replicas_needed=2)
    counters = world.page.counters
    counters[STORE_STATE], counters[REMOTING_READY] = StoreState.READY, 1
    counters[REPLICA_COUNT] = 2
    world.set(table.HA_OBSERVED_MS, world.clock.monotonic_ms(), ha=True)
    expected = "{} of 2 replicas in sync (readyNeedsReplicas)"
    for in_sync, connected, reason in (
        ((0, 0), 2, expected.format(0)),
        ((1, 0), 2, expected.format(1)),
        ((1, 1), 2, ""),
        ((1, 1), 1, expected.format(1)),
    ):
        counters[REPLICA_COUNT] = connected
        for number, value in enumerate(in_sync):
            world.set(table.HA_REPLICA_IN_SYNC, value, f"g:{number}", "SYNC_MASTER", ha=True)
        assert world.collector.ready_reason() == reason
    counters[REPLICA_COUNT] = 2
    assert world.collector.ready_reason() == ""
    world.children[1].process = None
    assert world.collector.ready_reason() == expected.format(0)
    world.close()


# -- slots and formats ---------------------------------------------------------------------------


def test_every_metric_of_the_table_can_be_shown(world: MetricsWorld) -> None:
    for metric in table.METRICS:
        labels = tuple(f"value of {label}" for label in metric.labels)
        world.set(metric, 1, *labels)
    world.page.counters[SLAVE_SYNC_SUCCESS] = 1
    world.page.counters[MAX_PHY_OFFSET] = 1
    world.page.counters[SCRUB_PASS_ENDED_MS] = 1
    world.page.counters[COMPACTION_ENDED_MS] = 1
    world.collector.watch_dump(SimpleNamespace(lines=5, failures=2))
    found = families_of(world.text(OPENMETRICS), is_openmetrics=True)
    shown = {f.name + "_total" * (f.type == "counter"): (f.type, f.documentation) for f in found}
    missing = {table.HA_OBSERVED_MS.name, table.STORAGE_MESSAGE_RESERVE_TIME.name}
    assert shown == {m.name: (str(m.kind), m.help) for m in table.METRICS if m.name not in missing}


@FORMATS
def test_histograms_have_cumulative_buckets(world: MetricsWorld, accept: str) -> None:
    metric = table.RPC_LATENCY
    labels = ("remoting", "send_message_v2", "success", "false", "success")
    first = world.slots.find(metric.name, labels, metric.size)
    world.slots.values[first] = 2  # <= 1
    world.slots.values[first + 2] = 3  # 3..5
    world.slots.values[first + len(metric.buckets)] = 4  # > 3000
    world.slots.values[first + metric.size - 1] = 12345.5
    found = families_of(world.text(accept), is_openmetrics=bool(accept))
    (family,) = (one for one in found if one.name == metric.name)
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert list(buckets.values()) == [2, 2, 5, 5, 5, 5, 5, 5, 5, 9]
    assert list(buckets) == [*(str(float(b)) for b in metric.buckets), "+Inf"]
    rest = {s.name: s.value for s in family.samples if "le" not in s.labels}
    assert rest == {f"{metric.name}_count": 9, f"{metric.name}_sum": 12345.5}


NASTY = [
    'quo"te',
    "new\nline",
    "back\\slash",
    "\\n",
    "Überblick 主题 🚀",
    "",
    "\x85\u2028\r",
    "{},=",
]


@FORMATS
@pytest.mark.fault(46)
@pytest.mark.parametrize("label", NASTY)
def test_label_values_are_escaped(world: MetricsWorld, accept: str, label: str) -> None:
    world.set(table.CONSUMER_LAG_MESSAGES, 3, label, "plain", "false", "false")
    world.set(table.CONSUMER_LAG_MESSAGES, 4, "other", "plain", "false", "false")
    found = world.samples(accept)["rocketmq_consumer_lag_messages"]
    assert found == {
        (label, "false", "false", "plain"): 3,
        ("other", "false", "false", "plain"): 4,
    }


@FORMATS
def test_the_text_is_that_of_prometheus_client(world: MetricsWorld, accept: str) -> None:
    """Ours is made of kept pieces: at no moment may it differ from the library's."""

    class Reference(Collector):
        def collect(self) -> Iterator[Family]:
            for metric, rows in collected:
                yield family(metric, BASE, rows)

    encode = generate_openmetrics if accept else generate_latest
    text = MetricsText(BASE)
    histogram = table.HA_ACK_LATENCY
    for turn in range(4):
        for n in range(turn + 3):
            value = [0, 5.5, 1e9 + turn, 12345678.25][n % 4] * turn
            world.set(table.MESSAGES_IN, value, f'T"{n}', "Normal", "false")
        world.slots.values[world.slots.find(histogram.name, (), histogram.size) + turn] += turn
        if turn == 2:
            world.slots.hide(table.MESSAGES_IN.name, ('T"1', "Normal", "false"))
        # Once for both: the used space of the disk changes all the time.
        collected = list(world.collector.collect())
        found = text.encode(iter(collected), accept)[0].decode()
        assert found == encode(Reference()).decode()
    assert found.count("rocketmq_messages_in_total{") == 6


OLD_PROMETHEUS = (
    "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
NEW_PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "is_openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=1.0.0", False),
        ("text/plain;version=x", False),
        (OPENMETRICS, True),
        (NEW_PROMETHEUS, True),
        (OLD_PROMETHEUS, False),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text;version=1.0.0;escaping=dots", True),
        ('application/openmetrics-text;version="1.0.0"', True),
        ("application/openmetrics-text;version=x", False),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0,text/plain", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.5,text/plain", False),
        ("application/openmetrics-text;q=0.5,*/*", False),
        ("application/openmetrics-text;q=0.5,text/plain;q=0.4,*/*", True),
        ("text/plain,application/openmetrics-text", True),
        ("application/json", False),
        ("nonsense;;=,,;version=", False),
    ],
)
def test_what_is_accepted_is_sent(world: MetricsWorld, accept: str, is_openmetrics: bool) -> None:
    found, said = MetricsText(BASE).encode(world.collector.collect(), accept)
    assert said == (
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
        if is_openmetrics
        else "text/plain; version=0.0.4; charset=utf-8"
    )
    assert found.endswith(b"# EOF\n") == is_openmetrics
    assert b"_created" not in found


def test_a_series_with_wrong_labels_is_named(world: MetricsWorld) -> None:
    world.set(table.MESSAGES_IN, 1, "only a topic")
    with pytest.raises(ValueError, match=r"rocketmq_messages_in_total: .*only a topic"):
        world.text()


def test_a_hidden_series_goes_and_comes_back(world: MetricsWorld) -> None:
    world.set(table.TOPIC_NUMBER, 5)
    labels = ("t", "Normal", "false")
    world.set(table.MESSAGES_IN, 7, *labels)
    assert table.MESSAGES_IN.name in world.samples()
    world.slots.hide(table.MESSAGES_IN.name, labels)
    samples = world.samples()
    assert table.MESSAGES_IN.name not in samples
    assert samples["rocketmq_topic_number"] == {(): 5}
    world.set(table.MESSAGES_IN, 1, *labels)
    assert list(world.samples()[table.MESSAGES_IN.name].values()) == [1]


def test_the_name_of_the_cap(world: MetricsWorld) -> None:
    assert table.SERIES_CAPPED.name == SERIES_CAPPED


@pytest.mark.fault(46)
def test_a_hundred_thousand_hostile_groups(tmp_path: Path) -> None:
    world = MetricsWorld(tmp_path)
    metric = table.MESSAGES_OUT
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for n in range(100_000):
        labels = ("topic", f"group-{n}" + "x" * 200, "false")
        world.slots.values[world.slots.find(metric.name, labels)] += 1
    world.text()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used < 40 << 20
    began = time.thread_time()  # What others take of the machine is not counted.
    text = world.text(OPENMETRICS)
    assert time.thread_time() - began < 2
    found = samples_of(text, is_openmetrics=True)
    assert len(found[metric.name]) == 10_001
    assert found[metric.name][OVERFLOW, OVERFLOW, OVERFLOW] == 90_000
    assert found["rocketmq_metrics_series_capped_total"] == {(metric.name,): 90_000}
    world.close()


def test_a_scrape_while_somebody_counts(world: MetricsWorld) -> None:
    """Counters of the same text never go back from scrape to scrape."""
    stop = threading.Event()

    def count() -> None:
        n = 0
        while not stop.is_set():
            slot = world.slots.find(table.MESSAGES_IN.name, (f"t{n % 500}", "Normal", "false"))
            world.slots.values[slot] += 1
            n += 1

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    last: dict[tuple[str, ...], float] = {}
    for _ in range(20):
        found = world.samples().get(table.MESSAGES_IN.name, {})
        assert last.keys() <= found.keys()
        assert all(found[labels] >= value for labels, value in last.items())
        last = found
    stop.set()
    counter.join(5)
    assert sum(last.values()) > 100


def test_the_start_of_the_broker_is_told(world: MetricsWorld) -> None:
    """Prometheus' own name: an import of its answers tells one life from the next by it."""
    began_s = world.clock.now_ms() / 1000
    world.clock.advance(5_000)
    assert world.samples()["process_start_time_seconds"] == {(): began_s}
