"""Which replicas a group has on a date, and from when on each is missed.

Runs in the executors, over a group's samples and stored rows. A slave goes by the ip of its
connection until it is named: `join_names` gives the rows of that time to the name, where the
counters show whose they are. The rules are in docs/sla_report.md ("Replicas"). Must not know
figures.

Tested by tests/spark/figures/test_lives_and_names.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark.dumps.dump_line import ReplicaRow
from spark.figures.report_context import Context
from spark.figures.sample_stream import GroupSamples, Sample, Stream
from spark.figures.spells import led_epoch
from spark.figures.time_pieces import NEVER

MOST_REPLICAS: Final = 256
"""That are reported of a group and date: fifty times what groups of RocketMQ have. Dumps may name
anything, and 30 stored days of so many are as much memory as a group is meant to take."""
_REMEMBERED_RESULTS: Final = 7
_ALWAYS: Final = 0

Place = tuple[int, str, int]
"""Of a sample in the order of its stream."""
BEFORE_ALL: Final[Place] = (-1, "", 0)


@dataclass(frozen=True, slots=True)
class KnownReplica:
    """From `known_ms` on its row is missed; `copy_since_ms`: begin of a first copy that may still
    be running; `unnamed_since`: from this sample on it may have been there under an ip."""

    known_ms: int
    copy_since_ms: int | None
    unnamed_since: Place | None


def place_of(sample: Sample) -> Place:
    """Its boot's begin, its boot, its number."""
    return sample.line.boot_ts, sample.line.boot, sample.line.seq


def join_names(group: tuple[str, str], stream: Stream) -> dict[str, str]:
    """Rows under the ip that a replica had before it was named become rows of its name, back to the
    first of them in that boot. Returns which ids became which names."""
    found: dict[str, str] = {}
    for place, sample in enumerate(stream.samples):
        before = sample.boot_predecessor
        if before is None or before.rows.keys() <= sample.rows.keys():
            continue
        gone, came = _renamed(group, before, sample), _came(before, sample)
        if len(gone) != 1 or len(came) != 1 or is_unnamed(group, came[0]):
            continue
        if _goes_on(before.rows[gone[0]], sample.rows[came[0]]):
            found[gone[0]] = came[0]
            _rename(stream.samples, place - 1, gone[0], came[0])
    return found


def _goes_on(past: ReplicaRow, now: ReplicaRow) -> bool:
    """Whether counters may be those of the other row: what is named takes them along."""
    return (
        now.state_ms.in_sync >= past.state_ms.in_sync
        and now.state_ms.catching_up >= past.state_ms.catching_up
        and now.state_ms.disconnected >= past.state_ms.disconnected
        and now.transferred >= past.transferred
    )


def _rename(samples: Sequence[Sample], place: int, old: str, new: str) -> None:
    """In that sample and those before it, as far as they are of its boot and have `old` alone."""
    boot = samples[place].line.boot
    while place >= 0 and samples[place].line.boot == boot:
        rows = samples[place].rows
        if old not in rows or new in rows:
            return
        samples[place].rows = {new if name == old else name: row for name, row in rows.items()}
        place -= 1


def unnamed_since(
    group: tuple[str, str],
    stream: Stream,
    stored: Mapping[str, Sequence[Mapping[str, Any]]],
    result_dates: Sequence[str],
) -> Place | None:
    """The first sample from which on a replica may have been there without its name: one with a
    row under an ip, or before all of them if an earlier result has one."""
    results = set(result_dates[-_REMEMBERED_RESULTS:])
    for row in stored["replica_days"]:
        if row["dt"] in results and is_unnamed(group, row["replica"]):
            return BEFORE_ALL
    for sample in stream.samples:
        if any(is_unnamed(group, name) for name in sample.rows):
            return place_of(sample)
    return None


def is_unnamed(group: tuple[str, str], replica: str) -> bool:
    """Whether an id is that of a connection whose name is not known."""
    return not replica.startswith(f"{group[1]}:")


def known_replicas(
    group: tuple[str, str],
    samples: GroupSamples,
    stored: Mapping[str, Sequence[Mapping[str, Any]]],
    context: Context,
) -> tuple[list[tuple[str, KnownReplica]], list[str]]:
    """The replicas of the date, by name, MOST_REPLICAS at most; and the names of the others. Rows
    are joined by name."""
    day, sla = context.day, context.sla
    seen, renamed, counts = _seen(group, samples.masters, day.w1_ms)
    since = unnamed_since(group, samples.masters, stored, context.result_dates)
    named = {old: new for old, new in samples.named.items() if old not in seen}
    results = set(context.result_dates[-_REMEMBERED_RESULTS:])
    known: dict[str, int] = {}

    def add(name: str, known_ms: int) -> None:
        known[name] = min(known_ms, known.get(name, known_ms))

    last_rows: dict[str, Mapping[str, Any]] = {}
    for row in sorted(stored["replica_days"], key=lambda row: str(row["dt"])):
        name, date = named.get(row["replica"], row["replica"]), row["dt"]
        if name not in renamed and date in results:
            add(name, _ALWAYS)
            last_rows[name] = row
        elif name not in renamed and date == str(day.date):
            add(name, NEVER)
    expected = {each.replica for each in sla.expect if (each.cluster, each.broker) == group}
    for name in expected:
        add(name, _ALWAYS)
    for name, ts in seen.items():
        add(name, ts)
    for number, slave in samples.slaves.items():
        if number and slave.inside:
            add(f"{group[1]}:{number}", NEVER)
    led = _led(group, samples.masters) if samples.has_members else {}
    for name, (ts, is_over) in led.items():
        if name in known or is_over:
            add(name, ts)
    first_rows = _first_rows(samples.masters)
    asked = [name for name in known if not any(each.matches(*group, name) for each in sla.retired)]
    # Of too many the real ones: names that somebody makes up are in a few lines each.
    asked.sort(key=lambda name: (name not in expected, name not in last_rows, -counts[name], name))
    found = []
    for name in sorted(asked[:MOST_REPLICAS]):
        last = last_rows.get(name)
        copy_ms = last.get("first_copy_since_ms") if last is not None else None
        if day.w0_ms < known[name] < day.w1_ms:
            is_first = since is None or since >= first_rows.get(name, since)
            has_led = name in led and led[name][0] <= known[name]
            copy_ms = known[name] if is_first and not has_led else None
        found.append((name, KnownReplica(known[name], copy_ms, since)))
    return found, asked[MOST_REPLICAS:]


def _led(group: tuple[str, str], stream: Stream) -> dict[str, tuple[int, bool]]:
    """Replicas whose brokers led in a group with a controller, each with its first moment as
    leader, and whether another one leads behind its last: from then on it is one."""
    found: dict[str, tuple[int, bool]] = {}
    latest = None
    for sample in stream.samples:
        if led_epoch(sample.line) is not None:
            latest = f"{group[1]}:{sample.line.broker_id}"
            found.setdefault(latest, (sample.start_ms, True))
    return {name: (ts, name != latest) for name, (ts, _) in found.items()}


def _seen(
    group: tuple[str, str], stream: Stream, w1_ms: int
) -> tuple[dict[str, int], set[str], Counter[str]]:
    """Names of rows, each with the ts of the first one; the names that connections had before they
    got their own; and how many lines have which name."""
    looked_at = _looked_at(stream, w1_ms)
    since: dict[str, int] = {}
    last: dict[str, int] = {}
    gone: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for place, sample in enumerate(looked_at):
        before = sample.boot_predecessor
        if before is not None and not before.rows.keys() <= sample.rows.keys():
            for name in _renamed(group, before, sample):
                gone[name] = place
        counts.update(sample.rows.keys())
        for name in sample.rows:
            last[name] = place
            if name not in since or sample.ts < since[name]:
                since[name] = sample.ts
    names = {name: ts for name, ts in since.items() if last[name] > gone.get(name, -1)}
    return names, gone.keys() - names.keys(), counts


def _first_rows(stream: Stream) -> dict[str, Place]:
    """Name -> the first sample with its row."""
    found: dict[str, Place] = {}
    for sample in stream.samples:
        for name in sample.rows:
            if name not in found:
                found[name] = place_of(sample)
    return found


def _looked_at(stream: Stream, w1_ms: int) -> list[Sample]:
    """The samples of the window, one before it, and the closing ones of lives that began before
    its end."""
    closing = [sample for sample in stream.closing if sample.line.boot_ts < w1_ms]
    before = [s for s in stream.samples if not s.in_window and s.ts < w1_ms]
    return [*_last_with_replicas(before), *stream.inside, *closing]


def _last_with_replicas(before: Sequence[Sample]) -> Sequence[Sample]:
    """The last sample of the last life that had rows. One without any has only just begun, or its
    replicas are not back; a life that had some, and has none at its end, has forgotten them."""
    boots_with_rows = {sample.line.boot for sample in before if sample.rows}
    return [sample for sample in before if sample.line.boot in boots_with_rows][-1:]


def _renamed(group: tuple[str, str], before: Sample, sample: Sample) -> list[str]:
    """Names of connected rows that this sample lacks, where another row is newly connected."""
    if not _came(before, sample):
        return []
    return [
        name
        for name, row in before.rows.items()
        if row.connected and name not in sample.rows and is_unnamed(group, name)
    ]


def _came(before: Sample, sample: Sample) -> list[str]:
    """Names of the rows that are newly connected."""
    connected = {name for name, row in before.rows.items() if row.connected}
    return [name for name, row in sample.rows.items() if row.connected and name not in connected]
