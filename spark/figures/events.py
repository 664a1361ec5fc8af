"""What happened to the brokers of a group on one date: restarts, changed roles and settings, two
masters at once.

Runs in the executors, over all distinct samples of a group, masters and slaves alike. Must not know
figures or objectives.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark.figures.sample_stream import GroupSamples, Sample
from spark.figures.spells import is_change_of_role
from spark.reported_day import Day
from spark.vocabulary import MASTER_ROLES

Event = tuple[int, int, str, str]
"""broker_id, ts, kind, text: the columns of table `events` behind the group's."""


def events(samples: GroupSamples, day: Day) -> list[Event]:
    """The events of the window, by time."""
    streams = (samples.masters, *samples.slaves.values())
    known = [each for stream in streams for each in stream.samples if _begin_ms(each) < day.w1_ms]
    found = _of_lives(_lives(known))
    for stream in streams:
        found += _within_lives(stream.inside)
    within = (event for event in found if day.w0_ms <= event[1] < day.w1_ms)
    return sorted(within, key=lambda event: (event[1], event[0], event[2], event[3]))


@dataclass(slots=True)
class _Life:
    """One boot of one broker: its first and last sample by number."""

    broker_id: int
    first: Sample
    last: Sample
    latest_ts: int
    is_master: bool

    @property
    def order(self) -> tuple[int, str]:
        return self.first.line.boot_ts, self.first.line.boot


def _lives(known: Iterable[Sample]) -> list[_Life]:
    lives: dict[tuple[int, str], _Life] = {}
    life: _Life | None = None
    for sample in known:
        line = sample.line
        is_same = life is not None and sample.boot_predecessor is life.last
        if life is None or not is_same or line.broker_id != life.broker_id:
            life = lives.get((line.broker_id, line.boot))
        if life is None:
            life = _Life(line.broker_id, sample, sample, sample.ts, line.role in MASTER_ROLES)
            lives[line.broker_id, line.boot] = life
            continue
        if line.seq < life.first.line.seq:
            life.first = sample
        if line.seq > life.last.line.seq:
            life.last = sample
        if sample.ts > life.latest_ts:
            life.latest_ts = sample.ts
        if not life.is_master:
            life.is_master = line.role in MASTER_ROLES
    return sorted(lives.values(), key=lambda life: (life.order, life.broker_id))


def _of_lives(lives: Sequence[_Life]) -> list[Event]:
    """What a life's beginning tells."""
    found: list[Event] = []
    before: dict[int, _Life] = {}
    master: _Life | None = None
    for life in lives:
        past = before.get(life.broker_id)
        told = [] if is_change_of_role(life.first.line) else [*_restart(life, past)]
        if past is not None:
            told += _changes(life, past)
        if master is not None and life.is_master and master.latest_ts > life.first.ts:
            told.append(("overlap", _overlap_text(master)))
        found += [(life.broker_id, _begin_ms(life.first), *one) for one in told]
        before[life.broker_id] = life
        if life.is_master and (master is None or _is_later(life, master)):
            master = life
    return found


def _begin_ms(sample: Sample) -> int:
    """When it tells something: of a role that was taken while its broker ran the moment is known,
    and elections have the same one; else at the sample itself."""
    return min(sample.ts, sample.line.boot_ts) if is_change_of_role(sample.line) else sample.ts


def _is_later(life: _Life, than: _Life) -> bool:
    def end(one: _Life) -> tuple[int, str, int]:
        return one.latest_ts, one.first.line.boot, one.broker_id

    return end(life) > end(than)


def _restart(life: _Life, past: _Life | None) -> Iterable[tuple[str, str]]:
    first = life.first.line
    if past is None and (first.seq != 1 or first.prev_boot is None):
        return
    is_proved = (
        past is not None
        and first.seq == 1
        and first.prev_boot == past.last.line.boot
        and first.prev_seq == past.last.line.seq
    )
    if is_proved:
        end = "; nothing is missing between the two lives"
    elif past is not None:
        end = "; samples may be missing before it"
    else:
        end = "; its life before is not in the dumps"
    kind = "restart" if is_proved else "unproved_restart"
    yield kind, f"started at {_moment(first.boot_ts)}{end}"


def _changes(life: _Life, past: _Life) -> Iterable[tuple[str, str]]:
    first, last = life.first.line, past.last.line
    if last.role != first.role:
        yield "role_change", f"{last.role} -> {first.role}"
    # A master's life that does not come from the master before it: what its broker found on its
    # disk of an earlier life is another one's, or nothing. A failover looks like that.
    if life.is_master and past.is_master and first.prev_boot != last.boot:
        yield (
            "role_change",
            "another broker became master, or one that lost its dumps: it does not follow boot"
            f" {last.boot}, master until {_moment(past.latest_ts)}",
        )
    if last.config != first.config:
        yield "config_change", _config_text(last.config, first.config)


def _overlap_text(other: _Life) -> str:
    return (
        f"began while broker id {other.broker_id} (boot {other.first.line.boot}) wrote as master,"
        f" until {_moment(other.latest_ts)}: two masters at once, or a clock was set back"
    )


def _config_text(old: str, new: str) -> str:
    return f"settings changed, digest {old} -> {new}"


def _moment(ms: int) -> str:
    when = datetime.datetime.fromtimestamp(ms // 1000, datetime.UTC)
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def _within_lives(inside: Iterable[Sample]) -> list[Event]:
    """Settings that changed and processes that were restarted while the supervisor lived."""
    found: list[Event] = []
    for sample in inside:
        before = sample.boot_predecessor
        if before is None:
            continue
        now, past = sample.line, before.line
        if now.config != past.config:
            text = _config_text(past.config, now.config)
            found.append((now.broker_id, sample.ts, "config_change", text))
        if now.processes == past.processes:
            continue
        restarts = {process.name: process.restarts for process in reversed(past.processes)}
        for process in now.processes:
            count = process.restarts - restarts.get(process.name, 0)
            if count > 0:
                times = f" {count} times" if count > 1 else ""
                text = f"process {process.name} was restarted{times}"
                found.append((now.broker_id, sample.ts, "process_restart", text))
    return found
