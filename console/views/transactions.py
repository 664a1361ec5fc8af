"""Transactions: halves that wait for their end, the oldest, what was given up; and asking again.

The half topic's queue and the progress of the checks in it (202, 208), which Java brokers answer as
ours do: what lies between has no end yet, or only one that the checks have not passed. Our brokers'
metrics, with 5.x's names, tell more. The texts of messages are no business of this page.

Tested by tests/console/test_traffic_views.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from console import metric_names as names
from console.cells import whole
from console.errors import ConsoleError
from console.lanes import Answer
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
from console.tables import Table, moment
from remoting.body.stats import OffsetWrapper, TopicOffset
from remoting.headers.transaction import ResumeCheckHalfMessageRequestHeader
from remoting.request_code import RequestCode
from tools.report import columns

MAX_AGE_MS: Final = 10_000
HALVES: Final = columns(
    "Broker broker | Not passed by the checks waiting > | Newest half newest | "
    "Stored halves and copies stored > | Given up givenUp > | Newest given up newestGivenUp"
)
BY_TOPIC: Final = columns("Series name | Labels labels | Broker broker | Value value >")
OURS: Final = (names.HALVES, names.COMMITS, names.ROLLBACKS)
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
        },
        tables=[
            Table("halves", "Halves", HALVES, rows, empty_text="There is no master."),
            Table(
                "series",
                "By topic and group",
                BY_TOPIC,
                [row for broker in chosen.brokers for row in _series(broker)],
                empty_text="No broker tells of them.",
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
        _depth(given_up.value) if given_up.value is not None else _none_if_absent(given_up.error),
        _newest(given_up.value),
    ]


def _is_absent(error: str) -> bool:
    """A broker that never had a half has no such topic."""
    return "TOPIC_NOT_EXIST" in error or "not exist" in error


def _none_if_absent(error: str | None) -> int | None:
    return 0 if error is not None and _is_absent(error) else None


def _behind(queues: list[OffsetWrapper]) -> int:
    return sum(max(queue.broker_offset - queue.consumer_offset, 0) for queue in queues)


def _depth(queues: list[TopicOffset] | None) -> int | None:
    if queues is None:
        return None
    return sum(max(queue.max_offset - queue.min_offset, 0) for queue in queues)


def _newest(queues: list[TopicOffset] | None) -> object:
    return moment(max((queue.last_update_timestamp for queue in queues or ()), default=0))


def _series(broker: BrokerSeen) -> list[list[object]]:
    metrics = broker.metrics.value
    if metrics is None:
        return []
    base = {"cluster", "node_type", "node_id"}
    return [
        [
            name.removeprefix("rocketmq_"),
            ", ".join(f"{key} {text}" for key, text in sorted(labels.items()) if key not in base),
            broker.title,
            whole(value),
        ]
        for name in OURS
        for labels, value in metrics.rows(name)
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
