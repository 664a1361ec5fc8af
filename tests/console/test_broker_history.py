"""History as brokers tell it: several brokers' answers as one, gaps, the worst, what is odd."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from console.broker_history import POINTS, ask_group, dump_question, together
from console.dumps import MAX_REPLICAS, Spell
from console.history import History
from console.jobs import Jobs
from console.lanes import Lanes
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
        [answer(point(1, 500, 9), point(2)), answer(point(1, 1_500), point(3, 250))], 2, []
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
    found = together([answer(incidents=incidents)], 1, [])
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
    found = together([answer(DumpPoint(ts=1, replicas=many))], 1, [])
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
