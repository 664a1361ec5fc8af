"""28912 of forty days: how long it takes, how large the answers are, and that nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.admin.admin_metrics_processor import AdminMetricsProcessor
from broker.metrics.dump_history import BUDGET_MS
from broker.metrics.metrics_dump_files import DumpSettings
from ipc.clock import SystemClock
from remoting.body.metrics_answer import MetricsDumpAnswer
from tests.broker.broker_fakes import request_of
from tests.broker.metrics.days_of_dumps import (
    CLUSTER,
    DAY_MS,
    GROUP,
    INTERVAL_MS,
    LINES_AN_HOUR,
    MESSAGES_A_LINE,
    write_days,
)

FIRST = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * 1000
CODE = 28912


def ask(of: AdminMetricsProcessor, begin_ms: int, end_ms: int) -> tuple[MetricsDumpAnswer, int]:
    """The answer and its bytes."""
    fields = {"beginTimestamp": begin_ms, "endTimestamp": end_ms, "maxPoints": 400}
    found: Any = of.table[CODE](None, request_of(CODE, **fields))  # type: ignore[arg-type]
    return msgspec.json.decode(found.body, type=MetricsDumpAnswer), len(found.body)


def read_all(root: Path, days: int, told: list[str]) -> list[MetricsDumpAnswer]:
    """As whoever asks again where an answer ended."""
    settings = DumpSettings(
        directory=root,
        cluster=CLUSTER,
        broker=GROUP,
        broker_id=0,
        interval_ms=INTERVAL_MS,
        max_bytes=1,
        keep_days=days,
        host="10.0.0.1:10911",
    )
    of = AdminMetricsProcessor(None, lambda: settings, SystemClock())  # type: ignore[arg-type]
    begin_ms, end_ms = FIRST, FIRST + days * DAY_MS
    answers: list[MetricsDumpAnswer] = []
    times_s, sizes, boots = [], [], []
    while begin_ms is not None:
        began = time.monotonic()
        answer, size = ask(of, begin_ms, end_ms)
        times_s.append(time.monotonic() - began)
        sizes.append(size)
        answers.append(answer)
        boots += [life.boot[0] for life in answer.lives if life.boot[0] not in boots]
        assert answer.bad_lines == 0
        begin_ms = answer.partial_up_to
    assert boots == ["a", "c"], "lines of the other broker are not ours"
    longest_s, largest = max(times_s), max(sizes)
    told.append(
        f"28912 of {days} days: {len(times_s)} requests, {sum(times_s):.1f} s, at most "
        f"{longest_s:.1f} s; answers of {sum(sizes) / 1e3:.0f} KB, at most {largest / 1e3:.0f} KB"
    )
    assert largest < 1_000_000
    assert longest_s < 10 * BUDGET_MS / 1000, "a reading ends soon after its time is over"
    return answers


def check(answers: list[MetricsDumpAnswer], days: int) -> None:
    points = [point for answer in answers for point in answer.points]
    lines = days * 24 * LINES_AN_HOUR
    assert sum(point.lines for point in points) == lines
    # Of each life the first line has none before it; so has each answer's first, but for its lead.
    assert sum(point.msgs_in for point in points) == (lines - 2) * MESSAGES_A_LINE
    incidents = [incident for answer in answers for incident in answer.incidents]
    assert {(one.replica, one.state) for one in incidents} == {(f"{GROUP}:1", "catching_up")}
    assert len({one.from_ // DAY_MS for one in incidents}) == days - days // 2


@pytest.mark.long
@pytest.mark.timeout(600)
def test_forty_days(tmp_path: Path, proved: Callable[[str], None]) -> None:
    began = time.monotonic()
    size = write_days(tmp_path, FIRST, 40)
    told = [f"{size / 1e6:.0f} MB of files, written in {time.monotonic() - began:.0f} s"]
    check(read_all(tmp_path, 40, told), 40)
    proved("; ".join(told))
