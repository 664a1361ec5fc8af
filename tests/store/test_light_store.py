"""A whole store with light queues: what waits in memory, through kills and stops of every kind."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipc.clock import SystemClock
from store import flush_consume_queue_service
from store.clean_exit import boot_id, left_light_queues
from store.consume_queue_reader import ConsumeQueueReader
from store.control_slots import STORE_STATE, StoreState
from store.flush_consume_queue_service import FlushConsumeQueueService
from store.generation_aware_reader import GenerationAwareReader
from store.light_queue_files import LightQueueFiles
from store.store_checker import check_store
from store.store_checkpoint import StoreCheckpoint
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE
from store.unwritable_queues import UnwritableQueues
from tests.store.test_default_message_store import FILE_SIZE, Life, record

LIGHT = "%LMQ%a"


def start(root: Path) -> Life:
    return Life(root, **SETTINGS).start()


SETTINGS: dict[str, Any] = {
    "enable_lmq": True,
    "enable_multi_dispatch": True,
    "flush_interval_consume_queue": 600_000,
}
"""Nothing is written by the clock."""


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = start(tmp_path / "store")
    yield life
    if life.counters[STORE_STATE] != StoreState.STOPPED:
        life.stop()


def units(life: Life, topic: str = LIGHT) -> bytes:
    """As `remoting` reads them."""
    low, high = life.table.offsets(topic, 0)
    reader = ConsumeQueueReader(life.config, life.table)
    found = GenerationAwareReader(reader, life.table).read_units(topic, 0, low, high - low)
    reader.close()
    return found


def in_files(life: Life, topic: str = LIGHT) -> bytes:
    paths = sorted((life.config.consume_queue_path / topic / "0").glob("*"))
    return b"".join(path.read_bytes() for path in paths)


def killed(life: Life, root: Path) -> Path:
    """What a broker leaves that is killed now. A file that is just being replaced is as before."""
    shutil.copytree(life.config.root, root, ignore=shutil.ignore_patterns("*.tmp"))
    return root


def end_killed_store(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Process `store` alone is killed: it writes nothing more."""
    with monkeypatch.context() as patched:
        patched.setattr(FlushConsumeQueueService, "flush_all", lambda _self: None)
        patched.setattr(LightQueueFiles, "write_out", lambda *_: False)
        life.store.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY


def test_a_clean_stop_writes_what_waits(life: Life) -> None:
    life.put(3, LIGHT)
    life.wait_dispatched()
    assert in_files(life) == b""
    found = units(life)
    assert len(found) == 3 * CQ_UNIT_SIZE
    life.stop()
    assert in_files(life)[: len(found)] == found
    report = check_store(life.config.root, hash_slots=100)
    assert (report.errors, report.unclean) == ([], False)


def test_a_store_that_is_killed_alone_leaves_its_units_to_the_next(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.put(3, LIGHT)
    life.wait_dispatched()
    found = units(life)
    end_killed_store(life, monkeypatch)
    assert units(life) == found
    assert in_files(life) == b""
    life.store = life.new_store()
    life.store.open()
    assert units(life) == found
    assert in_files(life)[: len(found)] == found
    life.store.start()
    life.put(1, LIGHT)
    life.wait_dispatched()
    assert units(life)[: len(found)] == found
    assert life.table.offsets(LIGHT, 0) == (0, 4)


def test_what_waits_when_all_are_killed_is_built_again(life: Life, tmp_path: Path) -> None:
    life.put(40, LIGHT)
    life.put(3, "%LMQ%b")
    life.wait_dispatched()
    again = start(killed(life, tmp_path / "killed"))
    for topic, count in ((LIGHT, 40), ("%LMQ%b", 3)):
        assert again.table.offsets(topic, 0) == (0, count)
        assert units(again, topic) == units(life, topic)
    again.stop()
    assert check_store(again.config.root, hash_slots=100).errors == []


def believe_the_checkpoint(root: Path) -> None:
    """As if all but the last messages had been stored long before."""
    checkpoint = StoreCheckpoint.load(root / "checkpoint")
    later = SystemClock().now_ms() + 10_000
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = later
    checkpoint.flush()


def test_a_kill_after_queues_were_built_anew_hides_nothing(life: Life, tmp_path: Path) -> None:
    """Somebody deletes the queues, the start builds them from the log, and is killed before their
    first flush: the checkpoint is from before, and recovery looks no further back than it says."""
    life.put(3, LIGHT)
    life.put(60, size=1000)
    life.wait_dispatched()
    assert life.end > 3 * FILE_SIZE
    found = units(life)
    life.stop()
    root = life.config.root
    believe_the_checkpoint(root)
    shutil.rmtree(root / "consumequeue")
    (root / "queues.exit").unlink()
    rebuilt = Life(root, **SETTINGS)
    rebuilt.store.open()
    assert units(rebuilt) == found
    again = start(killed(rebuilt, tmp_path / "killed"))
    assert again.table.offsets(LIGHT, 0) == (0, 3)
    assert units(again) == found
    again.stop()
    rebuilt.store.shutdown(writer_has_stopped=True)


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "full")


def test_a_store_that_is_killed_alone_comes_back_on_a_full_disk(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.put(3, LIGHT)
    life.wait_dispatched()
    found = units(life)
    end_killed_store(life, monkeypatch)
    life.store = life.new_store()
    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", no_space)
        patched.setattr(UnwritableQueues, "_has_room", lambda _self: False)
        life.store.open()
        life.store.start()
        life.put(1, LIGHT)
        life.wait_dispatched()
        assert units(life)[: len(found)] == found
        assert life.table.offsets(LIGHT, 0) == (0, 4)
    life.stop()
    assert in_files(life)[: len(found)] == found


def test_a_stop_with_a_full_disk_is_recovered_from(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.put(3, LIGHT)
    life.wait_dispatched()
    found = units(life)
    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", no_space)
        patched.setattr(UnwritableQueues, "_has_room", lambda _self: False)
        life.stop()
    assert life.counters[STORE_STATE] == StoreState.STOPPED
    assert (life.config.root / "abort").exists()
    again = start(life.config.root)
    assert units(again) == found
    again.stop()


def test_a_stop_that_would_take_too_long_leaves_the_rest_to_the_next_start(
    life: Life, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(flush_consume_queue_service, "_STOP_MS", 0)
    topics = [f"%LMQ%{number}" for number in range(40)]
    for topic in topics:
        life.put(2, topic)
    life.wait_dispatched()
    found = [units(life, topic) for topic in topics]
    life.stop()
    assert "64 units of light queues are left to the next start" in caplog.text
    assert (life.config.root / "abort").exists()
    assert [topic for topic in topics if in_files(life, topic)] == topics[:8]
    again = start(life.config.root)
    assert [units(again, topic) for topic in topics] == found
    again.stop()
    assert check_store(again.config.root, hash_slots=100).errors == []


# -- switched off ------------------------------------------------------------------------------


def put_in_light_queues(life: Life, numbers: range) -> None:
    """Messages of topic T, each of which has a place in two light queues."""
    for number in numbers:
        life.log.now_ms = life.clock.now_ms()
        offsets = f"INNER_MULTI_QUEUE_OFFSET\x01{number},{number}"
        properties = f"KEYS\x01k\x02INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02{offsets}"
        life.log.append(life.log.topic("T"), (record(b"x", properties.encode()),))
        life.log.commit()


def start_switched_off(root: Path) -> Life:
    return Life(root, flush_interval_consume_queue=600_000).start()


def places(life: Life) -> list[int]:
    """Where the records of topic T are in the log."""
    return life.queue("T")


def light_places(life: Life, topic: str) -> list[int]:
    return [unit[0] for unit in CQ_UNIT.iter_unpack(units(life, topic))]


def test_what_waited_at_a_kill_is_built_although_light_queues_are_off_now(
    life: Life, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_in_light_queues(life, range(7))
    life.wait_dispatched()
    assert in_files(life) == b""
    expected = places(life)
    assert len(expected) == 7
    root = killed(life, tmp_path / "killed")
    off = start_switched_off(root)
    assert "was not stopped cleanly" in caplog.text
    # Killed once more, before what was built is flushed, with its machine.
    again = killed(off, tmp_path / "again")
    shutil.rmtree(again / "consumequeue")
    (again / "abort").write_text((again / "abort").read_text().replace(boot_id(), "another"))
    off.stop()
    for directory in (root, again):
        start_switched_off(directory).stop()
        assert not left_light_queues(directory / "abort")
        on = start(directory)
        for topic in ("%LMQ%a", "%LMQ%b"):
            assert light_places(on, topic) == expected
        put_in_light_queues(on, range(7, 8))
        on.wait_dispatched()
        assert light_places(on, "%LMQ%a") == places(on)
        on.stop()
        assert check_store(directory, hash_slots=100).errors == []


def test_a_store_without_light_queues_takes_no_places_from_records(tmp_path: Path) -> None:
    """Another broker may have left in them what a client wrote."""
    off = start_switched_off(tmp_path / "store")
    put_in_light_queues(off, range(3))
    off.wait_dispatched()
    again = start_switched_off(killed(off, tmp_path / "killed"))
    assert len(places(again)) == 3
    for life in (off, again):
        assert {path.name for path in life.config.consume_queue_path.iterdir()} == {"T"}
        life.stop()


def test_a_queue_that_could_not_be_written_does_not_stop_a_start_with_light_queues_off(
    life: Life,
) -> None:
    blocked = life.config.consume_queue_path / "%LMQ%a"
    blocked.write_bytes(b"")
    put_in_light_queues(life, range(7))
    life.wait_dispatched()
    expected = places(life)
    life.stop()
    root = life.config.root
    assert left_light_queues(root / "abort")
    start_switched_off(root).stop()
    assert left_light_queues(root / "abort")
    blocked.unlink()
    start_switched_off(root).stop()
    on = start(root)
    for topic in ("%LMQ%a", "%LMQ%b"):
        assert light_places(on, topic) == expected
    on.stop()
