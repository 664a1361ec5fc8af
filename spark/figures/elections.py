"""Elections of a date: who became master of a group, when and why, and what it may have cost.

Runs in the executors, over the samples of a group with a controller; a group without one has none.
What a member kept of the roles that it took is in its lines, once; a leader of whom only lines as
leader are left counts, too. The rule is in docs/sla_report.md ("Elections"). Must not know
objectives or pages.

Tested by tests/spark/figures/test_elections.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark.dumps.dump_line import TakenRole
from spark.figures.sample_stream import GroupSamples, Sample
from spark.figures.spells import Epochs, is_change_of_role, led_epoch, roles_of
from spark.reported_day import Day
from spark.vocabulary import LED_TWICE, PROMISE_HELD, PROMISE_LOST, PROMISE_UNKNOWN

Row = dict[str, Any]

_LEAD: Final = "LEAD"
FIRST: Final = "no master before it is known"
STOPPED: Final = "the old master was stopped in order"
REPLACED: Final = "the old master was replaced while it ran"
SILENT: Final = "the old master fell silent"
SAME: Final = "the same broker leads again"


@dataclass(slots=True)
class _Leader:
    """Of an epoch, by the lines of its leader. `goes_on`: its life did, in another role;
    `ended_by`: the role that it kept as the one behind its time as leader."""

    samples: list[Sample]
    goes_on: bool
    ended_by: TakenRole | None = None

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


@dataclass(frozen=True, slots=True)
class _Before:
    """What is known before an election. `acknowledged`: up to here sends had been answered SEND_OK,
    of whatever leader, and no election is known that lost them."""

    epoch: int | None
    leader: _Leader | None
    acknowledged: int
    is_next: bool
    """Nobody can have led between that leader and the new one."""


def elections(samples: GroupSamples, day: Day) -> list[Row]:
    """Rows of table `elections` without the group's name, by epoch."""
    if not samples.has_members:
        return []
    roles = _kept(samples)
    kept: dict[int, TakenRole] = {}
    contested = set()
    for each in roles:
        if each.role == _LEAD and kept.setdefault(each.epoch, each).id != each.id:
            contested.add(each.epoch)
    leaders = _leaders(samples, kept, roles, contested)
    epochs = Epochs(roles)
    found = []
    old_epoch: int | None = None
    acknowledged = 0
    for epoch in sorted(leaders.keys() | kept.keys()):
        role, leader = kept.get(epoch), leaders.get(epoch)
        is_next = old_epoch is not None and epochs.are_adjacent(old_epoch, epoch)
        old = leaders[old_epoch] if old_epoch is not None else None
        before = _Before(old_epoch, old, acknowledged, is_next)
        ts = _moment(role, leader)
        if ts is not None and day.w0_ms <= ts < day.w1_ms:
            row = _row(epoch, ts, (role, leader), before)
            if epoch in contested:
                row |= {"why": LED_TWICE, "promise": _unless_lost(row)}
            found.append(row)
        if role is not None:
            acknowledged = min(acknowledged, role.log_end)
        if leader is not None:
            old_epoch, acknowledged = epoch, max(acknowledged, leader.acknowledged)
    return found


_COLUMNS: Final = (
    *("epoch", "ts", "broker_id", "cause", "why", "old_epoch", "old_master", "members"),
    *("without_master_s", "confirm_offset", "log_end", "at_risk_bytes", "lost_bytes", "promise"),
)


def _row(epoch: int, ts: int, new: tuple[TakenRole | None, _Leader | None], before: _Before) -> Row:
    role, leader = new
    row: Row = dict.fromkeys(_COLUMNS)
    row |= {"epoch": epoch, "ts": ts, "old_epoch": before.epoch, "promise": PROMISE_UNKNOWN}
    row["broker_id"] = role.id if role is not None else leader.id if leader else None
    row["why"] = _why(row["broker_id"], before.leader)
    if before.leader is not None:
        row["old_master"] = before.leader.id
    if role is not None:
        row |= _cost(role, before)
    row["without_master_s"] = _without_master_s(ts, role, before)
    return row


def _unless_lost(row: Row) -> str:
    return PROMISE_LOST if row["promise"] == PROMISE_LOST else PROMISE_UNKNOWN


def _moment(role: TakenRole | None, leader: _Leader | None) -> int | None:
    """When it took messages. By its role, whose clock may have been set since: its lines as leader
    bound it. None: not known."""
    if leader is None or leader.begin_ms is None:
        return role.ts if role is not None else None
    if role is None:
        return leader.begin_ms
    return max(leader.begin_ms, min(role.ts, leader.samples[0].ts))


def _leaders(
    samples: GroupSamples,
    kept: Mapping[int, TakenRole],
    roles: Iterable[TakenRole],
    contested: Collection[int],
) -> dict[int, _Leader]:
    """Epoch -> its leader, with all its lines in it; of two leaders the one that stands first.
    `contested`: epochs of which nobody knows who led, so that no role ends them."""
    going_on = {each.line.prev_boot for each in samples.begins if is_change_of_role(each.line)}
    found: dict[int, _Leader] = {}
    for sample in samples.masters.samples:
        epoch = led_epoch(sample.line)
        if epoch is None:
            continue
        leader = found.setdefault(epoch, _Leader([], goes_on=False))
        if not leader.samples or leader.id == sample.line.broker_id:
            leader.samples.append(sample)
            leader.goes_on = sample.line.boot in going_on
    for role in roles:
        ended = found.get(role.old_epoch)
        if ended is None or role.old_epoch in contested or role.id != role.old_master:
            continue
        begin = kept.get(role.old_epoch)
        is_behind = begin is None or role.number > begin.number
        if ended.id == role.id and is_behind and _is_first(role, ended.ended_by):
            ended.ended_by = role
    return found


def _is_first(role: TakenRole, other: TakenRole | None) -> bool:
    return other is None or role.number < other.number


def _kept(samples: GroupSamples) -> list[TakenRole]:
    """Each role once: a life repeats those of the one before. A store that was lost counts them
    from 1 again."""
    found: dict[tuple[Any, ...], TakenRole] = {}
    streams = (samples.masters, *samples.slaves.values())
    for role in roles_of(sample for stream in streams for sample in stream.samples):
        found.setdefault((role.id, role.number, role.epoch, role.role, role.ts), role)
    return sorted(found.values(), key=lambda role: (role.epoch, role.number, role.ts, role.id))


def _without_master_s(ts: int, role: TakenRole | None, before: _Before) -> float | None:
    """Until this master took messages nobody did: since the old one had to stop, where it says so;
    else, and where that one did not know yet or another one may have led since, since the new one
    had a master for the last time. None: nobody knows."""
    end = before.leader.ended_by if before.leader is not None and before.is_next else None
    if end is not None and end.ts <= ts:
        return (ts - end.ts) / 1000
    if role is not None and role.without_master_ms is not None:
        return role.without_master_ms / 1000
    return None


def _cost(role: TakenRole, before: _Before) -> Mapping[str, Any]:
    row: Row = {
        "cause": role.cause,
        "members": ",".join(map(str, sorted(role.members))),
        "confirm_offset": role.confirm_offset,
        "log_end": role.log_end,
        "at_risk_bytes": max(0, role.log_end - role.confirm_offset),
    }
    if before.leader is None:
        return row
    row["lost_bytes"] = lost = max(0, before.acknowledged - role.log_end)
    end = before.leader.ended_by
    if lost:
        row["promise"] = PROMISE_LOST
    elif end is not None and before.is_next and end.confirm_offset <= role.log_end:
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
