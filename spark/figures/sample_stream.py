"""Samples in order: each with what it follows, and the interval that it tells of.

Runs in the executors, over the lines of one broker group. Duplicates fall, masters and slaves
become streams, and each sample learns from its predecessor: the rules are in docs/sla_report.md
("Samples"). Must not know replicas, objectives or figures.

Tested by tests/spark/figures/test_events.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from spark.dumps.dump_line import BadLineError, FileLines, Line, ReplicaRow, decode_line, shown_text
from spark.figures.between_lives import (
    LifeClocks,
    Lives,
    inherit_hidden,
    lives_of,
    slept_ms,
)
from spark.figures.life_ends import LifeEnds
from spark.figures.spells import Epochs, prove_gaps, roles_of, split_spells
from spark.reported_day import Day, midnight_ms
from spark.vocabulary import DAY_MS, MASTER_ROLES

_HAIR_MS: Final = 10
"""What the two clocks of a line may be apart, being read one after the other in whole ms."""
_SET_BACK_MS: Final = 1_000
"""A wall clock that goes back by up to so much is corrected, not set."""
_HASHED_AT_ONCE: Final = 256
"""Lines: few enough to stay in a processor's cache between joining and hashing."""
_DIGEST_DIGITS: Final = 16


class Sample(msgspec.Struct, eq=False):
    """A line that counts, and its place in its stream. All times epoch ms, not clipped.

    rows: the replicas' rows by id; of two with one id the first
    duplicates, conflict: further lines of this sample, and whether their texts differ
    is_line: somebody wrote it; not so the last one of a leader that leads no more
        (spark/figures/spells.py)
    predecessor, same_boot, proved: the sample before it; of the same boot; of another one, with
        nothing missing between them
    boot_predecessor: the sample before it, if that is of the same boot
    from_zero: without a predecessor of its boot: its counters began at 0 in the window, as far as
        is known
    in_window: `ts` lies in the window
    start_ms: its interval is [start_ms, ts); spoken_ms: its segment is [spoken_ms, ts)
    down_ms: [down_ms, boot_ts) is proved down time; null without
    span_ms: by the monotonic clock, what its counters can have counted since the predecessor of
        its boot, or since the boot began
    hidden_ms: so much of span_ms, and of what the machine slept (a day at most), the wall clock has
        no room for, as it was set back; 0 where another broker told of the time. hidden_down_ms:
        the same between the life before and its boot; a day where nothing proves how long that was
    carried_ms: of a boot that began before the window, how much of that lies in it by a clock that
        is right
    passed_ms: of a boot's first sample, how long ago the last line of the life before was, by
        clocks that nobody sets; null where nothing proves it. proves_down: not where the wall
        clock shows more time than that since anybody told of any; shows_more: since that line
    is_free: no other boot told of a part of its interval
    overtaken: a boot before its own tells of its moment
    out_of_order: its boot had a later `ts` before
    """

    line: Line
    ts: int
    rows: dict[str, ReplicaRow]
    duplicates: int = 0
    conflict: bool = False
    is_line: bool = True
    predecessor: Sample | None = None
    boot_predecessor: Sample | None = None
    same_boot: bool = False
    proved: bool = False
    from_zero: bool = False
    in_window: bool = False
    start_ms: int = 0
    spoken_ms: int = 0
    down_ms: int | None = None
    span_ms: int = 0
    hidden_ms: int = 0
    hidden_down_ms: int = 0
    carried_ms: int = 0
    passed_ms: int | None = None
    proves_down: bool = True
    shows_more: bool = False
    is_free: bool = True
    overtaken: bool = False
    out_of_order: bool = False


_NO_ROWS: Final[dict[str, ReplicaRow]] = {}


def _by_id(rows: Sequence[ReplicaRow] | None) -> dict[str, ReplicaRow]:
    if not rows:
        return _NO_ROWS
    found = {}
    for row in rows:
        found[row.id] = row
    return found if len(found) == len(rows) else {row.id: row for row in reversed(rows)}


@dataclass(slots=True)
class Stream:
    """`samples` are in the order (boot_ts, boot, seq); `inside` those of the window, `closing`
    those behind it that tell how it ended: one, where nothing went wrong."""

    samples: list[Sample]
    inside: list[Sample]
    closing: list[Sample]


@dataclass(slots=True)
class GroupSamples:
    """What the dumps say of one group. `slaves`: by broker id. `bad`: file, reason, text of the
    bad lines of D. `digest` is the same for the same distinct samples, wherever they stand.
    `begins`: the first lines of lives, be they in a stream or not. `named`: which ids of the
    masters' rows became which names (spark/figures/replica_names.py). `has_members`: the group has
    a controller; in all others nobody looks for what only members have."""

    masters: Stream
    slaves: dict[int, Stream] = field(default_factory=dict)
    bad: list[tuple[str, str, str]] = field(default_factory=list)
    digest: str = ""
    named: dict[str, str] = field(default_factory=dict)
    begins: list[Sample] = field(default_factory=list)
    has_members: bool = False


def read_samples(files: Iterable[FileLines], day: Day, *, is_known: bool = False) -> GroupSamples:
    """Decodes the lines of one group and puts its samples in order. `is_known`: a date before has
    a result of it."""
    w0_ms, w1_ms = day.w0_ms, day.w1_ms
    places: dict[tuple[int, str, int], int] = {}
    samples: list[Sample] = []
    texts: list[bytes] = []
    again: dict[int, list[bytes]] = {}
    bad: list[tuple[str, str, str]] = []
    ends = LifeEnds()
    before: Line | None = None
    has_members = False
    for file in files:
        midnight, is_today = midnight_ms(file.date), file.date == day.date
        for text in file.lines:
            try:
                line = decode_line(text, midnight)
            except BadLineError as error:
                if is_today:
                    bad.append((file.file, str(error), shown_text(text)))
                continue
            if not w0_ms <= line.ts < w1_ms and not day.needs(line.ts, line.seq):
                if day.is_long_before(line.ts):
                    ends.add(line, text)
                continue
            if before is not None:
                _share(line, before)
            before = line
            if line.member is not None:
                has_members = True
            place = places.setdefault((line.broker_id, line.boot, line.seq), len(samples))
            if place == len(samples):
                samples.append(Sample(line, line.ts, _by_id(line.replicas)))
                texts.append(text)
                continue
            again.setdefault(place, [texts[place]]).append(text)
            if text < texts[place]:
                samples[place] = Sample(line, line.ts, _by_id(line.replicas))
                texts[place] = text
    for place, same in again.items():
        samples[place].duplicates, samples[place].conflict = len(same) - 1, len(set(same)) > 1
    for line, text in ends.asked(samples, day):
        samples.append(Sample(line, line.ts, _by_id(line.replicas)))
        texts.append(text)
        has_members = has_members or line.member is not None
    if has_members:
        samples = split_spells(samples)
    masters: list[Sample] = []
    slaves: dict[int, list[Sample]] = {}
    for sample in samples:
        if sample.line.role in MASTER_ROLES:
            masters.append(sample)
        else:
            slaves.setdefault(sample.line.broker_id, []).append(sample)
    every = lives_of(sorted(samples, key=_place_in_order))
    of_slaves = {number: in_order(some, day, every) for number, some in sorted(slaves.items())}
    of_masters = in_order(masters, day, every, is_known=is_known)
    inherit_hidden(of_masters.samples, every, day)
    begins = [sample for sample in samples if sample.line.seq == 1]
    if has_members:
        prove_gaps(of_masters.samples, begins, Epochs(roles_of(samples)))
    return GroupSamples(
        of_masters,
        of_slaves,
        bad,
        _digest(texts),
        begins=begins,
        has_members=has_members,
    )


def _share(line: Line, before: Line) -> None:
    """What hardly ever changes is kept once: the smaller a day of lines is, the less the passes
    over it wait for memory."""
    if line.boot == before.boot:
        line.boot = before.boot
    if line.config == before.config:
        line.config = before.config
    if line.role == before.role:
        line.role = before.role
    if line.prev_boot == before.prev_boot:
        line.prev_boot = before.prev_boot
    if line.cluster == before.cluster:
        line.cluster = before.cluster
    if line.broker == before.broker:
        line.broker = before.broker
    if line.version == before.version:
        line.version = before.version
    if line.processes == before.processes:
        line.processes = before.processes
    if line.ack_latency.le == before.ack_latency.le:
        line.ack_latency.le = before.ack_latency.le
    if line.replicas and before.replicas:
        for row, row_before in zip(line.replicas, before.replicas, strict=False):
            if row.id == row_before.id:
                row.id = row_before.id


def _digest(texts: Sequence[bytes]) -> str:
    """Of the texts in their order as bytes; a line has no line break within it."""
    if not texts:
        return ""
    ordered, digest = sorted(texts), hashlib.sha256()
    for start in range(0, len(ordered), _HASHED_AT_ONCE):
        digest.update(b"\n".join(ordered[start : start + _HASHED_AT_ONCE]) + b"\n")
    return f"{digest.hexdigest()[:_DIGEST_DIGITS]}-{len(ordered)}"


def _place_in_order(sample: Sample) -> tuple[int, str, int]:
    return sample.line.boot_ts, sample.line.boot, sample.line.seq


def in_order(
    samples: Iterable[Sample], day: Day, every: Iterable[LifeClocks], *, is_known: bool = False
) -> Stream:
    """A stream: what each sample follows, and the time laid out between them. Of the samples behind
    the window those are in it that come right behind one of the others: they tell how the window
    ended. `every`: all lives of the group; `is_known`: it has a history."""
    w0_ms, w1_ms = day.w0_ms, day.w1_ms
    stream = Stream([], [], [])
    lives: list[list[Sample]] = []
    before: Sample | None = None
    boot = None
    for sample in sorted(samples, key=_place_in_order):
        if sample.ts >= w1_ms:
            if before is not None and before.ts >= w1_ms:
                continue
            stream.closing.append(sample)
        elif sample.ts >= w0_ms:
            sample.in_window = True
            stream.inside.append(sample)
        stream.samples.append(sample)
        sample.predecessor = before
        if sample.line.boot == boot:
            sample.same_boot, sample.boot_predecessor = True, before
            lives[-1].append(sample)
        else:
            boot = sample.line.boot
            lives.append([sample])
            _begin_boot(sample, before, w0_ms)
        before = sample
    _lay_out(Lives(lives, every, day.w0_ms, is_known=is_known), w1_ms)
    return stream


def _begin_boot(sample: Sample, before: Sample | None, w0_ms: int) -> None:
    """What the first sample of a boot in the stream tells of the time before it."""
    line = sample.line
    lines_fit = line.seq - 2 <= (line.ts - line.boot_ts) / line.interval_ms
    sample.from_zero = line.seq == 1 or (line.boot_ts >= w0_ms and lines_fit)
    sample.proved = (
        before is not None
        and line.seq == 1
        and line.prev_boot == before.line.boot
        and line.prev_seq == before.line.seq
    )


def _lay_out(measured: Lives, w1_ms: int) -> None:
    """Interval, segment and down time of each sample of each boot: none tells what another one
    told. Closing samples tell of what is behind all others: the clock of one may have been
    wrong."""
    told_by_others = 0
    latest = max((s.ts for life in measured.all for s in life.samples if s.ts < w1_ms), default=0)
    behind_all = latest
    closing: list[tuple[Sample, int]] = []
    for life in measured.all:
        told = told_by_others
        measured.measure(life, told if life.first.ts < w1_ms else behind_all)
        for each in _by_ts(life.samples):
            if each.ts >= w1_ms:
                closing.append((each, told_by_others))
                behind_all = max(behind_all, each.ts)
                continue
            _place(each, told, told_by_others)
            if measured.is_one_broker or each.is_free:
                hidden_ms = each.span_ms - (each.ts - each.start_ms) + _unseen_sleep_ms(each, told)
                if hidden_ms > _SET_BACK_MS and _asks(each):
                    each.hidden_ms = min(hidden_ms, DAY_MS)
            if each.ts > told:
                told = each.ts
        told_by_others = told
    for each, by_others in closing:
        _place(each, latest, max(by_others, latest if latest >= w1_ms else 0))
        latest = max(latest, each.ts)


def _asks(sample: Sample) -> bool:
    """What a sample counted since its predecessor, or since its boot if it began at 0 then."""
    return sample.same_boot or sample.from_zero


def _unseen_sleep_ms(sample: Sample, told: int) -> int:
    """How long the machine slept before a sample, as far as the wall clock did not go on."""
    before = sample.boot_predecessor
    slept = slept_ms(before.line, sample.line) if before is not None else 0
    return max(0, slept - max(0, sample.start_ms - told)) if slept else 0


def mark_reaches(sample: Sample) -> bool:
    """Whether the marks of a line (version 2: largest values since `since`) count from the begin of
    its interval on, so that nothing of it is unseen."""
    since = sample.line.since
    if since is None:
        return False
    start_ms = sample.start_ms - sample.hidden_ms
    return sample.ts - (sample.line.mono - since) - start_ms <= _HAIR_MS


def _by_ts(of_boot: Sequence[Sample]) -> Sequence[Sample]:
    """A boot's own clock may have been set: its samples share the time in the order of ts. Tells
    each that comes after a later one."""
    latest, is_in_order = 0, True
    for each in of_boot:
        if each.ts < latest:
            each.out_of_order, is_in_order = True, False
        else:
            latest = each.ts
    return of_boot if is_in_order else sorted(of_boot, key=lambda s: (s.ts, s.line.seq))


def _place(sample: Sample, told: int, told_by_others: int) -> None:
    line, ts, before = sample.line, sample.ts, sample.boot_predecessor
    sample.overtaken = told_by_others >= ts
    if before is not None:
        length = span = max(0, line.mono - before.line.mono)
        most = line.interval_ms
        if line.seq == before.line.seq + 1:
            most *= 3
            if 0 < ts - span - told <= _HAIR_MS:
                length = ts - told
        covered = length if length < most else most
    else:
        length, covered = _since_boot(sample, told)
        span = max(0, ts - line.boot_ts)
    start = ts - length
    sample.is_free = told > told_by_others or told_by_others <= start
    sample.span_ms = span
    if start < told:
        start = min(ts, told)
    sample.start_ms = start
    sample.spoken_ms = ts - covered if ts - covered > start else start


def _since_boot(sample: Sample, told: int) -> tuple[int, int]:
    """Length of the interval of a boot's first sample, and how much of it is covered; its down
    time, if it proves any."""
    line, ts = sample.line, sample.ts
    since_boot = max(0, ts - line.boot_ts)
    if sample.proved:
        if told < min(line.boot_ts, ts) and sample.proves_down:
            sample.down_ms = told
        return since_boot, min(since_boot, 3 * line.interval_ms)
    covered = min(since_boot, line.interval_ms)
    return since_boot if sample.from_zero else covered, covered
