"""TimerDequeueService over a real store; turns of the loop and steps of the store by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from broker.append.append_queue import AppendQueue, AppendQueueParts
from broker.append.room_waits import RoomWaits
from broker.latency.broker_fast_failure import BrokerFastFailure
from broker.settings.broker_config import BrokerConfig
from broker.timer.dequeue_parts import DequeueParts
from broker.timer.early_deliveries import EarlyDeliveries
from broker.timer.timer_dequeue_service import TimerDequeueService
from broker.timer.timer_progress import TimerProgress
from broker.timer.unpublished_deliveries import UnpublishedDeliveries
from store.control_slots import ALLOCATED_END, DISPATCHED_OFFSET, FLUSHED_OFFSET, MAX_PHY_OFFSET
from store.message_codec import RecordKind, check_record, decode_record
from store.timer.timer_log import TimerLogReader
from store.timer.timer_queue import TIMER_TOPIC
from store.timer.timer_wheel import TimerWheelReader
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock
from tests.support.timer_life import TimerLife


class Delivered(NamedTuple):
    """A record outside of the timer topic."""

    key: str
    stored_ms: int


class NoLoop:
    """Its timers are the test's business."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> None:
        """Never."""

    def call_at_multiple(self, period_ms: int, function: Callable[[], None]) -> None:
        """Never."""

    @property
    def watches(self) -> NoLoop:
        """As LoopWatches."""
        return self

    def call_once(self, function: Callable[[], None]) -> None:
        """Never."""

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        """Never."""


class NoStats:
    """Counts nothing."""

    def add_put(self, topic: str, count: int, size: int, message_type: str = "normal") -> None:
        """See DequeueStats."""

    def add_timer_delivered(self, topic: str) -> None:
        """See DequeueStats."""


class TimerDelivery:
    """A store and the delivery from it."""

    def __init__(self, root: Path, clock: ManualClock | None = None, **settings: Any) -> None:
        self.root = root
        self._settings = settings
        self.needed: list[tuple[str, int, int]] = []
        """Topic, queue and place of the messages that were due."""
        self.life = TimerLife(root, clock=clock, **settings)
        self.clock = self.life.clock
        self.service = self.new_service()
        self.life.run()

    def new_service(self) -> TimerDequeueService:
        """As a restarted process `remoting` makes it; the files stay as they are."""
        life, config = self.life, self.life.config
        fast = BrokerFastFailure(BrokerConfig(), config, life.page, self.clock)
        precision_ms = config.timer_precision_ms
        self.queue = AppendQueue(
            AppendQueueParts(
                commit_log=life.log,
                clock=self.clock,
                fast_failure=fast,
                why_not_writable=lambda: "",
                capacity=100,
            )
        )
        self.early = EarlyDeliveries(config.timer_early_path, precision_ms)
        service = TimerDequeueService(
            DequeueParts(
                commit_log=life.log,
                append_queue=self.queue,
                reader=life.reader,
                wheel=TimerWheelReader(config.timer_wheel_path, precision_ms),
                units=TimerLogReader(config.timer_log_path, config.mapped_file_size_timer_log),
                progress=TimerProgress(config.timer_progress_path, precision_ms),
                early=self.early,
                unpublished=UnpublishedDeliveries(config.timer_unpublished_path, precision_ms),
                counters=life.counters,
                safe_offset=lambda: life.counters[FLUSHED_OFFSET],
                stats=NoStats(),
                clock=self.clock,
                room_waits=RoomWaits(life.counters, self.clock),
                put_back_topic=self._put_back_topic,
            ),
            stopped=False,
        )
        service.start(NoLoop())
        return service

    def _put_back_topic(self, topic: str, queue_id: int, phy_offset: int) -> bool:
        """PutBackTopic."""
        self.needed.append((topic, queue_id, phy_offset))
        return True

    def restart(self) -> None:
        """All processes are killed and started again."""
        self.life.kill()
        self.life = TimerLife(self.root, clock=self.clock, **self._settings)
        self.service = self.new_service()
        self.life.run()

    # -- time ----------------------------------------------------------------------------------

    def put(self, key: str, asked_ms: int, *, more: str = "", topic: str = "T") -> None:
        """A message for `asked_ms`, as TimerHook stores it."""
        precision_ms = self.life.config.timer_precision_ms
        out_ms = (asked_ms - 1) // precision_ms * precision_ms
        text = f"\x02TIMER_DELIVER_MS\x01{asked_ms}\x02UNIQ_KEY\x01{key}{more}"
        self.life.put(out_ms, topic=topic, more=text)

    def recall(self, key: str, asked_ms: int) -> None:
        """As RecallMessageProcessor stores it."""
        self.put("", asked_ms, more=f"\x02TIMER_DEL_UNIQKEY\x01T+{key}")

    def turn(self, *, ends: bool = True) -> int:
        """One turn of the loop; ends: it is not killed after it has published."""
        log = self.life.log
        wait_until(lambda: self.life.counters[ALLOCATED_END] > log.position + 10_000)
        log.now_ms = self.clock.now_ms()
        self.queue.retry()
        wait_ms = self.service.deliver_due()
        log.commit()
        if ends:
            self.service.turn_end()
        return wait_ms

    def pass_ms(self, ms: int, step_ms: int = 1) -> None:
        """Time passes: every `step_ms` the store steps and the loop turns."""
        for _ in range(0, ms, step_ms):
            self.clock.advance(step_ms)
            self.step()

    def step(self) -> None:
        """The store enters what is there, the loop delivers what is due."""
        counters = self.life.counters
        wait_until(lambda: counters[DISPATCHED_OFFSET] == counters[MAX_PHY_OFFSET])
        self.life.run()
        while self.turn() == 0:
            pass

    # -- what came of it -----------------------------------------------------------------------

    def delivered(self) -> list[Delivered]:
        """In the order of the log, which is read record by record."""
        reader, found, at = self.life.reader, [], 0
        end, file_size = reader.max_phy_offset, reader.file_size
        while at < end:
            view = reader.view_of_file(at)
            assert view is not None
            check = check_record(view, at % file_size, file_size, at, check_crc=True)
            assert check.kind in (RecordKind.MESSAGE, RecordKind.BLANK), check
            if check.kind is RecordKind.MESSAGE:
                message = decode_record(view, at % file_size)[0]
                if message.topic != TIMER_TOPIC:
                    key = message.find_property("UNIQ_KEY") or ""
                    found.append(Delivered(key, message.store_timestamp))
            at += check.size
        return found

    def keys(self) -> list[str]:
        """Of what was delivered."""
        return [each.key for each in self.delivered()]

    def close(self) -> None:
        """An orderly stop."""
        self.service.stop()
        self.service.finish()
        self.life.stop()
