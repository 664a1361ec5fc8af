"""SendRecords: builds the records of a send on the general path.

Used by SendMessageProcessor on the loop thread of `remoting`. Turns a validated send into records
of one topic: a message without retries left goes to the dead-letter queue, a delayed, timer or half
message to a system topic first, and a batch becomes one record per message, or one for all of them
in a topic with batch consume queues. It appends nothing to the log. Follows handleRetryAndDLQ and
sendMessage of RocketMQ's SendMessageProcessor.

Tested by tests/broker/send/test_send_message_processor.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from broker.append.admitted_properties import admitted_properties
from broker.append.diverted_messages import (
    Diversion,
    without_timer,
)
from broker.append.send_properties import (
    append_pairs,
    common_properties,
    find_property,
    find_unique_key,
    stored_properties,
    without_property,
)
from broker.send.lite_sends import with_lite_queue
from broker.send.mapped_send import MappedSend
from broker.send.marks import FIFO, marks_of, message_type
from broker.send.placement import Placement
from broker.send.rewrites import Sent, rewritten
from broker.send.rules import (
    BATCH,
    BATCH_GROWTH,
    ITEM,
    SINGLE,
    Checked,
    SendRules,
    check_light_room,
)
from broker.send.send_header import LEAST_VERSION_WITH_RECONSUME_LIMIT, SendHeader
from broker.send.send_topic import HOST_BITS, PeerHost, SendTopic, TopicNature
from broker.topic.system_topics import (
    DLQ_QUEUES,
    RETRY_GROUP_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    dlq_topic,
)
from broker.topic.table_protocols import FindGroup
from remoting.connection import Connection
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from store.batch_codec import (
    MOST_BATCH_MESSAGES,
    BatchItem,
    count_batch,
    encode_item,
    iterate_batch,
)
from store.commit_log import CommitLog, TopicLog
from store.inner_batch import (
    INNER_BATCH_FLAG,
    LARGEST_BASE_PAIR,
    MOST_INNER_MESSAGES,
    NEED_UNWRAP_FLAG,
    inner_num,
    prepare_inner_batch,
)
from store.message_codec import (
    Buffer,
    fixed_size,
)
from store.message_properties import PROPERTIES_LIMIT
from store.record import Record

_HALF_QUEUES: Final = 1
_DELAYED: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)


@dataclass(frozen=True, slots=True)
class StoredSend:
    """Records of one topic, and the queue for the response (a diverted message is stored in another
    one)."""

    topic: TopicLog
    records: list[Record]
    message_type: str
    queue_id: int
    messages: int = 1
    """How many messages the records hold."""
    batch_uniq_id: str = ""
    """The client's id of a batch that is one record."""

    @property
    def batch_fields(self) -> dict[str, str]:
        """What the answer says beside its usual fields."""
        return {"batchUniqId": self.batch_uniq_id} if self.batch_uniq_id else {}


class SendRecords:
    """See the module. Owned by: the remoting loop thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        find_group: FindGroup,
        rules: SendRules,
        placement: Placement,
        *,
        cluster_pair: str,
        batch_limit: int,
        lmq_quota: bool = False,
    ) -> None:
        """cluster_pair: the property CLUSTER with its value. batch_limit: bytes that the records of
        one batch may take. lmq_quota: enableLmqQuota."""
        self._log = commit_log
        self._find_group = find_group
        self._rules = rules
        self._placement = placement
        self._cluster_pair = cluster_pair
        self._batch_limit = batch_limit
        self._lmq_quota = lmq_quota

    def of(
        self,
        request: RemotingCommand,
        header: SendHeader,
        topic: SendTopic,
        connection: Connection,
        mapped: MappedSend | None,
    ) -> StoredSend:
        """Build the records for `request`. mapped: of a static topic, whose logic queues may lie
        with other brokers: none is taken for another. Raises RequestError and StoreError; may
        modify the header."""
        asked = int(header.e)
        queue_id = asked if asked >= 0 else random.randrange(topic.write_queues)
        if header.b.startswith(RETRY_GROUP_TOPIC_PREFIX):
            # First of all: the rules are those of the topic that the message goes to.
            topic, queue_id = self._retry_or_dlq(request, header, topic, queue_id)
        kind = BATCH if header.is_batch else SINGLE
        if kind == SINGLE:
            sent = Sent(header.i, queue_id, topic.entry.name, topic.write_queues, mapped is None)
            header.i, queue_id, *_ = rewritten(sent)
        self._rules.check(Checked(kind, header.i, header.f, topic.nature))
        if self._log.lmq is not None and kind == SINGLE:
            header.i = with_lite_queue(header.i, header.b)
        stored = self._stored(request, header, topic, queue_id, PeerHost.of(connection))
        all_properties = (record.properties for record in stored.records)
        check_light_room(self._log.lmq, stored.topic.name, all_properties, is_quota=self._lmq_quota)
        return stored

    def _stored(
        self,
        request: RemotingCommand,
        header: SendHeader,
        topic: SendTopic,
        queue_id: int,
        peer: PeerHost,
    ) -> StoredSend:
        sys_flag = self._sys_flag(header, topic, peer)
        marks = marks_of(header.i)
        counted_as = message_type(marks & FIFO if header.is_batch else marks)
        place = Diversion(topic.entry.name, queue_id, sys_flag, "")
        if header.is_batch and topic.nature.batch_queues and (key := find_unique_key(header.i)):
            record, messages = self._inner_batch(request, header, place, peer, topic.nature)
            return StoredSend(topic.entry, [record], counted_as, queue_id, messages, key)
        if header.is_batch:
            records = self._batch(request, header, place, peer, topic.nature)
            return StoredSend(topic.entry, records, counted_as, queue_id, len(records))
        diversion = self._placement.divert(header.i, place)
        if diversion is None:
            body: Buffer = request.body
            if sys_flag & INNER_BATCH_FLAG:
                body = self._counted_body(request, header, sys_flag, topic.nature)
            place = place._replace(properties=stored_properties(header.i, self._cluster_pair))
            record = _record(header, place, peer, header.h, body)
            return StoredSend(topic.entry, [record], counted_as, queue_id)
        counted_as = "delay" if diversion.topic in _DELAYED else "transaction"
        record = _record(header, diversion, peer, header.h, request.body)
        return StoredSend(self._log.topic(diversion.topic), [record], counted_as, queue_id)

    def _retry_or_dlq(
        self, request: RemotingCommand, header: SendHeader, topic: SendTopic, queue_id: int
    ) -> tuple[SendTopic, int]:
        """A consumer sends a message to its group's retry topic itself (if 36 failed)."""
        group = header.b.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        config = self._find_group(group)
        if config is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}"
            )
        limit = config.retry_max_times
        if header.l is not UNSET and request.version >= LEAST_VERSION_WITH_RECONSUME_LIMIT:
            limit = header.l
        if header.j < limit:
            return topic, queue_id
        # No delay before the dead-letter queue (as in 5.x; 4.9.8 still applies the level).
        header.i = without_timer(without_property(header.i, "DELAY"))
        return self._placement.own_topic(dlq_topic(group), DLQ_QUEUES), 0

    def _sys_flag(self, header: SendHeader, topic: SendTopic, peer: PeerHost) -> int:
        store_flag = self._log.store_host_flag
        return header.f & ~HOST_BITS | peer.sys_flag | store_flag | topic.multi_tags

    def _batch(
        self,
        request: RemotingCommand,
        header: SendHeader,
        place: Diversion,
        peer: PeerHost,
        nature: TopicNature,
    ) -> list[Record]:
        common = common_properties(header.i, self._cluster_pair)
        self._check_growth(request.body, place, len(common.encode()))
        shared = _record(header, place, peer, 0, b"", common)
        records: list[Record] = []
        for item, text in self._items(request, header.i, nature):
            properties = _properties_of(append_pairs(text, common), place.sys_flag)
            own = replace(shared, flag=item.flag, body=item.body, properties=properties)
            records.append(own)
        return records

    def _check_growth(self, body: Buffer, place: Diversion, common_size: int) -> None:
        """What the records of a batch will take, before any of them is made. Raises
        RequestError."""
        number = count_batch(body)
        own_size = fixed_size(place.sys_flag) + len(place.topic.encode()) + common_size
        if number > MOST_BATCH_MESSAGES:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: a batch of {number} messages (limit "
                f"{MOST_BATCH_MESSAGES}): send smaller batches",
            )
        total = number * own_size + len(body)
        if total > self._batch_limit:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: a batch of {number} messages that takes {total} bytes "
                f"with {common_size} bytes of common properties for each (limit "
                f"{self._batch_limit}, {BATCH_GROWTH} times maxMessageSize): send smaller batches, "
                "or shorter common properties",
            )

    def _inner_batch(
        self,
        request: RemotingCommand,
        header: SendHeader,
        place: Diversion,
        peer: PeerHost,
        nature: TopicNature,
    ) -> tuple[Record, int]:
        """A batch for a topic with batch consume queues: one record, and how many messages it
        holds."""
        number, body = self._inner_body(request, header, nature)
        if number > MOST_INNER_MESSAGES:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: a batch of {number} messages (limit "
                f"{MOST_INNER_MESSAGES} in a topic with queue.type BatchCQ)",
            )
        text = without_property(without_property(header.i, "INNER_BASE"), "INNER_NUM")
        text = append_pairs(text, f"{self._cluster_pair}\x02INNER_NUM\x01{number}")
        sys_flag = place.sys_flag | NEED_UNWRAP_FLAG | INNER_BATCH_FLAG
        own = place._replace(sys_flag=sys_flag, properties=text)
        return _record(header, own, peer, header.h, body), number

    def _inner_body(
        self, request: RemotingCommand, header: SendHeader, nature: TopicNature
    ) -> tuple[int, Buffer]:
        """How many messages a batch holds, and its bytes, without reserved properties."""
        items = [(item, text.encode()) for item, text in self._items(request, header.i, nature)]
        if all(item.properties == properties for item, properties in items):
            return len(items), request.body
        pieces = [encode_item(item.flag, item.body, properties) for item, properties in items]
        return len(items), b"".join(pieces)

    def _counted_body(
        self, request: RemotingCommand, header: SendHeader, sys_flag: int, nature: TopicNature
    ) -> Buffer:
        """The body of an inner batch that a client has made itself. Raises RequestError where its
        INNER_NUM, 1 without it, is not how many messages it holds: it would take other queue
        offsets."""
        properties = prepare_inner_batch(header.i.encode())
        number, body = self._inner_body(request, header, nature)
        # As the log's writer reads it, which passes over an empty one.
        said = inner_num(sys_flag, properties)
        if said != number:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: its property INNER_NUM is {said}, it holds {number} "
                "messages",
            )
        return body

    def _items(
        self, request: RemotingCommand, common: str, nature: TopicNature
    ) -> Iterator[tuple[BatchItem, str]]:
        """The messages of a batch with their properties, at least one. Raises RequestError,
        MessageIllegalError."""
        common_keys = find_property(common, "KEYS") if nature.needs_keys else None
        is_empty = True
        for item in iterate_batch(request.body):
            is_empty = False
            text = admitted_properties(_text_of(item.properties))
            self._rules.check(Checked(ITEM, text, 0, nature, common_keys))
            yield item, text
        if is_empty:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")


def _record(
    header: SendHeader,
    place: Diversion,
    peer: PeerHost,
    flag: int,
    body: Buffer,
    text: str | None = None,
) -> Record:
    """text: the properties, if they are not those of `place`."""
    return Record(
        queue_id=place.queue_id,
        flag=_int32(flag, "flag"),
        sys_flag=_int32(place.sys_flag, "sysFlag"),
        born_timestamp=_int64(header.g, "bornTimestamp"),
        born_host=peer.host,
        reconsume_times=_int32(header.j, "reconsumeTimes"),
        prepared_transaction_offset=0,
        body=body,
        properties=_properties_of(place.properties if text is None else text, place.sys_flag),
    )


def _properties_of(text: str, sys_flag: int) -> bytes:
    """Of one record, as they are stored. Raises RequestError: they are too large, with what the
    log's writer adds to an inner batch."""
    properties = text.encode()
    size = len(properties)
    if sys_flag & INNER_BATCH_FLAG:
        properties = prepare_inner_batch(properties)
        size = len(properties) + LARGEST_BASE_PAIR
    if size > PROPERTIES_LIMIT:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: properties of {size} bytes (limit {PROPERTIES_LIMIT})",
        )
    return properties


def _text_of(properties: Buffer) -> str:
    try:
        return str(properties, "utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: properties of a batch item: {error.reason}",
        ) from error


def _int32(value: int, name: str) -> int:
    if not -(1 << 31) <= value < 1 << 31:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{name} {value} is not a 32-bit integer")
    return value


def _int64(value: int, name: str) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{name} {value} is not a 64-bit integer")
    return value
