"""The nightly report once more, slow and obvious: from dump files to samples and their time.

Standard library only, one process, everything in memory: the independent check of the Spark
program. Written from docs/metrics_dump.md and docs/sla_report.md alone; it must not import
anything of spark/. Continued by plain_report.py.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import math
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
PREDECESSOR_REACH_MS: Final = 2 * HOUR_MS
"""How far before the window a sample still serves as somebody's predecessor."""

MASTER_ROLES: Final = ("SYNC_MASTER", "ASYNC_MASTER")
WHOLE_NUMBERS: Final = [
    *("v", "ts", "mono", "boot_ts", "seq", "interval_ms", "broker_id"),
    *("min_offset", "max_offset", "replicated_offset", "msgs_in", "bytes_in"),
]
MAY_BE_NULL: Final = ["unreplicated_bytes", "oldest_unreplicated_ms", "prev_seq"]
TEXTS: Final = ["boot", "cluster", "broker", "role", "version", "config"]
TRUTHS: Final = ["final", "ready"]
SYNC_RESULTS: Final = ["ok", "flush_slave_timeout", "slave_not_available", "flush_disk_timeout"]
STATES: Final = ["in_sync", "catching_up", "disconnected"]


Key = tuple[str, str, str]
"""(cluster, broker group, replica)"""

Tables = dict[str, list[Json]]

QUANTILES: Final = {
    "p50": Fraction(1, 2),
    "p90": Fraction(9, 10),
    "p95": Fraction(95, 100),
    "p99": Fraction(99, 100),
    "p999": Fraction(999, 1000),
}


@dataclass(frozen=True)
class Window:
    """Date D and the part of it, [w0, w1) in epoch ms, that is reported."""

    date: datetime.date
    w0: int
    w1: int

    @property
    def length_ms(self) -> int:
        return self.w1 - self.w0


def midnight(date: datetime.date) -> int:
    """Epoch ms at which a UTC date begins."""
    begin = datetime.datetime.combine(date, datetime.time(), datetime.UTC)
    return int(begin.timestamp()) * 1000


def whole_day(text: str) -> Window:
    """The window of a whole date, `YYYY-MM-DD`."""
    date = datetime.date.fromisoformat(text)
    return Window(date, midnight(date), midnight(date) + DAY_MS)


@dataclass
class Sample:
    """One line that counts, and the time for which it speaks."""

    line: Json
    duplicates: int
    conflict: bool
    predecessor: Sample | None = None
    in_window: bool = False
    covered_ms: int = 0
    proved: bool = False
    from_zero: bool = False
    overtaken: bool = False
    start: int = 0
    end: int = 0
    tail_start: int = 0
    tail_end: int = 0
    down_start: int = 0
    down_end: int = 0

    def __getattr__(self, name: str) -> Any:
        """A field of the line: `sample.ts`."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self.line[name]

    @property
    def same_boot(self) -> bool:
        return self.predecessor is not None and self.predecessor.boot == self.boot

    @property
    def length_ms(self) -> int:
        """The time it speaks for, the rest of the window included where it does."""
        return self.end - self.start + self.tail_end - self.tail_start

    @functools.cached_property
    def rows(self) -> dict[str, Json]:
        """By name; of two with one name the first."""
        rows = reversed(self.line.get("replicas") or [])
        return {row["id"]: row for row in rows}

    def row(self, replica: str) -> Json | None:
        return self.rows.get(replica)


@dataclass
class Dumps:
    """Everything read for one date."""

    samples: list[Sample] = field(default_factory=list)
    bad_lines: list[tuple[str, str]] = field(default_factory=list)
    """(file name, text) of the lines of D that are not good."""


def read_dumps(paths: list[Path], window: Window) -> Dumps:
    """The distinct samples around the window, and the bad lines of D."""
    found = Dumps()
    texts: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for path in paths:
        for date in (window.date - datetime.timedelta(days=1), window.date):
            for file in sorted(path.glob(f"dt={date}/cluster=*/broker=*/*.jsonl*")):
                if file.name.startswith((".", "_")):
                    continue
                if date < window.date and file.name < "2200":
                    continue
                texts_of_file, broken = _lines_of(file)
                if broken and date == window.date:
                    found.bad_lines.append((file.name, ""))
                for text in texts_of_file:
                    line = _parse(text)
                    if line is not None and _is_good(line, date):
                        key = (line["cluster"], line["broker"], line["broker_id"])
                        texts[*key, line["boot"], line["seq"]].append(text)
                    elif date == window.date:
                        found.bad_lines.append((file.name, text))
    for same in texts.values():
        line = json.loads(min(same))
        if window.w0 - PREDECESSOR_REACH_MS <= line["ts"] < window.w1:
            found.samples.append(Sample(line, len(same) - 1, len(set(same)) > 1))
    return found


def _lines_of(file: Path) -> tuple[list[str], bool]:
    """The lines, and whether the file breaks off (its last line is lost, if it was torn)."""
    content, broken = file.read_bytes(), False
    if file.name.endswith(".gz"):
        packed, content = content, b""
        while packed and not broken:  # several gz files one behind the other are one
            reader = zlib.decompressobj(wbits=31)
            content += reader.decompress(packed)
            packed, broken = reader.unused_data, not reader.eof
    lines = content.decode("utf-8", errors="replace").split("\n")
    return (lines[:-1] if broken or lines[-1] == "" else lines), broken


def _parse(text: str) -> Json | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_good(line: Json, date: datetime.date) -> bool:
    return (
        all(_is_whole(line.get(name)) for name in WHOLE_NUMBERS)
        and all(line.get(name) is None or _is_whole(line[name]) for name in MAY_BE_NULL)
        and all(isinstance(line.get(name), str) for name in TEXTS)
        and all(isinstance(line.get(name), bool) for name in TRUTHS)
        and _has_numbers(line.get("sync"), SYNC_RESULTS)
        and isinstance(line.get("ack_latency"), dict)
        and isinstance(line.get("processes"), list)
        and all(_is_good_row(row) for row in line.get("replicas") or [])
        and line["v"] == 1
        and line["seq"] >= 1
        and line["interval_ms"] > 0
        and midnight(date) - HOUR_MS <= line["ts"] < midnight(date) + DAY_MS + HOUR_MS
    )


def _has_numbers(value: object, names: list[str]) -> bool:
    return isinstance(value, dict) and all(_is_whole(value.get(name)) for name in names)


def _is_good_row(row: object) -> bool:
    numbers = ["ack_offset", "lag_bytes", "lag_ms", "transferred", "reconnects", "rejected_acks"]
    return (
        isinstance(row, dict)
        and isinstance(row.get("id"), str)
        and isinstance(row.get("state"), str)
        and _has_numbers(row, numbers)
        and _has_numbers(row.get("state_ms"), STATES)
    )


def in_order(samples: list[Sample], window: Window) -> list[Sample]:
    """A stream: samples in order, each with its predecessor and its time laid out."""
    stream = sorted(samples, key=lambda s: (s.boot_ts, s.boot, s.seq))
    for predecessor, sample in zip([None, *stream], stream, strict=False):
        sample.predecessor = predecessor
        sample.in_window = window.w0 <= sample.ts
        lines_before = (sample.ts - sample.boot_ts) / sample.interval_ms
        began_inside = sample.boot_ts >= window.w0 and sample.seq - 2 <= lines_before
        sample.from_zero = sample.seq == 1 or began_inside
    told_until = -1
    for _, of_boot in itertools.groupby(stream, key=lambda s: (s.boot_ts, s.boot)):
        told_by_others = told_until
        # A boot's own clock may have been set: its samples share the time in the order of ts.
        for sample in sorted(of_boot, key=lambda s: (s.ts, s.seq)):
            sample.overtaken = told_by_others >= sample.ts
            _lay_out(sample, told_until, window)
            told_until = max(told_until, sample.ts)
    inside = [sample for sample in stream if sample.in_window]
    rest_start = max(told_until, window.w0)
    if inside and window.w1 - rest_start <= inside[-1].interval_ms:
        inside[-1].tail_start, inside[-1].tail_end = rest_start, window.w1
    return stream


def _lay_out(sample: Sample, told_until: int, window: Window) -> None:
    """`covered` by the table of docs/sla_report.md; what was told before is not told again."""
    interval, before = sample.interval_ms, sample.predecessor
    since_boot = sample.ts - sample.boot_ts
    if before is None:
        covered = min(interval, since_boot)
    elif before.boot == sample.boot:
        nothing_missing = sample.seq == before.seq + 1
        covered = min(sample.mono - before.mono, 3 * interval if nothing_missing else interval)
    else:
        last_life = (sample.line.get("prev_boot"), sample.line.get("prev_seq"))
        sample.proved = sample.seq == 1 and last_life == (before.boot, before.seq)
        covered = min(since_boot, 3 * interval if sample.proved else interval)
    sample.covered_ms = max(0, covered)
    start, known_until = max(sample.ts - sample.covered_ms, told_until), max(told_until, window.w0)
    follows_directly = (
        before is not None and before.boot == sample.boot and sample.seq == before.seq + 1
    )
    if follows_directly and start - known_until <= 10:
        start = known_until
    sample.start, sample.end = _clipped(start, sample.ts, window)
    if sample.proved and before is not None:
        sample.down_start, sample.down_end = _clipped(
            max(told_until, window.w0), min(sample.boot_ts, sample.ts), window
        )


def _clipped(start: int, end: int, window: Window) -> tuple[int, int]:
    """The part inside the window; (w0, w0) where there is none."""
    start, end = max(start, window.w0), min(end, window.w1)
    return (start, end) if start < end else (window.w0, window.w0)


# -- which replicas there are ----------------------------------------------------------------


def replicas_seen(group: tuple[str, str], stream: list[Sample]) -> dict[str, int]:
    """Names of a stream's rows in the window, with the ts of the first one; without connections
    that went by their ip until they got their name."""
    inside = [sample for sample in stream if sample.in_window]
    since: dict[str, int] = {}
    last: dict[str, int] = {}
    for place, sample in enumerate(inside):
        for name in sample.rows:
            since[name] = min(sample.ts, since.get(name, sample.ts))
            last[name] = place
    gone = _renamings(group, inside)
    return {name: ts for name, ts in since.items() if last[name] > gone.get(name, -1)}


def replicas_renamed(group: tuple[str, str], stream: list[Sample]) -> set[str]:
    """The names that connections had before they got their own, in the window."""
    return set(_renamings(group, [sample for sample in stream if sample.in_window]))


def _renamings(group: tuple[str, str], inside: list[Sample]) -> dict[str, int]:
    """Name -> place of the last sample that lacks it because it was another's."""
    found: dict[str, int] = {}
    for place, sample in enumerate(inside):
        if sample.predecessor is None or not sample.same_boot:
            continue
        before, now = sample.predecessor.rows, sample.rows
        connected = {name for name, row in before.items() if row["connected"]}
        came = {name for name, row in now.items() if row["connected"]} - connected
        for name in connected - now.keys():
            if came and not name.startswith(f"{group[1]}:"):
                found[name] = place
    return found


def elsewhere(stream: list[Sample], replica: str) -> tuple[int, int] | None:
    """From when to when a master that another one overtook had this replica."""
    moments = [
        sample.ts
        for sample in stream
        if sample.in_window
        and sample.overtaken
        and replica in sample.rows
        and sample.rows[replica]["connected"]
    ]
    return (min(moments), max(moments)) if moments else None


# -- the time it speaks for ------------------------------------------------------------------


def weighted(values: list[tuple[int, int]]) -> Json:
    """Percentiles and max of (value, weight in ms); None where there is no weight."""
    values = sorted((value, weight) for value, weight in values if weight > 0)
    total = sum(weight for _, weight in values)
    figures: Json = dict.fromkeys([*QUANTILES, "max"])
    if not values:
        return figures
    for name, share in QUANTILES.items():
        weight_so_far = 0
        for value, weight in values:
            weight_so_far += weight
            if weight_so_far >= share * total:
                figures[name] = value
                break
    figures["max"] = values[-1][0]
    return figures


def bucket_of(value: int) -> int:
    """The histogram bucket of a lag."""
    return 0 if value < 1 else 1 + math.floor(math.log(value) / math.log(1.02))


def histogram_of(values: list[tuple[int, int]]) -> dict[int, int] | None:
    """Time in ms by bucket; None where there is none."""
    histogram: dict[int, int] = defaultdict(int)
    for value, weight in values:
        if weight > 0:
            histogram[bucket_of(value)] += weight
    return dict(histogram) or None


# -- counters --------------------------------------------------------------------------------


def rise(sample: Sample, now: int | float | None, before: int | float | None) -> int | float:
    """How far a counter rose up to this sample; what its predecessor lacks began at 0."""
    if now is None:
        return 0
    if sample.same_boot:
        return max(0, now - (before or 0))
    return now if sample.from_zero else 0


def rise_of_row(sample: Sample, replica: str, name: str) -> int:
    row, before = sample.row(replica), None
    if sample.same_boot and sample.predecessor is not None:
        before = sample.predecessor.row(replica)
    return int(rise(sample, row[name] if row else None, before[name] if before else None))


def rise_of_field(sample: Sample, name: str) -> int:
    before = sample.predecessor.line[name] if sample.predecessor else None
    return int(rise(sample, sample.line[name], before))
