"""What brokers write of a random day (day_events.py): dump lines, files, and what befalls these.

`random_day(seed)` gives the day; `write(root)` its files. The lines are what a supervisor writes
(docs/metrics_dump.md): counters that are looked at every 200 ms from a phase of their own, time in
which process `ha` does not look booked as disconnected, counters that begin with the boot, rows
that stay after a disconnect and are missing before the first connection, `prev_boot` as found on
the machine's own disk. `proved_ms` is what the counters of the lines that are left prove.
Standard library only; must not import anything of spark/.
"""

from __future__ import annotations

import bisect
import copy
import functools
import gzip
import itertools
import json
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.spark.day_events import (
    CATCHING_UP,
    DAY,
    DISCONNECTED,
    GAP_MS,
    IN_SYNC,
    LOOK_MS,
    MIDNIGHT,
    Disturbance,
    Life,
    Link,
    Span,
    Story,
    random_story,
)
from tests.spark.day_groups import Counted, tell_groups
from tests.spark.day_machines import (
    HELD_MS,
    MONO_AT_START,
    has_name,
    ip_of,
    is_ip,
    tell_machines,
)
from tests.spark.day_objectives import BYTES_A_MS, REFUSED, counted, lag_at, most_lag, tell_more
from tests.spark.dump_lines_builder import Line, ack_latency, directory_of, file_name, sends, sync

STATES: Final = (IN_SYNC, CATCHING_UP, DISCONNECTED)
LAG_LE: Final = (
    *(5, 10, 20, 50, 100, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 7_000),
    *(10_000, 15_000, 20_000, 30_000, 45_000, 60_000, 120_000, 180_000, 300_000, 600_000),
)
RISK_LE: Final = (0, 10_000, 50_000, 100_000, 300_000, 500_000, 1_000_000, 2_000_000, 10_000_000)
SENDS: Final = sends()
Sent = Callable[[int, int], dict[str, int]]
"""What was answered from one moment on, before another: by result."""


def all_sends(sent: dict[str, int]) -> Any:
    """The counters of all of them, each answered within a bucket."""
    bounds = ack_latency()["le"]
    counts = [0] * len(bounds) + [0]
    counts[len(bounds) // 2] = sum(sent.values())
    return sends(latency={"le": bounds, "counts": counts, "sum": 0.0}, **sent)


UNNAMED: Final = "10.0.1.1"
"""A slave by its ip, before it has told its name."""


class _Looks:
    """The moments at which process `ha` of one life looks."""

    def __init__(self, life: Life) -> None:
        self._first = life.start + life.first_look_ms
        self._blind = life.blind
        self._phase = (self._first + life.look_phase) % LOOK_MS

    def before(self, moment: int) -> int | None:
        """The last one up to `moment`; None when there was none yet."""
        for blind in self._blind:
            if blind.start <= moment < blind.end:
                moment = blind.start - 1
        look = moment - (moment - self._phase) % LOOK_MS
        return look if look >= self._first else None

    def after(self, moment: int) -> int:
        """The first one at or after `moment`."""
        moment = max(moment, self._first)
        for blind in self._blind:
            if blind.start <= moment < blind.end:
                moment = blind.end
        return moment + (self._phase - moment) % LOOK_MS

    def blind_at(self, moment: int) -> Disturbance | None:
        """Why nobody looks at `moment`."""
        return next((b for b in self._blind if b.start <= moment < b.end), None)


class _Counters:
    """`state_ms` of one replica in one life of a master."""

    def __init__(self, life: Life, link: Link, looks: _Looks) -> None:
        self._looks = looks
        begin = life.start if link.was_remembered else link.first_connected
        assert begin is not None, "a replica that never was has no row"
        self.first_row = looks.after(begin)
        seen = [(begin, DISCONNECTED)]
        for since, state in link.states:
            look = looks.after(since)
            if since < begin:
                continue
            if look == seen[-1][0]:
                seen[-1] = look, state
            else:
                seen.append((look, state))
        for blind in life.blind:
            start, end = looks.before(blind.start - 1), looks.after(blind.end)
            if start is not None and start > begin:
                seen = self._booked(seen, start, end)
        self._since = [since for since, _ in seen]
        self._states = [state for _, state in seen]
        self._spent = [dict.fromkeys(STATES, 0)]
        for (since, state), (until, _) in itertools.pairwise(seen):
            spent = dict(self._spent[-1])
            spent[state] += until - since
            self._spent.append(spent)

    @staticmethod
    def _booked(seen: list[tuple[int, str]], start: int, end: int) -> list[tuple[int, str]]:
        """[start, end) as disconnected time."""
        at_end = [state for since, state in seen if since <= end][-1]
        outside = [one for one in seen if not start <= one[0] <= end]
        return sorted([*outside, (start, DISCONNECTED), (end, at_end)])

    def at(self, moment: int) -> dict[str, int]:
        """As shown at `moment`, which is not before the first row."""
        look = self._looks.before(moment)
        assert look is not None, "there is a row, so somebody has looked"
        place = max(0, bisect.bisect_right(self._since, look) - 1)
        spent = dict(self._spent[place])
        spent[self._states[place]] += look - self._since[place]
        if moment - look > GAP_MS:
            spent[DISCONNECTED] += moment - look
        return spent


@dataclass
class DumpFile:
    """A file as it lies on the disk."""

    directory: str
    name: str
    lines: list[str]
    is_packed: bool


@dataclass
class Day:
    """A story, the lines that were written of it, and the files that are left of them."""

    story: Story
    files: list[DumpFile] = field(default_factory=list)

    @functools.cached_property
    def lines(self) -> list[Line]:
        """What the files hold, each line once, in the order of boot and seq."""
        texts = {text for file in self.files for text in file.lines}
        found = [json.loads(text) for text in texts]
        return sorted(found, key=lambda line: (line["boot_ts"], line["boot"], line["seq"]))

    def known_from(self, replica: str) -> int:
        """When a reader of the files first hears of a replica; the day's end: never. Files of the
        day before are read, older ones are not."""
        if self.story.expects:
            return 0
        names = (replica, ip_of(self.story, replica))
        return min(
            (
                self.moment_of(line)
                for line in self.lines
                if line["ts"] >= MIDNIGHT - DAY
                and any(
                    row["id"] in names or (row["id"] == UNNAMED and self._is_it(replica, line))
                    for row in line["replicas"]
                )
            ),
            default=self.story.w1,
        )

    def _is_it(self, replica: str, line: Line) -> bool:
        """Whether the one row of a line, which has no name, is that of the replica."""
        lives = [*self.story.lives, *self.story.rivals]
        link = next(life for life in lives if life.boot == line["boot"]).links.get(replica)
        first = link.first_connected if link is not None else None
        return first is not None and first <= self.moment_of(line)

    def moment_of(self, line: Line) -> int:
        """When a master's line was written, in true time."""
        return self._machines[line["boot"]] + int(line["mono"]) - MONO_AT_START

    @functools.cached_property
    def _machines(self) -> dict[str, int]:
        lives = [*self.story.lives, *self.story.rivals]
        return {life.boot: life.machine_on for life in lives}

    def write(self, root: Path) -> None:
        """Makes the files below `root`."""
        for file in self.files:
            place = root / file.directory
            place.mkdir(parents=True, exist_ok=True)
            content = "".join(f"{text}\n" for text in file.lines).encode()
            if file.is_packed:
                # As `cat` of several gz files makes it: more than one member.
                half = len(content) // 2
                content = gzip.compress(content[:half], 1) + gzip.compress(content[half:], 1)
            (place / file.name).write_bytes(content)


def random_day(seed: int, name: str = "b", window: Span | None = None) -> Day:
    """The day of this seed, of the broker group `name`; in a random window unless one is given."""
    return day_of(whole_story(seed, name, window))


def whole_story(seed: int, name: str = "b", window: Span | None = None) -> Story:
    """What happens on that day, of which nothing is written yet."""
    story = random_story(seed, name, window)
    tell_more(story)
    tell_machines(story)
    tell_groups(story)
    return story


def day_of(story: Story) -> Day:
    """What is left of the lines that brokers wrote of a story."""
    chance = random.Random(f"lines {story.seed}")
    written = _Writer(story, chance).lines()
    return Day(story, _befallen(chance, _files(written, chance), story))


def unharmed(story: Story) -> Day:
    """The same, of which nothing was lost."""
    chance = random.Random(f"lines {story.seed}")
    return Day(story, _files(_Writer(story, chance).lines(), chance))


def proved_ms(day: Day, replica: str, states: Collection[str]) -> int:
    """The least time in these states, in the window, that counters of the files' lines prove: by
    how much they rose from line to line of a boot, as far as the lines are of the window; and up to
    the first line that is left of a boot that began there, if the replica was known before. Of a
    row that the line before lacks it is no more than the time between them: what it counted before
    that may be anybody's, if it had no name."""
    story, known_from = day.story, day.known_from(replica)
    proved, boot, before = 0, "", None
    last_mono, is_missing = 0, False
    for line in day.lines:
        if line["role"] == "SLAVE":
            continue
        rows = [row for row in line["replicas"] if row["id"] == replica]
        if line["boot"] != boot:
            moment = day.moment_of(line)
            is_from_zero = line["boot_ts"] >= story.w0 and moment > known_from
            # How long its boot was ago a clock that is wrong does not tell.
            is_from_zero = is_from_zero and not story.clock_offset(moment)
            boot, before, is_missing = line["boot"], 0 if is_from_zero else None, False
        is_inside = story.w0 <= line["ts"] < story.w1
        if not is_inside or any(is_ip(row["id"]) for row in line["replicas"]):
            before = None
        elif rows:
            counted = sum(rows[0]["state_ms"][state] for state in states)
            new = counted - (counted if before is None else before)
            if is_missing:
                whole = sum(rows[0]["state_ms"].values())
                new = max(0, new - max(0, whole - (line["mono"] - last_mono)))
            proved += new
            before = counted
        is_missing, last_mono = not rows, line["mono"]
    return proved


class _Writer:
    """Writes the lines of a story."""

    def __init__(self, story: Story, chance: random.Random) -> None:
        self.story, self.chance = story, chance
        self.genesis = story.lives[0].start - 1_000_000 if story.lives else 0
        self.is_inexact = chance.random() < 0.15
        self.named_late = chance.random() < 0.1 and not story.expects
        self.last_on_disk: dict[int, tuple[str, int]] = {}
        self.ends: dict[int, tuple[Life, str]] = {}
        """The last life of a machine, and which boot of the machine it was in."""

    def lines(self) -> list[Line]:
        """Of all lives, those of slaves included, in the order of writing."""
        found: list[Line] = []
        before: dict[int, Life] = {}
        for life in self.story.lives:
            past, until = before.get(life.machine), self.story.was_slave_until.get(life.machine)
            was_slave = until is not None and until <= life.start
            was_slave = was_slave and (past is None or past.end <= until)
            if was_slave or (life.machine and self.chance.random() < 0.3):
                found += self._of_slave(life, past, until if was_slave else None)
            found += self._of_life(life)
            before[life.machine] = life
        for machine, moment in self.story.returns.items():
            last = next(life for life in reversed(self.story.lives) if life.machine == machine)
            found += self._of_return(last, moment)
        if self.story.loses_past:
            past = self.story.lives[0].boot
            found = [line for line in found if line["boot"] != past]
        for life in self.story.rivals:
            found += self._of_life(life)
        if self.story.copies is not None:
            found += self._of_copies()
        return found

    def _moments(self, life: Life) -> Iterator[tuple[int, int]]:
        """(seq, moment) of each line, those included that cannot be written."""
        interval, seq, due = self.story.interval_ms, 0, life.start + 40
        while due < life.end:
            asleep = next(
                (b for b in life.blind if b.kind == "asleep" and b.start <= due < b.end), None
            )
            seq += 1
            if asleep is None:
                yield seq, due + self.chance.choice((0, 0, 1, 2, 7, 60))
                due += interval
            else:
                yield seq, asleep.end + 5
                due += interval * (1 + (asleep.end - due) // interval)
        if life.clean:
            yield seq + 1, life.end - 1

    def _of_life(self, life: Life) -> list[Line]:
        story, found = self.story, []
        looks = _Looks(life)
        counters = {
            name: _Counters(life, link, looks)
            for name, link in life.links.items()
            if link.was_remembered or link.first_connected is not None
        }
        place = life.machine  # A promoted broker names its last line as a slave.
        prev_boot, prev_seq = self.last_on_disk.get(place, (None, None))
        sent: Sent = lambda start, end: (  # noqa: E731
            counted(story.sends, start, end) if life in story.lives else {}
        )
        groups = Counted(story, life) if story.consumers and life in story.lives else None
        marks = _Marks(life, counters, looks, sent, groups)
        for seq, moment in self._moments(life):
            if moment < life.end:
                marks.pass_to(moment)
            if moment >= life.end or any(a <= moment < b for a, b in story.unwritten):
                continue
            line = self._head(life, seq, moment, "ASYNC_MASTER")
            line |= {"prev_boot": prev_boot, "prev_seq": prev_seq}
            line["final"] = moment == _last_ms(life)
            look, blind = looks.before(moment), looks.blind_at(moment)
            has_looked = look is not None
            if look is not None and blind is None:
                seen = [link for name, link in life.links.items() if marks.has_row(name, moment)]
                risk = min((link.lag_at(look) for link in seen), default=None)
                whole = line["max_offset"]
                line["unreplicated_bytes"] = whole if risk is None else risk * BYTES_A_MS
                line["oldest_unreplicated_ms"] = risk or 0
            else:
                line["unreplicated_bytes"] = line["oldest_unreplicated_ms"] = None
            line["processes"] = [
                {"name": "ha", "up": blind is None or blind.kind != "ha dead", "restarts": 0}
            ]
            line["replicas"] = [
                self._row(name, life.links[name], counters[name], looks, moment)
                for name in sorted(counters)
                if has_looked and moment >= counters[name].first_row
            ]
            if self.is_inexact and any(not row["lag_exact"] for row in line["replicas"]):
                line["unreplicated_bytes"] = line["oldest_unreplicated_ms"] = None
            if life.version == 2:
                marks.add_to(line, moment)
                self._tell_machine(life, line, moment)
                self._tell_end(life, line)
            self._name_late(life, seq, line, moment)
            found.append(line)
            self.last_on_disk[place] = life.boot, seq
        return found

    def _head(self, life: Life, seq: int, moment: int, role: str) -> Line:
        story = self.story
        written = (moment - self.genesis) * BYTES_A_MS
        ahead = story.skew.get(life.machine, 0)
        sent = counted(story.sends, life.start, _counted_until(life, moment))
        sent = sent if life in story.lives else {}
        return {
            "v": life.version,
            "ts": moment + story.clock_offset(moment) + ahead,
            "mono": moment - life.machine_on + MONO_AT_START,
            "boot": life.boot,
            "boot_ts": life.start + story.clock_offset(life.start) + ahead,
            "seq": seq,
            "prev_boot": None,
            "prev_seq": None,
            "interval_ms": story.interval_ms,
            "final": False,
            "cluster": "c",
            "broker": story.name,
            "broker_id": life.broker_id,
            "role": role,
            "version": "0.1.0",
            "config": "0123456789ab",
            "ready": True,
            "min_offset": 0,
            "max_offset": written,
            "replicated_offset": written,
            "msgs_in": (moment - life.start) // 10,
            "bytes_in": (moment - life.start) * BYTES_A_MS,
            "sync": {**sync(), **{name: n for name, n in sent.items() if name != REFUSED}},
            "ack_latency": ack_latency(),
            "unreplicated_bytes": 0,
            "oldest_unreplicated_ms": 0,
            "processes": [],
            "replicas": [],
            "metadata": [],
        }

    def _row(
        self, name: str, link: Link, counters: _Counters, looks: _Looks, moment: int
    ) -> dict[str, Any]:
        look = looks.before(moment)
        assert look is not None, "only what was looked at has a row"
        blind = looks.blind_at(moment)
        is_seen = blind is None or (blind.kind != "ha dead" and moment - look <= GAP_MS)
        state = link.state_at(look) if is_seen else DISCONNECTED
        lag_ms = link.lag_at(look) + (0 if is_seen else moment - look)
        lag_bytes = lag_ms * BYTES_A_MS
        exact = not (self.is_inexact and lag_ms and self.chance.random() < 0.5)
        ack_offset = ((look if is_seen else moment) - self.genesis) * BYTES_A_MS - lag_bytes
        stood = (link.states[0][0] - self.genesis) * BYTES_A_MS
        return {
            "id": name,
            "connected": state != DISCONNECTED,
            "in_sync": state == IN_SYNC,
            "state": state,
            "ack_offset": ack_offset,
            "lag_bytes": lag_bytes,
            "lag_ms": lag_ms if exact else round(lag_ms * self.chance.random()),
            "lag_exact": exact,
            "transferred": max(0, ack_offset - stood),
            "reconnects": 0,
            "rejected_acks": 0,
            "state_ms": counters.at(moment),
        }

    def _tell_end(self, life: Life, line: Line) -> None:
        """What the life before had counted when it died, in a life's first line; unless the machine
        was rebooted since."""
        machine, boot = f"{life.machine:04x}{life.reboots:04x}", line["boot"]
        last = self.ends.get(life.machine)
        if last is not None and last[0].boot == boot:
            return
        self.ends[life.machine] = life, machine
        if (
            last is None
            or last[1] != machine
            or not self.story.keeps_ends
            or life in self.story.rivals
        ):
            return
        past = last[0]
        sent: dict[str, int] = {}
        if past in self.story.lives:
            sent = counted(self.story.sends, past.start, past.end)
        line["ended"] = {
            "boot": past.boot,
            "uncounted_ms": 64,
            "sync": {**sync(), **{name: n for name, n in sent.items() if name != REFUSED}},
            "sends": all_sends(sent),
        }

    def _tell_machine(self, life: Life, line: Line, moment: int) -> None:
        """Which boot of its machine it is, and whether its clock is held: not at once."""
        story = self.story
        if not story.tells_machine:
            return
        is_held = story.is_held and not story.clock_offset(moment) and line["seq"] > 2
        line |= {
            "machine_boot": f"{life.machine:04x}{life.reboots:04x}",
            "uptime": moment - life.machine_on,
            "clock_error_ms": HELD_MS if is_held else None,
        }

    def _name_late(self, life: Life, seq: int, line: Line, moment: int) -> None:
        """A new slave may go by its ip for long; or the first line that has one connected may know
        no more."""
        for row in line["replicas"]:
            if not has_name(self.story, life, row["id"], moment):
                row["id"] = ip_of(self.story, row["id"])
        if not self.named_late or any(is_ip(row["id"]) for row in line["replicas"]):
            return
        for row in line["replicas"]:
            link = life.links[row["id"]]
            first = link.first_connected
            is_first_row = (
                first is not None
                and not link.was_remembered
                and row["connected"]
                and moment - first < self.story.interval_ms
            )
            if is_first_row and seq > 1 and len(line["replicas"]) == 1:
                row["id"] = UNNAMED

    def _of_copies(self) -> list[Line]:
        """Of the slave that copies metadata: a boot for each of its lives."""
        story, copies, found = self.story, self.story.copies, []
        prev: tuple[str | None, int | None] = (None, None)
        version = self.chance.choice((1, 2, 2))
        for number, (start, end) in enumerate(copies.lives):
            boot = f"{story.seed % 2**32:08x}{number:04x}c0de"
            life = Life(start, end, False, copies.broker_id, -1, boot, 0, 0, version=version)
            life.machine_on = copies.switched_on(start)
            life.reboots = int(life.machine_on == start)
            seq, before, moment = 0, start, start + 40
            while moment < end:
                seq += 1
                line = self._head(life, seq, moment, "SLAVE")
                line |= {"prev_boot": prev[0], "prev_seq": prev[1]}
                last = copies.last(moment)
                age = None if last is None or last < start else moment - last
                row = {"kind": "topics", "age_ms": age, "failures": 0}
                if version == 2:
                    line["since"] = before - life.machine_on + MONO_AT_START
                    line |= {"host": "10.0.0.1:10911", "lag_le": [1_000], "sends": SENDS}
                    row["age_ms_max"] = None if age is None else copies.most(before, moment)
                    self._tell_machine(life, line, moment)
                line["metadata"] = [row]
                found.append(line)
                before, moment = moment, moment + story.interval_ms
            prev = (boot, seq) if seq else prev
        return found

    def _of_return(self, past: Life, start: int) -> list[Line]:
        """Some lines of a slave whose broker was the master in `past`, its last life."""
        boot = f"{self.chance.getrandbits(32):08x}3e3e3e3e"
        slave = Life(start, start, False, 5, past.machine, boot, 0, 0, version=2)
        slave.machine_on, slave.reboots = past.machine_on, past.reboots
        prev_boot, prev_seq = self.last_on_disk.get(past.machine, (None, None))
        found = []
        for seq in range(1, 4):
            line = self._head(slave, seq, start + 40 + seq * self.story.interval_ms, "SLAVE")
            line |= {"prev_boot": prev_boot, "prev_seq": prev_seq, "since": line["mono"]}
            host = f"10.0.0.{past.machine}:10911"
            line |= {"host": host, "lag_le": [1_000], "sends": SENDS}
            self._tell_machine(slave, line, start)
            self._tell_end(slave, line)
            found.append(line)
        return found

    def _of_slave(self, life: Life, past: Life | None, until: int | None) -> list[Line]:
        """Some lines that this life's broker wrote while it was a slave: behind its life `past` as
        a master, if it had one. `until`: when that ended, and it was promoted; its machine may have
        been rebooted since."""
        interval = self.story.interval_ms
        boot = f"{self.chance.getrandbits(32):08x}5a5a5a5a"
        is_rebooted = until is not None and until <= life.machine_on
        of_machine = past if is_rebooted and past is not None else life
        begin = max(of_machine.machine_on, past.end + 300 if past is not None else 0)
        start = max((until or life.start) - 12 * interval, begin)
        slave = Life(start, start, True, life.broker_id, life.machine, boot, 0, 0)
        slave.version, slave.machine_on = 2 if until else 1, of_machine.machine_on
        slave.reboots = of_machine.reboots
        prev_boot, prev_seq = self.last_on_disk.get(life.machine, (None, None))
        found: list[Line] = []
        for seq in range(1, 12):
            moment = start + seq * interval - 300
            if moment >= (until or life.start):
                break
            line = self._head(slave, seq, moment, "SLAVE")
            line |= {"prev_boot": prev_boot, "prev_seq": prev_seq}
            if until:
                host = f"10.0.0.{life.machine}:10911"
                line |= {"since": line["mono"], "host": host, "lag_le": [1_000], "sends": SENDS}
                self._tell_machine(slave, line, moment)
                self._tell_end(slave, line)
            found.append(line)
            self.last_on_disk[life.machine] = boot, seq
        return found


def _last_ms(life: Life) -> int | None:
    """When the last line of an orderly stop is written: when nothing is answered any more."""
    return life.end - 1 if life.clean else None


def _counted_until(life: Life, moment: int) -> int:
    """Until when a line that is written at a moment counts."""
    return life.end if moment == _last_ms(life) else moment


class _Marks:
    """What version 2 counts between the lines of one life."""

    def __init__(
        self,
        life: Life,
        counters: dict[str, _Counters],
        looks: _Looks,
        sent: Sent,
        groups: Counted | None,
    ) -> None:
        self._life = life
        self._sent = sent
        self._counters = counters
        self._looks = looks
        self._counts = [0] * (len(RISK_LE) + 1)
        self._passed = self._written = life.start
        self._groups = groups
        self._high = {name: self._high_looks(life.links[name]) for name in counters}

    def has_row(self, name: str, moment: int) -> bool:
        """Whether the master knows the replica."""
        return name in self._counters and moment >= self._counters[name].first_row

    def pass_to(self, moment: int) -> None:
        """Another interval is over, whether its line can be written or not."""
        bucket = bisect.bisect_left(RISK_LE, self._risk(self._passed, moment)[1])
        self._counts[bucket] += 1
        self._passed = moment

    def add_to(self, line: Line, moment: int) -> None:
        """The fields of a line that is written now."""
        life, since = self._life, self._written
        line["since"] = since - life.machine_on + MONO_AT_START
        line["host"] = f"10.0.0.{life.machine}:10911"
        line["lag_le"] = list(LAG_LE)
        line["sends"] = all_sends(self._sent(life.start, _counted_until(life, moment)))
        line["exposure"] = None
        if self._looks.before(moment) is not None:
            at_least, at_most = self._risk(since, moment)
            line["exposure"] = {
                "bytes_at_least": at_least,
                "bytes_at_most": at_most,
                "ms_at_least": at_least // BYTES_A_MS,
                "ms_at_most": at_most // BYTES_A_MS,
                "le": list(RISK_LE),
                "counts": list(self._counts),
            }
        for row in line["replicas"]:
            link = life.links[row["id"]]
            row["lag_ms_max"] = max(_most_lag_of(link, since, moment), row["lag_ms"])
            row["lag_time"] = self._lag_time(row, moment)
        told = None if self._groups is None else self._groups.groups(moment)
        if told is not None:
            line["groups"] = told
        self._written = moment

    def _risk(self, start: int, end: int) -> tuple[int, int]:
        """(at_least, at_most) bytes between two moments. Without a row, and while nobody looks, the
        master knows no better than that all of its log may be at risk."""
        life = self._life
        is_seen = any(self.has_row(name, start) for name in self._counters)
        is_blind = any(b.start <= end and b.end + LOOK_MS > start for b in life.blind)
        true = most_lag(life, start, end) * BYTES_A_MS
        if is_seen and not is_blind and all(self.has_row(name, start) for name in life.links):
            return true, true
        known = lag_at(life, end) * BYTES_A_MS if is_seen and not is_blind else 0
        return min(known, true), max(true, 10**12)

    def _high_looks(self, link: Link) -> list[tuple[int, int]]:
        """(moment, bucket) of looks at which the lag of one in sync is not in the first bucket."""
        found = []
        for lag in link.lags:
            look = self._looks.after(lag.start)
            while look - LOOK_MS < lag.end and look < self._life.end:
                ends = look - LOOK_MS, look
                if link.state_at(ends[0]) == link.state_at(ends[1]) == IN_SYNC:
                    bucket = bisect.bisect_left(LAG_LE, max(map(link.lag_at, ends)))
                    if bucket and self._looks.blind_at(look) is None:
                        found.append((look, bucket))
                look += LOOK_MS
        return sorted(dict(found).items())

    def _lag_time(self, row: dict[str, Any], moment: int) -> list[int]:
        look = self._looks.before(moment)
        assert look is not None, "there is a row, so somebody has looked"
        spent = [0] * (len(LAG_LE) + 1)
        for at, bucket in self._high[row["id"]]:
            if at <= look:
                spent[bucket] += LOOK_MS
        spent[0] = max(0, row["state_ms"][IN_SYNC] - sum(spent))
        return spent


def _most_lag_of(link: Link, start: int, end: int) -> int:
    moments = {start, end}
    for since, _ in link.states:
        moments |= {since - 1, since}
    for lag in link.lags:
        moments |= {lag.start, lag.end - 1}
    return max(link.lag_at(moment) for moment in moments if start <= moment <= end)


# -- files -----------------------------------------------------------------------------------


def _files(lines: list[Line], chance: random.Random) -> list[DumpFile]:
    """As supervisors write them: one for each hour of a boot's wall clock, in its order."""
    found: list[DumpFile] = []
    before: tuple[str, int] | None = None
    for line in lines:
        key = line["boot"], line["ts"] // 3_600_000
        if key != before:
            before = key
            directory = str(directory_of(Path(), line))
            found.append(DumpFile(directory, file_name(line), [], chance.random() < 0.3))
        found[-1].lines.append(json.dumps(line, separators=(",", ":")))
    return found


def _befallen(chance: random.Random, files: list[DumpFile], story: Story) -> list[DumpFile]:
    """Files after operators and disks had them: lost, merged, renamed, split; lines lost and
    twice."""
    if chance.random() < 0.25:
        _lose_lines(chance, files)
    if chance.random() < 0.1 and files:
        del files[chance.randrange(len(files))]
    if chance.random() < 0.1:
        _lose_the_past(files, story.w0 + chance.choice((0, 0, (story.w1 - story.w0) // 10)))
    if chance.random() < 0.3:
        files = _merged(chance, files)
    if chance.random() < 0.2:
        files = [part for file in files for part in _split(chance, file)]
    for file in files:
        if chance.random() < 0.1:
            file.lines += copy.copy(file.lines[: chance.randrange(1, 9)])
        if chance.random() < 0.05:
            chance.shuffle(file.lines)
    _rename(chance, files)
    return files


def _lose_lines(chance: random.Random, files: list[DumpFile]) -> None:
    share = chance.choice((0.002, 0.02, 0.2))
    for file in files:
        file.lines = [text for text in file.lines if chance.random() >= share]
        if chance.random() < 0.1 and file.lines:
            first = chance.randrange(len(file.lines))
            del file.lines[first : first + chance.randrange(1, 30)]


def _lose_the_past(files: list[DumpFile], until: int) -> None:
    """As in a first night: what was before is gone."""
    for file in files:
        file.lines = [text for text in file.lines if json.loads(text)["ts"] >= until]


def _merged(chance: random.Random, files: list[DumpFile]) -> list[DumpFile]:
    """A directory's files one behind the other in one, named after any of them."""
    by_directory: dict[str, list[DumpFile]] = {}
    for file in files:
        by_directory.setdefault(file.directory, []).append(file)
    return [
        DumpFile(
            directory,
            chance.choice(some).name,
            [text for file in some for text in file.lines],
            is_packed=chance.random() < 0.8,
        )
        for directory, some in by_directory.items()
    ]


def _split(chance: random.Random, file: DumpFile) -> Iterator[DumpFile]:
    cut = chance.randrange(len(file.lines) + 1)
    hhmm = f"{chance.randrange(24):02}{chance.randrange(60):02}"
    yield DumpFile(file.directory, file.name, file.lines[:cut], file.is_packed)
    yield DumpFile(file.directory, hhmm + file.name[4:], file.lines[cut:], file.is_packed)


def _rename(chance: random.Random, files: list[DumpFile]) -> None:
    """Files of no lines go; each of the others gets a name that no other in its directory has."""
    files[:] = [file for file in files if file.lines]
    taken: set[tuple[str, str]] = set()
    for file in files:
        if chance.random() < 0.1:
            file.name = f"{chance.randrange(24):02}00{file.name[4:]}"
        while (file.directory, file.name) in taken:
            file.name = f"{chance.randrange(2400):04}-9{file.name[4:]}"
        taken.add((file.directory, file.name))
        file.name += ".gz" if file.is_packed else ""
