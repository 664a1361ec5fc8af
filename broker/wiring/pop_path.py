"""PopPath: pop consumption put together: the buffer, its journal, the processors.

Wiring only, for BrokerController. Everything here runs on the loop.

Tested by tests/broker/wiring/test_routes.py.
"""

from __future__ import annotations

from typing import Final

from broker.filter.unit_marks import UnitMarks
from broker.metrics.hot_path_stats import HotPathStats
from broker.metrics.pop_metrics import PopMetrics
from broker.offset.consumer_offset_manager import TOPIC_GROUP_SEPARATOR
from broker.pop.ack_message_processor import AckMessageProcessor
from broker.pop.change_invisible_time_processor import ChangeInvisibleTimeProcessor
from broker.pop.consumer_order_info_manager import ConsumerOrderInfoManager
from broker.pop.pop_acks import PopAcks
from broker.pop.pop_buffer_merge_service import SCAN_MS, PopBufferMergeService
from broker.pop.pop_inflight_message_counter import PopInflightMessageCounter
from broker.pop.pop_journal import PopJournal, read_boot_id
from broker.pop.pop_limits import PopLimits
from broker.pop.pop_long_polling_service import PopLongPollingService
from broker.pop.pop_message_processor import PopMessageProcessor, PopParts
from broker.pop.pop_message_reader import PopMessageReader, ReadLimits
from broker.pop.pop_queue_check import PopQueueCheck
from broker.pop.pop_request import PopRequest
from broker.pop.pops import Pops
from broker.pop.request_clock import RequestClock
from broker.pop.revive_records import ReviveRecords
from broker.processor.held_rights import HoldRights, no_rights
from broker.processor.table_processor import TableProcessor
from broker.settings.startup_options import StartupOptions
from broker.topic.system_topics import revive_topic
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.message_services import MessageServices
from broker.wiring.process_resources import ProcessResources
from broker.wiring.store_side import StoreSide
from remoting.key_builder import POP_ORDER_REVIVE_QUEUE
from remoting.selector_loop import SelectorLoop
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET
from store.lmq_places import LMQ_QUEUE_ID
from store.stored_units import CQ_UNIT

_CLEAN_MS: Final = 30_000
_NS_PER_MS: Final = 1_000_000


class PopPath:
    """See the module. Owned by: BrokerController."""

    def __init__(
        self,
        resources: ProcessResources,
        store: StoreSide,
        tables: BrokerTables,
        messages: MessageServices,
        stats: HotPathStats,
        order: ConsumerOrderInfoManager | None = None,
        waiters: PopLongPollingService[PopRequest] | None = None,
        hold_rights: HoldRights = no_rights,
    ) -> None:
        self._clock = resources.clock
        self.metrics: Final = PopMetrics(resources.metric_slots)
        self._options = resources.options
        self._role = resources.role
        self._loop: SelectorLoop
        self._serves = False
        """What lasts as long as the loop has begun."""
        self.revive_queues = self._options.broker.revive_queue_num
        """From `open` on all that the revive topic has: those of before it was lowered, too."""
        self._page = resources.page
        self._store = store
        self._tables = tables
        self._stats = stats
        broker = self._options.broker
        self.records: Final = ReviveRecords(
            messages.timers.put, revive_topic(broker.broker_cluster_name), self.metrics
        )
        self._journal = PopJournal(
            self._options.store.pop_journal_path, broker.pop_ck_max_buffer_size, read_boot_id()
        )
        self.buffer: Final = PopBufferMergeService(
            broker,
            self._handle_limits(),
            self._journal,
            self.records,
            tables.offsets,
            self._now_ms,
            lambda: self._page.counters[FLUSHED_OFFSET],
        )
        self.inflight: Final = PopInflightMessageCounter(resources.clock.now_ms())
        self.reader: Final = PopMessageReader(
            self._limits(),
            store.table,
            store.loop_units,
            store.loop_reader,
            UnitMarks(store.loop_reader, resources.clock.monotonic_ms),
            store.log.next_offset,
        )
        self.pop: Final = self._make_pop(order, waiters, hold_rights)
        self._queues = PopQueueCheck(
            self._handle_limits(),
            tables.topics.find,
            tables.groups.find,
            self.reader,
            self._now_ms,
        )
        acks = PopAcks(self.buffer, self.records, self.inflight, broker.broker_name)
        self.ack: Final = AckMessageProcessor(
            acks, self._queues, tables.offsets, order, waiters, stats
        )
        self.change: Final = ChangeInvisibleTimeProcessor(
            self.buffer,
            acks,
            self._queues,
            tables.offsets,
            order,
            self._now_ms,
            broker.broker_name,
        )

    @property
    def processors(self) -> tuple[TableProcessor, ...]:
        """Of the codes of pop."""
        return self.pop, self.ack, self.change

    # -- life (loop thread) --------------------------------------------------------------------

    def open(self) -> None:
        """Take up what a killed predecessor left; the log is open. What a broker handed out before
        it became a slave concerns another log. Again after `cease`."""
        if self._role.is_slave:
            self._journal.remove()
        else:
            self.revive_queues = self._count_revive_queues()
            self.use(self._options)
            self.buffer.recover(self._store.log.position, self._store.log.next_offset)

    def _count_revive_queues(self) -> int:
        """How many the revive topic has had at most: reviveQueueNum may have been lowered while
        check points wait in those above it."""
        settings = self._options.broker
        name = revive_topic(settings.broker_cluster_name)
        topic = self._tables.topics.grow(name, settings.revive_queue_num)
        assert topic is not None, "built in"
        return min(topic.read_queue_nums, POP_ORDER_REVIVE_QUEUE)

    def start(self, loop: SelectorLoop) -> None:
        """Begin what runs by itself; never on a slave. Again after `cease`."""
        self.pop.admission.is_held = False
        if self._serves:
            self.buffer.on_work()
            return
        self._serves = True
        scans = loop.ticks(SCAN_MS, self._scan)
        self.buffer.on_work = scans.begin
        scans.begin()
        self._loop = loop
        self._tables.offsets.set_backs.hear = self._hear_set_back
        loop.call_every(_CLEAN_MS, lambda: self.buffer.clean(self._is_known))

    def cease(self) -> None:
        """This broker leads no more: only the journal keeps what was handed out. What was with the
        append queue has been refused."""
        self.buffer.pops = Pops(self._options.broker)
        self._journal.close()
        self.inflight.forget_all(self._clock.now_ms())

    def _hear_set_back(self, key: str, queue_id: int) -> None:
        """Any thread, of every queue of every group: few of them have pops."""
        topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)

        def tell() -> None:
            is_reset = self._tables.offsets.has_offset_reset(group, topic, queue_id)
            self.buffer.offset_was_set(topic, group, queue_id, is_reset=is_reset)

        if (topic, group, queue_id) in self.buffer.pops.queues:
            self._loop.call_soon_threadsafe(tell)

    def use(self, options: StartupOptions) -> None:
        """Follow changed settings."""
        self._options = options
        self.pop.use(options.broker, options.store)
        self.buffer.use(options.broker, self._handle_limits())
        self._queues.use(self._handle_limits())

    def drain(self) -> None:
        """An orderly stop: no request comes any more, the log takes the last records."""
        if not self._role.is_slave:
            self.buffer.drain()

    def finish(self) -> None:
        """After the last commit of an orderly stop, before the offsets are saved."""
        if not self._role.is_slave:
            self.buffer.finish()

    def remove_journal(self) -> None:
        """The offsets are saved: the last step of an orderly stop."""
        if not self._role.is_slave:
            self.buffer.remove_journal()

    def _scan(self) -> bool:
        began_ns = self._clock.monotonic_ns()
        self.buffer.scan()
        self.metrics.scanned((self._clock.monotonic_ns() - began_ns) / _NS_PER_MS)
        return self.buffer.has_work

    # -- construction --------------------------------------------------------------------------

    def _make_pop(
        self,
        order: ConsumerOrderInfoManager | None,
        waiters: PopLongPollingService[PopRequest] | None,
        hold_rights: HoldRights,
    ) -> PopMessageProcessor:
        tables = self._tables
        return PopMessageProcessor(
            self._options.broker,
            self._options.store,
            PopParts(
                reader=self.reader,
                buffer=self.buffer,
                inflight=self.inflight,
                offsets=tables.offsets,
                find_topic=self._store.batch_queues.find_poppable,
                find_group=tables.groups.find_or_create,
                retry_topics=tables.topics,
                order=order,
                waiters=waiters,
                stats=self._stats,
                hold_rights=hold_rights,
                clock=RequestClock(self._now_ms, self._clock.monotonic_ms),
                log_end=self._log_end,
                is_in_memory=self._is_in_memory,
            ),
        )

    def _handle_limits(self) -> PopLimits:
        return PopLimits(
            revive_queue_num=self.revive_queues,
            max_invisible_ms=self._options.store.timer_max_delay_ms,
            broker_name=self._options.broker.broker_name,
        )

    def _limits(self) -> ReadLimits:
        store = self._options.store
        return ReadLimits(
            memory_bytes=store.max_transfer_bytes_on_message_in_memory,
            disk_bytes=store.max_transfer_bytes_on_message_in_disk,
            disk_count=store.max_transfer_count_on_message_in_disk,
            memory=self._store.memory_limit,
        )

    def _now_ms(self) -> int:
        return self._store.log.now_ms

    def _log_end(self) -> int:
        return self._page.counters[MAX_PHY_OFFSET]

    def _is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        _low, high = self._store.table.offsets(topic, queue_id)
        if queue_offset >= high:
            return False
        unit = self._store.loop_units.read(topic, queue_id, queue_offset, 1, high)
        if not unit:
            return False
        phy_offset, _size, _tags = CQ_UNIT.unpack(unit)
        return bool(self._log_end() - phy_offset <= self._store.memory_limit)

    def is_young(self, lmq: str) -> bool:
        """Whether a light queue's first message is so near the log's end."""
        return self._is_in_memory(lmq, LMQ_QUEUE_ID, 0)

    def _is_known(self, topic: str, group: str) -> bool:
        return self._tables.topics.find(topic) is not None and (
            self._tables.groups.find(group) is not None
        )
