"""A group's past, as its own brokers tell it from their dumps (request 28912 of ours).

Asked through the lanes: one request a broker and span, kept for a while, so that forty days cost a
broker two seconds of a thread now and then. A broker that had no time for all says so, and is asked
for the rest by the next look. Any thread; what a broker says is bounded and checked here.

Tested by tests/console/test_broker_history.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from console.dumps import MAX_REPLICAS, Spell, Stretch, joined
from console.history import Series
from console.lanes import Question
from console.page import Reader
from console.questions import decoded
from console.snapshot import BrokerSeen
from remoting.body.metrics_answer import IN_ORDER, KILLED, MetricsDumpAnswer
from remoting.headers.metrics import GetMetricsDumpRequestHeader
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient

POINTS: Final = 400
"""Intervals of a plot: a pixel or three each."""
TIMEOUT_MS: Final = 8_000
ROUND_MS: Final = 60_000
"""The end of a span is rounded to it, so that looks within a minute are one question."""
AGE_MS: Final = 60_000
MAX_SPELLS: Final = 2_000
IN_SYNC: Final = "in_sync"
_ENDS: Final[dict[str | None, str]] = {IN_ORDER: "was stopped", KILLED: "was killed"}


def dump_question(begin_ms: int, end_ms: int) -> Question[MetricsDumpAnswer]:
    """What a broker's dump tells of a time."""

    def run(client: AdminClient, address: str) -> MetricsDumpAnswer:
        header = GetMetricsDumpRequestHeader(
            begin_timestamp=begin_ms, end_timestamp=end_ms, max_points=POINTS
        )
        code = RequestCode.GET_METRICS_DUMP
        response = client.call(address, code, header, timeout_ms=TIMEOUT_MS)
        return decoded(response.body, MetricsDumpAnswer, f"broker {address}: its history")

    return Question(("dump", begin_ms, end_ms), run)


def ask_group(reader: Reader, members: Iterable[BrokerSeen], length_ms: int) -> Stretch | None:
    """What the members of ours tell together; None when none of them is known to be ours."""
    ours = [broker for broker in members if broker.is_ours and broker.registered]
    if not ours:
        return None
    end_ms = reader.now_ms // ROUND_MS * ROUND_MS
    question = dump_question(end_ms - length_ms, end_ms)
    answers: list[MetricsDumpAnswer] = []
    lives: list[Spell] = []
    problems: list[str] = []
    for broker in ours:
        answer = reader.ask(broker.place.address, question, AGE_MS)
        if answer.value is not None:
            answers.append(answer.value)
            lives += _lives(broker, answer.value)
            problems += _partial(broker, answer.value)
        elif answer.error is not None:
            problems.append(f"{broker.title}: {answer.error}")
    return together(answers, len(ours), problems, lives)


def _partial(broker: BrokerSeen, answer: MetricsDumpAnswer) -> list[str]:
    said = []
    if answer.partial_up_to is not None:
        said.append(
            f"{broker.title} had no time for all of it: the plot ends early. Take a shorter one."
        )
    if answer.bad_lines:
        said.append(f"{broker.title} has {answer.bad_lines} lines that cannot be read.")
    return said


def _lives(broker: BrokerSeen, answer: MetricsDumpAnswer) -> list[Spell]:
    """Starts and ends, under the broker id of each time."""
    found: list[Spell] = []
    for life in answer.lives[-MAX_SPELLS:]:
        who = f"{broker.place.broker_name}:{life.brokerId}"
        if life.started:
            found.append(Spell(who, "was started", life.from_, life.from_))
        if life.end in _ENDS:
            found.append(Spell(who, _ENDS[life.end], life.to, life.to))
    return [spell for spell in found if answer.begin <= spell.from_ms <= answer.end]


def together(
    answers: list[MetricsDumpAnswer],
    asked: int,
    problems: list[str],
    lives: Sequence[Spell] = (),
) -> Stretch:
    """Several brokers' answers about one time as one: of each interval the worst."""
    times = sorted({point.ts for answer in answers for point in answer.points})[-4 * POINTS :]
    at = {time: index for index, time in enumerate(times)}
    lag_s: dict[str, list[float | None]] = {}
    lag_bytes: dict[str, list[float | None]] = {}
    exposed: list[float | None] = [None] * len(times)
    for answer in answers:
        for point in answer.points:
            index = at.get(point.ts)
            if index is None:
                continue
            _raise(exposed, index, point.exposure_bytes_at_most)
            for name, replica in point.replicas.items():
                if name not in lag_s and len(lag_s) >= MAX_REPLICAS:
                    continue
                _raise(
                    lag_s.setdefault(name, [None] * len(times)), index, replica.lag_ms_max / 1000
                )
                _raise(
                    lag_bytes.setdefault(name, [None] * len(times)), index, replica.lag_bytes_max
                )
    return Stretch(
        {name: Series(times, values) for name, values in sorted(lag_s.items())},
        {name: Series(times, values) for name, values in sorted(lag_bytes.items())},
        Series(times, exposed),
        joined([*_spells(answers), *lives]),
        len(answers),
        asked - len(answers),
        problems,
    )


def _raise(values: list[float | None], index: int, value: float | None) -> None:
    before = values[index]
    if value is not None and (before is None or value > before):
        values[index] = float(value)


def _spells(answers: list[MetricsDumpAnswer]) -> list[Spell]:
    return [
        Spell(
            incident.replica or "the broker",
            incident.state,
            incident.from_,
            answer.end if incident.to is None else incident.to,
        )
        for answer in answers
        for incident in answer.incidents[:MAX_SPELLS]
        if incident.state != IN_SYNC
    ]
