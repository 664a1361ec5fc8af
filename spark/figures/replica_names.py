"""Which replicas a group has on a date, and from when on each is missed.

Runs in the executors, over a group's samples and stored rows. The rules are in docs/sla_report.md
("Replicas"). Must not know figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark.figures.report_context import Context
from spark.figures.sample_stream import GroupSamples, Sample, Stream
from spark.figures.time_pieces import NEVER

_REMEMBERED_RESULTS: Final = 7
_ALWAYS: Final = 0


@dataclass(frozen=True, slots=True)
class KnownReplica:
    """From `known_ms` on its row is missed; `copy_since_ms`: begin of a first copy that may still
    be running."""

    known_ms: int
    copy_since_ms: int | None


def known_replicas(
    group: tuple[str, str],
    samples: GroupSamples,
    stored: Mapping[str, Sequence[Mapping[str, Any]]],
    context: Context,
) -> list[tuple[str, KnownReplica]]:
    """The replicas of the date, by name."""
    day, sla = context.day, context.sla
    seen, renamed = _seen(group, samples.masters, day.w1_ms)
    results = set(context.result_dates[-_REMEMBERED_RESULTS:])
    known: dict[str, int] = {}

    def add(name: str, known_ms: int) -> None:
        known[name] = min(known_ms, known.get(name, known_ms))

    last_rows: dict[str, Mapping[str, Any]] = {}
    for row in sorted(stored["replica_days"], key=lambda row: str(row["dt"])):
        name, date = row["replica"], row["dt"]
        if name not in renamed and date in results:
            add(name, _ALWAYS)
            last_rows[name] = row
        elif name not in renamed and date == str(day.date):
            add(name, NEVER)
    for expected in sla.expect:
        if (expected.cluster, expected.broker) == group:
            add(expected.replica, _ALWAYS)
    for name, ts in seen.items():
        add(name, ts)
    for number, slave in samples.slaves.items():
        if number and slave.inside:
            add(f"{group[1]}:{number}", NEVER)
    found = []
    for name in sorted(known):
        if not any(each.matches(*group, name) for each in sla.retired):
            last = last_rows.get(name)
            copy_ms = last.get("first_copy_since_ms") if last is not None else None
            if day.w0_ms < known[name] < day.w1_ms:
                copy_ms = known[name]
            found.append((name, KnownReplica(known[name], copy_ms)))
    return found


def _seen(group: tuple[str, str], stream: Stream, w1_ms: int) -> tuple[dict[str, int], set[str]]:
    """Names of rows, each with the ts of the first one; and the names that connections had before
    they got their own."""
    looked_at = _looked_at(stream, w1_ms)
    since: dict[str, int] = {}
    last: dict[str, int] = {}
    gone: dict[str, int] = {}
    for place, sample in enumerate(looked_at):
        before = sample.boot_predecessor
        if before is not None and not before.rows.keys() <= sample.rows.keys():
            for name in _renamed(group, before, sample):
                gone[name] = place
        for name in sample.rows:
            last[name] = place
            if name not in since or sample.ts < since[name]:
                since[name] = sample.ts
    names = {name: ts for name, ts in since.items() if last[name] > gone.get(name, -1)}
    return names, gone.keys() - names.keys()


def _looked_at(stream: Stream, w1_ms: int) -> list[Sample]:
    """The samples of the window, the last one before it, and the closing ones of lives that began
    before its end."""
    closing = [sample for sample in stream.closing if sample.line.boot_ts < w1_ms]
    before = [s for s in stream.samples if not s.in_window and s.ts < w1_ms]
    return [*before[-1:], *stream.inside, *closing]


def _renamed(group: tuple[str, str], before: Sample, sample: Sample) -> list[str]:
    """Names of connected rows that this sample lacks, where another row is newly connected."""
    connected = {name for name, row in before.rows.items() if row.connected}
    came = {name for name, row in sample.rows.items() if row.connected} - connected
    return [
        name
        for name in connected - sample.rows.keys()
        if came and not name.startswith(f"{group[1]}:")
    ]
