"""Checks of a send that need no table: of its kind, and of its sizes.

Pure functions, used by SendMessageProcessor on the loop thread of `remoting`. Follows the checks of
RocketMQ's SendMessageProcessor and its store.
"""

from __future__ import annotations

from typing import Final

from broker.append.diverted_messages import is_half
from broker.processor.send_header import SendHeader
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.message_codec import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from store.message_properties import PROPERTIES_LIMIT

MOST_TEXT: Final = PROPERTIES_LIMIT + 1024
"""Characters of a send's properties: what is stored, and room for what is left out of them (WAIT,
CLUSTER, DELAY). More is refused before anything is looked for in it."""
BATCH_GROWTH: Final = 4
"""The records of a batch may take so many times maxMessageSize. Each of its messages gets the
common properties: 0.95 MB on the wire could be 1.2 GB in the log."""
_NO_QUEUE_OFFSET: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


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
