"""The nightly report once more, slow and obvious: all answers to sends of clients.

Standard library only, like plain_report.py, which uses this; docs/sla_report.md, "All sends". What
is known of each stretch of time between two lines is one Told; their sums are the bounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from tests.spark.plain_bounds import (
    LEAST_RECORD,
    MOST_SENDS_A_MS,
    Past,
    begun_at,
    comes_back,
    ends_at,
    hidden_before,
    may_be_inside,
    true_ms,
)
from tests.spark.plain_samples import SEND_RESULTS, Json, Sample, Window

TURNS_MS: Final = 64
"""Good answers of so long are counted together."""
NOTHING: Final[Json] = dict.fromkeys(SEND_RESULTS, 0) | {"latency": {"le": [], "counts": [0]}}


@dataclass
class Told:
    """Counted answers by result and by bucket; `is_sure`: in the window. And at most so many more
    that nobody counted: good ones, failed ones."""

    results: dict[str, int] = field(default_factory=dict)
    le: list[float] = field(default_factory=list)
    buckets: list[int] = field(default_factory=list)
    is_sure: bool = True
    more_ok: int = 0
    more_failed: int = 0

    @property
    def ok(self) -> int:
        return self.results.get("ok", 0)

    @property
    def failed(self) -> int:
        return sum(self.results.values()) - self.ok


def answers(stream: list[Sample], past: Past, window: Window) -> Json:
    """The columns of group_days."""
    uncounted = sum(s.in_window and not s.line.get("sends") for s in stream)
    row: Json = dict.fromkeys(
        [f"sends_{a}_{b}" for a, b in itertools.product(("ok", "failed"), ("least", "most"))]
    )
    row |= dict.fromkeys(("sends_le", "sends_least", "sends_most", "sends_unmeasured"))
    row["sends_uncounted"] = uncounted
    newest = [s.line["sends"]["latency"]["le"] for s in stream if s.line.get("sends")][-1:]
    if not newest:
        return row
    told = list(_told(stream, past, window))
    sure = [each for each in told if each.is_sure]
    row["sends_ok_least"] = sum(each.ok for each in sure)
    row["sends_failed_least"] = sum(each.failed for each in sure)
    row["sends_ok_most"] = sum(each.ok + each.more_ok for each in told)
    row["sends_failed_most"] = sum(each.failed + each.more_failed for each in told)
    row["sends_le"] = newest[0]
    for name, some in (("sends_least", sure), ("sends_most", told)):
        fitting = [each.buckets for each in some if each.le == newest[0] and each.buckets]
        row[name] = [sum(column) for column in zip(*fitting, strict=True)]
        row[name] = row[name] or [0] * (len(newest[0]) + 1)
    other = [each for each in told if each.le != newest[0]]
    # Of what may be good or failed there are as many as either at most.
    row["sends_unmeasured"] = sum(max(each.more_ok, each.more_failed) for each in told)
    row["sends_unmeasured"] += sum(sum(each.buckets) for each in other)
    return row


def _told(stream: list[Sample], past: Past, window: Window) -> Iterator[Told]:
    for place, sample in enumerate(stream):
        if sample.before is None:
            yield from _before_boot(stream, place, past, window)
            if sample.shows_more and sample.ts >= window.w1:
                yield _unknown(_gap(true_ms(stream, place - 1), window.w1, window))
        if _is_counted(stream, place, window):
            yield from _counted(sample, window)
    last = true_ms(stream, len(stream) - 1)
    yield _unknown(_gap(last, window.w1, window))


def _is_counted(stream: list[Sample], place: int, window: Window) -> bool:
    """Whether any of what it counted may be of the window."""
    sample = stream[place]
    return _seems_counted(stream, place, window) or may_be_inside(stream, sample, window)


def _seems_counted(stream: list[Sample], place: int, window: Window) -> bool:
    sample = stream[place]
    since = _since(sample, window)
    if sample.ts >= window.w1 and since >= window.w1:
        return False
    if sample.ts >= window.w0 or sample.before is None:
        return bool(sample.ts >= window.w0)
    if since >= window.w0:
        return True
    return any(s.in_window for s in stream[:place] if s.boot == sample.boot)


def _since(sample: Sample, window: Window) -> int:
    """From when on its counters count what its predecessor's do not."""
    if sample.before is not None:
        return int(sample.before.ts)
    return int(sample.boot_ts) if sample.from_zero else window.w0 - 1


def _counted(sample: Sample, window: Window) -> Iterator[Told]:
    since = _since(sample, window)
    now = sample.line.get("sends")
    then = sample.before.line.get("sends") if sample.before is not None else NOTHING
    if not now or not then:
        passed = sample.mono_ms if sample.before is not None else sample.since_boot_ms
        most = max(_gap(since, sample.ts, window), passed * MOST_SENDS_A_MS)
        yield _unknown(most)
        return
    is_sure = sample.in_window and window.w0 <= since < window.w1
    yield _rise(now, then, is_sure=is_sure)
    if sample.before is None:
        return
    deaths = _deaths(sample) - _deaths(sample.before)
    earlier = sample.before.before or sample.before
    records = (sample.max_offset - earlier.max_offset) // LEAST_RECORD
    yield Told(more_ok=max(0, min(records, deaths * TURNS_MS * MOST_SENDS_A_MS)))


def _deaths(sample: Sample) -> int:
    return sum(p["restarts"] for p in sample.line["processes"] if p["name"] == "remoting")


def _rise(now: Json, then: Json, *, is_sure: bool) -> Told:
    results = {name: max(0, now[name] - then[name]) for name in SEND_RESULTS}
    le, counts = now["latency"]["le"], now["latency"]["counts"]
    before = then["latency"]["counts"] if then["latency"]["le"] == le else [0] * len(counts)
    buckets = [max(0, a - b) for a, b in zip(counts, before, strict=True)]
    return Told(results, le, buckets, is_sure)


def _before_boot(stream: list[Sample], place: int, past: Past, window: Window) -> Iterator[Told]:
    """Between the last line of a life and the boot of the next one."""
    sample, last = stream[place], stream[place].predecessor
    hidden = hidden_before(sample, window)
    if last is None:
        unseen = _gap(window.w0, begun_at(sample), window)
        yield _unknown(unseen + hidden * MOST_SENDS_A_MS)
        return
    since, is_back = true_ms(stream, place - 1), comes_back(sample, window)
    until = ends_at(stream, place, past, window)
    is_asked = is_back or (since < window.w1 and (until > window.w0 or hidden > 0))
    if not is_asked or past.is_orderly(sample):
        return
    most = max(_gap(since, until, window), last.interval_ms * MOST_SENDS_A_MS)
    most += hidden * MOST_SENDS_A_MS
    most = _gap(window.w0, window.w1, window) if is_back else most
    stored = most
    if past.continues(sample) and not is_back:
        life = [s for s in stream[place : place + 20] if s.boot == sample.boot]
        for opened in [s for s in life if s.max_offset][:1]:
            grown = opened.max_offset - opened.bytes_in - last.max_offset
            stored = min(most, max(0, grown) // LEAST_RECORD)
    if not past.is_counted(sample):
        yield Told(more_ok=stored, more_failed=most)
        return
    after = past.returned(sample)
    assert after is not None
    is_sure = window.w0 <= after.boot_ts < window.w1 and not after.hidden_down_ms
    is_sure = bool(is_sure and last.in_window and after.in_window)
    yield _rise(after.line["ended"]["sends"], last.line["sends"], is_sure=is_sure)
    yield Told(more_ok=min(stored, after.line["ended"]["uncounted_ms"] * MOST_SENDS_A_MS))


def _unknown(most: int) -> Told:
    return Told(more_ok=most, more_failed=most)


def _gap(start: int, end: int, window: Window) -> int:
    return max(0, min(end, window.w1) - max(start, window.w0)) * MOST_SENDS_A_MS


def share_verdict(group: Json | None, percent: float) -> tuple[bool, bool] | None:
    """Of `sends_ok_percent`: whether it is breached, and whether it is met; None: nobody sent."""
    if group is None or group["sends_ok_most"] is None:
        return False, False
    ok, failed = ((group[f"sends_{n}_least"], group[f"sends_{n}_most"]) for n in ("ok", "failed"))
    if ok[1] + failed[1] == 0:
        return None
    best = Fraction(ok[1], ok[1] + failed[0]) if ok[1] + failed[0] else Fraction(1)
    least = Fraction(ok[0], ok[0] + failed[1]) if ok[0] + failed[1] else Fraction(1)
    share = Fraction(str(percent)) / 100
    return best < share, least >= share
