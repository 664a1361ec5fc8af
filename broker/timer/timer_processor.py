"""60, 61: what a slave asks its master about timers: check point and metrics.

Pool threads. The check point is that of the control page, newer than the file of process `store`;
the metrics are its file. Beside the check point we say where the log ends: a slave
whose log reaches that holds all that was delivered. Follows AdminBrokerProcessor of RocketMQ.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.out.broker_outer_api import LOG_END_FIELD
from broker.processor.table_processor import TableProcessor
from ha.control_slots import ISOLATED
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.control_slots import MAX_PHY_OFFSET
from store.timer.timer_checkpoint import TimerCheckpoint, load_timer_checkpoint
from store.timer.timer_metrics import load_timer_metrics
from store.timer.timer_slots import (
    TIMER_COMMIT_QUEUE_OFFSET,
    TIMER_OPENED,
    TIMER_READ_TIME_MS,
    TIMER_TAKEN_BACK_MS,
)


class TimerProcessor(TableProcessor):
    """See the module. Any thread."""

    def __init__(
        self,
        counters: memoryview[int],
        checkpoint_path: Path,
        metrics_path: Path,
        *,
        enabled: bool,
        is_slave: bool,
    ) -> None:
        """counters: of the control page. enabled: timerWheelEnable. is_slave: for life."""
        super().__init__(
            {
                RequestCode.GET_TIMER_CHECK_POINT: self.get_timer_check_point,
                RequestCode.GET_TIMER_METRICS: self.get_timer_metrics,
            }
        )
        self._counters = counters
        self._checkpoint_path = checkpoint_path
        self._metrics_path = metrics_path
        self._enabled = enabled
        self._is_slave = is_slave

    def get_timer_check_point(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """60: 56 bytes (TimerCheckpoint)."""
        if not self._enabled:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        if self._counters[ISOLATED] and not self._is_slave:
            # Its slave would forget what it has delivered, before it is asked for it. As 43 and 45.
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "this broker is isolated, and does not know yet what its slaves did in its place",
            )
        found = load_timer_checkpoint(self._checkpoint_path) or TimerCheckpoint()
        if self._counters[TIMER_OPENED] and self._counters[TIMER_READ_TIME_MS]:
            queue_offset = self._counters[TIMER_COMMIT_QUEUE_OFFSET]
            found = replace(
                found,
                last_read_time_ms=self._counters[TIMER_READ_TIME_MS],
                last_timer_queue_offset=queue_offset,
                master_timer_queue_offset=queue_offset,
                # What this slave delivered in its master's place is newer than what that knows.
                counter=max(found.counter, self._counters[TIMER_TAKEN_BACK_MS]),
            )
        fields = {LOG_END_FIELD: str(self._counters[MAX_PHY_OFFSET])}
        return request.response(ResponseCode.SUCCESS, None, fields, found.encode())

    def get_timer_metrics(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """61: how many timers wait for each topic, as JSON."""
        if not self._enabled:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        body = load_timer_metrics(self._metrics_path).encode()
        return request.response(ResponseCode.SUCCESS, None, {}, body)
