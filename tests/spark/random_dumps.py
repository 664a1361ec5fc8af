"""Random and nasty dump directories: everything that docs/metrics_dump.md allows, and more.

One `random.Random` makes a directory, so that a seed is enough to have it again. Groups have one
or two masters with several lives (proved or not, killed with lost lines, clocks that step,
intervals that change, failovers to another broker_id), replicas that come, go, stall and lack
their row, slaves with their own dumps; a first line of a boot may come hours after the others.
Counters of states are those of a master that looks five times a second at states that change at
any instant; in a few groups they fit nothing. Then lines are lost, repeated, repeated with another
text, shuffled, cut, and spread over files of any name.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any

from tests.spark.dump_lines_builder import (
    ACK_LE,
    Life,
    Line,
    ack_latency,
    directory_of,
    exposure,
    file_name,
    processes,
    replica,
    sends,
)

OTHER_LE = (0.001, 0.05, 1.0, 2.0)
KINDS = ("topics", "consumer_offsets", "delay_offsets", "subscription_groups")
GARBAGE = (
    "",
    "{",
    "null",
    "[]",
    "not json at all",
    '{"v":1}',
    '{"v":3,"ts":0}',
    '"text"',
    "{}",
    "\u00e4\u00f6\u00fc \u2028 \\",
)


LOOK_MS = 200
"""So often a master looks in which state a replica is."""


class _Replica:
    """What a master knows of one slave while the story goes on."""

    def __init__(
        self, chance: random.Random, name: str, offset: int, now: int, *, is_liar: bool
    ) -> None:
        self.chance, self.name, self.is_liar = chance, name, is_liar
        self.state, self.ack_offset, self.lag_ms = "in_sync", offset, 0
        # A replica may come later, and then copies everything first.
        self.comes_ms = now + chance.choice((0, 0, 0, 0, chance.randrange(900_000)))
        self.changes_ms = self.comes_ms + chance.randrange(60_000)
        if self.comes_ms > now:
            self.state = "catching_up"
        self.begin_boot(now)

    def begin_boot(self, now: int) -> None:
        self.transferred = self.reconnects = self.rejected = 0
        self.lag_time = [0] * 4
        self.state_ms = {"in_sync": 0, "catching_up": 0, "disconnected": 0}
        self.looked_ms = max(now, self.comes_ms)

    def _look(self, now: int) -> None:
        """All looks until now: the time since the one before goes to the state that is seen."""
        while self.looked_ms + LOOK_MS <= now:
            at = self.looked_ms + LOOK_MS
            if at >= self.changes_ms:
                self._change(at)
            self.state_ms[self.state] += LOOK_MS
            self.looked_ms = at

    def _change(self, now: int) -> None:
        chance = self.chance
        was = self.state
        self.state = chance.choice(("in_sync", "in_sync", "catching_up", "disconnected"))
        self.reconnects += was == "disconnected" != self.state
        longest_ms = chance.choice((400, 3_000, 20_000, 120_000))
        if self.state == "in_sync":
            longest_ms = chance.choice((3_000, 120_000, 600_000))
        self.changes_ms = now + chance.randrange(longest_ms)

    def row(self, now: int, passed_ms: int, max_offset: int) -> dict[str, Any] | None:
        """The next row; None for a sample without one."""
        chance = self.chance
        if now < self.comes_ms:
            return None
        if not self.is_liar:
            self._look(now)
        elif chance.random() < 0.15:
            self.state = chance.choice(("in_sync", "in_sync", "catching_up", "disconnected"))
            self.reconnects += chance.randrange(2)
        if chance.random() < 0.8:
            rise = (max_offset - self.ack_offset) // chance.choice((1, 1, 2, 5))
            self.ack_offset += rise
            self.transferred += rise
        self.lag_ms = chance.choice((0, 0, 1, 3, 40, self.lag_ms + passed_ms, 999, 1000, 1001))
        self.rejected += chance.random() < 0.05
        if self.is_liar:
            lies = (passed_ms, passed_ms, passed_ms // 3, passed_ms + 900, 4 * passed_ms)
            self.state_ms[chance.choice((self.state, "in_sync"))] += chance.choice(lies)
        if chance.random() < 0.03:
            return None
        lag_bytes = max_offset - self.ack_offset
        self.lag_time[chance.randrange(4) if self.lag_ms else 0] += passed_ms
        return replica(
            self.name,
            self.state,
            ack_offset=self.ack_offset,
            lag_bytes=lag_bytes,
            lag_ms=self.lag_ms,
            lag_exact=chance.random() < 0.9,
            lag_ms_max=max(self.lag_ms, chance.choice((0, 0, 800, 1_500, 600_000))),
            lag_time=list(self.lag_time),
            transferred=self.transferred,
            reconnects=self.reconnects,
            rejected_acks=self.rejected,
            state_ms=dict(self.state_ms),
        )


class _Broker:
    """One broker (a master, or a slave with its own dump) over its lives."""

    def __init__(
        self, chance: random.Random, life: Life, replicas: list[str], begin_ms: int
    ) -> None:
        self.chance, self.life = chance, life
        self.max_offset = chance.randrange(10_000)
        is_liar = chance.random() < 0.15
        self.replicas = [
            _Replica(chance, name, self.max_offset, begin_ms, is_liar=is_liar) for name in replicas
        ]
        self._begin_boot(begin_ms)

    def _begin_boot(self, now: int) -> None:
        chance = self.chance
        self.msgs, self.sum_s = 0, 0.0
        self.bounds = ACK_LE if chance.random() < 0.8 else OTHER_LE
        self.counts = [0] * 5
        self.sync = dict.fromkeys(
            ("ok", "flush_slave_timeout", "slave_not_available", "flush_disk_timeout"), 0
        )
        self.sends_wait = chance.random() < 0.7
        self.ha_restarts = 0
        self.failures = dict.fromkeys(KINDS, 0)
        self.looks = [0] * 4
        self.answers = dict.fromkeys((*self.sync, "refused"), 0)
        self.late = [0, 0, 0]
        self.remoting_restarts = 0
        self.is_new = chance.random() < 0.5
        for known in self.replicas:
            known.begin_boot(now)

    def lines(self, begin_ms: int, end_ms: int) -> list[Line]:
        """The whole story between two moments of true time."""
        chance = self.chance
        found: list[Line] = []
        now, clock_offset = begin_ms, 0
        last = now
        while now < end_ms:
            passed = now - last
            last = now
            skip = chance.randrange(1, 5) if chance.random() < 0.03 else 0
            # The two clocks are read one after the other.
            ts = now + clock_offset + chance.choice((0, 0, 0, 0, 1, 2, 9, 10, 11, 12))
            found.append(self._line(now, ts, passed, skip))
            now += self.life.interval_ms + chance.choice((0, 0, 0, 1, -1, 700))
            if chance.random() < 0.03:
                now += chance.randrange(8) * self.life.interval_ms
            if chance.random() < 0.01:
                clock_offset += chance.choice((-700_000, -61_000, -3_000, 2_500, 45_000, 650_000))
            if chance.random() < 0.04:
                now += chance.choice((10, 2_000, 14_000, 90_000))
                now = self._restart(now, clock_offset)
                last = now
                now += chance.choice((0, 1, 900, self.life.interval_ms))
            elif chance.random() < 0.01:
                self.life.interval_ms = chance.choice((1_000, 5_000, 10_000))
        if chance.random() < 0.4:
            now += chance.choice((0, 3_000, 5_400_000, chance.randrange(20 * 3_600_000)))
            self._restart(now, clock_offset)
            now += chance.choice((0, 1, 900))
            found.append(self._line(now, now + clock_offset, 0, 0))
        return found

    def _restart(self, now: int, clock_offset: int) -> int:
        chance = self.chance
        is_failover = self.life.role != "SLAVE" and chance.random() < 0.15
        self.life = self.life.restarted(
            now + clock_offset,
            proved=not is_failover and chance.random() < 0.8,
            broker_id=chance.randrange(3) if is_failover else self.life.broker_id,
            boot=f"{chance.getrandbits(64):016x}",
            role=chance.choice((self.life.role,) * 9 + ("SLAVE",)),
        )
        if chance.random() < 0.2 and self.life.prev_seq is not None:
            self.life.prev_seq += chance.choice((-1, 1, 2))
        self._begin_boot(now)
        return now

    def _line(self, now: int, ts: int, passed_ms: int, skip: int) -> Line:
        chance = self.chance
        if chance.random() < 0.7:
            messages = chance.randrange(50)
            self.msgs += messages
            self.max_offset += 100 * messages
        for index in range(5):
            self.counts[index] += chance.randrange(4) if self.sends_wait else 0
        if self.sends_wait:
            self.sum_s += chance.random()
            self.sync["ok"] += chance.randrange(30)
            self.sync[chance.choice(list(self.sync))] += chance.random() < 0.1
        self.ha_restarts += chance.random() < 0.02
        self.remoting_restarts += chance.random() < 0.01
        self._answer()
        risk = chance.choice((0, 0, 0, 100, 5_000, None))
        line = self.life.line(
            ts,
            skip=skip,
            mono=1_000_000 + now,
            max_offset=self.max_offset,
            msgs_in=self.msgs,
            bytes_in=self.msgs * 100,
            sync=dict(self.sync),
            ack_latency=ack_latency(self.counts, self.sum_s) | {"le": list(self.bounds)},
            unreplicated_bytes=risk,
            oldest_unreplicated_ms=risk and chance.randrange(9_000),
            processes=processes(
                chance.random() > 0.02, self.ha_restarts, remoting=self.remoting_restarts
            ),
        )
        if self.is_new:
            self._add_marks(line, passed_ms)
        rows = [known.row(now, passed_ms, self.max_offset) for known in self.replicas]
        if "replicas" in line or rows:
            line["replicas"] = [row for row in rows if row is not None]
        if self.life.role == "SLAVE":
            line["metadata"] = self._metadata()
        return line

    def _answer(self) -> None:
        """All sends, the refused ones, too."""
        chance = self.chance
        some = {"ok": chance.randrange(40), chance.choice(list(self.answers)): chance.randrange(2)}
        for name, count in some.items():
            self.answers[name] += count
            self.late[chance.randrange(3)] += count

    def _add_marks(self, line: Line, passed_ms: int) -> None:
        """Version 2; its marks may not reach back to the line before, and may be missing."""
        chance = self.chance
        most = chance.choice((0, 100, 5_000, 9_999, 10**7))
        self.looks[min(3, most // 3_000)] += 1
        reach_ms = passed_ms + chance.choice((0, 0, 0, 300, -300, -5_000))
        line |= {
            "v": 2,
            "since": max(0, line["mono"] - max(0, reach_ms)),
            "host": "10.0.0.1:10911",
            "sends": sends(
                latency={"le": [0.01, 1.0], "counts": list(self.late), "sum": 0.0}, **self.answers
            ),
            "lag_le": [500, 1_000, 5_000],
            "exposure": None,
        }
        if chance.random() < 0.9:
            least = chance.choice((0, most // 2, most))
            line["exposure"] = exposure(least, most) | {
                "le": [2_999, 5_999, 8_999],
                "counts": list(self.looks),
            }

    def _metadata(self) -> list[dict[str, Any]]:
        chance, entries = self.chance, []
        for kind in KINDS[: chance.choice((4, 4, 4, 3))]:
            self.failures[kind] += chance.random() < 0.1
            age = None if chance.random() < 0.1 else chance.randrange(60_000)
            entry = {"kind": kind, "age_ms": age, "failures": self.failures[kind]}
            if age is not None and chance.random() < 0.8:
                entry["age_ms_max"] = age + chance.choice((0, 0, 3_000, 60_000))
            entries.append(entry)
        return entries


def random_lines(chance: random.Random, name: str, begin_ms: int, end_ms: int) -> list[Line]:
    """Everything that the brokers of one group wrote between two moments."""
    names = [f"{name}:1", f"{name}:2", "10.0.0.7"][: chance.randrange(4)]
    found: list[Line] = []
    for number in range(chance.choice((1, 1, 1, 2))):
        start = begin_ms + chance.choice((0, 0, 100_000, 400_000)) * (number + 1)
        life = _life(chance, name, 0, chance.choice(("SYNC_MASTER", "ASYNC_MASTER")), start)
        found += _Broker(chance, life, names, start).lines(
            start, end_ms - chance.choice((0, 200_000))
        )
    for broker_id in (1, 2):
        if chance.random() < 0.4:
            life = _life(chance, name, broker_id, "SLAVE", begin_ms)
            found += _Broker(chance, life, [], begin_ms).lines(begin_ms, end_ms)
    return found


def _life(chance: random.Random, name: str, broker_id: int, role: str, start: int) -> Life:
    return Life(
        start_ms=start - chance.choice((0, 0, 1, 3_000, 86_400_000)),
        cluster=chance.choice(("c", "Cluster two/\u00e9")),
        broker=name,
        broker_id=broker_id,
        role=role,
        boot=f"{chance.getrandbits(64):016x}",
        interval_ms=chance.choice((1_000, 5_000, 5_000, 10_000)),
        seq=chance.choice((0, 0, 17)),
    )


def write_randomly(chance: random.Random, root: Path, lines: list[Line]) -> None:
    """Writes one group's lines with losses, repetitions, bad lines, in files of random cut."""
    lines = [line for line in lines if chance.random() > 0.01]
    if lines and chance.random() < 0.3:
        first = chance.randrange(len(lines))
        del lines[first : first + chance.randrange(60)]
    for line in chance.sample(lines, len(lines) // 20):
        again = copy.deepcopy(line)
        if chance.random() < 0.5:
            again["version"] = chance.choice(("0.0.9", "0.1.1"))
            again["unreplicated_bytes"] = 77
            for row in again.get("replicas", []):
                row["lag_ms"] = 12
        lines.append(again)
    if chance.random() < 0.5:
        chance.shuffle(lines)
    else:
        lines.sort(key=lambda line: int(line["ts"]))
    while lines:
        size = chance.randrange(1, 120)
        some, lines = lines[:size], lines[size:]
        _write_some(chance, root, some)


def _write_some(chance: random.Random, root: Path, some: list[Line]) -> None:
    first = min(some, key=lambda line: int(line["ts"]))
    texts = [json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in some]
    if chance.random() < 0.2:
        texts.insert(chance.randrange(len(texts) + 1), chance.choice(GARBAGE))
    if chance.random() < 0.2:
        texts.append(json.dumps(_spoiled(chance, chance.choice(some))))
    text = "".join(f"{line}\n" for line in texts)
    if chance.random() < 0.1:
        text += texts[0][: chance.randrange(len(texts[0]) + 1)]
    directory, name = directory_of(root, first), file_name(first)
    if chance.random() < 0.2:  # docs/sla_at_scale.md: files that somebody merged or renamed
        directory = directory.parents[1] / "cluster=all" / f"broker={chance.choice('pq')}"
    if chance.random() < 0.2:
        name = f"{chance.choice(('', '0000-', '2359-0-'))}{chance.getrandbits(32):08x}.jsonl"
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if chance.random() < 0.3:
        path.write_text(text, encoding="utf-8")
    else:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(text.encode(), 1, mtime=0))


def _spoiled(chance: random.Random, line: Line) -> Line:
    spoiled = dict(line)
    what = chance.randrange(9)
    if what == 0:
        del spoiled[chance.choice(("ts", "boot", "seq", "max_offset", "sync", "role", "version"))]
    elif what == 1:
        spoiled["seq"] = 0
    elif what == 2:
        spoiled["interval_ms"] = chance.choice((0, -5))
    elif what == 3:
        spoiled["ts"] += chance.choice((-1, 1)) * 3 * 86_400_000
    elif what == 4:
        spoiled["v"] = chance.choice((0, 2, 3)) if spoiled["v"] == 1 else 3
    elif what == 5:
        spoiled["cluster"] = None
    elif what == 6:
        spoiled[chance.choice(("msgs_in", "mono", "broker_id", "oldest_unreplicated_ms"))] = -1
    elif what == 7:
        spoiled["replicas"] = [replica("x:1", lag_ms=-1)]
    else:
        spoiled["mono"] = "soon"
    return spoiled
