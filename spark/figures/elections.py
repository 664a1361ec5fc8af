"""Elections of a date: who became master of a group, when and why, and what it may have cost.

Runs in the executors, over the samples of a group with a controller; a group without one has none.
What a member kept of the roles that it took is in its lines, once; a leader of whom only lines as
leader are left counts, too. The rule is in docs/sla_report.md ("Elections"). Must not know
objectives or pages.

Tested by tests/spark/figures/test_elections.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark.dumps.dump_line import TakenRole
from spark.figures.sample_stream import GroupSamples, Sample
from spark.figures.spells import is_change_of_role, led_epoch
from spark.reported_day import Day
from spark.vocabulary import PROMISE_HELD, PROMISE_LOST, PROMISE_UNKNOWN

Row = dict[str, Any]

_LEAD: Final = "LEAD"
FIRST: Final = "no master before it is known"
STOPPED: Final = "the old master was stopped in order"
REPLACED: Final = "the old master was replaced while it ran"
SILENT: Final = "the old master fell silent"
SAME: Final = "the same broker leads again"


@dataclass(frozen=True, slots=True)
class _Leader:
    """A time as leader, by its lines. `id`: of its broker; `goes_on`: its life did, in another
    role; `ended_by`: the role that it kept as the one behind it."""

    samples: list[Sample]
    goes_on: bool
    ended_by: TakenRole | None

    @property
    def id(self) -> int:
        return self.samples[0].line.broker_id

    @property
    def begin_ms(self) -> int | None:
        """None where its first lines are lost, or before those that were read."""
        first = self.samples[0]
        return first.line.boot_ts if first.line.seq == 1 else None

    @property
    def acknowledged(self) -> int:
        """Sends were answered SEND_OK up to here at least, bytes."""
        return max(each.line.replicated_offset for each in self.samples)


def elections(samples: GroupSamples, day: Day) -> list[Row]:
    """Rows of table `elections` without the group's name, by epoch."""
    roles = _kept(samples)
    leaders = _leaders(samples, roles)
    kept = {role.epoch: role for role in roles if role.role == _LEAD}
    found = []
    for epoch in sorted(leaders.keys() | kept.keys()):
        role, leader = kept.get(epoch), leaders.get(epoch)
        ts = role.ts if role is not None else leader.begin_ms if leader is not None else None
        if ts is None or not day.w0_ms <= ts < day.w1_ms:
            continue
        old_epoch = max((each for each in leaders if each < epoch), default=None)
        row: Row = dict.fromkeys(_COLUMNS)
        row |= {"epoch": epoch, "ts": ts, "old_epoch": old_epoch, "promise": PROMISE_UNKNOWN}
        row["broker_id"] = role.id if role is not None else leader.id if leader else None
        old = leaders[old_epoch] if old_epoch is not None else None
        row["why"] = _why(row["broker_id"], old)
        if old is not None:
            row["old_master"] = old.id
        if role is not None:
            row |= _cost(role, old)
        row["without_master_s"] = _without_master_s(ts, role, old)
        found.append(row)
    return found


_COLUMNS: Final = (
    *("epoch", "ts", "broker_id", "cause", "why", "old_epoch", "old_master", "members"),
    *("without_master_s", "confirm_offset", "log_end", "at_risk_bytes", "lost_bytes", "promise"),
)


def _leaders(samples: GroupSamples, roles: Iterable[TakenRole]) -> dict[int, _Leader]:
    """Epoch -> its leader; of two the one that stands first."""
    lives: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples.masters.samples:
        epoch = led_epoch(sample.line)
        if epoch is not None:
            lives.setdefault((epoch, sample.line.boot), []).append(sample)
    going_on = {each.line.prev_boot for each in samples.begins if is_change_of_role(each.line)}
    ends: dict[tuple[int, int], TakenRole] = {}
    for role in sorted(roles, key=lambda role: role.ts):
        if role.old_master == role.id:
            ends.setdefault((role.id, role.old_epoch), role)
    found: dict[int, _Leader] = {}
    for (epoch, boot), life in lives.items():
        end = ends.get((life[0].line.broker_id, epoch))
        found.setdefault(epoch, _Leader(life, boot in going_on, end))
    return found


def _kept(samples: GroupSamples) -> list[TakenRole]:
    """Each role once: a life repeats those of the one before."""
    found: dict[tuple[int, int], TakenRole] = {}
    for stream in (samples.masters, *samples.slaves.values()):
        for sample in stream.samples:
            for role in sample.line.roles or ():
                found.setdefault((sample.line.broker_id, role.number), role)
    return sorted(found.values(), key=lambda role: (role.epoch, role.ts, role.id))


def _without_master_s(ts: int, role: TakenRole | None, old: _Leader | None) -> float | None:
    """Until this master took messages nobody did: since the old one had to stop, where it says so;
    else, and where that one did not know yet, since the new one had a master for the last time.
    None: nobody knows."""
    end = old.ended_by if old is not None else None
    if end is not None and end.ts <= ts:
        return (ts - end.ts) / 1000
    if role is not None and role.without_master_ms is not None:
        return role.without_master_ms / 1000
    return None


def _cost(role: TakenRole, old: _Leader | None) -> Mapping[str, Any]:
    row: Row = {
        "cause": role.cause,
        "members": ",".join(map(str, sorted(role.members))),
        "confirm_offset": role.confirm_offset,
        "log_end": role.log_end,
        "at_risk_bytes": max(0, role.log_end - role.confirm_offset),
    }
    if old is None:
        return row
    lost = max(0, old.acknowledged - role.log_end)
    row["lost_bytes"] = lost
    end = old.ended_by
    if lost:
        row["promise"] = PROMISE_LOST
    elif end is not None and end.confirm_offset <= role.log_end:
        row["promise"] = PROMISE_HELD  # Nothing beyond what was confirmed was answered SEND_OK.
    return row


def _why(broker_id: int, old: _Leader | None) -> str:
    if old is None:
        return FIRST
    if old.id == broker_id:
        return SAME
    if old.goes_on:
        return REPLACED
    return STOPPED if old.samples[-1].line.final else SILENT
