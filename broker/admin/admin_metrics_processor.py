"""AdminMetricsProcessor: a broker's metrics (28913) and their history (28912), for consoles.

Runs in the `admin` pool. The history is read from the files of this broker's own dump, one request
at a time, so that many who ask do not keep the pool from other work.

Tested by tests/broker/admin/test_admin_metrics_processor.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import msgspec

from broker.metrics.dump_file_names import find_dump_files, place_of
from broker.metrics.dump_history import LEAD_MS, DumpHistory, step_ms
from broker.metrics.dump_lines import DumpLines, DumpOwner
from broker.metrics.metrics_answers import MetricsAnswers
from broker.metrics.metrics_dump_files import DumpSettings
from broker.processor.table_processor import TableProcessor
from ipc.clock import Clock
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.metrics import GetMetricsDumpRequestHeader, GetMetricsRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

MAX_NAMES: Final = 50
MAX_NAME: Final = 200
MAX_POINTS: Final = 2_000


class AdminMetricsProcessor(TableProcessor):
    """Codes GET_METRICS and GET_METRICS_DUMP."""

    def __init__(
        self, metrics: MetricsAnswers, dump: Callable[[], DumpSettings | None], clock: Clock
    ) -> None:
        """dump: whose dump is where; None while there is none."""
        super().__init__(
            {
                RequestCode.GET_METRICS: self.get_metrics,
                RequestCode.GET_METRICS_DUMP: self.get_metrics_dump,
            }
        )
        self._metrics = metrics
        self._dump = dump
        self._clock = clock
        self._reading = threading.Lock()

    def get_metrics(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """28913: the current values of metrics."""
        names = decode_header(GetMetricsRequestHeader, request.ext_fields).names
        # Not split at more commas than it may have.
        beginnings = [name.strip() for name in names.split(",", MAX_NAMES)]
        if len(beginnings) > MAX_NAMES or not all(0 < len(name) <= MAX_NAME for name in beginnings):
            raise _error(
                f"names: between 1 and {MAX_NAMES} beginnings of metrics' names, separated by "
                f"commas, each of 1 to {MAX_NAME} characters"
            )
        body = msgspec.json.encode(self._metrics.answer(beginnings))
        return request.response(ResponseCode.SUCCESS, body=body)

    def get_metrics_dump(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """28912: points and incidents of a range of time."""
        header = decode_header(GetMetricsDumpRequestHeader, request.ext_fields)
        if not 0 <= header.begin_timestamp < header.end_timestamp:
            raise _error("beginTimestamp must be at least 0 and less than endTimestamp")
        if not 1 <= header.max_points <= MAX_POINTS:
            raise _error(f"maxPoints must be between 1 and {MAX_POINTS}")
        dump = self._dump()
        if dump is None:
            raise _error("this broker writes no metrics dump (metricsDumpPath)")
        if not self._reading.acquire(blocking=False):
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                "the metrics dump is being read for another request: ask again in 2 seconds",
            )
        try:
            body = self._read(header, dump)
        except OSError as error:
            raise _error(f"the metrics dump cannot be read: {error}") from error
        finally:
            self._reading.release()
        return request.response(ResponseCode.SUCCESS, body=body)

    def _read(self, header: GetMetricsDumpRequestHeader, dump: DumpSettings) -> bytes:
        begin_ms, end_ms = header.begin_timestamp, header.end_timestamp
        place = place_of(dump.cluster, dump.broker)
        files = find_dump_files(dump.directory, place, None)
        owner = DumpOwner(host=dump.host, broker_id=dump.broker_id, is_shared=dump.is_shared)
        lines = DumpLines(files, begin_ms - LEAD_MS, end_ms, owner)
        step = step_ms(begin_ms, end_ms, header.max_points, dump.interval_ms)
        history = DumpHistory(begin_ms, end_ms, step, self._clock)
        return msgspec.json.encode(history.read(lines))


def _error(text: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, text)
