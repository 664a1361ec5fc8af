"""tools.chaos.log_damage: where it finds records, what it tears, which bit it flips."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.support.plain_log import PlainLog
from tools.chaos.ack_log import make_body
from tools.chaos.log_damage import find_records, flip_bit, tear_tail

SIZE = 1 << 16
COUNT = 40
MESSAGES = [(n % 3, n) for n in range(COUNT)]


@pytest.fixture
def log(tmp_path: Path) -> PlainLog:
    log = PlainLog(tmp_path / "store" / "commitlog", SIZE)
    for producer, sequence in MESSAGES:
        log.append(make_body(producer, sequence, 120))
    log.allocate(SIZE)
    return log


def content(log: PlainLog) -> bytes:
    return log.path(0).read_bytes()


def test_records_are_found(log: PlainLog) -> None:
    found = find_records(log.path(0))
    assert [record.message for record in found] == MESSAGES
    assert [record.start for record in found] == [start for start, _raw in log.records]
    assert found[-1].end == log.end


@pytest.mark.parametrize("kind", ["cut", "garble"])
def test_only_what_nobody_was_promised_is_torn(log: PlainLog, kind: str) -> None:
    before, store = content(log), log.directory.parent
    low = log.records[30][0]
    places = set()
    for seed in range(50):
        log.path(0).write_bytes(before)
        done = tear_tail(store, kind, set(MESSAGES[:30]), random.Random(seed).random)
        after = content(log)
        assert len(after) == SIZE
        assert after[:low] == before[:low]
        differing = [n for n in range(low, log.end) if after[n] != before[n]]
        assert differing, done
        places.add(differing[0])
        if kind == "cut":
            assert not any(after[differing[0] :])
    assert len(places) > 20


@pytest.mark.parametrize("kind", ["cut", "garble"])
def test_where_all_is_promised_the_tail_gets_what_was_never_whole(log: PlainLog, kind: str) -> None:
    before, store = content(log), log.directory.parent
    tear_tail(store, kind, set(MESSAGES), random.Random(2).random)
    after = content(log)
    assert after[: log.end] == before[: log.end]
    assert any(after[log.end :])
    assert len(after) == SIZE


@pytest.mark.parametrize("kind", ["cut", "garble"])
def test_records_of_other_loads_stay(log: PlainLog, kind: str) -> None:
    """They are promised, too, to clients of their own."""
    log.append(b"a half, or a check point")
    end = log.end
    log.append(make_body(1, COUNT, 120))
    log.allocate(SIZE)
    before, store = content(log), log.directory.parent
    for seed in range(20):
        log.path(0).write_bytes(before)
        tear_tail(store, kind, set(MESSAGES[:30]), random.Random(seed).random)
        assert content(log)[:end] == before[:end]
        assert content(log)[end : log.end] != before[end : log.end]


def test_one_bit_of_a_body_that_both_have(log: PlainLog) -> None:
    store = log.directory.parent
    other = store.with_name("other")
    shutil.copytree(store, other)
    copy = other / "commitlog" / log.path(0).name
    lacking = log.records[20][0]
    copy.write_bytes(copy.read_bytes()[:lacking].ljust(SIZE, b"\0"))
    before = content(log)
    for seed in range(30):
        log.path(0).write_bytes(before)
        flipped = flip_bit(store, other, random.Random(seed).random)
        assert flipped is not None
        path, at, good = flipped
        assert path == log.path(0)
        after = content(log)
        assert [n for n in range(SIZE) if after[n] != before[n]] == [at]
        assert good == before[at : at + 1]
        assert (good[0] ^ after[at]).bit_count() == 1
        assert at < lacking


def test_there_is_nothing_to_flip_or_tear(tmp_path: Path) -> None:
    log = PlainLog(tmp_path / "store" / "commitlog", SIZE)
    store = log.directory.parent
    assert flip_bit(store, store, random.Random(1).random) is None
    assert tear_tail(store, "cut", set(), random.Random(1).random) == "the log has no record yet"
    assert not any(content(log))
