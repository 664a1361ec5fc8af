"""The judge of the long tests of kills: what it must not let pass."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.sources.stream_ledger import (
    Ledger,
    Row,
    assert_in_order,
    body_of,
    judge,
    rows_of_files,
)

QUEUES = 2
UNANSWERED = (7, 8)
"""The first was stored, the second was not."""


def ledger_and_rows() -> tuple[Ledger, list[Row]]:
    ledger = Ledger()
    rows: list[Row] = []
    for number in range(20):
        queue = number % QUEUES
        if number in UNANSWERED:
            ledger.maybe.add(number)
        if number == UNANSWERED[1]:
            continue
        row = Row(queue, sum(row.queue_id == queue for row in rows), body_of(number))
        rows.append(row)
        if number not in UNANSWERED:
            ledger.take((row.queue_id, row.queue_offset), row.body)
    return ledger, rows


def test_what_is_right() -> None:
    ledger, rows = ledger_and_rows()
    random.Random(1).shuffle(rows)
    judge(rows, ledger)
    assert ledger.ends() == {0: 9, 1: 10}


def moved(rows: list[Row]) -> list[Row]:
    """Two messages have changed places."""
    one, other = rows[4], rows[6]
    changed = {one: one._replace(body=other.body), other: other._replace(body=one.body)}
    return [changed.get(row, row) for row in rows]


WRONG: dict[str, tuple[Callable[[list[Row]], list[Row]], str]] = {
    "lost": (lambda rows: [*rows[:3], *rows[4:]], "lost"),
    "the last one lost": (lambda rows: rows[:-1], "lost"),
    "twice": (lambda rows: [*rows, rows[3]], "twice"),
    "twice at another place": (lambda rows: [*rows, rows[3]._replace(queue_offset=10)], "nobody"),
    "another body": (lambda rows: [*rows[:3], rows[3]._replace(body=b"x"), *rows[4:]], "lost"),
    "two at each other's places": (moved, "lost"),
    "never sent": (lambda rows: [*rows, Row(0, 9, body_of(99))], "nobody"),
    "unanswered twice": (lambda rows: [*rows, Row(1, 10, body_of(7))], "unanswered"),
    "a gap": (lambda rows: [row for row in rows if row.body != body_of(7)], "gap"),
    "a gap at the begin": (
        lambda rows: [row._replace(queue_offset=row.queue_offset + 1) for row in rows],
        "lost",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong(what: str) -> None:
    ledger, rows = ledger_and_rows()
    change, said = WRONG[what]
    with pytest.raises(AssertionError, match=said):
        judge(change(rows), ledger)


def test_two_messages_at_one_place() -> None:
    ledger, rows = ledger_and_rows()
    ledger.take((0, 0), body_of(0))
    with pytest.raises(AssertionError, match="two messages"):
        judge(rows, ledger)


def test_another_order_than_the_senders() -> None:
    ledger, rows = ledger_and_rows()
    rows = moved(rows)
    for row in rows:
        if (row.queue_id, row.queue_offset) in ledger.acknowledged:
            ledger.acknowledged[row.queue_id, row.queue_offset] = row.body
    with pytest.raises(AssertionError, match="order of the sender"):
        judge(rows, ledger)


def test_the_order_of_a_sink() -> None:
    rows = [Row(0, 0, b""), Row(1, 5, b""), Row(0, 1, b""), Row(1, 7, b"")]
    assert_in_order(rows)
    for wrong in (Row(1, 6, b""), Row(0, 1, b"")):
        with pytest.raises(AssertionError, match="behind"):
            assert_in_order([*rows, wrong])


def test_committed_files_batch_by_batch(tmp_path: Path) -> None:
    """A batch that was not committed does not count, and none counts again by a compacted log."""
    logs = tmp_path / "_spark_metadata"
    logs.mkdir()
    written = {
        "a b": [Row(0, 0, b"0"), Row(0, 1, b"1")],
        "c": [Row(0, 2, b"2")],
        "d": [Row(1, 0, b"3")],
        "no": [Row(9, 9, b"9")],
    }
    for name, rows in written.items():
        columns = {field: [getattr(row, field) for row in rows] for field in Row._fields}
        pq.write_table(pa.table(columns), tmp_path / name)

    def entry(name: str) -> str:
        return json.dumps({"path": (tmp_path / name).as_uri(), "action": "add"})

    (logs / "0").write_text(f"v1\n{entry('a b')}\n{entry('d')}")
    (logs / "2").write_text("v1")
    (logs / "9.compact").write_text(f"v1\n{entry('c')}\n{entry('a b')}\n{entry('d')}")
    (logs / ".9.crc").write_text("x")
    assert rows_of_files(tmp_path) == [*written["a b"], *written["d"], *written["c"]]
