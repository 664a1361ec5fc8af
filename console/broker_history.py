"""A group's past, as its own brokers tell it from their dumps (request 28912 of ours).

Asked through the lanes. A long span is asked in parts of four days that begin at the same times
whenever somebody looks: what is over changes no more, and is kept for an hour, so that forty days
cost a broker some seconds of a thread once, and then the newest part now and then. A broker that
had no time for all of a part is asked for the rest. A page waits for the newest part only; the
others are there when it is loaded again. Any thread; what a broker says is bounded and checked.

Tested by tests/console/test_broker_history.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from console.dumps import MAX_REPLICAS, Spell, Stretch, joined
from console.history import Series
from console.lanes import NOT_YET, Question
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
PART_MS: Final = 4 * 86_400_000
OVER_AGE_MS: Final = 3_600_000
MOST_PIECES: Final = 8
"""Requests for one part: of a broker that ends each early."""
MAX_SPELLS: Final = 2_000
IN_SYNC: Final = "in_sync"
_ENDS: Final[dict[str | None, str]] = {IN_ORDER: "was stopped", KILLED: "was killed"}


class Part(NamedTuple):
    """A part of a span, and in how many intervals it is asked for."""

    begin_ms: int
    end_ms: int
    points: int


def parts_of(begin_ms: int, end_ms: int) -> list[Part]:
    """The newest first; the oldest begins where all do, at or before the begin."""
    length_ms = end_ms - begin_ms
    if length_ms <= PART_MS:
        return [Part(begin_ms, end_ms, POINTS)]
    points = -(-POINTS * PART_MS // length_ms)
    first_ms = begin_ms // PART_MS * PART_MS
    found = [Part(at, min(at + PART_MS, end_ms), points) for at in range(first_ms, end_ms, PART_MS)]
    return found[::-1]


def dump_question(begin_ms: int, end_ms: int, points: int = POINTS) -> Question[MetricsDumpAnswer]:
    """What a broker's dump tells of a time."""

    def run(client: AdminClient, address: str) -> MetricsDumpAnswer:
        header = GetMetricsDumpRequestHeader(
            begin_timestamp=begin_ms, end_timestamp=end_ms, max_points=points
        )
        code = RequestCode.GET_METRICS_DUMP
        response = client.call(address, code, header, timeout_ms=TIMEOUT_MS)
        return decoded(response.body, MetricsDumpAnswer, f"broker {address}: its history")

    return Question(("dump", begin_ms, end_ms, points), run)


def ask_group(reader: Reader, members: Iterable[BrokerSeen], length_ms: int) -> Stretch | None:
    """What the members of ours tell together; None when none of them is known to be ours."""
    ours = [broker for broker in members if broker.is_ours and broker.registered]
    if not ours:
        return None
    end_ms = reader.now_ms // ROUND_MS * ROUND_MS
    begin_ms = end_ms - length_ms
    told = [_Told(reader, broker, parts_of(begin_ms, end_ms)) for broker in ours]
    return together(
        [answer for one in told for answer in one.answers],
        (sum(bool(one.answers) for one in told), len(ours)),
        [problem for one in told for problem in one.problems()],
        [life for one in told for answer in one.answers for life in _lives(one.broker, answer)],
        begin_ms,
    )


class _Told:
    """What one broker tells of the parts."""

    def __init__(self, reader: Reader, broker: BrokerSeen, parts: list[Part]) -> None:
        self.broker = broker
        self.answers: list[MetricsDumpAnswer] = []
        self._errors: dict[str, None] = {}
        self._parts = len(parts)
        self._unread = 0
        self._cut = False
        for part in parts:
            self._ask(reader, part, is_newest=part is parts[0])

    def _ask(self, reader: Reader, part: Part, *, is_newest: bool) -> None:
        at_ms, age_ms = part.begin_ms, AGE_MS if is_newest else OVER_AGE_MS
        for piece in range(MOST_PIECES):
            question = dump_question(at_ms, part.end_ms, part.points)
            is_later = piece > 0 or not is_newest
            answer = reader.ask(self.broker.place.address, question, age_ms, is_later=is_later)
            if answer.value is None:
                self._unread += 1
                if answer.error is not None and answer.error not in NOT_YET:
                    self._errors[answer.error or ""] = None
                return
            self.answers.append(answer.value)
            goes_on_ms = answer.value.partial_up_to
            if goes_on_ms is None:
                return
            if not at_ms < goes_on_ms < part.end_ms:
                break  # It would never end.
            at_ms = goes_on_ms
        self._cut = True

    def problems(self) -> Iterator[str]:
        """What is not there, in sentences."""
        title = self.broker.title
        if self._cut:
            yield f"{title} had no time for all of it: the plot has a gap."
        if self._unread and self._parts > 1:
            yield (
                f"{self._unread} of {self._parts} parts of the time are not read from {title} yet: "
                "load this page again."
            )
        for error in self._errors:
            yield f"{title}: {error}"
        if bad := sum(answer.bad_lines for answer in self.answers):
            yield f"{title} has {bad} lines that cannot be read."


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
    brokers: tuple[int, int],
    problems: list[str],
    lives: Sequence[Spell] = (),
    begin_ms: int = 0,
) -> Stretch:
    """Several brokers' answers about one time as one: of each interval the worst. brokers: how many
    told something, of how many."""
    every = {point.ts for answer in answers for point in answer.points if point.ts >= begin_ms}
    times = sorted(every)[-4 * POINTS :]
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
        [one for one in joined([*_spells(answers), *lives]) if one.to_ms >= begin_ms],
        brokers[0],
        brokers[1] - brokers[0],
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
