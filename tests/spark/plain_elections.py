"""The nightly report once more, slow and obvious: elections of groups with a controller.

Standard library only, like plain_report.py: written from docs/sla_report.md ("Members of a group
with a controller") and docs/report_files.md ("elections"); it must not import anything of spark/.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.spark.plain_samples import Json, Sample, Window
from tests.spark.plain_spells import (
    are_next,
    changed_at,
    epochs_without_master,
    first_moments,
    led_in,
)

TWICE: Final = "two brokers tell that they lead in this epoch"


@dataclass
class Leading:
    """All lines of one epoch's leader. `begin`: ms, when its first spell began; None where the
    lines do not tell. `ran_on`: its life has lines behind, in which it leads no more."""

    broker_id: int
    lines: list[Json] = field(default_factory=list)
    begin: int | None = None
    ran_on: bool = False
    ended: Json | None = None


def plain_elections(samples: Iterable[Sample], window: Window) -> list[Json]:
    """Rows of table `elections`, by group and epoch."""
    groups: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for sample in samples:
        line = sample.line
        if line.get("member") is not None:
            groups[line["cluster"], line["broker"]].append(line)
    rows = []
    for (cluster, broker), lines in sorted(groups.items()):
        for row in _of_group(lines, window):
            rows.append({"cluster": cluster, "broker": broker} | row)
    return rows


def _of_group(lines: list[Json], window: Window) -> Iterator[Json]:
    roles = _roles(lines)
    told: dict[int, list[Json]] = defaultdict(list)
    for role in roles:
        if role["role"] == "LEAD":
            told[role["epoch"]].append(role)
    twice = {epoch for epoch, some in told.items() if len({role["id"] for role in some}) > 1}
    without = epochs_without_master(roles)
    led = _led(lines)
    for epoch, leading in led.items():
        begins = [role["number"] for role in told[epoch][:1]]
        ends = [
            role
            for role in roles
            if (role["old_epoch"], role["old_master"]) == (epoch, role["id"])
            and role["id"] == leading.broker_id
            and all(role["number"] > number for number in begins)
        ]
        if ends and epoch not in twice:
            leading.ended = min(ends, key=lambda role: role["number"])
    acknowledged = 0
    before: int | None = None
    for epoch in sorted({*(e for e, some in told.items() if some), *led}):
        first: Json | None = told[epoch][0] if told[epoch] else None
        leader = led.get(epoch)
        ts = _moment(first, leader)
        is_next = are_next(before, epoch, without)
        if ts is not None and window.w0 <= ts < window.w1:
            old = led[before] if before is not None else None
            row = _row(first, leader, old, (ts, acknowledged, is_next))
            if epoch in twice:
                row["why"] = TWICE
                row["promise"] = "lost" if row["promise"] == "lost" else "not known"
            yield {"epoch": epoch, "ts": ts, "old_epoch": before} | row
        if first is not None:
            acknowledged = min(acknowledged, first["log_end"])
        if leader is not None:
            before = epoch
            acknowledged = max(acknowledged, *(line["replicated_offset"] for line in leader.lines))


def _roles(lines: list[Json]) -> list[Json]:
    """Each once, those of an epoch in the order in which they were kept."""
    found = {}
    for line in lines:
        for role in line.get("roles") or []:
            key = tuple(role[name] for name in ("epoch", "number", "ts", "id", "role"))
            found[key] = role
    return [found[key] for key in sorted(found)]


def _led(lines: list[Json]) -> dict[int, Leading]:
    """Epoch -> its leader; of two the one whose spell began first."""
    lives: dict[tuple[int, str], list[Json]] = defaultdict(list)
    for line in lines:
        lives[line["broker_id"], line["boot"]].append(line)
    first_moment = first_moments(lines)
    spells: list[tuple[int, int, Leading]] = []
    for life in lives.values():
        life.sort(key=lambda line: line["seq"])
        spells += _spells(life, first_moment)
    found: dict[int, Leading] = {}
    for _, epoch, spell in sorted(spells, key=lambda each: each[:2]):
        leading = found.setdefault(epoch, Leading(spell.broker_id, begin=spell.begin))
        if leading.broker_id == spell.broker_id:
            leading.lines += spell.lines
            leading.ran_on = spell.ran_on
    return found


def _spells(life: list[Json], first_moment: dict[int, int]) -> Iterator[tuple[int, int, Leading]]:
    """(begin, epoch, the spell) of those in which it leads."""
    now: Leading | None = None
    epoch, begin, past = None, 0, None
    for line in life:
        leads = led_in(line, past, first_moment)
        if leads != epoch or past is None:
            if now is not None and epoch is not None:
                now.ran_on = True
                yield begin, epoch, now
            if past is None:
                begin = line["boot_ts"]
                told = begin if line["seq"] == 1 else None
            else:
                told = begin = changed_at(line, past, leads, first_moment)
            now = Leading(line["broker_id"], begin=told) if leads is not None else None
        if now is not None:
            now.lines.append(line)
        epoch, past = leads, line
    if now is not None and epoch is not None:
        yield begin, epoch, now


def _moment(role: Json | None, leading: Leading | None) -> int | None:
    begin = leading.begin if leading is not None else None
    if role is None:
        return begin
    if leading is None or begin is None:
        return int(role["ts"])
    first_line = leading.lines[0]["ts"]
    return int(max(begin, min(role["ts"], first_line)))


def _row(
    role: Json | None, leading: Leading | None, old: Leading | None, known: tuple[int, int, bool]
) -> Json:
    """known: when it was, what had been acknowledged, whether nobody led between."""
    ts, acknowledged, is_next = known
    broker_id = role["id"] if role is not None else leading.broker_id if leading else None
    end = old.ended if old is not None else None
    row: Json = {"broker_id": broker_id, "why": _why(broker_id, old), "promise": "not known"}
    row["old_master"] = old.broker_id if old is not None else None
    row["without_master_s"] = None
    if role is not None and role["without_master_ms"] is not None:
        row["without_master_s"] = role["without_master_ms"] / 1000
    if is_next and end is not None and end["ts"] <= ts:
        row["without_master_s"] = (ts - end["ts"]) / 1000
    names = ("cause", "confirm_offset", "log_end")
    row |= {name: role[name] if role is not None else None for name in names}
    row |= dict.fromkeys(("members", "at_risk_bytes", "lost_bytes"))
    if role is None:
        return row
    row["members"] = ",".join(str(member) for member in sorted(role["members"]))
    row["at_risk_bytes"] = max(0, role["log_end"] - role["confirm_offset"])
    if old is None:
        return row
    row["lost_bytes"] = max(0, acknowledged - role["log_end"])
    if row["lost_bytes"]:
        row["promise"] = "lost"
    elif is_next and end is not None and end["confirm_offset"] <= role["log_end"]:
        row["promise"] = "held"
    return row


def _why(broker_id: int | None, old: Leading | None) -> str:
    if old is None:
        return "no master before it is known"
    if old.broker_id == broker_id:
        return "the same broker leads again"
    if old.ran_on:
        return "the old master was replaced while it ran"
    is_final = old.lines[-1]["final"]
    return "the old master was stopped in order" if is_final else "the old master fell silent"
