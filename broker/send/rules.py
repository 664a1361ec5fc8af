"""Rules: what a message must satisfy to be stored, each of them one row of RULES.

Pure; the loop thread of `remoting`, and pool threads for replies. A row says which messages it
looks at (of which kind, with which marks and bits of sysFlag, in which topics) and what it checks.
The general path asks every row that looks at a message, in the order of the table, and answers with
the words of the first that objects. The hot loops leave every message that a row looks at to the
general path: what they leave is derived from the rows (SendRules.left_marks and its neighbours), so
that a new rule is one row here and no hot loop can miss it (docs/adding_a_send_rule.md).

Not here: what depends on the state of the broker and its topics (SendMessageProcessor), whether a
place has room (SendRecords), and what a client may say in its properties at all
(append/admitted_properties.py, asked first). Follows the checks of RocketMQ's SendMessageProcessor
and its store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.append.diverted_messages import asks_for_timer, delay_level, is_half
from broker.append.send_properties import find_property, find_unique_key
from broker.send.lite_sends import names_of_sender
from broker.send.marks import DELAY, HALF, INNER, LIGHT, LITE, RESERVED, TIMER, marks_of
from broker.send.rewrites import REWRITES
from broker.send.send_topic import TopicNature
from broker.timer.timer_hook import TimerHook
from remoting.errors import RequestError
from remoting.lite_names import (
    LITE_NAME_RULE,
    LITE_TOPIC_PROPERTY,
    MOST_LITE_NAME,
    is_lite_name,
    parse_lite_queue,
)
from remoting.response_code import ResponseCode
from store.inner_batch import INNER_BATCH_FLAG, inner_batch_objection
from store.lmq_dispatch import LmqDispatch, grown_size, named_queues
from store.lmq_places import is_lmq, is_lmq_name
from store.message_codec import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from store.message_properties import PROPERTIES_LIMIT

SINGLE: Final = 1
"""A message that is sent alone."""
BATCH: Final = 2
"""What the messages of a batch have in common."""
ITEM: Final = 4
"""One message of a batch."""
REPLY: Final = 8
"""A reply, which is pushed to a client at once and stored where it is sent."""
KINDS: Final = (SINGLE, BATCH, ITEM, REPLY)
_ANY: Final = SINGLE | BATCH | ITEM | REPLY
_WHAT: Final = {SINGLE: "a message", BATCH: "a batch", ITEM: "a batch", REPLY: "a reply"}

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
_LMQ_QUOTA_EXCEEDED: Final = "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded."


class Checked(NamedTuple):
    """A message as the rules see it."""

    kind: int
    text: str
    """Its properties, as the broker takes them; of a batch, those that all have in common."""
    sys_flag: int
    topic: TopicNature
    common_keys: str | None = None
    """Of a message of a batch: KEYS of the properties that all have in common, and that follow its
    own. Looked for once: there may be 500 messages, and 32 KiB to look in."""


class Circumstances(NamedTuple):
    """What some rules ask beside the message."""

    lmq: LmqDispatch | None
    """None: the settings have no light queues, and no rule looks for them."""
    timers: TimerHook
    max_delay_level: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A row: which messages it looks at, and its check, which raises RequestError or
    StoreError. Without marks and flags it looks at all of its kinds and topics."""

    kinds: int
    check: Callable[[Checked, Circumstances], None]
    marks: int = 0
    flags: int = 0
    of_topic: Callable[[TopicNature], bool] | None = None
    """Only messages to such topics; None: to any."""
    passes_halves: bool = False
    """It objects to no half message, whatever its sysFlag: the hot loop may take those."""

    @property
    def is_of_light_queues(self) -> bool:
        """Whether it looks at nothing but what names light queues. (What names a lite topic is a
        kind of message also where there are none: the general path counts it as one.)"""
        return bool(self.marks & LIGHT) and not (self.marks & ~(LIGHT | LITE) or self.flags)

    @property
    def looks_at_all(self) -> bool:
        """Whether it depends on nothing but kind and topic."""
        return not (self.marks or self.flags)


# -- the checks --------------------------------------------------------------------------------


def _illegal(words: str) -> RequestError:
    return RequestError(ResponseCode.MESSAGE_ILLEGAL, words)


def _in_no_transaction(message: Checked, _: Circumstances) -> None:
    """A message of a transaction where it could never be consumed."""
    if message.sys_flag & TRANSACTION_MASK in _NO_QUEUE_OFFSET and not is_half(message.text):
        raise _illegal(
            f"the message is illegal: sysFlag {message.sys_flag} says that it belongs to a "
            "transaction, but it has no property TRAN_MSG=true: nobody could ever consume it"
        )


def _batch_without_transaction(message: Checked, _: Circumstances) -> None:
    if message.sys_flag & TRANSACTION_MASK or is_half(message.text):
        raise _illegal("a batch cannot hold transactional messages")


def _reply_without_transaction(message: Checked, _: Circumstances) -> None:
    if message.sys_flag & TRANSACTION_MASK in _NO_QUEUE_OFFSET or is_half(message.text):
        raise _illegal("a reply cannot be transactional")


def _light_queues(message: Checked, _: Circumstances) -> None:
    """Whether what a message names are light queues, in the words of RocketMQ's client. Those of
    lite topics are named by the broker: whoever may send to any topic could write to all of them.
    """
    names = names_of_sender(message.text, is_single=message.kind == SINGLE)
    if any("/" in name for name in names):
        raise _illegal(f"INNER_MULTI_DISPATCH {','.join(names)} can not contains / character")
    if wrong := [name for name in names if not is_lmq_name(name)]:
        raise _illegal(
            f"the message is illegal: INNER_MULTI_DISPATCH names {wrong[0][:40]!a}, which is "
            "no light queue (%LMQ%, at most 127 bytes)"
        )
    if forged := [name for name in names if parse_lite_queue(name) is not None]:
        raise _illegal(
            f"the message is illegal: INNER_MULTI_DISPATCH names {forged[0]!a}, the queue of a "
            f"lite topic: send to its parent with the property {LITE_TOPIC_PROPERTY}"
        )


def _lite_topic(message: Checked, _: Circumstances) -> None:
    lite = find_property(message.text, LITE_TOPIC_PROPERTY)
    if lite and not is_lite_name(lite):
        raise _illegal(
            f"the message is illegal: {LITE_TOPIC_PROPERTY} {lite[:MOST_LITE_NAME]!a} is no name "
            f"of a lite topic: {LITE_NAME_RULE}"
        )


def _no_light_queues(message: Checked, _: Circumstances) -> None:
    if not named_queues(message.text.encode()) and not (
        message.kind == SINGLE and find_property(message.text, LITE_TOPIC_PROPERTY)
    ):
        return
    raise _illegal(
        "the message is illegal: INNER_MULTI_DISPATCH in a topic with queue.type BatchCQ"
    )


def _inner_batch(message: Checked, circumstances: Circumstances) -> None:
    """The marks of an inner batch, which a client has set itself. It cannot wait anywhere first: it
    would not be in a batch consume queue."""
    text, sys_flag = message.text, message.sys_flag
    batch_queue = message.kind == SINGLE and message.topic.batch_queues
    _refuse_inner_batch(sys_flag, text, batch_queue=batch_queue)
    if not sys_flag & INNER_BATCH_FLAG:
        return
    most = circumstances.max_delay_level
    if is_half(text) or asks_for_timer(text) or delay_level(text, sys_flag, most):
        raise _illegal(
            "the message is illegal: it is an inner batch, which can be neither delayed nor "
            "transactional"
        )


def _inner_batch_of_batch(message: Checked, _: Circumstances) -> None:
    """The same of common properties: in batch queues the broker counts itself, and single records
    would each count as many."""
    if message.topic.batch_queues and find_unique_key(message.text):
        return
    _refuse_inner_batch(message.sys_flag, message.text, batch_queue=message.topic.batch_queues)
    if find_property(message.text, "INNER_NUM") is not None:
        raise _illegal(
            "the message is illegal: a batch without UNIQ_KEY has the property INNER_NUM"
        )


def _refuse_inner_batch(sys_flag: int, text: str, *, batch_queue: bool) -> None:
    objection = inner_batch_objection(sys_flag, text.encode(), batch_queue=batch_queue)
    if objection is not None:
        raise _illegal(objection)


def _without_delay(message: Checked, circumstances: Circumstances) -> None:
    if message.kind == ITEM:
        is_delayed = find_property(message.text, "DELAY") not in (None, "", "0")
    else:
        most = circumstances.max_delay_level
        is_delayed = delay_level(message.text, message.sys_flag, most) > 0
    if is_delayed:
        raise _illegal(f"{_WHAT[message.kind]} cannot hold delayed messages")


def _without_timer(message: Checked, circumstances: Circumstances) -> None:
    circumstances.timers.refuse(message.text, _WHAT[message.kind])


def _keys(message: Checked, _: Circumstances) -> None:
    """Of a message to a compaction topic. (RocketMQ does not look at those of a batch, which are
    stored then, and never served.)"""
    keys = message.common_keys
    if keys is None:
        keys = find_property(message.text, "KEYS")
    if not (keys or "").strip():
        raise _illegal("Required message key is missing")


def _has_batch_queues(topic: TopicNature) -> bool:
    return topic.batch_queues


def _needs_keys(topic: TopicNature) -> bool:
    return topic.needs_keys


# -- the rules ---------------------------------------------------------------------------------

RULES: Final = (
    Rule(SINGLE, _in_no_transaction, flags=TRANSACTION_MASK, passes_halves=True),
    Rule(BATCH, _batch_without_transaction, marks=HALF, flags=TRANSACTION_MASK),
    Rule(REPLY, _reply_without_transaction, marks=HALF, flags=TRANSACTION_MASK),
    Rule(_ANY, _light_queues, marks=LIGHT),
    Rule(SINGLE, _lite_topic, marks=LITE),
    Rule(SINGLE | BATCH, _no_light_queues, marks=LIGHT | LITE, of_topic=_has_batch_queues),
    Rule(SINGLE | ITEM | REPLY, _inner_batch, marks=INNER, flags=INNER_BATCH_FLAG),
    Rule(BATCH, _inner_batch_of_batch, marks=INNER, flags=INNER_BATCH_FLAG),
    Rule(BATCH | ITEM | REPLY, _without_delay, marks=DELAY),
    Rule(BATCH | ITEM | REPLY, _without_timer, marks=TIMER),
    Rule(SINGLE | ITEM, _keys, of_topic=_needs_keys),
)
"""In the order in which they object."""


class SendRules:
    """The rules of one broker, and what the hot loops leave to the general path because of them.
    Immutable, any thread."""

    def __init__(self, circumstances: Circumstances, rules: Iterable[Rule] = RULES) -> None:
        self._circumstances = circumstances
        without_light = circumstances.lmq is None
        used = [rule for rule in rules if not (without_light and rule.is_of_light_queues)]
        self._by_kind: Final = {
            kind: tuple(rule for rule in used if rule.kinds & kind) for kind in KINDS
        }
        self.left_marks: Final = {
            kind: RESERVED | _union(rule.marks for rule in self._by_kind[kind]) for kind in KINDS
        }
        """By kind: a message with one of these marks is left to the general path. RESERVED is the
        border's; single messages are also left that would be changed (rewrites.py)."""
        self.left_marks[SINGLE] |= _union(row.marks for row in REWRITES)
        self.left_flags: Final = {
            kind: _union(rule.flags for rule in self._by_kind[kind]) for kind in KINDS
        }
        """By kind: the same of sysFlag, but for half messages."""
        self.left_flags_of_halves: Final = _union(
            rule.flags for rule in self._by_kind[SINGLE] if not rule.passes_halves
        )
        """The same of half messages."""

    def leaves_topic(self, topic: TopicNature) -> bool:
        """Whether all sends to `topic` are left to the general path: a rule looks at each."""
        return any(
            rule.looks_at_all and (rule.of_topic is None or rule.of_topic(topic))
            for kind in (SINGLE, BATCH, ITEM)
            for rule in self._by_kind[kind]
        )

    def check(self, message: Checked) -> None:
        """Raises RequestError (or StoreError) with the words of the first rule that objects."""
        marks = marks_of(message.text)
        for rule in self._by_kind[message.kind]:
            if not (rule.looks_at_all or rule.marks & marks or rule.flags & message.sys_flag):
                continue
            if rule.of_topic is None or rule.of_topic(message.topic):
                rule.check(message, self._circumstances)


def _union(bits: Iterable[int]) -> int:
    union = 0
    for each in bits:
        union |= each
    return union


# -- sizes, which the hot loops compare themselves ---------------------------------------------


def check_text(text: str, *, is_batch: bool) -> None:
    """Raises RequestError for properties that no record holds, whatever is left out of them; of a
    batch, whose common properties are stored as they are, for those over the limit."""
    if len(text) > MOST_TEXT and not is_batch:
        raise _illegal(
            f"the message is illegal: properties of {len(text.encode())} bytes "
            f"(limit {PROPERTIES_LIMIT})"
        )
    if is_batch and len(text) > PROPERTIES_LIMIT:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"the message is illegal: properties of {len(text)} characters "
            f"(limit {PROPERTIES_LIMIT})",
        )


def check_body(body_size: int, limit: int) -> None:
    """Raises RequestError for a body over `limit` (maxMessageSize)."""
    if body_size > limit:
        raise _illegal(
            f"the message is illegal: body of {body_size} bytes (maxMessageSize {limit})"
        )


def check_light_room(
    lmq: LmqDispatch | None,
    topic: str,
    all_properties: Iterable[bytes],
    *,
    is_quota: bool = False,
) -> None:
    """Whether the light queues that the records of one send name, or are sent to, can take them
    all. topic, all_properties: as they will be stored. is_quota: enableLmqQuota, 5.5's answer.
    Raises RequestError with the words of RocketMQ's broker."""
    if lmq is None:
        return
    all_names = {topic} if is_lmq(topic) else set()
    for properties in all_properties:
        if not (names := named_queues(properties)):
            continue
        if grown_size(properties, names) > PROPERTIES_LIMIT:
            raise _illegal(
                f"the message is illegal: properties with {len(names)} light queues "
                f"(limit {PROPERTIES_LIMIT} bytes)"
            )
        all_names.update(names)
    if all_names and not lmq.has_room(all_names):
        if is_quota:
            raise RequestError(ResponseCode.LMQ_QUOTA_EXCEEDED, _LMQ_QUOTA_EXCEEDED)
        raise RequestError(ResponseCode.SYSTEM_ERROR, _LMQ_NUM_EXCEEDED)
