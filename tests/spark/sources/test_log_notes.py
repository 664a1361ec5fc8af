"""What a broker has noted beside its log: fences, a cut that is to come, what is not confirmed."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from spark.sources.errors import OptionError
from spark.sources.log_files import plan_log
from spark.sources.log_notes import CUT_REASON
from spark.sources.log_scan import NotedPart
from store.log_fences import LogFences, fences_path, new_fence, save_fences
from store.resync_request import ResyncAction, ResyncRequest, write_request
from store.store_checkpoint import StoreCheckpoint
from tests.spark.sources.written_logs import Scanned, WrittenLog, holes, scanned, written_log
from tests.support.memory_commit_log import MemoryCommitLog, message


def store_of(directory: Path, *logs: WrittenLog) -> Path:
    """A store's directory."""
    (directory / "commitlog").mkdir(parents=True)
    for log in logs:
        log.write(directory / "commitlog")
    return directory


def two_files() -> tuple[WrittenLog, WrittenLog]:
    first = written_log(60, sizes=(100,), left=200)
    second = written_log(60, sizes=(100,), start=len(first.data), blank=False)
    second.data[len(first.data) :] = b""
    second.data.extend(bytes(len(first.data) - len(second.data)))
    return first, second


def fence(store: Path, *ranges: tuple[int, int]) -> None:
    fences = LogFences(new_fence(start, end, "the CRC is wrong") for start, end in ranges)
    save_fences(fences_path(store / "commitlog"), fences)


def all_of(store: Path, *, is_live: bool = False) -> list[Scanned]:
    plan = plan_log([str(store)], is_written=is_live)
    return [scanned(each.file) for each in plan.files]


def records_of(found: list[Scanned]) -> list[tuple[int, int]]:
    return [place for each in found for place in each.records]


def kinds_of(found: list[Scanned]) -> list[tuple[str, int, int]]:
    return [(each.kind, each.start, each.end) for one in found for each in one.damages]


class TestFences:
    def test_nobody_reads_inside(self, tmp_path: Path) -> None:
        """Records in it are whole, and are not those that the broker has put there."""
        log = written_log(60)
        store = store_of(tmp_path, log)
        start, end = log.places[20][0], log.places[29][1]
        fence(store, (start, end))
        (found,) = all_of(store)
        assert found.records == log.places[:20] + log.places[30:]
        (damage,) = found.damages
        assert damage == ("fenced", start, end, "the CRC is wrong", None)
        assert not list(holes(found.pieces, 0))

    def test_over_the_end_of_a_file(self, tmp_path: Path) -> None:
        """A record of an older use of the file, behind a damaged begin, is older than records that
        only the broker knew."""
        first, second = two_files()
        size = len(first.data)
        start, end = first.places[50][0], size + second.places[9][1]
        second.data[10] ^= 1
        store = store_of(tmp_path, first, second)
        assert kinds_of(all_of(store)) == [("record", size, size + second.places[0][1])]
        fence(store, (start, end))
        found = all_of(store)
        moved = [(size + low, size + high) for low, high in second.places]
        assert records_of(found) == first.places[:50] + moved[10:]
        assert kinds_of(found) == [("fenced", start, size), ("fenced", size, end)]

    def test_damage_beside_it(self, tmp_path: Path) -> None:
        log = written_log(60)
        before, start, end = log.places[19][0], log.places[20][0], log.places[29][1]
        log.data[before + 5] ^= 1
        store = store_of(tmp_path, log)
        fence(store, (start, end), (log.places[40][0], log.places[40][1]))
        (found,) = all_of(store)
        assert kinds_of([found]) == [
            ("bytes", before, start),
            ("fenced", start, end),
            ("fenced", *log.places[40]),
        ]
        assert found.records == log.places[:19] + log.places[30:40] + log.places[41:]

    @pytest.mark.parametrize("seed", range(20))
    def test_wherever_they_are(self, tmp_path: Path, seed: int) -> None:
        """One of another log, say: all is records or damage, none twice, and none within."""
        choice = random.Random(seed)
        log = written_log(60, blank=choice.random() < 0.5)
        bounds = sorted(choice.sample(range(len(log.data) + 500), 6))
        ranges = list(zip(bounds[::2], bounds[1::2], strict=True))
        store = store_of(tmp_path, log)
        fence(store, *ranges)
        (found,) = all_of(store)
        for at, end in found.records:
            assert not any(start < end and at < stop for start, stop in ranges)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(found.pieces))
        whole = [
            place
            for place in log.places
            if not any(start < place[1] and place[0] < stop for start, stop in ranges)
        ]
        assert set(whole) >= set(found.records)
        assert len(whole) - len(found.records) <= len(ranges)

    def test_files_that_are_named(self, tmp_path: Path) -> None:
        """All that is whole, for who wants to save what can be."""
        log = written_log(60)
        store = store_of(tmp_path, log)
        fence(store, log.places[20])
        (path,) = (store / "commitlog").iterdir()
        (planned,) = plan_log([str(path)], is_written=False).files
        assert scanned(planned.file).records == log.places
        write_request(store, ResyncRequest(action=ResyncAction.TRUNCATE, offset=log.places[5][0]))
        beside = path.rename(store / "a.log")
        (planned,) = plan_log([str(beside)], is_written=False).files
        assert scanned(planned.file).records == log.places

    def test_a_file_that_is_none(self, tmp_path: Path) -> None:
        store = store_of(tmp_path, written_log(3))
        fences_path(store / "commitlog").write_text('{"fences": [{"start": 5}]}')
        with pytest.raises(OptionError, match=r"commitlog-fences\.json: .*move that file away"):
            all_of(store)


class TestCuts:
    def test_what_a_former_master_will_lose(self, tmp_path: Path) -> None:
        first, second = two_files()
        size = len(first.data)
        store = store_of(tmp_path, first, second)
        at = first.places[30][0]
        write_request(store, ResyncRequest(action=ResyncAction.TRUNCATE, offset=at, reason="why"))
        found = all_of(store)
        assert records_of(found) == first.places[:30]
        assert kinds_of(found) == [("cut", at, size), ("cut", size, size + len(second.data))]
        assert found[0].damages[0].reason == f"{CUT_REASON} (why)"

    def test_behind_a_fence(self, tmp_path: Path) -> None:
        log = written_log(60)
        store = store_of(tmp_path, log)
        (start, end), at = log.places[20], log.places[20][0] + 5
        write_request(store, ResyncRequest(action=ResyncAction.TRUNCATE, offset=at, reason="why"))
        fence(store, (start, end), log.places[30])
        (found,) = all_of(store)
        assert kinds_of([found]) == [("fenced", start, end), ("cut", end, len(log.data))]
        assert found.records == log.places[:20]

    def test_a_store_that_will_start_over(self, tmp_path: Path) -> None:
        """What it has is as true as before."""
        log = written_log(9)
        store = store_of(tmp_path, log)
        write_request(store, ResyncRequest(action=ResyncAction.START_OVER))
        assert records_of(all_of(store)) == log.places

    def test_a_request_that_is_none(self, tmp_path: Path) -> None:
        store = store_of(tmp_path, written_log(3))
        (store / "resync.json").write_text("{")
        with pytest.raises(OptionError, match=r"resync\.json"):
            all_of(store)


class TestWhatIsNotConfirmed:
    """Of a broker of a group with a controller: what its replicas do not have may be cut off."""

    def test_live(self, tmp_path: Path) -> None:
        first, second = two_files()
        store = store_of(tmp_path, first, second)
        checkpoint = StoreCheckpoint(store / "checkpoint")
        checkpoint.confirm_offset = second.start + second.places[10][0]
        checkpoint.flush()
        moved = [(second.start + at, second.start + end) for at, end in second.places]
        assert records_of(all_of(store, is_live=True)) == first.places + moved
        (store / "epochFileCheckpoint").touch()
        found = all_of(store, is_live=True)
        assert records_of(found) == first.places + moved[:10]
        assert not kinds_of(found)
        assert records_of(all_of(store)) == first.places + moved
        checkpoint.confirm_offset = first.places[7][0]
        checkpoint.flush()
        found = all_of(store, is_live=True)
        assert records_of(found) == first.places[:7]
        assert not kinds_of(found)

    @pytest.mark.parametrize("more", [1, 4, 90, 150])
    def test_within_a_record(self, tmp_path: Path, more: int) -> None:
        """Java's slaves take the log in pieces. Damage before it is told."""
        log = written_log(60, sizes=(100,))
        log.data[log.places[20][0] + 5] ^= 1
        store = store_of(tmp_path, log)
        (store / "epochFileCheckpoint").touch()
        checkpoint = StoreCheckpoint(store / "checkpoint")
        checkpoint.confirm_offset = log.places[30][0] + more
        checkpoint.flush()
        (found,) = all_of(store, is_live=True)
        assert found.records == log.places[:20] + log.places[21:30]
        assert kinds_of([found]) == [("bytes", *log.places[20])]

    def test_of_a_broker_that_has_left_its_group(self, tmp_path: Path) -> None:
        """Its units go on, and what was confirmed last stays in the checkpoint for ever."""
        log = written_log(60)
        store = store_of(tmp_path, log)
        (store / "epochFileCheckpoint").touch()
        checkpoint = StoreCheckpoint(store / "checkpoint")
        checkpoint.confirm_offset = checkpoint.logics_physical_offset = log.places[30][0]
        checkpoint.flush()
        assert records_of(all_of(store, is_live=True)) == log.places[:30]
        checkpoint.logics_physical_offset = log.places[31][0]
        checkpoint.flush()
        assert records_of(all_of(store, is_live=True)) == log.places

    def test_not_known(self, tmp_path: Path) -> None:
        """Nothing was confirmed yet, or its checkpoint does not say."""
        log = written_log(9)
        store = store_of(tmp_path, log)
        (store / "epochFileCheckpoint").touch()
        assert records_of(all_of(store, is_live=True)) == log.places


def test_a_noted_part_is_no_end_of_the_log(tmp_path: Path) -> None:
    """Zeros before it are damage, also in the newest file that a broker is writing."""
    log = MemoryCommitLog(1 << 20, 0)
    log.append(message("T", body=b"x" * 100))
    end = len(log.data)
    written = WrittenLog(bytearray(log.data) + bytes(300), 0, [(0, end)])
    file = written.file(
        written.write(tmp_path),
        is_newest=True,
        is_written=True,
        noted=(NotedPart("fenced", end + 100, end + 200, "why"),),
    )
    found = scanned(file)
    assert found.records == [(0, end)]
    assert kinds_of([found]) == [("bytes", end, end + 100), ("fenced", end + 100, end + 200)]
