"""Transactions: halves that wait for their end, the oldest, what was given up; and asking again.

The half topic's queue and the progress of the checks in it (202, 208), which Java brokers answer as
ours do: what lies between has no end yet, or only one that the checks have not passed. Our brokers'
metrics tell what waits by topic and group, and since when, and how halves end (rates and latencies:
console/rates.py). The texts of messages are no business of this page.

Tested by tests/console/test_traffic_views.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from console import metric_names as names
from console import rates
from console.cells import age_cell, milliseconds_cell, newest, rate_cell, whole
from console.errors import ConsoleError
from console.kept_answers import Answer
from console.page import Action, Done, Field, Page, Query, Reader, View
from console.proof_questions import (
    GIVEN_UP_TOPIC,
    HALF_GROUP,
    HALF_TOPIC,
    group_progress,
    topic_queues,
)
from console.replies import ask_all, chosen_masters, without_metrics
from console.snapshot import BrokerSeen
from console.tables import Table, link, moment
from remoting.body.stats import OffsetWrapper, TopicOffset
from remoting.headers.transaction import ResumeCheckHalfMessageRequestHeader
from remoting.request_code import RequestCode
from tools.report import columns

MAX_AGE_MS: Final = 10_000
GIVEN_UP_URL: Final = f"/messages?topic={GIVEN_UP_TOPIC}"
HALVES: Final = columns(
    "Broker broker | Not passed by the checks waiting > | Newest half newest | "
    "Stored halves and copies stored > | Given up givenUp > | Newest given up newestGivenUp"
)
NOW: Final = columns(
    "Broker broker | Waiting waiting > | Oldest oldest > | Commits/s commits > | "
    "Rollbacks/s rollbacks > | Until the end p50(ms) finishP50 > | p99(ms) finishP99 >"
)
WAITING: Final = columns(
    "Topic topic | Producer group group | Broker broker | Waiting waiting > | Oldest oldest >"
)
BY_TOPIC: Final = columns(
    "Topic topic | Broker broker | Waiting waiting > | Committed committed > | "
    "Rolled back rolledBack > | Asked about asked > | Given up givenUp >"
)
_QUESTIONS: Final = (
    topic_queues(HALF_TOPIC),
    group_progress(HALF_GROUP, HALF_TOPIC),
    topic_queues(GIVEN_UP_TOPIC),
)


def transactions(reader: Reader, query: Query) -> Page:
    """The chosen masters' halves."""
    chosen = chosen_masters(reader, query)
    sentences = list(chosen.sentences)
    sentences += without_metrics(chosen.brokers, "halves by topic, and how they ended")
    asked = [(broker.place.address, one) for broker in chosen.brokers for one in _QUESTIONS]
    answers = ask_all(reader, asked, MAX_AGE_MS)
    size = len(_QUESTIONS)
    rows = [
        _row(broker, answers[size * at : size * at + size], sentences)
        for at, broker in enumerate(chosen.brokers)
    ]
    return Page(
        context={
            "sentences": sentences,
            "names": chosen.names,
            "chosen": chosen.name,
            "may_change": reader.may_change,
            "given_up_topic": GIVEN_UP_TOPIC,
            "given_up_url": GIVEN_UP_URL if any(one.value for one in answers[2::size]) else None,
        },
        tables=[
            Table("halves", "Halves", HALVES, rows, empty_text="There is no master."),
            Table(
                "now",
                "Now",
                NOW,
                [_now(reader, broker) for broker in chosen.brokers],
                empty_text="There is no master.",
            ),
            Table(
                "waiting",
                "Waiting by topic and group",
                WAITING,
                [row for broker in chosen.brokers for row in _waiting(broker)],
                empty_text="No half waits, as far as the brokers tell.",
                sort="oldest",
                descending=True,
            ),
            Table(
                "topics",
                "Since each broker's start, by topic",
                BY_TOPIC,
                [row for broker in chosen.brokers for row in _by_topic(broker)],
                empty_text="No broker has served a transaction, as far as they tell.",
            ),
        ],
    )


def _row(broker: BrokerSeen, answers: list[Answer[Any]], sentences: list[str]) -> list[object]:
    half, progress, given_up = answers
    for answer, what in ((half, "halves"), (progress, "checks")):
        if answer.error is not None and not _is_absent(answer.error):
            sentences.append(f"{broker.title} does not tell of its {what}: {answer.error}")
    return [
        broker.title,
        _behind(progress.value) if progress.value else None,
        _newest(half.value),
        _depth(half.value),
        _given_up(given_up),
        _newest(given_up.value),
    ]


def _is_absent(error: str) -> bool:
    """A broker that never had a half has no such topic."""
    return "TOPIC_NOT_EXIST" in error or "not exist" in error


def _none_if_absent(error: str | None) -> int | None:
    return 0 if error is not None and _is_absent(error) else None


def _given_up(answer: Answer[list[TopicOffset]]) -> object:
    count = _depth(answer.value) if answer.value is not None else _none_if_absent(answer.error)
    return link(count, GIVEN_UP_URL) if count else count


def _behind(queues: list[OffsetWrapper]) -> int:
    return sum(max(queue.broker_offset - queue.consumer_offset, 0) for queue in queues)


def _depth(queues: list[TopicOffset] | None) -> int | None:
    if queues is None:
        return None
    return sum(max(queue.max_offset - queue.min_offset, 0) for queue in queues)


def _newest(queues: list[TopicOffset] | None) -> object:
    return moment(max((queue.last_update_timestamp for queue in queues or ()), default=0))


def _now(reader: Reader, broker: BrokerSeen) -> list[object]:
    metrics, address = broker.metrics.value, broker.place.address
    ages_s = [] if metrics is None else [age for _, age in metrics.rows(names.OLDEST_HALF)]
    tells = metrics is not None and metrics.total(f"{names.FINISH_LATENCY}_count") is not None
    return [
        broker.title,
        whole(metrics.total(names.HALVES) or 0) if metrics is not None and tells else None,
        age_cell(max(ages_s) * 1000) if ages_s else None,
        *(rate_cell(newest(reader, address, name)) for name in (rates.COMMITS, rates.ROLLBACKS)),
        *(
            milliseconds_cell(newest(reader, address, name))
            for name in (rates.FINISH_P50, rates.FINISH_P99)
        ),
    ]


def _waiting(broker: BrokerSeen) -> list[list[object]]:
    metrics = broker.metrics.value
    if metrics is None:
        return []
    ages_s = {_pair(labels): age for labels, age in metrics.rows(names.OLDEST_HALF)}
    return [
        [*pair, broker.title, whole(count), None if age is None else age_cell(age * 1000)]
        for labels, count in metrics.rows(names.WAITING_HALVES)
        for pair in (_pair(labels),)
        for age in (ages_s.get(pair),)
    ]


def _pair(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("topic", ""), labels.get("producer_group", "")


def _by_topic(broker: BrokerSeen) -> list[list[object]]:
    metrics = broker.metrics.value
    if metrics is None:
        return []
    columns_of = [
        {labels.get("topic", ""): value for labels, value in metrics.rows(name)}
        for name in (
            names.HALVES,
            names.COMMITS,
            names.ROLLBACKS,
            names.TRANSACTION_CHECKS,
            names.HALVES_GIVEN_UP,
        )
    ]
    topics = sorted({topic for values in columns_of for topic in values})
    return [
        [topic, broker.title, *(whole(values.get(topic, 0.0)) for values in columns_of)]
        for topic in topics
    ]


# -- asking again ------------------------------------------------------------------------------


def plan_resume(reader: Reader, query: Query) -> Sequence[str]:
    """What 323 does."""
    address = _master_at(reader, query)
    return [
        f"The half {query.needed('msgId')} goes back from {GIVEN_UP_TOPIC} to {HALF_TOPIC} on "
        f"{address}: its number of checks begins anew, and its producer group is asked again.",
        "If the producer says that it is committed, its message is delivered.",
    ]


def run_resume(reader: Reader, query: Query) -> Done:
    """323."""
    message_id = query.needed("msgId")
    header = ResumeCheckHalfMessageRequestHeader(
        msg_id=message_id, topic=query.text("topic") or None
    )
    code = RequestCode.RESUME_CHECK_HALF_MESSAGE
    reader.client().call(_master_at(reader, query), code, header)
    return Done([f"The half {message_id} will be asked about again."], "/transactions")


def _master_at(reader: Reader, query: Query) -> str:
    name = query.needed("broker")
    for broker in reader.snapshot.masters():
        if broker.place.broker_name == name:
            return broker.place.address
    raise ConsoleError(f"no master is called {name}", 404)


VIEWS: Final = [
    View("/transactions", "Transactions", "Traffic", "transactions.html.j2", transactions)
]
ACTIONS: Final = [
    Action(
        name="resumeHalf",
        title="Have a half asked about again",
        fields=[
            Field("broker", "Broker name"),
            Field("msgId", "Message id", help="Its id with the place in the log, 32 characters."),
            Field("topic", "Real topic of the half", needed=False),
        ],
        plan=plan_resume,
        run=run_resume,
    )
]
