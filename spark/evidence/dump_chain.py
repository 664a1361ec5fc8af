"""Whether dump lines are those that their brokers wrote: the chain by `prev_digest`.

Pure functions of bytes (msgspec and the standard library), called in the executors by the report's
job and in one process by `mqreport verify`. A file's lines become *stretches* (the lines of one
process life that are in one file); the stretches of a life on a date become its *record*, which the
date's evidence keeps; records are joined over dates and lives. docs/metrics_dump.md defines the
chain. Must not know where files lie or what lines mean.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from spark.dumps.dump_text import (
    DEFAULT_BOUNDS,
    GZIP,
    Bounds,
    LeftOutError,
    LineReader,
    bad_lines_counted,
)
from spark.reported_day import midnight_ms

CHAINED_SINCE: Final = 2
"""The version of a line from which on it names the digest of the line before."""
_LARGEST_SEQ: Final = 2**63 - 1


class Life(NamedTuple):
    """One life of one broker process."""

    cluster: str
    broker: str
    broker_id: int
    boot: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker}:{self.broker_id} boot {self.boot}"


class ChainLine(NamedTuple):
    """What the chain needs of a line. `digest`: SHA-256 of its bytes without the line break, hex.
    `prev_digest` is None where the line names none; `is_chained` is false for version 1."""

    seq: int
    digest: str
    prev_digest: str | None
    is_chained: bool
    boot_ts: int
    prev_boot: str | None
    prev_seq: int | None


class Stretch(NamedTuple):
    """The lines of one life that are in one file, in the file's order."""

    file: str
    lines: list[ChainLine]


@dataclasses.dataclass(frozen=True, slots=True)
class LifeRecord:
    """The lines of one life on one date (the `dt` of their directory).

    `lines_digest` is SHA-256 over their digests in the order of seq; `unchained` counts those of
    version 1; `prev_*` are what the first line names; `problems` name places, the first one first.
    """

    life: Life
    boot_ts: int
    first_seq: int
    last_seq: int
    lines: int
    unchained: int
    last_digest: str
    lines_digest: str
    prev_digest: str | None
    prev_boot: str | None
    prev_seq: int | None
    problems: tuple[str, ...] = ()

    @property
    def is_chained(self) -> bool:
        """Whether every line names the one before it."""
        return self.unchained == 0

    def as_json(self) -> dict[str, Any]:
        """For the evidence; `problems` stand elsewhere there."""
        found = dataclasses.asdict(self)
        del found["life"], found["problems"]
        return {**self.life._asdict(), **found}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> LifeRecord:
        """Raises KeyError and TypeError for what `as_json` did not write."""
        rest = dict(found)
        life = Life(*(rest.pop(name) for name in Life._fields))
        return cls(life, **rest)


class _Head(msgspec.Struct, gc=False):
    v: int
    cluster: str
    broker: str
    broker_id: int
    boot: str
    boot_ts: int
    seq: int
    prev_digest: str | None = None
    prev_boot: str | None = None
    prev_seq: int | None = None


_DECODER: Final = msgspec.json.Decoder(_Head)


def stretches_of_file(
    file: str, content: bytes, bounds: Bounds | None = DEFAULT_BOUNDS
) -> tuple[dict[Life, Stretch], list[str]]:
    """The lines of a file (gzip or plain) by life, and its problems. `bounds`: None for what is
    known to be within some.

    They are those that the report reads, the last one also without a line break; only JSON that
    is not whole is no line yet there, as it is being written. A file that the report leaves out is
    a problem and has none."""
    try:
        return _stretches(file, content, bounds)
    except LeftOutError as error:
        return {}, [left_out_problem(file, str(error))]


def left_out_problem(file: str, why: str) -> str:
    """What the evidence and `mqreport verify` say of a file whose lines do not count at all."""
    return f"{file}: is left out: {why}"


def _stretches(
    file: str, content: bytes, bounds: Bounds | None
) -> tuple[dict[Life, Stretch], list[str]]:
    reader = LineReader(content, bounds)
    found: dict[Life, Stretch] = {}
    problems: list[str] = []
    for number, line in enumerate(_lines_of(reader), 1):
        try:
            head = _DECODER.decode(line)
            if not 1 <= head.seq <= _LARGEST_SEQ:
                raise ValueError("seq")
        except (msgspec.DecodeError, ValueError, RecursionError):
            problems.append(f"{file} line {number}: is no line of a broker")
            bad_lines_counted(len(problems))
            continue
        life = Life(head.cluster, head.broker, head.broker_id, head.boot)
        stretch = found.get(life)
        if stretch is None:
            stretch = found[life] = Stretch(file, [])
        stretch.lines.append(
            ChainLine(
                head.seq,
                hashlib.sha256(line).hexdigest(),
                head.prev_digest,
                head.v >= CHAINED_SINCE,
                head.boot_ts,
                head.prev_boot,
                head.prev_seq,
            )
        )
    if reader.damage:
        problems.append(f"{file}: breaks off: {reader.damage}")
    elif _is_torn(reader) and (b"\r" in reader.rest or content.startswith(GZIP)):
        problems.append(f"{file}: its last line is incomplete")
    return found, problems


def _lines_of(reader: LineReader) -> Iterator[bytes]:
    yield from reader
    if reader.rest and not _is_torn(reader):
        yield reader.rest


def _is_torn(reader: LineReader) -> bool:
    return bool(reader.rest) and (bool(reader.damage) or not _is_json(reader.rest))


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def record_of(life: Life, stretches: Iterable[Stretch]) -> LifeRecord:
    """A life's lines on a date, from all files that have some; equal lines count once."""
    problems: dict[int, str] = {}
    by_seq: dict[int, ChainLine] = {}
    for stretch in sorted(stretches):
        last = 0
        for line in stretch.lines:
            other = by_seq.setdefault(line.seq, line)
            if other is line and line.seq < last:
                problems.setdefault(
                    line.seq, f"{life} line {line.seq}: stands behind line {last} in {stretch.file}"
                )
            elif other.digest != line.digest:
                problems[line.seq] = f"{life} line {line.seq}: is there twice, with different text"
            last = max(last, line.seq)
    lines = [by_seq[seq] for seq in sorted(by_seq)]
    for before, line in itertools.pairwise(lines):
        problem = _link_problem(life, before, line)
        if problem:
            problems.setdefault(line.seq, problem)
    first, last_line = lines[0], lines[-1]
    digest = hashlib.sha256("".join(line.digest for line in lines).encode())
    return LifeRecord(
        life=life,
        boot_ts=first.boot_ts,
        first_seq=first.seq,
        last_seq=last_line.seq,
        lines=len(lines),
        unchained=sum(not line.is_chained for line in lines),
        last_digest=last_line.digest,
        lines_digest=digest.hexdigest(),
        prev_digest=first.prev_digest,
        prev_boot=first.prev_boot,
        prev_seq=first.prev_seq,
        problems=tuple(problems[seq] for seq in sorted(problems)),
    )


def _link_problem(life: Life, before: ChainLine, line: ChainLine) -> str:
    """Why `line` cannot be the one that was written right behind `before`; "" when it can."""
    if not line.is_chained:
        return f"{life} line {line.seq}: names no line before it" if before.is_chained else ""
    if line.prev_digest == before.digest:
        return ""
    return _broken(life, before.seq, line.seq)


def _broken(life: Life, before_seq: int, seq: int) -> str:
    if seq > before_seq + 1:
        missing = f"line {before_seq + 1}"
        if seq > before_seq + 2:
            missing = f"lines {before_seq + 1} to {seq - 1}"
        return f"{life} {missing}: missing, or line {before_seq} or {seq} was changed"
    return f"{life} line {before_seq}: was changed or inserted: line {seq} names another one"


class Join(NamedTuple):
    """Something between two records. `is_break`: it was edited; else it cannot be proved."""

    is_break: bool
    text: str


def join(records: Sequence[tuple[datetime.date, LifeRecord]]) -> Iterator[Join]:
    """What is wrong between records: of a life over dates, and of a broker over lives.

    Lines of lives that began before the first date may precede it: nobody gave them.
    """
    first_date = min((date for date, _ in records), default=None)
    lives: dict[Life, list[LifeRecord]] = defaultdict(list)
    began_before: dict[Life, bool] = {}
    for date, record in sorted(records, key=lambda item: (item[1].life, item[1].first_seq)):
        lives[record.life].append(record)
        began_before.setdefault(
            record.life, date == first_date and record.boot_ts < midnight_ms(date)
        )
    every = _by_boot(lives)
    on_first = {record.life for date, record in records if date == first_date}
    for life, parts in sorted(lives.items(), key=lambda item: (item[1][0].boot_ts, item[0])):
        for before, after in itertools.pairwise(parts):
            if before.last_seq >= after.first_seq:
                yield Join(True, f"{life} line {after.first_seq}: stands on two dates")
            elif after.is_chained and after.prev_digest != before.last_digest:
                yield Join(True, _broken(life, before.last_seq, after.first_seq))
        first = parts[0]
        if first.is_chained and not (began_before[life] and first.first_seq > 1):
            past = _before(first, every)
            before_it = lives.get(past) if past is not None else None
            found = _join_of_lives(first, before_it[-1] if before_it else None, life in on_first)
            if found is not None:
                yield found
    yield from _branches([parts[0] for parts in lives.values()], on_first)


Boots = Mapping[tuple[str, str, str], Mapping[int, Life]]
"""(cluster, broker, boot) -> the lives that are there, by broker id, the lowest first."""


def _by_boot(lives: Iterable[Life]) -> Boots:
    found: dict[tuple[str, str, str], dict[int, Life]] = defaultdict(dict)
    for life in sorted(lives):
        found[life.cluster, life.broker, life.boot][life.broker_id] = life
    return found


def _before(record: LifeRecord, there: Boots) -> Life | None:
    """The life that a life says was before it; every line of it says so. A promoted broker had
    another broker id then. None where it is not there."""
    own = record.life
    found = there.get((own.cluster, own.broker, record.prev_boot or ""), {})
    return found.get(own.broker_id) or next(iter(found.values()), None)


def _branches(firsts: Iterable[LifeRecord], on_first_date: Collection[Life]) -> Iterator[Join]:
    """Where the lives of a broker are not one behind the other: a life can be put in between with
    right digests, and no line behind it changed, but then two follow the same one, or it follows
    none. `firsts`: the first record of each life."""
    brokers: dict[Life, list[LifeRecord]] = defaultdict(list)
    chained = {first.life: first for first in firsts if first.is_chained}
    every = _by_boot(chained)
    followers: dict[tuple[str, str, str], LifeRecord] = {}
    for first in chained.values():
        brokers[first.life._replace(boot="")].append(first)
    for _, some in sorted(brokers.items()):
        some.sort(key=lambda record: (record.boot_ts, record.life))
        begins = 0
        for first in some:
            life, past = first.life, _before(first, every)
            before = chained.get(past) if past is not None else None
            if before is None:
                begins += 1
                if begins > 1 and first.prev_boot is None:
                    yield Join(False, f"{life}: names no life before it, and {some[0].life} was")
                elif begins > 1 and life in on_first_date:
                    yield Join(False, _not_there(first))
            elif before.boot_ts > first.boot_ts:
                text = f"{life}: began before {before.life}, which it names as the life before it"
                yield Join(False, text)
            if first.prev_boot is not None:
                key = (life.cluster, life.broker, first.prev_boot)
                other = followers.setdefault(key, first)
                if other is not first:
                    text = f"{life}: names the same line before it as boot {other.life.boot}"
                    yield Join(True, f"{text}: one of them was inserted, or a store was copied")


def _not_there(first: LifeRecord) -> str:
    return f"{first.life}: the life before it, {first.prev_boot}, is not there"


def _join_of_lives(
    first: LifeRecord, last: LifeRecord | None, is_on_first_date: bool
) -> Join | None:
    """What is wrong between the first record of a life and the last one of the life before it."""
    life = first.life
    if first.prev_digest is None:
        if first.first_seq > 1 or first.prev_boot is not None:
            return Join(False, f"{life} line {first.first_seq}: names no digest of a line before")
        return None
    if last is not None and last.last_digest == first.prev_digest:
        return None
    names_its_own = first.prev_boot is None if last is None else last.last_seq == first.prev_seq
    if first.first_seq > 1 and names_its_own:
        return Join(True, f"{life} line 1: missing, with all up to line {first.first_seq - 1}")
    if last is None:
        if is_on_first_date:
            return None
        return Join(False, _not_there(first))
    named = first.prev_seq or 0
    if last.last_seq < named:
        text = f"line {last.last_seq + 1}: missing, with all up to {named}, the life's last one"
    elif last.last_seq > named:
        text = f"line {named + 1}: stands behind the life's last line"
    else:
        text = f"line {last.last_seq}: was changed: the next life names another digest"
    return Join(True, f"{last.life} {text}")


class DateLines:
    """The lines of one date's files: by life, and what is wrong with the files."""

    def __init__(self, files: Iterable[tuple[str, bytes]], bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self._lives: dict[Life, list[Stretch]] = defaultdict(list)
        self.file_problems: list[str] = []
        for file, content in files:
            found, some = stretches_of_file(file, content, bounds)
            self.file_problems += some
            for life, stretch in found.items():
                self._lives[life].append(stretch)

    def records(self) -> list[LifeRecord]:
        """One for each life, sorted by life."""
        return [record_of(life, self._lives[life]) for life in sorted(self._lives)]

    def within(self, life: Life, first_seq: int, last_seq: int) -> LifeRecord | None:
        """The record of some lines of a life; None without any."""
        parts = [
            Stretch(file, [line for line in lines if first_seq <= line.seq <= last_seq])
            for file, lines in self._lives.get(life, ())
        ]
        return record_of(life, parts) if any(part.lines for part in parts) else None


def digest_of_records(records: Iterable[LifeRecord]) -> str:
    """SHA-256 over all of a date's records."""
    text = json.dumps([record.as_json() for record in records], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
