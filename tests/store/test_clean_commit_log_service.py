from __future__ import annotations

import datetime
import os
from dataclasses import replace
from pathlib import Path

import pytest

from store.clean_commit_log_service import (
    MANUAL_PASSES,
    CleanCommitLogService,
    RetentionFacts,
    RetentionRules,
    SpaceLevel,
    decide,
)
from store.disk_space import least_used_ratio, used_ratio
from store.mapped_file import file_name
from store.mapped_file_queue import StoreFile
from store.message_store_config import MessageStoreConfig
from store.running_flags import RunningFlag, RunningFlags
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock

HOUR = 3_600_000
NOW = 1_700_000_000_000
SIZE = 1024
RULES = RetentionRules.of(MessageStoreConfig())


def files(*ages_hours: float) -> list[StoreFile]:
    return [
        StoreFile(n * SIZE, Path(file_name(n * SIZE)), SIZE, NOW - int(age * HOUR))
        for n, age in enumerate(ages_hours)
    ]


FACTS = RetentionFacts(
    now_ms=NOW,
    local_hour=12,
    files=files(100, 80, 72, 71, 1),
    keep_from=4 * SIZE,
    commit_log_used=0.10,
    consume_queue_used=0.10,
)


@pytest.mark.parametrize(
    ("changes", "deleted", "level", "full"),
    [
        # nothing is due outside deleteWhen with room
        ({}, 0, SpaceLevel.PLENTY, False),
        # in the hour, or asked for, expired files go: 72 h is expired, 71 h is not
        ({"local_hour": 4}, 3, SpaceLevel.PLENTY, False),
        ({"local_hour": 5}, 0, SpaceLevel.PLENTY, False),
        ({"manual": True}, 3, SpaceLevel.PLENTY, False),
        # at 75 % not yet, above it expired files go at any hour
        ({"commit_log_used": 0.75}, 0, SpaceLevel.PLENTY, False),
        ({"commit_log_used": 0.76}, 3, SpaceLevel.OVER_MAX_USED, False),
        ({"consume_queue_used": 0.76}, 3, SpaceLevel.OVER_MAX_USED, False),
        ({"commit_log_used": 0.85}, 3, SpaceLevel.OVER_MAX_USED, False),
        # above 85 % unexpired files go too, never the last one; the flag stays as it is
        ({"commit_log_used": 0.86}, 4, SpaceLevel.OVER_CLEAN_FORCIBLY, None),
        ({"consume_queue_used": 0.86}, 4, SpaceLevel.OVER_CLEAN_FORCIBLY, None),
        ({"commit_log_used": 0.90}, 4, SpaceLevel.OVER_CLEAN_FORCIBLY, None),
        # above 90 % sends are refused
        ({"commit_log_used": 0.91}, 4, SpaceLevel.OVER_WARNING, True),
        ({"consume_queue_used": 0.91}, 4, SpaceLevel.OVER_WARNING, True),
        # a missing directory is a reason to look, as in the original
        ({"commit_log_used": -1.0}, 3, SpaceLevel.PLENTY, False),
        # the file of the log's end and everything behind it stays
        ({"commit_log_used": 0.91, "keep_from": 2 * SIZE}, 2, SpaceLevel.OVER_WARNING, True),
        ({"commit_log_used": 0.91, "keep_from": 2 * SIZE - 1}, 1, SpaceLevel.OVER_WARNING, True),
        ({"commit_log_used": 0.91, "keep_from": 99 * SIZE}, 4, SpaceLevel.OVER_WARNING, True),
        # no files, one file
        ({"local_hour": 4, "files": []}, 0, SpaceLevel.PLENTY, False),
        ({"commit_log_used": 0.99, "files": files(900)}, 0, SpaceLevel.OVER_WARNING, True),
        # the first file that stays ends the pass, and a pass has ten files
        ({"local_hour": 4, "files": files(100, 1, 100, 100)}, 1, SpaceLevel.PLENTY, False),
        (
            {"local_hour": 4, "files": files(*[100] * 30), "keep_from": 99 * SIZE},
            10,
            SpaceLevel.PLENTY,
            False,
        ),
    ],
)
def test_decisions(
    changes: dict[str, object], deleted: int, level: SpaceLevel, full: bool | None
) -> None:
    facts = replace(FACTS, **changes)  # type: ignore[arg-type]
    found = decide(facts, RULES)
    assert list(found.delete) == list(facts.files[:deleted])
    assert (found.level, found.disk_full) == (level, full)


def test_forcing_can_be_switched_off() -> None:
    rules = RetentionRules.of(MessageStoreConfig(clean_file_forcibly_enable=False))
    found = decide(replace(FACTS, commit_log_used=0.95), rules)
    assert len(found.delete) == 3
    assert found.disk_full


@pytest.mark.parametrize(
    ("setting", "limits"), [((0, 0, 0), (0.10, 0.30, 0.35)), ((100, 100, 100), (0.95, 0.85, 0.90))]
)
def test_ratios_are_limited(
    setting: tuple[int, int, int], limits: tuple[float, float, float]
) -> None:
    rules = RetentionRules.of(
        MessageStoreConfig(
            disk_max_used_space_ratio=setting[0],
            disk_space_clean_forcibly_ratio=setting[1],
            disk_space_warning_level_ratio=setting[2],
        )
    )
    assert (rules.max_used, rules.clean_forcibly, rules.warning) == limits


# -- the service -------------------------------------------------------------------------------


class Rig:
    """Five files on a disk whose fullness is told."""

    def __init__(self, root: Path) -> None:
        self.config = MessageStoreConfig(
            store_path_root_dir=str(root),
            delete_commit_log_files_interval=0,
            clean_resource_interval=1,
        )
        self.directory = self.config.commit_log_path
        self.directory.mkdir(parents=True)
        noon = datetime.datetime(2026, 3, 4, 12, 0, 0).astimezone()
        self.clock = ManualClock(int(noon.timestamp() * 1000))
        for n, age_hours in enumerate((100, 80, 60, 40, 0)):
            self.make(n, age_hours)
        self.used = 0.1
        self.flags = RunningFlags(lambda value, reason: None)
        self.events: list[str] = []
        self.service = CleanCommitLogService(
            self.config,
            self.flags,
            self.clock,
            keep_from=lambda: 4 * SIZE,
            publish_min_offset=self.publish,
            usage=lambda path: self.used,
        )
        self.service.wait_ms = 1

    def make(self, n: int, age_hours: int) -> None:
        path = self.directory / file_name(n * SIZE)
        path.write_bytes(bytes(SIZE))
        at = (self.clock.now_ms() - age_hours * HOUR) / 1000
        os.utime(path, (at, at))

    def publish(self, offset: int) -> None:
        self.events.append(f"min {offset // SIZE} with {len(list(self.directory.iterdir()))} files")

    def left(self) -> int:
        return len(list(self.directory.iterdir()))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "store")


def test_min_offset_is_published_before_a_file_goes(rig: Rig) -> None:
    rig.used = 0.80
    assert rig.service.run_once() == 2
    assert rig.events == ["min 1 with 5 files", "min 2 with 4 files"]
    assert rig.left() == 3


def test_the_hour_is_local(rig: Rig) -> None:
    assert rig.service.run_once() == 0
    rig.clock.jump_to(rig.clock.now_ms() - 8 * HOUR)
    assert rig.service.run_once() == 2


def test_files_made_ahead_are_no_news(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Two are made ahead of the writer, before the file that is written has its last byte."""
    rig.make(5, age_hours=1)
    rig.make(6, age_hours=1)
    times = [path.stat().st_mtime for path in sorted(rig.directory.iterdir())]
    rig.service.run_once()
    assert "modification time" not in caplog.text
    assert [path.stat().st_mtime for path in sorted(rig.directory.iterdir())] == times
    # One that may be deleted is corrected, and the log says so.
    rig.make(2, age_hours=90)
    rig.service.run_once()
    assert "implausible modification time" in caplog.text


@pytest.mark.fault(33)
@pytest.mark.parametrize("days", [30, -30])
def test_a_clock_that_jumps_ages_no_file(rig: Rig, days: int) -> None:
    """Half a minute in another month, and a file that was finished meanwhile."""
    rig.service.use_rules(replace(RULES, delete_hours=frozenset({12})))
    assert rig.service.run_once() == 2
    begin_ms = rig.clock.now_ms()
    rig.clock.jump_to(begin_ms + days * 24 * HOUR)
    for _ in range(3):
        rig.clock.advance(10_000)
        rig.make(3, age_hours=0)
        assert rig.service.run_once() == 0
    rig.clock.jump_to(begin_ms + 30_000)
    for _ in range(300):
        rig.clock.advance(10_000)
        assert rig.service.run_once() == 0
    assert rig.left() == 3
    low, high = (path.stat().st_mtime for path in sorted(rig.directory.iterdir())[:2])
    assert low <= high <= rig.clock.now_ms() / 1000, "what cannot be was corrected"
    rig.clock.advance(12 * HOUR)
    rig.service.execute_delete_files_manually()
    assert rig.service.run_once() == 1, "60 hours old then, 73 now"


def test_a_restart_while_the_clock_is_wrong(rig: Rig) -> None:
    rig.service.use_rules(replace(RULES, delete_hours=frozenset({12})))
    assert rig.service.run_once() == 2
    rig.service.finish()
    rig.clock.jump_to(rig.clock.now_ms() + 30 * 24 * HOUR)
    again = CleanCommitLogService(
        rig.config,
        rig.flags,
        rig.clock,
        keep_from=lambda: 4 * SIZE,
        publish_min_offset=rig.publish,
        usage=lambda path: 0.8,
    )
    for _ in range(3):
        rig.clock.advance(10_000)
        assert again.run_once() == 0
    assert rig.left() == 3


def test_asking_buys_twenty_passes(rig: Rig) -> None:
    rig.service.execute_delete_files_manually()
    assert rig.service.run_once() == 2
    for _ in range(MANUAL_PASSES - 1):
        assert rig.service.run_once() == 0
    rig.clock.jump_to(rig.clock.now_ms() + 24 * HOUR)
    assert rig.service.run_once() == 0


def test_the_flag_has_hysteresis(rig: Rig) -> None:
    for used, full in [(0.86, False), (0.91, True), (0.88, True), (0.85, False), (0.90, False)]:
        rig.used = used
        rig.service.run_once()
        assert rig.flags.is_set(RunningFlag.DISK_FULL) is full, used
    assert rig.left() == 1


def test_states_are_logged_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for n in range(2):
        (rig.directory / file_name(n * SIZE)).unlink()
    rig.used = 0.80
    for _ in range(5):
        rig.service.run_once()
    assert caplog.text.count("PLENTY -> OVER_MAX_USED") == 1
    assert caplog.text.count("no commit log file can be deleted") == 1
    rig.used = 0.5
    rig.service.run_once()
    assert caplog.text.count("OVER_MAX_USED -> PLENTY") == 1


def test_a_file_that_cannot_be_deleted_ends_the_pass(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    rig.used = 0.95
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        assert rig.service.run_once() == 0
    assert "cannot be deleted: Permission denied" in caplog.text


def test_the_thread_looks_again_and_again(rig: Rig) -> None:
    rig.used = 0.95
    rig.service.start()
    wait_until(lambda: rig.left() == 1)
    assert rig.flags.is_set(RunningFlag.DISK_FULL)
    rig.used = 0.5
    wait_until(lambda: not rig.flags.is_set(RunningFlag.DISK_FULL))
    assert rig.service.shutdown()


def test_a_start_on_a_full_partition_refuses_before_the_first_pass(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.used = 0.90
    rig.service.refuse_if_full()
    assert not rig.flags.is_set(RunningFlag.DISK_FULL)
    rig.used = 0.91
    rig.service.refuse_if_full()
    assert rig.flags.is_set(RunningFlag.DISK_FULL)
    assert (
        f"over 90% of the partition of {rig.directory}, {rig.config.consume_queue_path} is used"
        " (diskSpaceWarningLevelRatio); free space on it or lower fileReservedTime"
    ) in caplog.text
    assert rig.left() == 5, "what may go, goes with the first pass"
    rig.used = 0.5
    rig.service.start()
    wait_until(lambda: not rig.flags.is_set(RunningFlag.DISK_FULL))
    assert rig.service.shutdown()


def test_other_rules_count_from_the_next_look(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    assert rig.service.run_once() == 0
    with caplog.at_level("INFO"):
        rig.service.use_rules(replace(RULES, delete_hours=frozenset({12}), reserved_ms=90 * HOUR))
    assert "retention: RetentionRules(reserved_ms=324000000" in caplog.text
    assert rig.service.run_once() == 1


def test_other_rules_wake_the_thread(rig: Rig) -> None:
    """Which would else look an hour later."""
    service = CleanCommitLogService(
        rig.config,
        rig.flags,
        rig.clock,
        keep_from=lambda: 4 * SIZE,
        publish_min_offset=rig.publish,
        usage=lambda path: 0.1,
    )
    service.wait_ms = HOUR
    service.start()
    service.use_rules(replace(RULES, delete_hours=frozenset({12})))
    wait_until(lambda: rig.left() == 3)
    assert service.shutdown()


# -- disk_space --------------------------------------------------------------------------------


def test_used_ratio_of_a_real_partition(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    expected = (found.f_blocks - found.f_bfree) / (found.f_blocks - found.f_bfree + found.f_bavail)
    assert expected - 0.01 <= used_ratio(tmp_path) <= expected + 0.02
    assert used_ratio(tmp_path / "missing") == -1.0


def test_of_several_paths_the_emptiest_counts() -> None:
    ratios = {Path("a"): 0.9, Path("b"): 0.4, Path("c"): -1.0}
    assert least_used_ratio(ratios, ratios.__getitem__) == 0.4
    assert least_used_ratio([]) == -1.0
