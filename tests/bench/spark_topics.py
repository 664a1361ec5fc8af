"""How fast the format `rocketmq` reads topics: MB/s a core, beside the load generator's pull and a
Java consumer that writes Parquet.

Run by spark_source.py, in its process; the broker, the load generator, Java and Spark are others.
Megabytes are those of the records as they are stored. A figure of our reader is processor time of
this process: pulls, checks and columns, as a Python worker of an executor does them. It knows
nothing of log files.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark.sources.registration import register
from spark.sources.rocketmq import RocketmqSource
from spark.sources.rows import SCHEMA
from tests.bench.client_process import ClientProcess
from tests.bench.measuring import quiet_cpu_s, run_load, side_broker
from tests.interop import harness
from tests.interop.processes import process_tree
from tools.chaos.free_ports import free_port

GOAL_MB_S: Final = 50
QUEUES: Final = (1, 8, 64, 512)
_USUAL: Final = 8
_PULL_BATCH: Final = 32


@dataclass(frozen=True, slots=True)
class Cost:
    """What reading took. cpu_s: processor seconds of whoever read."""

    megabytes: float
    seconds: float
    cpu_s: float

    @property
    def mb_per_s(self) -> float:
        """Of the clock."""
        return self.megabytes / self.seconds

    @property
    def mb_per_core(self) -> float:
        """A second of a processor."""
        return self.megabytes / self.cpu_s


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that has been filled."""

    name: str
    queues: int
    messages: int
    megabytes: float


def best(costs: Sequence[Cost]) -> Cost:
    """The least processor time and the least time, of rounds that read the same."""
    return Cost(
        costs[0].megabytes, min(each.seconds for each in costs), min(each.cpu_s for each in costs)
    )


def spent_s(pid: int) -> float:
    """Processor seconds of a process, of its descendants, and of those of them that have ended."""
    spent = 0
    for each in process_tree(pid):
        with suppress(OSError):  # It ended in this moment.
            spent += ticks(Path(f"/proc/{each.pid}/stat").read_text())
    return spent / os.sysconf("SC_CLK_TCK")


def ticks(stat: str) -> int:
    """utime, stime, cutime and cstime of /proc/PID/stat."""
    return sum(map(int, stat.rpartition(")")[2].split()[11:15]))


def flatness(by_queues: dict[int, Cost]) -> dict[int, float]:
    """How many times the processor time that the fewest queues take the others take."""
    first = by_queues[min(by_queues)]
    return {count: cost.cpu_s / first.cpu_s for count, cost in by_queues.items()}


class Sink:
    """Counts what a pipe would take."""

    closed = False

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: Any) -> int:
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        self.closed = True


def count_rows(reader: Any) -> int:
    """All rows of a planned reader, as Arrow's stream; their number."""
    count = 0
    for partition in reader.partitions():
        writer: Any = None
        for batch in reader.read(partition):
            writer = writer or pa.ipc.new_stream(Sink(), batch.schema)
            writer.write_batch(batch)
            count += batch.num_rows
    return count


class TopicBench:
    """Topics at one broker of ours, filled once; every way to read reads the same ones."""

    def __init__(self, broker: harness.Broker, servers: str, directory: Path, rounds: int) -> None:
        self.broker = broker
        self.servers = servers
        self._directory = directory
        self._rounds = rounds

    def fill(self, name: str, queues: int, megabytes: float, body: int) -> Topic:
        """About so many MB of bodies."""
        count = round(megabytes * 1_000_000 / body)
        run_load("send", self.broker, name, 4, 64, count, body, f"queues={queues}")
        quiet_cpu_s(self.broker.process.pid)
        found = run_load("pull", self.broker, name, "bench-warm", queues, _PULL_BATCH)
        stored = found["mb_per_s"] / found["msg_per_s"] * found["msgs"]
        return Topic(name, queues, int(found["msgs"]), stored)

    def load_generator(self, topic: Topic) -> Cost:
        """Pulls alone, one connection a queue."""

        def pull() -> tuple[int, float]:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            found = run_load(
                "pull", self.broker, topic.name, "bench-pull", topic.queues, _PULL_BATCH
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            return int(found["msgs"]), spent

        return self._rounds_of(topic, pull)

    def reader(self, topic: Topic) -> Cost:
        """The reader of the format, as Arrow's stream into nothing."""

        def read() -> tuple[int, float]:
            before = time.process_time()
            return count_rows(self._planned(topic)), time.process_time() - before

        return self._rounds_of(topic, read)

    def reader_to_parquet(self, topic: Topic) -> Cost:
        """The reader of the format, and an uncompressed Parquet file."""

        def read() -> tuple[int, float]:
            before = time.process_time()
            count = self._to_parquet(topic, self._directory / "ours.parquet")
            return count, time.process_time() - before

        return self._rounds_of(topic, read)

    def java_to_parquet(self, topic: Topic) -> Cost:
        """A Java consumer, and an uncompressed Parquet file with the same columns."""
        client = ClientProcess("java-parquet", self.servers, self._directory / "java")

        def read() -> tuple[int, float]:
            file = self._directory / "java.parquet"
            found = client.to_parquet(topic.name, topic.messages, file)
            return int(found["messages"]), found["cpu_s"]

        try:
            read()  # The JVM compiles what it runs often.
            return self._rounds_of(topic, read)
        finally:
            client.close()

    def spark(self, topic: Topic) -> dict[str, Cost]:
        """Through Spark with one core, from the plan to the sink, by what is done with the rows."""
        with _session(self._directory / "spark") as session:
            register(session)
            frame = (
                session.read.format("rocketmq")
                .options(nameServers=self.servers, topic=topic.name)
                .load()
            )
            pid = session.sparkContext._gateway.proc.pid
            ways = {
                "count()": lambda: frame.count(),
                "noop": lambda: frame.write.format("noop").mode("overwrite").save(),
                "parquet": lambda: (
                    frame.write.mode("overwrite")
                    .option("compression", "uncompressed")
                    .parquet(str(self._directory / "spark.parquet"))
                ),
            }

            def run(way: Any) -> tuple[int, float]:
                before = spent_s(pid)
                found = way()
                return topic.messages if found is None else found, spent_s(pid) - before

            costs = {}
            for name, way in ways.items():
                run(way)
                costs[name] = self._rounds_of(topic, lambda way=way: run(way))
            return costs

    def _planned(self, topic: Topic) -> Any:
        options = {"nameServers": self.servers, "topic": topic.name}
        return RocketmqSource(options).reader(SCHEMA)

    def _to_parquet(self, topic: Topic, path: Path) -> int:
        reader, count, writer = self._planned(topic), 0, None
        for partition in reader.partitions():
            for batch in reader.read(partition):
                writer = writer or pq.ParquetWriter(
                    path,
                    batch.schema,
                    compression="none",
                    use_dictionary=[name for name in batch.schema.names if name != "body"],
                )
                writer.write_batch(batch)
                count += batch.num_rows
        if writer is not None:
            writer.close()
        return count

    def _rounds_of(self, topic: Topic, once: Any) -> Cost:
        costs = []
        for _ in range(self._rounds):
            begin = time.perf_counter()
            count, spent = once()
            costs.append(Cost(topic.megabytes, time.perf_counter() - begin, spent))
            if count != topic.messages:
                raise RuntimeError(f"{count} messages were read, {topic.messages} are there")
        return best(costs)


@contextmanager
def _session(directory: Path) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    from spark.job.spark_session import LOCAL

    session = (
        SparkSession.builder.master("local[1]")
        .appName("bench")
        .config(map=dict(LOCAL))
        .config("spark.local.dir", str(directory))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def running_bench(rounds: int) -> Iterator[TopicBench]:
    """With a broker of ours that has its own name server."""
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as place:
        directory = Path(place)
        port = free_port()
        settings = {"defaultTopicQueueNums": str(max(QUEUES)), "embeddedNamesrvPort": str(port)}
        broker = side_broker("ours", directory / "broker", conf=settings)
        try:
            yield TopicBench(broker.start(), f"127.0.0.1:{port}", directory, rounds)
        finally:
            broker.kill()


def print_topics(bench: TopicBench, megabytes: int, body: int, *, has_peers: bool) -> None:
    """The rows of topics. has_peers: Java and Spark, too."""
    topics = {
        queues: bench.fill(f"BenchSpark{queues}", queues, megabytes, body) for queues in QUEUES
    }
    usual = topics[_USUAL]
    print(f"rocketmq: {usual.messages} messages of {body} bytes, {usual.megabytes:.0f} MB")
    limit = bench.load_generator(usual)
    _print("limit: the load generator's pull", limit, limit)
    by_queues = {queues: bench.reader(topic) for queues, topic in topics.items()}
    for queues, factor in flatness(by_queues).items():
        name = f"{queues} queues (goal {GOAL_MB_S})"
        _print(name, by_queues[queues], limit, f", {factor:.2f} of the time for one queue")
    ours = bench.reader_to_parquet(usual)
    _print("8 queues, into Parquet", ours, limit)
    if has_peers:
        java = bench.java_to_parquet(usual)
        factor = java.cpu_s / ours.cpu_s
        _print("a Java consumer, into Parquet", java, limit, f", {factor:.2f} of our time")
        for name, cost in bench.spark(usual).items():
            _print(f"through Spark, local[1]: {name}", cost, limit)


def _print(name: str, cost: Cost, limit: Cost, more: str = "") -> None:
    share = limit.seconds / cost.seconds
    print(
        f"{name:34} {cost.mb_per_core:6.0f} MB/s a core, {cost.mb_per_s:5.0f} by the clock, "
        f"{share:.2f} of the limit{more}",
        flush=True,
    )
