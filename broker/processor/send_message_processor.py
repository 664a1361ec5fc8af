"""SendMessageProcessor: request codes 10, 310 and 320; the way of every message into the log.

Runs on the loop thread of `remoting`, the log's one writer. A JSON frame of code 310 is decoded
straight from the receive buffer into a typed header; every other form (V1 names, binary headers)
is turned into the same header and takes the same path. Records get their place at once; at the
end of the loop's turn the log publishes them and the answers leave, or wait for the flush and the
replicas (DurabilityWaiters). Delayed messages and halves of transactions are stored elsewhere
first (diverted_messages). Follows SendMessageProcessor of the original for checks, their order,
codes and words (reference: behaviours, section 2).
"""

from __future__ import annotations

import logging
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from broker.append_line import AppendLine
from broker.diverted_messages import (
    Diversion,
    delay_level,
    divert_delayed,
    divert_half,
    is_half,
)
from broker.durability_waiters import DurabilityWaiters, EncodedAnswer, SendAnswer
from broker.hot_path_stats import SendCounts
from broker.processor.consumer_send_msg_back_processor import (
    DLQ_QUEUES,
    LEAST_VERSION_WITH_RECONSUME_LIMIT,
)
from broker.processor.header_numbers import plain_numbers
from broker.processor.send_header import (
    SEND_NUMBERS,
    V1_NAMES,
    V2_NAMES,
    SendHeader,
    decode_send_frame,
)
from broker.send_properties import (
    append_pairs,
    find_property,
    stored_properties,
    without_property,
)
from broker.system_topics import (
    PERM_READ_WRITE,
    RETRY_GROUP_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    dlq_topic,
)
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig
from remoting.connection import FRAME_HEAD, Connection
from remoting.errors import HeaderError, RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.commit_log import CommitLog, Record, TopicLog
from store.errors import StoreError
from store.message_codec import (
    BORN_HOST_V6_FLAG,
    STORE_HOST_V6_FLAG,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Buffer,
    encode_host,
    iterate_batch,
)
from store.message_properties import PROPERTIES_LIMIT

log = logging.getLogger(__name__)

SEND_V2_PREFIX: Final = b'{"code":310,'
_SEND_V2_CODE: Final = int(RequestCode.SEND_MESSAGE_V2)
_FIFO_PROPERTY: Final = "__SHARDINGKEY\x01"
"""What the original's clients set on messages of an order."""
_HOST_BITS: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
_MULTI_TAGS: Final = 0x2
_HALF_QUEUES: Final = 1
_NO_QUEUE_OFFSET: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
_COMMIT_WAITING: Final = 32
"""So many sends that wait for replicas are published without waiting for the turn's end: the
replicas get them while the next ones are read."""
_QUEUE_ID_DIGITS: Final = 10


class SendTopics(Protocol):
    """What is needed of TopicConfigManager."""

    def find(self, topic: str) -> TopicConfig | None:
        """The topic's configuration, None when it does not exist."""

    def prepare_for_send(
        self, topic: str, default_topic: str, queue_nums: int, *, unit_mode: bool, remote: str
    ) -> TopicConfig:
        """Validate, and create where that is allowed. Raises RequestError."""

    def create(
        self, topic: str, queue_nums: int, perm: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Create a topic of the broker's own, or find it; None when that takes too long."""


class SendGroups(Protocol):
    """What is needed of SubscriptionGroupManager."""

    def find_or_create(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration; made with defaults where that is allowed, else None."""


class SendStats(Protocol):
    """Where sends are counted."""

    @property
    def sends(self) -> SendCounts:
        """Where the fast path counts."""

    def add_put(self, topic: str, count: int, size: int, message_type: str = "normal") -> None:
        """`count` messages, `size` bytes of the log, went into `topic`."""

    def add_queue_put(self, topic: str, queue_id: int, size: int) -> None:
        """A message of `size` bytes went into a queue that is counted by itself."""

    def add_answers(self, request_code: int, code: int, count: int = 1) -> None:
        """`count` requests of this turn were answered with `code`."""

    def add_put_failed(self) -> None:
        """The store refused a send."""


class PeerHost:
    """A connection's address as it is stored; kept on the connection."""

    __slots__ = ("host", "sys_flag")

    def __init__(self, host: str, port: int) -> None:
        self.host = encode_host(host, port)
        self.sys_flag = BORN_HOST_V6_FLAG if ":" in host else 0


def _peer_of(connection: Connection) -> PeerHost:
    """The connection's address, worked out with its first send."""
    peer = connection.state
    if not isinstance(peer, PeerHost):
        peer = connection.state = PeerHost(connection.host, connection.port)
    return peer


class _SendTopic:
    """A topic as the hot path sees it; dropped whenever the topic's configuration changes."""

    __slots__ = ("entry", "multi_tags", "queues", "write_queues")

    def __init__(self, config: TopicConfig, entry: TopicLog) -> None:
        self.entry = entry
        self.queues = max(config.read_queue_nums, config.write_queue_nums)
        self.write_queues = max(config.write_queue_nums, 1)
        self.multi_tags = _MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0


@dataclass(frozen=True, slots=True)
class _SendAppend:
    """The records of one send on their way into the log: Append."""

    processor: SendMessageProcessor
    connection: Connection
    request: RemotingCommand
    header: SendHeader
    topic: TopicLog
    records: list[Record]
    message_type: str
    queue_id: int
    """The queue that the answer names; a diverted message is stored in another."""

    def placed(self, places: list[tuple[int, int]]) -> None:
        """See Append."""
        self.processor.on_placed(self, places)

    def refused(self, code: ResponseCode, remark: str) -> None:
        """See Append."""
        self.processor.on_refused(self, code, remark)


class SendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of this processor."""

    broker_name: str
    cluster_name: str
    region_id: str
    trace_on: bool
    max_message_size: int
    start_accept_send_request_timestamp_ms: int
    is_slave: bool
    max_delay_level: int
    reject_transactions: str = ""
    """Why transactional messages are refused; empty: they are not."""


class SendMessageProcessor:
    """Puts messages into the log and answers their senders. Owned by: the remoting loop thread."""

    def __init__(
        self,
        settings: SendSettings,
        commit_log: CommitLog,
        line: AppendLine,
        topics: SendTopics,
        groups: SendGroups,
        waiters: DurabilityWaiters,
        stats: SendStats,
        why_not_writable: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._log = commit_log
        self._line = line
        self._held = line.held
        self._topics_config = topics
        self._groups = groups
        self._waiters = waiters
        self._stats = stats
        self._why_not_writable = why_not_writable
        self._topics: dict[str, _SendTopic] = {}
        self._cluster_pair = f"CLUSTER\x01{settings.cluster_name}"
        self._waiting_puts = 0
        """Sends of this turn that wait for the replicas and are not published yet."""
        self._blocked: set[str] = set()
        self._sends = stats.sends
        self._store_flag = commit_log.store_host_flag
        self._host_hex = commit_log.store_host.hex().upper()
        trace = b"true" if settings.trace_on else b"false"
        region = msgspec.json.encode(settings.region_id)
        self._answer = (
            b'{"code":0,"extFields":{"queueId":"%d","TRACE_ON":"'
            + trace
            + b'","MSG_REGION":'
            + region.replace(b"%", b"%%")
            + b',"msgId":"'
            + self._host_hex.encode()
            + b'%016X","queueOffset":"%d"},"flag":1,"language":"PYTHON","opaque":%d,'
            b'"serializeTypeCurrentRPC":"JSON","version":409}'
        )

    # -- entries -------------------------------------------------------------------------------

    def process_fast(self, connection: Connection, header: memoryview, body: memoryview) -> bool:
        """FastHandler for JSON frames of code 310; False hands the frame to `process_request`,
        which names what is wrong with its header."""
        try:
            frame = decode_send_frame(header)
        except (msgspec.DecodeError, UnicodeError):
            return False
        fields = frame.extFields
        topic = self._topics.get(fields.b)
        if topic is None or fields.m or fields.f & TRANSACTION_MASK or frame.flag or self._held:
            return False
        asked = fields.e
        if len(asked) > _QUEUE_ID_DIGITS or not (asked.isascii() and asked.isdecimal()):
            return False
        queue_id = int(asked)
        if queue_id >= topic.queues:
            return False
        text = fields.i
        if "DELAY\x01" in text or "TRAN_MSG\x01" in text or not self._log.writable:
            return False
        stored = stored_properties(text, self._cluster_pair).encode()
        body_size = len(body)
        if body_size > self._settings.max_message_size or len(stored) > PROPERTIES_LIMIT:
            return False
        peer = connection.state
        if peer.__class__ is not PeerHost:
            peer = _peer_of(connection)
        try:
            phy_offset, queue_offset = self._log.put(
                topic.entry,
                queue_id,
                fields.h,
                fields.f & ~_HOST_BITS | peer.sys_flag | self._store_flag | topic.multi_tags,
                fields.g,
                peer.host,
                fields.j,
                0,
                body,
                stored,
            )
        except (StoreError, struct.error):
            return False
        sends = self._sends
        table = sends.fifo if _FIFO_PROPERTY in text else sends.normal
        counted = table.get(fields.b)
        if counted is None:
            counted = table[fields.b] = [0, 0]
        record_size = self._log.position - phy_offset
        counted[0] += 1
        counted[1] += record_size
        sends.messages += 1
        sends.size += record_size
        answer_bytes = self._answer % (queue_id, phy_offset, queue_offset, frame.opaque)
        size = len(answer_bytes)
        answer_frame = FRAME_HEAD.pack(4 + size, size) + answer_bytes
        if self._waiters.active and (
            "WAIT\x01false" not in text or find_property(text, "WAIT") != "false"
        ):
            self._waiters.add(
                self._log.position, EncodedAnswer(connection, answer_frame), _SEND_V2_CODE
            )
            self._waiting_puts += 1
            if self._waiting_puts >= _COMMIT_WAITING and self._waiters.waits_for_replicas:
                self._waiting_puts = 0
                self._log.commit()
            return True
        sends.answered += 1
        connection.write(answer_frame)
        return True

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Every form of a send. Answers with the send headers, errors included."""
        assert isinstance(connection, Connection)
        try:
            header = self._header(request)
            topic = self._check(connection, request, header)
        except RequestError as error:
            return request.response(error.code, error.remark, self._region())
        return self._store(connection, request, header, topic)

    def on_topics_changed(self) -> None:
        """Forget what was derived from topic configurations; loop thread."""
        self._topics.clear()

    def block_topic(self, topic: str) -> int:
        """Refuse sends to `topic` while its queues are deleted; the log's end. Loop thread."""
        self._blocked.add(topic)
        self._topics.pop(topic, None)
        self._line.refuse_topic(topic, ResponseCode.TOPIC_NOT_EXIST, _being_deleted(topic))
        self._log.commit()
        return self._log.position

    def unblock_topic(self, topic: str, *, deleted: bool) -> None:
        """Take sends to `topic` again; its queues start at 0 when they were deleted."""
        if deleted:
            self._log.forget_topic(topic)
        self._blocked.discard(topic)

    @property
    def holds_sends(self) -> bool:
        """Whether anything waits for the next file."""
        return bool(self._held)

    def turn_end(self) -> None:
        """End of the loop's turn: try held sends, publish. Before the answers leave."""
        if self._held:
            self._line.retry()
        self._log.commit()
        self._waiting_puts = 0

    # -- the general path ----------------------------------------------------------------------

    def _header(self, request: RemotingCommand) -> SendHeader:
        fields: Mapping[str, Any] = request.ext_fields
        if request.code == RequestCode.SEND_MESSAGE:
            fields = {V1_NAMES.get(name, name): value for name, value in fields.items()}
        for name in "abcdefgh":
            if name not in fields:
                raise HeaderError("SendMessageRequestHeader", V2_NAMES[name], "is missing")
        known = {name: value for name, value in fields.items() if name in V2_NAMES}
        fields = plain_numbers("SendMessageRequestHeader", known, SEND_NUMBERS, shown=V2_NAMES)
        try:
            return msgspec.convert(fields, SendHeader, strict=False)
        except msgspec.ValidationError as error:
            field = str(error).rpartition("$.")[2].strip("`")
            name = V2_NAMES.get(field, field)
            raise HeaderError("SendMessageRequestHeader", name, str(error)) from error

    def _check(
        self, connection: Connection, request: RemotingCommand, header: SendHeader
    ) -> _SendTopic:
        """The checks of the original, in its order (reference: behaviours, section 2)."""
        accepts_from_ms = self._settings.start_accept_send_request_timestamp_ms
        if self._log.now_ms < accepts_from_ms:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {accepts_from_ms}"
            )
        if header.b in self._blocked:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, _being_deleted(header.b))
        topic = self._topics.get(header.b)
        if topic is None:
            config = self._topics_config.prepare_for_send(
                header.b,
                header.c,
                header.d,
                unit_mode=header.k,
                remote=connection.remote_address,
            )
            topic = _SendTopic(config, self._log.topic(header.b))
            if not header.b.startswith(RETRY_GROUP_TOPIC_PREFIX):
                # Those stay off the fast path, which looks at no group.
                self._topics[header.b] = topic
        if int(header.e) >= topic.queues:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.e}] is illegal, topic {header.b} has "
                f"{topic.queues} queues, producer {connection.remote_address}",
            )
        self._check_kind(header)
        self._check_store()
        self._check_sizes(header, len(request.body))
        return topic

    @staticmethod
    def _check_kind(header: SendHeader) -> None:
        if header.m and (header.f & TRANSACTION_MASK or is_half(header.i)):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, "a batch cannot hold transactional messages"
            )
        if header.f & TRANSACTION_MASK in _NO_QUEUE_OFFSET and not is_half(header.i):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: sysFlag {header.f} says that it belongs to a "
                "transaction, but it has no property TRAN_MSG=true: nobody could ever consume it",
            )

    def _check_sizes(self, header: SendHeader, body_size: int) -> None:
        limit = self._settings.max_message_size
        if body_size > limit:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: body of {body_size} bytes (maxMessageSize {limit})",
            )
        if header.m and len(header.i) > PROPERTIES_LIMIT:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the message is illegal: properties of {len(header.i)} characters "
                f"(limit {PROPERTIES_LIMIT})",
            )

    def _check_store(self) -> None:
        if self._settings.is_slave:
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave: send to its master"
            )
        if not self._log.writable:
            self._stats.add_put_failed()
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, self._why_not_writable())

    def _store(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: SendHeader,
        topic: _SendTopic,
    ) -> RemotingCommand | None:
        asked = int(header.e)
        queue_id = asked if asked >= 0 else random.randrange(topic.write_queues)
        try:
            if header.b.startswith(RETRY_GROUP_TOPIC_PREFIX):
                topic, queue_id = self._retry_or_dlq(request, header, topic, queue_id)
            append = self._append(connection, request, header, topic, queue_id)
        except RequestError as error:
            return request.response(error.code, error.remark, self._region())
        except StoreError as error:
            return request.response(ResponseCode.MESSAGE_ILLEGAL, str(error), self._region())
        self._line.append(append)
        return None

    def _retry_or_dlq(
        self, request: RemotingCommand, header: SendHeader, topic: _SendTopic, queue_id: int
    ) -> tuple[_SendTopic, int]:
        """A consumer sends a message to its group's retry topic itself (when 36 failed it)."""
        group = header.b.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        config = self._groups.find_or_create(group)
        if config is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}"
            )
        limit = config.retry_max_times
        if header.l is not None and request.version >= LEAST_VERSION_WITH_RECONSUME_LIMIT:
            limit = header.l
        if header.j < limit:
            return topic, queue_id
        # Its time is over: no delay any more (5.x; 4.9.8 still waits the level out).
        header.i = without_property(header.i, "DELAY")
        return self._own_topic(dlq_topic(group), DLQ_QUEUES), 0

    def _own_topic(self, name: str, queue_nums: int) -> _SendTopic:
        config = self._topics_config.create(name, queue_nums, PERM_READ_WRITE)
        if config is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
        return _SendTopic(config, self._log.topic(name))

    def _append(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: SendHeader,
        topic: _SendTopic,
        queue_id: int,
    ) -> _SendAppend:
        message_type = "fifo" if _FIFO_PROPERTY in header.i else "normal"
        entry = topic.entry
        if header.m:
            records = self._batch(connection, request, header, topic, queue_id)
        else:
            sys_flag = self._sys_flag(connection, header, topic)
            diversion = self._divert(header, entry.name, queue_id, sys_flag)
            if diversion is None:
                text = stored_properties(header.i, self._cluster_pair)
                plain = Diversion(entry.name, queue_id, sys_flag, text)
                records = [_record(connection, header, plain, header.h, request.body)]
            else:
                message_type = "delay" if diversion.topic == SCHEDULE_TOPIC else "transaction"
                entry = self._log.topic(diversion.topic)
                records = [_record(connection, header, diversion, header.h, request.body)]
        return _SendAppend(
            self, connection, request, header, entry, records, message_type, queue_id
        )

    def _divert(
        self, header: SendHeader, topic: str, queue_id: int, sys_flag: int
    ) -> Diversion | None:
        """Where a delayed message or a half goes first; WAIT stays in its properties."""
        half = is_half(header.i)
        level = 0 if half else delay_level(header.i, sys_flag, self._settings.max_delay_level)
        if not half and not level:
            return None
        text = append_pairs(without_property(header.i, "CLUSTER"), self._cluster_pair)
        if not half:
            return divert_delayed(topic, queue_id, sys_flag, text, level)
        if self._settings.reject_transactions:
            raise RequestError(ResponseCode.NO_PERMISSION, self._settings.reject_transactions)
        self._own_topic(TRANS_HALF_TOPIC, _HALF_QUEUES)
        return divert_half(topic, queue_id, sys_flag, text)

    def _sys_flag(self, connection: Connection, header: SendHeader, topic: _SendTopic) -> int:
        peer = _peer_of(connection)
        return header.f & ~_HOST_BITS | peer.sys_flag | self._store_flag | topic.multi_tags

    def on_placed(self, send: _SendAppend, places: list[tuple[int, int]]) -> None:
        """The records of a send have their places: count, and answer now or when they are safe."""
        size = self._log.position - places[0][0]
        self._stats.add_put(send.topic.name, len(send.records), size, send.message_type)
        if send.message_type == "delay":
            self._stats.add_queue_put(send.topic.name, send.records[0].queue_id, size)
        answer = self._answer_placed(send, places)
        if answer is not None:
            self._stats.add_answers(send.request.code, ResponseCode.SUCCESS)
            send.connection.send_command(answer)

    def on_refused(self, send: _SendAppend, code: ResponseCode, remark: str) -> None:
        """Nothing of a send was stored."""
        if code is ResponseCode.SERVICE_NOT_AVAILABLE:
            self._stats.add_put_failed()
        if not send.request.is_oneway:
            answer = send.request.response(code, remark, self._region())
            self._stats.add_answers(send.request.code, code)
            send.connection.send_command(answer)

    def _answer_placed(
        self, send: _SendAppend, places: list[tuple[int, int]]
    ) -> RemotingCommand | None:
        request = send.request
        if request.is_oneway:
            return None
        ids = ",".join(self._message_id(phy_offset) for phy_offset, _ in places)
        fields = self._fields(send.queue_id, places[0][1], ids)
        waits = find_property(send.header.i, "WAIT") != "false"
        if self._waiters.active and waits:
            answer = SendAnswer(send.connection, request.opaque, request.serialize_type, fields)
            self._waiters.add(self._log.position, answer, request.code)
            return None
        return request.response(ResponseCode.SUCCESS, None, fields)

    def _batch(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: SendHeader,
        topic: _SendTopic,
        queue_id: int,
    ) -> list[Record]:
        sys_flag = self._sys_flag(connection, header, topic)
        common = append_pairs(header.i, self._cluster_pair)
        if delay_level(header.i, sys_flag, self._settings.max_delay_level):
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot hold delayed messages")
        records: list[Record] = []
        for item in iterate_batch(request.body):
            text = _text_of(item.properties)
            if find_property(text, "DELAY") not in (None, "", "0"):
                raise RequestError(
                    ResponseCode.MESSAGE_ILLEGAL, "a batch cannot hold delayed messages"
                )
            place = Diversion(topic.entry.name, queue_id, sys_flag, append_pairs(text, common))
            records.append(_record(connection, header, place, item.flag, item.body))
        if not records:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
        return records

    # -- answers -------------------------------------------------------------------------------

    def _message_id(self, phy_offset: int) -> str:
        return f"{self._host_hex}{phy_offset:016X}"

    def _region(self) -> dict[str, str]:
        trace = "true" if self._settings.trace_on else "false"
        return {"TRACE_ON": trace, "MSG_REGION": self._settings.region_id}

    def _fields(self, queue_id: int, queue_offset: int, message_id: str) -> dict[str, str]:
        return {
            "queueId": str(queue_id),
            **self._region(),
            "msgId": message_id,
            "queueOffset": str(queue_offset),
        }


def _record(
    connection: Connection, header: SendHeader, place: Diversion, flag: int, body: Buffer
) -> Record:
    properties = place.properties.encode()
    if len(properties) > PROPERTIES_LIMIT:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: properties of {len(properties)} bytes "
            f"(limit {PROPERTIES_LIMIT})",
        )
    return Record(
        queue_id=place.queue_id,
        flag=_int32(flag, "flag"),
        sys_flag=_int32(place.sys_flag, "sysFlag"),
        born_timestamp=_int64(header.g, "bornTimestamp"),
        born_host=_peer_of(connection).host,
        reconsume_times=_int32(header.j, "reconsumeTimes"),
        prepared_transaction_offset=0,
        body=body,
        properties=properties,
    )


def _being_deleted(topic: str) -> str:
    return f"topic[{topic}] is being deleted"


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
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{name} {value} is no 32-bit integer")
    return value


def _int64(value: int, name: str) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{name} {value} is no 64-bit integer")
    return value
