"""Checks of a send that need no table: of its kind, and of its sizes.

Pure functions, used by SendMessageProcessor on the loop thread of `remoting`. Follows the checks of
RocketMQ's SendMessageProcessor and its store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.append.diverted_messages import delay_level, is_half
from broker.processor.send_header import SendHeader
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.lmq_dispatch import LmqDispatch, grown_size, named_queues
from store.lmq_places import is_lmq, is_lmq_name
from store.message_codec import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from store.message_properties import PROPERTIES_LIMIT

LMQ_MARK: Final = "INNER_MULTI_DISPATCH\x01"
"""Begins the property that names light queues."""
MOST_TEXT: Final = PROPERTIES_LIMIT + 1024
"""Characters of a send's properties: what is stored, and room for what is left out of them (WAIT,
CLUSTER, DELAY). More is refused before anything is looked for in it."""
BATCH_GROWTH: Final = 4
"""The records of a batch may take so many times maxMessageSize. Each of its messages gets the
common properties: 0.95 MB on the wire could be 1.2 GB in the log."""
_NO_QUEUE_OFFSET: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
_LMQ_NUM_EXCEEDED: Final = (
    "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq "
    "consumeQueue num exceed maxLmqConsumeQueueNum config num, default limit 2w."
)


def check_kind(header: SendHeader) -> None:
    """Raises RequestError for a message of a transaction where it could never be consumed."""
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


def check_reply(sys_flag: int, properties: str) -> None:
    """Raises RequestError for a reply that is transactional or delayed: it is pushed at once, and
    stored where it is sent, so that the one could never be consumed, and the other would not
    wait."""
    if sys_flag & TRANSACTION_MASK in _NO_QUEUE_OFFSET or is_half(properties):
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "a reply cannot be transactional")
    if delay_level(properties, 0, 1):
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, "a reply cannot hold delayed messages")


def check_light_queues(lmq: LmqDispatch | None, text: str) -> None:
    """Whether what a message names are light queues. Raises RequestError with the words of
    RocketMQ's client."""
    if lmq is None or LMQ_MARK not in text:
        return
    names = named_queues(text.encode())
    if any("/" in name for name in names):
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"INNER_MULTI_DISPATCH {','.join(names)} can not contains / character",
        )
    if wrong := [name for name in names if not is_lmq_name(name)]:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: INNER_MULTI_DISPATCH names {wrong[0][:40]!a}, which is "
            "no light queue (%LMQ%, at most 127 bytes)",
        )


def check_light_room(lmq: LmqDispatch | None, topic: str, all_properties: Iterable[bytes]) -> None:
    """Whether the light queues that the records of one send name, or are sent to, can take them
    all. topic, all_properties: as they will be stored. Raises RequestError with the words of
    RocketMQ's broker."""
    if lmq is None:
        return
    all_names = {topic} if is_lmq(topic) else set()
    for properties in all_properties:
        if not (names := named_queues(properties)):
            continue
        if grown_size(properties, names) > PROPERTIES_LIMIT:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: properties with {len(names)} light queues "
                f"(limit {PROPERTIES_LIMIT} bytes)",
            )
        all_names.update(names)
    if all_names and not lmq.has_room(all_names):
        raise RequestError(ResponseCode.SYSTEM_ERROR, _LMQ_NUM_EXCEEDED)


def check_body(body_size: int, limit: int) -> None:
    """Raises RequestError for a body over `limit` (maxMessageSize)."""
    if body_size > limit:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: body of {body_size} bytes (maxMessageSize {limit})",
        )


def check_text(header: SendHeader) -> None:
    """Raises RequestError for properties that no record holds, whatever is left out of them; of a
    batch, whose common properties are stored as they are, for those over the limit."""
    if len(header.i) > MOST_TEXT and not header.m:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: properties of {len(header.i.encode())} bytes "
            f"(limit {PROPERTIES_LIMIT})",
        )
    if header.m and len(header.i) > PROPERTIES_LIMIT:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"the message is illegal: properties of {len(header.i)} characters "
            f"(limit {PROPERTIES_LIMIT})",
        )
