"""The send and the pull processor over a real log, queue table and server, without threads.

Frames go in as bytes through RemotingServer.on_data, answers come out of a socket stand-in; the
`store` process is played by `allocate`, `dispatch` and the page's counters.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from broker.append.achieved_durability import AchievedDurability
from broker.append.append_queue import AppendQueue, AppendQueueParts
from broker.append.durability_waiters import DurabilityWaiters
from broker.append.offset_moved_events import OffsetMovedEvents
from broker.append.room_waits import RoomWaits
from broker.append.writable_log import WritableLog
from broker.filter.consumer_filter_manager import ConsumerFilterManager
from broker.latency.broker_fast_failure import BrokerFastFailure
from broker.metrics.hot_path_stats import PullCounts, SendCounts
from broker.metrics.transaction_metrics import TransactionMetrics
from broker.pull.batch_pull import BatchPull
from broker.pull.pull_message_processor import PullMessageProcessor
from broker.pull.pull_parts import PullParts
from broker.pull.pull_settings import PullSettings
from broker.pull.static_topic_entry import StaticPullEntry
from broker.schedule.clock_steps import ClockSteps
from broker.schedule.schedule_message_service import ScheduleMessageService, ScheduleParts
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.send.send_message_processor import (
    SendMessageProcessor,
)
from broker.send.send_settings import SendSettings
from broker.settings.broker_config import BrokerConfig
from broker.store_access.batch_queues import BatchQueues
from broker.store_access.checked_units import CheckedUnits
from broker.store_access.durability_follower import DurabilityFollower
from broker.store_access.store_follower import StoreFollower
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.timer.timer_hook import TimerHook, TimerSettings
from broker.topic.lost_topics import LostTopics
from broker.topic.new_topics import NewTopics
from broker.topic.system_topics import SCHEDULE_TOPIC, SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from broker.wiring.hot_routes import HotRoutes
from ipc.bell import Bell
from ipc.control_page import ProcessIndex
from ipc.queue_table import QueueTableReader, QueueTableWriter, create_queue_table
from remoting.body.heartbeat import SubscriptionData
from remoting.body.topic_config import TopicConfig
from remoting.body.topic_queue_mapping import TopicQueueMappingDetail
from remoting.connection import Connection
from remoting.metrics.metric import Metric
from remoting.receive_buffer import ReceiveBuffer
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.remoting_server import FastRoutes, RemotingServer
from remoting.request_code import RequestCode as Code
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_processor import Route
from remoting.selector_loop import SelectorLoop
from store.batch_consume_queue_table import BatchConsumeQueueTable
from store.batch_queue_reader import BatchQueueReader
from store.batch_topics import BatchTopics
from store.commit_log import CommitLog
from store.commit_log_reader import CommitLogReader
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_reader import ConsumeQueueReader
from store.consume_queue_table import ConsumeQueueTable
from store.control_slots import ALLOCATED_END, DISPATCHED_OFFSET, FLUSHED_OFFSET, MAX_PHY_OFFSET
from store.generation_aware_reader import GenerationAwareReader
from store.log_dispatch import dispatch_range
from store.mapped_file import create_allocated, file_name
from store.message import Message
from store.message_codec import decode_record, encode_host, is_blank_at
from store.message_store_config import MessageStoreConfig
from store.queue_room import QueueRoom
from store.record import Record
from store.record_arrays import RecordArrays
from store.record_properties import PropertyExtractor
from tests.broker.broker_fakes import CONFIG, FakeClock
from tests.support.frame_decoder import FrameDecoder
from tests.support.shared_memory import close_page, close_table, fresh_page

SHORT_NAMES = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
}
ON_LOOP = (10, 310, 320, 11, 361)
"""The codes whose answers are counted without a lock: no pool serves them. For 37,
which has a pool and a fast route, HotPathStats takes the lock."""
_ports = itertools.count(40_001)
_living: list[HotPathWorld] = []
TIMERS = TimerSettings(
    enabled=False, precision_ms=1000, max_delay_ms=259_200_000, congest_num=2**31 - 1
)
"""Without a timer wheel."""


def close_worlds(*, but: list[HotPathWorld]) -> None:
    """Close every world that lives and is not in `but`."""
    for world in [world for world in _living if world not in but]:
        world.close()


def living_worlds() -> list[HotPathWorld]:
    """Worlds that were made and not closed."""
    return list(_living)


def record(body: bytes, properties: bytes = b"") -> Record:
    """What `put` takes: a message for queue 0."""
    return Record(
        queue_id=0,
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=properties,
    )


class FakeSocket:
    """Takes what is written; nothing to read."""

    def __init__(self, host: str, port: int) -> None:
        self.peer = (host, port)
        self.written = bytearray()
        self.closed = False

    def getpeername(self) -> tuple[str, int]:
        return self.peer

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 10911)

    def fileno(self) -> int:
        return -1

    def send(self, data: bytes) -> int:
        self.written += data
        return len(data)

    def sendmsg(self, pieces: list[bytes]) -> int:
        return sum(self.send(piece) for piece in pieces)

    def close(self) -> None:
        self.closed = True


class Client:
    """One connection and what it was answered."""

    def __init__(self, world: HotPathWorld, host: str = "127.0.0.1", port: int = 0) -> None:
        self.sock = FakeSocket(host, port or next(_ports))
        self.world = world
        self.connection = Connection(
            world.loop,
            self.sock,  # type: ignore[arg-type]
            world.server,
            receive=ReceiveBuffer(1024),
            flush_list=world.server._flush_list,
            high_water=1 << 30,
        )
        self._decoder = FrameDecoder()

    def send(self, *commands: RemotingCommand | bytes) -> None:
        """Frames of one read; the turn goes on until `world.turn`."""
        data = b"".join(c if isinstance(c, bytes) else encode_command(c) for c in commands)
        used = self.world.server.on_data(self.connection, memoryview(data), len(data))
        assert used == len(data)

    def answers(self) -> list[RemotingCommand]:
        """What came since the last call."""
        self._decoder.feed(bytes(self.sock.written))
        self.sock.written.clear()
        found = []
        while (command := self._decoder.next_command()) is not None:
            found.append(command)
        assert self._decoder.buffered == 0
        return found

    def call(self, command: RemotingCommand | bytes) -> RemotingCommand:
        """One request in a turn of its own, and its answer."""
        self.send(command)
        self.world.turn()
        (answer,) = self.answers()
        if isinstance(command, RemotingCommand):
            assert answer.opaque == command.opaque
        assert answer.is_response
        return answer


class PlainSlots:
    """MetricSlots without shared memory."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self._series: dict[str, dict[tuple[str, ...], int]] = {}

    def find(self, metric: str, labels: tuple[str, ...] = (), size: int = 1) -> int:
        series = self._series.setdefault(metric, {})
        if labels not in series:
            series[labels] = len(self.values)
            self.values += [0.0] * size
        return series[labels]

    def hide(self, metric: str, labels: tuple[str, ...], *, is_gauge: bool = False) -> None:
        self._series.get(metric, {}).pop(labels, None)

    def series(self, metric: str) -> dict[tuple[str, ...], int]:
        return dict(self._series.get(metric, {}))

    def shown(self, metric: Metric) -> dict[tuple[str, ...], float]:
        """Label values to the value; of a histogram how many it has counted."""
        counted = max(metric.size - 1, 1)
        return {
            labels: sum(self.values[first : first + counted])
            for labels, first in self.series(metric.name).items()
        }


class Counted:
    """SendStats and PullStats, and those of the processors that the loop answers for."""

    def __init__(self, clock: FakeClock) -> None:
        self.now_ns = clock.monotonic_ns
        self.puts: dict[str, tuple[int, int]] = {}
        self.failed = 0
        self.gets: list[tuple[str, str, int, int]] = []
        self.types: set[str] = set()
        self.answers: Counter[tuple[int, int]] = Counter()
        self.oneways: Counter[tuple[int, int]] = Counter()
        self.timed: list[tuple[int, int, int]] = []
        """(request code, code, ms from the request to the answer) of those that came before"""
        self.late_answers: list[tuple[int, int, int]] = []
        self.waited_answers: Counter[tuple[int | None, int]] = Counter()
        self.slots = PlainSlots()
        self.transactions = TransactionMetrics(self.slots)  # type: ignore[arg-type]
        self.sends = SendCounts()
        self.pulls = PullCounts()
        self.fast_pulls = 0
        """Of those that were answered, how many KnownPulls answered."""
        self.queue_puts: list[tuple[str, int, int]] = []
        self.scheduled_gets: list[tuple[int, int]] = []
        self.send_backs: list[tuple[str, str]] = []

    def publish(self) -> None:
        """What HotPathStats does when a turn ends and before a sleep."""
        sends = self.sends
        for level, (count, size) in sends.delayed.items():
            self.add_put(SCHEDULE_TOPIC, count, size, "delay")
            self.queue_puts.append((SCHEDULE_TOPIC, int(level) - 1, size))
            sends.messages -= count
            sends.size -= size
        sends.delayed.clear()
        for counts, message_type in (
            (sends.normal, "normal"),
            (sends.fifo, "fifo"),
            (sends.transactions, "transaction"),
        ):
            for topic, (count, size) in counts.items():
                self.add_put(topic, count, size, message_type)
                sends.messages -= count
                sends.size -= size
            counts.clear()
        assert (sends.messages, sends.size) == (0, 0)
        if sends.answered:
            self.add_answers(310, 0, sends.answered)
            sends.answered = 0
        pulls = self.pulls
        for (group, topic), (times, count, size) in pulls.found.items():
            self.fast_pulls += times
            self.add_get(group, topic, count, size)
        pulls.found.clear()
        if pulls.answered:
            self.add_answers(11, 0, pulls.answered)
            pulls.answered = 0

    def add_answers(self, request_code: int, code: int, count: int = 1) -> None:
        assert request_code in (*ON_LOOP, 37), "counted without a lock"
        self.answers[request_code, int(code)] += count

    def add_oneway(self, request_code: int, code: int) -> None:
        assert request_code in (*ON_LOOP, 37), "counted without a lock"
        self.oneways[request_code, int(code)] += 1

    def add_timed_answer(
        self, request_code: int, code: int, came_ns: int, *, oneway: bool = False
    ) -> None:
        counter = self.oneways if oneway else self.answers
        counter[request_code, int(code)] += 1
        elapsed_ms = (self.now_ns() - came_ns) // 1_000_000
        self.timed.append((request_code, int(code), elapsed_ms))

    def add_late_answer(self, request_code: int, code: int, held_ms: int) -> None:
        self.late_answers.append((request_code, int(code), held_ms))

    def waited(
        self,
        request_code: int | None,
        code: int,
        waited_ns: int,
        count: int,
        *,
        acked_ns: int | None,
    ) -> None:
        """DurabilityStats."""
        assert request_code is None or request_code in ON_LOOP, "counted without a lock"
        assert waited_ns >= (acked_ns or 0) >= 0
        self.waited_answers[request_code, int(code)] += count

    def add_put(self, topic: str, count: int, size: int, message_type: str = "normal") -> None:
        self.types.add(message_type)
        old = self.puts.get(topic, (0, 0))
        self.puts[topic] = (old[0] + count, old[1] + size)

    def add_queue_put(self, topic: str, queue_id: int, size: int) -> None:
        self.queue_puts.append((topic, queue_id, size))

    def add_scheduled_get(self, queue_id: int, size: int) -> None:
        self.scheduled_gets.append((queue_id, size))

    def add_send_back(self, group: str, topic: str) -> None:
        self.send_backs.append((group, topic))

    def add_timer_delivered(self, topic: str) -> None:
        """See DequeueStats."""

    def add_put_failed(self) -> None:
        self.failed += 1

    def add_get(self, group: str, topic: str, count: int, size: int) -> None:
        self.gets.append((group, topic, count, size))


class Consumers:
    """PullConsumers."""

    def __init__(self) -> None:
        self.subscriptions: dict[tuple[str, str], SubscriptionData] = {}
        self.groups: set[str] = set()
        self.broadcasting: set[str] = set()
        self._revisions: dict[tuple[str, bool, str], int] = {}

    def revision(self, group: str) -> int:
        """As ConsumerManager has it; what was there before counts as another, too."""
        if group not in self.groups:
            return 0
        mine = [pair for pair in self.subscriptions.items() if pair[0][0] == group]
        state = (group, group in self.broadcasting, repr(mine))
        return self._revisions.setdefault(state, len(self._revisions) + 1)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        return self.subscriptions.get((group, topic))

    def has_group(self, group: str) -> bool:
        return group in self.groups

    def is_broadcasting(self, group: str) -> bool:
        return group in self.broadcasting


class Commits:
    """CommitOffset."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int, int]] = []
        self.pulled: dict[tuple[str, str, int], int] = {}

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.pulled[group, topic, queue_id] = offset

    def commit_offset(
        self, remote: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        self.seen.append((group, topic, queue_id, offset))


class HotPathWorld:
    """See the module."""

    def __init__(
        self,
        root: Path,
        *,
        fast: bool = True,
        file_size: int = 1 << 16,
        files: int = 4,
        units_per_file: int = 1000,
        config: BrokerConfig = CONFIG,
        send: Mapping[str, Any] | None = None,
        pull: Mapping[str, Any] | None = None,
        waits_for_flush: bool = False,
        waits_for_replicas: bool = False,
        store_host: str = "127.0.0.2",
        light_queues: int | None = None,
        timers: TimerSettings | None = None,
    ) -> None:
        _living.append(self)
        self.clock = FakeClock()
        self.page = fresh_page()
        self.counters = self.page.counters
        self.table_fd = create_queue_table()
        self.table = QueueTableReader(self.table_fd)
        self.loop = SelectorLoop("test")
        self.rings = 0
        self.not_writable = "the disk is full"
        self.stats, self.consumers, self.commits = Counted(self.clock), Consumers(), Commits()
        self.damaged: list[tuple[str, int, int]] = []
        """Units that a reader could not use."""
        self._build_store(root, file_size, units_per_file)
        for number in range(files):
            self.allocate(number)
        self.log = CommitLog(
            self.directory,
            file_size,
            self.page,
            self.clock,
            self._ring,
            room=QueueRoom(self.table, on_make=self._make_readable),
            most_light_queues=light_queues,
        )
        self.log.open(encode_host(store_host, 20911))
        self._build_managers(root, config)
        self._build_processors(send or {}, pull or {}, waits_for_flush, waits_for_replicas)
        self._build_services(root)
        if timers is not None:
            self.timers.use(timers)
        routes: dict[int, Route] = {
            code: Route(self.send_processor)
            for code in (Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE)
        }
        for code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE):
            routes[code] = Route(
                StaticPullEntry(
                    self.mappings,
                    self.pull_processor,
                    lambda _connection, request: self.handed_over.append(request),
                )
            )
        self.hot = hot = HotRoutes(send=self.send_processor, pull=self.pull_processor)
        self.server: RemotingServer = RemotingServer(
            self.loop,
            RequestDispatcher(routes),
            fast_routes=FastRoutes(hot.guarded(), hot.binary(), hot.runs())
            if fast
            else FastRoutes(),
        )
        self.turn()

    def _build_store(self, root: Path, file_size: int, units_per_file: int) -> None:
        store = MessageStoreConfig(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=file_size,
            mapped_file_size_consume_queue=units_per_file * 20,
            mapper_file_size_batch_consume_queue=units_per_file * 46,
        )
        self.directory, self.file_size = store.commit_log_path, file_size
        self.directory.mkdir(parents=True)
        store.consume_queue_path.mkdir()
        self.queue_path = store.consume_queue_path
        self.source = CommitLogReader(self.directory, file_size, self.page)
        self.loop_reader = CommitLogReader(self.directory, file_size, self.page)
        self.unit_reader = ConsumeQueueReader(store)
        self.units = GenerationAwareReader(self.unit_reader, self.table)
        self.table_writer = QueueTableWriter(self.table_fd)
        self.queues = ConsumeQueueTable(
            ConsumeQueueFiles(
                store.consume_queue_path, store.mapped_file_size_consume_queue, writable=True
            ),
            self.table_writer,
        )
        self.batch_reader = BatchQueueReader(store, self.table.generation_of)
        self.batch_queues = BatchQueues(lambda topic: self.topics.find(topic), self.batch_reader)
        self.batch_table = BatchConsumeQueueTable(
            ConsumeQueueFiles(
                store.batch_consume_queue_path,
                store.mapper_file_size_batch_consume_queue,
                writable=True,
            ),
            self.table_writer,
            self.queues,
            BatchTopics(store.config_path / "topics.json"),
            self._rebuild,
            self.clock.monotonic_ms,
        )
        self.delay_level_ms = store.delay_level_ms
        self._extractor = PropertyExtractor(store.delay_level_ms)

    def _build_managers(self, root: Path, config: BrokerConfig) -> None:
        self.topics = TopicConfigManager(
            root / "config" / "topics.json", config, self.clock, SystemTopics()
        )
        self.lost_topics = LostTopics(self.topics, self.log)
        self.groups = SubscriptionGroupManager(
            root / "config" / "subscriptionGroup.json", config, self.clock
        )
        self.filters = ConsumerFilterManager(
            root / "config" / "consumerFilter.json", config, self.clock
        )
        self.topics.load()
        self.groups.load()
        self.filters.load()

    def _build_processors(
        self, send: Mapping[str, Any], pull: Mapping[str, Any], flush: bool, replicas: bool
    ) -> None:
        self.waiters = DurabilityWaiters(
            waits_for_flush=flush,
            waits_for_replicas=replicas,
            sync_flush_timeout_ms=5000,
            slave_timeout_ms=3000,
            stats=self.stats,
        )
        settings = SendSettings(
            broker_name="broker-g",
            cluster_name="GoldenCluster",
            region_id="DefaultRegion",
            trace_on=True,
            max_message_size=4 << 20,
            start_accept_send_request_timestamp_ms=0,
            is_slave=False,
            max_delay_level=18,
        )
        self.append_queue = AppendQueue(
            AppendQueueParts(
                commit_log=self.log,
                clock=self.clock,
                fast_failure=BrokerFastFailure(
                    BrokerConfig(), MessageStoreConfig(), self.page, self.clock
                ),
                why_not_writable=lambda: self.not_writable,
                capacity=100,
            )
        )
        self.rounds: list[Callable[[], None]] = []
        """Registrations of new topics; they run when a test that listens to them says so."""
        self.registered: list[set[str]] = []
        self.new_topics = NewTopics(
            lambda topics: self.registered.append(set(topics)),
            lambda function: function(),
            capacity=4,
            start=self.rounds.append,
        )
        self.mappings: dict[str, TopicQueueMappingDetail] = {}
        """Of static topics."""
        self.handed_over: list[RemotingCommand] = []
        """What would ask another broker."""
        self.in_slot: dict[int, int] = {}
        """Timer messages by slot time."""
        self.timers = TimerHook(
            TIMERS, lambda slot_ms: self.in_slot.get(slot_ms, 0), self.clock, self.topics
        )
        self.send_processor = SendMessageProcessor(
            msgspec.structs.replace(settings, **send),
            self.writable_log,
            self.topics,
            self.groups.find_or_create,
            self.stats,
            self.new_topics,
            self.timers,
            self.mappings,
        )
        pull_settings = PullSettings(
            readable=True,
            long_polling_enable=True,
            short_polling_time_ms=1000,
            slave_read_enable=False,
            is_slave=False,
            offset_check_in_slave=False,
            bytes_in_memory=262_144,
            count_in_memory=32,
            bytes_in_disk=65_536,
            count_in_disk=8,
            memory_limit=1 << 40,
            enable_property_filter=False,
            filter_support_retry=False,
        )
        self.checked_units = CheckedUnits(
            self.units.read_units,
            self.loop_reader,
            self.table,
            lambda *place: self.damaged.append(place),
            monotonic_s=lambda: self.clock.monotonic_ms() / 1_000,
        )
        moved = OffsetMovedEvents(
            self.log,
            self.append_queue,
            "broker-a",
            is_slave=lambda: bool(pull.get("is_slave", False)),
        )
        parts = PullParts(
            page=self.page,
            table=self.table,
            units=self.checked_units,
            log_reader=self.loop_reader,
            find_topic=self.topics.find,
            find_group=self.groups.find_or_create,
            is_readable=self.groups.is_readable,
            consumers=self.consumers,
            filters=self.filters,
            commit_offset=self.commits.commit_offset,
            note_pull=self.commits.note_pull,
            note_moved=moved.add,
            stats=self.stats,
            monotonic_ms=self.clock.monotonic_ms,
            static_topics=self.mappings,
            batch=BatchPull(self.batch_queues, self.loop_reader),
        )
        self.pull_processor = PullMessageProcessor(
            msgspec.structs.replace(pull_settings, **pull), parts
        )
        self.hold = self.pull_processor.hold_service
        self.bell_fd = Bell.create()
        self.bell = Bell(self.page, ProcessIndex.REMOTING, self.bell_fd)
        self.follower = StoreFollower(
            self.page,
            self.bell,
            self.table,
            self.hold,
            DurabilityFollower(self.page, self.waiters, self.clock, replicas_needed=1),
            self.clock,
            begin_turn=self._begin_turn,
            publish_counts=self.stats.publish,
        )

    def _make_readable(self, topic: str, queue_id: int) -> None:
        self.topics.make_readable(topic, queue_id)

    def _begin_turn(self) -> None:
        self.log.now_ms = self.clock_steps.now_ms()

    def _build_services(self, root: Path) -> None:
        self.schedule_offsets = ScheduleOffsetManager(root / "config" / "delayOffset.json")
        self.schedule_offsets.load()
        self.clock_steps = ClockSteps(self.clock)
        self.schedule = ScheduleMessageService(
            ScheduleParts(
                log=self.writable_log,
                reader=self.loop_reader,
                table=self.table,
                units=self.checked_units,
                offsets=self.schedule_offsets,
                stats=self.stats,
                clock=self.clock,
                clock_steps=self.clock_steps,
                room_waits=RoomWaits(self.counters, self.clock),
                put_back_topic=self.lost_topics.put_back,
                flushed_offset=lambda: self.counters[FLUSHED_OFFSET],
            ),
            self.delay_level_ms,
        )

    @property
    def writable_log(self) -> WritableLog:
        durability = AchievedDurability(self.page.counters, 2)
        return WritableLog(self.log, self.append_queue, self.waiters, durability)

    def close(self) -> None:
        """Give every descriptor and mapping back; idempotent."""
        if self not in _living:
            return
        _living.remove(self)
        self.log.close()
        self.queues.close()
        self.batch_table.close()
        self.batch_reader.close()
        self.unit_reader.close()
        self.source.close()
        self.loop_reader.close()
        self.loop.close()
        for fd in (self.table_fd, self.bell_fd):
            os.close(fd)
        close_table(self.table)
        close_table(self.table_writer)
        close_page(self.page)

    # -- the other processes --------------------------------------------------------------------

    def _ring(self) -> None:
        self.rings += 1

    def allocate(self, number: int) -> None:
        """File `number` of the log exists."""
        create_allocated(self.directory / file_name(number * self.file_size), self.file_size)
        self.counters[ALLOCATED_END] = (number + 1) * self.file_size

    def dispatch(self) -> None:
        """Build the consumequeue up to the log's end."""
        start, end = self.counters[DISPATCHED_OFFSET], self.counters[MAX_PHY_OFFSET]
        dispatchers = (self.batch_table.dispatch, self.queues.dispatch)
        dispatch_range(self.source, start, end, self._extractor, dispatchers)
        self.counters[DISPATCHED_OFFSET] = end

    def _rebuild(self, start: int, end: int, dispatcher: Callable[[RecordArrays], None]) -> None:
        dispatch_range(self.source, start, end, self._extractor, (dispatcher,))

    # -- the loop -------------------------------------------------------------------------------

    def turn(self) -> None:
        """The end of the loop's turn and the start of the next."""
        if self.waiters.active:
            self.follower.before_commit()
        self.send_processor.turn_end()
        self.server.flush()
        self.follower.before_sleep()
        self.follower.after_sleep()
        self.server.flush()

    def client(self, host: str = "127.0.0.1", port: int = 0) -> Client:
        return Client(self, host, port)

    def topic(self, name: str = "T", queues: int = 4, **fields: Any) -> None:
        """Create or change a topic."""
        config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        self.topics.update(replace(config, **fields))
        self.send_processor.on_topics_changed()

    # -- what is stored -------------------------------------------------------------------------

    def raw_records(self) -> list[bytes]:
        """The records between 0 and max_phy_offset, blanks left out."""
        found = []
        at, end = 0, self.counters[MAX_PHY_OFFSET]
        while at < end:
            view = self.source.view_of_file(at)
            assert view is not None
            position = at % self.file_size
            if is_blank_at(view, position):
                at += self.file_size - position
                continue
            _, size = decode_record(view, position)
            found.append(bytes(view[position : position + size]))
            at += size
        return found

    def log_bytes(self, start: int) -> bytes:
        """The log from `start` to max_phy_offset, blanks included."""
        found, end = b"", self.counters[MAX_PHY_OFFSET]
        while start < end:
            view = self.source.view_of_file(start)
            assert view is not None
            position = start % self.file_size
            part = bytes(view[position : position + end - start])
            found += part
            start += len(part)
        return found

    def records(self) -> list[Message]:
        return [decode_record(raw, 0)[0] for raw in self.raw_records()]


def send_fields(**changes: Any) -> dict[str, str]:
    """extFields of 310 by the long names of SHORT_NAMES; None leaves one out."""
    fields = {
        "producer_group": "P",
        "topic": "T",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_123,
        "flag": 0,
        "properties": "KEYS\x01k",
        "reconsume_times": 0,
        "unit_mode": "false",
        "batch": "false",
    }
    fields.update(changes)
    return {SHORT_NAMES[k]: str(v) for k, v in fields.items() if v is not None}


def send_request(
    body: bytes = b"body",
    *,
    code: int = Code.SEND_MESSAGE_V2,
    serialize: SerializeType = SerializeType.JSON,
    oneway: bool = False,
    **fields: Any,
) -> RemotingCommand:
    request = RemotingCommand.request(code, send_fields(**fields), body, oneway=oneway)
    request.serialize_type = serialize
    return request


def pull_request(
    *, serialize: SerializeType = SerializeType.JSON, **changes: Any
) -> RemotingCommand:
    """Code 11; by default flag 4 with `*`, no suspension."""
    fields: dict[str, Any] = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15_000,
        "subscription": "*",
        "subVersion": 1,
        "expressionType": "TAG",
    }
    fields.update(changes)
    request = RemotingCommand.request(
        Code.PULL_MESSAGE, {k: str(v) for k, v in fields.items() if v is not None}
    )
    request.serialize_type = serialize
    return request


def properties_of(text: bytes) -> dict[str, str]:
    """A property text as the clients read it."""
    pairs = (piece.split("\x01", 1) for piece in text.decode().split("\x02") if len(piece) >= 3)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[1]}


def general_requests(world: HotPathWorld) -> list[int]:
    """The codes of the requests that will have taken the general path."""
    codes: list[int] = []

    class Noting:
        def process_request(
            self, connection: Any, request: RemotingCommand
        ) -> RemotingCommand | None:
            codes.append(request.code)
            return world.send_processor.process_request(connection, request)

    # Not in the processor, whose methods are fixed where it is compiled.
    routes: Any = world.server._dispatcher._routes
    for code, route in routes.items():
        if route.processor is world.send_processor:
            routes[code] = Route(Noting())
    return codes
