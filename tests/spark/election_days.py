"""Random days of a group with a controller, with events known at 1 ms: who leads when, what was
answered, whose copies were in sync. `random_election_day(seed)` gives the day, `lines` are what its
members' supervisors write of it (docs/metrics_dump.md), with lines lost and clocks of hosts apart;
with `eventful` members join late, too, and clocks are set.

`python -m tests.spark.election_days FIRST COUNT` has the report's core and the plain program judge
so many days of either kind, without Spark, and says where they differ, and what neither may say of
the day's events. Must not import how the report splits lives.
"""

from __future__ import annotations

import itertools
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.spark.both_ways import Question, core_tables_of, differences, plain_tables
from tests.spark.core_tables import Tables
from tests.spark.dump_lines_builder import DATE, LAG_LE, T0, ack_latency, exposure, sync, write_dump
from tests.spark.plain_samples import Window
from tests.spark.plain_verdicts import PlainObjective

MINUTE: Final = 60_000
W0: Final = T0 + 600 * MINUTE
W1: Final = W0 + 40 * MINUTE
BEGIN: Final = W0 - 10 * MINUTE
INTERVAL: Final = 5_000
IDS: Final = (1, 2, 3)
LATE_ID: Final = 4
"""Of the one that joins in the middle of the day."""
RECORD: Final = 100
"""Bytes of the log for each send that was answered well."""
BUDGET_PERCENT: Final = 99.0
KINDS: Final = ("move", "move", "kill", "stop", "isolate", "same")
"""Of elections: an operator moves the master; it is killed; stopped; cut off, and believes to lead
for a while; killed, and the same one leads again."""
Span = tuple[int, int]


@dataclass
class Term:
    """`end`: from then on it answers no send well; `believes_until`: then it knows so. `kind`: how
    it ended. `lost`: answered bytes that the next leader lacks."""

    epoch: int
    id: int
    start: int
    end: int = W1 + 10 * MINUTE
    believes_until: int = W1 + 10 * MINUTE
    kind: str = "lasts"
    over: int = W1 + 10 * MINUTE
    """Of its mandate."""
    lost: int = 0
    log_start: int = 0
    tail: int = 0


@dataclass
class Boot:
    """One life of one member's supervisor."""

    id: int
    start: int
    end: int = W1 + 10 * MINUTE
    in_order: bool = False


@dataclass
class Rate:
    """Answers of one kind, each second, by a member."""

    id: int
    start: int
    end: int
    kind: str
    per_s: int

    def count(self, start: int, end: int) -> int:
        """Those of [start, end)."""

        def until(ms: int) -> int:
            return max(0, min(ms, self.end) - self.start) * self.per_s // 1_000

        return until(end) - until(start)


@dataclass
class ElectionDay:
    """The events, and the lines. `cut_off`: spans in which a follower is not linked."""

    seed: int
    terms: list[Term] = field(default_factory=list)
    boots: list[Boot] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)
    cut_off: list[tuple[int, int, int]] = field(default_factory=list)
    joined_ms: dict[tuple[int, int], int] = field(default_factory=dict)
    """(epoch, id) -> when that member's copy got in sync under that leader."""
    skew: dict[int, int] = field(default_factory=dict)
    copied_since: dict[tuple[int, int], int] = field(default_factory=dict)
    """(epoch, id) -> from when on, until then, it was copied for the first time."""
    set_clocks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Member -> when its host's clock was set, and how far ahead it is since; no time service holds
    it."""

    @property
    def ids(self) -> list[int]:
        return sorted({boot.id for boot in self.boots})

    @property
    def set_ms(self) -> int:
        """So far a clock may be off."""
        return max((abs(ahead) for _, ahead in self.set_clocks.values()), default=0)

    def clock(self, member: int, at: int) -> int:
        """What the wall clock of a member's host shows."""
        since, ahead = self.set_clocks.get(member, (W1 + 60 * MINUTE, 0))
        return at + self.skew[member] + (ahead if at >= since else 0)

    # -- the truth -----------------------------------------------------------------------------

    def answered(self, kind: str, start: int = W0, end: int = W1) -> int:
        return sum(rate.count(start, end) for rate in self.rates if rate.kind == kind)

    def without_master(self) -> list[Span]:
        """When nobody took messages, in the window."""
        spans = [(a.end, b.start) for a, b in itertools.pairwise(self.terms)]
        return [(max(a, W0), min(b, W1)) for a, b in spans if b > W0 and a < W1 and a < b]

    def in_sync(self, member: int, at: int) -> bool:
        """Whether a leader has it in sync."""
        term = next((one for one in self.terms if one.start <= at < one.end), None)
        return term is not None and self._row(term, member, at) == "in_sync"

    def leads(self, member: int, at: int) -> bool:
        """An isolated leader has its mandate until another one begins."""
        return any(one.id == member and one.start <= at < one.over for one in self.terms)

    def times(self, member: int) -> dict[str, int]:
        """Ms of the window by what is true of a member's copy."""
        moments = {W0, W1}
        for term in self.terms:
            moments |= {term.start, term.end, term.over}
        moments |= {ms for (_, number), ms in self.joined_ms.items() if number == member}
        for number, start, end in self.cut_off:
            moments |= {start, end} if number == member else set()
        for boot in self.boots:
            moments |= {boot.start, boot.end} if boot.id == member else set()
        copies = [ms for (_, number), ms in self.copied_since.items() if number == member]
        first = min(copies, default=BEGIN)
        joined = [ms for (_, number), ms in self.joined_ms.items() if number == member]
        in_sync = min(joined, default=BEGIN)
        moments |= {*copies, first}
        found = dict.fromkeys(("good", "bad", "leads", "new"), 0)
        for start, end in itertools.pairwise(sorted(ms for ms in moments if W0 <= ms <= W1)):
            is_good = self.in_sync(member, start)
            what = "leads" if self.leads(member, start) else "good" if is_good else "bad"
            if start < first or (what == "bad" and start < in_sync and self.copied(member, start)):
                what = "new"
            found[what] += end - start
        return found

    def copied(self, member: int, at: int) -> bool:
        """Whether a leader copies its log to a member that never was in sync."""
        term = next((one for one in self.terms if one.start <= at < one.end), None)
        return term is not None and self._row(term, member, at) == "catching_up"

    def _row(self, term: Term, member: int, at: int) -> str | None:
        """What the leader sees of a member; None before it has heard of it."""
        joined = self.joined_ms.get((term.epoch, member))
        copied = self.copied_since.get((term.epoch, member), joined)
        if joined is None or copied is None or at < copied:
            return None
        for number, start, end in self.cut_off:
            if number == member and start <= at < end:
                return "disconnected"
        if at >= term.end:
            return "disconnected"  # It is isolated.
        alive = any(b.id == member and b.start <= at < b.end for b in self.boots)
        return "disconnected" if not alive else "in_sync" if at >= joined else "catching_up"

    # -- the lines -----------------------------------------------------------------------------

    def lines(self) -> list[dict[str, Any]]:
        rng = random.Random(self.seed + 1)
        found: list[dict[str, Any]] = []
        numbers: Counter[int] = Counter()
        last: dict[int, tuple[str, int, Boot]] = {}
        for boot in sorted(self.boots, key=lambda one: one.start):
            lines = self._of_boot(boot, numbers, last.get(boot.id), rng)
            last[boot.id] = lines[-1]["boot"], lines[-1]["seq"], boot
            found += lines
        return _some_lost(found, rng)

    def _of_boot(
        self,
        boot: Boot,
        numbers: Counter[int],
        past: tuple[str, int, Boot] | None,
        rng: random.Random,
    ) -> list[dict[str, Any]]:
        name = f"{boot.id:04x}{boot.start % 0x10000:04x}" * 2
        roles = self._roles(boot)
        moments = [*range(boot.start + rng.randrange(500), boot.end, INTERVAL)]
        if boot.in_order:
            moments.append(boot.end)
        lines, told_until = [], 0
        for seq, at in enumerate(moments, 1):
            now = [role for role in roles if role["at"] <= at]
            fresh = now[told_until:]
            told_until = len(now)
            line = self._line(boot, name, seq, at, now[-1] if now else None)
            line |= {"prev_boot": past[0] if past else None, "prev_seq": past[1] if past else None}
            if fresh:
                line["roles"] = [
                    self._kept(boot, role, numbers, is_new=role is roles[0]) for role in fresh
                ]
            if seq == 1 and past is not None and rng.random() < 0.7:
                line["ended"] = self._ended(past[2], past[0])
            lines.append(line)
        if boot.in_order:
            lines[-1]["final"] = True
        return lines

    def _roles(self, boot: Boot) -> list[dict[str, Any]]:
        """Those that it takes, in their order."""
        found: list[dict[str, Any]] = []
        for before, term in zip([None, *self.terms], self.terms, strict=False):
            behind = 0
            if term.id == boot.id:
                at, role = term.start, "LEAD"
            elif before is not None and before.id == boot.id and before.start < boot.end:
                at, role = max(before.believes_until, term.start), "FOLLOW"
                if before.kind == "move" and boot.start < before.end:
                    behind = term.epoch - before.epoch - 1
                    at = term.start if behind else before.end
                    fenced = {"at": before.end, "role": "FENCED", "term": before, "of": before}
                    found += [fenced | {"without": behind}] if behind else []
            else:
                at, role = term.start + 20, "FOLLOW"
            until = min(term.believes_until if role == "LEAD" else term.end, boot.end)
            at = max(at, boot.start + 300) if until > boot.start else at
            if boot.start <= at < until:
                found.append({"at": at, "role": role, "term": term, "of": before, "behind": behind})
        return sorted(found, key=lambda role: int(role["at"]))

    def _kept(
        self, boot: Boot, role: dict[str, Any], numbers: Counter[int], *, is_new: bool
    ) -> dict[str, Any]:
        numbers[boot.id] += 1
        term, old, at = role["term"], role["of"], role["at"]
        ends = self.log_at(old, old.end) if old is not None else 0
        led = old is not None and old.id == boot.id
        confirm = ends if led else min(term.log_start, ends)
        gap = at - old.end if old is not None and role["role"] == "LEAD" else 0
        tail = old.tail if old is not None and led else 0
        log_end = term.log_start if role["role"] == "LEAD" else ends + tail
        # A controller that finds no master gives the group a new epoch, too.
        without, behind = role.get("without", 0), role.get("behind", 0)
        known = old if old is not None and not is_new else None
        return {
            "number": numbers[boot.id],
            "ts": self.clock(boot.id, at),
            "mono": at - boot.start + 1_000,
            "machine_boot": f"{boot.id:016x}",
            "uptime": at - BEGIN + 10**7,
            "role": role["role"],
            "cause": "start" if is_new else "notified",
            "id": boot.id,
            "epoch": term.epoch + without,
            "master": None if without else term.id,
            "old_epoch": known.epoch + behind if known is not None else 0,
            "old_master": known.id if known is not None and not behind else None,
            "without_master_ms": None if is_new else gap,
            "members": self.ids,
            "confirm_offset": confirm,
            "log_end": log_end,
        }

    def log_at(self, term: Term, at: int) -> int:
        """Where the acknowledged log of a leader ends."""
        mine = [rate for rate in self.rates if rate.kind == "ok" and rate.id == term.id]
        end = min(at, term.end)
        return term.log_start + RECORD * sum(rate.count(term.start, end) for rate in mine)

    def _counts(self, boot: Boot, at: int) -> dict[str, int]:
        return {
            kind: sum(
                rate.count(boot.start, at)
                for rate in self.rates
                if rate.id == boot.id and rate.kind == kind
            )
            for kind in ("ok", "refused", "flush_slave_timeout")
        }

    def _ended(self, boot: Boot, name: str) -> dict[str, Any]:
        counts = self._counts(boot, boot.end)
        return {"boot": name, "uncounted_ms": 0, **self._answers(counts)}

    @staticmethod
    def _answers(counts: dict[str, int]) -> dict[str, Any]:
        late = counts["flush_slave_timeout"]
        latency = ack_latency([sum(counts.values()), 0, 0, 0, 0])
        others = {"flush_disk_timeout": 0, "slave_not_available": 0}
        return {
            "sync": sync(counts["ok"], late),
            "sends": {**counts, **others, "latency": latency},
        }

    def _line(
        self, boot: Boot, name: str, seq: int, at: int, role: dict[str, Any] | None
    ) -> dict[str, Any]:
        leads = role is not None and role["role"] == "LEAD" and at <= role["term"].believes_until
        term: Term | None = role["term"] if role is not None else None
        counts, mono = self._counts(boot, at), at - boot.start + 1_000
        end = self.log_at(term, at) if leads and term is not None else 1_000
        line: dict[str, Any] = {
            "v": 2,
            "ts": self.clock(boot.id, at),
            "mono": mono,
            "boot": name,
            "boot_ts": self.clock(boot.id, boot.start),
            "seq": seq,
            "interval_ms": INTERVAL,
            "final": False,
            "machine_boot": f"{boot.id:016x}",
            "uptime": at - BEGIN + 10**7,
            "clock_error_ms": None if boot.id in self.set_clocks else 1,
            "since": max(0, mono - INTERVAL) if seq > 1 else 1_000,
            "cluster": "c",
            "broker": "b",
            "broker_id": boot.id,
            "host": f"10.0.0.{boot.id}:10911",
            "role": "SYNC_MASTER" if leads else "SLAVE",
            "version": "0.1.0",
            "config": "0123456789ab",
            "ready": True,
            "min_offset": 0,
            "max_offset": end,
            "replicated_offset": end if leads else 0,
            "msgs_in": counts["ok"],
            "bytes_in": counts["ok"] * RECORD,
            **self._answers(counts),
            "ack_latency": ack_latency(),
            "unreplicated_bytes": 0 if leads else None,
            "oldest_unreplicated_ms": 0 if leads else None,
            "exposure": exposure(0, 0, seq) if leads else None,
            "processes": [{"name": "remoting", "up": True, "restarts": 0}],
            "lag_le": list(LAG_LE),
            "replicas": self._rows(term, boot, at) if leads and term is not None else [],
            "metadata": [],
            "member": {
                "role": role["role"] if role is not None else "FENCED",
                "leads": leads,
                "epoch": term.epoch if term is not None else 0,
                "master": term.id if term is not None else None,
                "since": role["at"] - boot.start + 1_000 if role is not None else 0,
            },
        }
        return line

    def _rows(self, term: Term, boot: Boot, at: int) -> list[dict[str, Any]]:
        rows = []
        for member in self.ids:
            state = self._row(term, member, at) if member != boot.id else None
            if state is None:
                continue
            spent = self._spent(term, member, at)
            lag_time = [0] * (len(LAG_LE) + 1)
            lag_time[0] = spent["in_sync"]
            rows.append(
                {
                    "id": f"b:{member}",
                    "connected": state != "disconnected",
                    "in_sync": state == "in_sync",
                    "state": state,
                    "ack_offset": self.log_at(term, at),
                    "lag_bytes": 0,
                    "lag_ms": 0,
                    "lag_exact": True,
                    "lag_ms_max": 0,
                    "transferred": self.log_at(term, at) - term.log_start,
                    "reconnects": 0,
                    "rejected_acks": 0,
                    "remote": None,
                    "last_error": None,
                    "state_ms": spent,
                    "lag_time": lag_time,
                }
            )
        return rows

    def _spent(self, term: Term, member: int, at: int) -> dict[str, int]:
        """From the first connection under this leader on; an isolated one has none any more."""
        in_sync = self.joined_ms[term.epoch, member]
        joined = self.copied_since.get((term.epoch, member), in_sync)
        changes = sorted(
            {joined, min(at, in_sync), at, max(joined, min(at, term.end))}
            | {ms for n, *span in self.cut_off if n == member for ms in span if joined < ms < at}
            | {
                ms
                for boot in self.boots
                if boot.id == member
                for ms in (boot.start, boot.end)
                if joined < ms < at
            }
        )
        found = {"in_sync": 0, "catching_up": 0, "disconnected": 0}
        for start, end in itertools.pairwise(changes):
            found[self._row(term, member, start) or "disconnected"] += end - start
        return found

    def write(self, root: Path) -> None:
        write_dump(root, self.lines())


def _some_lost(lines: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    if rng.random() < 0.6:
        return lines
    lost = set()
    for _ in range(rng.randrange(1, 4)):
        start = rng.randrange(BEGIN, W1)
        who, length = rng.choice(IDS), rng.choice((INTERVAL, 3 * INTERVAL, 60_000))
        lost |= {
            id(line)
            for line in lines
            if line["broker_id"] == who and start <= line["ts"] < start + length and line["seq"] > 1
        }
    return [line for line in lines if id(line) not in lost]


def random_election_day(seed: int, *, eventful: bool = False) -> ElectionDay:
    """A day with up to six elections in 40 minutes."""
    rng = random.Random(seed)
    moments, at = [], BEGIN + rng.randrange(1, 15) * MINUTE
    for _ in range(rng.randrange(0, 7)):
        at += rng.randrange(90_000, 6 * MINUTE)
        if at < W1 - 30_000:
            moments.append((at, rng.choice(KINDS)))
    if not eventful:
        return _day(seed, moments, rng)
    more = random.Random(f"more of {seed}")
    late = Boot(LATE_ID, W0 + more.randrange(20 * MINUTE)) if more.random() < 0.7 else None
    day = _day(seed, moments, rng, late)
    for member in day.ids:
        if more.random() < 0.3:
            ahead = more.choice((1_500, 20_000, 90_000, 30 * MINUTE)) * more.choice((-1, 1))
            day.set_clocks[member] = more.randrange(BEGIN, W1), ahead
    return day


def day_of(*kinds: str) -> ElectionDay:
    """Elections, the first in the middle of the window, five minutes apart."""
    moments = [(W0 + (20 + 5 * place) * MINUTE, kind) for place, kind in enumerate(kinds)]
    return _day(1, moments, random.Random(1))


def _day(
    seed: int,
    elections: Sequence[tuple[int, str]],
    rng: random.Random,
    late: Boot | None = None,
) -> ElectionDay:
    """`late`: a member that joins."""
    day = ElectionDay(seed)
    day.skew = {member: rng.randrange(-300, 300) if rng.random() < 0.5 else 0 for member in IDS}
    day.boots = [Boot(member, BEGIN + member * 100) for member in IDS]
    alive = {boot.id: boot for boot in day.boots}
    term = Term(1, rng.choice(IDS), BEGIN + 3_000)
    day.terms.append(term)
    _join_all(day, term, alive, rng)
    for at, kind in elections:
        if late is not None and late.id not in alive and at > late.start + 2 * MINUTE:
            _join(day, term, alive, late)
        if at > term.start + 60_000:
            term = _elect(day, term, alive, (at, kind), rng)
    if late is not None and late.id not in alive:
        _join(day, term, alive, late)
    _answer(day, rng)
    return day


def _join(day: ElectionDay, term: Term, alive: dict[int, Boot], late: Boot) -> None:
    """A new member, which has nothing yet."""
    late.start = max(late.start, term.start + 10_000)
    day.boots.append(late)
    alive[late.id] = late
    day.skew[late.id] = 0
    since = late.start + 700
    day.copied_since[term.epoch, late.id] = since
    day.joined_ms[term.epoch, late.id] = since + 30_000


def _join_all(day: ElectionDay, term: Term, alive: dict[int, Boot], rng: random.Random) -> None:
    for member in alive:
        if member != term.id:
            day.joined_ms[term.epoch, member] = term.start + rng.randrange(50, 1_500)


def _elect(
    day: ElectionDay,
    term: Term,
    alive: dict[int, Boot],
    election: tuple[int, str],
    rng: random.Random,
) -> Term:
    at, kind = election
    gap = rng.choice((rng.randrange(40, 900), rng.randrange(1_000, 9_000)))
    others = [member for member in alive if member != term.id]
    term.kind, term.end = kind, at
    new = term.id if kind == "same" else rng.choice(others)
    after = Term(term.epoch + 1 + (rng.random() < 0.2), new, at + gap)
    term.believes_until = {"isolate": after.start + rng.randrange(3_000, 40_000)}.get(kind, at)
    term.over = after.start if kind == "isolate" else at
    term.tail = rng.choice((0, 500))
    term.lost = rng.choice((0, 0, 0, 0, 2_000)) if kind in ("kill", "isolate") else 0
    if kind in ("kill", "stop", "same"):
        boot = alive[term.id]
        boot.end, boot.in_order = at, kind == "stop"
        back = at + rng.randrange(3_000, 90_000) if kind != "same" else at + gap // 2
        day.boots.append(Boot(term.id, back))
        alive[term.id] = day.boots[-1]
        if kind == "same":
            after.start = max(after.start, back + 400)
    day.terms.append(after)
    _join_all(day, after, alive, rng)
    if kind != "same":  # Who led before is a slave later than the others.
        late = {"kill": alive[term.id].start, "stop": alive[term.id].start}
        since = max(after.start, late.get(kind, term.believes_until)) + rng.randrange(350, 3_000)
        day.joined_ms[after.epoch, term.id] = since
    if rng.random() < 0.3 and len(others) > 1:
        start = after.start + rng.randrange(5_000, 40_000)
        member = next(member for member in others if member != new) if kind != "same" else others[0]
        day.cut_off.append((member, start, start + rng.randrange(2_000, 25_000)))
    return after


def _answer(day: ElectionDay, rng: random.Random) -> None:
    """What clients were answered, and where the logs begin after that."""
    per_s, refused = rng.randrange(5, 200), rng.choice((0, 3, 20))
    for place, term in enumerate(day.terms):
        day.rates.append(Rate(term.id, term.start, term.end, "ok", per_s))
        if place + 1 == len(day.terms):
            break
        after = day.terms[place + 1]
        if term.kind in ("move", "isolate"):
            kind = "refused" if term.kind == "move" else "flush_slave_timeout"
            until = max(term.believes_until, after.start) if term.kind == "isolate" else after.start
            day.rates.append(Rate(term.id, term.end, until, kind, refused))
        else:
            other = next(member for member in IDS if member != term.id)
            day.rates.append(Rate(other, term.end, after.start, "refused", refused))
    for before, term in itertools.pairwise(day.terms):
        ends = day.log_at(before, before.end)
        before.lost = min(before.lost, ends)
        term.log_start = ends - before.lost


# -- the judge ---------------------------------------------------------------------------------


def tables_of(day: ElectionDay, root: Path) -> Tables:
    return tables_of_lines(day.lines(), root)


def tables_of_lines(lines: list[dict[str, Any]], root: Path) -> Tables:
    write_dump(root, lines)
    return core_tables_of(question_of(root))


def question_of(root: Path) -> Question:
    objective = PlainObjective(
        "all", availability_percent=BUDGET_PERCENT, min_coverage_percent=0, sends_ok_percent=99.0
    )
    return Question([root], Window(DATE, W0, W1), [objective])


def wrong_of(day: ElectionDay, root: Path) -> tuple[Tables, list[str]]:
    """The core's tables, and what is wrong with them: with the day's events, or with what the plain
    program says."""
    tables = tables_of(day, root)
    plain = plain_tables(question_of(root))
    return tables, [*differences(tables, plain), *wrong(day, tables)]


def wrong(day: ElectionDay, tables: Tables) -> Iterator[str]:
    """What the report says that cannot be, one line each."""
    yield from _wrong_elections(day, tables)
    yield from _wrong_sends(day, tables["group_days"][0])
    budget_ms = (W1 - W0) * (100 - BUDGET_PERCENT) / 100
    rows = {row["replica"]: row for row in tables["replica_days"]}
    lost = any(row["promise"] == "lost" for row in tables["elections"])
    ends = sum(W0 - INTERVAL < term.end < W1 + INTERVAL for term in day.terms)
    for member in day.ids:
        true, row = day.times(member), rows.get(f"b:{member}")
        if row is None:
            if true["good"] + true["bad"]:
                yield f"b:{member} is not in the report"
            continue
        slack = 700 + 700 * ends + 2 * day.set_ms
        if row["good_s"] * 1000 > true["good"] + slack:
            yield f"b:{member}: {row['good_s']} s good, {true} is true"
        if row["bad_s"] * 1000 > true["bad"] + slack + ends * INTERVAL:
            yield f"b:{member}: {row['bad_s']} s bad, {true} is true"
        if row["excluded_s"] * 1000 > true["leads"] + true["new"] + slack:
            yield f"b:{member}: {row['excluded_s']} s excluded, {true} is true"
        if row["verdict"] == "met" and true["bad"] > budget_ms + slack:
            yield f"b:{member}: met, {true} is true"
        if lost and row["verdict"] != "breached":
            yield f"b:{member}: {row['verdict']}, and an answered message is lost"


def _wrong_elections(day: ElectionDay, tables: Tables) -> Iterator[str]:
    rows = {row["epoch"]: row for row in tables["elections"]}
    terms = {term.epoch: (before, term) for before, term in itertools.pairwise(day.terms)}
    for epoch, (before, term) in terms.items():
        row = rows.pop(epoch, None)
        if row is None:
            edge = 1_000 + day.set_ms
            if W0 + edge < term.start < W1 - edge and term.end - term.start > 2 * 60_000:
                yield f"no election of epoch {epoch}"
            continue
        if (row["broker_id"], abs(row["ts"] - term.start) <= 300 + day.set_ms) != (term.id, True):
            yield f"epoch {epoch}: broker {row['broker_id']} at {row['ts']}, {term} is true"
        gap_s = (term.start - before.end) / 1000
        said, off_s = row["without_master_s"], 0.7 + day.set_ms / 1000
        if said is not None and abs(said - gap_s) > off_s and before.kind != "isolate":
            yield f"epoch {epoch}: {said} s without a master, {gap_s} are true"
        if said is not None and before.kind == "isolate" and said > gap_s + off_s:
            yield f"epoch {epoch}: {said} s without a master, {gap_s} are true"
        if row["promise"] == "held" and before.lost:
            yield f"epoch {epoch}: held, and {before.lost} bytes are lost"
        if (row["lost_bytes"] or 0) > before.lost:
            yield f"epoch {epoch}: {row['lost_bytes']} bytes lost, {before.lost} are true"
    yield from (f"an election of epoch {epoch} that never was" for epoch in rows if epoch > 1)


def _wrong_sends(day: ElectionDay, group: dict[str, Any]) -> Iterator[str]:
    ok = day.answered("ok")
    failed = day.answered("refused") + day.answered("flush_slave_timeout")
    if group["sends_ok_most"] is None:
        return
    edge = 2_000 + day.set_ms // 5  # Clocks of hosts: what lies at the window's edge.
    for name, true in (("ok", ok), ("failed", failed)):
        least, most = group[f"sends_{name}_least"], group[f"sends_{name}_most"]
        if not least - edge <= true <= most + edge:
            yield f"between {least} and {most} sends {name}, and {true} are true"


def main(first: int, count: int) -> int:
    """The exit code."""
    bad, verdicts, promises = 0, Counter[str](), Counter[str]()
    for seed, eventful in itertools.product(range(first, first + count), (False, True)):
        with tempfile.TemporaryDirectory() as root:
            tables, found = wrong_of(random_election_day(seed, eventful=eventful), Path(root))
        bad += bool(found)
        verdicts.update(row["verdict"] for row in tables["replica_days"])
        promises.update(row["promise"] for row in tables["elections"])
        for text in found:
            print(f"seed {seed}{' eventful' if eventful else ''}: {text}", flush=True)
    good = 2 * count - bad
    print(f"{good} of {2 * count} days without a fault; {dict(verdicts)}; {dict(promises)}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
