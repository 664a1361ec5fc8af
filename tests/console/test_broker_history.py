"""History as brokers tell it: several brokers' answers as one, gaps, the worst, what is odd."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from console.broker_history import (
    MOST_PIECES,
    PART_MS,
    POINTS,
    Part,
    ask_group,
    dump_question,
    parts_of,
    together,
)
from console.dumps import MAX_REPLICAS, Spell
from console.history import History
from console.jobs import Jobs
from console.lanes import WAITING, Answer, Lanes
from console.page import Reader
from console.questions import METRICS
from console.snapshot import BrokerSeen, ClusterSnapshot, Metrics, Told
from remoting.body.metrics_answer import (
    DumpIncident,
    DumpLife,
    DumpPoint,
    MetricsDumpAnswer,
    ReplicaPoint,
)
from remoting.remoting_command import RemotingCommand
from tests.console.pages import NOW, Answers, seen
from tools.errors import AdminError

HOUR_MS = 3_600_000
END = NOW // 60_000 * 60_000


def point(ts: int, lag_ms: int | None = None, exposed: int | None = None) -> DumpPoint:
    replicas = {}
    if lag_ms is not None:
        one = ReplicaPoint(lag_ms_max=lag_ms, lag_bytes_max=7, worst_state="in_sync", in_sync=True)
        replicas = {"g:1": one}
    return DumpPoint(ts=ts, lines=1, replicas=replicas, exposure_bytes_at_most=exposed)


def answer(*points: DumpPoint, **more: Any) -> MetricsDumpAnswer:
    return MetricsDumpAnswer(begin=END - HOUR_MS, end=END, step=9_000, points=list(points), **more)


def test_of_each_interval_the_worst_and_a_gap_where_nobody_knows() -> None:
    found = together(
        [answer(point(1, 500, 9), point(2)), answer(point(1, 1_500), point(3, 250))], (2, 2), []
    )
    assert found.lag_s["g:1"].times_ms == [1, 2, 3]
    assert found.lag_s["g:1"].values == [1.5, None, 0.25]
    assert found.lag_bytes["g:1"].values == [7.0, None, 7.0]
    assert found.exposed.values == [9.0, None, None]


def test_incidents_of_replicas_and_of_the_broker() -> None:
    incidents = [
        DumpIncident(replica="g:1", from_=5, to=8, state="disconnected"),
        DumpIncident(replica="", from_=9, to=None, state="unknown"),
        DumpIncident(replica="g:1", from_=1, to=2, state="in_sync"),
    ]
    found = together([answer(incidents=incidents)], (1, 1), [])
    assert found.spells == [
        Spell("g:1", "disconnected", 5, 8),
        Spell("the broker", "unknown", 9, END),
    ]


def life(from_ms: int, to_ms: int, broker_id: int = 0, **more: Any) -> DumpLife:
    values: dict[str, Any] = {"boot": "a" * 16, "started": True} | more
    return DumpLife(brokerId=broker_id, from_=END + from_ms, to=END + to_ms, **values)


def test_starts_and_ends_under_the_id_of_each_time() -> None:
    lives = [
        life(-900_000, -500_000, 1, started=False, end="in order"),
        life(-400_000, -300_000, end="killed"),
        life(-200_000, -100_000, end="<b>other</b>"),
        life(-(10**12), 10**12, end="killed"),
    ]
    ours = [replace(seen("g", 0), metrics=Told(Metrics({}), NOW))]
    key = dump_question(END - HOUR_MS, END).key
    answers = Answers({(ours[0].place.address, key): answer(lives=lives)})
    found = ask_group(reader(answers, *ours), ours, HOUR_MS)
    assert found is not None
    assert [(spell.who, spell.what, spell.from_ms - END) for spell in found.spells] == [
        ("g:1", "was stopped", -500_000),
        ("g:0", "was started", -400_000),
        ("g:0", "was killed", -300_000),
        ("g:0", "was started", -200_000),
    ]


def test_names_of_replicas_are_bounded() -> None:
    one = ReplicaPoint(lag_ms_max=1, lag_bytes_max=1, worst_state="in_sync", in_sync=True)
    many = {str(n): one for n in range(MAX_REPLICAS + 5)}
    found = together([answer(DumpPoint(ts=1, replicas=many))], (1, 1), [])
    assert len(found.lag_s) == MAX_REPLICAS


class Client:
    """Answers with a body."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def call(self, *_: Any, **__: Any) -> RemotingCommand:
        return RemotingCommand.request(0, {}, self.body)


@pytest.mark.parametrize("body", [b"", b"[[", b'{"begin": "x"}', b"\xff", b"[" * 100_000])
def test_what_cannot_be_read_is_a_sentence(body: bytes) -> None:
    for question in (dump_question(1, 2), METRICS):
        with pytest.raises(AdminError, match="cannot be read"):
            question.run(cast(Any, Client(body)), "b:1")


def test_an_answer_of_a_broker_and_its_metrics() -> None:
    sent = answer(point(1, 500), partial_up_to=2, bad_lines=3)
    read = dump_question(1, 2).run(cast(Any, Client(msgspec.json.encode(sent))), "b:1")
    assert read == sent
    body = b'{"timestamp": 1, "metrics": {"m": [[{"a": "b"}, 2.5]]}, "more": 1}'
    assert METRICS.run(cast(Any, Client(body)), "b:1").rows("m") == [({"a": "b"}, 2.5)]


def reader(answers: Answers, *brokers: BrokerSeen) -> Reader:
    snapshot = ClusterSnapshot(brokers=brokers)
    lanes = cast(Lanes, answers)
    return Reader(snapshot, History(), lanes, Jobs(lambda: 0), cast(Any, None), (), NOW, NOW)


def test_brokers_of_ours_are_asked_and_silence_is_said() -> None:
    ours = [replace(seen("g", n), metrics=Told(Metrics({}), NOW)) for n in (0, 1)]
    key = dump_question(END - HOUR_MS, END).key
    told = answer(point(1, 500), partial_up_to=2, bad_lines=3)
    answers = Answers({(ours[0].place.address, key): told})
    found = ask_group(reader(answers, *ours), ours, HOUR_MS)
    assert found is not None
    assert (found.files, found.unread) == (1, 1)
    assert found.problems[0].startswith("g:0 had no time")
    assert found.problems[1] == "g:0 has 3 lines that cannot be read."
    assert "is silent" in found.problems[2]
    assert POINTS <= 2_000, "what a broker gives"


def test_brokers_of_another_make_are_not_asked() -> None:
    java = [replace(seen("g", 0), metrics=Told(error="REQUEST_CODE_NOT_SUPPORTED(3)"))]
    answers = Answers()
    assert ask_group(reader(answers, *java), java, HOUR_MS) is None
    assert answers.asked == []


DAY_MS = 86_400_000


def test_a_long_span_is_asked_in_parts_that_stay_the_same() -> None:
    parts = parts_of(END - 40 * DAY_MS, END)
    assert parts[0].end_ms == END
    assert [part.begin_ms % PART_MS for part in parts] == [0] * len(parts)
    assert [later.begin_ms for later in parts[:-1]] == [part.end_ms for part in parts[1:]]
    assert parts[-1].begin_ms <= END - 40 * DAY_MS < parts[-1].end_ms
    assert {part.points for part in parts} == {40}
    assert parts_of(END - 40 * DAY_MS + 60_000, END + 60_000)[1:] == parts[1:]
    assert parts_of(END - DAY_MS, END) == [(END - DAY_MS, END, POINTS)]


def told(part: Part, begin_ms: int, **more: Any) -> MetricsDumpAnswer:
    return MetricsDumpAnswer(begin=begin_ms, end=part.end_ms, step=1, **more)


def question_of(part: Part, begin_ms: int) -> Hashable:
    return dump_question(begin_ms, part.end_ms, part.points).key


def test_what_a_broker_had_no_time_for_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = replace(seen("g", 0), metrics=Told(Metrics({}), NOW))
    newest, older, *rest = parts_of(END - 8 * DAY_MS - 1, END)
    middle = older.begin_ms + DAY_MS
    answers = Answers(
        {
            (ours.place.address, question_of(newest, newest.begin_ms)): told(
                newest, newest.begin_ms, points=[point(END - 5, 500)]
            ),
            (ours.place.address, question_of(older, older.begin_ms)): told(
                older, older.begin_ms, points=[point(middle - 5, 700)], partial_up_to=middle
            ),
            (ours.place.address, question_of(older, middle)): told(
                older, middle, points=[point(middle + 5, 900)]
            ),
            (ours.place.address, question_of(rest[0], rest[0].begin_ms)): told(
                rest[0], rest[0].begin_ms, points=[point(rest[0].begin_ms + 5, 100)]
            ),
        }
    )
    found = ask_group(reader(answers, ours), [ours], 8 * DAY_MS + 1)
    assert found is not None
    assert found.lag_s["g:1"].times_ms == [middle - 5, middle + 5, END - 5], "not before the span"
    assert (found.files, found.unread, found.problems) == (1, 0, [])


def test_parts_that_are_not_there_yet_are_counted() -> None:
    ours = replace(seen("g", 0), metrics=Told(Metrics({}), NOW))
    newest, older, *rest = parts_of(END - 8 * DAY_MS, END)
    answers = Answers(
        {
            (ours.place.address, question_of(newest, newest.begin_ms)): told(newest, 1),
            (ours.place.address, question_of(older, older.begin_ms)): ValueError(WAITING),
        }
    )
    found = ask_group(reader(answers, ours), [ours], 8 * DAY_MS)
    assert found is not None
    assert (found.files, found.unread) == (1, 0)
    unread = 1 + len(rest)
    assert found.problems[0] == (
        f"{unread} of {unread + 1} parts of the time are not read from g:0 yet: load this page "
        "again."
    )
    assert found.problems[1:] == ["g:0: g0:10911 is silent"]


@pytest.mark.parametrize("goes_on_ms", [0, -1, END, END * 2])
def test_a_broker_that_never_ends(goes_on_ms: int) -> None:
    ours = replace(seen("g", 0), metrics=Told(Metrics({}), NOW))
    (part,) = parts_of(END - HOUR_MS, END)
    key = question_of(part, part.begin_ms)
    answers = Answers({(ours.place.address, key): told(part, 1, partial_up_to=goes_on_ms)})
    found = ask_group(reader(answers, ours), [ours], HOUR_MS)
    assert found is not None
    assert found.problems == ["g:0 had no time for all of it: the plot has a gap."]
    assert len(answers.asked) == 1


def test_a_broker_that_ends_each_answer_a_little_later() -> None:
    class Slow(Answers):
        def ask(self, address: str, question: Any, *_: Any, **__: Any) -> Answer[Any]:
            self.asked.append((address, question.key))
            begin_ms = question.key[1]
            return Answer(told(part, begin_ms, partial_up_to=begin_ms + 1), 1)

    ours = replace(seen("g", 0), metrics=Told(Metrics({}), NOW))
    (part,) = parts_of(END - HOUR_MS, END)
    answers = Slow()
    found = ask_group(reader(answers, ours), [ours], HOUR_MS)
    assert found is not None
    assert len(answers.asked) == MOST_PIECES
    assert "had no time" in found.problems[0]
