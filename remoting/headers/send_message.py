"""Headers of sending: 10, 310, 320, 36, 324, 325, 326, 370 and their answers.

Pure data, any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64, RpcRequestHeader

MSG_REGION: Final = "MSG_REGION"
"""Ext field of every send answer: the broker's regionId."""

TRACE_SWITCH: Final = "TRACE_ON"
"""Ext field of every send answer: "true" when the client should send traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageRequestHeaderV2(RpcRequestHeader):
    """SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320), as our own clients send them.

    A negative queue_id lets the broker choose; `batch`, not the code, says that the body holds
    several messages. What a broker reads: broker/send/send_header.py.
    """

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "producer_group": "a",
        "topic": "b",
        "default_topic": "c",
        "default_topic_queue_nums": "d",
        "queue_id": "e",
        "sys_flag": "f",
        "born_timestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsume_times": "j",
        "unit_mode": "k",
        "max_reconsume_times": "l",
        "batch": "m",
        "bname": "n",
    }

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageResponseHeader(CommandCustomHeader):
    """Answer to every send; MSG_REGION and TRACE_ON go beside it, on errors too.

    Java clients need the first three for codes 0, 10, 11, 12. The last three are 5.x.
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSendMsgBackRequestHeader(RpcRequestHeader):
    """CONSUMER_SEND_MSG_BACK (36). `offset` is the physical offset in the commit log."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessageRequestHeader(RpcRequestHeader):
    """RECALL_MESSAGE (370, 5.3.2 on). `recall_handle` is from the answer to the send."""

    topic: str
    recall_handle: str | None = None
    producer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessageResponseHeader(CommandCustomHeader):
    """Answer to 370: the UNIQ_KEY of the message; MSG_REGION goes beside it."""

    msg_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyMessageRequestHeader(CommandCustomHeader):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), broker to client; hosts as "ip:port"."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64
