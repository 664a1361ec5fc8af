"""Timers: the parts of timer messages put together, their start and their stop.

Used by MessageServices; no policy. Hook and processors are there always, the delivery runs on a
master with timerWheelEnable.

Tested by tests/broker/wiring/test_routes.py.
"""

from __future__ import annotations

from typing import Final

from broker.append.room_waits import RoomWaits
from broker.append.writable_log import WritableLog
from broker.metrics.hot_path_stats import HotPathStats
from broker.metrics.runtime_info import TimerInfo
from broker.send.recall_message_processor import RecallMessageProcessor
from broker.settings.startup_options import StartupOptions
from broker.timer.dequeue_parts import DequeueParts
from broker.timer.early_deliveries import EarlyDeliveries
from broker.timer.timer_dequeue_service import TimerDequeueService
from broker.timer.timer_hook import TimerHook, TimerSettings
from broker.timer.timer_processor import TimerProcessor
from broker.timer.timer_progress import TimerProgress
from broker.timer.timer_put import TimerPut
from broker.timer.unpublished_deliveries import UnpublishedDeliveries
from broker.topic.lost_topics import PutBackTopic
from broker.topic.system_topics import TIMER_TOPIC
from broker.topic.topic_config_manager import TopicConfigManager
from broker.wiring.store_side import StoreSide
from ha.link_loan import replicated_offset
from ipc.clock import Clock
from remoting.selector_loop import SelectorLoop
from store.control_slots import FLUSHED_OFFSET
from store.timer.timer_log import TimerLogReader
from store.timer.timer_slots import (
    TIMER_COMMIT_QUEUE_OFFSET,
    TIMER_OPENED,
    TIMER_READ_TIME_MS,
    TIMER_STOP_ENQUEUE,
)
from store.timer.timer_wheel import TimerWheelReader

_RATES_MS: Final = 10_000


class Timers:
    """See the module. Owned by: MessageServices; loop thread after the start."""

    def __init__(
        self,
        options: StartupOptions,
        clock: Clock,
        store: StoreSide,
        topics: TopicConfigManager,
        log: WritableLog,
        stats: HotPathStats,
        room_waits: RoomWaits,
        put_back_topic: PutBackTopic,
    ) -> None:
        self._is_enabled: Final = options.store.timer_wheel_enable
        self._precision_ms: Final = options.store.timer_precision_ms
        self._store = store
        self._log = log
        self._stats = stats
        self._room_waits = room_waits
        self.put_back_topic: Final = put_back_topic
        self._stops_dequeue = options.store.timer_stop_dequeue
        self._samples = False
        """The rates are sampled."""
        self._counters = store.page.counters
        self._waiters = log.waiters
        self._clock = clock
        self._table = store.table
        self._sampled = (0, 0)
        """Timers that were entered, and delivered, at the last look."""
        self._rates = (0.0, 0.0)
        """The same a second, over the last ten."""
        self._wheel = wheel = TimerWheelReader(options.store.timer_wheel_path, self._precision_ms)
        self.hook: Final = TimerHook(self._hook_settings(options), wheel.num, clock, topics)
        self.put: Final = TimerPut(self.hook, log.commit_log, log.append_queue)
        self.recall: Final = RecallMessageProcessor(
            options.broker,
            options.store,
            topics.find,
            self.put,
            log.waiters,
            clock,
            log.append_queue.find_refusal,
        )
        self.processor: Final = TimerProcessor(
            self._counters,
            options.store.timer_checkpoint_path,
            options.store.timer_metrics_path,
            enabled=self._is_enabled,
            is_slave=options.store.is_slave,
        )
        self._progress = TimerProgress(options.store.timer_progress_path, self._precision_ms)
        self._early = EarlyDeliveries(options.store.timer_early_path, self._precision_ms)
        self._unpublished = UnpublishedDeliveries(
            options.store.timer_unpublished_path, self._precision_ms
        )
        self._units = TimerLogReader(
            options.store.timer_log_path, options.store.mapped_file_size_timer_log
        )
        self._dequeue = self._make_dequeue()
        self._counters[TIMER_STOP_ENQUEUE] = options.store.timer_stop_enqueue

    def use(self, options: StartupOptions) -> None:
        """Settings were changed: follow them."""
        self.hook.use(self._hook_settings(options))
        self.recall.use(options.broker, options.store)
        self._stops_dequeue = options.store.timer_stop_dequeue
        self._dequeue.use(stopped=self._stops_dequeue)
        self._counters[TIMER_STOP_ENQUEUE] = options.store.timer_stop_enqueue

    def log_opened(self) -> None:
        """This broker writes the log now and has put nothing yet; timers may begin later, or never.
        Raises OSError."""
        self._unpublished.settle(self._log.commit_log.position)

    def start(self, loop: SelectorLoop) -> None:
        """Begin to deliver; this is a master, the log is open. Again after `cease`."""
        if self._is_enabled:
            self._dequeue.start(loop)
            self._sampled = (self._counters[TIMER_COMMIT_QUEUE_OFFSET], 0)
            if not self._samples:
                self._samples = True
                loop.call_every(_RATES_MS, self._sample_rates)

    def cease(self) -> None:
        """This broker leads no more: what is delivered is kept in the files only."""
        if self._is_enabled:
            self._dequeue.stop(at_once=True)
            self._progress.close()
            self._early.let_go()
            self._unpublished.close()
            self._dequeue = self._make_dequeue()

    def follow(self) -> None:
        """This is a slave: its master delivers."""
        self._progress.remove()
        self._early.remove()
        self._unpublished.remove()

    def info(self) -> TimerInfo:
        """For request 28; any thread."""
        counters = self._counters
        read_ms = counters[TIMER_READ_TIME_MS]
        if not self._is_enabled or not counters[TIMER_OPENED] or not read_ms:
            return TimerInfo()
        end = self._table.offsets(TIMER_TOPIC, 0)[1]
        return TimerInfo(
            read_behind_ms=max(self._clock.now_ms() - read_ms, 0),
            offset_behind=max(end - counters[TIMER_COMMIT_QUEUE_OFFSET], 0),
            waiting=self._wheel.all_num(read_ms),
            enqueue_tps=self._rates[0],
            dequeue_tps=self._rates[1],
        )

    def _sample_rates(self) -> None:
        found = (self._counters[TIMER_COMMIT_QUEUE_OFFSET], self._dequeue.delivered)
        changes = [max(now - before, 0) for now, before in zip(found, self._sampled, strict=True)]
        self._rates = (changes[0] * 1000 / _RATES_MS, changes[1] * 1000 / _RATES_MS)
        self._sampled = found

    @property
    def busy(self) -> bool:
        """Whether a slot is delivered in part."""
        return self._dequeue.busy

    @property
    def read_time_ms(self) -> int:
        """Every timer message due before is appended; 0: not known yet."""
        return self._dequeue.read_time_ms

    def stop(self) -> None:
        """Begin no other slot; idempotent."""
        self._dequeue.stop()

    def finish(self) -> None:
        """After the last commit of an orderly stop."""
        self._dequeue.finish()

    def turn_end(self) -> None:
        """What was put in this turn is published."""
        self._dequeue.turn_end()

    def _make_dequeue(self) -> TimerDequeueService:
        return TimerDequeueService(
            DequeueParts(
                commit_log=self._log.commit_log,
                append_queue=self._log.append_queue,
                reader=self._store.loop_reader,
                wheel=self._wheel,
                units=self._units,
                progress=self._progress,
                early=self._early,
                unpublished=self._unpublished,
                counters=self._counters,
                safe_offset=self._safe_offset,
                stats=self._stats,
                clock=self._clock,
                room_waits=self._room_waits,
                put_back_topic=self.put_back_topic,
            ),
            stopped=self._stops_dequeue,
        )

    def _safe_offset(self) -> int:
        flushed = self._counters[FLUSHED_OFFSET]
        if self._waiters.waits_for_replicas:
            return min(flushed, replicated_offset(self._counters))
        return flushed

    def _hook_settings(self, options: StartupOptions) -> TimerSettings:
        store = options.store
        return TimerSettings(
            enabled=self._is_enabled,
            precision_ms=self._precision_ms,
            max_delay_ms=store.timer_max_delay_ms,
            congest_num=store.timer_congest_num_each_slot,
        )
