"""What a clean stop remembers of the consume queues: saved, found again, distrusted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from store.consume_queue import ConsumeQueue
from store.consume_queue_files import ConsumeQueueFiles
from store.queue_recovery import QueueRecovery
from store.queue_states import QueueStates, load_queue_states, save_queue_states
from tests.store.test_consume_queue import FILE_SIZE, SIZE, phys, put


class CountingFiles(ConsumeQueueFiles):
    """Counts the reads."""

    reads = 0

    def read(self, topic: str, queue_id: int, position: int, size: int) -> bytes:
        self.reads += 1
        return super().read(topic, queue_id, position, size)


def files(root: Path) -> CountingFiles:
    return CountingFiles(root, FILE_SIZE, writable=True, open_files=2)


def queue_of(root: Path) -> tuple[ConsumeQueue, CountingFiles]:
    opened = files(root)
    return ConsumeQueue(opened, "T", 3), opened


def written(root: Path, count: int = 15) -> ConsumeQueue:
    queue, opened = queue_of(root)
    put(queue, 0, 0, count)
    queue.correct_min_offset(0)
    opened.close()
    return queue


def test_a_queue_comes_back_as_it_was_without_a_read(tmp_path: Path) -> None:
    before = written(tmp_path)
    state = QueueRecovery(before).state(0)
    queue, opened = queue_of(tmp_path)
    assert QueueRecovery(queue).restore(state, 0)
    assert (queue.min_offset, queue.max_offset) == (0, 15)
    assert queue.max_phy_offset == 15 * SIZE
    assert not queue.is_dirty
    assert not queue.correct_min_offset(0), "known already"
    assert opened.reads == 0
    assert phys(queue) == [n * SIZE for n in range(15)]
    assert put(queue, 15, 15 * SIZE)
    assert queue.max_offset == 16


def test_a_queue_whose_log_begins_elsewhere_now_looks_for_its_minimum(tmp_path: Path) -> None:
    state = QueueRecovery(written(tmp_path)).state(0)
    queue, _ = queue_of(tmp_path)
    assert QueueRecovery(queue).restore(state, 0)
    assert queue.correct_min_offset(4 * SIZE)
    assert (queue.min_offset, queue.max_offset) == (4, 15)


def test_a_minimum_of_another_log_start_is_not_remembered(tmp_path: Path) -> None:
    state = QueueRecovery(written(tmp_path)).state(4 * SIZE)
    assert state.min == -1
    queue, _ = queue_of(tmp_path)
    assert QueueRecovery(queue).restore(state, 4 * SIZE)
    assert queue.correct_min_offset(4 * SIZE)
    assert queue.min_offset == 4


def test_an_empty_queue_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "T" / "3").mkdir(parents=True)
    queue, _ = queue_of(tmp_path)
    state = QueueRecovery(queue).state(0)
    again, _ = queue_of(tmp_path)
    assert QueueRecovery(again).restore(state, 0)
    assert (again.min_offset, again.max_offset) == (0, 0)


def touch_last_file(root: Path) -> None:
    path = max((root / "T" / "3").iterdir())
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def add_a_file(root: Path) -> None:
    directory = root / "T" / "3"
    (directory / "note").touch()
    os.utime(directory, ns=(0, 1))


def delete_the_last_file(root: Path) -> None:
    max((root / "T" / "3").iterdir()).unlink()


@pytest.mark.parametrize("touch", [touch_last_file, add_a_file, delete_the_last_file])
def test_a_queue_that_was_touched_is_not_restored(tmp_path: Path, touch) -> None:  # type: ignore[no-untyped-def]
    state = QueueRecovery(written(tmp_path)).state(0)
    touch(tmp_path)
    queue, _ = queue_of(tmp_path)
    assert not QueueRecovery(queue).restore(state, 0)
    assert (queue.max_offset, queue.max_phy_offset) == (0, 0)


def test_times_in_whole_seconds_do_not_tell(tmp_path: Path) -> None:
    """Such a file system gives two writes within a second the same time."""
    before = written(tmp_path)
    [last, *_] = sorted((tmp_path / "T" / "3").iterdir(), reverse=True)
    os.utime(last, ns=(0, 5_000_000_000))
    queue, _ = queue_of(tmp_path)
    assert not QueueRecovery(queue).restore(QueueRecovery(before).state(0), 0)


def test_states_are_found_again(tmp_path: Path) -> None:
    queue = written(tmp_path / "cq")
    path = tmp_path / "queues.exit"
    save_queue_states(path, [queue], 0)
    states = load_queue_states(path)
    assert states.min_phy_offset == 0
    assert states.find("T", 3) == QueueRecovery(queue).state(0)
    assert states.find("T", 4) is None
    assert states.find("U", 3) is None


def test_there_may_be_no_file(tmp_path: Path) -> None:
    assert load_queue_states(tmp_path / "queues.exit") == QueueStates()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"queues":{"T":{"x":[]}}}', b'{"format":2}'])
def test_a_file_that_is_none_counts_as_none(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "queues.exit"
    path.write_bytes(text)
    assert load_queue_states(path).queues == {}


def test_a_failed_write_leaves_no_file_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "queues.exit"
    path.write_bytes(b"of an earlier stop")
    (tmp_path / "queues.exit.tmp").mkdir()
    save_queue_states(path, [], 0)
    assert not path.exists()
    assert "queues.exit: not written" in caplog.text
