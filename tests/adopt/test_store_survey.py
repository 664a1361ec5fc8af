"""What a directory is, and which of its features are in use: stores of real brokers, and made-up
ones where no capture exists."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adopt.plan import make_plan, plan_lines
from adopt.rocks_database import write_database
from adopt.store_survey import Kind, StoreFacts, open_halves, survey_store
from adopt.way_back import problems_back
from store.errors import StoreError
from store.store_lock import StoreLock
from tests.adopt.golden_stores import GOLDEN, copied, snapshot, unpack_all
from tests.support.archives import unpack


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    unpack_all(directory)
    unpack(GOLDEN / "timer-5.3.3" / "store-clean-stop.tar.xz", directory / "timer")
    unpack(GOLDEN / "dledger-5.3.3" / "store-3-nodes.tar.xz", directory / "dledger")
    return directory


def problems(facts: StoreFacts) -> str:
    return "\n".join(make_plan(facts, "", "", skip_damaged=False).problems)


def timer_store(golden: Path) -> Path:
    (found,) = (golden / "timer").rglob("timerwheel")
    return found.parent


def test_a_store_with_timers_and_pops(golden: Path) -> None:
    """timermetrics: 9 records of pops and 4 messages wait; transactions have ended."""
    root = timer_store(golden)
    before = snapshot(root)
    facts = survey_store(root)
    assert snapshot(root) == before
    assert (facts.kind, facts.locked, facts.killed) == (Kind.FILES, False, False)
    assert facts.written_by == "RocketMQ 5.x"
    assert facts.features.pop("records of pops") > 0
    assert facts.features == {"timers waiting": 13}
    assert open_halves(facts) == {}
    assert not make_plan(facts, "", "", skip_damaged=False).is_needed


def test_a_store_of_4_9() -> None:
    facts = survey_store(GOLDEN / "store-G" / "master")
    assert (facts.kind, facts.written_by) == (Kind.FILES, "RocketMQ 4.x")
    # records-master.json has seven of them, delayOffset.json says that five were delivered.
    assert facts.features == {"delayed messages waiting": 2}


def test_dledger(golden: Path) -> None:
    facts = survey_store(golden / "dledger" / "dl1")
    assert facts.kind is Kind.DLEDGER
    plan = make_plan(facts, "", "", skip_damaged=False)
    assert plan.is_needed
    assert next(plan_lines(plan)) == "what --to DIRECTORY will do:"


def test_a_store_that_a_broker_has_open(golden: Path, tmp_path: Path) -> None:
    """Its abort file is no news then, and nothing says that it was killed."""
    root = copied(golden / "clean", tmp_path / "own")
    (root / "abort").touch()
    with StoreLock(root):
        for_ours = make_plan(survey_store(root), "", "", skip_damaged=False)
        back = list(problems_back(survey_store(root)))
    assert "wait until its process has ended" in "\n".join(for_ours.problems)
    assert not any("orderly" in each for each in (*for_ours.notes, *back))
    assert any(
        "orderly" in each
        for each in make_plan(survey_store(root), "", "", skip_damaged=False).notes
    )


def test_controller_mode(golden: Path, tmp_path: Path) -> None:
    root = copied(golden / "clean", tmp_path / "own")
    shutil.copy(GOLDEN / "controller-5.3.3/cb0-epochFileCheckpoint", root / "epochFileCheckpoint")
    facts = survey_store(root)
    assert facts.epochs[:2] == ["1-0", "2-693"]
    notes = make_plan(facts, "", "", skip_damaged=False).notes
    assert any("of controller mode" in each for each in notes)
    (root / "epochFileCheckpoint").write_bytes(b"\xff\0" * 50_000)
    assert survey_store(root).epochs == []


def test_an_idle_rocksdbstore_of_5_5_is_set_aside_and_a_used_one_stops(
    golden: Path, tmp_path: Path
) -> None:
    root = copied(golden / "double", tmp_path / "own")
    marks = [(b"sys_topic_scan_offset_checkpoint", bytes(8)), (b"timeline_checkpoint", bytes(8))]
    write_database(root / "rocksdbstore", {"default": [], "timer": marks, "trans": []})
    facts = survey_store(root)
    assert facts.written_by.startswith("RocketMQ 5.4 or 5.5")
    assert facts.in_shared == {"timer": 0, "trans": 0}
    assert problems(facts) == ""
    shutil.rmtree(root / "consumequeue")
    assert not make_plan(survey_store(root), "", "", skip_damaged=False).is_needed
    shutil.rmtree(root / "rocksdbstore")
    timer = [((1 << 40).to_bytes(8) + b"UNIQ", bytes(12))]
    trans = [((99).to_bytes(8) + b"@T@UNIQ", bytes(8))] * 1
    write_database(root / "rocksdbstore", {"default": [], "timer": timer, "trans": trans})
    said = problems(survey_store(root))
    assert "1 timer entries: switch the timers back" in said
    assert "1 trans entries: start the Java broker with transRocksDBEnable=false" in said


def test_databases_that_nobody_knows_stop(golden: Path, tmp_path: Path) -> None:
    root = copied(golden / "clean", tmp_path / "own")
    shutil.copytree(root / "config/topics", root / "config/metadata")
    shutil.copytree(root / "config/topics", root / "config/auth/users")
    facts = survey_store(root)
    assert "config/metadata: a RocksDB database that this version does not know" in problems(facts)
    assert facts.auth_databases == [root / "config/auth/users"]


def test_damaged_small_files_are_no_reason_to_fall(golden: Path, tmp_path: Path) -> None:
    root = copied(timer_store(golden), tmp_path / "own")
    for text in (b"", b"{", b"[" * 100_000, b'{"timingCount":{"T":7}}', b'{"offsetTable":[]}'):
        (root / "config/timermetrics").write_bytes(text)
        (root / "config/delayOffset.json").write_bytes(text)
        assert "timers waiting" not in survey_store(root, walk=False).features


def test_a_link_to_nowhere_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "store").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="there is no such directory"):
        survey_store(tmp_path / "store")
    (tmp_path / "commitlog").symlink_to(tmp_path / "commitlog")
    with pytest.raises((StoreError, OSError)):
        survey_store(tmp_path)
