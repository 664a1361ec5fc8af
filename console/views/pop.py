"""Pop: what is handed out and not acknowledged, by group and topic, how old it is, revive lag.

From the metrics of our brokers, whose names are those of RocketMQ 5.x; request 200055 tells how
many pops wait for one group and topic, which the reader names. A Java broker tells only the latter.

Tested by tests/console/test_traffic_views.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from console import metric_names as names
from console.cells import age_cell, whole
from console.page import Page, Query, Reader, View
from console.proof_questions import waiting_pops
from console.replies import ask_all, chosen_masters, without_metrics
from console.snapshot import BrokerSeen, Metrics
from console.tables import Table
from tools.broker_numbers import number
from tools.report import columns

MAX_AGE_MS: Final = 5_000
INFLIGHT: Final = columns(
    "Group consumerGroup | Topic topic | Broker broker | In flight inflight > | Ready ready > | "
    "Oldest not handed out oldestMs >"
)
REVIVE: Final = columns(
    "Broker broker | Queue queueId > | Records not handled records > | Oldest oldestMs >"
)
BUFFERS: Final = columns(
    "Broker broker | Pops the offset has not passed offsets > | Check points checkPoints > | "
    "Copied to retry topics retried >"
)
WAITING: Final = columns("Broker broker | Group consumerGroup | Topic topic | Waiting pops pops >")


def pop(reader: Reader, query: Query) -> Page:
    """The chosen masters' figures, and who waits if a group and a topic are named."""
    chosen = chosen_masters(reader, query)
    sentences = [*chosen.sentences, *without_metrics(chosen.brokers, "what is in flight")]
    group, topic = query.text("group"), query.text("topic")
    waiting = _waiting(reader, chosen.brokers, group, topic, sentences)
    told = [(broker, broker.metrics.value) for broker in chosen.brokers if broker.metrics.value]
    return Page(
        context={
            "sentences": sentences,
            "names": chosen.names,
            "chosen": chosen.name,
            "group": group,
            "topic": topic,
            "asked": bool(group and topic),
        },
        tables=[
            Table(
                "inflight",
                "Handed out and not acknowledged",
                INFLIGHT,
                [row for broker, metrics in told for row in _inflight(broker, metrics)],
                empty_text="Nothing, as far as the brokers tell.",
                sort="inflight",
                descending=True,
            ),
            Table(
                "revive",
                "Waiting to be handed out again",
                REVIVE,
                [row for broker, metrics in told for row in _revive(broker, metrics)],
                empty_text="No broker tells of its revive topic.",
            ),
            Table(
                "buffers",
                "Buffers",
                BUFFERS,
                [_buffers(broker, metrics) for broker, metrics in told],
                empty_text="No broker tells of its buffers.",
            ),
            Table("waiting", "Pops that wait", WAITING, waiting, empty_text=_NOBODY_ASKED),
        ],
    )


_NOBODY_ASKED: Final = "Name a group and a topic to see how many pops wait."


def _inflight(broker: BrokerSeen, metrics: Metrics) -> list[list[object]]:
    """Of groups that pull these lie between the committed offset and their next pull."""
    ready = _by_group(metrics, names.READY, sum)
    oldest = _by_group(metrics, names.QUEUEING_MS, max)
    return [
        [*key, broker.title, whole(value), whole(ready.get(key)), age_cell(oldest.get(key))]
        for key, value in _by_group(metrics, names.INFLIGHT, sum).items()
        if value
    ]


def _by_group(
    metrics: Metrics, name: str, join: Callable[[Iterable[float]], float]
) -> dict[tuple[str, str], float]:
    """A group has two series for a topic: of the topic itself, and of what comes to it again."""
    found: dict[tuple[str, str], list[float]] = {}
    for labels, value in metrics.rows(name):
        key = (labels.get("consumer_group", ""), labels.get("topic", ""))
        found.setdefault(key, []).append(value)
    return {key: join(values) for key, values in found.items()}


def _revive(broker: BrokerSeen, metrics: Metrics) -> list[list[object]]:
    ages = {labels.get("queue_id"): value for labels, value in metrics.rows(names.REVIVE_MS)}
    return [
        [
            broker.title,
            whole(number(labels.get("queue_id"))),
            whole(value),
            age_cell(ages.get(labels.get("queue_id"))),
        ]
        for labels, value in metrics.rows(names.REVIVE_RECORDS)
    ]


def _buffers(broker: BrokerSeen, metrics: Metrics) -> list[object]:
    wanted = (names.POP_OFFSETS, names.POP_CHECKPOINTS, names.REVIVE_RETRY)
    return [broker.title, *(whole(metrics.total(name)) for name in wanted)]


def _waiting(
    reader: Reader, brokers: list[BrokerSeen], group: str, topic: str, sentences: list[str]
) -> list[list[object]]:
    if not (group and topic):
        return []
    question = waiting_pops(group, topic)
    asked = [(broker.place.address, question) for broker in brokers]
    rows: list[list[object]] = []
    for broker, answer in zip(brokers, ask_all(reader, asked, MAX_AGE_MS), strict=True):
        if answer.error is not None:
            sentences.append(f"{broker.title} does not tell how many pops wait: {answer.error}")
        if answer.value is not None:
            rows.append([broker.title, group, topic, answer.value])
    return rows


VIEWS: Final = [View("/pop", "Pop", "Traffic", "pop.html.j2", pop)]
