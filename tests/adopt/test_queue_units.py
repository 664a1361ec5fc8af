"""What the way back writes of consume queues: Java's own bytes for the same log, and no units of
what was deleted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adopt.command_line import DIFFERENT, DONE, main
from adopt.log_survey import survey_log
from adopt.queue_units import QueueUnits
from adopt.rocks_codec import Unit, UnitKey
from adopt.rocks_database import RocksDatabase
from adopt.rocks_queues import read_bounds
from store.batch_units import BATCH_UNIT_SIZE
from store.dledger.target_log import TargetLog
from store.inner_batch import INNER_BATCH_FLAG
from store.message import Message
from store.message_codec import encode_host, encode_record
from store.stored_units import CQ_UNIT, PRE_BLANK_SIZE
from tests.adopt.golden_stores import copied, unpack_all

FILE_SIZE = 1 << 20
HOST = encode_host("127.0.0.1", 10911)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    unpack_all(directory)
    assert main([str(directory / "double"), "--to", str(directory / "files")]) == DONE
    return directory


def entries(queues: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    with RocksDatabase(queues) as database:
        return {name: list(database.entries(name)) for name in ("default", "offset")}


def test_the_same_bytes_as_java_writes(golden: Path, tmp_path: Path) -> None:
    """5.3.3 wrote the queues of this store twice: as files, and into RocksDB."""
    assert main([str(golden / "files"), "--to-rocksdb", "--to", str(tmp_path / "back")]) == DONE
    java = entries(golden / "double/consumequeue")
    assert len(java["default"]) == 1000
    assert entries(tmp_path / "back/consumequeue") == java


class Store:
    """Written here: records, and units of those that are said to have any."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.places: list[tuple[int, int]] = []
        for name in ("commitlog", "config"):
            (root / name).mkdir(parents=True)
        (root / "config/topics.json").write_text('{"topicConfigTable":{}}')

    def fill(self, *messages: Message) -> None:
        with TargetLog(self.root / "commitlog", FILE_SIZE, 0) as log:
            for message in messages:
                at = log.place_for(len(encode_record(message)))
                record = encode_record(replace(message, phy_offset=at, store_timestamp=at + 7))
                log.append(record)
                self.places.append((at, len(record)))

    def queue(self, topic: str, queue_id: int, *records: int, tags_code: int = 0) -> None:
        """A file queue with these records, by number."""
        directory = self.root / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True)
        units = b"".join(CQ_UNIT.pack(*self.places[number], tags_code) for number in records)
        (directory / f"{0:020d}").write_bytes(units.ljust(2_000, b"\0"))

    def units(self) -> dict[UnitKey, Unit]:
        end = survey_log(self.root / "commitlog").end_offset
        queues = QueueUnits(self.root, self.root / "consumequeue")
        return dict(queues.units(end, lambda _done, _all: None))


def sent(topic: str, queue_offset: int, properties: bytes = b"", sys_flag: int = 0) -> Message:
    return Message(
        topic=topic,
        queue_id=0,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        born_host=HOST,
        store_host=HOST,
        body=b"x",
        properties=properties,
    )


def test_a_delayed_message_keeps_the_time_of_its_queue(tmp_path: Path) -> None:
    """Nobody says here what the levels of its broker are."""
    store = Store(tmp_path)
    store.fill(sent("SCHEDULE_TOPIC_XXXX", 0, b"DELAY\x012"))
    store.queue("SCHEDULE_TOPIC_XXXX", 0, 0, tags_code=1_700_000_012_345)
    at, size = store.places[0]
    assert store.units() == {
        UnitKey("SCHEDULE_TOPIC_XXXX", 0, 0): Unit(at, size, 1_700_000_012_345, at + 7)
    }


def test_what_was_deleted_does_not_come_back(tmp_path: Path) -> None:
    """Of a topic that was deleted, and of the life before of one that was made again."""
    store = Store(tmp_path)
    store.fill(
        *(sent("Again", offset) for offset in range(3)),
        sent("Gone", 0),
        *(sent("Again", offset) for offset in range(2)),
    )
    store.queue("Again", 0, 4, 5)
    assert {key: unit.phy_offset for key, unit in store.units().items()} == {
        UnitKey("Again", 0, 0): store.places[4][0],
        UnitKey("Again", 0, 1): store.places[5][0],
    }
    assert main([str(tmp_path), "--to-rocksdb", "--in-place"]) == DONE
    assert read_bounds(tmp_path / "consumequeue").ends == {("Again", 0): 2}


@pytest.mark.parametrize("size", [0, PRE_BLANK_SIZE])
def test_a_place_without_a_unit_is_not_that_of_the_logs_first_record(
    tmp_path: Path, size: int
) -> None:
    """Which is at 0, too: a hole, or what Java puts before a queue's first unit."""
    store = Store(tmp_path)
    store.fill(sent("Again", 0), sent("Again", 1))
    store.places[0] = (0, size)
    store.queue("Again", 0, 0, 1)
    assert set(store.units()) == {UnitKey("Again", 0, 1)}


def test_a_light_queue_has_units_where_it_has_a_file(tmp_path: Path) -> None:
    """Others may say in a property what they like."""
    store = Store(tmp_path)
    places = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%forged\x02INNER_MULTI_QUEUE_OFFSET\x010,0"
    store.fill(sent("T", 0, places))
    store.queue("T", 0, 0)
    store.queue("%LMQ%a", 0, 0)
    assert set(store.units()) == {UnitKey("T", 0, 0), UnitKey("%LMQ%a", 0, 0)}


def test_of_a_batch_queue_each_record_has_a_plain_unit(tmp_path: Path) -> None:
    store = Store(tmp_path)
    batch = b"INNER_BASE\x010\x02INNER_NUM\x013"
    store.fill(sent("B", 0, batch, INNER_BATCH_FLAG), sent("B", 3, b"TAGS\x01a"))
    (tmp_path / "batchconsumequeue/B/0").mkdir(parents=True)
    (tmp_path / "batchconsumequeue/B/0" / f"{0:020d}").write_bytes(bytes(BATCH_UNIT_SIZE * 10))
    assert {key.queue_offset: unit.tags_code for key, unit in store.units().items()} == {
        0: 0,
        3: ord("a"),
    }
    assert main([str(tmp_path), "--to-rocksdb", "--in-place"]) == DONE
    assert read_bounds(tmp_path / "consumequeue").ends == {("B", 0): 4}


def test_a_unit_that_its_record_does_not_know_is_a_difference(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = copied(golden / "files", tmp_path / "files")
    queue = files / "consumequeue/TRocksC/0" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    data[20 * 7 + 7] ^= 1
    queue.write_bytes(data)
    assert main([str(files), "--to-rocksdb", "--to", str(tmp_path / "back")]) == DIFFERENT
    assert "TRocksC 0: units and next queue offset before: (200, 200), now: (199, 200)" in (
        capsys.readouterr().out
    )
