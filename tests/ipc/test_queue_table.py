"""The queue table: growth, generations, the ring, and two processes on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc import queue_table
from ipc.queue_table import (
    RING_SIZE,
    TABLE_SIZE,
    QueueTableReader,
    QueueTableWriter,
    create_queue_table,
)

ROOT = Path(__file__).parents[2]


class Table:
    def __del__(self) -> None:
        os.close(self.fd)

    def __init__(self) -> None:
        self.fd = create_queue_table()
        self.writer = QueueTableWriter(self.fd)
        self.reader = QueueTableReader(self.fd)


@pytest.fixture
def table() -> Table:
    return Table()


def test_an_unknown_queue_is_empty(table: Table) -> None:
    assert table.reader.offsets("T", 0) == (0, 0)
    assert table.reader.find_row("T", 0) is None
    assert table.reader.queue_ids("T") == []


def test_rows_are_numbered_in_order_and_stay(table: Table) -> None:
    names = [("T", 0), ("T", 1), ("Other", 0), ("%RETRY%Gruppe-ü", 2**31 - 1), ("", -1)]
    rows = [table.writer.row(*name) for name in names]
    assert rows == list(range(5))
    assert [table.writer.row(*name) for name in names] == rows
    for name, row in zip(names, rows, strict=True):
        table.writer.set_offsets(row, row, row + 10)
        assert table.reader.find_row(*name) == row
        assert table.reader.queue_of(row) == name
        assert table.reader.offsets(*name) == (row, row + 10)
    assert list(table.reader) == [(*name, row) for name, row in zip(names, rows, strict=True)]


def test_queue_ids_are_sorted(table: Table) -> None:
    for queue_id in (5, 0, 3):
        table.writer.row("T", queue_id)
    table.writer.row("TT", 9)
    assert table.reader.queue_ids("T") == [0, 3, 5]


def test_queue_of_takes_up_new_rows(table: Table) -> None:
    """A ring entry may name a row that the reader has not met."""
    row = table.writer.row("T", 0)
    table.writer.mark_moved(row)
    assert [table.reader.queue_of(r) for r in table.reader.take_moves() or []] == [("T", 0)]


def test_offsets_hold_64_bits(table: Table) -> None:
    row = table.writer.row("T", 0)
    table.writer.set_offsets(row, 2**40, 2**63 - 1)
    assert table.reader.offsets("T", 0) == (2**40, 2**63 - 1)


def test_a_deleted_queue_is_empty_and_of_a_new_generation(table: Table) -> None:
    row = table.writer.row("T", 0)
    table.writer.set_offsets(row, 3, 9)
    generation = table.reader.generation(row)
    table.writer.reset(row)
    assert table.reader.offsets("T", 0) == (0, 0)
    assert table.reader.generation(row) == generation + 1
    assert table.writer.row("T", 0) == row
    table.writer.set_offsets(row, 0, 1)
    assert table.reader.generation(row) == generation + 1


def test_a_restarted_writer_finds_its_rows_again(table: Table) -> None:
    row = table.writer.row("T", 7)
    table.writer.set_offsets(row, 1, 2)
    again = QueueTableWriter(table.fd)
    assert again.row("T", 7) == row
    assert again.row("T", 8) == row + 1
    assert table.reader.offsets("T", 7) == (1, 2)
    assert table.reader.find_row("T", 8) == row + 1


@pytest.mark.interpreted
def test_a_full_table_says_so_once_and_takes_no_other_queue(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 2)
    table.writer.row("T", 0)
    table.writer.row("T", 1)
    assert table.reader.has_room(0, 0)
    assert not table.reader.has_room(1, 1)
    assert table.writer.row("T", 2) is None
    assert table.writer.row("T", 3) is None
    [line] = caplog.messages
    assert "full, it has 2 queues: 2 of topic T, and others, cannot be read" in line
    assert table.writer.row("T", 1) == 1
    assert len(list(table.reader)) == 2


@pytest.mark.interpreted
def test_a_full_directory_says_so(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_table, "_DIRECTORY_SIZE", 25)
    table.writer.row("T", 0)
    table.writer.row("T", 1)
    assert table.reader.has_room(0, 0)
    assert not table.reader.has_room(1, 1)
    assert table.writer.row("T", 2) is None


def test_growth_to_many_queues(table: Table) -> None:
    for number in range(20_000):
        row = table.writer.row(f"topic-{number // 8}", number % 8)
        table.writer.set_offsets(row, 0, number)
    assert table.reader.offsets("topic-2499", 7) == (0, 19_999)
    assert table.reader.offsets("topic-0", 1) == (0, 1)
    assert len(list(table.reader)) == 20_000
    used = os.fstat(table.fd).st_blocks * 512
    assert used < 8 << 20 < TABLE_SIZE


# -- the ring ------------------------------------------------------------------------------------


def test_moves_are_taken_once(table: Table) -> None:
    rows = [table.writer.row("T", n) for n in range(3)]
    assert not table.reader.has_moves()
    assert table.reader.take_moves() == []
    for row in (rows[2], rows[0], rows[2]):
        table.writer.mark_moved(row)
    assert table.reader.has_moves()
    assert table.reader.take_moves() == [rows[2], rows[0], rows[2]]
    assert not table.reader.has_moves()
    assert table.reader.take_moves() == []


def test_skipped_moves_are_gone(table: Table) -> None:
    table.writer.mark_moved(0)
    table.reader.skip_moves()
    table.writer.mark_moved(1)
    assert table.reader.take_moves() == [1]


def test_a_reader_begins_with_what_comes_after_it(table: Table) -> None:
    table.writer.mark_moved(0)
    assert not QueueTableReader(table.fd).has_moves()


@pytest.mark.parametrize(
    ("moves", "known"),
    [
        (RING_SIZE // 2, True),
        (RING_SIZE // 2 + 1, False),
        (RING_SIZE, False),
        (RING_SIZE * 2, False),
    ],
)
def test_an_overrun_is_told_and_does_not_last(table: Table, moves: int, known: bool) -> None:
    for n in range(moves):
        table.writer.mark_moved(n % 7)
    taken = table.reader.take_moves()
    assert (taken is not None) is known
    assert taken is None or taken == [n % 7 for n in range(moves)]
    table.writer.mark_moved(5)
    assert table.reader.take_moves() == [5]


@given(st.lists(st.integers(0, 40_000), max_size=8))
def test_the_ring_goes_round(batches: list[int]) -> None:
    """Nothing is ever missed silently: the moves as they were made, or None."""
    table = Table()
    written = 0
    for size in batches:
        expected = [n % 1000 for n in range(written, written + size)]
        for row in expected:
            table.writer.mark_moved(row)
        written += size
        taken = table.reader.take_moves()
        assert taken == expected if size <= RING_SIZE // 2 else taken is None


def test_a_pool_thread_may_refresh_while_the_loop_does(table: Table) -> None:
    """Two threads take up the same entries: each queue must be noted once, under its row. Here
    the second refresh comes at the worst moment of the first."""
    for number in range(4):
        table.writer.row(f"T{number}", 0)
    reader = table.reader

    class Interrupted(dict[tuple[str, int], int]):
        again = True

        def __setitem__(self, key: tuple[str, int], row: int) -> None:
            super().__setitem__(key, row)
            if self.again:
                self.again = False
                reader.refresh()

    reader._row_of = Interrupted()
    reader.refresh()
    table.writer.row("T4", 0)
    assert [reader.queue_of(row) for row in range(5)] == [(f"T{n}", 0) for n in range(5)]


# -- two processes -------------------------------------------------------------------------------

_WRITER = """
import sys
from ipc.queue_table import QueueTableWriter
writer = QueueTableWriter(int(sys.argv[1]))
for number in range(1, 4001):
    row = writer.row(f"topic-{number % 40}", number % 4)
    writer.set_offsets(row, 0, number)
    writer.mark_moved(row)
"""


def test_a_reader_follows_a_writer_in_another_process() -> None:
    fd = create_queue_table()
    reader = QueueTableReader(fd)
    child = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(fd)],
        pass_fds=(fd,),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    moved, newest = 0, 0
    while child.poll() is None or reader.has_moves():
        for row in reader.take_moves() or []:
            topic, queue_id = reader.queue_of(row)
            low, high = reader.offsets(topic, queue_id)
            assert low == 0
            assert high % 40 == int(topic[6:])
            assert high % 4 == queue_id
            moved, newest = moved + 1, max(newest, high)
    assert child.returncode == 0
    assert (moved, newest) == (4000, 4000)
    assert len(list(reader)) == 40


def test_the_end_of_a_compaction_log(table: Table) -> None:
    """In one word, so that no reader takes one generation's end for another's."""
    assert table.reader.compacted("T", 0) == (0, 0)
    row = table.writer.row("T", 0)
    table.writer.set_offsets(row, 3, 9)
    for state in ((1, 9), (65_535, (1 << 48) - 1), (2, 0), (0, 0)):
        table.writer.set_compacted(row, *state)
        assert table.reader.compacted("T", 0) == state
    assert table.reader.offsets("T", 0) == (3, 9)
