"""The nightly report once more, slow and obvious: how consumer groups lagged.

Standard library only, like plain_report.py, which uses this; docs/sla_report.md, "Consumer lag".
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tests.spark.plain_samples import Json, Sample, Window

KINDS = ("age", "messages")
SIDES = ("within", "beyond")
Pair = tuple[Sample, Sample]


@dataclass(frozen=True)
class PlainLag:
    """A promise."""

    group: str
    topic: str = "*"
    seconds: int | None = None
    messages: int | None = None
    percent: float | None = None


def lag_rows(stream: list[Sample], window: Window) -> list[Json]:
    """Of table consumer_lag, without verdicts."""
    told = [s for s in stream if s.is_line and s.line.get("groups")]
    if not told:
        return []
    le = _bounds(told[-1])
    inside = [s for s in told if s.in_window]
    keys = sorted({key for s in inside for key in _rows(s)})
    pairs = [(s.predecessor, s) for s in told if _goes_on(s)]
    return [
        _row(key, inside, [p for p in pairs if _bounds(p[1]) == le], stream, window, pairs)
        for key in keys
    ]


def most_left_out(stream: list[Sample]) -> int:
    """Of a line of the window."""
    told = (s.line.get("groups") for s in stream if s.is_line and s.in_window)
    return max((groups["left_out"] for groups in told if groups), default=0)


def _rows(sample: Sample) -> dict[tuple[str, str], Json]:
    rows = reversed(sample.line["groups"]["rows"])
    return {(row["group"], row["topic"]): row for row in rows}


def _bounds(sample: Sample) -> tuple[list[int], list[int]]:
    return sample.line["groups"]["age_le"], sample.line["groups"]["messages_le"]


def _goes_on(sample: Sample) -> bool:
    before = sample.before
    if before is None or not before.is_line or not before.line.get("groups"):
        return False
    is_even = abs(sample.ts - before.ts - (sample.mono - before.mono)) <= 50
    is_whole = sample.mono - before.mono - (sample.ts - sample.start) <= 50
    is_same = _bounds(sample) == _bounds(before)
    return is_even and is_whole and is_same and not sample.hidden_ms


def _row(
    key: tuple[str, str],
    inside: list[Sample],
    pairs: list[Pair],
    stream: list[Sample],
    window: Window,
    every: list[Pair],
) -> Json:
    own = [_rows(s)[key] for s in inside if key in _rows(s)]
    absent = sum(
        _part(b.start, b.ts, window)
        for a, b in every
        if not a.line["groups"]["left_out"]
        and not b.line["groups"]["left_out"]
        and key not in _rows(a)
        and key not in _rows(b)
    )
    ages = [row["age_ms"] for row in own if row["age_ms"] is not None]
    row: Json = {
        "consumer_group": key[0],
        "topic": key[1],
        "window_s": window.length_ms / 1000,
        "absent_s": absent / 1000,
        "lines": len(own),
        "messages_max": max(row["messages"] for row in own),
        "age_max_ms": max(ages, default=None),
    }
    runs = [run for run in _runs(key, pairs) if _is_possible(key, run)]
    silent = max(0, window.length_ms - absent - sum(_wall(key, run, window)[0] for run in runs))
    silent += sum(s.hidden_ms for s in stream if s.in_window)
    for s in stream:
        if not s.same_boot:
            silent += max(0, s.hidden_down_ms - max(0, window.w0 - s.boot_ts), s.carried_ms)
    le = _bounds(pairs[-1][1] if pairs else inside[-1])
    for kind, bounds in zip(KINDS, le, strict=True):
        row[f"{kind}_le"] = bounds
        for side in SIDES:
            row[f"{kind}_{side}_ms"] = [
                sum(_counted(key, run, f"{kind}_{side}", place, window) for run in runs)
                for place in range(len(bounds))
            ]
        passed = sum(max(0, _passed(key, run) - _wall(key, run, window)[1]) for run in runs)
        row[f"{kind}_unknown_ms"] = [
            silent + max(0, passed - a - b)
            for a, b in zip(row[f"{kind}_within_ms"], row[f"{kind}_beyond_ms"], strict=True)
        ]
    return row


def _runs(key: tuple[str, str], pairs: list[Pair]) -> Iterator[Pair]:
    """First and last sample of each; the pair over an edge of the window is one of its own."""
    run: Pair | None = None
    for a, b in pairs:
        if key not in _rows(a) or key not in _rows(b) or not _rises(_rows(a)[key], _rows(b)[key]):
            continue
        is_edge = _is_inside(a, key) != _is_inside(b, key)
        was_edge = run is not None and _is_inside(run[0], key) != _is_inside(run[1], key)
        if run is not None and run[1] is a and not is_edge and not was_edge:
            run = run[0], b
            continue
        if run is not None:
            yield run
        run = a, b
    if run is not None:
        yield run


def _is_inside(sample: Sample, key: tuple[str, str]) -> bool:
    """Whether its look was in the window."""
    look: int = sample.ts - _rows(sample)[key]["looked_ms"]
    return sample.window.w0 <= look < sample.window.w1


def _rises(now: Json, later: Json) -> bool:
    names = [f"{kind}_{side}" for kind, side in itertools.product(KINDS, SIDES)]
    return all(a <= b for name in names for a, b in zip(now[name], later[name], strict=True))


def _is_possible(key: tuple[str, str], run: Pair) -> bool:
    first, last = (_rows(sample)[key] for sample in run)
    for kind in KINDS:
        for a, b, c, d in zip(
            first[f"{kind}_within"],
            first[f"{kind}_beyond"],
            last[f"{kind}_within"],
            last[f"{kind}_beyond"],
            strict=True,
        ):
            if c - a + d - b > _passed(key, run) + 1_000:
                return False
    return True


def _wall(key: tuple[str, str], run: Pair, window: Window) -> tuple[int, int]:
    """Of the time that it counted: what lies in the window, and what does not."""
    first, last = (_rows(sample)[key]["looked_ms"] for sample in run)
    start = max(run[0].start, run[0].ts - first)
    end = max(start, run[1].ts - last)
    inside = _part(start, end, window)
    return inside, max(end - start, _passed(key, run)) - inside


def _passed(key: tuple[str, str], run: Pair) -> int:
    first, last = (_rows(sample)[key]["looked_ms"] for sample in run)
    return int(max(0, run[1].mono - run[0].mono + first - last))


def _counted(key: tuple[str, str], run: Pair, name: str, place: int, window: Window) -> int:
    rise = _rows(run[1])[key][name][place] - _rows(run[0])[key][name][place]
    return int(max(0, rise - max(0, _wall(key, run, window)[1])))


def _part(start: float, end: float, window: Window) -> int:
    return int(max(0, min(end, window.w1) - max(start, window.w0)))


def lag_verdicts(
    promises: tuple[PlainLag, ...], percent: float, rows: list[Json], left_out: int
) -> Iterator[tuple[Json | None, str]]:
    """(row, verdict) of each promise; without a row where nobody is meant, or all may not be."""
    for wanted in promises:
        meant = [
            row
            for row in rows
            if fnmatch.fnmatchcase(row["consumer_group"], wanted.group)
            and fnmatch.fnmatchcase(row["topic"], wanted.topic)
        ]
        is_wild = any(letter in wanted.group + wanted.topic for letter in "*?|")
        if not meant or (left_out and is_wild):
            yield None, "insufficient data"
        allowed = 100 - (percent if wanted.percent is None else wanted.percent)
        for row in meant:
            asked = (row["window_s"] - row["absent_s"]) * 1000
            most = round(allowed * asked / 100, 3)
            seconds, messages = wanted.seconds, wanted.messages
            for kind, limit in (("age", seconds and seconds * 1000), ("messages", messages)):
                if limit is not None:
                    yield row, _verdict(row, kind, limit, most)


def _verdict(row: Json, kind: str, limit: int, most: float) -> str:
    if limit not in row[f"{kind}_le"]:
        return "insufficient data"
    place = row[f"{kind}_le"].index(limit)
    beyond, unknown = row[f"{kind}_beyond_ms"][place], row[f"{kind}_unknown_ms"][place]
    if beyond > most:
        return "breached"
    return "met" if beyond + unknown <= most else "insufficient data"
