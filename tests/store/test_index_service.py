"""The whole index: golden bytes, rollover, load after stops of both kinds, queries of a reader."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from ipc.clock import SystemClock
from store.errors import FlushFailedError, WrongFileSizeError
from store.index_file import IndexFile
from store.index_service import IndexReader, IndexService, index_file_name, list_index_files
from store.java_hash import TAG_KEY, index_key_hash
from store.record_arrays import RecordArrays, parse_records
from store.record_properties import PropertyExtractor
from store.record_properties import _words as words_of
from tests.support.memory_commit_log import MemoryCommitLog, message

GOLDEN = Path(__file__).parents[1] / "golden" / "store-G"
EVER = 1 << 60
START = 1_795_177_732_448


class Flushed(list[int]):
    """Remembers on_flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def __call__(self, timestamp: int) -> None:
        self.append(timestamp)
        self.event.set()


def open_service(
    root: Path, units: int = 50, *, exited_ok: bool = True, safe: int = 0
) -> tuple[IndexService, Flushed]:
    flushed = Flushed()
    service = IndexService(root, 11, units, SystemClock(), flushed)
    service.load(exited_ok=exited_ok, safe_timestamp=safe)
    return service, flushed


def batch(first: int, count: int, keys: int = 2) -> tuple[RecordArrays, list[int]]:
    """Records first ... first + count - 1 of one log, each with `keys` keys."""
    log = MemoryCommitLog()
    places = []
    for n in range(first + count):
        words = " ".join(f"k{n}-{i}" for i in range(1, keys))
        properties = f"UNIQ_KEY\x01u{n}\x02KEYS\x01{words}".encode()
        places.append(
            log.append(message("T", 0, n, properties=properties, store_timestamp=START + 1000 * n))
        )
    places.append(len(log.data))
    data = memoryview(log.data)[places[first] :]
    return parse_records(data, places[first], PropertyExtractor({})), places


def lookup(service: IndexService | IndexReader, key: str) -> list[int]:
    return service.query("T", key, 32, 0, EVER).phy_offsets


@pytest.mark.parametrize("node", ["master", "slave", "slave2"])
def test_golden_index(tmp_path: Path, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java broker's log gives its index file, byte for byte (but for the file's name), and but
    for the tags, which brokers before 5.5 do not index."""
    without_tags(monkeypatch)
    assert_golden_index(tmp_path, GOLDEN / node)


def test_golden_index_with_tags(tmp_path: Path) -> None:
    """Of 5.5, which indexes tags, too."""
    store = GOLDEN.parent / "store-5.5.0"
    assert_golden_index(tmp_path, store)
    reader = IndexReader(store / "index", 1000, 4000)
    found = reader.query("Golden", f"{TAG_KEY}TagA", 64, 0, EVER)
    assert len(found.phy_offsets) == 9
    reader.close()


def without_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.record_properties._words", words_without_tags)
    monkeypatch.setattr("store.record_properties._FEW_ROWS", 1 << 20)  # no columns


def words_without_tags(properties: bytes) -> list[bytes]:
    return [word for word in words_of(properties) if not word.startswith(b"T#")]


def assert_golden_index(root: Path, store: Path) -> None:
    service = IndexService(root, 1000, 4000, SystemClock(), lambda timestamp: None)
    for path in sorted((store / "commitlog").iterdir()):
        view = memoryview(path.read_bytes())
        service.dispatch(parse_records(view, int(path.name), PropertyExtractor({})))
    (golden,) = (store / "index").iterdir()
    (ours,) = root.iterdir()
    assert ours.read_bytes() == golden.read_bytes()


def test_golden_lookups() -> None:
    reader = IndexReader(GOLDEN / "master" / "index", 1000, 4000)
    records = json.loads((GOLDEN / "index-decoded.json").read_text())
    assert records["header"]["indexCount"] == 98
    sent = json.loads((GOLDEN / "records-master.json").read_text())
    checked = 0
    for record in sent:
        properties = record.get("properties") or {}
        if properties.get("UNIQ_KEY"):
            key = properties["UNIQ_KEY"]
            found = reader.query(record["topic"], key, 64, 0, EVER)
            phy_offset = next(
                v for k, v in record.items() if k.lower().startswith(("phy", "commitlogoffset"))
            )
            assert phy_offset in found.phy_offsets
            assert found.index_last_update_phy_offset == 24364
            checked += 1
    assert checked > 20
    reader.close()


def test_rollover_presets_and_flushes(tmp_path: Path) -> None:
    service, flushed = open_service(tmp_path, units=21)
    records, places = batch(0, 25)
    service.dispatch(records)
    paths = list_index_files(tmp_path)
    assert len(paths) == 3
    assert all(len(path.name) == 17 for path in paths)
    files = [IndexFile(path, 11, 21, writable=False) for path in paths]
    assert [file.unit_count for file in files] == [21, 21, 11]
    assert files[1].header[2] == places[10]
    for n in range(25):
        assert lookup(service, f"u{n}") == [places[n]]
        assert lookup(service, f"k{n}-1") == [places[n]]
    assert flushed.event.wait(10)
    service.shutdown()
    service.shutdown()
    assert flushed[-1] == START + 24_000


@pytest.mark.parametrize("units", [8, 21, 200])
@pytest.mark.parametrize("keys", [1, 2, 3])
def test_dispatching_again_doubles_nothing(tmp_path: Path, units: int, keys: int) -> None:
    service, _ = open_service(tmp_path, units=units)
    service.dispatch(batch(0, 12, keys)[0])
    before = {path: path.read_bytes() for path in list_index_files(tmp_path)}
    service.dispatch(batch(0, 12, keys)[0])
    service.dispatch(batch(5, 7, keys)[0])
    service.dispatch(batch(11, 1, keys)[0])
    assert {path: path.read_bytes() for path in list_index_files(tmp_path)} == before
    records, places = batch(8, 10, keys)
    service.dispatch(records)
    for n in range(18):
        assert lookup(service, f"u{n}") == [places[n]]


def test_keys_of_a_record_cut_between_two_entries(tmp_path: Path) -> None:
    service, _ = open_service(tmp_path)
    records, places = batch(0, 3)
    phy = records.phy_offsets[records.key_records]
    times = records.store_timestamps[records.key_records]
    service.put_keys(records.key_hashes[:5], phy[:5], times[:5])
    service.dispatch(records)
    assert [lookup(service, key) for key in ("u2", "k2-1")] == [[places[2]], [places[2]]]


def test_load_after_a_clean_stop(tmp_path: Path) -> None:
    service, _ = open_service(tmp_path, units=21)
    records, places = batch(0, 25)
    service.dispatch(records)
    service.shutdown()
    again, _ = open_service(tmp_path, units=21)
    assert again.rebuild_from == places[24]
    assert lookup(again, "u3") == [places[3]]


def test_load_after_a_crash_loses_no_key(tmp_path: Path) -> None:
    service, _ = open_service(tmp_path, units=21)
    records, places = batch(0, 25)
    service.dispatch(records)
    again, _ = open_service(tmp_path, units=21, exited_ok=False, safe=START + 9_000)
    assert len(list_index_files(tmp_path)) == 1
    assert again.rebuild_from == places[9]
    again.dispatch(batch(9, 16)[0])
    for n in range(25):
        assert lookup(again, f"u{n}") == [places[n]]
        assert lookup(again, f"k{n}-1") == [places[n]]
    nothing, _ = open_service(tmp_path, units=21, exited_ok=False, safe=0)
    assert nothing.rebuild_from == 0
    assert list_index_files(tmp_path) == []


@pytest.mark.parametrize("cut_at", [1, 39, 100, 462])
def test_a_file_whose_length_was_not_on_disk_is_built_again(tmp_path: Path, cut_at: int) -> None:
    """A power cut may leave a new file shorter than it was made: the broker has to start. Where no
    machine has crashed, or the file was on disk, the settings are other ones: that is said."""
    service, _ = open_service(tmp_path, units=21)
    service.dispatch(batch(0, 25)[0])
    service.shutdown()
    paths = list_index_files(tmp_path)
    with pytest.raises(WrongFileSizeError, match="maxIndexNum=22 make"):
        open_service(tmp_path, units=22, exited_ok=False, safe=START + 100_000)
    for path in paths[-2:]:
        os.truncate(path, cut_at)
    with pytest.raises(WrongFileSizeError, match=f"{paths[-2].name} has {cut_at} bytes"):
        open_service(tmp_path, units=21)
    safe = START + 15_000
    again, _ = open_service(tmp_path, units=21, exited_ok=False, safe=safe)
    assert list_index_files(tmp_path) == paths[:1]
    records, places = batch(0, 25)
    again.dispatch(records)
    assert [lookup(again, f"u{n}") for n in range(25)] == [[place] for place in places[:25]]


def test_load_passes_over_strangers_and_empty_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "20261120122852456").write_bytes(b"")
    service, _ = open_service(tmp_path)
    assert service.rebuild_from == 0
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_expiry_spares_the_last_file(tmp_path: Path) -> None:
    service, _ = open_service(tmp_path, units=21)
    records, places = batch(0, 25)
    service.dispatch(records)
    assert service.delete_expired(places[9]) == 0
    assert service.delete_expired(places[9] + 1) == 1
    assert service.delete_expired(EVER) == 1
    assert service.delete_expired(EVER) == 0
    assert lookup(service, "u3") == []
    assert lookup(service, "u24") == [places[24]]


def test_a_reader_follows_the_files(tmp_path: Path) -> None:
    reader = IndexReader(tmp_path / "index", 11, 21)
    assert lookup(reader, "u0") == []
    service, _ = open_service(tmp_path / "index", units=21)
    records, places = batch(0, 25)
    service.dispatch(records)
    assert [lookup(reader, f"u{n}") for n in (0, 24)] == [[places[0]], [places[24]]]
    result = reader.query("T", "u0", 32, 0, EVER)
    assert result.index_last_update_timestamp == START + 24_000
    service.delete_expired(places[24])
    assert lookup(reader, "u0") == []
    assert lookup(reader, "u24") == [places[24]]
    reader.close()


def test_queries_are_bounded(tmp_path: Path) -> None:
    service, _ = open_service(tmp_path, units=200)
    log = MemoryCommitLog()
    for n in range(50):
        log.append(message("T", 0, n, properties=b"KEYS\x01same", store_timestamp=START + n * 1000))
    records = parse_records(memoryview(log.data), 0, PropertyExtractor({}))
    service.dispatch(records)
    assert len(lookup(service, "same")) == 32
    found = service.query("T", "same", 64, START + 10_000, START + 12_000).phy_offsets
    assert found == records.phy_offsets[[12, 11, 10]].tolist()
    assert index_key_hash("T#same") in records.key_hashes


def test_names_never_collide() -> None:
    name = index_file_name(START, "")
    assert len(name) == 17
    assert name.isdigit()
    assert index_file_name(START, name) == f"{int(name) + 1}"
    assert index_file_name(START - 7_200_000, name) == f"{int(name) + 1}"
    assert index_file_name(START + 1, name) > name


def test_a_failed_flush_reaches_the_dispatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: IndexFile) -> None:
        raise FlushFailedError("fdatasync of index file")

    service, _ = open_service(tmp_path, units=8)
    service.dispatch(batch(0, 3)[0])
    monkeypatch.setattr(IndexFile, "flush", fail)
    service.dispatch(batch(3, 1)[0])
    service._join_flushing(10)
    with pytest.raises(FlushFailedError):
        service.dispatch(batch(4, 1)[0])


def test_a_file_closed_while_it_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = IndexFile.flush

    def flush_and_close(self: IndexFile) -> None:
        flush(self)
        self.close()

    service, flushed = open_service(tmp_path, units=8)
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    service.dispatch(batch(0, 3)[0])
    monkeypatch.setattr(IndexFile, "flush", flush_and_close)
    service.dispatch(batch(3, 1)[0])
    service._join_flushing(10)
    assert not failed
    assert flushed == [START + 3000]
