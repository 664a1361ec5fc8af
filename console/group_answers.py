"""What brokers tell of a group: progress (208), members (203), what these say of themselves (307).

A member is whoever says that it is one. Its answer comes through a broker, as large, as late and as
wrong as it likes: what is too large is a sentence, what is much is cut, and after a few that do not
answer the rest is not asked, since each may hold one of the broker's threads for ten seconds. What
is kept is small: an answer as a member sent it is not. Any thread.

Tested by tests/console/test_group_page.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeVar

from console.lanes import ANSWER_ERRORS, WAITING, Question
from console.page import Reader
from console.replies import MOST_AT_ONCE, ask_all
from remoting.body.client_connection import Connection, ConsumerConnection
from remoting.body.consumer_running_info import ConsumerRunningInfo
from remoting.body.message_queue import MessageQueue
from remoting.body.stats import ConsumeStats
from remoting.headers.admin import (
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
)
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient, merged_stats

K = TypeVar("K")
V = TypeVar("V")

ROUTE_AGE_MS: Final = 30_000
OWNERS_AGE_MS: Final = 60_000
TIMEOUT_MS: Final = 3_000
MOST_MEMBERS: Final = 5_000
MOST_BYTES: Final = 2 * 1024 * 1024
"""Of an answer that is read: a member of a thousand queues needs half of one."""
MOST_ASKED: Final = 20
"""Members that are asked which queues they have."""
MOST_SILENT: Final = 3
"""Members that do not answer, before the others are left alone."""
MOST_OWNED: Final = 500
"""Queues of one member."""
ENTRY_BYTES: Final = 200
"""Of a kept queue."""
MOST_SHOWN: Final = 1_000
"""Entries of each table of a member."""
MOST_STACK: Final = 500_000
"""Characters of a stack."""


def brokers_of(reader: Reader, group: str, *, is_later: bool = False) -> list[str]:
    """Addresses of those that may know a group."""
    return reader.laned(ROUTE_AGE_MS, is_later=is_later).group_brokers(group)


# -- progress --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    """Of all brokers that told, and why others did not."""

    stats: ConsumeStats = field(default_factory=ConsumeStats)
    problem: str | None = None


def progress(reader: Reader, group: str, max_age_ms: int, *, is_later: bool = False) -> Progress:
    """How far a group is, at each of its brokers."""
    try:
        brokers = brokers_of(reader, group, is_later=is_later)
    except ANSWER_ERRORS as error:
        return Progress(problem=str(error))
    question = _progress(group)
    asked = [(address, question) for address in brokers]
    is_later = is_later or len(asked) > MOST_AT_ONCE
    answers = ask_all(reader, asked, max_age_ms, is_later=is_later)
    problems = [answer.error or WAITING for answer in answers if answer.value is None]
    told = merged_stats(answer.value for answer in answers if answer.value is not None)
    return Progress(told, joined(problems))


def joined(problems: Sequence[str]) -> str | None:
    """Each once, and few of many."""
    said = list(dict.fromkeys(problems))
    more = [f"and {len(said) - MOST_SILENT} more"] if len(said) > MOST_SILENT else []
    return "; ".join([*said[:MOST_SILENT], *more]) or None


def _progress(group: str) -> Question[ConsumeStats]:
    header = GetConsumeStatsRequestHeader(consumer_group=group)

    def ask(client: AdminClient, address: str) -> ConsumeStats:
        response = client.call(address, RequestCode.GET_CONSUME_STATS, header)
        stats: ConsumeStats = ConsumeStats.from_json_bytes(response.body)
        return stats

    return Question(("group progress", group), ask)


# -- members ---------------------------------------------------------------------------------------

MEMBERS: Final = "members"
"""Begins the key of the question, by which a search finds the answers."""


@dataclass(frozen=True, slots=True)
class Members:
    """Who is online, as the first broker that has any tells."""

    connection: ConsumerConnection | None = None
    address: str = ""
    """Of that broker."""
    group: str = ""
    total: int = 0
    """How many it told of; only the first 5,000 are kept."""
    problem: str | None = None


def members(reader: Reader, group: str, max_age_ms: int, *, is_later: bool = False) -> Members:
    """The members of a group."""
    try:
        brokers = brokers_of(reader, group, is_later=is_later)[:MOST_AT_ONCE]
    except ANSWER_ERRORS as error:
        return Members(problem=str(error))
    question = members_question(group)
    asked = [(address, question) for address in brokers]
    problems = []
    for address, answer in zip(
        brokers, ask_all(reader, asked, max_age_ms, is_later=is_later), strict=True
    ):
        if answer.value is None:
            problems.append(answer.error or WAITING)
        elif answer.value.connection is not None:
            return Members(answer.value.connection, address, group, answer.value.total)
    return Members(problem=joined(problems))


def members_question(group: str) -> Question[Members]:
    """203 of one broker."""

    def ask(client: AdminClient, address: str) -> Members:
        found = client.find_consumer_connection(group, address)
        if found is None:
            return Members()
        total = len(found.connection_set)
        kept: ConsumerConnection = replace(
            found,
            connection_set=found.connection_set[:MOST_MEMBERS],
            subscription_table=_first(found.subscription_table, MOST_SHOWN),
        )
        return Members(kept, group=group, total=total)

    return Question((MEMBERS, group), ask, MOST_BYTES)


def _first(table: dict[K, V], most: int) -> dict[K, V]:
    return dict(islice(table.items(), most))


# -- what a member says of itself ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owners:
    """Which members have which queues, as far as they say."""

    by_queue: dict[MessageQueue, list[str]] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()


def owners(reader: Reader, group: str, found: Members) -> Owners:
    """Of the first members, who are asked behind all that pages wait for."""
    connection = found.connection
    online: list[Connection] = [] if connection is None else connection.connection_set
    by_queue: dict[MessageQueue, list[str]] = {}
    failed: list[str] = []
    waits, asked = 0, 0
    for member in online[:MOST_ASKED]:
        if len(failed) >= MOST_SILENT:
            break
        asked += 1
        question = _owned(group, member.client_id)
        answer = reader.ask(found.address, question, OWNERS_AGE_MS, is_later=True)
        if answer.value is None:
            waits += 1
        elif isinstance(answer.value, str):
            failed.append(f"{member.client_id} does not say which queues it has: {answer.value}")
        else:
            for queue in answer.value:
                by_queue.setdefault(queue, []).append(member.client_id)
    left = max(found.total, len(online)) - asked
    sentences = [*failed]
    if waits:
        sentences.append(f"{waits} of the members asked have not said yet which queues they have.")
    if left:
        sentences.append(f"{left} further members are not asked which queues they have.")
    return Owners(by_queue, tuple(sentences))


def _owned(group: str, client_id: str) -> Question[tuple[MessageQueue, ...] | str]:
    """Its queues, or why it does not say: that, too, is not asked again for a while."""

    def ask(client: AdminClient, address: str) -> tuple[MessageQueue, ...] | str:
        try:
            info = _running(client, address, group, client_id, with_jstack=False)
        except ANSWER_ERRORS as error:
            return str(error)
        return tuple(islice(info.mq_table, MOST_OWNED))

    return Question(("owned queues", group, client_id), ask, MOST_BYTES, _size_of_owned)


def _size_of_owned(found: tuple[MessageQueue, ...] | str) -> int:
    return ENTRY_BYTES * len(found)


def _running(
    client: AdminClient, address: str, group: str, client_id: str, *, with_jstack: bool
) -> ConsumerRunningInfo:
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=client_id, jstack_enable=with_jstack
    )
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    response = client.call(address, code, header, timeout_ms=TIMEOUT_MS)
    info: ConsumerRunningInfo = ConsumerRunningInfo.from_json_bytes(response.body)
    return info


@dataclass(frozen=True, slots=True)
class Running:
    """What one member says of itself, cut to what a page can show."""

    info: ConsumerRunningInfo = field(default_factory=ConsumerRunningInfo)
    cut: tuple[str, ...] = ()
    """What was cut, in sentences."""
    problem: str | None = None
    """Why it says nothing: an answer like any other, not asked for again before its time."""


def running(group: str, client_id: str, *, with_jstack: bool = False) -> Question[Running]:
    """307 through one broker."""

    def ask(client: AdminClient, address: str) -> Running:
        try:
            info = _running(client, address, group, client_id, with_jstack=with_jstack)
        except ANSWER_ERRORS as error:
            return Running(problem=str(error))
        return _cut(info)

    return Question(("running", group, client_id, with_jstack), ask, MOST_BYTES)


def _cut(info: ConsumerRunningInfo) -> Running:
    sizes = {
        "queues": len(info.mq_table),
        "topics": len(info.status_table),
        "subscriptions": len(info.subscription_set),
        "properties": len(info.properties),
    }
    cut = [
        f"The first {MOST_SHOWN} of {size} {what} are shown."
        for what, size in sizes.items()
        if size > MOST_SHOWN
    ]
    stack = info.jstack
    if stack is not None and len(stack) > MOST_STACK:
        cut.append(f"The first {MOST_STACK:,} of {len(stack):,} characters of its stack are shown.")
        stack = stack[:MOST_STACK]
    kept = replace(
        info,
        mq_table=_first(info.mq_table, MOST_SHOWN),
        status_table=_first(info.status_table, MOST_SHOWN),
        subscription_set=info.subscription_set[:MOST_SHOWN],
        properties=_first(info.properties, MOST_SHOWN),
        jstack=stack,
        user_consumer_info=None,
    )
    return Running(kept, tuple(cut))
