"""TimerFlush: brings wheel and timer log to disk, and writes the check point that says so.

Called by TimerMessageStore on its thread. In this order: log, wheel, check point, metrics; nothing
is written when nothing has changed. The delivery publishes a read time only when its messages
are on disk. Corresponds to RocketMQ's TimerFlushService and prepareTimerCheckPoint.
"""

from __future__ import annotations

from dataclasses import replace

from ipc.clock import Clock
from store.message_store_config import MessageStoreConfig
from store.timer.timer_checkpoint import (
    TimerCheckpoint,
    load_timer_checkpoint,
    write_timer_checkpoint,
)
from store.timer.timer_log import TimerLog
from store.timer.timer_metrics import TimerMetrics, write_timer_metrics
from store.timer.timer_wheel import TimerWheel


class TimerFlush:
    """See the module."""

    def __init__(
        self,
        config: MessageStoreConfig,
        wheel: TimerWheel,
        timer_log: TimerLog,
        metrics: TimerMetrics,
        clock: Clock,
    ) -> None:
        self._config = config
        self._wheel = wheel
        self._log = timer_log
        self._metrics = metrics
        self._clock = clock
        self.checkpoint = TimerCheckpoint()
        """As it was written last."""
        self._has_changed = False

    def load(self) -> None:
        """Read the check point; zeros without one. Raises OSError."""
        self.checkpoint = (
            load_timer_checkpoint(self._config.timer_checkpoint_path) or TimerCheckpoint()
        )

    def note_change(self) -> None:
        """Something was entered, or the read time has left a slot that held something."""
        self._has_changed = True

    def flush(self, read_ms: int, queue_offset: int, master_offset: int) -> None:
        """read_ms: the read time now. queue_offset: everything before is entered; master_offset:
        see the check point. Raises DiskFullError, FlushFailedError."""
        if not self._has_changed:
            return
        flushed = self._log.flush()
        self._wheel.flush()
        self.checkpoint = replace(
            self.checkpoint,
            last_read_time_ms=read_ms,
            last_timer_log_flush_pos=flushed,
            last_timer_queue_offset=min(queue_offset, master_offset),
            master_timer_queue_offset=master_offset,
            timestamp_ms=self._clock.now_ms(),
            counter=self.checkpoint.counter + 1,
        )
        write_timer_checkpoint(self._config.timer_checkpoint_path, self.checkpoint)
        write_timer_metrics(self._config.timer_metrics_path, self._metrics)
        self._has_changed = False
