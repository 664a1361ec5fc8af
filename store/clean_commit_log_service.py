"""CleanCommitLogService: which commit log files go, and when.

The decision is a pure function of the hour, the files and how full the disks are; the service
(thread of the `store` process) applies it: it publishes the new min_phy_offset first, so that
readers unmap them, then unlinks. Every role cleans by its own clock and disk. Corresponds to
RocketMQ's DefaultMessageStore.CleanCommitLogService; it logs a state once, when it changes.

    used space (commit log's partition, of several directories the least used; consumequeue's)
    > diskSpaceWarningLevelRatio    sends are refused, files go whether expired or not
    > diskSpaceCleanForciblyRatio   files go whether expired or not
    <= diskSpaceCleanForciblyRatio  sends are allowed again
    > diskMaxUsedSpaceRatio         expired files go at any hour
    otherwise                       expired files go in the hours of deleteWhen

A file's age is the time that has passed since it was written last, by RetentionClock: a wall clock
that jumps ages no file. Along the log times never decrease, and none lies in the future: a file
whose time contradicts that was written while the clock was wrong, and gets a later one.
"""

from __future__ import annotations

import datetime
import enum
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread
from store.disk_space import DiskUsage, least_used_ratio, used_ratio
from store.known_directories import KnownDirectories
from store.mapped_file_queue import StoreFile, list_store_files
from store.message_store_config import MessageStoreConfig
from store.retention_clock import RetentionClock
from store.running_flags import RunningFlag, RunningFlags

log = logging.getLogger(__name__)

MANUAL_PASSES: Final = 20
"""Passes that one DELETE_EXPIRED_COMMITLOG request buys."""
FIRST_PASS_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000


class SpaceLevel(enum.IntEnum):
    """How full the fuller partition is, in the rules' steps."""

    PLENTY = 0
    OVER_MAX_USED = 1
    OVER_CLEAN_FORCIBLY = 2
    OVER_WARNING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """The settings of retention, in the units of the decision."""

    reserved_ms: int
    delete_hours: frozenset[int]
    max_used: float
    clean_forcibly: float
    warning: float
    may_force: bool
    batch_max: int

    @classmethod
    def of(cls, config: MessageStoreConfig) -> RetentionRules:
        """From the settings, with RocketMQ's limits for the ratios."""
        return cls(
            reserved_ms=config.file_reserved_time * _HOUR_MS,
            delete_hours=config.delete_hours,
            max_used=_percent(config.disk_max_used_space_ratio, 10, 95),
            clean_forcibly=_percent(config.disk_space_clean_forcibly_ratio, 30, 85),
            warning=_percent(config.disk_space_warning_level_ratio, 35, 90),
            may_force=config.clean_file_forcibly_enable,
            batch_max=config.delete_file_batch_max,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFacts:
    """What a decision looks at. Ratios are 0.0 to 1.0, -1.0 for a missing directory.

    `keep_from`: files that end behind this offset are not considered.
    """

    now_ms: int
    local_hour: int
    files: Sequence[StoreFile]
    keep_from: int
    commit_log_used: float
    consume_queue_used: float
    manual: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDecision:
    """`disk_full`: set (True), clear (False), or leave the flag as it is (None).

    `trigger`: why a pass is due, empty without one. `forced`: unexpired files go, too.
    """

    delete: tuple[StoreFile, ...]
    level: SpaceLevel
    disk_full: bool | None
    forced: bool
    trigger: str


def _percent(value: int, low: int, high: int) -> float:
    return min(max(value, low), high) / 100


def decide(facts: RetentionFacts, rules: RetentionRules) -> RetentionDecision:
    """What to delete now, oldest first. Pure."""
    levels = [_level(ratio, rules) for ratio in (facts.commit_log_used, facts.consume_queue_used)]
    level = max(levels)
    missing = min(facts.commit_log_used, facts.consume_queue_used) < 0
    trigger = _trigger(facts, rules, level, missing)
    forced = level >= SpaceLevel.OVER_CLEAN_FORCIBLY and rules.may_force
    delete = _select(facts, rules, forced) if trigger else ()
    return RetentionDecision(
        delete=delete, level=level, disk_full=_full(level), forced=forced, trigger=trigger
    )


def _level(ratio: float, rules: RetentionRules) -> SpaceLevel:
    if ratio > rules.warning:
        return SpaceLevel.OVER_WARNING
    if ratio > rules.clean_forcibly:
        return SpaceLevel.OVER_CLEAN_FORCIBLY
    return SpaceLevel.OVER_MAX_USED if ratio > rules.max_used else SpaceLevel.PLENTY


def _full(level: SpaceLevel) -> bool | None:
    if level is SpaceLevel.OVER_WARNING:
        return True
    return None if level is SpaceLevel.OVER_CLEAN_FORCIBLY else False


def _trigger(facts: RetentionFacts, rules: RetentionRules, level: SpaceLevel, missing: bool) -> str:
    if facts.local_hour in rules.delete_hours:
        return f"hour {facts.local_hour:02d} is in deleteWhen"
    if level is not SpaceLevel.PLENTY or missing:
        return "disk space"
    return "asked for" if facts.manual else ""


def _select(facts: RetentionFacts, rules: RetentionRules, forced: bool) -> tuple[StoreFile, ...]:
    """The oldest files up to the first one that stays; never the last of the directory."""
    chosen: list[StoreFile] = []
    for file in facts.files[:-1][: rules.batch_max]:
        expired = file.mtime_ms + rules.reserved_ms <= facts.now_ms
        if not (expired or forced) or file.start_offset + file.size > facts.keep_from:
            break
        chosen.append(file)
    return tuple(chosen)


class CleanCommitLogService(ServiceThread):
    """Applies decisions. Owned by its thread, but for `execute_delete_files_manually`."""

    def __init__(
        self,
        config: MessageStoreConfig,
        flags: RunningFlags,
        clock: Clock,
        *,
        keep_from: Callable[[], int],
        publish_min_offset: Callable[[int], None],
        known: KnownDirectories | None = None,
        usage: DiskUsage = used_ratio,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """keep_from: start of the file that holds the log's last byte, or less.

        publish_min_offset: gets the start of the first file that stays, before one is unlinked.
        known: hears of files that go. usage: used share of a path's partition.
        """
        super().__init__("CleanCommitLogService", on_failure=on_failure)
        self._config = config
        self._rules = RetentionRules.of(config)
        self._flags = flags
        self._clock = clock
        self._time = RetentionClock(clock, config.retention_time_path)
        self._keep_from = keep_from
        self._publish_min_offset = publish_min_offset
        self._known = known
        self._usage = usage
        self.wait_ms = FIRST_PASS_MS
        """Until the next look. Owned by: whoever builds the service, until it is started."""
        self._manual_passes = 0
        self._level = SpaceLevel.PLENTY
        self._was_stuck = False
        log.info("retention: %s", self._rules)

    def execute_delete_files_manually(self) -> None:
        """The next passes delete expired files at any hour. Any thread."""
        self._manual_passes = MANUAL_PASSES
        self.wakeup()

    def use_rules(self, rules: RetentionRules) -> None:
        """Decide by other rules from now on, and look at once. Any thread."""
        log.info("retention: %s, was %s", rules, self._rules)
        self._rules = rules
        self.wakeup()

    def refuse_if_full(self) -> None:
        """Of a start: on a partition over the warning level no message is taken, not even until the
        first pass, which comes sooner then. Before the service runs."""
        if self._over_warning():
            self._refuse()
            self.wait_ms = min(self.wait_ms, self._config.clean_resource_interval)

    def step(self) -> None:
        """Wait for the next look, then take it."""
        self.wait_for_running(self.wait_ms)
        self.wait_ms = self._config.clean_resource_interval
        if not self.stopped:
            self.run_once()

    def run_once(self) -> int:
        """One look: set or clear the disk-full flag, delete what has to go. Returns how many."""
        decision = decide(self._facts(), self._rules)
        if self._manual_passes:
            self._manual_passes -= 1
        self._report_level(decision)
        self._apply_flag(decision)
        deleted = self._delete(decision)
        self._report_stuck(decision, deleted)
        return deleted

    def finish(self) -> None:
        """Keep the time by which files age."""
        self._time.save(at_once=True)

    def _facts(self) -> RetentionFacts:
        files = list_store_files(self._config.log_directories)
        self._time.begin_at(max((file.mtime_ms for file in files), default=0))
        now_ms = self._time.now_ms()
        self._time.save()
        keep_from = self._keep_from()
        return RetentionFacts(
            now_ms=now_ms,
            local_hour=datetime.datetime.fromtimestamp(self._clock.now_ms() / 1000)
            .astimezone()
            .hour,
            files=_correct_times(files, self._time.latest_ms(), keep_from),
            keep_from=keep_from,
            commit_log_used=self._commit_log_used(),
            consume_queue_used=self._used(self._config.consume_queue_path),
            manual=self._manual_passes > 0,
        )

    def _commit_log_used(self) -> float:
        return least_used_ratio(self._config.log_directories.writable, self._used)

    def _over_warning(self) -> str:
        """The directories whose partitions are over the warning level; empty: none."""
        directories = self._config.log_directories.writable
        found = directories if self._commit_log_used() > self._rules.warning else []
        return ", ".join(
            str(path)
            for path in (*found, self._config.consume_queue_path)
            if self._used(path) > self._rules.warning
        )

    def is_full(self, path: Path) -> bool:
        """Whether a directory of the log is so full that files would be deleted forcibly if it were
        the only one. Any thread."""
        return self._used(path) > self._rules.clean_forcibly

    def _used(self, path: Path) -> float:
        """A directory that was not made yet counts as its parent's partition."""
        return self._usage(path if path.exists() else path.parent)

    def _delete(self, decision: RetentionDecision) -> int:
        deleted = 0
        for file in decision.delete:
            if deleted:
                self._pause()
            self._publish_min_offset(file.start_offset + file.size)
            if self._known is not None:
                self._known.before_removal(file.path)
            try:
                self._config.log_directories.remove(file.path)
            except OSError as error:
                log.error("%s: cannot be deleted: %s", file.path, error.strerror)
                break
            deleted += 1
            log.info("%s: deleted: %s%s", file.path, decision.trigger, _how(decision))
        return deleted

    def _pause(self) -> None:
        """Between two deletions, so that the disk has time for the writer."""
        if not self.stopped:
            self.wait_for_running(self._config.delete_commit_log_files_interval)

    def _apply_flag(self, decision: RetentionDecision) -> None:
        if decision.disk_full:
            self._refuse()
        elif decision.disk_full is False:
            reason = f"at most {self._rules.clean_forcibly:.0%} used"
            self._flags.clear(RunningFlag.DISK_FULL, reason, by=self.name)

    def _refuse(self) -> None:
        reason = (
            f"over {self._rules.warning:.0%} of the partition of {self._over_warning()} is used"
            " (diskSpaceWarningLevelRatio); free space on it or lower fileReservedTime"
        )
        self._flags.set(RunningFlag.DISK_FULL, reason, by=self.name)

    def _report_level(self, decision: RetentionDecision) -> None:
        if decision.level is not self._level:
            log.warning("disk space: %s -> %s", self._level.name, decision.level.name)
            self._level = decision.level

    def _report_stuck(self, decision: RetentionDecision, deleted: int) -> None:
        stuck = decision.level is not SpaceLevel.PLENTY and not deleted
        if stuck and not self._was_stuck:
            log.warning(
                "disk space is low (%s) but no commit log file can be deleted: none has expired "
                "(fileReservedTime), they hold timers that wait, or only the newest remains",
                decision.level.name,
            )
        self._was_stuck = stuck


def _correct_times(files: list[StoreFile], latest_ms: int, keep_from: int) -> list[StoreFile]:
    """All files; those that may be deleted with plausible times: not after `latest_ms`, and not
    before an earlier file. An implausible one gets the time of the next file that has a plausible
    one, on disk as well: the files that contradict it will be gone. The file that is being written
    and those prepared for the writer (up to two, created before it was last written) stay as they
    are: they are complete only once `keep_from` has passed them."""
    corrected: list[StoreFile] = []
    low_ms = 0
    for at, file in enumerate(files[:-1]):
        if file.start_offset + file.size > keep_from:
            break
        mtime_ms = min(file.mtime_ms, latest_ms)
        if mtime_ms < low_ms:
            later = (min(each.mtime_ms, latest_ms) for each in files[at + 1 :])
            mtime_ms = next((each for each in later if each >= low_ms), latest_ms)
        low_ms = max(low_ms, min(file.mtime_ms, latest_ms))
        corrected.append(file if mtime_ms == file.mtime_ms else _set_time(file, mtime_ms))
    return [*corrected, *files[len(corrected) :]]


def _set_time(file: StoreFile, mtime_ms: int) -> StoreFile:
    try:
        os.utime(file.path, ns=(mtime_ms * 10**6, mtime_ms * 10**6))
    except OSError as error:
        log.warning("%s: its time cannot be set: %s", file.path, error.strerror)
    else:
        log.warning(
            "%s: implausible modification time %s ms; using %s ms",
            file.path,
            file.mtime_ms,
            mtime_ms,
        )
    return replace(file, mtime_ms=mtime_ms)


def _how(decision: RetentionDecision) -> str:
    return ", unexpired files too" if decision.forced else ""
