"""The border: what a client says in a message's properties becomes what the broker takes.

Pure, any thread; called where a client's message enters, before anything looks at its properties:
sends (10, 310, 320, with JSON or binary headers), each message of a batch, replies (324, 325). What
only a broker writes (store/reserved_properties.py) is taken out where an honest client may carry it
along, for example in a popped or a timer message that it sends on, and refused where it would make
another message of it. So what the log holds under these names, the broker wrote itself. The fast
paths of sends look for the names only, and leave such a message to the general path, which is
here.

Which topics only the broker writes is in broker/topic/system_topics.py (`check_send_allowed`),
which every entrance asks when it looks up its topic. RocketMQ takes out POP_CK of single sends
(SendMessageProcessor.clearReservedProperties), and believes the rest.
"""

from __future__ import annotations

from typing import Final

from broker.append.send_properties import find_property
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.batch_codec import MOST_BATCH_MESSAGES, count_batch, encode_item, iterate_batch
from store.errors import StoreError
from store.reserved_properties import (
    DELAY_IS_OVER,
    DROPPED,
    REFUSED,
    TIMER_DELAYS,
    holds_reserved,
    loses_some,
    reserved_in,
    without_properties,
)

_DROPPED: Final = frozenset(DROPPED)
_REFUSED: Final = frozenset(REFUSED)
_WITH_DELAYS: Final = _DROPPED | frozenset(TIMER_DELAYS)
_TIMER_MARK: Final = "TIMER_"
"""What is refused has it, and what says that a delay is over."""
assert all(name.startswith(_TIMER_MARK) for name in (DELAY_IS_OVER, *REFUSED))
_SEPARATORS: Final = {1: None, 2: None}
_KEPT_BY_NOBODY: Final = frozenset(
    {"POP_CK", "TIMER_DEL_UNIQKEY", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"}
)


def admitted_properties(text: str, recall_of: str | None = None) -> str:
    """The properties of a client's message as the broker takes them; those without reserved ones as
    they are.

    recall_of: the topic for which the client may send recalls itself (recallByPropertyEnable);
    None: it may not. Raises RequestError(MESSAGE_ILLEGAL) for what is refused.
    """
    if not holds_reserved(text):
        return text
    if _TIMER_MARK not in text:
        return without_properties(text, _DROPPED)
    names = reserved_in(text)
    for name in sorted(names & _REFUSED):
        value = find_property(text, name)
        if recall_of is None or not (value or "").startswith(f"{recall_of}+"):
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, _refusal(name, recall_of))
    delay_is_over = DELAY_IS_OVER in names and find_property(text, DELAY_IS_OVER)
    return without_properties(text, _WITH_DELAYS if delay_is_over else _DROPPED)


def admitted_batch(body: memoryview) -> bytes | None:
    """The body of a batch whose messages have lost what is taken out, in one pass: it can be stored
    as any other. None: nothing in it is, or somebody has to look at it message by message
    (SendRecords), since it is damaged, holds too many, or something that may be refused.
    """
    if count_batch(body) > MOST_BATCH_MESSAGES:
        return None
    data = body.tobytes()
    if not loses_some(data):
        return None
    pieces = []
    try:
        for item in iterate_batch(data):
            text = str(item.properties, "utf-8")
            own = admitted_properties(text)
            properties = item.properties if own is text else own.encode()
            pieces.append(encode_item(item.flag, item.body, properties))
    except (RequestError, StoreError, UnicodeDecodeError):
        return None
    return b"".join(pieces)


def sent_back_properties(text: str) -> str:
    """The properties of a stored message whose copy is stored for another delivery (36): without
    what would mean something for the copy. New records have none of these but for copies of halves;
    older ones and those of other brokers may."""
    return without_properties(text, _KEPT_BY_NOBODY) if holds_reserved(text) else text


def is_value(text: str) -> bool:
    """Whether a text that a client gave may stand as a value in properties that the broker writes:
    one with a separator would add properties of its own."""
    return "\x01" not in text and "\x02" not in text


def as_value(text: str) -> str:
    """The same text without separators, where it is shown only."""
    return text.translate(_SEPARATORS)


def _refusal(name: str, recall_of: str | None) -> str:
    if recall_of is None:
        return (
            f"the message is illegal: its property {name} is the broker's own; recall a message "
            "with request 370 (or set recallByPropertyEnable)"
        )
    return (
        f"the message is illegal: its property {name} names another topic than {recall_of}, where "
        "it is sent"
    )
