"""Samples in order: each with what it follows, and the interval that it tells of.

Runs in the executors, over the lines of one broker group. Duplicates fall, masters and slaves
become streams, and each sample learns from its predecessor: the rules are in docs/sla_report.md
("Samples"). Must not know replicas, objectives or figures.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from spark.dumps.dump_line import BadLineError, FileLines, Line, ReplicaRow, decode_line, shown_text
from spark.reported_day import Day, midnight_ms
from spark.vocabulary import MASTER_ROLES

_HAIR_MS: Final = 10
"""What the two clocks of a line may be apart, being read one after the other in whole ms."""


class Sample:
    """A line that counts, and its place in its stream. All times epoch ms, not clipped.

    duplicates, conflict: further lines of this sample, and whether their texts differ
    predecessor, same_boot, proved: the sample before it; of the same boot; of another one, with
        nothing missing between them
    from_zero: its counters began at 0 in the window, as far as is known
    in_window: `ts` lies in the window
    start_ms: its interval is [start_ms, ts); spoken_ms: its segment is [spoken_ms, ts)
    down_ms: [down_ms, boot_ts) is proved down time; null without
    span_ms: by the monotonic clock, what its counters can have counted since the predecessor of
        its boot, or since the boot began
    is_free: no other boot told of a part of its interval
    overtaken: a boot before its own tells of its moment
    out_of_order: its boot had a later `ts` before
    rows: the replicas' rows by id; of two with one id the first
    """

    __slots__ = (
        *("conflict", "down_ms", "duplicates", "from_zero", "in_window", "is_free", "line"),
        *("out_of_order", "overtaken", "predecessor", "proved", "rows", "same_boot", "span_ms"),
        *("spoken_ms", "start_ms", "ts"),
    )

    def __init__(self, line: Line, duplicates: int, *, conflict: bool) -> None:
        self.line: Final = line
        self.ts: Final = line.ts
        self.duplicates: Final = duplicates
        self.conflict: Final = conflict
        self.rows: dict[str, ReplicaRow] = _by_id(line.replicas) if line.replicas else {}
        self.predecessor: Sample | None = None
        self.same_boot = self.proved = self.from_zero = self.in_window = False
        self.is_free, self.overtaken, self.out_of_order = True, False, False
        self.start_ms = self.spoken_ms = line.ts
        self.down_ms: int | None = None
        self.span_ms = 0

    @property
    def boot_predecessor(self) -> Sample | None:
        """The sample before it, if that is of the same boot."""
        return self.predecessor if self.same_boot else None


def _by_id(rows: Sequence[ReplicaRow]) -> dict[str, ReplicaRow]:
    found = {row.id: row for row in rows}
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
    bad lines of D. `digest` is the same for the same distinct samples, wherever they stand."""

    masters: Stream
    slaves: dict[int, Stream] = field(default_factory=dict)
    bad: list[tuple[str, str, str]] = field(default_factory=list)
    digest: str = ""


def read_samples(files: Iterable[FileLines], day: Day) -> GroupSamples:
    """Decodes the lines of one group and puts its samples in order."""
    texts: dict[tuple[int, str, int], list[bytes]] = {}
    lines: dict[tuple[int, str, int], Line] = {}
    bad: list[tuple[str, str, str]] = []
    for file in files:
        midnight, is_today = midnight_ms(file.date), file.date == day.date
        for text in file.lines:
            try:
                line = decode_line(text, midnight)
            except BadLineError as error:
                if is_today:
                    bad.append((file.file, str(error), shown_text(text)))
                continue
            if not day.needs(line.ts, line.seq):
                continue
            key = (line.broker_id, line.boot, line.seq)
            same = texts.get(key)
            if same is None:
                texts[key] = [text]
                lines[key] = line
            else:
                if text < min(same):
                    lines[key] = line
                same.append(text)
    samples = [
        Sample(line, len(texts[key]) - 1, conflict=len(set(texts[key])) > 1)
        for key, line in lines.items()
    ]
    masters = [sample for sample in samples if sample.line.role in MASTER_ROLES]
    slaves: dict[int, list[Sample]] = {}
    for sample in samples:
        if sample.line.role not in MASTER_ROLES:
            slaves.setdefault(sample.line.broker_id, []).append(sample)
    return GroupSamples(
        in_order(masters, day),
        {number: in_order(of_slave, day) for number, of_slave in sorted(slaves.items())},
        bad,
        _digest(texts.values()),
    )


def _digest(texts: Iterable[Sequence[bytes]]) -> str:
    digests = sorted(hashlib.blake2b(min(same), digest_size=8).digest() for same in texts)
    if not digests:
        return ""
    return hashlib.blake2b(b"".join(digests), digest_size=8).hexdigest() + f"-{len(digests)}"


def in_order(samples: Iterable[Sample], day: Day) -> Stream:
    """A stream: what each sample follows, and the time laid out between them."""
    ordered = _without_later(
        sorted(samples, key=lambda s: (s.line.boot_ts, s.line.boot, s.line.seq)), day
    )
    before: Sample | None = None
    for sample in ordered:
        line = sample.line
        sample.in_window = day.w0_ms <= sample.ts < day.w1_ms
        lines_fit = line.seq - 2 <= (line.ts - line.boot_ts) / line.interval_ms
        sample.from_zero = line.seq == 1 or (line.boot_ts >= day.w0_ms and lines_fit)
        if before is not None:
            sample.predecessor = before
            sample.same_boot = before.line.boot == line.boot
            sample.proved = (
                not sample.same_boot
                and line.seq == 1
                and line.prev_boot == before.line.boot
                and line.prev_seq == before.line.seq
            )
        before = sample
    _lay_out(ordered, day.w1_ms)
    inside = [sample for sample in ordered if sample.in_window]
    return Stream(ordered, inside, [sample for sample in ordered if sample.ts >= day.w1_ms])


def _without_later(ordered: Iterable[Sample], day: Day) -> list[Sample]:
    """Of the samples behind the window those stay that come right behind one of the others: they
    tell how the window ended."""
    found: list[Sample] = []
    is_later = False
    for sample in ordered:
        was_later, is_later = is_later, sample.ts >= day.w1_ms
        if not (was_later and is_later):
            found.append(sample)
    return found


def _lay_out(ordered: Sequence[Sample], w1_ms: int) -> None:
    """Interval, segment and down time of each sample: none tells what another one told. Closing
    samples tell of what is behind all others: the clock of one may have been wrong."""
    told_by_others = latest = 0
    closing: list[tuple[Sample, int]] = []
    for _, lives in itertools.groupby(ordered, key=lambda sample: sample.line.boot):
        of_boot, latest_of_boot = list(lives), 0
        for each in of_boot:
            each.out_of_order = each.ts < latest_of_boot
            latest_of_boot = max(latest_of_boot, each.ts)
        # A boot's own clock may have been set: its samples share the time in the order of ts.
        told = told_by_others
        for each in sorted(of_boot, key=lambda s: (s.ts, s.line.seq)):
            if each.ts >= w1_ms:
                closing.append((each, told_by_others))
                continue
            _place(each, told, told_by_others)
            told = max(told, each.ts)
        told_by_others = latest = told
    for each, by_others in closing:
        _place(each, latest, max(by_others, latest if latest >= w1_ms else 0))
        latest = max(latest, each.ts)


def _place(sample: Sample, told: int, told_by_others: int) -> None:
    line, ts, interval = sample.line, sample.ts, sample.line.interval_ms
    before = sample.predecessor
    since_boot = max(0, ts - line.boot_ts)
    sample.overtaken = told_by_others >= ts
    if before is not None and sample.same_boot:
        span = max(0, line.mono - before.line.mono)
        is_next = line.seq == before.line.seq + 1
        hole = ts - span - told
        length = span + hole if is_next and 0 < hole <= _HAIR_MS else span
        covered = min(length, 3 * interval if is_next else interval)
    elif sample.proved:
        span = length = since_boot
        covered = min(since_boot, 3 * interval)
        if told < min(line.boot_ts, ts):
            sample.down_ms = told
    else:
        span = length = since_boot
        covered = min(since_boot, interval)
        if not sample.from_zero:
            length = covered
    sample.is_free = told > told_by_others or told_by_others <= ts - length
    sample.span_ms = span
    sample.start_ms = min(ts, max(told, ts - length))
    sample.spoken_ms = max(sample.start_ms, ts - covered)
