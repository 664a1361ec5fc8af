"""The nightly report once more, slow and obvious: members of groups with a controller.

Standard library only, like plain_report.py, which uses this: docs/sla_report.md, "Members of a
group with a controller". A life in which the role changes is cut into spells, each of which the
other rules take for a life.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.spark.plain_samples import MASTER_ROLES, SEND_RESULTS, SYNC_RESULTS, Json, Sample, Window

IS_MASTER: Final = "is the master"
Group = tuple[str, str]


@dataclass
class Spell:
    """`name`: the boot that its samples get; `first_seq`: the number of its first line;
    `counted`: the line whose counts are taken off."""

    epoch: int | None
    name: str
    first_seq: int
    begin: int | None = None
    counted: Json | None = None
    before: Spell | None = None
    lines: list[Sample] = field(default_factory=list)
    last: Sample | None = None
    """Of a leader that leads no more: the sample at that moment."""
    is_followed: bool = False

    def number(self, seq: int) -> int:
        """Samples count from 1 on."""
        return seq if self.before is None else seq - self.first_seq + 1

    @property
    def last_number(self) -> int:
        return int(self.last.seq if self.last is not None else self.number(self.lines[-1].seq))


# -- who leads -------------------------------------------------------------------------------


def first_moments(lines: Iterable[Json]) -> dict[int, int]:
    """Epoch -> the first moment of which a line says that its broker led in it."""
    found: dict[int, int] = {}
    for line in lines:
        if line["member"]["leads"]:
            epoch = line["member"]["epoch"]
            since = min(line["ts"], line["ts"] - (line["mono"] - line["member"]["since"]))
            found[epoch] = min(since, found.get(epoch, since))
    return found


def over_since(epoch: int, moments: dict[int, int]) -> int | None:
    """When a newer epoch began."""
    return min((ms for other, ms in moments.items() if other > epoch), default=None)


def led_in(line: Json, past: Json | None, moments: dict[int, int]) -> int | None:
    """The epoch in which the broker of a line leads; None: in none, or in one that is over, and no
    more sends were answered ok."""
    member = line["member"]
    if not member["leads"] or line["role"] not in MASTER_ROLES:
        return None
    over = over_since(member["epoch"], moments)
    if over is None or line["ts"] <= over:
        return int(member["epoch"])
    answers_on = (
        past is not None and past["ts"] >= over and line["sends"]["ok"] > past["sends"]["ok"]
    )
    return int(member["epoch"]) if answers_on else None


def changed_at(line: Json, past: Json, epoch: int | None, moments: dict[int, int]) -> int:
    """The moment between two lines of a life at which its role changed."""
    since = line["member"]["since"]
    if epoch is None:
        later = [role["mono"] for role in line.get("roles") or [] if role["mono"] > past["mono"]]
        since = min(later) if later else since
        if line["member"]["leads"]:  # as it believes
            over = over_since(line["member"]["epoch"], moments)
            since = line["mono"] - (line["ts"] - (line["ts"] if over is None else over))
    since = min(max(since, past["mono"]), line["mono"])
    return int(line["ts"] - (line["mono"] - since))


# -- lives that become several -----------------------------------------------------------------


def split(samples: Sequence[Sample]) -> list[Sample]:
    """The same samples, those of members as lives in which the role stays."""
    found = [sample for sample in samples if sample.line.get("member") is None]
    groups: dict[Group, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.line.get("member") is not None:
            groups[sample.line["cluster"], sample.line["broker"]].append(sample)
    for members in groups.values():
        found += _of_group(members)
    return found


def _of_group(samples: Sequence[Sample]) -> list[Sample]:
    moments = first_moments(sample.line for sample in samples)
    lives: dict[tuple[int, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        lives[sample.line["broker_id"], sample.line["boot"]].append(sample)
    spells = {
        boot: _spells(sorted(life, key=lambda sample: sample.line["seq"]), moments)
        for (_, boot), life in lives.items()
    }
    return [
        sample for some in spells.values() for spell in some for sample in _lives(spell, spells)
    ]


def _spells(life: Sequence[Sample], moments: dict[int, int]) -> list[Spell]:
    found: list[Spell] = []
    before: Sample | None = None
    for sample in life:
        line = sample.line
        epoch = led_in(line, before.line if before is not None else None, moments)
        if before is None:
            found.append(Spell(epoch, line["boot"], line["seq"]))
        elif epoch != found[-1].epoch:
            past = found[-1]
            past.is_followed = True
            begin = changed_at(line, before.line, epoch, moments)
            spell = Spell(epoch, f"{line['boot']}/{line['seq']}", line["seq"], begin, before=past)
            spell.counted = before.line
            if past.epoch is not None and epoch is None:
                over = over_since(past.epoch, moments)
                past.last = _last(past, before, line, begin if over is None else min(begin, over))
                spell.counted = line
            found.append(spell)
        found[-1].lines.append(sample)
        before = sample
    return found


def _last(spell: Spell, before: Sample, behind: Json, end: int) -> Sample:
    """At the moment at which it leads no more: with the rows of its last line, and all that was
    counted until the next one."""
    line = dict(before.line)
    passed = max(0, end - line["ts"])
    lost = behind["seq"] > line["seq"] + 1
    line |= {name: behind[name] for name in ("msgs_in", "bytes_in", "sync", "sends")}
    line["ack_latency"] = behind["ack_latency"]
    line = _counted_since(spell.counted, line)
    line |= {"ts": line["ts"] + passed, "mono": line["mono"] + passed, "final": True}
    line["since"] = line["mono"]  # no mark of a line reaches it
    if line.get("uptime") is not None:
        line["uptime"] += passed
    line |= dict.fromkeys(("exposure", "ended", "roles"))
    line |= dict.fromkeys(("unreplicated_bytes", "oldest_unreplicated_ms"))
    line |= {"boot": spell.name, "seq": spell.number(before.line["seq"]) + 1 + lost}
    return Sample(line, 0, False, before.window, is_line=False)


def _lives(spell: Spell, spells: dict[str, list[Spell]]) -> list[Sample]:
    found = []
    for sample in spell.lines:
        line = _counted_since(spell.counted, sample.line)
        line |= {"boot": spell.name, "seq": spell.number(line["seq"])}
        line |= _named_by(spell, line, spells)
        if spell.epoch is None:
            line |= {"role": "SLAVE", "replicas": []}
        found.append(Sample(line, sample.duplicates, sample.conflict, sample.window))
    if spell.last is not None:
        last = spell.last.line | _named_by(spell, spell.last.line, spells)
        found.append(Sample(last, 0, False, spell.last.window, is_line=False))
    elif spell.is_followed:
        found[-1].line["final"] = True
    return found


def _named_by(spell: Spell, line: Json, spells: dict[str, list[Spell]]) -> Json:
    """Which life it comes from."""
    if spell.before is not None:
        past = {"prev_boot": spell.before.name, "prev_seq": spell.before.last_number}
        return past | {"boot_ts": spell.begin, "ended": None}
    seq = line.get("prev_seq") or 0
    some = spells.get(line.get("prev_boot") or "", [])
    begun = [one for one in some if one.first_seq <= seq]
    if not begun or begun[-1].before is None:
        return {}
    named = begun[-1]
    found: Json = {"prev_boot": named.name, "prev_seq": named.number(seq)}
    if line.get("ended") and line["ended"]["boot"] == line["prev_boot"]:
        found["ended"] = _counted_since(named.counted, line["ended"]) | {"boot": named.name}
    return found


def _counted_since(past: Json | None, line: Json) -> Json:
    """The line with what it counts beyond another one; a line of its own."""
    line = dict(line)
    if past is None:
        return line
    for name in ("msgs_in", "bytes_in"):
        if name in line:
            line[name] = max(0, line[name] - past[name])
    line["sync"] = _less(line["sync"], past["sync"], SYNC_RESULTS)
    if line.get("sends") and past.get("sends"):
        latency = _latency(line["sends"]["latency"], past["sends"]["latency"])
        line["sends"] = _less(line["sends"], past["sends"], SEND_RESULTS) | {"latency": latency}
    if "ack_latency" in line:
        line["ack_latency"] = _latency(line["ack_latency"], past["ack_latency"])
    return line


def _less(now: Json, then: Json, names: Sequence[str]) -> Json:
    return {name: max(0, now[name] - then[name]) for name in names}


def _latency(now: Json, then: Json) -> Json:
    if now["le"] != then["le"]:
        return now
    counts = [max(0, a - b) for a, b in zip(now["counts"], then["counts"], strict=True)]
    return {"le": now["le"], "counts": counts, "sum": max(0.0, now["sum"] - then["sum"])}


# -- what follows from it ----------------------------------------------------------------------


def epoch_of(sample: Sample) -> int | None:
    """In which a sample of the masters' stream leads."""
    member = sample.line.get("member")
    return member["epoch"] if member is not None else None


def epochs_without_master(roles: Iterable[Json]) -> set[int]:
    """Epochs of which a member keeps that it was fenced in it, and none that it led."""
    roles = list(roles)
    fenced = {
        role["epoch"]
        for role in roles
        if role["role"] == "FENCED" and role["master"] is None and role["cause"] != "cut refused"
    }
    return fenced - {role["epoch"] for role in roles if role["role"] == "LEAD"}


def are_next(old: int | None, new: int | None, without: set[int]) -> bool:
    """Nobody can have led between them."""
    if old is None or new is None or new <= old:
        return False
    return all(epoch in without for epoch in range(old + 1, new))


def nobody_led_before(every: Sequence[Sample]) -> Callable[[Sample], bool]:
    """Whether nobody led between the life before a sample and its own. `every`: all samples of the
    group."""
    without = epochs_without_master(
        role for sample in every for role in sample.line.get("roles") or []
    )
    named = {(s.line.get("prev_boot"), s.line.get("prev_seq")) for s in every if s.seq == 1}

    def is_so(sample: Sample) -> bool:
        last = sample.predecessor
        if last is None or last.boot == sample.boot or sample.seq > 1:
            return False
        is_last = last.final or (last.boot, last.seq) in named
        return is_last and are_next(epoch_of(last), epoch_of(sample), without)

    return is_so


def times_as_leader(stream: Sequence[Sample]) -> dict[str, list[tuple[int, int]]]:
    """Replica -> when its broker led."""
    spans: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in stream:
        if epoch_of(sample) is not None:
            spans[f"{sample.broker}:{sample.broker_id}", sample.boot].append(sample)
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (name, _), some in spans.items():
        found[name].append((some[0].start, max(sample.ts for sample in some)))
    return dict(found)


def refused_by_others(streams: Iterable[Sequence[Sample]], window: Window) -> tuple[Json, Json]:
    """What members that do not lead did not answer well, by column of group_days: at least, and at
    most."""
    least: Json = defaultdict(int)
    most: Json = defaultdict(int)
    for sample in (s for stream in streams for s in stream if s.line.get("member") is not None):
        before = sample.before
        if before is None and not sample.from_zero:
            continue
        since = before.ts if before is not None else sample.boot_ts
        if sample.ts < window.w0 or since >= window.w1:
            continue
        for kind, names in (("sends", SEND_RESULTS), ("sync", SYNC_RESULTS)):
            if not sample.line.get(kind):
                continue
            then = before.line[kind] if before is not None else {}
            for name in names[1:]:
                rose = max(0, sample.line[kind][name] - then.get(name, 0))
                most[f"{kind}_{name}"] += rose
                if sample.in_window and since >= window.w0:
                    least[f"{kind}_{name}"] += rose
    return least, most
