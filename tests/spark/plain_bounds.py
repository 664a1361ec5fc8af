"""The nightly report once more, slow and obvious: what is proved from both sides.

Standard library only, like plain_report.py, which uses this: docs/sla_report.md, "Two masters at
once", "Sends that nobody counted", "Data at risk", "The lag", "Metadata". Every figure is asked of
each sample anew, by looking back and ahead over the whole stream.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from tests.spark.plain_samples import (
    SEND_RESULTS,
    SYNC_RESULTS,
    Json,
    Sample,
    Window,
    rise_of_uptime,
)

CLOCKS_MS: Final = 1_000
LEAST_RECORD: Final = 91
MOST_SENDS_A_MS: Final = 1_000
REST_MS: Final = 1_000
HAIR_MS: Final = 10
SEEN_AGO_MS: Final = 1_000
"""What a line shows process `ha` may have seen so long before."""
FAILURES: Final = ("flush_slave_timeout", "slave_not_available", "flush_disk_timeout")

Span = tuple[float, float]
SWITCHED_MS = 60_000
"""A master may be promoted for longer after another one, but a third may have been in between."""


class Past:
    """Which boot comes from which; of all samples of a group, masters' and slaves'."""

    def __init__(self, samples: Iterable[Sample], begins: Iterable[Sample] = ()) -> None:
        """`begins`: the first lines of lives, also of those that are in no stream."""
        self.parents: dict[str, tuple[str | None, int | None]] = {}
        self.lasts: dict[str, int] = defaultdict(int)
        self.begins = [*begins]
        for sample in [*samples, *self.begins]:
            self.parents[sample.boot] = (sample.line.get("prev_boot"), sample.line.get("prev_seq"))
            self.lasts[sample.boot] = max(self.lasts[sample.boot], sample.seq)

    def ancestors(self, boot: str) -> set[str]:
        """All earlier lives of its broker, as far as the chain is whole."""
        found: set[str] = set()
        while boot in self.parents:
            parent, seq = self.parents[boot]
            if parent is None or parent in found or self.lasts[parent] > (seq or 0):
                break
            found.add(parent)
            boot = parent
        return found

    def continues(self, sample: Sample) -> bool:
        """A first sample of a boot that comes from the life before it in the stream."""
        before = sample.predecessor
        if before is None or sample.line.get("prev_boot") != before.boot:
            return False
        return bool((sample.line.get("prev_seq") or 0) >= before.seq)

    def returned(self, sample: Sample) -> Sample | None:
        """The next life of the broker whose life is before this first sample of a boot: its own, or
        one that came back after another broker had been promoted, whose former life is known."""
        before = sample.predecessor
        if before is None or self.continues(sample):
            return sample if before is not None else None
        some = [s for s in self.begins if s.line.get("prev_boot") == before.boot]
        was_slave = sample.line.get("prev_boot")
        if sample.seq > 1 or len(some) != 1 or was_slave not in self.parents:
            return None
        is_next = (some[0].line.get("prev_seq") or 0) >= before.seq
        own = {before.boot: some[0].boot, sample.boot: was_slave}
        is_between = some[0].boot in self.ancestors(sample.boot)
        if is_between or sample.boot_ts - before.ts > SWITCHED_MS:
            return None
        return some[0] if is_next and all(a != b for a, b in own.items()) else None

    def is_counted(self, sample: Sample) -> bool:
        """Somebody tells what the life before it had counted when it died, and that can be."""
        before, after = sample.predecessor, self.returned(sample)
        ended = after.line.get("ended") if after is not None else None
        if before is None or after is None or ended is None:
            return False
        machine, old = after.line.get("machine_boot"), before.line
        if machine is None or machine != old.get("machine_boot") or not old.get("sends"):
            return False
        if ended["boot"] != before.boot or before.boot not in self.ancestors(after.boot):
            return False
        now, then = ended["sends"]["latency"], old["sends"]["latency"]
        if now["le"] == then["le"] and any(
            after < before for after, before in zip(now["counts"], then["counts"], strict=True)
        ):
            return False
        return all(
            ended[kind][name] >= old[kind][name]
            for kind, names in (("sync", SYNC_RESULTS), ("sends", SEND_RESULTS))
            for name in names
        )

    def is_orderly(self, sample: Sample) -> bool:
        """The life before it ended with its final line, as its broker's next one says."""
        before, after = sample.predecessor, self.returned(sample)
        if before is None or after is None or not before.final or after.seq > 1:
            return False
        return bool(after.line.get("prev_seq") == before.seq)


def two_masters(stream: list[Sample], past: Past, window: Window) -> list[Span]:
    """When two lives wrote as master, in the window; joined."""
    lives: dict[str, list[Sample]] = defaultdict(list)
    for sample in stream:
        lives[sample.boot].append(sample)
    spans: dict[str, Span] = {}
    for boot, life in lives.items():
        first = life[0]
        begin = min(first.ts, first.boot_ts) if first.seq == 1 else first.ts
        spans[boot] = begin, life[-1].ts
    found: list[Span] = []
    for one in spans:
        for other in spans:
            if one >= other or one in past.ancestors(other) or other in past.ancestors(one):
                continue
            start = max(spans[one][0], spans[other][0])
            end = min(spans[one][1], spans[other][1])
            if end - start > CLOCKS_MS:
                start, end = max(start, window.w0), min(end, window.w1)
                if start < end:
                    found.append((start, end))
    return joined(found)


def joined(spans: Iterable[Span]) -> list[Span]:
    """Ascending and apart from each other."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def without_ms(spans: Iterable[Span], window: Window) -> float:
    """How much of the window is in none of the spans."""
    inside = [(max(a, window.w0), min(b, window.w1)) for a, b in spans]
    return window.length_ms - sum(b - a for a, b in joined(s for s in inside if s[0] < s[1]))


def marked_since(sample: Sample) -> int | None:
    """Since when its marks count, by the wall clock."""
    since = sample.line.get("since")
    return None if since is None else int(sample.ts - (sample.mono - since))


def is_marked(sample: Sample) -> bool:
    """Its marks reach to the begin of its interval."""
    since = marked_since(sample)
    return since is not None and since <= sample.start - sample.hidden_ms + HAIR_MS


# -- sends -----------------------------------------------------------------------------------


def comes_back(sample: Sample, window: Window) -> bool:
    """A life seems to be of the window and the one before it behind that: a clock was wrong."""
    last = sample.predecessor
    return last is not None and sample.ts < window.w1 <= last.ts


def hidden_before(sample: Sample, window: Window) -> int:
    """How much of the window may lie before a boot, of which its clock shows nothing."""
    hidden = sample.hidden_down_ms - max(0, window.w0 - sample.boot_ts)
    return max(0, hidden, sample.carried_ms)


def true_ms(stream: list[Sample], place: int) -> int:
    """Its moment, by the monotonic clock: the wall clock may have been set forward."""
    same = [s for s in stream[: place + 1] if s.boot == stream[place].boot]
    return int(stream[place].mono + min(s.ts - s.mono for s in same))


def ends_at(stream: list[Sample], place: int, past: Past, window: Window) -> int:
    """Until when the life before the first sample of a boot may have answered: at most to that
    boot, unless both were masters at once."""
    sample, last = stream[place], stream[place - 1]
    begin = sample.ts if sample.seq > 1 else min(sample.boot_ts, sample.ts)
    is_sooner = true_ms(stream, place - 1) - begin > CLOCKS_MS
    is_open = is_sooner and last.in_window and not last.final
    if is_open and last.boot not in past.ancestors(sample.boot):
        return window.w1
    return begun_at(sample)


def begun_at(first: Sample) -> int:
    """When a boot began, at the latest, by its first sample: its lines since then took at least an
    interval each. If the clock shows more than one of them more, it may have been set forward."""
    lines_ms = (first.seq - 1) * first.interval_ms
    unexplained = first.ts - first.boot_ts - lines_ms
    return int(first.ts - lines_ms if unexplained > first.interval_ms else first.boot_ts)


def may_be_inside(stream: list[Sample], sample: Sample, window: Window) -> bool:
    """Another sample of its life shows that the clock of one before the window was behind, by so
    much that it may be in it."""
    if sample.ts >= window.w0:
        return False
    later = sample.mono + max(s.ts - s.mono for s in stream if s.boot == sample.boot)
    return bool(later - sample.ts > CLOCKS_MS and later >= window.w0)


def sends(stream: list[Sample], past: Past, window: Window) -> Json:
    """Counts of synchronous sends, least and most."""
    sums = dict.fromkeys(("ok_least", "ok_most", "failed_least", "failed_most"), 0)

    def gap(start: int, end: int) -> int:
        return max(0, min(end, window.w1) - max(start, window.w0)) * MOST_SENDS_A_MS

    def unknown(count: int) -> None:
        sums["ok_most"] += count
        sums["failed_most"] += count

    came_in: set[str] = set()

    for place, sample in enumerate(stream):
        earlier = sample.before.sync if sample.before is not None else {}
        ok = max(0, sample.sync["ok"] - earlier.get("ok", 0))
        failed = sum(max(0, sample.sync[name] - earlier.get(name, 0)) for name in FAILURES)
        since = sample.before.ts if sample.before is not None else sample.boot_ts
        if sample.before is None and not sample.from_zero:
            since = window.w0 - 1
        is_before = sample.ts < window.w0 and since < window.w0 and sample.boot not in came_in
        is_behind = sample.ts >= window.w1 and since >= window.w1
        came_in |= {sample.boot} if sample.in_window else set()
        if sample.before is None and sample.ts < window.w0:
            is_before = True
        if is_before and may_be_inside(stream, sample, window):
            is_before = False
        if not is_before and not is_behind:
            sums["ok_most"] += ok
            sums["failed_most"] += failed
            if window.w0 <= since < window.w1 and sample.in_window:
                sums["ok_least"] += ok
                sums["failed_least"] += failed
        if sample.before is not None:
            continue
        last = sample.predecessor
        if sample.shows_more and sample.ts >= window.w1:
            unknown(gap(true_ms(stream, place - 1), window.w1))
        if last is None:
            hidden = hidden_before(sample, window)
            unknown(gap(window.w0, begun_at(sample)) + hidden * MOST_SENDS_A_MS)
        elif past.is_orderly(sample) or not (
            comes_back(sample, window)
            or (
                true_ms(stream, place - 1) < window.w1
                and (
                    ends_at(stream, place, past, window) > window.w0
                    or hidden_before(sample, window) > 0
                )
            )
        ):
            continue
        elif past.is_counted(sample):
            after = past.returned(sample)
            assert after is not None
            end = after.line["ended"]["sync"]
            rose = {name: end[name] - last.sync[name] for name in ("ok", *FAILURES)}
            failed = sum(rose[name] for name in FAILURES)
            sums["ok_most"] += rose["ok"]
            sums["failed_most"] += failed
            within = window.w0 <= after.boot_ts < window.w1 and not after.hidden_down_ms
            if within and last.in_window and after.in_window:
                sums["ok_least"] += rose["ok"]
                sums["failed_least"] += failed
        elif comes_back(sample, window):
            unknown(gap(window.w0, window.w1))
        else:
            most = gap(true_ms(stream, place - 1), ends_at(stream, place, past, window))
            most = max(most, last.interval_ms * MOST_SENDS_A_MS)
            most += hidden_before(sample, window) * MOST_SENDS_A_MS
            if past.continues(sample):
                life = [s for s in stream[place : place + 20] if s.boot == sample.boot]
                for opened in [s for s in life if s.max_offset][:1]:
                    grown = opened.max_offset - opened.bytes_in - last.max_offset
                    most = min(most, max(0, grown) // LEAST_RECORD)
            unknown(most)
    if stream:
        unknown(gap(true_ms(stream, len(stream) - 1), window.w1))
    return {f"sync_{name}": count for name, count in sums.items()}


# -- data at risk ------------------------------------------------------------------------------


def stood_at(stream: list[Sample], boot: str) -> int | None:
    """Where the furthest replica stood, at least, when the boot first heard of any."""
    rows = next((list(s.rows.values()) for s in stream if s.boot == boot and s.rows), [])
    return max((row["ack_offset"] - row["transferred"] for row in rows), default=None)


def at_risk(sample: Sample, stood: int | None) -> tuple[int | None, int | None]:
    """Bytes and age at a sample."""
    size, age = sample.line["unreplicated_bytes"], sample.line["oldest_unreplicated_ms"]
    if size is None or stood is None or sample.rows:
        return size, age
    return min(size, max(0, sample.max_offset - stood)), None


def exposure(stream: list[Sample], past: Past, window: Window) -> Json:
    """What was at risk: at least, at most, and how long nobody knows."""
    logs = _logs(stream, past)
    least: list[int] = []
    most: list[int] = []
    spans: list[Span] = []
    lost = 0
    stood = {boot: stood_at(stream, boot) for boot in {sample.boot for sample in stream}}
    acks, ends = _acked(stream, logs, stood), _log_ends(stream, logs)

    def bound(start: float, end: float, bytes_: int | None) -> None:
        if bytes_ is not None and max(start, window.w0) < min(end, window.w1):
            spans.append((start, end))
            most.append(bytes_)

    had_at_last: int | None = None
    for place, sample in enumerate(stream):
        same = sample.same_boot or past.continues(sample)
        last = sample.predecessor
        acked, end, grown = acks[place], ends[place], None
        if end is not None:
            if same and last is not None:
                end = max(end, last.max_offset)
            kept = (sample.before or sample).min_offset
            grown = max(0, end - max(kept, kept if acked is None else acked))
        if last is not None and not sample.same_boot and not sample.shows_more:
            until = min(sample.boot_ts, sample.ts)
            if same:
                bound(last.ts, until, grown)
            elif past.is_orderly(sample):
                had = had_at_last if had_at_last is not None else 0
                bound(last.ts, until, max(0, last.max_offset - max(last.min_offset, had)))
        had_at_last = _acked_with(sample, acked)
        known = [each for each in (grown, _by_marks(sample)) if each is not None]
        bound(sample.start, sample.ts, min(known, default=None))
        if sample.in_window or (sample.before is not None and sample.before.in_window):
            most += [min(known)] if known else []
            lost += not known
        if sample.in_window and sample.ts >= window.w0 + SEEN_AGO_MS:
            least += _proved(stream, sample, window)
    return {
        "exposure_at_least": max(least, default=None),
        "exposure_at_most": max(most, default=None),
        "exposure_unmarked": sum(s.in_window and s.line.get("exposure") is None for s in stream),
        "exposure_unbounded_s": max(lost, without_ms(spans, window)) / 1000,
    }


def _logs(stream: list[Sample], past: Past) -> list[int]:
    """A number for each sample: the same for those of one log."""
    numbers: list[int] = []
    for sample in stream:
        last = numbers[-1] if numbers else 0
        same = sample.same_boot or past.continues(sample)
        numbers.append(last if same and numbers else last + 1)
    return numbers


def _acked(stream: list[Sample], logs: list[int], stood: dict[str, int | None]) -> list[int | None]:
    """Up to where some replica had the log before each sample's interval, at least."""
    best: dict[int, int | None] = {}
    found: list[int | None] = []
    begun: dict[int, str] = {}
    opened: set[str] = set()
    for sample, log in zip(stream, logs, strict=True):
        known = best.setdefault(log, stood[sample.boot])
        is_first_life = begun.setdefault(log, sample.boot) == sample.boot
        if sample.max_offset and sample.boot not in opened:
            opened.add(sample.boot)
            if not is_first_life and known is not None:  # recovery may have cut the log
                best[log] = known = min(known, max(0, sample.max_offset - sample.bytes_in))
        found.append(known)
        if sample.max_offset and sample.rows:
            furthest = max(row["ack_offset"] for row in sample.rows.values())
            position = min(furthest, sample.max_offset)
            best[log] = position if known is None else max(position, known)
    return found


def _acked_with(sample: Sample, acked: int | None) -> int | None:
    """The same behind the sample, whose own rows tell, too."""
    if not sample.max_offset or not sample.rows:
        return acked
    furthest = min(sample.max_offset, max(row["ack_offset"] for row in sample.rows.values()))
    return furthest if acked is None else max(acked, furthest)


def _log_ends(stream: list[Sample], logs: list[int]) -> list[int | None]:
    """Where the log ended at each sample, or at the next one that knows it."""
    found: list[int | None] = []
    for sample, log in zip(reversed(stream), reversed(logs), strict=True):
        later = found[-1] if found and logs[len(stream) - len(found)] == log else None
        found.append(sample.max_offset or later)
    return found[::-1]


def _by_marks(sample: Sample) -> int | None:
    mark: Json | None = sample.line.get("exposure")
    if mark is None:
        return None
    if is_marked(sample):
        return int(mark["bytes_at_most"])
    earlier = sample.before.line.get("exposure") if sample.before is not None else None
    if earlier is None or earlier["le"] != mark["le"]:
        return None
    if len(earlier["counts"]) != len(mark["counts"]):
        return None
    largest = mark["bytes_at_most"]
    for place, (now, then) in enumerate(zip(mark["counts"], earlier["counts"], strict=True)):
        if now > then:
            if place == len(mark["le"]):
                return None
            largest = max(largest, mark["le"][place])
    return int(largest)


def _proved(stream: list[Sample], sample: Sample, window: Window) -> list[int]:
    size, mark = sample.line["unreplicated_bytes"], sample.line.get("exposure")
    if not sample.rows:
        own = [s.max_offset for s in stream if s.boot == sample.boot and s.max_offset]
        is_open = any(s.max_offset for s in stream if s.boot == sample.boot and s.seq <= sample.seq)
        if not is_open or size is None:
            return []
        return [min(size, max(0, sample.max_offset - own[0]))]
    found = [] if size is None else [size]
    since = marked_since(sample)
    if mark is None or since is None or since < window.w0:
        return found
    had_rows = sample.before is not None and bool(sample.before.rows)
    return [*found, mark["bytes_at_least"]] if had_rows else found


# -- the lag -----------------------------------------------------------------------------------


def counted_lag(sample: Sample, name: str, limit: float) -> tuple[int, int] | None:
    """Time in sync with a lag within the limit, and above it, by `lag_time`."""
    row, bounds = sample.row(name), sample.line.get("lag_le")
    if row is None or not bounds or len(row.get("lag_time") or []) != len(bounds) + 1:
        return None
    earlier = [0] * (len(bounds) + 1)
    if sample.before is not None:
        row_before = sample.before.row(name)
        if row_before is None or sample.before.line.get("lag_le") != bounds:
            return None
        earlier = row_before.get("lag_time") or []
        if len(earlier) != len(bounds) + 1:
            return None
    elif not sample.from_zero:
        return None
    rises = [max(0, now - then) for now, then in zip(row["lag_time"], earlier, strict=True)]
    below = sum(ms for ms, bound in zip(rises, bounds, strict=False) if bound <= limit)
    above = sum(ms for ms, bound in zip(rises[1:], bounds, strict=True) if bound >= limit)
    return below, above


def never_above(sample: Sample, row: Json, limit: float) -> bool:
    """The line's mark says so of its whole interval."""
    largest = row.get("lag_ms_max")
    return largest is not None and largest <= limit and is_marked(sample)


def hidden_doubt(sample: Sample, name: str, limit: float) -> int:
    """What has no room by the wall clock, unless it was in sync throughout and within the limit."""
    row, before = sample.row(name), sample.before
    past = before.row(name) if before is not None else None
    if row is None or past is None or not sample.hidden_ms:
        return sample.hidden_ms
    rises = {state: ms - past["state_ms"][state] for state, ms in row["state_ms"].items()}
    if row["state"] != "in_sync" or past["state"] != "in_sync":
        return sample.hidden_ms
    if rises["disconnected"] or rises["catching_up"]:
        return sample.hidden_ms
    if rises["in_sync"] < sample.mono_ms - REST_MS:
        return sample.hidden_ms
    if row.get("lag_ms_max") is not None:
        return 0 if never_above(sample, row, limit) else sample.hidden_ms
    is_sure = past["lag_exact"] or past["lag_bytes"] == 0
    return 0 if is_sure and past["lag_ms"] + sample.mono_ms <= limit else sample.hidden_ms


def lag_above(
    stream: list[Sample], name: str, limit: float, left_out: Sequence[Span], window: Window
) -> Json:
    """The columns of lag p99. `left_out`: excluded, or the master down."""
    asked = window.length_ms - sum(b - a for a, b in left_out)
    above_ms = below_ms = 0.0
    neighbours: list[int] | None = None
    for sample in stream:
        row = sample.row(name)
        if sample.in_window and not any(a <= sample.ts < b for a, b in left_out):
            asked += hidden_doubt(sample, name, limit)
        start, end = max(sample.start, window.w0), min(sample.ts, window.w1)
        if row is None or start >= end:
            continue
        inside = end - start - sum(max(0, min(end, b) - max(start, a)) for a, b in left_out)
        if inside <= 0:
            continue
        length = sample.ts - sample.start
        below, above = _lag_of(sample, name, row, limit, length)
        below_ms += max(0, below - (length - inside))
        above_ms += max(0, above - (length - inside))
        bounds = sample.line.get("lag_le")
        if bounds:
            near = [max((b for b in bounds if b < limit), default=None)]
            near.append(min((b for b in bounds if b > limit), default=None))
            neighbours = None if limit in bounds else [b for b in near if b is not None]
    return {
        "lag_p99_above_s": above_ms / 1000,
        "lag_p99_unknown_s": max(0, asked - above_ms - below_ms) / 1000,
        "lag_p99_bounds_ms": neighbours,
    }


def _lag_of(
    sample: Sample, name: str, row: Json, limit: float, length: float
) -> tuple[float, float]:
    def part(ms: float) -> int:
        return int(max(0, min(length, ms)))

    above = 0
    if row["lag_exact"] or row["state"] != "disconnected":
        above = part(row["lag_ms"] - limit)
    head = tail = 0
    before = sample.before.row(name) if sample.before is not None else None
    if before is not None:
        exact = before["lag_exact"] or before["lag_bytes"] == 0
        if exact or before["state"] == "disconnected":
            passed = max(0, sample.start - (sample.ts - (sample.mono - sample.before.mono)))  # type: ignore[union-attr]
            head = part(limit - before["lag_ms"] - passed)
    since = marked_since(sample)
    if since is not None and row.get("lag_ms_max") is not None and row["lag_ms_max"] <= limit:
        tail = int(length) if is_marked(sample) else part(sample.ts - since)
    below = min(length, head + tail)
    counted = counted_lag(sample, name, limit)
    if counted is not None:
        below, above = max(below, part(counted[0])), max(above, part(counted[1]))
    return min(below, length - above), above


# -- metadata ----------------------------------------------------------------------------------


def ages(stream: list[Sample], kind: str, past: Past, window: Window) -> Json:
    """How old a slave's copy was, at least and at most."""
    least: list[int] = []
    most: list[int] = []
    spans: list[Span] = []
    told: tuple[Sample, int] | None = None
    ago = lost = asleep = woke = 0

    def bound(start: float, age: int) -> None:
        if max(start, window.w0) < min(sample.ts, window.w1):
            spans.append((start, sample.ts))
            most.append(age)
        elif sample.in_window:
            most.append(age)

    for sample in stream:
        asleep = asleep if sample.before is not None else 0
        if sample.before is not None:
            risen, rise = sample.mono - sample.before.mono, rise_of_uptime(sample.before, sample)
            if rise is not None and rise - risen > 100:  # asleep: the monotonic clock stood still
                asleep, woke, risen = asleep + rise - risen, sample.mono, rise
            ago += risen
        elif past.continues(sample) and sample.passed_ms is not None:
            ago += sample.passed_ms
        elif told is not None:
            lost += told[0].in_window or sample.in_window
            told = None
        entries = [e for e in sample.line.get("metadata") or [] if e["kind"] == kind]
        age = entries[0]["age_ms"] if entries else None
        if age is None:
            continue
        since, largest = marked_since(sample), entries[0].get("age_ms_max")
        if since is not None and largest is not None:
            bound(since, largest + asleep)
        if age < sample.mono - woke:  # copied since
            asleep = 0
        if told is None:
            bound(sample.ts - age, age + asleep)
        elif (
            since is None
            or largest is None
            or told[0].ts < since
            or ago > sample.mono - sample.line["since"]
        ):
            bound(told[0].ts, max(age + asleep, told[1], told[1] + ago - age))
        told, ago = (sample, age + asleep), 0
        if sample.in_window:
            least.append(age)
    return {
        "at_least_ms": max(least, default=None),
        "at_most_ms": max(most, default=None),
        "unbounded_s": max(lost, without_ms(spans, window)) / 1000,
    }
