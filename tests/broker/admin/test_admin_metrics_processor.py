"""Requests 28913 and 28912: what they refuse, and what a real broker answers, with and without
rights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from broker.admin.admin_metrics_processor import AdminMetricsProcessor
from broker.metrics.metrics_dump_files import DumpSettings
from remoting.body.metrics_answer import MetricsAnswer, MetricsDumpAnswer
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from tests.broker.acl.test_acl_served import ACCOUNTS, APPLICATION, client, home_of
from tests.broker.broker_fakes import request_of
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock
from tests.support.our_broker import OurBroker

METRICS, DUMP = 28913, 28912
NOW = 1_772_000_000_000
SETTINGS = DumpSettings(
    directory=Path("/nowhere"),
    cluster="C",
    broker="b",
    broker_id=0,
    interval_ms=5_000,
    max_bytes=1,
    keep_days=1,
)


def processor(root: Path | None, asked: list[Any] | None = None) -> AdminMetricsProcessor:
    def answer(names: list[str]) -> MetricsAnswer:
        (asked if asked is not None else []).append(names)
        return MetricsAnswer(timestamp=NOW)

    settings = None if root is None else dataclasses.replace(SETTINGS, directory=root)
    metrics: Any = SimpleNamespace(answer=answer)
    return AdminMetricsProcessor(metrics, lambda: settings, ManualClock(NOW))


def refusal(of: AdminMetricsProcessor, code: int, **fields: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        of.table[code](None, request_of(code, **fields))  # type: ignore[arg-type]
    return caught.value


def test_names_are_few_and_short(tmp_path: Path) -> None:
    asked: list[Any] = []
    of = processor(tmp_path, asked)
    most = ",".join(["n" * 200] * 50)
    of.table[METRICS](None, request_of(METRICS, names=f" a ,{most[:-201]}"))  # type: ignore[arg-type]
    assert asked == [["a", *["n" * 200] * 49]]
    for names in ("", "a,", "n" * 201, most + ",n"):
        assert "between 1 and 50" in str(refusal(of, METRICS, names=names))
    assert len(asked) == 1


def test_ranges_and_points_are_bounded(tmp_path: Path) -> None:
    of = processor(tmp_path)
    for begin, end in ((5, 5), (6, 5), (-1, 5)):
        assert "less than" in str(refusal(of, DUMP, beginTimestamp=begin, endTimestamp=end))
    for points in (0, 2_001):
        fields = {"beginTimestamp": 0, "endTimestamp": 5, "maxPoints": points}
        assert "between 1 and 2000" in str(refusal(of, DUMP, **fields))
    fields = {"beginTimestamp": 0, "endTimestamp": 2**63 - 1, "maxPoints": 2_000}
    answer = of.table[DUMP](None, request_of(DUMP, **fields))  # type: ignore[arg-type]
    assert answer is not None
    assert len(msgspec.json.decode(answer.body, type=MetricsDumpAnswer).points) == 2_000
    none = refusal(processor(None), DUMP, beginTimestamp=0, endTimestamp=5)
    assert "metricsDumpPath" in str(none)


def test_one_reads_at_a_time(tmp_path: Path) -> None:
    of = processor(tmp_path)
    fields = {"beginTimestamp": 0, "endTimestamp": 5}
    with of._reading:
        busy = refusal(of, DUMP, **fields)
        assert (busy.code, "ask again" in str(busy)) == (ResponseCode.SYSTEM_BUSY, True)
    of.table[DUMP](None, request_of(DUMP, **fields))  # type: ignore[arg-type]
    of.table[DUMP](None, request_of(DUMP, **fields))  # type: ignore[arg-type]


def test_a_running_broker_answers_whoever_may_ask(tmp_path: Path) -> None:
    home = home_of(tmp_path / "home", ACCOUNTS)
    settings = {"aclEnable": "true", "metricsDumpIntervalSeconds": 1, "namesrvAddr": ""}
    broker = OurBroker(tmp_path, **settings)
    broker.env["ROCKETMQ_HOME"] = str(home)
    with broker.start(), client(broker, APPLICATION) as mine, client(broker, None) as nobody:
        names = {"names": "rocketmq_store_offset,rocketmq_rpc"}
        begin, end = 0, 4_000_000_000_000

        def points() -> int:
            fields = {"beginTimestamp": begin, "endTimestamp": end}
            answer = mine.take(mine.post(DUMP, fields))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            found = msgspec.json.decode(answer.body, type=MetricsDumpAnswer)
            assert (found.begin, found.end, found.bad_lines) == (begin, end, 0)
            return sum(point.lines for point in found.points)

        wait_until(lambda: points() >= 2)
        answer = mine.take(mine.post(METRICS, names))
        found = msgspec.json.decode(answer.body, type=MetricsAnswer).metrics
        kinds = {labels["kind"] for labels, _ in found["rocketmq_store_offset_bytes"]}
        assert kinds == {"min", "max", "dispatched", "flushed", "replicated"}
        assert "rocketmq_rpc_latency_milliseconds_count" in found
        dump = {"beginTimestamp": begin, "endTimestamp": end}
        for code, fields in ((METRICS, names), (DUMP, dump)):
            assert nobody.take(nobody.post(code, fields)).code != ResponseCode.SUCCESS
