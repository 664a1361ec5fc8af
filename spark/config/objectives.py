"""Objectives, and the replicas that they are about: the values of an sla.yaml.

Plain values for the driver and the executors; who reads the file is spark/config/sla_config.py.
What each means for the verdict is said in docs/sla_report.md. Must not know YAML, dumps or Spark.

Tested by tests/spark/config/test_sla_config.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from spark.config import calendar_periods
from spark.config.exclusion_log import Entry
from spark.config.exclusions import Exclusion

DEFAULT_WINDOWS: Final = (7, 30)
"""Days of the windows that end with the date of the report."""
DEFAULT_SYNC_OK_PERCENT: Final = 99.9
"""Applies to groups with a SYNC_MASTER unless sla.yaml says otherwise: a master that waits for
replicas promises that they answer, as often as they are promised to be in sync."""
EXIT_POLICIES: Final = ("day", "window", "both")
"""Whose verdicts the exit code tells: the day's, those of the windows that count, or the worst."""

LAG_SECONDS: Final = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 21_600)
LAG_MESSAGES: Final = (
    *(100, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000),
    *(1_000_000, 10_000_000),
)
"""Bounds by which brokers count for how long consumer groups lag (docs/metrics_dump.md): another
limit could not be proved."""

STEP_EXIT_CODES: Final = (*(1, 2), *range(10, 100))
"""Exit codes that a step of the error-budget policy may have: those of verdicts, or its own."""


def pattern_regex(pattern: str) -> str:
    """Python's regular expression of a pattern, anchored; to be matched with re.DOTALL.

    `*` is any text, `?` one character, `|` stands between alternatives; case counts.
    """
    some = "|".join(glob_regex(item, any_one=".") for item in alternatives(pattern))
    return rf"\A(?:{some})\Z"


@dataclass(frozen=True, slots=True)
class SlowSends:
    """At most `percent` of the answers to sends may come later than `ms` after the request."""

    ms: float
    percent: float


@dataclass(frozen=True, slots=True)
class GroupAvailability:
    """So many copies in sync, the master's own included, make the group available; `percent` of
    the time, None: as often as each replica."""

    in_sync_replicas: int = 2
    percent: float | None = None


@dataclass(frozen=True, slots=True)
class ConsumerLag:
    """Consumer groups that two patterns match (`pattern_regex`), each in each topic: for `percent`
    of the time (None: as often as each replica is available) the oldest message that it has not
    consumed is at most `seconds` old, and it has not consumed at most `messages`; of both at least
    one is given."""

    group: str
    topic: str = "*"
    seconds: float | None = None
    messages: int | None = None
    percent: float | None = None

    @property
    def patterns(self) -> tuple[str, str]:
        """Patterns of group and topic."""
        return self.group, self.topic


@dataclass(frozen=True, slots=True)
class Objective:
    """What is promised for the replicas that its three patterns match; None: not judged."""

    name: str
    cluster: str = "*"
    broker: str = "*"
    replica: str = "*"
    availability_percent: float = 99.9
    lag_seconds: float = 10.0
    min_coverage_percent: float = 99.0
    lag_p99_seconds: float | None = None
    sync_ok_percent: float | None = None
    rpo_bytes: int | None = None
    metadata_age_seconds: float | None = None
    metadata_required: bool = False
    first_copy_hours: float = 24.0
    """So long may a new replica's first copy take without counting as bad; 0: no grace."""
    sync_ok_given: bool = False
    """Whether the file says something of `sync_ok_percent`, if only that it is switched off."""
    runbook_url: str | None = None
    sends_ok_percent: float | None = None
    sends_slower_than: SlowSends | None = None
    group_availability: GroupAvailability | None = None
    consumer_lag: tuple[ConsumerLag, ...] | None = None

    @property
    def patterns(self) -> tuple[str, str, str]:
        """Patterns of cluster, broker group and replica: see `pattern_regex`."""
        return self.cluster, self.broker, self.replica

    def sync_ok_wanted(self, *, is_sync_master: bool) -> float | None:
        """Per cent of synchronous sends that have to succeed; None: not judged."""
        if self.sync_ok_percent is not None or self.sync_ok_given:
            return self.sync_ok_percent
        return DEFAULT_SYNC_OK_PERCENT if is_sync_master else None


@dataclass(frozen=True, slots=True)
class ReplicaName:
    """One replica of one broker group, by its exact names."""

    cluster: str
    broker: str
    replica: str


@dataclass(frozen=True, slots=True)
class ReplicaPattern:
    """Replicas that were removed on purpose: three patterns (`pattern_regex`)."""

    cluster: str = "*"
    broker: str = "*"
    replica: str = "*"

    @property
    def patterns(self) -> tuple[str, str, str]:
        """Patterns of cluster, broker group and replica."""
        return self.cluster, self.broker, self.replica

    def matches(self, cluster: str, broker: str, replica: str) -> bool:
        """Whether this replica is retired."""
        return is_named_by(self.patterns, (cluster, broker, replica))


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """What is agreed to happen once `at_percent` of the longest window's budget are used up.

    `exit_code`: one of STEP_EXIT_CODES, or None: the verdict's own. `notify`: whether reaching or
    leaving the step is told."""

    at_percent: float
    label: str
    exit_code: int | None = None
    notify: bool = False


@dataclass(frozen=True, slots=True)
class SlaConfig:
    """A whole sla.yaml. The last objective matches everything; the first that matches counts.

    `windows`: days, ascending; `calendars`: of calendar_periods.CALENDARS, in that order, of the
    days of `timezone`. `exit_policy`: one of EXIT_POLICIES. `budget_policy`: by `at_percent`,
    ascending."""

    objectives: tuple[Objective, ...]
    expect: tuple[ReplicaName, ...] = ()
    retired: tuple[ReplicaPattern, ...] = ()
    windows: tuple[int, ...] = DEFAULT_WINDOWS
    source: str = "built-in defaults"
    exclusions: tuple[Exclusion, ...] = ()
    exit_policy: str = EXIT_POLICIES[0]
    calendars: tuple[str, ...] = ()
    timezone: str = calendar_periods.UTC
    log: tuple[Entry, ...] = ()
    """Exclusions and annotations after the event; `exclusions` has those in force."""
    text: bytes = field(default=b"", compare=False, repr=False)
    """What was read; empty for the built-in defaults. Kept with the evidence."""
    exclusion_log: bytes = field(default=b"", compare=False, repr=False)
    budget_policy: tuple[PolicyStep, ...] = ()

    def within(self, w0_ms: int, w1_ms: int) -> SlaConfig:
        """What judges the window [w0, w1): without exclusions of other times, of which a file of
        years has many, and without the files, which no executor needs."""
        touching = tuple(one for one in self.exclusions if one.intervals(w0_ms, w1_ms))
        return replace(self, exclusions=touching, log=(), text=b"", exclusion_log=b"")


def alternatives(pattern: str) -> list[str]:
    """Of a pattern, each to be matched whole."""
    return pattern.split("|")


def glob_regex(glob: str, any_one: str) -> str:
    """The regular expression of one alternative; `any_one` is that of `?`."""
    first, *others = (
        "".join(any_one if char == "?" else re.escape(char) for char in part)
        for part in glob.split("*")
    )
    if not others:
        return first
    *inner, last = others
    # The first place of each part will do: an atomic group does not try the others, of which there
    # are as many as the name is long, for each part.
    return first + "".join(f"(?>.*?{part})" for part in inner if part) + f".*{last}"


def is_named_by(patterns: Sequence[str], names: Sequence[str]) -> bool:
    """Whether cluster, broker and replica match three patterns (`pattern_regex`)."""
    return all(
        re.match(pattern_regex(pattern), name, re.DOTALL) is not None
        for pattern, name in zip(patterns, names, strict=True)
    )
