"""QueueSender: sends a task's messages, in batches, with retries; at least once.

Executors; owned by one task. One request is in flight: a batch for one queue, so that messages of a
shard keep their order, and of what is not answered it is known which rows it holds. A message
without a shard goes to another broker when its own fails; one with a shard waits for its queue's
broker, as in a failover. What cannot be stored within `retryMs` is an error that names the row.

Tested by tests/spark/sources/test_queue_sender.py.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from remoting.body.message_queue import MessageQueue
from remoting.errors import RemotingError
from remoting.headers.send_message import SendMessageRequestHeaderV2
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from spark.sources.cluster import Cluster, refusal
from spark.sources.errors import NoRightError, NoTopicError
from spark.sources.outgoing import RETRY_PREFIX, OutgoingRow, RowError, check_size
from spark.sources.patience import Patience
from store.batch_codec import encode_item
from store.java_hash import string_hash
from tools.errors import BrokerAnswerError
from tools.message_decoder import UNIQ_KEY, encode_properties
from tools.message_sender import (
    DEFAULT_QUEUES,
    SEND_STATUS,
    TEMPLATE_TOPIC,
    UniqueKeys,
    writable_queues,
)

SEND_BYTES: Final = 256 << 10
MOST_SEND_BYTES: Final = 4 << 20
MOST_MESSAGES: Final = 1000
"""Of a batch."""
AVOIDED_S: Final = 5.0
"""A broker that failed gets no messages of no shard for so long, if there are others."""
_PENDING_BATCHES: Final = 16
"""So many batches' bytes may wait to be full, before all are sent."""
_ROW_BYTES: Final = 200
_WAIT: Final = "WAIT"
_FINAL: Final = frozenset(
    {
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)
"""Another try would be answered the same."""
_FORBIDDEN: Final = "forbidden"
"""In a NO_PERMISSION that is of a broker that takes no messages now, not of an account."""
_OF_SYSTEM: Final = "Sending message to topic["
"""How brokers begin to refuse a system topic, which is for ever."""


@dataclass(frozen=True, slots=True)
class SendRules:
    """Picklable. accept_degraded: stored by a master alone, or not yet on disk, is stored."""

    group: str
    send_bytes: int = SEND_BYTES
    accept_degraded: bool = False


@dataclass(slots=True)
class _Pending:
    rows: list[OutgoingRow] = field(default_factory=list)
    items: list[bytes] = field(default_factory=list)
    size: int = 0


class QueueSender:
    """See the module. `sent`: messages that are stored; `degraded`: those of them that were not
    as safe as their broker is told to make them."""

    def __init__(self, cluster: Cluster, rules: SendRules) -> None:
        self._cluster = cluster
        self._rules = rules
        self._keys = UniqueKeys(cluster.admin.now_ms())
        self._turn = itertools.count(time.monotonic_ns())
        self._pending: dict[tuple[str, MessageQueue | None], _Pending] = {}
        self._waiting = 0
        self._avoided: dict[str, float] = {}
        """Until when (monotonic), by broker name."""
        self._shard_queues: dict[str, list[MessageQueue]] = {}
        self._send_bytes = rules.send_bytes
        self.sent = 0
        self.degraded = 0

    def put(self, row: OutgoingRow) -> None:
        """Send a row, or keep it for a batch. SourceError."""
        row.properties[UNIQ_KEY] = self._keys.next_key(self._cluster.admin.now_ms())
        row.properties[_WAIT] = "true"
        raw = check_size(row)
        queue = None if row.shard is None else self._queue_of(row.topic, row.shard)
        key = (row.topic, queue)
        if row.is_delayed or row.topic.startswith(RETRY_PREFIX):
            self._send_pending(key)
            self._send(row.topic, queue, [row], [])
            return
        pending = self._pending.setdefault(key, _Pending())
        item = encode_item(row.flag, row.body, raw)
        is_full = pending.size + len(item) > self._send_bytes or len(pending.rows) >= MOST_MESSAGES
        if pending.rows and is_full:
            self._send_pending(key)
            pending = self._pending.setdefault(key, _Pending())
        pending.rows.append(row)
        pending.items.append(item)
        pending.size += len(item)
        self._waiting += len(item) + _ROW_BYTES
        if self._waiting > _PENDING_BATCHES * self._rules.send_bytes:
            self.flush()

    def flush(self) -> None:
        """Send what is kept. SourceError."""
        for key in list(self._pending):
            self._send_pending(key)

    def _send_pending(self, key: tuple[str, MessageQueue | None]) -> None:
        pending = self._pending.pop(key, None)
        if pending is not None:
            self._waiting -= pending.size + _ROW_BYTES * len(pending.rows)
            self._send(*key, pending.rows, pending.items)

    # -- queues --------------------------------------------------------------------------------

    def _queues(self, topic: str) -> list[MessageQueue]:
        found = list(writable_queues(self._cluster.route(topic), topic, None))
        if not found:
            self._cluster.refresh(topic)
            found = list(writable_queues(self._cluster.route(topic), topic, None))
        return found

    def _queue_of(self, topic: str, shard: str) -> MessageQueue:
        """As RocketMQ's SelectMessageQueueByHash has it for the text: its producers and this one
        agree. All queues of the route count, also while a master is missing, and they stay those
        of the task's start."""
        queues = self._shard_queues.get(topic)
        if queues is None:
            route = self._cluster.route(topic)
            queues = list(writable_queues(route, topic, None, all_brokers=True))
            if not queues:
                raise NoTopicError(f"topic {topic} has no queue that may be written")
            self._shard_queues[topic] = queues
        return queues[abs(string_hash(shard)) % len(queues)]

    def _next_queue(self, topic: str) -> MessageQueue | None:
        """The queues in turn; those of brokers that have lately failed only when there are no
        others."""
        queues = self._queues(topic)
        now_s = time.monotonic()
        others = [each for each in queues if self._avoided.get(each.broker_name, 0.0) <= now_s]
        chosen = others or queues
        return chosen[next(self._turn) % len(chosen)] if chosen else None

    # -- sending -------------------------------------------------------------------------------

    def _send(
        self,
        topic: str,
        shard_queue: MessageQueue | None,
        rows: Sequence[OutgoingRow],
        items: Sequence[bytes],
    ) -> None:
        retry_ms = self._cluster.connection.retry_ms
        patience = Patience(retry_ms, self._cluster.pause)
        failed: set[str] = set()
        failure: str | None = None
        while True:
            queue = shard_queue or self._next_queue(topic)
            name = "" if queue is None else queue.broker_name
            if name in failed:
                if not patience.wait():
                    raise RowError(
                        f"{_named(rows)}: not stored for {retry_ms} ms (option retryMs): {failure}"
                    )
                self._cluster.refresh(topic)
            try:
                failure = self._try(queue, rows, items)
            except BrokerAnswerError as error:
                if self._is_final(error):
                    self._refused(error, topic, shard_queue, rows, items)
                    return
                failure = str(error)
            except RemotingError as error:
                failure = str(error)
            if failure is None:
                return
            failed.add(name)
            self._avoided[name] = time.monotonic() + AVOIDED_S

    def _is_final(self, error: BrokerAnswerError) -> bool:
        if error.code == ResponseCode.NO_PERMISSION and _FORBIDDEN in error.remark.lower():
            return error.remark.startswith(_OF_SYSTEM)
        is_right = isinstance(refusal(error, "", self._cluster.connection), NoRightError)
        return error.code in _FINAL or is_right

    def _refused(
        self,
        error: BrokerAnswerError,
        topic: str,
        shard_queue: MessageQueue | None,
        rows: Sequence[OutgoingRow],
        items: Sequence[bytes],
    ) -> None:
        """One of a batch may be at fault, or the batch is too long: each is sent alone."""
        if error.remark.startswith(_OF_SYSTEM):
            raise RowError(f"{_named(rows)}: {error} Only brokers write to it") from None
        told = refusal(error, _named(rows), self._cluster.connection)
        if isinstance(told, NoRightError) or len(rows) == 1:
            raise told if isinstance(told, NoRightError) else RowError(str(told)) from None
        for row in rows:
            self._send(topic, shard_queue, [row], [])
        self._send_bytes = max(sum(map(len, items)) // 2, 1)

    def _try(
        self, queue: MessageQueue | None, rows: Sequence[OutgoingRow], items: Sequence[bytes]
    ) -> str | None:
        """One attempt; why it counts as none, None: stored. BrokerAnswerError, RemotingError."""
        if queue is None:
            return "no master of the topic is known"
        members = self._cluster.members(queue.topic, queue.broker_name)
        master = next((address for address, is_master in members if is_master), None)
        if master is None:
            return f"broker {queue.broker_name} has no master"
        header, code, body = self._request(queue, rows, items)
        response = self._cluster.admin.call(
            master,
            code,
            header,
            body,
            accept=SEND_STATUS,
            timeout_ms=self._cluster.connection.timeout_ms,
        )
        if response.code != ResponseCode.SUCCESS:
            if not self._rules.accept_degraded:
                status = SEND_STATUS[ResponseCode(response.code)]
                return (
                    f"{master} answered {status}: stored, but not as safely as its settings ask "
                    "(acceptDegraded=true takes that as stored)"
                )
            self.degraded += len(rows)
        self.sent += len(rows)
        return None

    def _request(
        self, queue: MessageQueue, rows: Sequence[OutgoingRow], items: Sequence[bytes]
    ) -> tuple[SendMessageRequestHeaderV2, RequestCode, bytes]:
        row = rows[0]
        properties = row.properties
        if is_batch := len(items) > 0:
            key = self._keys.next_key(self._cluster.admin.now_ms())
            properties = {UNIQ_KEY: key, _WAIT: "true"}
        header = SendMessageRequestHeaderV2(
            producer_group=self._rules.group,
            topic=queue.topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_nums=DEFAULT_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=self._cluster.admin.now_ms(),
            flag=0 if is_batch else row.flag,
            properties=encode_properties(properties),
            reconsume_times=0,
            batch=is_batch,
            bname=queue.broker_name,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        return header, code, b"".join(items) if is_batch else row.body


def _named(rows: Sequence[OutgoingRow]) -> str:
    more = f" to row {rows[-1].number}" if len(rows) > 1 else ""
    return f"{rows[0]}{more}"
