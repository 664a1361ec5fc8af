"""Writes metrics dumps of many broker groups: `python -m tests.spark.generate_dumps --out DIR`.

Made for measuring the nightly report: every group has one master that serves `--replicas` slaves
and writes a line every `--interval` seconds, one gz file an hour, as docs/metrics_dump.md says.
Days are not all perfect: slaves stop, stall or are slow and catch up again, masters restart (with
a proof that nothing is missing, or without), hours are missing, lines come twice or torn. The same
--seed gives the same bytes. Prints lines, replica rows, files and bytes.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
MESSAGE_BYTES: Final = 256
ACK_BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
NOISE: Final = 4096
"""Length of the tables of noise that are made once for each group (a power of two)."""


@dataclass(frozen=True)
class Shape:
    """How much to write, and how much of it goes wrong."""

    out: Path
    date: datetime.date
    groups: int
    replicas: int
    days: int
    interval_s: int
    seed: int
    cluster: str = "DefaultCluster"
    incidents: float = 0.5
    """Incidents of a replica and day, on average."""
    restarts: float = 0.1
    """Restarts of a master and day, on average."""
    missing_hours: float = 0.001
    """Part of the hour files that are not there."""
    duplicates: float = 0.001
    """Part of the lines that come twice."""
    torn: float = 0.001
    """Part of the hour files with a line that was cut off."""
    level: int = 6
    """Of gzip."""


@dataclass
class Written:
    """What was written."""

    lines: int = 0
    rows: int = 0
    files: int = 0
    bytes_: int = 0
    text_bytes: int = 0

    def add(self, other: Written) -> None:
        for name in ("lines", "rows", "files", "bytes_", "text_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def generate(shape: Shape, jobs: int = 0) -> Written:
    """Writes all groups, `jobs` processes at a time (0: one for each processor)."""
    written = Written()
    work = [(shape, number) for number in range(shape.groups)]
    jobs = min(jobs or os.cpu_count() or 1, shape.groups)
    if jobs == 1:
        for item in work:
            written.add(_write_group(item))
        return written
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for part in pool.imap_unordered(_write_group, work):
            written.add(part)
    return written


def _write_group(item: tuple[Shape, int]) -> Written:
    shape, number = item
    written = Written()
    master = _Master(shape, number)
    midnight = datetime.datetime.combine(shape.date, datetime.time(), datetime.UTC)
    first_ms = int(midnight.timestamp()) * 1000
    for day in range(shape.days):
        hour_lines: list[str] = []
        hour = -1
        for ts, line in master.lines_of_day(first_ms + day * DAY_MS):
            if ts // HOUR_MS != hour:
                _write_hour(shape, master, hour, hour_lines, written)
                hour, hour_lines = ts // HOUR_MS, []
            hour_lines.append(line)
        _write_hour(shape, master, hour, hour_lines, written)
    return written


def _write_hour(
    shape: Shape, master: _Master, hour: int, lines: list[str], written: Written
) -> None:
    chance = master.chance
    if not lines or chance.random() < shape.missing_hours:
        return
    written.lines += len(lines)
    written.rows += len(lines) * shape.replicas
    for _ in range(_about(chance, len(lines) * shape.duplicates)):
        lines.append(chance.choice(lines))
    if chance.random() < shape.torn:
        lines.append(chance.choice(lines)[: chance.randrange(1, 400)] + "\n")
    first = json.loads(lines[0])
    begin = datetime.datetime.fromtimestamp(first["ts"] / 1000, datetime.UTC)
    folder = shape.out / f"dt={begin.date()}" / f"cluster={shape.cluster}" / f"broker={master.name}"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{begin:%H%M}-0-{first['boot'][:8]}-{first['seq']:08d}.jsonl.gz"
    text = "".join(lines).encode()
    content = gzip.compress(text, shape.level, mtime=hour * 3600)
    (folder / name).write_bytes(content)
    written.files += 1
    written.bytes_ += len(content)
    written.text_bytes += len(text)


def _about(chance: random.Random, mean: float) -> int:
    """A whole number whose mean is `mean`."""
    whole = int(mean)
    return whole + (chance.random() < mean - whole)


@dataclass
class _Trouble:
    """A replica stops, stalls or is slow for some samples."""

    first: int
    last: int
    kind: str


@dataclass
class _Slave:
    """The master's view of one replica: its counters and what goes wrong today."""

    template: str
    ack_offset: int
    transferred: int = 0
    reconnects: int = 0
    lag_ms: int = 0
    state: str = "in_sync"
    state_ms: dict[str, int] = field(
        default_factory=lambda: {"in_sync": 0, "catching_up": 0, "disconnected": 0}
    )
    troubles: list[_Trouble] = field(default_factory=list)

    def row(self, index: int, max_offset: int, rise: int, noise_ms: int, passed_ms: int) -> str:
        """Moves on by one sample and gives its row. `rise`: bytes since the last sample."""
        kind = ""
        if self.troubles and index >= self.troubles[0].first:
            kind = self.troubles[0].kind
            if index >= self.troubles[0].last:
                self.troubles.pop(0)
        if kind == "stop":
            if self.state != "disconnected":
                self.reconnects += 1
            self.state, self.lag_ms = "disconnected", self.lag_ms + passed_ms
        elif kind == "stall":
            self.lag_ms += passed_ms
        elif self.lag_ms > 2000 and (self.state != "in_sync" or kind == "slow"):
            self.state = "catching_up"
            self._acknowledge(min(max_offset, self.ack_offset + 4 * rise))
            self.lag_ms = max(noise_ms, self.lag_ms - 3 * passed_ms)
        else:
            self.state = "in_sync"
            self.lag_ms = 11_000 + noise_ms if kind == "slow" else noise_ms
            behind = rise * self.lag_ms // passed_ms
            self._acknowledge(max(self.ack_offset, max_offset - behind))
        self.state_ms[self.state] += passed_ms
        if self.ack_offset == max_offset:
            self.lag_ms = 0
        connected = self.state != "disconnected"
        return self.template % (
            "true" if connected else "false",
            "true" if self.state == "in_sync" else "false",
            self.state,
            self.ack_offset,
            max_offset - self.ack_offset,
            self.lag_ms,
            self.transferred,
            self.reconnects,
            self.state_ms["in_sync"],
            self.state_ms["catching_up"],
            self.state_ms["disconnected"],
        )

    def _acknowledge(self, offset: int) -> None:
        self.transferred += offset - self.ack_offset
        self.ack_offset = offset

    def begin_boot(self) -> None:
        """Counters of a new life of the master."""
        self.transferred = self.reconnects = 0
        self.state_ms = dict.fromkeys(self.state_ms, 0)


class _Master:
    """One broker group's master over all days; writes its lines as text."""

    def __init__(self, shape: Shape, number: int) -> None:
        self.shape = shape
        self.chance = random.Random(f"{shape.seed}/{number}")
        self.name = f"broker-{number:05d}"
        chance = self.chance
        self._interval_ms = shape.interval_s * 1000
        self._rate = chance.randrange(5, 4000) * shape.interval_s
        self._messages = [int(self._rate * chance.lognormvariate(0, 0.3)) for _ in range(NOISE)]
        self._lags = [int(chance.lognormvariate(1.5, 1.2)) for _ in range(NOISE)]
        self._max_offset = chance.randrange(1 << 30, 1 << 40)
        self._slaves = [
            _Slave(_row_template(f"{self.name}:{i + 1}"), self._max_offset)
            for i in range(shape.replicas)
        ]
        self._boot, self._boot_seq = "", 0
        self._phase_ms = chance.randrange(self._interval_ms)
        self._restart_at: set[int] = set()

    def lines_of_day(self, midnight_ms: int) -> Iterator[tuple[int, str]]:
        """(ts, line) of one day; the state lives on into the next day."""
        chance, interval_ms = self.chance, self._interval_ms
        samples = DAY_MS // interval_ms
        self._plan_day(samples)
        index = 0
        if not self._boot:
            self._begin_boot(midnight_ms + self._phase_ms - 3_600_000, proved=False)
            self._boot_seq = 720
        while index < samples:
            ts = midnight_ms + self._phase_ms + index * interval_ms + chance.randrange(3)
            yield ts, self._line(index, ts)
            index += 1
            if index in self._restart_at:
                down = chance.randrange(2, 12)
                proved = chance.random() < 0.7
                index += down
                back_ms = midnight_ms + self._phase_ms + index * interval_ms
                self._begin_boot(back_ms - chance.randrange(interval_ms), proved=proved)

    def _plan_day(self, samples: int) -> None:
        chance, shape = self.chance, self.shape
        restarts = _about(chance, shape.restarts)
        self._restart_at = {chance.randrange(1, samples) for _ in range(restarts)}
        for slave in self._slaves:
            troubles, after = [], 0
            for _ in range(_about(chance, chance.random() * 2 * shape.incidents)):
                first = chance.randrange(after, samples)
                last = first + int(chance.lognormvariate(2.5, 1))
                troubles.append(_Trouble(first, last, chance.choice(("stop", "stall", "slow"))))
                after = min(last + 1, samples - 1)
            slave.troubles = troubles

    def _begin_boot(self, boot_ms: int, *, proved: bool) -> None:
        chance = self.chance
        previous, previous_seq = self._boot, self._boot_seq
        self._boot, self._boot_seq = f"{chance.getrandbits(64):016x}", 0
        self._boot_ms = boot_ms
        if not previous:  # Of the machine, which stays up.
            self._mono_offset = boot_ms - chance.randrange(1 << 31)
        self._counts = [0] * (len(ACK_BOUNDS) + 1)
        self._sum_s = 0.0
        self._msgs = self._waited_out = 0
        for slave in self._slaves:
            slave.begin_boot()
        self._last_ts = boot_ms
        # Not proved: the last lines of the previous life were lost, its last seq is not on disk.
        proof = json.dumps(previous or None), previous_seq + (0 if proved else 3)
        self._template = _line_template(self.shape, self.name, self._boot, boot_ms, proof)

    def _line(self, index: int, ts: int) -> str:
        self._boot_seq += 1
        passed_ms, self._last_ts = max(1, ts - self._last_ts), ts
        messages = self._messages[(index * 7) & (NOISE - 1)]
        rise = messages * MESSAGE_BYTES
        self._max_offset += rise
        self._msgs += messages
        counts, lags = self._counts, self._lags
        counts[1] += messages // 8
        counts[2] += messages - messages // 8 - messages // 64
        counts[5] += messages // 64
        self._sum_s += messages * 0.0016
        rows = ",".join(
            slave.row(index, self._max_offset, rise, lags[(index * 5 + n * 977) & 4095], passed_ms)
            for n, slave in enumerate(self._slaves)
        )
        at_risk = self._max_offset - max((s.ack_offset for s in self._slaves), default=0)
        oldest = min((s.lag_ms for s in self._slaves), default=0) if at_risk else 0
        if at_risk and oldest > 3000:
            self._waited_out += 1
        return self._template % (
            ts,
            ts - self._mono_offset,
            self._boot_seq,
            self._max_offset,
            self._max_offset - at_risk,
            self._msgs,
            self._msgs * MESSAGE_BYTES,
            self._msgs - self._waited_out,
            self._waited_out,
            ",".join(map(str, counts)),
            round(self._sum_s, 3),
            at_risk,
            oldest,
            rows,
        )


def _row_template(replica: str) -> str:
    return (
        '{"id":"' + replica + '","connected":%s,"in_sync":%s,"state":"%s","ack_offset":%d,'
        '"lag_bytes":%d,"lag_ms":%d,"lag_exact":true,"transferred":%d,"reconnects":%d,'
        '"rejected_acks":0,"state_ms":{"in_sync":%d,"catching_up":%d,"disconnected":%d}}'
    )


def _line_template(
    shape: Shape, broker: str, boot: str, boot_ms: int, proof: tuple[str, int]
) -> str:
    prev_boot, prev_seq = proof[0], "null" if proof[0] == "null" else str(proof[1])
    names = ("store", "remoting", "ha")
    processes = [{"name": name, "up": True, "restarts": 0} for name in names]
    return (
        '{"v":1,"ts":%d,"mono":%d,'
        + f'"boot":"{boot}","boot_ts":{boot_ms},"seq":%d,'
        + f'"prev_boot":{prev_boot},"prev_seq":{prev_seq},"interval_ms":{shape.interval_s}000,'
        + f'"final":false,"cluster":"{shape.cluster}","broker":"{broker}","broker_id":0,'
        + '"role":"SYNC_MASTER","version":"0.1.0","config":"0123456789ab","ready":true,'
        + '"min_offset":0,"max_offset":%d,"replicated_offset":%d,"msgs_in":%d,"bytes_in":%d,'
        + '"sync":{"ok":%d,"flush_slave_timeout":%d,"slave_not_available":0,'
        + '"flush_disk_timeout":0},"ack_latency":{"le":'
        + json.dumps(ACK_BOUNDS, separators=(",", ":"))
        + ',"counts":[%s],"sum":%s},"unreplicated_bytes":%d,"oldest_unreplicated_ms":%d,'
        + '"processes":'
        + json.dumps(processes, separators=(",", ":"))
        + ',"replicas":[%s],"metadata":[]}\n'
    )


def parse(arguments: Sequence[str]) -> tuple[Shape, int]:
    """The command line: what to write, and how many processes write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--interval", type=int, default=5, help="seconds between lines")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--date", type=datetime.date.fromisoformat, default="2026-01-15")
    for name in ("incidents", "restarts", "missing-hours", "duplicates", "torn"):
        default = getattr(Shape, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=float, default=default, help=f"({default})")
    parser.add_argument("--jobs", type=int, default=0, help="processes (one a processor)")
    given = vars(parser.parse_args(arguments))
    jobs = given.pop("jobs")
    return Shape(interval_s=given.pop("interval"), **given), jobs


def main(arguments: Sequence[str]) -> int:
    """Writes and tells how much."""
    shape, jobs = parse(arguments)
    began = time.monotonic()
    written = generate(shape, jobs)
    print(
        f"{written.lines} lines, {written.rows} replica rows, {written.files} files, "
        f"{written.bytes_ / 1e6:.1f} MB ({written.text_bytes / 1e6:.0f} MB of text) "
        f"in {time.monotonic() - began:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
