"""ExtraInfoUtil: handles of popped messages, and the offset lists of an answer to 200050.

Pure text, any thread (Java: ExtraInfoUtil). A handle (`extraInfo`, property POP_CK) is eight parts
separated by one space:

    ckQueueOffset popTime invisibleTime reviveQid retryFlag brokerName queueId msgQueueOffset

Times in ms; ckQueueOffset is the start offset of the pop in its queue; retryFlag 0: the topic
itself, 1: the V1 retry topic, 2: the V2 one. A proxy adds the message's commit log offset. Lists in
an answer are items joined by ";" (`retryFlag queueId …`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from remoting.key_builder import (
    POP_ORDER_REVIVE_QUEUE,
    RETRY_PREFIX,
    is_pop_retry_topic_v2,
    pop_retry_topic_v1,
    pop_retry_topic_v2,
)

NORMAL_TOPIC: Final = "0"
RETRY_TOPIC: Final = "1"
RETRY_TOPIC_V2: Final = "2"
_ALWAYS_FITS: Final = {31: 10, 63: 19}
"""Characters, by the bits of the number: one of fewer digits is one in Java; acks are on the hot
path."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


class ExtraInfo(NamedTuple):
    """A handle as a broker reads it."""

    ck_queue_offset: int
    pop_time_ms: int
    invisible_time_ms: int
    revive_queue_id: int
    retry: str
    broker_name: str

    @property
    def is_order(self) -> bool:
        """Whether it is of an ordered pop."""
        return self.revive_queue_id == POP_ORDER_REVIVE_QUEUE

    def real_topic(self, topic: str, group: str) -> str:
        """Where the message is: the asked topic, or the group's retry topic (any unknown flag: the
        topic itself, as in Java)."""
        if self.retry == RETRY_TOPIC:
            return pop_retry_topic_v1(topic, group)
        if self.retry == RETRY_TOPIC_V2:
            return pop_retry_topic_v2(topic, group)
        return topic


def parse_extra_info(text: str) -> ExtraInfo:
    """Parts 1 to 6; the retry flag is "" and the broker's name "" if they are missing, as a
    broker of RocketMQ needs them only in some places. Raises ValueError in Java's words."""
    parts = text.split(" ")
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) < 4:
        raise ValueError(f"getReviveQid fail, extraInfoStrs length {len(parts) or 1}")
    return ExtraInfo(
        _integer(parts[0], 63),
        _integer(parts[1], 63),
        _integer(parts[2], 63),
        _integer(parts[3], 31),
        parts[4] if len(parts) > 4 else "",
        parts[5] if len(parts) > 5 else "",
    )


def build_extra_info(info: ExtraInfo, queue_id: int, msg_queue_offset: int | None = None) -> str:
    """The handle of a message; without its offset it has seven parts."""
    text = (
        f"{info.ck_queue_offset} {info.pop_time_ms} {info.invisible_time_ms} "
        f"{info.revive_queue_id} {info.retry} {info.broker_name} {queue_id}"
    )
    return text if msg_queue_offset is None else f"{text} {msg_queue_offset}"


def retry_flag(topic: str) -> str:
    """The retry flag of the topic that a message was read from."""
    if is_pop_retry_topic_v2(topic):
        return RETRY_TOPIC_V2
    return RETRY_TOPIC if topic.startswith(RETRY_PREFIX) else NORMAL_TOPIC


def real_topic(topic: str, group: str, retry: str) -> str:
    """The topic of an entry of a batch ack. Raises ValueError for an unknown flag."""
    if retry == NORMAL_TOPIC:
        return topic
    if retry == RETRY_TOPIC:
        return pop_retry_topic_v1(topic, group)
    if retry == RETRY_TOPIC_V2:
        return pop_retry_topic_v2(topic, group)
    raise ValueError("getRetry fail, format is wrong")


def start_offset_item(retry: str, queue_id: int, start_offset: int) -> str:
    """An item of startOffsetInfo."""
    return f"{retry} {queue_id} {start_offset}"


def msg_offset_item(retry: str, queue_id: int, offsets: Iterable[int]) -> str:
    """An item of msgOffsetInfo."""
    return f"{retry} {queue_id} {','.join(map(str, offsets))}"


def queue_count_item(retry: str, queue_id: int, count: int) -> str:
    """An item of orderCountInfo: the least count of the queue's messages."""
    return f"{retry} {queue_id} {count}"


def offset_count_item(retry: str, queue_id: int, queue_offset: int, count: int) -> str:
    """An item of orderCountInfo: how often one message was handed out before."""
    return f"{retry} qo{queue_id}%{queue_offset} {count}"


def _integer(text: str, bits: int) -> int:
    """Java's Long.valueOf or Integer.parseInt. Raises ValueError in its words."""
    if len(text) < _ALWAYS_FITS[bits] and text.isdecimal() and text.isascii():
        return int(text)
    if _INTEGER.fullmatch(text) is None or not -(1 << bits) <= int(text) < 1 << bits:
        raise ValueError(f'For input string: "{text}"')
    return int(text)
