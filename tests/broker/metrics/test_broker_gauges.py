"""BrokerGauges: tables, connections and consumer lag, sampled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.client_channel_info import ClientChannelInfo
from broker.client.consumer_manager import ConsumerManager, DefaultConsumerIdsChangeListener
from broker.client.producer_manager import ProducerManager
from broker.metrics import metrics_table as table
from broker.metrics.broker_gauges import BrokerGauges, GaugeSources
from broker.metrics.consumer_lag_calculator import ConsumerLagCalculator, LagSources, LiteProgress
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.system_topics import SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.control_page import ProcessIndex
from ipc.metric_slots import OVERFLOW, MetricSlots, MetricSlotsReader, create_metric_slots
from remoting.body.heartbeat import ConsumeType
from remoting.body.topic_config import TopicConfig
from remoting.metrics.metric import Metric
from remoting.metrics.metrics_text import MetricsText
from tests.broker.broker_fakes import CONFIG, FakeClock, FakeConnection, FakeGroupFilters
from tests.broker.client.test_consumer_manager import data_of
from tests.broker.metrics_world import samples_of

NOW_MS = 1_700_000_000_000


class Queues:
    """Queue 0 of T holds 10 messages, one stored each second; the newest one now."""

    def __init__(self) -> None:
        self.bounds = {("T", 0): (0, 10)}

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self.bounds.get((topic, queue_id), (0, 0))

    def unit_at(self, _topic: str, _queue_id: int, queue_offset: int) -> tuple[int, int, int]:
        return queue_offset * 100, 100, 0

    def store_timestamp_at(self, phy_offset: int) -> int:
        return NOW_MS - (9 - phy_offset // 100) * 1000


class World:
    def __init__(self, root: Path, *, max_series: int = 10_000) -> None:
        self.clock = FakeClock(NOW_MS)
        self.queues = Queues()
        self.popped: dict[tuple[str, int], int] = {}
        self.in_flight: dict[tuple[str, int], int] = {}
        self.popping: set[tuple[str, str]] = set()
        self.lite_groups: set[str] = set()
        self.lite_lags: list[LiteProgress] = []
        system = SystemTopics()
        self.topics = TopicConfigManager(root / "topics.json", CONFIG, self.clock, system)
        self.groups = SubscriptionGroupManager(root / "groups.json", CONFIG, self.clock)
        self.topics.load()
        self.groups.load()
        self.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        self.offsets = ConsumerOffsetManager(root / "offsets.json")
        self.producers = ProducerManager(self.clock)
        self.consumers = ConsumerManager(
            self.clock, DefaultConsumerIdsChangeListener(FakeGroupFilters())
        )
        self.slots_fd = create_metric_slots()
        self.slots = MetricSlots(self.slots_fd, ProcessIndex.REMOTING, max_series=max_series)
        sources = GaugeSources(
            permission=lambda: 6,
            topics=self.topics,
            system_topics=system,
            groups=self.groups,
            producers=self.producers,
            consumers=self.consumers,
            lags=ConsumerLagCalculator(
                LagSources(
                    topics=self.topics,
                    consumers=self.consumers,
                    is_lite_group=self.lite_groups.__contains__,
                    offsets=self.offsets,
                    queues=self.queues,
                    pop_offset=lambda topic, group, queue_id: self.popped.get((topic, queue_id)),
                    pop_in_flight=lambda topic, group, queue_id: self.in_flight.get(
                        (topic, queue_id), 0
                    ),
                    popping=lambda: self.popping,
                    enable_retry_topic_v2=False,
                    retrieve_message_from_pop_retry_topic_v1=True,
                )
            ),
            lite_lags=lambda: self.lite_lags,
            waiting=lambda: {"send": 3, "admin": 0},
        )
        self.gauges = BrokerGauges(self.slots, sources, self.clock)

    def client(self, client_id: str, language: int = 0) -> ClientChannelInfo:
        return ClientChannelInfo(
            FakeConnection(), client_id, language=language, version=409, last_update_ms=NOW_MS
        )

    def join(self, group: str, committed: int) -> ClientChannelInfo:
        """Somebody of `group` is online, which has consumed so much of T's 10 messages."""
        member = self.client(f"client of {group}")
        self.consumers.register_consumer(data_of(group, "T"), member, notify=False)
        self.offsets.commit_offset("test", group, "T", 0, committed)
        return member

    def sample(self, metric: Metric) -> dict[tuple[str, ...], float]:
        self.gauges.sample()
        found = self.slots.series(metric.name)
        return {labels: self.slots.values[slot] for labels, slot in found.items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_tables_and_pools(world: World) -> None:
    assert world.sample(table.BROKER_PERMISSION) == {(): 6}
    assert world.sample(table.TOPIC_NUMBER) == {(): len(world.topics.topic_names())}
    assert world.sample(table.CONSUMER_GROUP_NUMBER) == {(): len(world.groups.group_names())}
    assert world.sample(table.PROCESSOR_WATERMARK) == {("send",): 3, ("admin",): 0}


def test_connections_of_clients_come_and_go(world: World) -> None:
    one = world.client("p1")
    world.producers.register_producer("PG", one)
    world.producers.register_producer("PG", world.client("p2", language=9))
    world.consumers.register_consumer(data_of("G", "T"), world.client("c1"), notify=False)
    assert world.sample(table.PRODUCER_CONNECTIONS) == {
        ("java", "v4_9_8", "remoting"): 1,
        ("go", "v4_9_8", "remoting"): 1,
    }
    assert world.sample(table.CONSUMER_CONNECTIONS) == {
        ("G", "java", "v4_9_8", "push", "remoting", "false"): 1
    }
    # A client may leave its type out, or name one that nobody knows.
    for kind, mode in (
        (None, "unknown"),
        (ConsumeType.CONSUME_POP, "pop"),
        (ConsumeType.CONSUME_ACTIVELY, "pull"),
    ):
        data = replace(data_of("G", "T"), consume_type=kind)
        world.consumers.register_consumer(data, world.client("c1"), notify=False)
        assert {labels[3] for labels in world.sample(table.CONSUMER_CONNECTIONS)} == {mode}
    world.producers.unregister_producer("PG", one.connection)
    assert world.sample(table.PRODUCER_CONNECTIONS) == {("go", "v4_9_8", "remoting"): 1}


@pytest.mark.parametrize(
    ("committed", "behind", "age_ms"),
    [(None, 0, 0), (10, 0, 0), (0, 10, 9000), (7, 3, 2000), (-5, 10, 9000), (99, 0, 0)],
)
def test_consumer_lag(world: World, committed: int | None, behind: int, age_ms: int) -> None:
    """A group that has committed nothing has no lag, as in the original."""
    world.consumers.register_consumer(
        data_of("G", "T", "%RETRY%G"), world.client("c"), notify=False
    )
    if committed is not None:
        world.offsets.commit_offset("test", "G", "T", 0, committed)
    labels = ("G", "T", "false", "false")
    assert world.sample(table.CONSUMER_LAG_MESSAGES) == {labels: behind}
    assert world.sample(table.CONSUMER_LAG_LATENCY) == {labels: age_ms}


@pytest.mark.parametrize(
    ("committed", "pulled", "in_flight", "ready", "age_ms"),
    [
        (None, None, 0, 0, 0),
        (3, None, 0, 0, 0),
        (None, 4, 0, 6, 5000),
        (3, 7, 4, 3, 2000),
        # Another broker gave it what lies between.
        (8, 6, 0, 2, 1000),
        (10, 2, 0, 0, 0),
        (10, 10, 0, 0, 0),
    ],
)
def test_what_a_group_has_got_and_not(
    world: World,
    committed: int | None,
    pulled: int | None,
    in_flight: int,
    ready: int,
    age_ms: int,
) -> None:
    """In flight: between what is committed and the next pull; ready: behind that."""
    world.consumers.register_consumer(data_of("G", "T"), world.client("c"), notify=False)
    if committed is not None:
        world.offsets.commit_offset("test", "G", "T", 0, committed)
    if pulled is not None:
        world.offsets.commit_pull_offset("G", "T", 0, pulled)
    labels = ("G", "T", "false", "false")
    assert world.sample(table.CONSUMER_INFLIGHT_MESSAGES) == {labels: in_flight}
    assert world.sample(table.CONSUMER_READY_MESSAGES) == {labels: ready}
    assert world.sample(table.CONSUMER_QUEUEING_LATENCY) == {labels: age_ms}


def test_a_group_that_pops(world: World) -> None:
    """In flight is what it has to acknowledge; what comes again to it has a row of its own."""
    data = replace(data_of("G", "T"), consume_type=ConsumeType.CONSUME_POP)
    world.consumers.register_consumer(data, world.client("c"), notify=False)
    again = "%RETRY%G_T"
    world.topics.update(TopicConfig(topic_name=again, read_queue_nums=1, write_queue_nums=1))
    world.queues.bounds[again, 0] = (0, 2)
    world.offsets.commit_offset("test", "G", "T", 0, 2)
    world.offsets.commit_offset("test", "G", again, 0, 0)
    world.popped["T", 0], world.in_flight["T", 0] = 6, 3
    own, retried = ("G", "T", "false", "false"), ("G", "T", "true", "false")
    assert world.sample(table.CONSUMER_LAG_MESSAGES) == {own: 4 + 3, retried: 2}
    assert world.sample(table.CONSUMER_INFLIGHT_MESSAGES) == {own: 3, retried: 0}
    assert world.sample(table.CONSUMER_READY_MESSAGES) == {own: 4, retried: 2}
    assert world.sample(table.CONSUMER_LAG_LATENCY) == {own: 6000, retried: 9000}
    assert world.sample(table.CONSUMER_QUEUEING_LATENCY) == {own: 3000, retried: 9000}


@pytest.mark.parametrize("beats", [True, False])
def test_who_pops_is_seen_by_the_pops(world: World, beats: bool) -> None:
    """Java's push consumers that pop say PASSIVELY; behind a proxy a group sends no heartbeat."""
    if beats:
        world.consumers.register_consumer(data_of("G", "T"), world.client("c"), notify=False)
    world.offsets.commit_offset("test", "G", "T", 0, 2)
    world.popped["T", 0], world.in_flight["T", 0] = 6, 3
    world.popping |= {("G", "T"), ("G", "%RETRY%G_T"), ("G", "deleted")}
    own, retried = ("G", "T", "false", "false"), ("G", "T", "true", "false")
    assert world.sample(table.CONSUMER_LAG_MESSAGES) == {own: 4 + 3, retried: 0}
    assert world.sample(table.CONSUMER_INFLIGHT_MESSAGES) == {own: 3, retried: 0}
    assert world.sample(table.CONSUMER_READY_MESSAGES) == {own: 4, retried: 0}
    # Somebody skips what lies between: the next pop begins there.
    world.offsets.commit_offset("test", "G", "T", 0, 9)
    assert world.sample(table.CONSUMER_READY_MESSAGES) == {own: 1, retried: 0}


def test_lite_groups_show_what_they_are_told_to(world: World) -> None:
    world.lite_lags = [
        LiteProgress("LG", "P", 7, NOW_MS - 250),
        LiteProgress("Even", "P", 0, 0),
        LiteProgress("Counts", "P", 3, None),
        LiteProgress("Times", "P", None, NOW_MS - 5),
    ]
    counts = {("LG", "P", "false", "false"): 7, ("Even", "P", "false", "false"): 0}
    counts["Counts", "P", "false", "false"] = 3
    assert world.sample(table.CONSUMER_LAG_MESSAGES) == counts
    assert world.sample(table.CONSUMER_READY_MESSAGES) == counts
    assert world.sample(table.CONSUMER_LAG_LATENCY) == {
        ("LG", "P", "false", "false"): 250,
        ("Even", "P", "false", "false"): 0,
        ("Times", "P", "false", "false"): 5,
    }
    assert world.sample(table.CONSUMER_INFLIGHT_MESSAGES) == {}
    assert world.sample(table.CONSUMER_QUEUEING_LATENCY) == {}


def test_a_lite_group_that_is_online_reads_no_queue_of_its_topic(world: World) -> None:
    world.join("LG", committed=3)
    world.lite_groups.add("LG")
    for metric in (table.CONSUMER_LAG_MESSAGES, table.CONSUMER_INFLIGHT_MESSAGES):
        assert world.sample(metric) == {}


def test_lag_of_a_group_that_left_is_not_shown(world: World) -> None:
    client = world.client("c")
    world.consumers.register_consumer(data_of("G", "T"), client, notify=False)
    assert len(world.sample(table.CONSUMER_LAG_MESSAGES)) == 1
    world.consumers.unregister_consumer("G", client.connection, notify=False)
    assert world.sample(table.CONSUMER_LAG_MESSAGES) == {}


def test_a_message_that_is_gone_has_no_age(world: World) -> None:
    world.consumers.register_consumer(data_of("G", "T"), world.client("c"), notify=False)
    world.offsets.commit_offset("test", "G", "T", 0, 0)
    world.queues.store_timestamp_at = lambda phy_offset: -1  # type: ignore[method-assign]
    assert world.sample(table.CONSUMER_LAG_LATENCY) == {("G", "T", "false", "false"): 0}
    world.queues.bounds["T", 0] = (6, 10)
    assert world.sample(table.CONSUMER_LAG_MESSAGES) == {("G", "T", "false", "false"): 4}


def test_overflow_is_the_sum_of_what_found_no_room_now(tmp_path: Path) -> None:
    world = World(tmp_path, max_series=2)
    lags = {"G0": 10, "G1": 9, "G2": 8, "G3": 7, "G4": 6}
    members = {group: world.join(group, 10 - lag) for group, lag in lags.items()}
    for language in range(5):
        world.producers.register_producer("PG", world.client(f"p{language}", language))
    found = world.sample(table.CONSUMER_LAG_MESSAGES)
    assert sorted(found.values()) == sorted([10, 9, 8 + 7 + 6])
    ages = world.sample(table.CONSUMER_LAG_LATENCY)
    own = {labels[0]: age for labels, age in ages.items()}
    assert own[OVERFLOW] == max((lags[g] - 1) * 1000 for g in lags.keys() - own.keys())
    for metric in (table.CONSUMER_CONNECTIONS, table.PRODUCER_CONNECTIONS):
        assert sorted(world.sample(metric).values()) == [1, 1, 3]
    # One catches up, and then all but two have gone: whose place is free gets the next one.
    world.offsets.commit_offset("test", "G4", "T", 0, 10)
    assert sum(world.sample(table.CONSUMER_LAG_MESSAGES).values()) == 10 + 9 + 8 + 7
    for group in ("G0", "G2", "G4"):
        world.consumers.unregister_consumer(group, members[group].connection, notify=False)
    world.sample(table.CONSUMER_LAG_MESSAGES)
    labels = {group: (group, "T", "false", "false") for group in ("G1", "G3")}
    assert world.sample(table.CONSUMER_LAG_MESSAGES) == {labels["G1"]: 9, labels["G3"]: 7}
    assert world.sample(table.CONSUMER_LAG_LATENCY) == {labels["G1"]: 8000, labels["G3"]: 6000}
    assert len(world.sample(table.CONSUMER_CONNECTIONS)) == 2


def test_twenty_thousand_hostile_groups(tmp_path: Path) -> None:
    world = World(tmp_path, max_series=1_000)
    for n in range(20_000):
        world.consumers.register_consumer(
            data_of(f"group-{n}" + "x" * 200), world.client(f"c{n}"), notify=False
        )
    metric = table.CONSUMER_CONNECTIONS
    world.gauges.sample()
    found = world.sample(metric)
    assert len(found) == 1_001
    assert found[(OVERFLOW,) * len(metric.labels)] == 19_000
    reader = MetricSlotsReader(world.slots_fd)
    base = {"cluster": "c", "node_type": "broker", "node_id": "b"}
    text = MetricsText(base).encode([(metric, reader.read(metric.name))], "")[0]
    shown = samples_of(text.decode(), base=base)
    assert sum(shown[metric.name].values()) == 20_000
    reader.close()
