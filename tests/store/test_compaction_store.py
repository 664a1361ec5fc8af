"""Compaction logs of a whole store: what follows the queues, what is kept, what lasts."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.compaction.compaction_slots import (
    COMPACTION_BYTES_AFTER,
    COMPACTION_BYTES_BEFORE,
    COMPACTION_ENDED_MS,
    COMPACTION_KEYLESS,
    COMPACTION_LOGS,
    COMPACTION_RECORDS,
    COMPACTIONS,
    COMPACTIONS_FAILED,
)
from store.compaction.position_checkpoint import PositionCheckpoint
from store.control_slots import MIN_PHY_OFFSET
from store.errors import StoreError
from store.mapped_file_queue import list_store_files
from tests.support.archives import unpack
from tests.support.compaction_client import Ledger
from tests.support.compaction_life import QUEUE_SIZE, TOPIC, CompactionLife
from tests.support.deadline import wait_until

GOLDEN = Path(__file__).parents[1] / "golden" / "compaction-5.3.3"
JAVA_SIZES = {
    "mapped_file_size_commit_log": 1 << 20,
    "compaction_cq_mapped_file_size": 46 * 50,
    "compaction_mapped_file_size": 46 * 50 * 6,
}
NOW = {"compaction_schedule_internal": 1}


def put_some(life: CompactionLife, ledger: Ledger, chooser: random.Random, count: int) -> None:
    """Messages of few keys, some of which delete theirs."""
    for _ in range(count):
        key = f"key {chooser.randrange(25)}"
        body = b"" if chooser.random() < 0.1 else chooser.randbytes(chooser.randrange(1, 200))
        ledger.events.append((life.put(key, body), key, body))


def closed_below(life: CompactionLife) -> int:
    """First queue offset of the file that is appended to."""
    last = list_store_files(life.config.compaction_path / "compactionCq" / TOPIC / "0")[-1]
    return int.from_bytes(last.path.read_bytes()[28:36])


def wait_compacted(life: CompactionLife) -> None:
    """All closed files are compacted."""

    def is_compacted() -> bool:
        positions = PositionCheckpoint(life.config.compaction_path / "position-checkpoint")
        positions.load()
        return positions.find(TOPIC, 0) >= closed_below(life) - 1

    wait_until(is_compacted)
    wait_until(lambda: not list((life.config.compaction_path).rglob("compacting")))


# -- as Java ------------------------------------------------------------------------------------


def unpacked(name: str, target: Path) -> Path:
    unpack(GOLDEN / f"{name}.tar.xz", target)
    return target


def files_of(root: Path) -> dict[str, bytes]:
    """Of both directories, by name."""
    directory = root / "compaction"
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("0*"))
        if path.is_file()
    }


def test_what_java_has_appended(tmp_path: Path) -> None:
    """From Java's commit log come its files, byte for byte."""
    root = unpacked("uncompacted", tmp_path)
    expected = files_of(root)
    shutil.rmtree(root / "compaction")
    life = CompactionLife(root, **JAVA_SIZES).start()
    for queue_id in (0, 1):
        life.wait_followed(queue_id=queue_id)
    life.stop()
    found = files_of(root)
    assert list(found) == list(expected)
    assert len(found) == 20
    for name, content in expected.items():
        assert found[name] == content, name


def test_what_java_has_compacted(tmp_path: Path) -> None:
    """Of Java's files a compaction makes the same as Java's, and the same check point."""
    root = unpacked("uncompacted", tmp_path / "ours")
    java = unpacked("compacted", tmp_path / "java")
    life = CompactionLife(root, **JAVA_SIZES, **NOW).start()
    wait_until(lambda: life.counters[COMPACTIONS] == 2)
    life.stop()
    found, expected = files_of(root), files_of(java)
    assert list(found) == list(expected)
    for name, content in expected.items():
        assert found[name] == content, name
    texts = [(each / "compaction" / "position-checkpoint").read_text() for each in (root, java)]
    assert texts[0] == texts[1]


# -- the newest of each key ------------------------------------------------------------------------


@pytest.fixture
def lives() -> Iterator[list[CompactionLife]]:
    """What is in it at the end is stopped."""
    made: list[CompactionLife] = []
    yield made
    for life in made:
        life.stop()


@pytest.mark.parametrize("seed", range(2))
def test_the_newest_of_each_key_is_kept(tmp_path: Path, seed: int) -> None:
    """Over restarts, read while compactions replace the files."""
    chooser, ledger = random.Random(seed), Ledger()
    for turn in range(3):
        settings = {**NOW, "max_offset_map_size": 0} if turn == 1 else NOW
        life = CompactionLife(tmp_path, **settings).start()
        for _ in range(4):
            put_some(life, ledger, chooser, 60)
            life.wait_followed()
            ledger.check(life.read_all())
        wait_compacted(life)
        ledger.check(life.read_all(), compacted_below=closed_below(life))
        assert life.counters[COMPACTIONS_FAILED] == 0
        assert life.counters[COMPACTION_BYTES_AFTER] < life.counters[COMPACTION_BYTES_BEFORE]
        assert life.counters[COMPACTION_ENDED_MS] > 0
        life.stop()
    # A file of 20 units and one of 25 keys: not more than two are left, and the one that grows.
    assert len(list_store_files(tmp_path / "compaction" / "compactionLog" / TOPIC / "0")) <= 3


def test_keys_outlive_the_commit_log(tmp_path: Path, lives: list[CompactionLife]) -> None:
    life = CompactionLife(tmp_path, file_reserved_time=0, **NOW).start()
    lives.append(life)
    ledger = Ledger()
    for number in range(60):
        body = b"value %d" % number
        ledger.events.append((life.put(f"old {number % 30}", body), f"old {number % 30}", body))
    for _ in range(4):
        put_some(life, ledger, random.Random(5), 120)
        for number in range(40):
            life.put(None, bytes(2_000), topic=f"Other {number % 2}")
    life.wait_followed()
    wait_compacted(life)
    wait_until(lambda: life.table.offsets(TOPIC, 0)[1] == len(ledger.events))

    def has_expired() -> bool:
        life.store.clean_commit_log.execute_delete_files_manually()
        life.store.clean_commit_log.wakeup()
        return life.counters[MIN_PHY_OFFSET] > 3 * life.config.mapped_file_size_commit_log

    wait_until(has_expired)
    found = life.read_all()
    ledger.check(found, compacted_below=closed_below(life))
    assert {f"old {number}" for number in range(30)} <= {
        message.find_property("KEYS") for message in found
    }


def test_records_wait_in_the_commit_log_until_they_are_copied(tmp_path: Path) -> None:
    """Before anything is known, and while a log is behind, nothing is deleted."""
    life = CompactionLife(tmp_path)
    life.store.open()
    followers = life.store._followers()
    assert followers[-1].keep_from == 0
    life.store.start()
    wait_until(lambda: followers[-1].keep_from == life.counters[9])
    life.store.shutdown(writer_has_stopped=True)


def test_without_a_key(tmp_path: Path, lives: list[CompactionLife]) -> None:
    """Such records, which only a batch of RocketMQ's broker lets in, are left out."""
    life = CompactionLife(tmp_path).start()
    lives.append(life)
    for key in ("a", None, "b", "  ", "c"):
        life.put(key, b"x")
    life.wait_followed()
    assert [message.queue_offset for message in life.read_all()] == [0, 2, 4]
    assert life.counters[COMPACTION_KEYLESS] == 2
    assert life.counters[COMPACTION_RECORDS] == 3


def test_all_keys_deleted(tmp_path: Path) -> None:
    """What is closed goes, to the last file; offsets go on. (Java's compaction fails then.)"""
    life = CompactionLife(tmp_path, **NOW).start()
    for number in range(50):
        life.put("key", b"" if number > 15 else b"value")
    life.wait_followed()
    wait_until(lambda: life.counters[COMPACTIONS] > 0)
    wait_compacted(life)
    assert life.counters[COMPACTIONS_FAILED] == 0
    life.stop()
    life = CompactionLife(tmp_path).start()
    assert life.put("key", b"again") == 50
    life.wait_followed()
    assert life.read_all()[-1].body == b"again"
    life.stop()


def test_a_deleted_topic_begins_anew(tmp_path: Path, lives: list[CompactionLife]) -> None:
    life = CompactionLife(tmp_path).start()
    lives.append(life)
    for _ in range(30):
        life.put("key", b"old")
    life.wait_followed()
    assert len(life.read_all()) == 30
    life.store.queue_deletion.delete_topic(
        TOPIC, life.log.position, life.clock.monotonic_ms() + 9_000
    )
    life.log.forget_topic(TOPIC)
    assert life.table.compacted(TOPIC, 0)[1] == 0
    assert not list((tmp_path / "compaction").rglob("0*"))
    assert life.counters[COMPACTION_LOGS] == 0
    assert life.put("key", b"new") == 0
    life.wait_followed()
    assert [message.body for message in life.read_all()] == [b"new"]


# -- what was lost beside it -----------------------------------------------------------------------


def test_expired_queues_of_compaction_topics_stay(tmp_path: Path) -> None:
    """306 must not let their offsets begin anew."""
    life = CompactionLife(tmp_path, file_reserved_time=0).start()
    for topic in (TOPIC, "Plain"):
        life.put("key", b"value", topic=topic)
    for _ in range(100):
        life.put(None, bytes(3_000), topic="Other")
    life.wait_followed()

    def has_expired() -> bool:
        life.store.clean_commit_log.execute_delete_files_manually()
        life.store.clean_commit_log.wakeup()
        return life.counters[MIN_PHY_OFFSET] > 0

    wait_until(has_expired)
    assert life.store.queue_deletion.delete_expired() == 1
    assert life.table.offsets("Plain", 0) == (0, 0)
    assert life.table.offsets(TOPIC, 0)[1] == 1
    life.stop()


def test_a_lost_consume_queue_goes_on_where_the_log_ends(tmp_path: Path) -> None:
    ledger = Ledger()
    life = CompactionLife(tmp_path).start()
    put_some(life, ledger, random.Random(1), 70)
    life.wait_followed()
    life.stop()
    for name in ("commitlog", "consumequeue", "index", "queues.exit", "clean.exit", "checkpoint"):
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    life = CompactionLife(tmp_path).start()
    put_some(life, ledger, random.Random(2), 10)
    assert ledger.events[-1][0] == 79
    wait_until(lambda: life.table.compacted(TOPIC, 0)[1] == 80)
    ledger.check(life.read_all())
    life.stop()


def test_what_the_commit_log_has_lost_is_cut_off(tmp_path: Path) -> None:
    """Its offsets will be given to other messages."""
    ledger = Ledger()
    life = CompactionLife(tmp_path, mapped_file_size_commit_log=1 << 20).start()
    put_some(life, ledger, random.Random(1), 50)
    life.wait_followed()
    position = life.log.position
    for _ in range(20):
        life.put("lost", b"lost")
    life.wait_followed()
    life.stop()
    path = tmp_path / "commitlog" / f"{0:020}"
    with path.open("r+b") as file:
        file.truncate(position)
        file.truncate(1 << 20)
    (tmp_path / "abort").touch()
    life = CompactionLife(tmp_path, mapped_file_size_commit_log=1 << 20).start()
    assert life.table.compacted(TOPIC, 0)[1] == 50
    put_some(life, ledger, random.Random(2), 10)
    life.wait_followed()
    ledger.check(life.read_all())
    assert b"lost" not in [message.body for message in life.read_all()]
    life.stop()


def test_a_log_of_an_older_queue_is_begun_anew(tmp_path: Path) -> None:
    """RocketMQ keeps it when the topic is deleted, and would serve it for the new topic's."""
    life = CompactionLife(tmp_path).start()
    for _ in range(30):
        life.put("key", b"old")
    life.wait_followed()
    life.stop()
    shutil.copytree(tmp_path / "compaction", tmp_path / "kept")
    for name in ("commitlog", "consumequeue", "index", "queues.exit", "clean.exit", "compaction"):
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    life = CompactionLife(tmp_path).start()
    for _ in range(5):
        life.put("key", b"new")
    life.wait_followed()
    life.stop()
    shutil.rmtree(tmp_path / "compaction")
    (tmp_path / "kept").rename(tmp_path / "compaction")
    life = CompactionLife(tmp_path).start()
    life.wait_followed()
    assert [message.body for message in life.read_all()] == [b"new"] * 5
    life.stop()


def test_files_of_another_size_are_refused(tmp_path: Path) -> None:
    life = CompactionLife(tmp_path).start()
    life.put("key", b"value")
    life.wait_followed()
    life.stop()
    life = CompactionLife(tmp_path, compaction_cq_mapped_file_size=QUEUE_SIZE * 2)
    with pytest.raises(StoreError, match="by compactionMappedFileSize it must have"):
        life.store.open()


def test_without_the_feature(tmp_path: Path) -> None:
    life = CompactionLife(tmp_path, enable_compaction=False).start()
    life.put("key", b"value")
    wait_until(lambda: life.table.offsets(TOPIC, 0)[1] == 1)
    life.stop()
    assert not (tmp_path / "compaction").exists()
