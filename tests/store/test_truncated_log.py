"""Somebody truncates the log's current file: what lies above is known from the queues.

The store starts again, beside a living writer or afresh, keeps what the file still has, and no
queue offset that was given is given again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from store.commit_log import CommitLog
from store.commit_log_reader import CommitLogReader
from store.control_slots import FENCE_COUNT, STORE_STATE, StoreState
from store.mapped_file import file_name
from store.message_store_config import BrokerRole
from store.store_checker import check_store
from store.topic_queue_table import rebuild_topic_queue_table
from tests.store.test_default_message_store import FILE_SIZE, HOST, Life

LEFT = [0, 1, 700, 4_096, 6_000]


def put_into_a_third_file(life: Life) -> dict[int, int]:
    """Some 12,000 bytes into it, all dispatched; phy_offset of each queue offset of T."""
    while life.log.position < 2 * FILE_SIZE + 11_000:
        life.put(3)
        life.put(1, "Other", size=300)
    life.wait_dispatched()
    return dict(enumerate(life.queue()))


def truncate_current(life: Life, left: int) -> int:
    """The log's offset up to which bytes are left."""
    start = (life.end - 1) // FILE_SIZE * FILE_SIZE
    with (life.config.commit_log_path / file_name(start)).open("r+b") as file:
        file.truncate(left)
    return start + left


def given(life: Life) -> dict[str, int]:
    """The next queue offset of each topic, by who gave them."""
    return {topic: life.log.topic(topic).next_offsets[0] for topic in ("T", "Other")}


def assert_keeps(life: Life, places: dict[int, int], whole_until: int) -> None:
    """Each record that is whole is there, at its queue offset."""
    found = dict(enumerate(life.queue()))
    for offset, phy_offset in places.items():
        if phy_offset + 300 < whole_until:
            assert found[offset] == phy_offset
            assert life.reader.record_at(phy_offset) is not None


def new_writer(life: Life) -> None:
    """The one before it has died, too."""
    life.log = CommitLog(
        life.config.commit_log_path, FILE_SIZE, life.page, life.clock, lambda: None
    )
    life.reader = CommitLogReader(life.config.commit_log_path, FILE_SIZE, life.page)
    rebuild_topic_queue_table(life.log, life.page, life.table, life.reader)
    life.log.open(HOST)


def assert_goes_on(life: Life) -> None:
    """New messages get units of their own."""
    before = life.table.offsets("T", 0)[1]
    at = given(life)["T"]
    life.put(20)
    life.wait_dispatched()
    assert life.table.offsets("T", 0)[1] == at + 20 >= before + 20
    assert all(life.reader.record_at(phy) is not None for phy in life.queue()[-20:])


def assert_sound(root: Path) -> None:
    """But for the fence."""
    (error,) = check_store(root, hash_slots=100).errors
    assert "fenced, cannot be read" in error


@pytest.mark.fault(31)
@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("undispatched", [0, 7])
@pytest.mark.parametrize("writer", ["lives", "died"])
def test_a_store_beside_a_writer(tmp_path: Path, left: int, undispatched: int, writer: str) -> None:
    life = Life(tmp_path / "store").start()
    places = put_into_a_third_file(life)
    life.store.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY
    for _ in range(undispatched):
        life.put(1)
    used = given(life)
    whole_until = truncate_current(life, left)
    life.store = life.new_store()
    life.store.open()
    assert life.counters[FENCE_COUNT] == 1
    life.store.start()
    life.wait_dispatched()
    if writer == "died":
        life.log.close()
        new_writer(life)
    for topic, following in given(life).items():
        assert following >= used[topic]
    assert_keeps(life, places, whole_until)
    assert_goes_on(life)
    life.stop()
    assert_sound(tmp_path / "store")


def test_a_record_that_ends_where_the_file_ends_is_whole(tmp_path: Path) -> None:
    life = Life(tmp_path / "store").start()
    places = put_into_a_third_file(life)
    life.store.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY
    start = (life.end - 1) // FILE_SIZE * FILE_SIZE
    inside = [place for place in places.values() if place > start]
    last, behind = min(itertools.pairwise(inside), key=lambda pair: pair[1] - pair[0])
    truncate_current(life, behind - start)
    life.store = life.new_store()
    life.store.open()
    life.store.start()
    assert life.reader.record_at(last) is not None
    assert last in life.queue()
    assert behind not in life.queue()
    life.stop()


def _crash(life: Life) -> None:
    life.log.close()
    life.store.shutdown(writer_has_stopped=False)


@pytest.mark.fault(31)
@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("stop", [_crash, Life.stop], ids=["crash", "clean"])
def test_a_fresh_start(tmp_path: Path, left: int, stop: Callable[[Life], None]) -> None:
    life = Life(tmp_path / "store").start()
    places = put_into_a_third_file(life)
    used, end = given(life), life.end
    stop(life)
    whole_until = truncate_current(life, left)
    life = Life(tmp_path / "store").start()
    assert life.end == end, "the log goes on behind what is lost: a replica may have it"
    assert life.counters[FENCE_COUNT] == 1
    assert given(life) == used
    assert_keeps(life, places, whole_until)
    assert_goes_on(life)
    life.stop()
    again = Life(tmp_path / "store").start()
    assert again.end > end
    again.stop()
    assert_sound(tmp_path / "store")


def test_a_slave_gets_the_end_again(tmp_path: Path) -> None:
    """Its log ends where the file does: the master has the rest."""
    life = Life(tmp_path / "store").start()
    put_into_a_third_file(life)
    end = life.end
    life.stop()
    whole_until = truncate_current(life, 4_096)
    slave = Life(tmp_path / "store", broker_role=BrokerRole.SLAVE)
    slave.store.open()
    assert slave.end <= whole_until < end
    assert slave.counters[FENCE_COUNT] == 0
    slave.store.shutdown(writer_has_stopped=True)
