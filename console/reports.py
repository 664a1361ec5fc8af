"""Reports: the directory into which `mqreport` writes: verdicts by date and group, and its files.

Any thread. `bin/mqconsole --reports` names it: what docs/report_files.md describes. Read-only; a
file that is damaged, strange or too large is a sentence beside the others. What a path of the
console may name is a list of known names, never a path of the reader's. Must not know HTTP.

Tested by tests/console/test_reports.py.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import stat
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from remoting.shared_decoders import decoder_of, learnt

MAX_SUMMARY: Final = 64 << 20
MAX_SERVED: Final = 256 << 20
KEPT_DAYS: Final = 400
VERSION: Final = 1
VERDICTS: Final = ("breached", "insufficient data", "met")
"""The worst first."""
_DAY: Final = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")
_FILE: Final = re.compile(
    r"index\.html"
    r"|dt=\d{4}-\d{2}-\d{2}/(?:report\.html|summary\.json|(?:replicas|incidents|elections)\.csv)",
    re.ASCII,
)
_NOT_WRITTEN: Final = "no summary.json: it is being written, or its run broke off"

Group = tuple[str, str]
"""Cluster and broker group."""


class _GroupRow(msgspec.Struct, gc=False):
    cluster: str
    broker: str
    verdict: str


class _Window(msgspec.Struct, gc=False):
    verdict: str | None = None
    budget_s: float | None = None
    budget_left_s: float | None = None
    budget_used_ratio: float | None = None


class _ReplicaRow(msgspec.Struct, gc=False):
    cluster: str
    broker: str
    replica: str
    verdict: str
    reasons: list[str] = []
    windows: dict[str, _Window] = {}


class _Summary(msgspec.Struct, gc=False):
    version: int
    date: str
    verdict: str
    groups: list[_GroupRow] = []
    replicas: list[_ReplicaRow] = []
    window_days: list[int] = []


_SUMMARY: Final = learnt(_Summary)


@dataclass(frozen=True, slots=True)
class ReplicaBudget:
    """How much bad time a replica of the newest date has left over its longest window."""

    group: Group
    replica: str
    verdict: str
    days: int
    window_verdict: str | None
    budget_s: float | None
    left_s: float | None
    used_ratio: float | None
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Day:
    """What one date's summary says; `problem` when it cannot be used."""

    date: str
    verdict: str | None = None
    groups: dict[Group, str] = field(default_factory=dict)
    budgets: list[ReplicaBudget] = field(default_factory=list)
    problem: str = ""


class Reports:
    """One directory. Any thread."""

    def __init__(self, directory: Path) -> None:
        """`directory`: mqreport's --out, or `report` below it."""
        below = directory / "report"
        self.directory = below if below.is_dir() or directory.name != "report" else directory
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Any, ...], Day] = OrderedDict()

    def dates(self) -> tuple[list[str], str]:
        """Those with a directory, the newest first; and why there are none."""
        try:
            names = os.listdir(self.directory)
        except OSError as error:
            return [], f"{self.directory} cannot be read: {error.strerror or error}"
        found = [match[1] for name in names if (match := _DAY.fullmatch(name))]
        return sorted(filter(_is_date, found), reverse=True), ""

    def day(self, date: str) -> Day:
        """One of these dates."""
        path = self.directory / f"dt={date}" / "summary.json"
        try:
            found = path.stat()
        except OSError:
            return Day(date, problem=_NOT_WRITTEN)
        key = (date, found.st_mtime_ns, found.st_size, found.st_ino)
        with self._lock:
            known = self._known.get(key)
        if known is None:
            known = _read(path, date)
            with self._lock:
                self._known[key] = known
                while len(self._known) > KEPT_DAYS:
                    self._known.popitem(last=False)
        return known

    def has_page(self, date: str) -> bool:
        """Whether the date's report can be opened."""
        return self.file(f"dt={date}/report.html") is not None

    def file(self, name: str) -> Path | None:
        """A file that the console may serve; None for any other name, and for what is no plain
        file of the directory itself (a link may lead anywhere)."""
        if _FILE.fullmatch(name) is None:
            return None
        path = self.directory
        try:
            for part in name.split("/"):
                path = path / part
                found = path.lstat()
                if stat.S_ISLNK(found.st_mode):
                    return None
        except OSError:
            return None
        is_served = stat.S_ISREG(found.st_mode) and found.st_size <= MAX_SERVED
        return path if is_served else None


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _read(path: Path, date: str) -> Day:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SUMMARY + 1)
    except OSError as error:
        return Day(date, problem=f"summary.json cannot be read: {error.strerror or error}")
    if len(content) > MAX_SUMMARY:
        return Day(date, problem=f"summary.json has more than {MAX_SUMMARY >> 20} MiB")
    try:
        summary = _decoded(content)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return Day(date, problem=f"summary.json is damaged: {error}")
    if summary.version != VERSION:
        return Day(date, problem=f"summary.json has version {summary.version}, not {VERSION}")
    if summary.date != date:
        return Day(date, problem=f"summary.json is of {summary.date[:40]}")
    groups = {(row.cluster, row.broker): row.verdict for row in summary.groups}
    days = max(summary.window_days, default=0)
    return Day(date, summary.verdict, groups, [_budget(row, days) for row in summary.replicas])


def _decoded(content: bytes) -> _Summary:
    """A name may have half a surrogate pair, which msgspec does not read."""
    try:
        return decoder_of(_SUMMARY).decode(content)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, ValueError):
        return msgspec.convert(json.loads(content), _SUMMARY)


def _budget(row: _ReplicaRow, days: int) -> ReplicaBudget:
    window = row.windows.get(str(days), _Window())
    return ReplicaBudget(
        (row.cluster, row.broker),
        row.replica,
        row.verdict,
        days,
        window.verdict,
        window.budget_s,
        window.budget_left_s,
        window.budget_used_ratio,
        tuple(row.reasons),
    )
