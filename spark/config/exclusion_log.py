"""Exclusions and annotations after the event: a file that is only ever appended to.

One JSON object a line: who, why, ticket, from, to, which replicas; or the withdrawal of an earlier
entry. Each names the SHA-256 of the line before it, so that an entry that was changed or removed is
found. Used on the driver and by `mqreport exclude`; must not know Spark or YAML.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from spark.config.exclusions import Exclusion

VERSION: Final = 1
Kind = Literal["exclusion", "annotation", "withdrawal"]
KINDS: Final[tuple[Kind, ...]] = ("exclusion", "annotation", "withdrawal")
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_END_MS: Final = 253_402_300_800_000
"""Year 10000."""
_TEXTS: Final = ("kind", "who", "why", "ticket", "cluster", "broker", "replica")


class LogError(ValueError):
    """A file of exclusions that cannot be used: `file:line: text`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. Times are epoch ms, whole seconds; `withdraws` is the number of an earlier entry,
    and then there is no time and no pattern that would mean anything."""

    kind: Kind
    at_ms: int
    who: str
    why: str
    ticket: str
    from_ms: int = 0
    to_ms: int = 0
    cluster: str = "*"
    broker: str = "*"
    replica: str = "*"
    withdraws: int = 0

    @property
    def patterns(self) -> tuple[str, str, str]:
        """Of cluster, broker group and replica."""
        return self.cluster, self.broker, self.replica

    @property
    def is_after_the_event(self) -> bool:
        """Whether it was made when its time had begun."""
        return self.at_ms > self.from_ms

    @property
    def reason(self) -> str:
        """What the report says of the time: why, ticket, who and when."""
        when = "after the event" if self.is_after_the_event else "before the event"
        return f"{self.why} ({self.ticket}; by {self.who}, {iso(self.at_ms)}, {when})"


def iso(at_ms: int) -> str:
    """2026-11-20T10:00:00Z"""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(_TIME)


def moment_ms(text: str) -> int:
    """Epoch ms of a time (UTC unless it names a zone), cut to seconds. Raises ValueError, also for
    one that is not from 1970 to 9999 in UTC, as it could not be written again."""
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    at_ms = int(moment.timestamp()) * 1000
    if not 0 <= at_ms < _END_MS:
        raise ValueError(f"{text} is not from 1970 to 9999 (UTC)")
    return at_ms


def entries_of(content: bytes, source: str) -> tuple[Entry, ...]:
    """All entries of a file, the first one is number 1. Raises LogError."""
    entries: list[Entry] = []
    gone: set[int] = set()
    previous: str | None = None
    lines = content.split(b"\n")
    if lines.pop() != b"":
        raise LogError(f"{source}:{len(lines) + 1}: the last line has no end: an entry is torn")
    for number, line in enumerate(lines, 1):
        where = f"{source}:{number}"
        try:
            found = json.loads(line)
            if found["previous"] != previous:
                if number == 1:
                    raise LogError(f"{where}: names an entry before it: the first one was removed")
                raise LogError(f"{where}: does not follow from line {number - 1}: one was edited")
            entry = _entry(found)
            if line != _line(entry, previous):
                raise LogError(f"{where}: is not written as mqreport exclude writes it")
            _check(entry, entries, gone)
        except LogError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise LogError(f"{where}: cannot be used: {error}") from error
        entries.append(entry)
        gone.add(entry.withdraws)
        previous = hashlib.sha256(line).hexdigest()
    return tuple(entries)


def appended(content: bytes, entry: Entry, source: str) -> bytes:
    """The line to append for `entry`. Raises LogError for a file or an entry that cannot be."""
    entries = entries_of(content, source)
    try:
        _check(entry, entries, {other.withdraws for other in entries})
    except ValueError as error:
        raise LogError(str(error)) from error
    last = content.split(b"\n")[-2] if entries else None
    return _line(entry, None if last is None else hashlib.sha256(last).hexdigest()) + b"\n"


def _check(entry: Entry, before: Sequence[Entry], gone: Collection[int]) -> None:
    """`gone`: numbers of those before it that are withdrawn. Raises ValueError."""
    if entry.kind not in KINDS:
        raise ValueError(f"kind is {entry.kind!r}, not one of {', '.join(KINDS)}")
    for name in ("who", "why", "ticket"):
        if not getattr(entry, name).strip():
            raise ValueError(f"{name} is empty")
    if entry.kind == "withdrawal":
        if not 1 <= entry.withdraws <= len(before):
            raise ValueError(f"there is no entry {entry.withdraws} to withdraw")
        if before[entry.withdraws - 1].kind == "withdrawal":
            raise ValueError(f"entry {entry.withdraws} is a withdrawal: add the entry again")
        if entry.withdraws in gone:
            raise ValueError(f"entry {entry.withdraws} is withdrawn already")
    elif entry.withdraws:
        raise ValueError(f"it withdraws entry {entry.withdraws}, which only a withdrawal does")
    elif entry.from_ms >= entry.to_ms:
        raise ValueError("from must be before to")


def in_force(entries: Sequence[Entry]) -> dict[int, Entry]:
    """Exclusions and annotations that nobody has withdrawn, by number."""
    gone = {entry.withdraws for entry in entries}
    return {
        number: entry
        for number, entry in enumerate(entries, 1)
        if entry.kind != "withdrawal" and number not in gone
    }


def exclusions_in_force(entries: Sequence[Entry]) -> tuple[Exclusion, ...]:
    """Those entries that take time out of the figures."""
    return tuple(
        Exclusion(entry.patterns, entry.reason, (entry.from_ms, entry.to_ms))
        for entry in in_force(entries).values()
        if entry.kind == "exclusion"
    )


def remarks_on(entries: Sequence[Entry], w0_ms: int, w1_ms: int) -> list[dict[str, Any]]:
    """Rows for readers: what is in force for a window [w0, w1), in the file's order."""
    return [
        {
            "number": number,
            "kind": entry.kind,
            "from_ms": entry.from_ms,
            "to_ms": entry.to_ms,
            "patterns": " / ".join(entry.patterns),
            "why": entry.why,
            "ticket": entry.ticket,
            "who": entry.who,
            "at_ms": entry.at_ms,
            "after_the_event": entry.is_after_the_event,
        }
        for number, entry in in_force(entries).items()
        if entry.from_ms < w1_ms and entry.to_ms > w0_ms
    ]


def exclusions_before(entries: Sequence[Entry], w0_ms: int, since_ms: int) -> list[dict[str, Any]]:
    """Rows as of `remarks_on`: exclusions that touch [since, w0) and end by w0."""
    return [
        row
        for row in remarks_on(entries, since_ms, w0_ms)
        if row["kind"] == "exclusion" and row["to_ms"] <= w0_ms
    ]


def _line(entry: Entry, previous: str | None) -> bytes:
    fields: dict[str, Any] = asdict(entry)
    for name in ("at", "from", "to"):
        fields[name] = iso(fields.pop(f"{name}_ms"))
    text = json.dumps({"v": VERSION, "previous": previous, **fields}, sort_keys=True)
    return text.encode("ascii")


def _entry(found: Mapping[str, Any]) -> Entry:
    fields = {name: found[name] for name in Entry.__slots__ if not name.endswith("_ms")}
    if found["v"] != VERSION:
        raise ValueError(f"version {found['v']}, this program reads {VERSION}")
    for name in _TEXTS:
        if not isinstance(fields[name], str):
            raise TypeError(f"{name} is not text")
    if type(fields["withdraws"]) is not int:
        raise TypeError("withdraws is not a whole number")
    for name in ("at", "from", "to"):
        fields[f"{name}_ms"] = moment_ms(found[name])
    return Entry(**fields)
