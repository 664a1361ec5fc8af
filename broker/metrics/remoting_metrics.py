"""RemotingMetrics: the metrics that process `remoting` counts while serving requests.

The metric slots of sends, pulls and responses. The loop thread increments them with plain additions
(`values[slot] += n`), mostly once for each topic and turn of the loop. Responses that a pool thread
may also count are counted under a lock, whichever thread sends them: a request that goes through a
pool (36, 37, 323 to 325) may be answered by the loop later, and most of 34 and 37 are served by the
loop alone. Codes that only the loop answers (sends and pulls) need no lock. Labels and names are
those of RocketMQ 5.x (AbstractSendMessageProcessor, DefaultPullMessageResultHandler,
NettyRemotingAbstract.writeResponse). Knows no request; sampled metrics are in broker_gauges.py.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Collection
from typing import Final, NamedTuple

from broker.metrics import metrics_table as table
from broker.metrics.kept_sends import SEND_CODES, SYNC_RESULTS, KeptSends
from broker.metrics.timer_counts import TimerCounts
from broker.metrics.transaction_metrics import TransactionMetrics
from broker.topic.system_topics import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    SystemTopics,
    is_system_group,
)
from ipc.metric_slots import MetricSlots
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

_NOT_COUNTED: Final = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)
_RPC_BOUNDS: Final = table.RPC_LATENCY.buckets
_ACK_BOUNDS: Final = table.HA_ACK_LATENCY.buckets
_NS_PER_S: Final = 1_000_000_000
_UNKNOWN: Final = -1
_REQUEST_NAMES: Final = {int(code): code.name.lower() for code in RequestCode}
_RESPONSE_NAMES: Final = {int(code): code.name.lower() for code in ResponseCode}


class Series(NamedTuple):
    """The slots of a message count and a byte count."""

    messages: int
    size: int


class RemotingMetrics:
    """See the module. Owned by: the loop thread, but for `answered` (any thread)."""

    def __init__(
        self, slots: MetricSlots, system_topics: SystemTopics, kept: KeptSends | None = None
    ) -> None:
        """kept: counts answers to sends, too; without it nothing survives the processes."""
        self._kept = KeptSends() if kept is None else kept
        self.values: Final = slots.values
        self._slots = slots
        self._system_topics = system_topics
        self._lock = threading.Lock()
        self._rpc: dict[tuple[int, int, bool, str], int] = {}
        self._sync = {
            code: slots.find(table.HA_SYNC_RESULT.name, (name,))
            for code, name in SYNC_RESULTS.items()
        }
        self.refused_sends: Final = slots.find(table.REFUSED_SENDS.name, ())
        """The slot of sends that the store refused."""
        self._failed_accepts = slots.find(table.FAILED_ACCEPTS.name, ())
        self.timers: Final = TimerCounts(slots, table.TIMER_DEQUEUE)
        self.transactions: Final = TransactionMetrics(slots)
        self._ack = slots.find(table.HA_ACK_LATENCY.name, (), table.HA_ACK_LATENCY.size)

    # -- messages ------------------------------------------------------------------------------

    def series_in(self, topic: str, message_type: str) -> Series | None:
        """The series for sends to `topic`; None where 5.x has none: retry and dead-letter
        topics."""
        if topic.startswith(_NOT_COUNTED):
            return None
        labels = (topic, message_type, table.flag(self._system_topics.is_system_topic(topic)))
        find = self._slots.find
        return Series(find(table.MESSAGES_IN.name, labels), find(table.THROUGHPUT_IN.name, labels))

    def series_out(self, topic: str, group: str) -> Series | None:
        """The series for pulls of `group` from `topic`; None for retry and dead-letter topics."""
        if topic.startswith(_NOT_COUNTED):
            return None
        system = self._system_topics.is_system_topic(topic) or is_system_group(group)
        labels = (topic, group, table.flag(system))
        find = self._slots.find
        return Series(
            find(table.MESSAGES_OUT.name, labels), find(table.THROUGHPUT_OUT.name, labels)
        )

    def hide_gone(self, topics: Collection[str], groups: Collection[str]) -> None:
        """Hide the series of deleted topics and groups. Cached Series must be dropped before."""
        self.timers.hide_gone(topics)
        self.transactions.hide_gone(topics)
        hide = self._slots.hide
        for metric in (table.MESSAGES_IN, table.THROUGHPUT_IN):
            for labels in self._slots.series(metric.name):
                if labels[0] not in topics:
                    hide(metric.name, labels)
        for metric in (table.MESSAGES_OUT, table.THROUGHPUT_OUT):
            for labels in self._slots.series(metric.name):
                if labels[0] not in topics or labels[1] not in groups:
                    hide(metric.name, labels)

    # -- connections ---------------------------------------------------------------------------

    def accept_failed(self) -> None:
        """Count a connection that could not be accepted; loop thread."""
        self.values[self._failed_accepts] += 1

    # -- responses -------------------------------------------------------------------------------

    def sent(
        self, request_code: int, code: int, elapsed_ms: float, count: int = 1, *, held: bool = False
    ) -> None:
        """Count `count` responses to a code that only the loop answers, each after `elapsed_ms`;
        loop thread. held: they were long polls."""
        key = (request_code, code, held, "success")
        first = self._rpc.get(key)
        if first is None:
            first = self._new_rpc(key)
        self._observe_rpc(first, elapsed_ms, count)
        if request_code in SEND_CODES:
            self._kept.answered(code, elapsed_ms, count, locked=False)

    def dropped(self, request_code: int, code: int, elapsed_ms: float, count: int) -> None:
        """Like `sent`, for oneway requests, which get no response."""
        key = (request_code, code, False, "oneway")
        first = self._rpc.get(key)
        if first is None:
            first = self._new_rpc(key)
        self._observe_rpc(first, elapsed_ms, count)

    def answered(
        self,
        request_code: int,
        code: int,
        elapsed_ms: float,
        *,
        oneway: bool = False,
        count: int = 1,
    ) -> None:
        """Count one response with its own latency: AnswerObserver. Any thread. count: so many, of
        a turn of the loop."""
        key = (request_code, code, False, "oneway" if oneway else "success")
        with self._lock:
            first = self._rpc.get(key)
            if first is None:
                first = self._new_rpc(key)
            self._observe_rpc(first, elapsed_ms, count)
            if request_code in SEND_CODES and not oneway:
                self._kept.answered(code, elapsed_ms, count, locked=True)

    def _new_rpc(self, key: tuple[int, int, bool, str]) -> int:
        """Of a key without slots yet. Codes that nobody knows share one key: a peer can bring as
        many as it likes."""
        if key[0] not in _REQUEST_NAMES:
            key = (_UNKNOWN, *key[1:])
        first = self._rpc.get(key)
        if first is None:
            first = self._rpc[key] = self._find_rpc(key)
        return first

    def _find_rpc(self, key: tuple[int, int, bool, str]) -> int:
        request_code, code, held, result = key
        labels = (
            "remoting",
            _REQUEST_NAMES.get(request_code, "unknown"),
            _RESPONSE_NAMES.get(code, "unknown"),
            table.flag(held),
            result,
        )
        return self._slots.find(table.RPC_LATENCY.name, labels, table.RPC_LATENCY.size)

    def _observe_rpc(self, first: int, elapsed_ms: float, count: int) -> None:
        values = self.values
        values[first + bisect_left(_RPC_BOUNDS, elapsed_ms)] += count
        values[first + len(_RPC_BOUNDS) + 1] += elapsed_ms * count

    # -- durability ----------------------------------------------------------------------------

    def waited(
        self,
        request_code: int | None,
        code: ResponseCode,
        waited_ns: int,
        count: int,
        *,
        acked_ns: int | None,
    ) -> None:
        """Count `count` sends that were answered with `code` after waiting: DurabilityStats."""
        values = self.values
        values[self._sync[code]] += count
        self._kept.waited(code, count)
        if acked_ns is not None:
            seconds = acked_ns / _NS_PER_S
            values[self._ack + bisect_left(_ACK_BOUNDS, seconds)] += count
            values[self._ack + len(_ACK_BOUNDS) + 1] += seconds * count
        if request_code is not None:
            self.sent(request_code, code, waited_ns / 1_000_000, count)
