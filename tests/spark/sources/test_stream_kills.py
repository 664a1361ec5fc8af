"""A stream under load whose driver, executors and master broker are killed at seeded moments.

Spark's local-cluster mode: a driver and two executor processes. The sink is Spark's of files, which
keeps each batch once. In the end it holds each message of each queue exactly once, and what the
queues hold; meanwhile a slave served the reads. SPARK_KILLS is how many moments there are.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark.sources.registration import register
from tests.interop import harness
from tests.support.broker_group import SLAVE, SYNC_MASTER
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker, drain
from tools.chaos.free_ports import free_port
from tools.chaos.processes import children_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

TOPIC = "Killed"
QUEUES = 4
KILLS = int(os.environ.get("SPARK_KILLS", "20"))
CLUSTER = os.environ.get("SPARK_KILLS_MASTER", "local-cluster[2,1,512]")
ACTIONS = ("driver", "executor", "executor", "master")


class Stream:
    """The program, started again and again on the same checkpoint."""

    def __init__(self, name_server: str, directory: Path) -> None:
        self._words = [CLUSTER, name_server, TOPIC, str(directory)]
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._directory / "stream.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.sources.stream_program", *self._words],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """The driver, its JVM, and all that they started."""
        assert self._process is not None
        for pid in [*descendants(self._process.pid), self._process.pid]:
            kill(pid)
        self._process.wait()

    def executors(self) -> list[int]:
        """Executor JVMs, or the Python workers of a local master."""
        assert self._process is not None
        found = descendants(self._process.pid)
        executors = [pid for pid in found if b"CoarseGrainedExecutorBackend" in command(pid)]
        return executors or [pid for pid in found if b"pyspark.daemon" in command(pid)]

    def ended(self) -> bool:
        """Whether the query failed."""
        return self._process is not None and self._process.poll() is not None


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> list[int]:
    found = children_of(pid)
    return found + [each for child in found for each in descendants(child)]


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Pair:
    """A master and its slave behind a name server of its own."""

    def __init__(self, root: Path, name_server: str) -> None:
        common = {"brokerName": "broker-a", "brokerIP2": "127.0.0.1", "namesrvAddr": name_server}
        port = free_port(-2, 1)
        self.master = OurBroker(root / "master", listenPort=port, **common, **SYNC_MASTER)
        others = {"listenPort": free_port(-2, 1), "haMasterAddress": f"127.0.0.1:{port + 1}"}
        self.slave = OurBroker(root / "slave", **common, **SLAVE, **others)


@contextmanager
def load(pair: Pair) -> Iterator[list[int]]:
    """Sends until the end, on and on; the one element is how many were acknowledged."""
    end, sent = threading.Event(), [0]

    def run() -> None:
        while not end.is_set():
            try:
                with pair.master.client(timeout_s=5) as client:
                    while not end.wait(0.003):
                        number = sent[0]
                        answer = client.send(TOPIC, number % QUEUES, b"%d " % number * 50)
                        sent[0] += answer.code == 0
            except OSError:
                end.wait(0.1)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield sent
    finally:
        end.set()
        thread.join()


@pytest.mark.parametrize("seed", [int(os.environ.get("SPARK_KILLS_SEED", "1"))])
def test_each_message_once(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    moments = random.Random(seed)
    with ExitStack() as stack:
        names = harness.name_server("ours", tmp_path / "names").start()
        stack.callback(names.stop)
        pair = Pair(tmp_path, names.address)
        master = stack.enter_context(pair.master.start())
        stack.enter_context(pair.slave.start())
        stream = Stream(names.address, tmp_path)
        with load(pair) as sent:
            wait_until(lambda: sent[0] > QUEUES, 60)
            stream.start()
            stack.callback(stream.kill)
            done = [strike(moments, stream, pair, tmp_path) for _ in range(KILLS)]
            print(f"seed {seed}: {', '.join(done)}; {sent[0]} sent")
        stream.kill()
        rows = finish(spark, names.address, tmp_path)
        with master.client() as client:
            stored = {
                (number, each.queue_offset): each.body
                for number in range(QUEUES)
                for each in drain(client, TOPIC, number)
            }
        assert len(stored) >= sent[0]
        places = [(row.queue_id, row.queue_offset) for row in rows]
        assert len(places) == len(set(places)), "doubles"
        assert {(row.queue_id, row.queue_offset): bytes(row.body) for row in rows} == stored


def strike(moments: random.Random, stream: Stream, pair: Pair, directory: Path) -> str:
    """After a while of the seed's, something is killed, and comes back."""
    if moments.random() < 0.7:  # else in the middle of a start
        before = len(batches(directory))
        wait_until(lambda: len(batches(directory)) > before or stream.ended(), 180)
    threading.Event().wait(moments.uniform(0, 2))
    what = moments.choice(ACTIONS)
    if what == "executor" and (executors := stream.executors()):
        kill(moments.choice(executors))
    elif what == "master":
        pair.master.crash()
        before = len(batches(directory))
        wait_until(lambda: len(batches(directory)) > before or stream.ended(), 180)
        pair.master.start()
    else:
        what = "driver"
        stream.kill()
    if stream.ended():
        stream.start()
    return what


def batches(directory: Path) -> list[Path]:
    """What Spark has committed."""
    return list((directory / "checkpoint" / "commits").glob("[0-9]*"))


def finish(spark: SparkSession, name_server: str, directory: Path) -> list[Any]:
    """All that is there, with the checkpoint as the last kill left it."""
    register(spark)
    stream = spark.readStream.format("rocketmq").options(
        nameServers=name_server, topic=TOPIC, start="earliest"
    )
    for tries_left in range(2, -1, -1):
        query = (
            stream.load()
            .writeStream.format("parquet")
            .option("path", str(directory / "out"))
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(300)
            break
        except StreamingQueryException:  # a busy machine starts no Python worker within 10 s
            if not tries_left:
                raise
    rows: list[Any] = spark.read.parquet(str(directory / "out")).collect()
    return rows
