"""Stores of 5.3.3 brokers become ours: same messages, queues, offsets; safe over kills.
Truth: what RocksDB has in them, and what their clients were told (golden_stores)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adopt import adoption, copied_files, state
from adopt.command_line import DIFFERENT, DONE, REFUSED, main
from adopt.rocks_codec import Bound, decode_unit, decode_unit_key, encode_bound
from adopt.rocks_database import RocksDatabase, write_database
from broker.pop.pop_check_point import PopCheckPoint
from store.dledger.unfinished_import import ADOPTION_NAME, refuse_unfinished
from store.errors import StoreError
from store.message import Message
from store.message_codec import decode_record
from store.store_lock import StoreLock
from tests.adopt.golden_stores import (
    KINDS,
    NAMES,
    OFFSETS,
    QUEUES,
    contents,
    copied,
    opened,
    snapshot,
    unpack_all,
)
from tests.support.failpoints import find_function


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    unpack_all(directory)
    return directory


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def do(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        status = main([str(each) for each in arguments])
        return status, capsys.readouterr().out

    return do


def units_of(directory: Path) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    """What RocksDB has."""
    found: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    with RocksDatabase(directory) as database:
        for key, value in database.entries("default"):
            place, unit = decode_unit_key(key), decode_unit(value)
            found.setdefault((place.topic, place.queue_id), []).append(unit[:3])
    return found


# -- looking -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_looking_writes_nothing(golden: Path, run: Run, kind: str) -> None:
    before = snapshot(golden / kind)
    status, said = run(golden / kind, "--json", *NAMES)
    found = json.loads(said)
    assert status == DONE
    assert snapshot(golden / kind) == before
    assert found["kind"] == ("double" if kind == "double" else "rocksdb")
    assert found["config"] == {"v2": "v2", "double": "json"}.get(kind, "v1")
    assert found["killed"] == (kind == "killed")
    assert found["log"]["messages"] == (1100 if kind == "killed" else 1000)
    assert found["rocksdbQueues"] == {"checkpoint": 236940, "units": 1000}
    assert found["problems"] == []
    assert found["needed"]
    assert found["features"] == ({"popped messages in kvStore": 24} if kind == "pop" else {})


def test_a_store_in_use_is_named(golden: Path, run: Run, tmp_path: Path) -> None:
    with StoreLock(golden / "clean"):
        status, said = run(golden / "clean", "--to", tmp_path / "new")
    assert status == REFUSED
    assert "a broker has it open; stop it" in said
    assert not (tmp_path / "new").exists()


# -- doing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_place", [False, True], ids=["copy", "in-place"])
def test_a_store_becomes_ours(
    golden: Path, run: Run, tmp_path: Path, kind: str, in_place: bool
) -> None:
    source = golden / kind
    before = snapshot(source)
    target = copied(source, tmp_path / "own") if in_place else tmp_path / "new"
    way = ["--in-place"] if in_place else ["--to", target]
    status, said = run(target if in_place else source, *way, *NAMES)
    assert status == DONE, said
    after = snapshot(source)
    assert {name: each for name, each in after.items() if name not in (".", "lock")} == {
        name: each for name, each in before.items() if name not in (".", "lock")
    }
    maxima, errors, units = opened(target)
    assert errors == []
    expected = dict(QUEUES)
    if kind == "killed":
        expected |= {("TRocksA", queue): 150 for queue in range(4)}
    if kind == "pop":
        expected[adoption.TIMER_TOPIC, 0] = 3
    assert {name: end for name, end in maxima.items() if end} == expected
    for name, java in units_of(source / "consumequeue").items():
        assert units[name][: len(java)] == java
    offsets = json.loads(
        "".join((target / "config/consumerOffset.json").read_text().split())
        .replace("{0:", '{"0":')
        .replace(",1:", ',"1":')
        .replace(",2:", ',"2":')
        .replace(",3:", ',"3":')
    )["offsetTable"]
    for key, queues in OFFSETS.items():
        assert offsets[key] == {str(queue): offset for queue, offset in queues.items()}
    if in_place:
        kept = target / "adopt.aside.1" / "consumequeue"
        assert units_of(kept) == units_of(source / "consumequeue")
    assert run(target)[0] == DONE
    assert "opens it as it is" in run(target)[1]


def stored_behind(target: Path, start: int) -> Iterator[Message]:
    raw = (target / "commitlog" / ("0" * 20)).read_bytes()
    while any(raw[start : start + 8]):
        message, size = decode_record(raw, start)
        assert message.phy_offset == start
        yield message
        start += size


def test_popped_messages_become_check_points(golden: Path, run: Run, tmp_path: Path) -> None:
    """Of three pops, as the client was told: 8 of queue 0, 8 of queue 1, 8 more of queue 0."""
    assert run(golden / "pop", "--to", tmp_path / "new", *NAMES)[0] == DONE
    found = list(stored_behind(tmp_path / "new", 236940))
    points = [PopCheckPoint.from_json_bytes(message.body) for message in found]
    pops = [
        (p.topic, p.group, p.queue_id, p.start_offset, p.num, p.pop_time, p.invisible_time)
        for p in points
    ]
    hour = 3_600_000
    assert pops == [
        ("TRocksB", "GRocks1", 0, 0, 8, 1795734646643, hour),
        ("TRocksB", "GRocks1", 1, 0, 8, 1795734646673, hour),
        ("TRocksB", "GRocks1", 0, 8, 8, 1795734646679, hour),
    ]
    assert [p.queue_offset_diff for p in points] == [list(range(8))] * 3
    assert [(m.topic, m.queue_id, m.queue_offset) for m in found] == [
        (adoption.TIMER_TOPIC, 0, number) for number in range(3)
    ]
    assert found[0].find_property("REAL_TOPIC") == "rmq_sys_REVIVE_LOG_RocksCluster"


def test_pops_need_the_broker_s_names(golden: Path, run: Run, tmp_path: Path) -> None:
    status, said = run(golden / "pop", "--to", tmp_path / "new")
    assert status == REFUSED
    assert "say --broker-name and --cluster" in said
    assert not (tmp_path / "new").exists()


def test_two_places_of_tables_are_not_guessed_at(golden: Path, run: Run, tmp_path: Path) -> None:
    place = copied(golden / "clean", tmp_path / "both")
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        (place / "config" / name).write_bytes((golden / "double/config" / name).read_bytes())
    (place / "config/consumerOffset.json").write_text('{"offsetTable":{"T@G":{0:5}}}')
    status, said = run(place, "--to", tmp_path / "new")
    assert status == REFUSED
    assert "say --config json|v1" in said
    assert run(place, "--to", tmp_path / "new", "--config", "v1")[0] == DONE
    assert "GRocks1" in (tmp_path / "new/config/consumerOffset.json").read_text()
    assert run(place, "--in-place", "--config", "v1")[0] == DONE
    assert "GRocks1" in (place / "config/consumerOffset.json").read_text()
    kept = place / "adopt.aside.1/config/consumerOffset.json"
    assert kept.read_text() == '{"offsetTable":{"T@G":{0:5}}}'


def test_an_expired_queue_goes_on_where_it_was(golden: Path, run: Run, tmp_path: Path) -> None:
    """RocksDB knows a queue of which the log has nothing any more."""
    place = copied(golden / "clean", tmp_path / "own")
    (place / "commitlog" / ("0" * 20)).rename(place / "kept")
    raw = (place / "kept").read_bytes()
    # The log from TRocksC on: what was before has expired.
    start = next(at for at, topic in positions(raw) if topic == "TRocksC")
    (place / "kept").unlink()
    end = 236940 - start
    (place / "commitlog" / f"{16 << 20:020d}").write_bytes(
        moved(raw, start, 16 << 20) + bytes((16 << 20) - end)
    )
    with RocksDatabase(place / "consumequeue") as database:
        known = {name: list(database.entries(name)) for name in database.families}
    # No file can have such a name: a broker would not start for it.
    known["offset"].append(encode_bound(Bound("x" * 256, 0, True, 0, 9)))
    shutil.rmtree(place / "consumequeue")
    write_database(place / "consumequeue", known)
    status, said = run(place, "--to", tmp_path / "new")
    assert status == DONE, said
    ends = json.loads((tmp_path / "new/imported_queues.json").read_text())
    assert not any(topic.startswith("x") for topic, _, _ in ends)
    assert ["TRocksA", 3, 125] in ends
    assert ["TRocksB", 1, 150] in ends
    assert opened(tmp_path / "new")[0] == QUEUES


def positions(raw: bytes) -> Iterator[tuple[int, str]]:
    at = 0
    while any(raw[at : at + 8]):
        message, size = decode_record(raw, at)
        yield at, message.topic
        at += size


def moved(raw: bytes, start: int, to: int) -> bytes:
    """The records from `start` on as they are at `to`."""
    found, at = bytearray(), start
    while any(raw[at : at + 8]):
        size = decode_record(raw, at)[1]
        record = bytearray(raw[at : at + size])
        record[28:36] = (to + len(found)).to_bytes(8)
        found += record
        at += size
    return bytes(found)


def test_what_a_kill_left_behind_the_log_is_kept(golden: Path, run: Run, tmp_path: Path) -> None:
    place = copied(golden / "pop", tmp_path / "own")
    with (place / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(236940)
        file.write(b"half a record" * 100)
    assert run(place, "--in-place", *NAMES)[0] == REFUSED  # it says that it was stopped in order
    (place / "abort").touch()
    assert run(place, "--in-place", *NAMES)[0] == DONE
    assert len(list(stored_behind(place, 236940))) == 3
    kept = place / "adopt.aside.1" / f"log-behind-{236940:020d}"
    assert kept.read_bytes() == b"half a record" * 100


# -- kills -------------------------------------------------------------------------------------

STEPS = (
    "adopt.adoption.replace_file",
    "adopt.adoption.write_atomic",
    "adopt.adoption.save_state",
    "adopt.adoption.sync_directory",
    "adopt.adoption.make_directory",
    "adopt.adoption.write_queue_ends",
    "adopt.adoption.zero_range",
    "adopt.copied_files._copy",
    "adopt.way_back.sync_directory",
    "adopt.way_back.write_database",
    "adopt.way_back._remove",
    "pathlib.Path.rename",
    "pathlib.Path.unlink",
    "store.dledger.target_log.TargetLog.append",
    "store.dledger.target_log.TargetLog._end_file",
)
"""Whatever changes the disk."""


class KillError(BaseException):
    """Instead of the process."""


def kill_at(patch: pytest.MonkeyPatch, number: int) -> list[str]:
    """The `number`-th change of the disk, and all after it, do not happen; what was asked for."""
    asked: list[str] = []
    for target in STEPS:
        owner, name, usual = find_function(target)

        def change(*args: Any, _usual: Any = usual, _name: str = target, **named: Any) -> Any:
            asked.append(_name)
            if len(asked) >= number:
                raise KillError
            return _usual(*args, **named)

        patch.setattr(owner, name, change)
    return asked


class KilledRuns:
    """Of the store with pops, with a tail behind the log and old tables in place."""

    def __init__(self, golden: Path, directory: Path, run: Run, *, in_place: bool) -> None:
        self._source = golden / "pop"
        self._directory = directory
        self._run = run
        self._in_place = in_place
        assert self.go_on("undisturbed", begin=True) == DONE
        self._expected = contents(directory / "undisturbed", without=(adoption.REPORT_NAME,))

    def go_on(self, name: str, *, begin: bool = False) -> int:
        """The command, or its first turn; the exit status."""
        place = self._directory / name
        if begin and self._in_place:
            copied(self._source, place)
            (place / "config/topics.json.bak").write_text("old")
            (place / "abort").touch()
            with (place / "commitlog" / ("0" * 20)).open("r+b") as file:
                file.seek(236940)
                file.write(b"half a record")
        way = [place, "--in-place"] if self._in_place else [self._source, "--to", place]
        return self._run(*way, "--config", "v1", *NAMES)[0]

    def is_finished(self, name: str) -> bool:
        """A kill behind the last step leaves nothing to go on with."""
        place = self._directory / name
        return (place / adoption.REPORT_NAME).exists() and not (place / ADOPTION_NAME).exists()

    def check(self, name: str) -> None:
        """What came out is what comes out undisturbed."""
        found = contents(self._directory / name, without=(adoption.REPORT_NAME,))
        assert found == self._expected


@pytest.fixture(params=[False, True], ids=["copy", "in-place"])
def killed_runs(
    golden: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> KilledRuns:
    monkeypatch.setattr("adopt.command_line.now_ms", lambda: 1_795_800_000_000)
    return KilledRuns(golden, tmp_path, run, in_place=request.param)


def test_killed_again_and_again(killed_runs: KilledRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first change of the disk, then the second of what is left, the third, …"""
    for number in range(1, 100):
        with monkeypatch.context() as patch:
            asked = kill_at(patch, number)
            try:
                status = killed_runs.go_on("killed", begin=number == 1)
            except KillError:
                continue
        assert status == DONE
        assert number > len(asked)
        break
    assert number > 4, asked
    killed_runs.check("killed")


@pytest.mark.long
def test_killed_before_each_change_of_the_disk(
    killed_runs: KilledRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 200):
        name = f"killed-{number}"
        with monkeypatch.context() as patch:
            kill_at(patch, number)
            try:
                killed_runs.go_on(name, begin=True)
            except KillError:
                pass
            else:
                break
        expected = REFUSED if killed_runs.is_finished(name) else DONE
        assert killed_runs.go_on(name) == expected
        killed_runs.check(name)
    assert number > 20


def test_no_broker_starts_on_half_of_it(
    golden: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_at(patch, 5)
        with pytest.raises(KillError):
            run(golden / "clean", "--to", tmp_path / "new")
    with pytest.raises(StoreError, match="run bin/mqadopt again"):
        refuse_unfinished(tmp_path / "new")
    status, said = run(tmp_path / "new")
    assert status == REFUSED
    assert "run bin/mqadopt again as before" in said


def test_another_source_does_not_go_on(
    golden: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_at(patch, 5)
        with pytest.raises(KillError):
            run(golden / "clean", "--to", tmp_path / "new")
    status, said = run(golden / "killed", "--to", tmp_path / "new")
    assert status == REFUSED
    assert "is another: name another directory" in said


# -- refusals ----------------------------------------------------------------------------------


def test_room_is_asked_for_first(
    golden: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copied_files, "SPARE", 1 << 60)
    status, said = run(golden / "clean", "--to", tmp_path / "new")
    assert status == REFUSED
    assert "bytes are needed" in said
    assert not (tmp_path / "new/commitlog").exists()


def test_a_target_that_is_used_or_inside_is_refused(golden: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/mine").touch()
    assert "not empty (mine)" in run(golden / "clean", "--to", tmp_path / "new")[1]
    place = copied(golden / "clean", tmp_path / "own")
    assert "one is in the other" in run(place, "--to", place / "new")[1]
    assert not (place / "new").exists()


def test_links_are_followed_at_the_top_only(golden: Path, run: Run, tmp_path: Path) -> None:
    place = copied(golden / "double", tmp_path / "own")
    (place / "commitlog").rename(tmp_path / "disk2")
    (place / "commitlog").symlink_to(tmp_path / "disk2")
    assert run(place, "--to", tmp_path / "new")[0] == DONE
    assert not (tmp_path / "new/commitlog").is_symlink()
    (place / "config/consumerFilter.json").unlink()
    (place / "config/consumerFilter.json").symlink_to("/etc/passwd")
    status, said = run(place, "--to", tmp_path / "other")
    assert status == REFUSED
    assert "config/consumerFilter.json: neither a file nor a directory" in said


def test_a_log_with_a_gap_is_refused(golden: Path, run: Run, tmp_path: Path) -> None:
    place = copied(golden / "clean", tmp_path / "own")
    raw = (place / "commitlog" / ("0" * 20)).read_bytes()
    (place / "commitlog" / f"{32 << 20:020d}").write_bytes(raw)
    status, said = run(place, "--to", tmp_path / "new")
    assert status == REFUSED
    assert "are missing or cut short" in said


def test_counts_that_differ_are_told_by_the_exit_status(
    golden: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that lost an entry on its way."""
    usual = adoption.json_files

    def losing(tables: Any) -> dict[str, bytes]:
        tables.groups.pop("GRocks1")
        return usual(tables)

    monkeypatch.setattr(adoption, "json_files", losing)
    status, said = run(golden / "clean", "--to", tmp_path / "new")
    assert status == DIFFERENT
    assert "DIFFERENT: tables" in said
    with pytest.raises(StoreError):
        refuse_unfinished(tmp_path / "new")


def test_a_state_file_that_is_damaged_is_named(golden: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    for text in ("{", "[]", '{"format":1}', "[" * 100_000):
        (tmp_path / "new" / state.ADOPTION_NAME).write_text(text)
        status, said = run(golden / "clean", "--to", tmp_path / "new")
        assert status == REFUSED
        assert "begin again with another --to" in said


def test_what_is_no_store(run: Run, tmp_path: Path) -> None:
    assert "there is no such directory" in run(tmp_path / "nothing")[1]
    assert "not the store of a broker" in run(tmp_path)[1]


@pytest.mark.parametrize(
    "words",
    [
        ["--in-place"],
        ["--broker-name", "another"],
        ["--cluster", "another"],
        ["--config", "json"],
        ["--to-rocksdb"],
    ],
)
@pytest.mark.parametrize("in_place", [False, True], ids=["copy", "in-place"])
def test_other_options_do_not_go_on(
    golden: Path,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    in_place: bool,
) -> None:
    """What was begun as a copy is half of a store, and check points have one broker's name."""
    if in_place and words == ["--in-place"]:
        words = ["--to-rocksdb"]
    source = copied(golden / "pop", tmp_path / "old") if in_place else golden / "pop"
    target = source if in_place else tmp_path / "new"
    way = ["--in-place"] if in_place else ["--to", str(target)]
    with monkeypatch.context() as patch:
        patch.setattr(adoption.Adoption, "_append_pops", _killed)
        with pytest.raises(KillError):
            run(source, *way, *NAMES)
    before = (target / "adoption.unfinished").read_bytes()
    place = [target] if words == ["--in-place"] else [source, *way]
    status, said = run(*place, *words)
    assert status == REFUSED
    assert f"begun with other options: {words[0]}" in said
    assert (target / "adoption.unfinished").read_bytes() == before


def _killed(*_: object) -> None:
    raise KillError


def test_things_are_moved_aside_within_the_store_only(
    golden: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = copied(golden / "clean", tmp_path / "own")
    with monkeypatch.context() as patch:
        patch.setattr(adoption.Adoption, "_write_tables", _killed)
        with pytest.raises(KillError):
            run(place, "--in-place")
    marks = place / "adoption.unfinished"
    marks.write_bytes(marks.read_bytes().replace(b"adopt.aside.1", b"../elsewhere"))
    status, said = run(place, "--in-place")
    assert (status, "of another version" in said) == (REFUSED, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own"]


def test_a_check_point_that_is_missing_is_noticed(
    golden: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = adoption.check_points
    monkeypatch.setattr(adoption, "check_points", lambda *given: usual(*given)[1:])
    status, said = run(golden / "pop", "--to", tmp_path / "new", *NAMES)
    assert status == DIFFERENT
    assert "24 popped messages: 3 check points were to be there, 2 are" in said


def test_a_database_beside_no_file_queues(golden: Path, run: Run, tmp_path: Path) -> None:
    """A broker of double writes whose file queues were removed."""
    place = copied(golden / "clean", tmp_path / "old")
    (place / "consumequeue").rename(place / "consumequeue_rocksdb")
    status, said = run(place, "--to", tmp_path / "new")
    assert status == DONE, said
    assert "messages: 1000 before, 1000 now" in said


def test_quick_does_nothing(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(golden / "clean"), "--quick", "--to", str(tmp_path / "new")])
    assert caught.value.code == 2
    assert "--quick only looks" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_pipes_and_giants_are_not_read(golden: Path, run: Run, tmp_path: Path) -> None:
    place = copied(golden / "double", tmp_path / "old")
    for name in ("topics.json", "topics.json.bak"):
        (place / "config" / name).unlink(missing_ok=True)
        os.mkfifo(place / "config" / name)
    status, said = run(place)
    assert (status, "topics.json: not a plain file" in said) == (REFUSED, True)
    place = copied(golden / "clean", tmp_path / "other")
    for path in (place / "consumequeue").glob("OPTIONS-*"):
        os.truncate(path, 1 << 41)  # RocksDB would end the process
    for name in ("epochFileCheckpoint", "config/timermetrics", "config/delayOffset.json"):
        with (place / name).open("ab") as file:
            file.truncate(1 << 41)
    assert run(place)[0] == DONE
