"""Dumps as a broker writes them, by docs/metrics_dump.md alone: version 2, each line naming the
digest of the one before it; files by the hour. Nothing of the product's code."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.spark.dump_lines_builder import T0, Life

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
STEP_MS = 600_000
"""Between two lines: a day has 144, which is enough for what a chain is."""


def boot_name(number: int) -> str:
    return f"{number:016x}"


class Broker:
    """Writes the lines of one broker process, life after life."""

    def __init__(self, dumps: Path, broker: str = "b", version: int = 2) -> None:
        self._dumps = dumps
        self._broker = broker
        self._version = version
        self._life: Life | None = None
        self._lives = 0
        self._digest: str | None = None
        self._files: dict[Path, list[bytes]] = {}

    def boots(self, ts: int) -> None:
        """A new life; `prev_boot` and `prev_seq` are the last line on the disk."""
        before = self._life
        self._lives += 1
        self._life = Life(
            start_ms=ts,
            broker=self._broker,
            boot=f"{self._lives:08x}{len(self._broker):08x}",
            interval_ms=STEP_MS,
            prev_boot=before.boot if before else None,
            prev_seq=before.seq if before else None,
        )

    def writes(self, ts: int, skip: int = 0) -> None:
        """One line; `skip`: so many before it could not be written."""
        assert self._life is not None
        fields = self._life.line(ts, skip=skip)
        line: dict[str, object] = {}
        for name, value in fields.items():
            line[name] = value
            if name == "prev_seq" and self._version >= 2:
                line["prev_digest"] = self._digest
        line["v"] = self._version
        text = json.dumps(line, separators=(",", ":")).encode()
        self._digest = hashlib.sha256(text).hexdigest()
        moment = datetime.datetime.fromtimestamp(ts / 1000, datetime.UTC)
        place = self._dumps / f"dt={moment:%Y-%m-%d}" / "cluster=c" / f"broker={self._broker}"
        stem = f"{moment:%H}"
        for path in self._files:
            if (
                path.parent == place
                and path.name.startswith(stem)
                and self._life.boot[:8] in path.name
            ):
                break
        else:
            name = f"{moment:%H%M}-0-{self._life.boot[:8]}-{self._life.seq:08d}.jsonl.gz"
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
        self._files.setdefault(path, []).append(text)
        write_lines(path, self._files[path])

    def runs(self, begin_ms: int, end_ms: int) -> None:
        """Lines from `begin_ms` up to before `end_ms`."""
        for ts in range(begin_ms, end_ms, STEP_MS):
            self.writes(ts)


def write_lines(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(gzip.compress(b"".join(line + b"\n" for line in lines), 1, mtime=0))


def read_lines(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).split(b"\n")[:-1]


def three_days(dumps: Path, version: int = 2) -> None:
    """Two brokers; `b` restarts on the second day at 12:00 and, without a line written in between,
    at 12:30; a line could not be written at 06:00 on the first day."""
    for name in ("b", "other"):
        broker = Broker(dumps, name, version)
        broker.boots(T0 + 1_000)
        broker.runs(T0 + 2_000, T0 + 6 * HOUR_MS)
        broker.writes(T0 + 6 * HOUR_MS + STEP_MS, skip=1)
        if name == "other":
            broker.runs(T0 + 7 * HOUR_MS, T0 + 3 * DAY_MS)
            continue
        broker.runs(T0 + 7 * HOUR_MS, T0 + DAY_MS + 12 * HOUR_MS)
        for minutes in (0, 30):
            begin = T0 + DAY_MS + 12 * HOUR_MS + minutes * 60_000
            broker.boots(begin)
            broker.runs(begin + 1_000, begin + 30 * 60_000)
        broker.runs(T0 + DAY_MS + 13 * HOUR_MS, T0 + 3 * DAY_MS)


def files_of(dumps: Path, day: int, broker: str = "b") -> list[Path]:
    """Of a day (0, 1, 2), in the order of their lines."""
    date = datetime.datetime.fromtimestamp((T0 + day * DAY_MS) / 1000, datetime.UTC).date()
    return sorted((dumps / f"dt={date}/cluster=c/broker={broker}").iterdir())


def dates() -> Iterator[datetime.date]:
    for day in range(3):
        yield datetime.datetime.fromtimestamp((T0 + day * DAY_MS) / 1000, datetime.UTC).date()
