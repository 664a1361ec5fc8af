"""Spells: a member of a group with a controller leads, follows, and leads again in one life.

Runs in the executors, over all distinct samples of a group, before they become streams. Each
stretch of a life in which its role stays becomes a life of its own, which names the stretch before
as the one that it comes from: so all that is said of lives (two masters, failovers, clocks, what
nobody counted) holds for times as leader, too. Its counters begin at what had been counted before.
The rule is in docs/sla_report.md ("Members of a group with a controller"). Must not know streams,
replicas or figures.

Tested by tests/spark/figures/test_spells.py.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from spark.dumps.dump_line import Ended, Latency, Line, Sends, SyncResults, TakenRole
from spark.vocabulary import IS_MASTER, MASTER_ROLES, SEND_ANSWERS, SYNC_RESULTS

if TYPE_CHECKING:
    from spark.figures.sample_stream import Sample

_SLAVE: Final = "SLAVE"
_LEAD: Final = "LEAD"
_FENCED: Final = "FENCED"
_CUT_REFUSED: Final = "cut refused"
"""The cause of a role that no controller gave."""
_MARK: Final = "/"
"""Between the boot of a life and the number of the sample behind which a later spell of it began: a
boot has hexadecimal digits only."""
_Life = tuple[int, str]
"""Broker id and boot."""


def is_change_of_role(line: Line) -> bool:
    """Whether the life of a line is a later spell: it began without a start."""
    return _MARK in line.boot


def led_epoch(line: Line) -> int | None:
    """The epoch in which its broker led; None for what is no leader's line in a group with a
    controller."""
    member = line.member
    return member.epoch if member is not None and line.role in MASTER_ROLES else None


def split_spells(samples: Iterable[Sample]) -> list[Sample]:
    """The same samples, those of members as lives of one role each; in any order. `samples`: no two
    of the same number of a life."""
    found: list[Sample] = []
    lives: dict[_Life, list[Sample]] = {}
    for sample in samples:
        if sample.line.member is None:
            found.append(sample)
        else:
            lives.setdefault((sample.line.broker_id, sample.line.boot), []).append(sample)
    for life in lives.values():
        life.sort(key=lambda sample: sample.line.seq)
    over = _ends_of_epochs(lives.values())
    spells = {boot: _Splitter(over).spells(life) for (_, boot), life in lives.items()}
    for some in spells.values():
        for spell in some:
            found += spell.renamed(spells)
    return found


class Epochs:
    """Which epochs had no master: a controller that finds none gives the group a new epoch, too,
    and its members keep that they were fenced in it."""

    def __init__(self, roles: Iterable[TakenRole]) -> None:
        without: set[int] = set()
        led: set[int] = set()
        for role in roles:
            if role.role == _LEAD:
                led.add(role.epoch)
            elif role.role == _FENCED and role.master is None and role.cause != _CUT_REFUSED:
                without.add(role.epoch)
        self._without: Final = sorted(without - led)

    def are_adjacent(self, old: int, new: int) -> bool:
        """Whether nobody can have led between these two."""
        first = bisect.bisect_right(self._without, old)
        return new > old and bisect.bisect_left(self._without, new) - first == new - old - 1


def roles_of(samples: Iterable[Sample]) -> Iterable[TakenRole]:
    """All that their lines tell; a life repeats some of the one before."""
    return (role for sample in samples for role in sample.line.roles or ())


def prove_gaps(
    masters: Sequence[Sample], begins: Iterable[Sample], epochs: Epochs | None = None
) -> None:
    """Between the time of one leader and that of the next one nobody led: it is proved down, if the
    last line of the former is known to be its last, and no epoch between theirs had a master.
    `masters`: laid out, in their order; `begins`: the first samples of lives."""
    epochs = epochs or Epochs(())
    named = {(each.line.prev_boot, each.line.prev_seq) for each in begins}
    early = _told_early(masters)
    latest_ms = 0
    for sample in masters:
        before, line = sample.predecessor, sample.line
        epoch = led_epoch(line)
        if before is not None and not sample.same_boot and line.seq == 1 and epoch is not None:
            last, old = before.line, led_epoch(before.line)
            is_next = old is not None and epochs.are_adjacent(old, epoch)
            is_end = last.final or (last.boot, last.seq) in named
            is_right = sample.proves_down and not sample.hidden_down_ms
            if is_next and is_end and is_right and sample.down_ms is None:
                told_ms = max(latest_ms, before.ts, early.get(line.boot, 0))
                if told_ms < min(line.boot_ts, sample.ts):
                    sample.down_ms = told_ms
        latest_ms = max(latest_ms, sample.ts)


def _told_early(masters: Iterable[Sample]) -> dict[str, int]:
    """Life -> the latest of its lines from before its first one, as its clock was set back later:
    they have told of that time already."""
    first_ms: dict[str, int] = {}
    found: dict[str, int] = {}
    for each in masters:
        boot = each.line.boot
        if each.line.seq == 1:
            first_ms[boot] = each.ts
        elif each.ts < first_ms.get(boot, 0):
            found[boot] = max(each.ts, found.get(boot, 0))
    return found


def times_as_leader(
    group: tuple[str, str], masters: Iterable[Sample]
) -> dict[str, list[tuple[int, int, str]]]:
    """Replica -> (from_ms, to_ms, reason) of times in which its broker led, so that it was none.
    `masters`: in their order."""
    found: dict[str, list[tuple[int, int, str]]] = {}
    for sample in masters:
        if led_epoch(sample.line) is None:
            continue
        some = found.setdefault(f"{group[1]}:{sample.line.broker_id}", [])
        if sample.same_boot and some:
            some[-1] = some[-1][0], max(some[-1][1], sample.ts), IS_MASTER
        else:
            some.append((sample.start_ms, sample.ts, IS_MASTER))
    return found


def _ends_of_epochs(lives: Iterable[Sequence[Sample]]) -> dict[int, int]:
    """Epoch -> the first moment, epoch ms, of which a line says that its broker led in a newer
    one."""
    starts: dict[int, int] = {}
    for life in lives:
        for sample in life:
            member, line = sample.line.member, sample.line
            if member is not None and member.leads:
                ts = min(line.ts, line.ts - (line.mono - member.since))
                starts[member.epoch] = min(ts, starts.get(member.epoch, ts))
    ends: dict[int, int] = {}
    first = None
    for epoch in sorted(starts, reverse=True):
        if first is not None:
            ends[epoch] = first
        first = starts[epoch] if first is None else min(first, starts[epoch])
    return ends


@dataclass(slots=True)
class _Spell:
    """`boot`: its name as a life. `base_seq`: what is taken off the numbers of its samples, `base`:
    off their counts. `start_ms`: of a later one, its begin. `last_seq`: number of its last sample,
    counted in the spell. `end`: of a leader that leads no more, a last sample at that moment."""

    samples: list[Sample]
    leads: bool
    boot: str
    first_seq: int
    base_seq: int = 0
    base: Line | None = None
    start_ms: int = 0
    before: _Spell | None = None
    last_seq: int = 0
    end: Sample | None = None
    goes_on: bool = False
    """Another one follows it, whose counts begin where its own end."""

    def renamed(self, spells: Mapping[str, Sequence[_Spell]]) -> list[Sample]:
        """Its samples as those of a life."""
        for sample in self.samples:
            line = sample.line
            changes: dict[str, Any] = {"boot": self.boot, "seq": line.seq - self.base_seq}
            if self.base is not None:
                changes |= _counted_since(self.base, line) | {"boot_ts": self.start_ms}
            changes |= self._past(line, spells)
            if not self.leads:
                changes |= {"role": _SLAVE, "replicas": None}
                sample.rows = {}
            sample.line = msgspec.structs.replace(line, **changes)
        if self.end is not None:
            return [*self.samples, self.end]
        if self.goes_on:
            self.samples[-1].line.final = True
        return self.samples

    def _past(self, line: Line, spells: Mapping[str, Sequence[_Spell]]) -> dict[str, Any]:
        """Which life it comes from."""
        if self.before is not None:
            return self.before.as_past() | {"ended": None}
        named = _find(spells.get(line.prev_boot or "", ()), line.prev_seq or 0)
        if named is None or named.base is None:
            return {}
        found: dict[str, Any] = {
            "prev_boot": named.boot,
            "prev_seq": (line.prev_seq or 0) - named.base_seq,
        }
        if line.ended is not None and line.ended.boot == line.prev_boot:
            found["ended"] = _ended_since(named.base, line.ended, named.boot)
        return found

    def as_past(self) -> dict[str, Any]:
        """What a spell behind it names."""
        return {"prev_boot": self.boot, "prev_seq": self.last_seq}


def _find(spells: Sequence[_Spell], seq: int) -> _Spell | None:
    """That of a line of a life, by its number."""
    if not spells:
        return None
    place = bisect.bisect_right(spells, seq, key=lambda spell: spell.first_seq)
    return spells[max(place - 1, 0)]


class _Splitter:
    """Of one life after the other. `over`: epoch -> when a newer one had begun."""

    def __init__(self, over: Mapping[int, int]) -> None:
        self._over: Final = over

    def spells(self, life: Sequence[Sample]) -> list[_Spell]:
        """In their order."""
        found: list[_Spell] = []
        before, led_before = None, None
        for sample in life:
            led = self._led(sample, before)
            if before is None:
                line = sample.line
                found.append(_Spell([sample], led is not None, line.boot, line.seq))
            elif led != led_before:
                found.append(self._next(found[-1], sample, before, leads=led is not None))
            else:
                found[-1].samples.append(sample)
            found[-1].last_seq = sample.line.seq - found[-1].base_seq
            before, led_before = sample, led
        return found

    def _next(self, past: _Spell, sample: Sample, before: Sample, *, leads: bool) -> _Spell:
        line, last = sample.line, before.line
        spell = _Spell([sample], leads, f"{line.boot}{_MARK}{line.seq}", line.seq, line.seq - 1)
        spell.before, past.goes_on = past, True
        spell.start_ms = sample.ts - (line.mono - self._since(line, last, leads=leads))
        if past.leads and not leads:
            # What was answered until then is the leader's, and so is what it refused since.
            past.end = self._end_of(past, before, line, spell.start_ms)
            past.last_seq = past.end.line.seq
            spell.base = line
        else:
            spell.base = last
        return spell

    def _led(self, sample: Sample, before: Sample | None) -> int | None:
        """The epoch in which its broker leads; None: in none, or in one that is over, and it has
        answered no send well since a newer one began."""
        member = sample.line.member
        if member is None or not member.leads:
            return None
        over_ms = self._over.get(member.epoch)
        if over_ms is None or sample.ts <= over_ms:
            return member.epoch
        if before is not None and before.ts >= over_ms and _answered(sample) > _answered(before):
            return member.epoch
        return None

    def _since(self, line: Line, last: Line, *, leads: bool) -> int:
        """The monotonic ms at which the role changed between two lines; of several changes the
        first one, where a leader's time ends with it."""
        member = line.member
        assert member is not None
        since = member.since
        if not leads:
            changes = [role.mono for role in line.roles or () if role.mono > last.mono]
            since = min(changes, default=since)
            if member.leads:  # as it believes
                since = line.mono - (line.ts - self._over.get(member.epoch, line.ts))
        return min(max(since, last.mono), line.mono)

    def _end_of(self, past: _Spell, before: Sample, line: Line, end_ms: int) -> Sample:
        """A last sample of a leader, at the moment at which it led no more: with what was counted
        until the line behind it. No mark of a line reaches it."""
        last = before.line
        member = last.member
        assert member is not None
        ts = max(before.ts, min(end_ms, self._over.get(member.epoch, end_ms)))
        passed_ms, is_next = ts - before.ts, line.seq == last.seq + 1
        counted = _counts(line) if past.base is None else _counted_since(past.base, line)
        changes: dict[str, Any] = {
            "ts": ts,
            "mono": last.mono + passed_ms,
            "since": last.mono + passed_ms,
            "uptime": None if last.uptime is None else last.uptime + passed_ms,
            "boot": past.boot,
            "seq": last.seq - past.base_seq + (1 if is_next else 2),
            "final": True,
            **dict.fromkeys(("unreplicated_bytes", "oldest_unreplicated_ms"), None),
            **dict.fromkeys(("exposure", "ended", "roles"), None),
        }
        if past.before is not None:
            changes |= past.before.as_past() | {"boot_ts": past.start_ms}
        ended = msgspec.structs.replace(last, **(changes | counted))
        return msgspec.structs.replace(
            before,
            line=ended,
            ts=ts,
            rows=dict(before.rows),
            duplicates=0,
            conflict=False,
            is_line=False,
        )


def _answered(sample: Sample) -> int:
    sends = sample.line.sends
    return 0 if sends is None else sends.ok


def _counts(line: Line) -> dict[str, Any]:
    return {
        "msgs_in": line.msgs_in,
        "bytes_in": line.bytes_in,
        "sync": line.sync,
        "ack_latency": line.ack_latency,
        "sends": line.sends,
    }


def _counted_since(past: Line, line: Line) -> dict[str, Any]:
    """What a line counts beyond another one of its life."""
    return {
        "msgs_in": max(0, line.msgs_in - past.msgs_in),
        "bytes_in": max(0, line.bytes_in - past.bytes_in),
        "sync": _sync_since(past.sync, line.sync),
        "ack_latency": _latency_since(past.ack_latency, line.ack_latency),
        "sends": _sends_since(past.sends, line.sends),
    }


def _sync_since(past: SyncResults, now: SyncResults) -> SyncResults:
    return SyncResults(**_risen(SYNC_RESULTS, past, now))


def _sends_since(past: Sends | None, now: Sends | None) -> Sends | None:
    if past is None or now is None:
        return now
    return Sends(
        **_risen(SEND_ANSWERS, past, now), latency=_latency_since(past.latency, now.latency)
    )


def _latency_since(past: Latency, now: Latency) -> Latency:
    if past.le != now.le:
        return now
    counts = [max(0, a - b) for a, b in zip(now.counts, past.counts, strict=True)]
    return Latency(now.le, counts, max(0.0, now.sum - past.sum))


def _ended_since(past: Line, ended: Ended, boot: str) -> Ended:
    sends = _sends_since(past.sends, ended.sends)
    assert sends is not None
    return Ended(boot, ended.uncounted_ms, _sync_since(past.sync, ended.sync), sends)


def _risen(names: Sequence[str], past: object, now: object) -> dict[str, int]:
    return {name: max(0, getattr(now, name) - getattr(past, name)) for name in names}
