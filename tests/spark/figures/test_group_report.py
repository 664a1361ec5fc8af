"""The largest numbers that a good line may have, in every counter and age."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from spark.config.sla_config import default_sla
from spark.dumps.dump_line import FileLines
from spark.figures.group_report import Rows, group_rows
from spark.figures.report_context import Context
from spark.figures.result_tables import TABLES
from spark.reported_day import Day
from spark.vocabulary import LARGEST
from tests.spark.dump_lines_builder import DATE, T0, Life, Line, ack_latency, replica, sync

CONTEXT = Context(Day.whole(DATE), default_sla(), is_reported=False, result_dates=())


def numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict):
        for item in (*value, *value.values()):
            yield from numbers(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from numbers(item)


def report(lines: list[Line]) -> dict[str, Rows]:
    files = [FileLines("f", DATE, [json.dumps(line).encode() for line in lines])]
    stored: dict[str, Any] = {"replica_days": [], "group_days": []}
    return dict(group_rows(("c", "b"), files, stored, (), CONTEXT))


def test_sums_that_are_over_64_bits_are_stored_as_the_largest() -> None:
    """Null, as Spark takes them, ended the report of the next day."""
    lines = []
    life = Life()
    slave = Life(broker_id=1, role="SLAVE", boot="ab" * 8)
    for number in range(8):
        size = LARGEST * (number % 2)
        name = {"transferred": size, "reconnects": size, "rejected_acks": size}
        lags = {"lag_ms": LARGEST, "lag_bytes": LARGEST}
        lines.append(
            life.line(
                T0 + 5_000 * (number + 1),
                msgs_in=size,
                bytes_in=size,
                unreplicated_bytes=LARGEST,
                oldest_unreplicated_ms=LARGEST,
                sync=sync(size, size, size, size),
                ack_latency=ack_latency([size] * 5, float(2**62)),
                replicas=[replica("b:1", "catching_up", **name, **lags)],
            )
        )
        kind = {"kind": "topics", "failures": size, "age_ms": LARGEST}
        lines.append(slave.line(T0 + 5_000 * (number + 1), metadata=[kind]))
    tables = report(lines)
    assert max(numbers(tables)) == LARGEST
    (day,) = tables["replica_days"]
    row = dict(zip(TABLES["replica_days"], day, strict=True))
    assert [each["failures"] for each in row["metadata"]] == [LARGEST]
    assert row["transferred_bytes"] == LARGEST
