"""Timers: how many wait, when the next are due, how late deliveries are, by topic; and recall.

From the metrics of our brokers; requests 60 and 61, which Java's 5.x brokers answer, too, tell the
rest. Which messages wait is in nobody's answers: the wheel knows slots and not keys.

Tested by tests/console/test_traffic_views.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from console import metric_names as names
from console.cells import age_cell, whole
from console.errors import ConsoleError
from console.kept_answers import Answer
from console.page import Action, Done, Field, Page, Query, Reader, View
from console.proof_questions import TIMER_COUNTS, TIMER_READ_TIME, RecallHandle
from console.replies import ask_all, chosen_masters, without_metrics
from console.snapshot import BrokerSeen
from console.tables import Table, TableCell, moment, utc_text
from remoting.headers.send_message import RecallMessageRequestHeader
from remoting.request_code import RequestCode
from tools.broker_numbers import number
from tools.commands.ha_status import duration_text
from tools.report import columns

MAX_AGE_MS: Final = 10_000
RECALL_BEFORE_MS: Final = 1_000
WHEELS: Final = columns(
    "Broker broker | Waiting waiting > | Not entered notEntered > | Oldest of these oldestMs > | "
    "Delivered up to readTime | Late lateMs >"
)
NEXT: Final = columns("Broker broker | Due within dueWithin > | Messages count >")
TOPICS: Final = columns("Topic topic | Broker broker | Waiting waiting >")


def timers(reader: Reader, query: Query) -> Page:
    """The chosen masters' wheels, and what waits in them by topic."""
    chosen = chosen_masters(reader, query)
    sentences = [
        *chosen.sentences,
        *without_metrics(chosen.brokers, "when its next timers are due"),
    ]
    silent = [broker for broker in chosen.brokers if not _tells_its_wheel(broker)]
    addresses = [broker.place.address for broker in silent]
    asked = [(address, one) for address in addresses for one in (TIMER_READ_TIME, TIMER_COUNTS)]
    answers = ask_all(reader, asked, MAX_AGE_MS)
    read_times = dict(zip(addresses, answers[::2], strict=True))
    counts = dict(zip(addresses, answers[1::2], strict=True))
    wheels = [
        _wheel(broker, read_times.get(broker.place.address), counts.get(broker.place.address))
        for broker in chosen.brokers
    ]
    topics: list[list[object]] = []
    for broker in chosen.brokers:
        topics += _topics(broker, counts.get(broker.place.address), sentences)
    return Page(
        context={
            "sentences": sentences,
            "names": chosen.names,
            "chosen": chosen.name,
            "may_change": reader.may_change,
        },
        tables=[
            Table("wheels", "Timer wheels", WHEELS, wheels, empty_text="There is no master."),
            Table(
                "next",
                "Due next",
                NEXT,
                [row for broker in chosen.brokers for row in _next(broker)],
                empty_text="No broker tells when its timers are due.",
            ),
            Table(
                "topics",
                "Waiting by topic",
                TOPICS,
                topics,
                empty_text="No timer waits, as far as the brokers tell.",
                sort="waiting",
                descending=True,
            ),
        ],
    )


def _tells_its_wheel(broker: BrokerSeen) -> bool:
    """A broker's supervisor knows its wheel; request 28913, which process `remoting` answers, may
    lack it."""
    metrics = broker.metrics.value
    return metrics is not None and metrics.total(names.TIMERS_LATE_MS) is not None


def _wheel(
    broker: BrokerSeen,
    read_time: Answer[int] | None,
    counts: Answer[dict[str, int]] | None,
) -> list[object]:
    """Metrics first; what a Java broker says in its figures (28) and check point (60) else."""
    metrics = broker.metrics.value
    if metrics is not None:
        late, waiting = metrics.total(names.TIMERS_LATE_MS), metrics.total(names.TIMERS_WAITING)
        read_ms = None if late is None else broker.metrics.wall_ms - late
        if read_ms is None and read_time is not None:
            read_ms = read_time.value or None
        if waiting is None and counts is not None and counts.value is not None:
            waiting = sum(counts.value.values())
        return [
            broker.title,
            whole(waiting),
            whole(metrics.total(names.TIMERS_NOT_ENTERED)),
            age_cell(metrics.total(names.TIMERS_NOT_ENTERED_MS)),
            moment(whole(read_ms)),
            age_cell(late),
        ]
    runtime = broker.runtime.value or {}
    read_ms = None if read_time is None else read_time.value
    behind = runtime.get("timerReadBehind")
    return [
        broker.title,
        whole(number(runtime["timerCongestNum"])) if "timerCongestNum" in runtime else None,
        whole(number(runtime["timerOffsetBehind"])) if "timerOffsetBehind" in runtime else None,
        None,
        moment(read_ms),
        None if behind is None else age_cell(max(number(behind), 0) * 1000),
    ]


def _next(broker: BrokerSeen) -> list[list[object]]:
    """How many are due within each bound of the metric, and not within the one before."""
    metrics = broker.metrics.value
    rows = [] if metrics is None else metrics.rows(names.TIMERS_NEXT)
    found: list[list[object]] = []
    for labels, value in rows:
        bound = number(labels.get("timer_bound_s"))
        found.append([broker.title, TableCell(duration_text(bound), bound), whole(value)])
    return found


def _topics(
    broker: BrokerSeen, answer: Answer[dict[str, int]] | None, sentences: list[str]
) -> list[list[object]]:
    metrics = broker.metrics.value
    if metrics is not None and _tells_its_wheel(broker):
        return [
            [labels.get("topic"), broker.title, whole(value)]
            for labels, value in metrics.rows(names.TIMERS_BY_TOPIC)
            if value
        ]
    if answer is None:
        return []
    if answer.error is not None:
        sentences.append(
            f"{broker.title} does not tell how many timers wait for each topic: {answer.error}"
        )
    return [[topic, broker.title, count] for topic, count in (answer.value or {}).items() if count]


# -- recall ------------------------------------------------------------------------------------


def plan_recall(reader: Reader, query: Query) -> Sequence[str]:
    """What the handle names."""
    handle = RecallHandle.decode(query.needed("recallHandle"))
    address = _master_of(reader, handle.broker_name)
    due_ms = number(handle.deliver_ms)
    due = utc_text(due_ms)
    said = [
        f"The timer message {handle.unique_key} of topic {handle.topic}, due {due} UTC, will not "
        f"be delivered: broker {handle.broker_name} ({address}) is asked to recall it.",
        "The answer does not say whether the message existed. This cannot be undone.",
    ]
    if due_ms <= reader.now_ms + RECALL_BEFORE_MS:
        said.append("Its time has come already: the broker will most likely refuse.")
    return said


def run_recall(reader: Reader, query: Query) -> Done:
    """370, to the master of the handle's broker."""
    text = query.needed("recallHandle")
    handle = RecallHandle.decode(text)
    address = _master_of(reader, handle.broker_name)
    header = RecallMessageRequestHeader(topic=handle.topic, recall_handle=text)
    reader.client().call(address, RequestCode.RECALL_MESSAGE, header)
    return Done(
        [f"Recalled: {handle.unique_key} of topic {handle.topic}, if it was still waiting."],
        "/timers",
    )


def _master_of(reader: Reader, broker_name: str) -> str:
    for broker in reader.snapshot.masters():
        if broker.place.broker_name == broker_name:
            return broker.place.address
    raise ConsoleError(f"no master of broker {broker_name}, which the handle names, is known", 404)


VIEWS: Final = [View("/timers", "Timers", "Traffic", "timers.html.j2", timers)]
ACTIONS: Final = [
    Action(
        name="recallTimer",
        title="Recall a timer message",
        fields=[
            Field(
                "recallHandle",
                "Recall handle",
                help="The recallHandle of the answer to its send.",
            )
        ],
        plan=plan_recall,
        run=run_recall,
        is_destructive=True,
    )
]
