"""Small metrics dumps for tests: lines with every field, lives of brokers, directories.

life = Life(start_ms=T0)                       # one boot of one broker
lines = [life.line(T0 + 5_000), life.line(T0 + 10_000, replicas=[replica(lag_ms=20_000)])]
after = life.restarted(T0 + 30_000)            # proved: knows the last line of `life`
write_dump(tmp_path, lines + [after.line(T0 + 31_000)])
"""

from __future__ import annotations

import bisect
import datetime
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

DATE = datetime.date(2026, 3, 10)
T0 = int(datetime.datetime(2026, 3, 10, tzinfo=datetime.UTC).timestamp()) * 1000
"""DATE 00:00 UTC, epoch ms."""

INTERVAL_MS = 5_000
LAG_LE = (100, 1_000, 5_000, 10_000, 60_000, 600_000)
ACK_LE = (0.001, 0.01, 0.1, 1.0)

NO_TIME = {"in_sync": 0, "catching_up": 0, "disconnected": 0}

Line = dict[str, Any]


def replica(name: str = "b:1", state: str = "in_sync", **fields: Any) -> dict[str, Any]:
    """A row of `replicas`; every field can be given. `state_ms` too: {"in_sync": ms, ...}; without
    it a line counts the time since the one before it under the row's state."""
    row: dict[str, Any] = {
        "id": name,
        "connected": state != "disconnected",
        "in_sync": state == "in_sync",
        "state": state,
        "ack_offset": 1_000,
        "lag_bytes": 0,
        "lag_ms": 0,
        "lag_exact": True,
        "transferred": 0,
        "reconnects": 0,
        "rejected_acks": 0,
    }
    row.update(fields)
    if "state_ms" in row:
        row["state_ms"] = NO_TIME | row["state_ms"]
    return row


def processes(ha_up: bool = True, ha_restarts: int = 0, **restarts: int) -> list[dict[str, Any]]:
    """The `processes` of a line; `restarts` of others by name."""
    rows = [
        {"name": name, "up": True, "restarts": restarts.get(name, 0)}
        for name in ("remoting", "store")
    ]
    return [*rows, {"name": "ha", "up": ha_up, "restarts": ha_restarts}]


def sync(ok: int = 0, slave_timeout: int = 0, not_available: int = 0, disk_timeout: int = 0) -> Any:
    return {
        "ok": ok,
        "flush_slave_timeout": slave_timeout,
        "slave_not_available": not_available,
        "flush_disk_timeout": disk_timeout,
    }


def ack_latency(counts: Sequence[int] = (0, 0, 0, 0, 0), total_s: float = 0.0) -> Any:
    """`counts`: one more than ACK_LE."""
    return {"le": list(ACK_LE), "counts": list(counts), "sum": total_s}


def sends(ok: int = 0, latency: Any = None, **others: int) -> Any:
    """The counters of all answers to sends; `others` by result."""
    results = ("flush_disk_timeout", "flush_slave_timeout", "slave_not_available", "refused")
    return {"ok": ok, **dict.fromkeys(results, 0), **others, "latency": latency or ack_latency()}


def exposure(at_least: int, at_most: int, looks: int = 0) -> Any:
    """`looks`: counted in the first bucket, up to a million bytes."""
    return {
        "bytes_at_least": at_least,
        "bytes_at_most": at_most,
        "ms_at_least": 0,
        "ms_at_most": 0,
        "le": [1_000_000],
        "counts": [looks, 0],
    }


@dataclass
class Life:
    """One boot of one broker: numbers its lines, keeps its clocks.

    `mono` of a line is 1,000,000 + ts - machine_ms unless given: lives of one machine share it."""

    start_ms: int = T0
    cluster: str = "c"
    broker: str = "b"
    broker_id: int = 0
    role: str = "ASYNC_MASTER"
    boot: str = "00000001" * 2
    interval_ms: int = INTERVAL_MS
    prev_boot: str | None = None
    prev_seq: int | None = None
    seq: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Of every line, unless the line has its own."""
    marks: bool = False
    """Lines of version 2: what a line shows held since the line before it."""
    machine_ms: int | None = None
    """Of its machine: the start of the first life on it."""
    _mono: int = 0
    """Of the last line, or of the start."""
    _since: int | None = None
    """Monotonic time of the last line, if any."""
    _lag_time: dict[str, list[int]] = field(default_factory=dict)
    _spent: dict[str, dict[str, int]] = field(default_factory=dict)
    """What the counters of each replica show."""

    def __post_init__(self) -> None:
        self.machine_ms = self.start_ms if self.machine_ms is None else self.machine_ms
        self._mono = 1_000_000 + self.start_ms - self.machine_ms

    def line(self, ts: int, *, skip: int = 0, **fields: Any) -> Line:
        """The next line, at wall clock `ts`; `skip`: so many before it are missing."""
        self.seq += 1 + skip
        line: Line = {
            "v": 1,
            "ts": ts,
            "mono": 1_000_000 + ts - (self.machine_ms or 0),
            "boot": self.boot,
            "boot_ts": self.start_ms,
            "seq": self.seq,
            "prev_boot": self.prev_boot,
            "prev_seq": self.prev_seq,
            "interval_ms": self.interval_ms,
            "final": False,
            "cluster": self.cluster,
            "broker": self.broker,
            "broker_id": self.broker_id,
            "role": self.role,
            "version": "0.1.0",
            "config": "0123456789ab",
            "ready": True,
            "min_offset": 0,
            "max_offset": 1_000,
            "replicated_offset": 1_000,
            "msgs_in": 0,
            "bytes_in": 0,
            "sync": sync(),
            "ack_latency": ack_latency(),
            "unreplicated_bytes": 0,
            "oldest_unreplicated_ms": 0,
            "processes": processes(),
        }
        if self.role == "SLAVE":
            line["metadata"] = []
        else:
            line["replicas"] = [replica(f"{self.broker}:1")]
        line |= dict(self.fields) | fields
        self._count(line)
        return line

    def _count(self, line: Line) -> None:
        """Rows without `state_ms` get counters that go with the states of the lines."""
        if self.marks:
            self._mark(line)
        passed_ms, self._mono = max(0, line["mono"] - self._mono), max(self._mono, line["mono"])
        rows = []
        for row in line.get("replicas") or []:
            spent = self._spent.setdefault(row["id"], dict(NO_TIME))
            spent[row["state"]] += passed_ms
            rows.append({"state_ms": dict(spent)} | row)
        if line.get("replicas"):
            line["replicas"] = rows

    def _mark(self, line: Line) -> None:
        """Version 2 on top of the line; what is not exact has no mark, and is not booked."""
        risk, mono = line["unreplicated_bytes"], line["mono"]
        since = self._since
        if since is None:
            since = max(0, mono - max(0, line["ts"] - self.start_ms))
        self._since = mono
        line |= {"v": 2, "since": min(since, mono), "host": "10.0.0.1:10911"}
        line |= {"sends": line.get("sends") or sends(), "lag_le": list(LAG_LE)}
        line["exposure"] = None if risk is None else exposure(risk, risk, self.seq)
        for row in line.get("replicas") or []:
            row["lag_ms_max"] = 10**9
            spent = self._lag_time.setdefault(row["id"], [0] * (len(LAG_LE) + 1))
            if row["lag_exact"] or not row["lag_bytes"]:
                row["lag_ms_max"] = row["lag_ms"]
                if row["state"] == "in_sync":
                    bucket = bisect.bisect_left(LAG_LE, row["lag_ms"])
                    spent[bucket] += max(0, mono - since)
            row["lag_time"] = list(spent)

    def lines(self, first_ts: int, count: int, **fields: Any) -> list[Line]:
        """`count` lines, one an interval, the first at `first_ts`."""
        return [self.line(first_ts + i * self.interval_ms, **fields) for i in range(count)]

    def restarted(self, start_ms: int, *, proved: bool = True, **changes: Any) -> Life:
        """The next life of this broker: a new boot id; knows this one's last line if `proved`."""
        values: dict[str, Any] = {
            "start_ms": start_ms,
            "cluster": self.cluster,
            "broker": self.broker,
            "broker_id": self.broker_id,
            "role": self.role,
            "boot": f"{int(self.boot[:8], 16) + 1:08x}" * 2,  # files are named by the first 8
            "interval_ms": self.interval_ms,
            "prev_boot": self.boot if proved else None,
            "prev_seq": self.seq if proved else None,
            "fields": self.fields,
            "marks": self.marks,
            "machine_ms": self.machine_ms,
        }
        return Life(**(values | changes))


class Cases:
    """Ways to make lines, each for a broker group of its own: a decorator. A case is called what
    its function is, without underscores around it.

    case = Cases()

    @case
    def _quiet(life: Life) -> list[Line]: ...
    """

    def __init__(self) -> None:
        self._makers: dict[str, Callable[[Life], list[Line]]] = {}

    def __call__(self, make: Callable[[Life], list[Line]]) -> Callable[[Life], list[Line]]:
        self._makers[make.__name__.strip("_")] = make
        return make

    @property
    def names(self) -> set[str]:
        """Of the groups."""
        return set(self._makers)

    def write(self, root: Path) -> None:
        """The lines of all cases, as one dump."""
        for name, make in self._makers.items():
            write_dump(root, make(Life(broker=name)))


def every(first_ms: int, last_ms: int, step_ms: int = INTERVAL_MS) -> range:
    """Moments from `first_ms` to `last_ms`, both included."""
    return range(first_ms, last_ms + 1, step_ms)


def directory_of(root: Path, line: Line, date: str | None = None) -> Path:
    """Where a line lies below `root`: docs/metrics_dump.md, Files."""
    parts = (
        f"dt={date or _moment(line).date()}",
        f"cluster={quote(line['cluster'], safe='')}",
        f"broker={quote(line['broker'], safe='')}",
    )
    return root.joinpath(*parts)


def write_dump(root: Path, lines: Iterable[Line], *, compress: bool = True) -> list[Path]:
    """Files as a supervisor writes them: one for each hour, broker and boot. Gives their paths."""
    files: dict[tuple[Path, str], list[Line]] = defaultdict(list)
    for line in lines:
        key = f"{_moment(line):%H}-{line['broker_id']}-{line['boot']}"
        files[directory_of(root, line), key].append(line)
    return [
        write_file(directory / file_name(some[0]), some, compress=compress)
        for (directory, _), some in files.items()
    ]


def file_name(first: Line) -> str:
    """Of the file that begins with this line, without `.gz`."""
    return f"{_moment(first):%H%M}-{first['broker_id']}-{first['boot'][:8]}-{first['seq']:08}.jsonl"


def write_file(path: Path, lines: Iterable[Line | str], *, compress: bool = False) -> Path:
    """One file with these lines (text is written as it is); `.gz` is appended if `compress`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(
        (line if isinstance(line, str) else json.dumps(line, separators=(",", ":"))) + "\n"
        for line in lines
    )
    if not compress:
        path.write_text(text, encoding="utf-8")
        return path
    path = path.with_name(path.name + ".gz")
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def _moment(line: Line) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(line["ts"] / 1000, datetime.UTC)
