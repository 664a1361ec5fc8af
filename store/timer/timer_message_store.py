"""TimerMessageStore: enters what the timer topic holds into the timer wheel, and keeps its files.

A thread of process `store`, the only writer of timerwheel, timerlog, timercheck and timermetrics.
It follows the topic's consume queue as dispatch builds it, moves the wheel's write time
(timer_slots.py has the rules), counts what waits, flushes what has changed and deletes old files of
the timer log. Delivery is not its business: it only sees the read time pass. All of it can be built
again from the commit log (timer_recovery.py); before the first timer no file is made. Corresponds
to the enqueueing half of RocketMQ's TimerMessageStore.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.service_thread import FailureHandler, ServiceThread
from store.control_slots import DISPATCHED_OFFSET, MAX_PHY_OFFSET, STORE_TIMESTAMP
from store.errors import DiskFullError
from store.message_store_config import MessageStoreConfig
from store.running_flags import RunningFlag, RunningFlags
from store.timer.early_marks import mark_delivered
from store.timer.pending_timers import NOTHING_PENDING, PendingTimers, units_from
from store.timer.placement import round_down
from store.timer.timer_enqueue import BATCH, CountEntered, TimerEnqueue
from store.timer.timer_flush import TimerFlush
from store.timer.timer_log import TimerLog
from store.timer.timer_metrics import load_timer_metrics
from store.timer.timer_queue import TimerQueue
from store.timer.timer_recovery import TimerRecovery, TimersDamagedError, first_read_time
from store.timer.timer_slots import (
    STEP_BACK_MS,
    TIMER_MASTER_QUEUE_OFFSET,
    TIMER_OPENED,
    TIMER_READ_TIME_MS,
    TIMER_START_TIME_MS,
    TIMER_STOP_ENQUEUE,
    TIMER_WRITE_TIME_MS,
)
from store.timer.timer_wheel import BLANK_SLOTS, SLOTS_A_TURN, TimerWheel

log = logging.getLogger(__name__)

_IDLE_MS: Final = 100
_PACE_MS: Final = 2
"""After less than a batch, and while dispatch is waited for."""
_DISPATCH_PATIENCE_MS: Final = 1_000
"""The write time moves on though dispatch is not through: what comes is late then."""
_DISK_FULL_RETRY_MS: Final = 1_000
_CLEAN_INTERVAL_MS: Final = 30_000


class TimerMessageStore(ServiceThread):
    """See the module. Owned by its thread; `keep_from` is read by any."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        queue: TimerQueue,
        flags: RunningFlags,
        clock: Clock,
        ring_delivery: Callable[[], None] = lambda: None,
        *,
        count_entered: CountEntered = lambda topics: None,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """ring_delivery wakes `remoting` when a slot that holds something is closed."""
        super().__init__("TimerMessageStore", on_failure=on_failure)
        self._config = config
        self._precision_ms = config.timer_precision_ms
        self._counters = page.counters
        self._queue = queue
        self._role = queue.role
        self._flags = flags
        self._clock = clock
        self._ring_delivery = ring_delivery
        self._wheel = TimerWheel(config.timer_wheel_path, config.timer_precision_ms)
        self._log = TimerLog(config.timer_log_path, config.mapped_file_size_timer_log)
        self._pending = PendingTimers(
            load_timer_metrics(config.timer_metrics_path),
            config.mapped_file_size_commit_log,
            queue.real_topic,
        )
        self._flusher = TimerFlush(config, self._wheel, self._log, self._pending.metrics, clock)
        self._enqueue = TimerEnqueue(
            config, page, queue, self._wheel, self._log, self._pending, count_entered
        )
        self._stored_ms = self._counters[STORE_TIMESTAMP]
        """Of the log's last flushed record as it was found: more may be stored before this thread
        runs. 0: not known."""
        self._is_open = False
        self._write_ms = 0
        self._settled_ms = 0
        """The slots before are counted as delivered."""
        self._noticed_ms = self._noticed_at_ms = self._log_end = 0
        """The newest end of a slot that was noticed, when, and the commit log's end by then."""
        self._queue_end = -1
        """The queue's end when that was dispatched; -1 before."""
        self._flushed_at_ms = self._cleaned_at_ms = clock.monotonic_ms()
        self._keep_from = 0
        self._rested_at = -1
        """How far dispatch was when nothing was to be entered last."""
        self._is_resting = False

    def log_grows(self) -> None:
        """Look closely again. Called after every step of dispatch, so it costs next to nothing."""
        if self._is_resting:
            self.wakeup()

    @property
    def keep_from(self) -> int:
        """Commit log files that end behind this offset hold timers that wait: 0 until all are
        counted. Any thread."""
        return self._keep_from

    # -- the loop ------------------------------------------------------------------------------

    def step(self) -> None:
        """One round: open, enter, move the write time, flush; then a rest."""
        try:
            entered = self.run_once()
        except DiskFullError as error:
            self._flags.set(RunningFlag.DISK_FULL, str(error), by=self.name)
            self.wait_for_running(_DISK_FULL_RETRY_MS)
            return
        self._flags.clear(RunningFlag.DISK_FULL, "timers are entered again", by=self.name)
        if not entered:
            self._rest()
        elif entered < BATCH:
            self.wait_for_running(_PACE_MS)

    def run_once(self) -> int:
        """One round without the rest; returns how many timers were entered. Raises DiskFullError,
        FlushFailedError."""
        if not self._is_open:
            self._open()
        elif self._role.is_slave() is not self._enqueue.follows:
            self._change_role()
        entered = self.enter_some()
        self._settle()
        self.move_write_time()
        self._publish_keep_from()
        self._flush_sometimes()
        return entered

    def finish(self) -> None:
        """At an orderly stop: what is dispatched is entered, everything flushed."""
        try:
            if self._is_open:
                while self.enter_some():
                    pass
                self._settle()
                end = self._counters[MAX_PHY_OFFSET]
                marked = mark_delivered(self._wheel, self._log, self._config, self._settled_ms, end)
                self._pending.count(marked, -1, self._clock.now_ms())
                self._flusher.note_change()
                self.flush()
        except DiskFullError as error:
            log.error("could not flush the timers; the next start recovers them: %s", error)
        self._counters[TIMER_OPENED] = 0
        self._wheel.close()
        self._log.close()
        self._queue.close()

    def _rest(self) -> None:
        if self._noticed_ms > self._write_ms:
            self.wait_for_running(_PACE_MS)
            return
        left_ms = self._precision_ms - self._clock.now_ms() % self._precision_ms
        dispatched, counters = self._rested_at, self._counters
        self._rested_at = counters[DISPATCHED_OFFSET]
        if self._rested_at != dispatched or self._enqueue.has_files or self._queue.bounds[1]:
            self.wait_for_running(min(_IDLE_MS, left_ms))
            return
        # There never was a timer, and the log stands still: until the slot is over.
        self._is_resting = True
        # What was dispatched before it said so is seen here.
        if counters[DISPATCHED_OFFSET] == dispatched:
            self.wait_for_running(left_ms)
        self._is_resting = False

    # -- the start -----------------------------------------------------------------------------

    def _open(self) -> None:
        self._flusher.load()
        self._enqueue.follows = self._role.is_slave()
        self._write_ms = self._counters[TIMER_WRITE_TIME_MS]
        read_ms = self._read_ms or first_read_time(
            self._flusher.checkpoint.last_read_time_ms,
            self._stored_ms or self._queue.newest_stored_ms(),
            self._clock.now_ms(),
            self._precision_ms,
        )
        self._write_ms = max(self._write_ms, read_ms)
        self._settled_ms = read_ms
        has_files = self._config.timer_wheel_path.exists() or bool(self._log.start_offsets())
        if has_files or self._queue.bounds[1]:
            self._recover(read_ms)
        self._publish()
        self._counters[TIMER_START_TIME_MS] = self._settled_ms
        self._counters[TIMER_OPENED] = not (self._role.is_controlled and self._enqueue.follows)
        self._is_open = True
        log.info(
            "timers: read time %s, entered up to %s of %s",
            self._settled_ms,
            self._enqueue.queue_offset,
            self._queue.bounds,
        )

    def _recover(self, read_ms: int) -> None:
        self._enqueue.has_files = True
        self._counters[TIMER_OPENED] = 0
        recovery = TimerRecovery(
            self._wheel, self._log, self._queue, self._flusher.checkpoint, read_ms
        )
        found = recovery.recover()
        now_ms = self._clock.now_ms()
        try:
            self._pending.restart(recovery.waiting_units(), now_ms)
        except TimersDamagedError as error:
            found = recovery.start_over(str(error))
            self._pending.restart((), now_ms)
        self._enqueue.queue_offset = found.queue_offset
        self._enqueue.replay_end = found.replay_end
        self._flusher.note_change()
        if not self._read_ms and read_ms > now_ms + STEP_BACK_MS:
            self._empty_future(round_down(now_ms, self._precision_ms))

    # -- the role ------------------------------------------------------------------------------

    def _change_role(self) -> None:
        """In controller mode; timer_slots.py says why it is asked again."""
        self._counters[TIMER_OPENED] = 0
        follows = self._role.is_slave()
        if self._enqueue.follows and not follows:
            self._settle()
            # As at a start: what the last master had not delivered comes first.
            self._enqueue.replay_end = max(self._enqueue.replay_end, self._limit())
            self._settled_ms = max(self._settled_ms, self._read_ms)
            self._write_ms = round_down(self._settled_ms, self._precision_ms)
            self._noticed_ms = 0
            self._counters[TIMER_START_TIME_MS] = self._settled_ms
            self._publish()
        self._enqueue.follows = follows
        self._counters[TIMER_OPENED] = int(not follows)

    # -- entering ------------------------------------------------------------------------------

    def enter_some(self) -> int:
        """Enter a batch; returns how many. Raises DiskFullError."""
        self._enqueue.write_out()
        if self._counters[TIMER_STOP_ENQUEUE] or self._is_set_back:
            return 0
        entered = self._enqueue.enter(
            self._limit(), self._write_ms, self._read_ms or self._settled_ms, self._clock.now_ms()
        )
        if entered:
            self._flusher.note_change()
        return entered

    def _limit(self) -> int:
        """On a slave: what the master has entered."""
        if not self._enqueue.follows:
            return NOTHING_PENDING
        found = self._counters[TIMER_MASTER_QUEUE_OFFSET]
        return found or self._flusher.checkpoint.master_timer_queue_offset

    # -- the write time ------------------------------------------------------------------------

    def move_write_time(self) -> None:
        """Close the slots that are past, once all is entered that the log held by then."""
        now_ms = round_down(self._clock.now_ms(), self._precision_ms)
        if self._enqueue.follows:
            self._write_ms = now_ms
            self._publish()
        elif self._is_set_back:
            self._step_back(now_ms)
        elif now_ms > self._write_ms >= self._read_ms:
            self._notice_end(now_ms)
            if self._is_all_entered():
                self._close_slots(self._noticed_ms)

    def _notice_end(self, now_ms: int) -> None:
        """A slot has ended: what the log holds now belongs before."""
        if self._noticed_ms <= self._write_ms or self._noticed_ms > now_ms:
            self._noticed_ms = now_ms
            self._noticed_at_ms = self._clock.monotonic_ms()
            self._log_end = self._role.readable_end()
            self._queue_end = -1

    def _is_all_entered(self) -> bool:
        """Whether that is dispatched, and what is dispatched entered. A dispatch that stands still
        is not waited for, what comes from it is late; but while timers are entered again it is: a
        slot that was closed before would be taken to be delivered."""
        if self._queue_end < 0:
            waited_ms = self._clock.monotonic_ms() - self._noticed_at_ms
            is_dispatched = self._counters[DISPATCHED_OFFSET] >= self._log_end
            is_patient = waited_ms <= _DISPATCH_PATIENCE_MS or self._enqueue.is_replaying
            if not is_dispatched and is_patient:
                return False
            self._queue_end = self._queue.bounds[1]
        if self._counters[TIMER_STOP_ENQUEUE]:
            return True
        return self._enqueue.queue_offset >= self._queue_end

    def _close_slots(self, now_ms: int) -> None:
        # Two turns of slots: what waits must not be met from behind.
        turn_ms = (SLOTS_A_TURN - BLANK_SLOTS) * self._precision_ms
        now_ms = min(now_ms, (self._read_ms or self._settled_ms) + turn_ms)
        before_ms, self._write_ms = self._write_ms, max(now_ms, self._write_ms)
        self._publish()
        if self._wheel.reader.next_slot(before_ms, now_ms) is not None:
            self._ring_delivery()

    @property
    def _is_set_back(self) -> bool:
        """Whether the wall clock was set back while there is a delivery."""
        is_back = self._clock.now_ms() < self._write_ms - STEP_BACK_MS
        return is_back and self._read_ms > 0 and not self._enqueue.follows

    def _step_back(self, now_ms: int) -> None:
        """See timer_slots.py."""
        if self._read_ms == self._write_ms:
            self._settle()
            self._empty_future(now_ms)

    def _empty_future(self, now_ms: int) -> None:
        log.warning(
            "the wall clock was set back: moving the write time from %s to %s",
            self._write_ms,
            now_ms,
        )
        if self._enqueue.has_files:
            self._wheel.empty_slots(now_ms, self._write_ms)
        self._write_ms = self._settled_ms = now_ms
        self._noticed_ms = 0
        self._flusher.note_change()
        self._publish()

    def _publish(self) -> None:
        self._counters[TIMER_WRITE_TIME_MS] = self._write_ms

    # -- what has passed -----------------------------------------------------------------------

    @property
    def _read_ms(self) -> int:
        """0 before the delivery has said it."""
        return self._counters[TIMER_READ_TIME_MS]

    def _settle(self) -> None:
        """Slots that the delivery has left are counted out."""
        read_ms = self._read_ms
        if self._enqueue.follows and 0 < read_ms < self._settled_ms - STEP_BACK_MS:
            # The master's wall clock was set back: what it has yet to deliver counts again.
            waiting = units_from(self._wheel, self._log.reader, read_ms)
            self._pending.restart(waiting, self._clock.now_ms())
            self._settled_ms = read_ms
            self._flusher.note_change()
        is_stale = read_ms > self._write_ms and not self._enqueue.follows  # the clock was set back
        if read_ms <= self._settled_ms or is_stale:
            return
        while (time_ms := self._wheel.reader.next_slot(self._settled_ms, read_ms)) is not None:
            slot = self._wheel.slot(time_ms)
            if slot is not None:
                units = self._log.reader.chain(slot.last_pos)
                self._pending.count(units, -1, self._clock.now_ms())
            self._settled_ms = time_ms + self._precision_ms
            self._flusher.note_change()
        self._settled_ms = read_ms

    def _publish_keep_from(self) -> None:
        keep_from, queue_offset = self._pending.first_phy_offset, self._enqueue.queue_offset
        if queue_offset < self._queue.bounds[1]:
            keep_from = min(keep_from, max(self._queue.phy_offset_at(queue_offset), 0))
        self._keep_from = keep_from

    # -- files ---------------------------------------------------------------------------------

    def _flush_sometimes(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._flushed_at_ms >= self._config.timer_flush_interval_ms:
            self._flushed_at_ms = now_ms
            self.flush()
        if now_ms - self._cleaned_at_ms >= _CLEAN_INTERVAL_MS:
            self._cleaned_at_ms = now_ms
            self._log.delete_expired(self._queue.min_phy_offset)

    def flush(self) -> None:
        """Bring everything to disk that has changed. Raises DiskFullError, FlushFailedError."""
        if self._enqueue.has_files:
            self._flusher.flush(self._settled_ms, self._enqueue.queue_offset, self._master_offset())

    def _master_offset(self) -> int:
        """Of a rebuilding master the end of what it enters again, as the next start must know."""
        if self._enqueue.follows:
            return self._limit()
        return max(self._enqueue.queue_offset, self._enqueue.replay_end)
