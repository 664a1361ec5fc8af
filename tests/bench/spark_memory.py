"""What a task of the format `rocketmq` needs in memory: python -m tests.bench.spark_memory ...

Run by spark_source.py, which starts this module as a process for each figure: SERVERS TOPIC
BATCH_BYTES reads a topic as a task does, and prints by how much the highest resident memory was
above what the process had with all its modules before. Linux only: it resets VmHWM.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark.sources.rocketmq import RocketmqSource
from spark.sources.rows import SCHEMA
from tests.bench.spark_topics import TopicBench, count_rows
from tests.interop import harness

MIB: Final = 1 << 20
BATCHES: Final = (2 * MIB, 8 * MIB, 32 * MIB)
"""Values of the option batchBytes; the middle one is what it is when it is not set."""
_RESET: Final = "5"  # clear_refs: the peak is what is resident now
_PAIRS: Final = 5_000
_NAMES: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+*/=."


def resident(status: str, name: str) -> int:
    """Bytes, from /proc/PID/status: VmRSS or VmHWM. ValueError when it is not there."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise ValueError(f"no {name} in {status!r:.200}")
    return int(found[1]) * 1024


def many_properties(count: int) -> str:
    """As a message has them: so many with names of two letters and values of one."""
    names = (first + second for first in _NAMES for second in _NAMES)
    return "\x02".join(f"{name}\x01v" for name, _ in zip(names, range(count), strict=False))


@dataclass(frozen=True, slots=True)
class Kind:
    """Messages: so many with such a body. pairs: how many properties; 0: those of the load
    generator, which sends them."""

    name: str
    count: int
    body: int
    pairs: int = 0

    def fill(self, broker: harness.Broker, topic: str) -> None:
        """Into one queue."""
        with broker.client() as client:
            for _ in range(self.count):
                fields = {"a": "P", "b": topic, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1}
                fields |= {"h": 0, "j": 0, "k": "false", "l": 16, "m": "false"}
                answer = client.call(
                    310, fields | {"i": many_properties(self.pairs)}, b"x" * self.body
                )
                if answer.code != 0:
                    raise RuntimeError(f"{self.name}: {answer.remark}")


KINDS: Final = (
    Kind("1 KiB", 40_000, 1024),
    Kind(f"1 byte, {_PAIRS} properties", 500, 1, _PAIRS),
    Kind("1 byte", 150_000, 1),
    Kind("4 MB", 20, 4_000_000, 1),
)


def print_memory(bench: TopicBench) -> None:
    """A row for each kind of message and value of the option."""
    print("rocketmq: highest memory of a task, MiB above its start, by batchBytes")
    for number, kind in enumerate(KINDS):
        topic = f"BenchSparkMemory{number}"
        if kind.pairs:
            kind.fill(bench.broker, topic)
        else:
            bench.fill(topic, 1, kind.count * kind.body / 1e6, kind.body)
        figures = [peak_mib(bench.servers, topic, size) for size in BATCHES]
        texts = (
            f"{size // MIB} MiB: {mib:.0f}" for size, mib in zip(BATCHES, figures, strict=True)
        )
        print(f"{kind.name:34} {', '.join(texts)}", flush=True)


def peak_mib(servers: str, topic: str, batch_bytes: int) -> float:
    """In a process of its own."""
    command = [sys.executable, "-m", __name__, servers, topic, str(batch_bytes)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout) / MIB


def main(servers: str, topic: str, batch_bytes: str) -> None:
    """One figure, bytes."""
    options = {"nameServers": servers, "topic": topic, "batchBytes": batch_bytes}
    reader = RocketmqSource(options).reader(SCHEMA)
    list(reader.partitions())
    Path("/proc/self/clear_refs").write_text(_RESET)
    status = Path("/proc/self/status")
    before = resident(status.read_text(), "VmRSS")
    count_rows(reader)
    print(resident(status.read_text(), "VmHWM") - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
