"""Dead letters: the messages that a group failed to consume as often as it may (%DLQ% topics).

Runs in the command's main thread, or in one thread of the console. Moves no offset and changes
nothing; tools/dead_letter_resend.py sends them again. Which properties are whose is decided here:
what brokers and clients wrote on a message's way does not go along when it is sent again.

Tested by tests/tools/test_dead_letters.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from remoting.body.message_queue import MessageQueue
from remoting.key_builder import parse_normal_topic
from tools.admin_client import DLQ_PREFIX, RETRY_PREFIX, AdminClient
from tools.errors import AdminError, MessageDecodeError
from tools.message_decoder import MAX_INFLATED_BODY, MessageExt
from tools.message_finder import (
    PEER_ERRORS,
    PREVIEW_BYTES,
    KeyQuery,
    find_by_key,
    find_by_offset_id,
    find_newest,
)
from tools.message_puller import ALWAYS, MessagePuller, TimeSpan
from tools.message_text import KEYS, TAGS, message_json

ORIGINS: Final = ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC")
"""Properties that name the topic of the first delivery; the first one is 5.x's."""
ORIGIN_IDS: Final = ("DLQ_ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_ID")
"""Properties that name the offset id that it had there."""

WRITTEN_ON_THE_WAY: Final = frozenset(
    {
        *ORIGINS,
        *ORIGIN_IDS,
        # Consumers and brokers: how often it was consumed, where it lay, from where it was taken.
        *("RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME"),
        *("MIN_OFFSET", "MAX_OFFSET", "REAL_TOPIC", "REAL_QID"),
        *("POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "ORIGIN_GROUP"),
        *("INNER_MULTI_QUEUE_OFFSET", "INNER_NUM", "INNER_BASE", "__CRC32#"),
        *("CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT", "EXTEND_UNIQ_INFO", "DUP_INFO"),
        *("__BORNHOST", "BORN_TIMESTAMP", "ARRIVE_TIME", "PUSH_REPLY_TIME"),
        *("TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "REDIRECT", "PROPERTY_FORWARD_QUEUE_ID"),
        # It has been delivered already: nothing is to be waited for, and nobody to be asked.
        *("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_LEVEL"),
        *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS"),
        *("TIMER_DEL_UNIQKEY", "TRAN_MSG", "PGROUP", "__transactionId__"),
        *("TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"),
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
    }
)
"""Names of RocketMQ's MessageConst that a sender did not write, or that would mean another kind of
send now. KEYS, TAGS, the unique key, the sharding key and whatever else it wrote go along."""
TRANSIENT_PREFIX: Final = "__RMQ."


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message of a group's dead-letter topic. Its properties are a client's word."""

    group: str
    message: MessageExt

    @property
    def letter_id(self) -> str:
        """What it is called here, in the audit, too: the offset id that it has in this topic."""
        return self.message.offset_msg_id

    @property
    def origin_topic(self) -> str | None:
        """The topic that the group consumed it from; None: nothing says so."""
        for name in ORIGINS:
            topic = parse_normal_topic(self.message.properties.get(name, ""), self.group)
            if topic and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                return topic
        return None

    @property
    def origin_id(self) -> str | None:
        """Its offset id there."""
        found = (self.message.properties.get(name) for name in ORIGIN_IDS)
        return next((value for value in found if value), None)

    def own_properties(self) -> dict[str, str]:
        """The properties that its sender wrote."""
        return {
            name: value
            for name, value in self.message.properties.items()
            if name not in WRITTEN_ON_THE_WAY and not name.startswith(TRANSIENT_PREFIX)
        }

    def summary_json(self, now_ms: int) -> dict[str, Any]:
        """One row of a list: without body and properties."""
        message = self.message
        return {
            "msgId": message.msg_id,
            "letterId": self.letter_id,
            "originTopic": self.origin_topic,
            "originMsgId": self.origin_id,
            "reconsumeTimes": message.reconsume_times,
            "bornTimestamp": message.born_timestamp,
            "storeTimestamp": message.store_timestamp,
            "ageMs": max(now_ms - message.store_timestamp, 0),
            "keys": message.properties.get(KEYS),
            "tags": message.properties.get(TAGS),
            "bodySize": message.stored_body_size,
            "brokerName": message.broker_name,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
        }

    def export_json(self) -> dict[str, Any]:
        """One line of an export: everything, with the body."""
        origin = {"group": self.group, "originTopic": self.origin_topic}
        return origin | {"originMsgId": self.origin_id} | message_json(self.message)


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that should have been read and was not: no result is complete without it."""

    what: str
    """A queue, or the id that was asked for."""
    reason: str

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


Read = DeadLetter | Unread


def dlq_topic(group: str) -> str:
    """The topic of a group's dead letters."""
    return DLQ_PREFIX + group


def scan(
    admin: AdminClient,
    group: str,
    times: TimeSpan = ALWAYS,
    *,
    max_body: int = MAX_INFLATED_BODY,
) -> Iterator[Read]:
    """Every dead letter that was there at the beginning and stored within `times`, queue after
    queue, oldest first. AdminError when the group has no dead-letter topic that can be read."""
    puller = MessagePuller(admin, dlq_topic(group), max_body=max_body)
    spans: list[tuple[MessageQueue, int, int]] = []
    for queue in puller.queues():
        # All ends before the first message: what dies again meanwhile is not met again.
        try:
            spans.append((queue, *puller.span(queue, times)))
        except PEER_ERRORS as error:
            yield Unread(_name(queue), str(error))
    for queue, first, end in spans:
        try:
            for found in _scan_queue(puller, queue, first, end):
                if isinstance(found, Unread):
                    yield found
                elif found.store_timestamp in times:
                    yield DeadLetter(group, found)
        except PEER_ERRORS as error:
            yield Unread(_name(queue), str(error))


def _scan_queue(
    puller: MessagePuller, queue: MessageQueue, first: int, end: int
) -> Iterator[MessageExt | Unread]:
    """All offsets of a span: what is no longer there is said to be missing."""
    offset = first
    while offset < end:
        result = puller.pull(queue, offset, end - offset)
        yield from result.messages
        following = result.next_begin_offset
        if following <= offset:
            yield Unread(_name(queue), f"nothing at offset {offset} and behind it: {result.status}")
            return
        if not result.messages:
            gone = f"{offset} to {min(following, end) - 1}"
            yield Unread(_name(queue), f"offsets {gone} are no longer there")
        offset = following


def _name(queue: MessageQueue) -> str:
    return f"{queue.broker_name} queue {queue.queue_id}"


def newest(
    admin: AdminClient, group: str, count: int, times: TimeSpan = ALWAYS
) -> tuple[list[DeadLetter], list[str]]:
    """The newest dead letters with the beginnings of their bodies, newest first, and what could not
    be read. AdminError as in `scan`."""
    found = find_newest(admin, dlq_topic(group), count, times=times, max_body=PREVIEW_BYTES)
    return [DeadLetter(group, message) for message in found.messages], found.problems


def find(
    admin: AdminClient, group: str, ids: Iterable[str], *, max_body: int = MAX_INFLATED_BODY
) -> Iterator[Read]:
    """The dead letters of these ids, which are offset ids in the group's dead-letter topic or the
    senders' unique keys, wherever they lie in it. Each id that leads to none is an Unread."""
    for one in dict.fromkeys(ids):
        try:
            letters = _find_one(admin, group, one, max_body)
        except PEER_ERRORS as error:
            yield Unread(one, str(error))
            continue
        if letters:
            yield from letters
        else:
            yield Unread(one, f"group {group} has no dead letter with this id")


def _find_one(admin: AdminClient, group: str, one: str, max_body: int) -> list[DeadLetter]:
    """Several: a message that was sent again and died again has the same unique key."""
    topic = dlq_topic(group)
    query = KeyQuery(topic=topic, key=one, is_unique=True)
    found = find_by_key(admin, query, max_body=max_body)
    if found.problems:
        raise AdminError("; ".join(found.problems))
    messages = found.messages
    if not messages:
        try:
            messages = [find_by_offset_id(admin, one, max_body=max_body)]
        except MessageDecodeError:
            return []
    return [DeadLetter(group, each) for each in messages if each.topic == topic]


# -- by group ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """How many dead letters a group has, and when the last of them came; 0: none yet."""

    group: str
    count: int
    last_ms: int


def groups_with_dead_letters(topics: Iterable[str]) -> list[str]:
    """The groups that have a dead-letter topic, out of all topics of a cluster; sorted."""
    return sorted(topic[len(DLQ_PREFIX) :] for topic in topics if topic.startswith(DLQ_PREFIX))


def count_dead_letters(admin: AdminClient, group: str) -> DeadLetterCount:
    """From the offsets of the topic's queues: nothing is read."""
    stats = admin.topic_stats(dlq_topic(group)).offset_table.values()
    count = sum(max(each.max_offset - each.min_offset, 0) for each in stats)
    last_ms = max((each.last_update_timestamp for each in stats), default=0)
    return DeadLetterCount(group, count, max(last_ms, 0))
