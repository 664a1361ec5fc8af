"""How fast the Spark formats read: MB/s a core, in one process, and through Spark.

Usage: python -m tests.bench.spark_source [--megabytes N] [--body N] [--rounds N]
    [--only log|topics|memory] [--no-peers]
`rocketmq_log` over a file of `--megabytes` of messages with UNIQ_KEY, KEYS, TAGS, WAIT and CLUSTER,
in the page cache: processor time of the best of several rounds, as a ratio to a copy of the same
bytes with the CRC of each body. `rocketmq` (spark_topics.py) of a broker of ours, as many bytes in
1 to 512 queues, beside the load generator's pull and a Java consumer that writes Parquet, and
through Spark's JVM. What a task needs in memory (spark_memory.py).
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import EqualTo
from pyspark.sql.types import StructType

from spark.sources.log_window import WINDOW, FileWindow
from spark.sources.rocketmq_log import PushingReader, RocketmqLogSource
from spark.sources.rows import SCHEMA
from store.crc32 import crc32_for
from store.mapped_file import file_name
from store.message import Message
from store.message_codec import encode_blank, encode_host, encode_record
from tests.bench.spark_memory import print_memory
from tests.bench.spark_topics import count_rows, print_topics, running_bench

GOAL_MB_S: Final = 200
TOPICS: Final = 7
BORN_MS: Final = 1_795_000_000_000


def write_log(path: Path, size: int, body_size: int) -> int:
    """A full file; how many messages it has."""
    choice = random.Random(1)
    at = number = 0
    with path.open("wb") as file:
        while True:
            record = encode_record(_message(choice, number, at, body_size))
            if at + len(record) + 8 > size:
                file.write(encode_blank(size - at))
                file.truncate(size)
                return number
            file.write(record)
            at += len(record)
            number += 1


def _message(choice: random.Random, number: int, at: int, body_size: int) -> Message:
    properties = (
        b"UNIQ_KEY\x01%032X\x02KEYS\x01order-%d\x02TAGS\x01Tag%d\x02WAIT\x01true\x02"
        b"CLUSTER\x01DefaultCluster" % (number, number, number % 5)
    )
    return Message(
        topic=f"Topic{number % TOPICS}",
        queue_id=number % 8,
        queue_offset=number // 8,
        phy_offset=at,
        body=choice.randbytes(body_size),
        properties=properties,
        born_host=encode_host(f"10.0.0.{number % 200}", 40_000 + number % 200),
        store_host=encode_host("10.0.1.1", 10911),
        born_timestamp=BORN_MS + number,
        store_timestamp=BORN_MS + number + 2,
    )


def read(place: Path, filters: Sequence[Any] = (), *, schema: StructType = SCHEMA) -> int:
    """All rows, as Arrow's stream; their number."""
    source = RocketmqLogSource({"path": str(place)})
    plain: Any = source.reader(schema)
    reader = PushingReader(plain.options, schema)
    reader.pushFilters(list(filters))
    return count_rows(reader)


def damage(place: Path) -> int:
    """The table of damage; its rows."""
    reader: Any = RocketmqLogSource({"path": str(place), "table": "damage"}).reader(
        RocketmqLogSource({"table": "damage"}).schema()
    )
    return sum(1 for partition in reader.partitions() for _ in reader.read(partition))


def limit(path: Path, body_size: int) -> int:
    """The same bytes read, their CRC computed, and copied once more."""
    crc32, at = crc32_for(body_size), 0
    with FileWindow(str(path)) as window:
        while at < window.size:
            view, base = window.view(at, min(WINDOW, window.size - at))
            piece = view[at - base :]
            for low in range(0, len(piece), body_size):
                crc32(piece[low : low + body_size])
            at += len(bytes(piece))
    return 0


def main() -> None:
    """Print a row for each way to read."""
    parser = argparse.ArgumentParser(prog="bin/bench spark-source", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("log", "topics", "memory"))
    parser.add_argument("--no-peers", action="store_true", help="neither Java nor Spark's JVM")
    options = parser.parse_args()
    if options.only in (None, "log"):
        print_log(options)
    if options.only != "log":
        with running_bench(options.rounds) as bench:
            if options.only != "memory":
                has_peers = not options.no_peers
                print_topics(bench, options.megabytes, options.body, has_peers=has_peers)
            if options.only != "topics":
                print_memory(bench)


def print_log(options: argparse.Namespace) -> None:
    """The rows of rocketmq_log."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / file_name(0)
        count = write_log(path, options.megabytes << 20, options.body)
        print(f"rocketmq_log: {count} messages of {options.body} bytes, {options.megabytes} MiB")
        one = StructType([SCHEMA["topic"], SCHEMA["queue_id"], SCHEMA["queue_offset"]])
        ways: dict[str, Callable[[], int]] = {
            "limit: read, CRC, copied once": lambda: limit(path, options.body),
            f"all columns (goal {GOAL_MB_S})": lambda: read(path.parent),
            "three columns": lambda: read(path.parent, schema=one),
            f"one topic of {TOPICS}": lambda: read(path.parent, [EqualTo(("topic",), "Topic3")]),
            "the table of damage": lambda: damage(path.parent),
        }
        best: dict[str, float] = {}
        for _ in range(options.rounds):
            for name, way in ways.items():
                best[name] = min(best.get(name, 1e9), _seconds(way))
        first = next(iter(best.values()))
        for name, seconds in best.items():
            speed = options.megabytes * 1.048576 / seconds
            print(f"{name:32} {speed:8.0f} MB/s  {first / seconds:5.2f} of the limit")


def _seconds(way: Callable[[], int]) -> float:
    start = time.process_time()
    way()
    return time.process_time() - start


if __name__ == "__main__":
    main()
