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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
REACH_MS: Final = 2 * HOUR_MS
AGREE_MS: Final = 1_000
SET_BACK_MS: Final = 1_000
"""How far before the window a sample serves as a predecessor, and behind it as the closing one."""
GZIP_MAGIC: Final = b"\x1f\x8b"

MASTER_ROLES: Final = ("SYNC_MASTER", "ASYNC_MASTER")
COUNTS: Final = [
    *("v", "ts", "mono", "boot_ts", "seq", "interval_ms", "broker_id", "msgs_in", "bytes_in")
]
OFFSETS: Final = ["min_offset", "max_offset", "replicated_offset"]
"""These alone may be negative."""
COUNTS_OR_NULL: Final = ["unreplicated_bytes", "oldest_unreplicated_ms", "prev_seq"]
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
    """One line that counts, and the time that it tells of, not clipped to the window."""

    line: Json
    duplicates: int
    conflict: bool
    window: Window
    is_line: bool = True
    """Somebody wrote it: not so the last one of a leader that leads no more."""
    predecessor: Sample | None = None
    told: int | None = None
    """Until when the boots before its own, or samples before it in its own, told of the time."""
    told_by_others: int | None = None
    """The same, of the boots before its own alone."""
    covered_ms: int = 0
    proved: bool = False
    start: int = 0
    """Its interval is [start, ts)."""
    hidden_ms: int = 0
    """So much time the wall clock has no room for: it was set back. `hidden_down_ms`: between the
    life before and its boot."""
    hidden_down_ms: int = 0
    carried_ms: int = 0
    """Of that, before the window by its own clock and within it by a right one."""
    passed_ms: int | None = None
    """Since the last sample of the life before, by clocks that nobody sets."""
    shows_more: bool = False
    """Its clock shows more time since that sample than passed, or nothing proves how much did."""
    named_rows: dict[str, Json] | None = None
    """Its rows once each slave has its name."""
    down_start: int = 0
    down_end: int = 0

    def __getattr__(self, name: str) -> Any:
        """A field of the line: `sample.ts`."""
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.__dict__[name] = self.line[name]  # found at once the next time
        return value

    @property
    def in_window(self) -> bool:
        inside: bool = self.window.w0 <= self.ts < self.window.w1
        return inside

    @property
    def is_closing(self) -> bool:
        behind: bool = self.ts >= self.window.w1
        return behind

    @functools.cached_property
    def same_boot(self) -> bool:
        return self.predecessor is not None and self.predecessor.boot == self.boot

    @functools.cached_property
    def before(self) -> Sample | None:
        """The predecessor if it is of the same boot; nobody asks before the samples are in
        order."""
        return self.predecessor if self.same_boot else None

    @property
    def begins_boot(self) -> bool:
        """The first sample of a boot, or the first that is left of it behind another one's."""
        return bool(self.seq == 1 or (self.predecessor is not None and not self.same_boot))

    @property
    def mono_ms(self) -> int:
        """`m`: the time since the predecessor of the same boot, by the monotonic clock."""
        passed: int = self.mono - self.before.mono if self.before is not None else 0
        return max(0, passed)

    @property
    def since_boot_ms(self) -> int:
        passed: int = self.ts - self.boot_ts
        return max(0, passed)

    @property
    def from_zero(self) -> bool:
        lines_before = Fraction(self.ts - self.boot_ts, self.interval_ms)
        began_inside = self.boot_ts >= self.window.w0 and self.seq - 2 <= lines_before
        return bool(self.seq == 1 or began_inside)

    @property
    def passed_over(self) -> bool:
        """Two masters at once: an earlier boot told of its moment."""
        return self.told_by_others is not None and bool(self.told_by_others >= self.ts)

    @property
    def others_told(self) -> bool:
        """Another boot told of the time up to where its interval begins."""
        if self.told is None or self.told < self.start:
            return False
        return self.told_by_others == self.told

    @functools.cached_property
    def segment(self) -> tuple[int, int]:
        """The part of the window for which its figures count."""
        start = max(self.start, self.ts - self.covered_ms)
        return clipped(start, self.ts, self.window)

    @property
    def segment_ms(self) -> int:
        start, end = self.segment
        return end - start

    @property
    def rows(self) -> dict[str, Json]:
        """By name; of two with one name the first."""
        if self.named_rows is not None:
            return self.named_rows
        return self._own_rows

    @functools.cached_property
    def _own_rows(self) -> dict[str, Json]:
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
    texts: dict[tuple[Any, ...], list[bytes]] = defaultdict(list)
    long_before: dict[tuple[Any, ...], list[bytes]] = defaultdict(list)
    for path, days in itertools.product(paths, (-1, 0, 1)):
        date = window.date + datetime.timedelta(days=days)
        for file in _files_of(path / f"dt={date}"):
            texts_of_file, broken = _lines_of(file)
            bad = [b""] if broken else []
            for text in texts_of_file:
                line = _parse(text)
                if line is None or not _is_good(line, date):
                    bad.append(text)
                elif _matters(line, window):
                    key = (line["cluster"], line["broker"], line["broker_id"])
                    texts[*key, line["boot"], line["seq"]].append(text)
                elif line["ts"] < window.w0:
                    key = (line["cluster"], line["broker"], line["broker_id"])
                    long_before[*key, line["boot"], line["seq"]].append(text)
            if days == 0:
                told = (text.decode("utf-8", errors="replace") for text in bad)
                found.bad_lines += [(file.name, text) for text in told]
    for same in [*texts.values(), *_ends_of_lives(texts, long_before, window)]:
        line = json.loads(min(same))
        if line["v"] == 1:
            line = _without_additions(line)
        found.samples.append(Sample(line, len(same) - 1, len(set(same)) > 1, window))
    return found


def _ends_of_lives(
    texts: dict[tuple[Any, ...], list[bytes]],
    long_before: dict[tuple[Any, ...], list[bytes]],
    window: Window,
) -> list[list[bytes]]:
    """Of lines too far before the window: those that tell where a life began, or, if no other one
    of it does before the window, where it was at last."""
    edges: dict[tuple[Any, ...], tuple[int, int]] = {}
    nearest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for key in long_before:
        first, last = edges.get(key[:-1], (key[-1], key[-1]))
        edges[key[:-1]] = min(first, key[-1]), max(last, key[-1])
    for key in texts:
        nearest[key[:-1]] = min(key, nearest.get(key[:-1], key))
    found = []
    for key, same in long_before.items():
        is_first, is_last = (key[-1] == edge for edge in edges[key[:-1]])
        if json.loads(min(same))["boot_ts"] < window.w0 - DAY_MS:
            is_first = False
        near = nearest.get(key[:-1])
        if near is not None and json.loads(min(texts[near]))["ts"] < window.w0:
            is_last = False
        if (is_last or is_first) and (near is None or near[-1] > key[-1]):
            found.append([min(same)])
    return found


def _files_of(directory: Path) -> list[Path]:
    """Whatever they are called; but hidden files are somebody's work in progress."""
    return [
        file
        for file in sorted(directory.rglob("*"))
        if file.is_file()
        and not any(part.startswith((".", "_")) for part in file.relative_to(directory).parts)
    ]


def _matters(line: Json, window: Window) -> bool:
    reach = range(window.w0 - REACH_MS, window.w1 + REACH_MS)
    return line["ts"] in reach or (line["seq"] == 1 and line["ts"] >= window.w1)


def _lines_of(file: Path) -> tuple[list[bytes], bool]:
    """The lines, and whether the file breaks off (its last line is lost, if it was torn)."""
    content, broken = file.read_bytes(), False
    if content.startswith(GZIP_MAGIC) or file.name.endswith(".gz"):
        content, broken = _unpacked(content)
    lines = content.split(b"\n")
    return (lines[:-1] if broken or lines[-1] == b"" else lines), broken


def _unpacked(packed: bytes) -> tuple[bytes, bool]:
    """Several gz files one behind the other are one; what comes before the damage counts."""
    content, broken = b"", False
    while packed and not broken:
        reader = zlib.decompressobj(wbits=31)
        try:
            content += reader.decompress(packed)
        except zlib.error:
            return content + _up_to_the_damage(packed), True
        packed, broken = reader.unused_data, not reader.eof
    return content, broken


def _up_to_the_damage(packed: bytes) -> bytes:
    content, reader = b"", zlib.decompressobj(wbits=31)
    try:
        for at in range(len(packed)):
            content += reader.decompress(packed[at : at + 1])
    except zlib.error:
        return content
    raise AssertionError("damaged when read at once, and not byte by byte")


def _parse(text: bytes) -> Json | None:
    try:
        line = json.loads(text.decode("utf-8"), parse_constant=_no_number)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    """A whole number that is not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_good(line: Json, date: datetime.date) -> bool:
    return (
        all(_is_count(line.get(name)) for name in COUNTS)
        and all(_is_whole(line.get(name)) for name in OFFSETS)
        and all(line.get(name) is None or _is_count(line[name]) for name in COUNTS_OR_NULL)
        and (line.get("prev_boot") is None or isinstance(line["prev_boot"], str))
        and all(isinstance(line.get(name), str) for name in TEXTS)
        and all(isinstance(line.get(name), bool) for name in TRUTHS)
        and _has(line.get("sync"), _is_count, SYNC_RESULTS)
        and _is_good_latency(line.get("ack_latency"))
        and isinstance(line.get("processes"), list)
        and all(_is_good_process(process) for process in line["processes"])
        and all(_is_good_row(row) for row in line.get("replicas") or [])
        and all(_is_good_kind(kind) for kind in line.get("metadata") or [])
        and line["v"] in (1, 2)
        and (line["v"] == 1 or _is_good_addition(line))
        and line["seq"] >= 1
        and line["interval_ms"] > 0
        and midnight(date) - HOUR_MS <= line["ts"] < midnight(date) + DAY_MS + HOUR_MS
    )


NEW_FIELDS: Final = (
    *("prev_digest", "since", "host", "exposure", "sends", "lag_le"),
    *("machine_boot", "uptime", "clock_error_ms", "ended", "member", "roles", "groups"),
)
NEW_OF_ROWS: Final = ("lag_ms_max", "lag_time", "remote", "last_error")
SEND_RESULTS: Final = [*SYNC_RESULTS, "refused"]


def _without_additions(line: Json) -> Json:
    """A line of version 1, which did not know these names."""
    line = {name: value for name, value in line.items() if name not in NEW_FIELDS}
    for rows, names in (("replicas", NEW_OF_ROWS), ("metadata", ("age_ms_max",))):
        if line.get(rows):
            line[rows] = [{k: v for k, v in row.items() if k not in names} for row in line[rows]]
    return line


def _is_good_addition(line: Json) -> bool:
    """What version 2 added: rows of replicas have all of theirs."""
    mark, sends = line.get("exposure"), line.get("sends")
    bounds = line.get("lag_le")
    return (
        _is_count(line.get("since"))
        and line["since"] <= line["mono"]
        and _is_text(line.get("host"))
        and (line.get("machine_boot") is None or _is_text(line["machine_boot"]))
        and all(_is_count(line.get(name) or 0) for name in ("uptime", "clock_error_ms"))
        and (line.get("prev_digest") is None or _is_text(line["prev_digest"]))
        and (mark is None or _is_good_mark(mark))
        and _are_sends(sends)
        and (line.get("ended") is None or _is_good_end(line["ended"]))
        and (line.get("groups") is None or _are_good_groups(line["groups"]))
        and isinstance(bounds, list)
        and _are_counts(bounds)
        and all(
            _is_count(row.get("lag_ms_max"))
            and _are_counts(row.get("lag_time"))
            and len(row["lag_time"]) == len(bounds) + 1
            for row in line.get("replicas") or []
        )
        and all(_is_count(kind.get("age_ms_max") or 0) for kind in line.get("metadata") or [])
    )


def _are_sends(value: object) -> bool:
    return (
        isinstance(value, dict)
        and _has(value, _is_count, SEND_RESULTS)
        and _is_good_latency(value.get("latency"))
    )


def _are_good_groups(value: object) -> bool:
    if not isinstance(value, dict) or not _is_count(value.get("left_out")):
        return False
    le = {kind: value.get(f"{kind}_le") for kind in ("age", "messages")}
    rows = value.get("rows")
    return (
        all(_are_counts(bounds) and 0 not in bounds for bounds in le.values())
        and isinstance(rows, list)
        and all(
            _has(row, _is_text, ["group", "topic"])
            and _has(row, _is_count, ["looked_ms", "messages"])
            and _is_count(row.get("age_ms") or 0)
            and all(
                _are_counts(row.get(f"{kind}_{side}")) and len(row[f"{kind}_{side}"]) == len(bounds)
                for kind, bounds in le.items()
                for side in ("within", "beyond")
            )
            for row in rows
        )
    )


def _is_good_end(value: object) -> bool:
    return (
        isinstance(value, dict)
        and _is_text(value.get("boot"))
        and _is_count(value.get("uncounted_ms"))
        and _has(value.get("sync"), _is_count, SYNC_RESULTS)
        and _are_sends(value.get("sends"))
    )


def _is_good_mark(mark: object) -> bool:
    sizes = ["bytes_at_least", "bytes_at_most", "ms_at_least", "ms_at_most"]
    return (
        isinstance(mark, dict)
        and _has(mark, _is_count, sizes)
        and all(_are_counts(mark.get(name)) for name in ("le", "counts"))
        and len(mark["counts"]) == len(mark["le"]) + 1
        and mark["bytes_at_least"] <= mark["bytes_at_most"]
        and mark["ms_at_least"] <= mark["ms_at_most"]
    )


def _are_counts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_count, value))


def _has(value: object, check: Callable[[object], bool], names: Sequence[str]) -> bool:
    return isinstance(value, dict) and all(check(value.get(name)) for name in names)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


def _is_good_latency(value: object) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(name), list) for name in ("le", "counts"))
        and all(_is_number(bound) for bound in value["le"])
        and all(_is_count(count) for count in value["counts"])
        and len(value["counts"]) == len(value["le"]) + 1
        and _is_number(value.get("sum"))
    )


def _is_good_process(value: object) -> bool:
    return (
        _has(value, _is_text, ["name"])
        and _has(value, _is_truth, ["up"])
        and _has(value, _is_count, ["restarts"])
    )


def _is_good_row(value: object) -> bool:
    numbers = ["lag_bytes", "lag_ms", "transferred", "reconnects", "rejected_acks"]
    return (
        isinstance(value, dict)
        and _has(value, _is_text, ["id"])
        and value.get("state") in STATES
        and _has(value, _is_truth, ["connected", "in_sync", "lag_exact"])
        and _has(value, _is_whole, ["ack_offset"])
        and _has(value, _is_count, numbers)
        and _has(value.get("state_ms"), _is_count, STATES)
    )


def _is_good_kind(value: object) -> bool:
    return (
        isinstance(value, dict)
        and _has(value, _is_text, ["kind"])
        and _has(value, _is_count, ["failures"])
        and (value.get("age_ms") is None or _is_count(value["age_ms"]))
    )


def _place(sample: Sample) -> tuple[int, str, int]:
    """Where it comes in the order."""
    return sample.boot_ts, sample.boot, sample.seq


def in_order(
    samples: list[Sample],
    window: Window,
    every: Sequence[Sample],
    is_known: bool = False,
    nobody_led_before: Callable[[Sample], bool] = lambda _: False,
) -> list[Sample]:
    """A stream: samples in order, each with its predecessor and its time. Of those behind the
    window the first of each run stays: the closing ones. `every`: all of the group, of whatever
    stream; `is_known`: an earlier date has a result of it; `nobody_led_before`: an election was
    behind the life before a sample, and nobody led between."""
    others = sorted(every, key=_place)
    stream: list[Sample] = []
    was_after = False
    for sample in sorted(samples, key=_place):
        is_after = sample.ts >= window.w1
        if not (is_after and was_after):
            stream.append(sample)
        was_after = is_after
    for predecessor, sample in itertools.pairwise(stream):
        sample.predecessor = predecessor
    told_by_others: int | None = None
    told_by_closing: int | None = None
    latest = max((sample.ts for sample in stream if not sample.is_closing), default=None)
    for _, of_boot in itertools.groupby(stream, key=lambda s: (s.boot_ts, s.boot)):
        told = told_by_others
        # A boot's own clock may have been set: its samples share the time in the order of ts.
        for sample in sorted(of_boot, key=lambda s: (s.ts, s.seq)):
            sample.told_by_others, sample.told = told_by_others, told
            if sample.is_closing:  # tells of what is behind all others
                sample.told_by_others = _later(told_by_others, told_by_closing)
                sample.told = _later(latest, told_by_closing)
                told_by_closing = _later(told_by_closing, sample.ts)
            else:
                told = _later(told, sample.ts)
            _lay_out(sample, was_down=nobody_led_before(sample))
        told_by_others = told
    _hide(stream, others, is_known)
    return stream


def _hide(stream: list[Sample], others: Sequence[Sample], is_known: bool) -> None:
    """What a clock that was set back by more than a second has no room for: of one broker's lives
    that follow each other, or where no other one told of the time."""
    for place, sample in enumerate(stream):
        if not sample.same_boot:
            is_one_broker = _is_one_broker(stream, place, others)
            _measure_down(stream, place, is_one_broker, others)
            if _has_unknown_past(stream, place, others, is_known):
                sample.hidden_down_ms = DAY_MS
                for held in [s for s in stream if s.boot == sample.boot and _is_held(s)][:1]:
                    late = held.ts + sample.mono - held.mono - sample.ts
                    sample.hidden_down_ms = min(DAY_MS, late) if late > SET_BACK_MS else 0
            is_before = sample.ts < sample.window.w0
            if is_before and not any(_is_held(s) for s in stream if s.boot == sample.boot):
                ahead = sample.window.w0 - min(sample.boot_ts, sample.ts)
                sample.carried_ms = max(0, sample.hidden_down_ms - ahead)
        span = sample.mono_ms if sample.same_boot else sample.since_boot_ms
        hidden = span - (sample.ts - sample.start) + _slept_unseen(sample)
        is_asked = sample.same_boot or sample.from_zero
        if is_asked and hidden > SET_BACK_MS and (is_one_broker or not sample.others_told):
            sample.hidden_ms = 0 if sample.is_closing else min(hidden, DAY_MS)


def inherit(stream: list[Sample], every: Sequence[Sample], window: Window) -> None:
    """A master that was a slave before brings along what is hidden before the lives as a slave that
    led to its own."""
    some = sorted(every, key=_place)
    firsts: dict[str, Sample] = {}
    for sample in some:
        firsts.setdefault(sample.boot, sample)
    for sample in stream:
        if sample.same_boot or sample.boot_ts >= window.w1:
            continue
        past: dict[str, Sample] = {}
        life = firsts.get(sample.line.get("prev_boot"))
        while life is not None and life.boot not in (sample.boot, *past):
            past[life.boot] = life
            life = firsts.get(life.line.get("prev_boot"))
        last = sample.predecessor
        is_told = False
        if last is not None and last.boot not in past:
            is_told = max(s.ts for s in stream if s.boot == last.boot) >= window.w0 - REACH_MS
        for slave in itertools.takewhile(lambda one: one.role == "SLAVE", past.values()):
            hidden = _hidden_before(slave, some, firsts)
            if hidden < DAY_MS or not is_told:
                _inherit_from(slave, sample, hidden, some)


def _hidden_before(first: Sample, every: list[Sample], firsts: dict[str, Sample]) -> int:
    """Between the life that the one of this first sample names and its boot, by their clocks."""
    name, w0 = first.line.get("prev_boot"), first.window.w0
    if name is None:
        return 0
    if name in firsts:
        whole = [s for s in every if s.boot == name]
        passed = _passed(list(every), first, whole[-1], every)
        if passed is None:
            return DAY_MS
        shown = max(0, min(first.boot_ts, first.ts) - max(s.ts for s in whole))
        hidden = max(0, passed - first.since_boot_ms) - shown
    elif first.boot_ts < w0 - DAY_MS:
        return 0
    else:
        held = [s for s in every if s.boot == first.boot and _is_held(s)][:1]
        if not held:
            return DAY_MS
        hidden = held[0].ts + first.mono - held[0].mono - first.ts
    return min(DAY_MS, hidden) if hidden > SET_BACK_MS else 0


def _inherit_from(slave: Sample, sample: Sample, hidden: int, every: Sequence[Sample]) -> None:
    """`slave`, `sample`: the first ones of their lives."""
    is_before = slave.ts < sample.window.w0
    if is_before:
        is_held = any(_is_held(s) for s in every if s.boot == slave.boot)
        shown = sample.window.w0 - min(slave.boot_ts, slave.ts)
        hidden = 0 if is_held else max(0, hidden - shown)
    for held in [s for s in every if s.boot == sample.boot and _is_held(s)][:1]:
        late = held.ts + sample.mono - held.mono - sample.ts
        hidden = min(hidden, late if late > SET_BACK_MS else 0)
        is_before = False
    if is_before:
        sample.carried_ms += hidden
    else:
        sample.hidden_down_ms = max(sample.hidden_down_ms, hidden)


def _is_one_broker(stream: list[Sample], place: int, others: Sequence[Sample]) -> bool:
    """Of the lives up to the one that begins at `place`: whether all but one name another life of
    the stream as the one before them, maybe through lives of other streams, and no two the same."""
    boots = {sample.boot for sample in stream}
    names = {sample.boot: sample.line.get("prev_boot") for sample in reversed(others)}
    named = []
    for sample in stream[: place + 1]:
        if not sample.same_boot:
            seen, name = {sample.boot}, sample.line.get("prev_boot")
            while name is not None and name not in boots and name not in seen:
                seen.add(name)
                name = names.get(name)
            named.append(name if name in boots and name not in seen else None)
    return len(set(named)) == len(named)


def rise_of_uptime(then: Sample, now: Sample) -> int | None:
    """None where nobody knows that it is one machine that was not switched off."""
    boots = {s.line.get("machine_boot") for s in (then, now)}
    ups = [s.line.get("uptime") for s in (then, now)]
    return int(ups[1] - ups[0]) if len(boots) == 1 and None not in (*boots, *ups) else None


def _slept_unseen(sample: Sample) -> int:
    """A machine that sleeps has an uptime that goes on, and a monotonic clock that does not."""
    rise = rise_of_uptime(sample.before, sample) if sample.before is not None else None
    if rise is None:
        return 0
    shown = max(0, sample.start - (sample.told or 0))
    return max(0, max(0, rise - sample.mono_ms) - shown)


def _named(stream: list[Sample], place: int, others: Sequence[Sample]) -> list[Sample]:
    """The last sample of the life that this one names, master or slave; [] where nobody has it."""
    sample = stream[place]
    for some in (stream, others):
        of_life = [s for s in some if s.boot == sample.line.get("prev_boot") != sample.boot]
        if of_life:
            of_life = [s for s in of_life if s.broker_id == of_life[0].broker_id]
            return of_life[-1:]
    return []


def _of_host(stream: list[Sample], place: int) -> list[Sample]:
    host = stream[place].line.get("host")
    return [s for s in stream[:place] if s.line.get("host") == host is not None][-1:]


def _has_unknown_past(
    stream: list[Sample], place: int, others: Sequence[Sample], is_known: bool
) -> bool:
    """Nobody tells how long a broker was down that was there before."""
    sample = stream[place]
    last = sample.predecessor
    if sample.boot_ts < sample.window.w0 - DAY_MS:
        return False
    if _named(stream, place, others) or _of_host(stream, place):
        return False
    if last is not None:
        lives = [s.ts for s in stream if s.boot == last.boot]
        if max(lives) >= sample.window.w0 - REACH_MS:
            return False
        if sample.hidden_down_ms or sample.passed_ms is not None:
            return False  # it was compared
    was_reported = is_known and sample.boot_ts >= sample.window.w0
    return was_reported or sample.line.get("prev_boot") is not None


def _measure_down(
    stream: list[Sample], place: int, is_one_broker: bool, others: Sequence[Sample]
) -> None:
    """The clock may have been set between two lives: what is down is what a clock proves that
    nobody sets."""
    sample = stream[place]
    host = sample.line.get("host")
    last = sample.predecessor
    named = _named(stream, place, others)
    for past in [last, *named, *_of_host(stream, place)]:
        if past is None or past.boot == sample.boot:
            continue
        is_named = sample.line.get("prev_boot") == past.boot
        is_same = host is not None and host == past.line.get("host")
        is_same = is_same or rise_of_uptime(past, sample) is not None
        if past is last and None in (host, past.line.get("host")) and not named:
            is_same = True  # whose they are no line of version 1 says
        if is_named or (is_same and sample.ts >= past.ts - AGREE_MS):
            _compare(stream, place, past, is_one_broker, others)


def _compare(
    stream: list[Sample],
    place: int,
    past: Sample,
    is_one_broker: bool,
    others: Sequence[Sample],
) -> None:
    """With the last sample of a life that had the same clock."""
    sample = stream[place]
    whole = stream if past in stream else others
    is_last = past is sample.predecessor
    told = sample.told_by_others or 0
    if not is_last:
        told = max(s.ts for s in whole if s.boot == past.boot)
    elif sample.is_closing:
        earlier = [s.ts for n, s in enumerate(stream) if n < place or not s.is_closing]
        told = max(earlier, default=0)
    begin = min(sample.boot_ts, sample.ts)
    shown = max(0, begin - told)
    passed = _passed(stream, sample, past, whole)
    if passed is None:
        hidden, true = (DAY_MS if is_last or is_one_broker else 0), -math.inf
    else:
        true = max(0, passed - sample.since_boot_ms)
        hidden = min(DAY_MS, true - shown) if true - shown > SET_BACK_MS else 0
    sample.hidden_down_ms = max(sample.hidden_down_ms, int(hidden))
    if is_last:
        sample.passed_ms = passed
        if shown - true > AGREE_MS:  # nothing of it is proved down
            sample.down_start = sample.down_end = 0
        sample.shows_more = passed is None or max(0, begin - past.ts) - true > AGREE_MS


def _passed(stream: list[Sample], now: Sample, then: Sample, whole: Sequence[Sample]) -> int | None:
    """Between two lines of different lives: by the machine's uptime, else by clocks that a time
    service held in both lives."""
    rise = rise_of_uptime(then, now)
    if rise is not None and rise >= -AGREE_MS:
        return max(0, rise)
    if None in (now.line.get("machine_boot"), then.line.get("machine_boot")):
        passed = now.mono - then.mono
        if abs(passed - (now.ts - then.ts)) <= AGREE_MS:
            return max(0, int(passed))
    of_now = [s for s in stream if s.boot == now.boot and _is_held(s)][:1]
    of_then = [s for s in whole if s.boot == then.boot and _is_held(s)][-1:]
    for one, other in zip(of_now, of_then, strict=False):
        begin = other.ts + then.mono - other.mono
        return max(0, int(one.ts + now.mono - one.mono - begin))
    return None


def _is_held(sample: Sample) -> bool:
    error = sample.line.get("clock_error_ms")
    return error is not None and error <= AGREE_MS


def _later(one: int | None, other: int | None) -> int | None:
    known = [ts for ts in (one, other) if ts is not None]
    return max(known, default=None)


def _lay_out(sample: Sample, *, was_down: bool) -> None:
    """The table of docs/sla_report.md, Samples."""
    interval, predecessor = sample.interval_ms, sample.predecessor
    told = sample.told if sample.told is not None else -math.inf
    if sample.before is not None:
        follows_directly = sample.seq == sample.before.seq + 1
        start = sample.ts - sample.mono_ms
        passed = sample.mono_ms
        if follows_directly and 0 < start - told <= 10:
            passed += int(start - told)
            start = int(told)
        covered = min(passed, 3 * interval if follows_directly else interval)
    else:
        if predecessor is not None:
            last_life = (sample.line.get("prev_boot"), sample.line.get("prev_seq"))
            sample.proved = sample.seq == 1 and last_life == (predecessor.boot, predecessor.seq)
        covered = min(sample.since_boot_ms, 3 * interval if sample.proved else interval)
        start = sample.boot_ts
        if not sample.proved and not sample.from_zero:
            start = sample.ts - min(interval, sample.since_boot_ms)
    sample.covered_ms = covered
    sample.start = min(sample.ts, int(max(start, told)))
    if (sample.proved or was_down) and sample.told is not None:
        sample.down_start = sample.told
        sample.down_end = max(sample.told, min(sample.boot_ts, sample.ts))


def clipped(start: int, end: int, window: Window) -> tuple[int, int]:
    """The part inside the window; (w0, w0) where there is none."""
    start, end = max(start, window.w0), min(end, window.w1)
    return (start, end) if start < end else (window.w0, window.w0)


# -- which replicas there are ----------------------------------------------------------------


def rows_that_name(stream: list[Sample], window: Window) -> list[Sample]:
    """The samples whose rows make replicas of D: of the last boot with rows before w0 the last one
    there, those of the window, and the closing one if its boot began before w1."""
    earlier = [sample for sample in stream if sample.ts < window.w0]
    while earlier and not any(s.rows for s in earlier if s.boot == earlier[-1].boot):
        earlier.pop()
    return [
        *earlier[-1:],
        *(sample for sample in stream if sample.in_window),
        *(sample for sample in stream if sample.is_closing and sample.boot_ts < window.w1),
    ]


def first_rows(stream: list[Sample], window: Window) -> dict[str, int]:
    """Since when (ts) each replica has a row."""
    since: dict[str, int] = {}
    for sample in rows_that_name(stream, window):
        for name in sample.rows:
            since[name] = min(sample.ts, since.get(name, sample.ts))
    return since


def _came_and_gone(group: tuple[str, str], sample: Sample) -> tuple[set[str], set[str]]:
    """Newly connected ids, and those without a name that are gone."""
    if sample.before is None:
        return set(), set()
    before, now = sample.before.rows, sample.rows
    connected = {name for name, row in before.items() if row["connected"]}
    came = {name for name, row in now.items() if row["connected"]} - connected
    return came, {name for name in connected - now.keys() if is_unnamed(group, name)}


def is_unnamed(group: tuple[str, str], name: str) -> bool:
    """The ip of a connection."""
    return not name.startswith(f"{group[1]}:")


def join_names(group: tuple[str, str], stream: list[Sample]) -> dict[str, str]:
    """Gives rows under an ip to the name that it got, where the counters go on."""
    found: dict[str, str] = {}
    for place, sample in enumerate(stream):
        came, gone = _came_and_gone(group, sample)
        if len(came) != 1 or len(gone) != 1:
            continue
        (new,), (old,) = came, gone
        now, past = sample.rows[new], stream[place - 1].rows[old]
        counters = [*((now["state_ms"][s], past["state_ms"][s]) for s in STATES)]
        counters.append((now["transferred"], past["transferred"]))
        if is_unnamed(group, new) or any(one < other for one, other in counters):
            continue
        found[old] = new
        for earlier in reversed(stream[:place]):
            if earlier.boot != sample.boot or old not in earlier.rows or new in earlier.rows:
                break
            earlier.named_rows = {new if n == old else n: row for n, row in earlier.rows.items()}
    return found


def first_unnamed(group: tuple[str, str], stream: list[Sample], results: Sequence[Tables]) -> float:
    """The place of the first sample with a row under an ip; before all of them where one of the
    last 7 results has such a replica; infinite without any."""
    for day in results[-7:]:
        for row in day["replica_days"]:
            if (row["cluster"], row["broker"]) == group and is_unnamed(group, row["replica"]):
                return -1
    places = (
        place
        for place, sample in enumerate(stream)
        if any(is_unnamed(group, name) for name in sample.rows)
    )
    return next(places, math.inf)


def replicas_renamed(group: tuple[str, str], stream: list[Sample]) -> set[str]:
    """Ids that connections had before they got their names, and that have no row after that."""
    found: set[str] = set()
    for place, sample in enumerate(stream):
        if sample.before is None or sample.ts < sample.window.w0:
            continue
        came, gone = _came_and_gone(group, sample)
        if came and gone:
            found |= gone - {name for other in stream[place:] for name in other.rows}
    return found


def elsewhere(stream: list[Sample], replica: str) -> tuple[int, int] | None:
    """From when to when a master that another one passed over had this replica."""
    moments = [
        sample.ts
        for sample in stream
        if sample.passed_over and replica in sample.rows and sample.rows[replica]["connected"]
    ]
    return (min(moments), max(moments)) if moments else None


# -- the time it speaks for ------------------------------------------------------------------


def weighted(values: Sequence[tuple[int, float]]) -> Json:
    """Percentiles and max of (value, weight in ms); None where there is no weight."""
    values = sorted((value, weight) for value, weight in values if weight > 0)
    total = sum(weight for _, weight in values)
    figures: Json = dict.fromkeys([*QUANTILES, "max"])
    if not values:
        return figures
    for name, share in QUANTILES.items():
        weight_so_far: float = 0
        needed = share.numerator * total
        for value, weight in values:
            weight_so_far += weight
            if weight_so_far * share.denominator >= needed:
                figures[name] = value
                break
    figures["max"] = values[-1][0]
    return figures


def bucket_of(value: int) -> int:
    """The histogram bucket of a lag."""
    return 0 if value < 1 else 1 + math.floor(math.log(value) / math.log(1.02))


def histogram_of(values: Sequence[tuple[int, float]]) -> dict[int, float] | None:
    """Time in ms by bucket; None where there is none."""
    histogram: dict[int, float] = defaultdict(int)
    for value, weight in values:
        if weight > 0:
            histogram[bucket_of(value)] += weight
    return dict(histogram) or None


# -- counters --------------------------------------------------------------------------------


def difference(sample: Sample, now: int, before: int | None) -> int:
    """Of a counter, up to this sample; what its predecessor lacks began at 0."""
    if sample.same_boot:
        return now - (before or 0)
    return now if sample.from_zero else 0


def rise(sample: Sample, now: int | None, before: int | None) -> int:
    """How far a counter rose up to this sample, never below 0."""
    return 0 if now is None else max(0, difference(sample, now, before))


def rise_of_row(sample: Sample, replica: str, name: str) -> int:
    row, before = sample.row(replica), None
    if sample.same_boot and sample.predecessor is not None:
        before = sample.predecessor.row(replica)
    return rise(sample, row[name] if row else None, before[name] if before else None)


def rise_of_field(sample: Sample, name: str) -> int:
    before = sample.predecessor.line[name] if sample.predecessor else None
    return rise(sample, sample.line[name], before)
