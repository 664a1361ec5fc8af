"""Finding messages: by key, by unique key, by offset id, by queue and offset, the newest.

Returns data, for commands and pages. Runs in the command's main thread, or in one thread of the
console. Moves no offset. A broker that does not answer is a problem beside what the others found.
(Java: MQAdminImpl.queryMessage, viewMessage.)

Tested by tests/tools/test_message_finder.py.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from remoting.body.message_queue import MessageQueue
from remoting.errors import RemotingError, RequestError
from remoting.headers.query import (
    UNIQUE_KEY_QUERY,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import TIMEOUT_MS, AdminClient, BrokerAddress
from tools.broker_members import BrokerMembers
from tools.errors import AdminError, BrokerAnswerError
from tools.message_decoder import (
    MAX_INFLATED_BODY,
    UNIQ_KEY,
    MessageExt,
    decode_message_id,
    decode_messages,
)
from tools.message_puller import ALWAYS, PULL_BATCH, MessagePuller, TimeSpan
from tools.message_text import KEYS

MAX_BY_KEY: Final = 64
END_OF_TIME: Final = 2**63 - 1
PREVIEW_BYTES: Final = 4 << 10
"""Of each body in a list: so many messages of any size take little memory."""
PEER_ERRORS: Final = (AdminError, RemotingError, RequestError)
"""What a peer that refuses, lies or does not answer causes."""

_FIRST_WINDOW: Final = 8
"""Messages that are read first of each queue: mostly a few queues have all the newest ones."""


@dataclass(frozen=True, slots=True)
class Found:
    """Messages, and a sentence for each broker or queue that could not be read."""

    messages: list[MessageExt] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


# -- by key ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery:
    """A look into the brokers' indexes. route_of: whose brokers are asked instead of the topic's
    own, which may have no route."""

    topic: str
    key: str
    is_unique: bool = False
    max_num: int = MAX_BY_KEY
    begin_ms: int = 0
    end_ms: int = END_OF_TIME
    route_of: str | None = None


def find_by_key(admin: AdminClient, query: KeyQuery, *, max_body: int = MAX_INFLATED_BODY) -> Found:
    """Messages under a key at every broker of a topic, oldest first; hash collisions are left out.
    AdminError for an unknown topic."""
    members = BrokerMembers(admin, admin.route(query.route_of or query.topic))
    found = Found()
    for name in members.names():
        try:
            found.messages.extend(_under_key(members, name, query, max_body))
        except PEER_ERRORS as error:
            found.problems.append(f"broker {name}: {error}")
    found.messages.sort(key=lambda message: message.store_timestamp)
    return found


def _under_key(
    members: BrokerMembers, broker_name: str, query: KeyQuery, max_body: int
) -> list[MessageExt]:
    header = QueryMessageRequestHeader(
        topic=query.topic,
        key=query.key,
        max_num=query.max_num,
        begin_timestamp=query.begin_ms,
        end_timestamp=query.end_ms,
    )
    response = members.ask(
        broker_name,
        RequestCode.QUERY_MESSAGE,
        header,
        accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        extra={UNIQUE_KEY_QUERY: str(query.is_unique).lower()},
        timeout_ms=3 * TIMEOUT_MS,
    )
    if response.code != ResponseCode.SUCCESS:
        return []
    found = decode_messages(response.body, broker_name=broker_name, max_body=max_body)
    return [message for message in found if message.topic == query.topic and _has(message, query)]


def _has(message: MessageExt, query: KeyQuery) -> bool:
    if query.is_unique:
        return message.properties.get(UNIQ_KEY) == query.key
    return query.key in message.properties.get(KEYS, "").split(" ")


def query_messages(admin: AdminClient, query: KeyQuery) -> list[MessageExt]:
    """As `find_by_key`, where a broker that cannot be asked is an AdminError."""
    found = find_by_key(admin, query)
    if found.problems:
        raise AdminError("; ".join(found.problems))
    return found.messages


# -- by place ----------------------------------------------------------------------------------


def view_message(admin: AdminClient, msg_id: str) -> MessageExt:
    """The message of an offset id, from the broker that the id names, wherever that is."""
    address, phy_offset = decode_message_id(msg_id)
    return _view(admin, address, msg_id, phy_offset, MAX_INFLATED_BODY)


def _view(
    admin: AdminClient, address: str, msg_id: str, phy_offset: int, max_body: int
) -> MessageExt:
    header = ViewMessageRequestHeader(offset=phy_offset)
    response = admin.call(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
    for message in decode_messages(response.body, max_body=max_body):
        return message
    raise AdminError(f"{address} answered {msg_id} without a message")


def find_by_offset_id(
    admin: AdminClient, msg_id: str, *, max_body: int = MAX_INFLATED_BODY
) -> MessageExt:
    """The message of an offset id, from a broker that the name server knows: an id from anybody
    makes nobody else an address to connect to. A replica has the same bytes, and so the same id.
    AdminError when nobody has it."""
    address, phy_offset = decode_message_id(msg_id)
    problems = []
    for broker in _who_may_have(admin.brokers(), address):
        try:
            message = _view(admin, broker.address, msg_id, phy_offset, max_body)
        except BrokerAnswerError:
            continue
        except PEER_ERRORS as error:
            problems.append(str(error))
            continue
        if message.offset_msg_id == msg_id.upper():
            return message
    reason = f"; {'; '.join(problems)}" if problems else ""
    raise AdminError(f"no broker of this cluster has a message {msg_id}{reason}")


def _who_may_have(brokers: list[BrokerAddress], address: str) -> list[BrokerAddress]:
    """The broker at an address, then its group's others; every broker, masters first, when none of
    them has that address any more."""
    named = [broker for broker in brokers if broker.address == address]
    groups = {(broker.cluster, broker.broker_name) for broker in named or brokers}
    members = [each for each in brokers if (each.cluster, each.broker_name) in groups]
    return sorted(members, key=lambda each: (each not in named, each.broker_id))


def find_by_queue_offset(
    admin: AdminClient,
    queue: MessageQueue,
    offset: int,
    *,
    max_body: int = MAX_INFLATED_BODY,
) -> MessageExt:
    """The message at one place of a queue. AdminError when there is none."""
    puller = MessagePuller(admin, queue.topic, max_body=max_body)
    result = puller.pull(puller.queue(queue.broker_name, queue.queue_id), offset, 1)
    if not result.messages:
        raise AdminError(
            f"{queue.broker_name} queue {queue.queue_id} of {queue.topic} has no message at "
            f"offset {offset}: {result.status}, the next is {result.next_begin_offset}"
        )
    return result.messages[0]


# -- the newest --------------------------------------------------------------------------------


def find_newest(
    admin: AdminClient,
    topic: str,
    count: int,
    *,
    times: TimeSpan = ALWAYS,
    max_body: int = PREVIEW_BYTES,
) -> Found:
    """The newest messages of a topic that were stored within `times`, newest first, at most
    `count`. AdminError for a topic that is unknown or cannot be read."""
    puller = MessagePuller(admin, topic, max_body=max_body)
    found = Found()
    tails = [_newest_first(puller, queue, times, found.problems) for queue in puller.queues()]
    newest = heapq.merge(*tails, key=lambda message: message.store_timestamp, reverse=True)
    found.messages.extend(itertools.islice(newest, count))
    return found


def _newest_first(
    puller: MessagePuller, queue: MessageQueue, times: TimeSpan, problems: list[str]
) -> Iterator[MessageExt]:
    """A queue backwards, a window at a time; ends with a problem where it cannot be read."""
    try:
        first, end = puller.span(queue, times)
        window = _FIRST_WINDOW
        while first < end:
            begin = max(first, end - window)
            found = _within(puller, queue, begin, end)
            yield from (each for each in found if each.store_timestamp in times)
            end = begin if found else _end_below(puller, queue, first, begin)
            window = PULL_BATCH
    except PEER_ERRORS as error:
        problems.append(f"{queue.broker_name} queue {queue.queue_id}: {error}")


def _end_below(puller: MessagePuller, queue: MessageQueue, first: int, end: int) -> int:
    """The offset behind the last message below `end`: compaction leaves gaps, and the queue of a
    static topic that was remapped has one of 10,000 offsets. One pull for each halving, so that a
    queue that lies about its end costs few, too."""
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        found = _first_from(puller, queue, middle)
        if found is not None and middle <= found < end:
            low = found + 1
        else:
            high = middle
    return low


def _first_from(puller: MessagePuller, queue: MessageQueue, offset: int) -> int | None:
    """The offset of the first message from `offset` on. A pull into a gap brings that, or only the
    place where it is."""
    result = puller.pull(queue, offset, 1)
    if not result.messages and result.next_begin_offset > offset:
        result = puller.pull(queue, result.next_begin_offset, 1)
    return result.messages[0].queue_offset if result.messages else None


def _within(puller: MessagePuller, queue: MessageQueue, begin: int, end: int) -> list[MessageExt]:
    """The messages of a window, newest first. A pull into a gap, as compaction leaves them, brings
    what is behind it."""
    results = [result for _, result in puller.pull_range(queue, begin, end)]
    found = [message for result in results for message in result.messages]
    return [message for message in reversed(found) if begin <= message.queue_offset < end]
