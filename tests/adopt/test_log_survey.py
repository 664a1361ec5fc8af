"""What a log holds: counted as the 5.3.3 brokers that wrote it were told."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from adopt.log_survey import LogSurvey, QueueCount, survey_log
from store.errors import StoreError
from tests.adopt.golden_stores import GOLDEN, QUEUES, copied, unpack_all
from tests.support.archives import unpack
from tests.support.memory_commit_log import MemoryCommitLog, message

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
FIRST = "0" * 20


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    unpack_all(directory)
    unpack(GOLDEN / "timer-5.3.3" / "store-clean-stop.tar.xz", directory / "timer")
    return directory


def test_messages_by_queue_and_the_end(golden: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = survey_log(
        golden / "killed/commitlog",
        dispatched_to=236940,
        check_crc=True,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (found.records, found.end_offset, found.behind) == (1100, 259540, "")
    assert {name: queue.known for name, queue in found.queues.items()} == QUEUES
    assert found.queues["TRocksA", 3] == QueueCount(count=150, known=125, first=0, end=150)
    assert seen == [(16 << 20, 16 << 20)]


def test_half_messages_without_an_end(golden: Path) -> None:
    """Halves 0, 1 and 4 were ended, 2 and 3 put again by the broker's check."""
    (log,) = (golden / "timer").rglob("commitlog")
    found = survey_log(log)
    assert found.open_halves == {("RMQ_SYS_TRANS_HALF_TOPIC", 2), ("RMQ_SYS_TRANS_HALF_TOPIC", 3)}


def test_damage_ends_it_and_is_named(golden: Path, tmp_path: Path) -> None:
    place = copied(golden / "clean/commitlog", tmp_path / "log")
    with (place / FIRST).open("r+b") as file:
        file.seek(914 + 4)
        file.write(b"XXXX")
    found = survey_log(place)
    assert found.end_offset == 914
    assert found.records == 4
    assert "position 914: " in found.behind


def test_bytes_behind_the_end_are_named(golden: Path, tmp_path: Path) -> None:
    place = copied(golden / "clean/commitlog", tmp_path / "log")
    with (place / FIRST).open("r+b") as file:
        file.seek(5_000_000)
        file.write(b"x")
    found = survey_log(place)
    assert found.records == 1000
    assert found.behind.endswith("byte 5000000 behind the end is not zero")


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_files_of_several_sizes_are_refused(golden: Path, tmp_path: Path, size: int) -> None:
    place = copied(golden / "clean/commitlog", tmp_path / "log")
    (place / f"{16 << 20:020d}").write_bytes(bytes(size))
    with pytest.raises(StoreError, match="missing or cut short"):
        survey_log(place)


def test_nothing_at_all(tmp_path: Path) -> None:
    assert survey_log(tmp_path / "none").files == 0
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / FIRST).touch()
    with pytest.raises(StoreError, match="it is empty"):
        survey_log(tmp_path / "log")


class SomeLog:
    """A log of several files, and what was put into it."""

    def __init__(self, directory: Path, choice: random.Random, kinds: Sequence[str]) -> None:
        self.expected = LogSurvey(file_size=1 << 14)
        self._log = MemoryCommitLog(1 << 14)
        self._ends: Counter[tuple[str, int]] = Counter()
        self.dispatched_to = choice.randrange(60_000)
        for number in range(300):
            self._add(number, choice, choice.choice(kinds))
        data = self._log.data
        self.expected.end_offset = len(data)
        directory.mkdir()
        for start in range(0, len(data), 1 << 14):
            file = bytes(data[start : start + (1 << 14)])
            (directory / f"{start:020d}").write_bytes(file.ljust(1 << 14, b"\0"))
            self.expected.files += 1

    def _add(self, number: int, choice: random.Random, kind: str) -> None:
        topics = ["T", "Topic", "日本", "x" * 130]
        topic = {"half": HALF, "op": OP}.get(kind) or choice.choice(topics)
        queue, taken, properties = (topic, choice.randrange(3)), 1, b"KEYS\x01k\x02"
        flags = {"half": 4, "gone": 12, "batch": 128}.get(kind) or choice.choice([0, 8, 0x10, 0x38])
        if kind == "batch":
            taken = choice.randrange(2, 9)
            properties += b"INNER_NUM\x01%d\x02" % taken
        if kind == "light":
            properties += b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02"
            properties += b"INNER_MULTI_QUEUE_OFFSET\x01%d,7\x02" % number
        ended = choice.randrange(100)
        sent = message(
            *queue,
            self._ends[queue],
            sys_flag=flags,
            store_timestamp=1_000 + choice.randrange(500),
            properties=properties,
            body=b"%d," % ended + b"b" * choice.randrange(100),
        )
        phy_offset = self._log.append(sent)
        self.expected.records += 1
        self.expected.newest_ms = max(self.expected.newest_ms, sent.store_timestamp)
        if kind == "half":
            self.expected.open_halves.add((HALF, sent.queue_offset))
        if kind == "op":
            self.expected.open_halves.discard((HALF, ended))
        if kind not in ("half", "gone"):
            self._expect(queue, sent.queue_offset, taken, phy_offset)
        if kind == "light":
            self._expect(("%LMQ%a", 0), number, 1, phy_offset)
            self._expect(("%LMQ%b", 0), 7, 1, phy_offset)
        self._ends[queue] += taken

    def _expect(self, queue: tuple[str, int], offset: int, taken: int, phy_offset: int) -> None:
        found = self.expected.queues.setdefault(queue, QueueCount(first=offset))
        found.count += 1
        found.known += phy_offset < self.dispatched_to
        found.end = offset + taken


@pytest.mark.parametrize("others", [[], ["gone"], ["half", "op"], ["batch"], ["light"]])
def test_what_was_put_in_is_counted(tmp_path: Path, others: list[str]) -> None:
    """Whether many are counted at once or one by one."""
    for seed in range(6):
        log = SomeLog(tmp_path / str(seed), random.Random(seed), ["plain"] * 20 + others)
        for check_crc in (False, True):
            found = survey_log(
                tmp_path / str(seed), dispatched_to=log.dispatched_to, check_crc=check_crc
            )
            assert found == log.expected
