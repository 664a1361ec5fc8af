"""The Java client (src/interop/Driver.java) as an object: its operations and its ledgers.

One JVM serves a whole test session, since a start costs about a second of both cores.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.java_peers import QUICK_JVM, driver_classpath, java_command
from tests.interop.processes import wait_until

_CALL_TIMEOUT_S = 180.0
_MQADMIN_MS = 60_000
# The default is 20 s: an orderly 4.9.8 consumer takes over a queue only at its next regular round.
_REBALANCE = ("-Drocketmq.client.rebalance.waitInterval=4000",)


class DriverError(Exception):
    """The Java client threw; the text is its exception with its causes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message as it was sent or received; `note` is the send status or the tag, with #N when it
    came back N times."""

    seq: int
    digest: str
    broker: str
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str
    note: str

    @property
    def queue(self) -> tuple[str, int]:
        return self.broker, self.queue_id


def read_ledger(path: Path) -> list[Entry]:
    """The messages of a ledger file, in the order in which they were written.

    The JVM may be writing: the begin of a line that has no end yet is left out.
    """
    entries = []
    for line in path.read_text(errors="replace").rpartition("\n")[0].splitlines():
        seq, digest, broker, queue, offset, msg_id, offset_id, note = line.split("\t")
        entries.append(
            Entry(int(seq), digest, broker, int(queue), int(offset), msg_id, offset_id, note)
        )
    return entries


def by_queue(entries: Iterable[Entry]) -> dict[tuple[str, int], list[Entry]]:
    """Entries of each (broker name, queue id), their order kept."""
    queues: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for entry in entries:
        queues[entry.queue].append(entry)
    return queues


class CommandProcess:
    """A process that runs JSON commands, each a line of its stdin, at the same time, and answers in
    lines of its stdout; thread-safe."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, env: Mapping[str, str]
    ) -> None:
        """directory: where it runs, with its log. env: added to the environment."""
        directory.mkdir(parents=True, exist_ok=True)
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[Any]] = {}
        self._failure: str | None = None
        self._lock = threading.Lock()
        self._log = (directory / "driver.log").open("wb")
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=directory,  # some commands of mqadmin write files where they are
            env={**os.environ, **env},
            encoding="utf-8",
        )
        threading.Thread(target=self._read_answers, name=name, daemon=True).start()

    def submit(self, op: str, **arguments: Any) -> Future[Any]:
        """Start an operation; the future gives its answer or raises DriverError."""
        number = next(self._numbers)
        future: Future[Any] = Future()
        line = json.dumps({"id": number, "op": op, **arguments}, default=str)
        with self._lock:
            if self._failure is not None:
                future.set_exception(DriverError(self._failure))
                return future
            self._pending[number] = future
            assert self._popen.stdin is not None
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()
        return future

    def call(self, op: str, **arguments: Any) -> Any:
        """Run an operation and give its answer."""
        return self.submit(op, **arguments).result(_CALL_TIMEOUT_S)

    def close(self, timeout_s: float = 5.0) -> None:
        """End the JVM (its stdin ends)."""
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._log.close()

    def kill(self) -> None:
        """SIGKILL: the client dies without a word to any broker."""
        self._popen.kill()
        self.close()

    def _read_answers(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            try:
                answer = json.loads(line)
            except json.JSONDecodeError:
                self._fail(f"the driver said {line!r}")
                return
            future = self._pending.pop(answer["id"])
            if "error" in answer:
                future.set_exception(DriverError(answer["error"]))
            else:
                future.set_result(answer.get("ok"))
        self._fail(f"the driver ended; see {self._log.name}")

    def _fail(self, words: str) -> None:
        """Nothing is answered any more."""
        with self._lock:
            self._failure = words
            pending, self._pending = self._pending, {}
        for future in pending.values():
            future.set_exception(DriverError(words))


class Driver(CommandProcess):
    """One JVM with the client of `version`; thread-safe."""

    def __init__(
        self, version: str, directory: Path, jvm: Sequence[str] = (), home: Path | None = None
    ) -> None:
        """jvm: more of its options. home: where its mqadmin has conf/logback_tools.xml, and
        conf/tools.yml if it signs; one of its own otherwise."""
        self.version = version
        self._directory = directory
        self.home = home or directory / "mqadmin"
        # From the start on: 5.5's classes look once, at the first use of any client.
        at_home = f"-Drocketmq.home.dir={self.home}"
        options = (*QUICK_JVM, "-Xms64m", "-Xmx1g", *_REBALANCE, at_home, *jvm)
        command = java_command(driver_classpath(version), "interop.Driver", directory, jvm=options)
        super().__init__(f"driver-{version}", command, directory, {})

    def ledger_path(self, name: str) -> Path:
        """A new file for a ledger."""
        return self._directory / f"{name}-{next(self._numbers)}.ledger"

    def mqadmin(self, *arguments: str) -> str:
        """What the mqadmin of its release prints, within this JVM: one of its own would take a
        second of both cores. Raises DriverError when it does not end."""
        return self.mqadmin_texts(*arguments)[0]

    def mqadmin_texts(self, *arguments: str) -> tuple[str, str]:
        """The same, and what it prints to stderr."""
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        (self.home / "conf" / "logback_tools.xml").write_text("<configuration/>")
        answer = self.call("mqadmin", args=arguments, lines=0, limit_ms=_MQADMIN_MS)
        if not answer["ended"]:
            raise DriverError(f"mqadmin {arguments} does not end: {answer['out']}{answer['err']}")
        return str(answer["out"]), str(answer["err"])


class Producer:
    """A running DefaultMQProducer in a driver."""

    def __init__(self, driver: Driver, namesrv: str, name: str, **settings: Any) -> None:
        self.driver = driver
        self.name = name
        driver.call("producer.start", name=name, namesrv=namesrv, group=f"p-{name}", **settings)

    def send(self, topic: str, kind: str, count: int, **settings: Any) -> list[Entry]:
        """Send and wait; every send must have been answered. Gives what was sent."""
        return self.sent(self.begin_send(topic, kind, count, **settings))

    def begin_send(
        self, topic: str, kind: str, count: int, **settings: Any
    ) -> tuple[Future[Any], Path]:
        """Start sending `count` messages; settings: first, seed, profile, rate, delay_level."""
        path = self.driver.ledger_path(f"sent-{kind}")
        defaults = {"first": 0, "seed": 1, "profile": "small", "rate": 0.0, **settings}
        future = self.driver.submit(
            "send", producer=self.name, topic=topic, kind=kind, count=count, ledger=path, **defaults
        )
        return future, path

    def sent(self, begun: tuple[Future[Any], Path], timeout_s: float = 120.0) -> list[Entry]:
        """Wait for `begin_send`; fails when a send had no success."""
        answer = begun[0].result(timeout_s)
        assert answer["errors"] == [], answer["errors"][:5]
        return read_ledger(begun[1])

    def stop(self) -> None:
        self.driver.call("producer.stop", name=self.name)


class Consumer:
    """A running consumer in a driver: a DefaultMQPushConsumer or a DefaultLitePullConsumer.

    `family` is "push" or "lite"; settings: from, timestamp, expression, sql, model, orderly,
    refuse, refuse_always, max_reconsume, broker_rebalance, pop_invisible_ms, slow, assign, as
    PushConsumers.java and LitePullConsumers.java say.
    """

    def __init__(
        self, driver: Driver, family: str, namesrv: str, group: str, topic: str, **settings: Any
    ) -> None:
        self.driver = driver
        self.family = family
        self.group = group
        self.topic = topic
        self.name = f"{group}-{next(_CONSUMER_NUMBERS)}"
        self.path = driver.ledger_path(f"received-{self.name}")
        defaults = {"from": "FIRST_OFFSET", "expression": "*", "model": "CLUSTERING", **settings}
        driver.call(
            f"{family}.start",
            name=self.name,
            namesrv=namesrv,
            group=group,
            topic=topic,
            ledger=self.path,
            **defaults,
        )

    def count(self) -> int:
        return int(self.driver.call(f"{self.family}.count", name=self.name))

    def received(self) -> list[Entry]:
        """All received so far, in the order of arrival."""
        self.count()
        return read_ledger(self.path)

    def wait_for(self, count: int, timeout_s: float = 30.0) -> list[Entry]:
        """Wait until at least `count` messages have come."""
        what = f"{count} messages at {self.name} (client {self.driver.version})"
        wait_until(lambda: self.count() >= count, what, timeout_s)
        return self.received()

    def suspend(self, suspended: bool) -> None:
        """Let this push consumer stop pulling, or go on."""
        self.driver.call("push.suspend", name=self.name, suspended=suspended)

    def queues(self) -> list[int]:
        """Queues that this push consumer holds now."""
        return list(self.driver.call("push.queues", name=self.name, topic=self.topic))

    def pop_queues(self) -> list[int]:
        """Queues that this push consumer of 5.x pops now; -1 is any queue of a broker."""
        return list(self.driver.call("push.pop_queues", name=self.name, topic=self.topic))

    def stop(self) -> list[Entry]:
        """Shut down; gives all that was received."""
        self.driver.call(f"{self.family}.stop", name=self.name)
        return read_ledger(self.path)


_CONSUMER_NUMBERS = itertools.count(1)
