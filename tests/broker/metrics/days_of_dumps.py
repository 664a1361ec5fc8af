"""A broker's metrics dump of many days, as it lies on its disk: for tests of what reading it costs.

A line every five seconds with two replicas (1.7 KB), a file an hour, compressed. The broker follows
under id 1 for the first half, and leads under id 0 from then on; the group's other broker writes
into the same directory. One replica falls behind for ten minutes a day.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from broker.metrics.dump_file_names import place_of
from tests.spark.dump_lines_builder import Life, replica

CLUSTER, GROUP = "DefaultCluster", "broker-a"
INTERVAL_MS: Final = 5_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
LINES_AN_HOUR: Final = HOUR_MS // INTERVAL_MS
BEHIND_MS: Final = 600_000
"""At the beginning of each day."""
MESSAGES_A_LINE: Final = 500


@dataclass(frozen=True)
class Dumper:
    """A life of a broker: from one hour on, under an id."""

    boot: str
    host: str
    broker_id: int
    first_ms: int
    hours: int

    def files(self) -> Iterator[tuple[Path, bytes]]:
        """Paths below the dump's directory, and what is in them, compressed."""
        template = _template(self)
        for hour in range(self.hours):
            begin_ms = self.first_ms + hour * HOUR_MS
            moment = datetime.fromtimestamp(begin_ms / 1000, UTC)
            seq = hour * LINES_AN_HOUR + 1
            name = f"{moment:%H%M}-{self.broker_id}-{self.boot[:8]}-{seq:08}.jsonl.gz"
            lines = (_line(template, begin_ms, seq, number) for number in range(LINES_AN_HOUR))
            data = gzip.compress(b"".join(lines), compresslevel=1)
            yield Path(f"dt={moment:%Y-%m-%d}", place_of(CLUSTER, GROUP), name), data


def _template(dumper: Dumper) -> dict[str, Any]:
    """With marks where a line has its own numbers."""
    role = "ASYNC_MASTER" if dumper.broker_id == 0 else "SLAVE"
    life = Life(
        start_ms=dumper.first_ms,
        cluster=CLUSTER,
        broker=GROUP,
        broker_id=dumper.broker_id,
        role=role,
        boot=dumper.boot,
        marks=True,
    )
    rows = [replica(f"{GROUP}:{number}") for number in (1, 2)] if role != "SLAVE" else []
    line = life.line(dumper.first_ms, replicas=rows)
    return line | {"host": dumper.host, "roles": []}


def _line(template: dict[str, Any], begin_ms: int, first_seq: int, number: int) -> bytes:
    ts, seq = begin_ms + number * INTERVAL_MS, first_seq + number
    is_behind = ts % DAY_MS < BEHIND_MS
    rows = template["replicas"]
    if rows:
        state = "catching_up" if is_behind else "in_sync"
        rows[0] |= {"state": state, "lag_bytes": 1_000_000 if is_behind else 0}
    sends = template["sends"] | {"ok": seq * MESSAGES_A_LINE}
    now = {"ts": ts, "seq": seq, "msgs_in": seq * MESSAGES_A_LINE, "sends": sends}
    return msgspec.json.encode(template | now) + b"\n"


def write_days(root: Path, first_ms: int, days: int) -> int:
    """The dumps of a failover after half of them; bytes that were written."""
    half = days // 2 * 24
    us, them = "10.0.0.1:10911", "10.0.0.2:10911"
    middle_ms = first_ms + half * HOUR_MS
    written = 0
    for dumper in (
        Dumper("a" * 16, us, 1, first_ms, half),
        Dumper("b" * 16, them, 0, first_ms, half),
        Dumper("c" * 16, us, 0, middle_ms, days * 24 - half),
        Dumper("d" * 16, them, 1, middle_ms, days * 24 - half),
    ):
        for path, data in dumper.files():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            written += len(data)
    return written
