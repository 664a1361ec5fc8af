"""What idle clients cost: `bin/bench idle` (or `python -m tests.bench.idle`).

Starts one broker of ours, waits until it rests, then connects --clients consumers in groups of
--group, each with one parked pull (long poll) on a queue of its own, and looks at the broker's
processes (processor time, and how often they go to sleep) for --seconds in each of three states:

    nobody        no client is connected; the memory of each process is then beside its budget
    as Java's     heartbeats every 30 s and pulls that end after 15 s and are sent again, as the
                  original's push consumer does without messages: 500 requests a second
    parked        every client waits in its pull; nobody says anything

Between the last two: wake-ups, a message to the queue of one client, chosen at random, while all
the others go on as Java's; from the send to the answer that this client gets. Printed: p50, p99
and the longest of --wakes. One process drives all clients without blocking, so that its own delays
are in the figures. Processor time that the host stole is in no process'; it is printed beside.
The figures with a goal (goals.py) also go to --json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import select
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.bench.broker_figures import Process, allow_descriptors, look_at, usage
from tests.bench.goals import Goal
from tests.bench.machine import describe_machine
from tests.bench.measuring import MIB, OUT_DIR, quiet_cpu_s, side_broker
from tests.bench.memory_budget import budget_lines, look_at_memory
from tests.interop.processes import wait_until
from tests.support.stolen_time import StolenTime

GOALS: Final = {
    "parked: of a core, %": Goal("parked_percent", 1.0, of_ratio=False),
    "as Java's: processor time a request, us": Goal("request_us", 30.0, of_ratio=False),
    "wake-ups: p99, ms": Goal("p99_ms", 3.0, of_ratio=False),
}
"""By what they are about; of all processes of the broker together."""
HEARTBEAT_S: Final = 30.0
SUSPEND_S: Final = 15.0
_PARKED_S: Final = 3_600.0
_BROKERS_OWN: Final = 200
"""Descriptors besides the connections."""
_CONNECTING: Final = 200
_HEAD: Final = struct.Struct(">iI")
_PULL, _HEARTBEAT, _SEND = 1, 2, 3
"""Opaques: a connection has at most one request of each kind under way."""


def frame(code: int, opaque: int, fields: dict[str, object], body: bytes = b"") -> bytes:
    """A request, as the original's clients write it."""
    header = json.dumps(
        {
            "code": code,
            "extFields": {name: str(value) for name, value in fields.items()},
            "flag": 0,
            "language": "JAVA",
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": 401,
        },
        separators=(",", ":"),
    ).encode()
    return _HEAD.pack(4 + len(header) + len(body), len(header)) + header + body


def take_frames(data: bytearray) -> list[dict[str, object]]:
    """The headers of the whole frames in `data`, which keeps the rest."""
    headers = []
    at = 0
    while len(data) - at >= _HEAD.size:
        length, header_length = _HEAD.unpack_from(data, at)
        if len(data) - at < 4 + length:
            break
        headers.append(json.loads(data[at + 8 : at + 8 + header_length]))
        at += 4 + length
    del data[:at]
    return headers


class Client:
    """One consumer: a connection, a queue, a parked pull."""

    def __init__(self, number: int, group_size: int) -> None:
        self.number = number
        self.group = f"idle-{number // group_size}"
        self.topic = f"IdleTopic-{number // group_size}"
        self.queue_id = number % group_size
        self.offset = 0
        self.received = bytearray()
        self.sock: socket.socket

    def connect(self, port: int) -> None:
        """Blocking; what follows is not."""
        self.sock = socket.create_connection(("127.0.0.1", port), 30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)

    def pull(self, suspend_s: float) -> None:
        """Code 11: everything from the offset on, or wait for it."""
        fields = {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.offset,
            "maxMsgNums": 32,
            "sysFlag": 2,
            "commitOffset": 0,
            "suspendTimeoutMillis": int(suspend_s * 1000),
            "subVersion": 0,
            "expressionType": "TAG",
        }
        self.sock.send(frame(11, _PULL, fields))

    def heartbeat(self) -> None:
        """Code 34, with the subscriptions of a push consumer."""
        subscription = {
            "classFilterMode": False,
            "codeSet": [],
            "expressionType": "TAG",
            "subString": "*",
            "subVersion": 1,
            "tagsSet": [],
        }
        topics = (self.topic, f"%RETRY%{self.group}")
        consumer = {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": self.group,
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [{**subscription, "topic": topic} for topic in topics],
            "unitMode": False,
        }
        body = {
            "clientID": f"127.0.0.1@{self.number}",
            "consumerDataSet": [consumer],
            "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
        }
        self.sock.send(frame(34, _HEARTBEAT, {}, json.dumps(body).encode()))


class Herd:
    """All clients, and one producer, on one thread."""

    def __init__(self, port: int, count: int, group_size: int) -> None:
        self._port = port
        self.clients = [Client(number, group_size) for number in range(count)]
        self._producer = Client(0, 1)
        self._by_fd: dict[int, Client] = {}
        self._epoll = select.epoll()
        self._beats: list[tuple[float, Client]] = []
        self.suspend_s = SUSPEND_S
        self.answers = 0
        self.woken: Callable[[Client], None] = lambda client: None

    def connect(self) -> None:
        """Connect all; every group is known and every topic is there afterwards."""
        self._producer.connect(self._port)
        self._watch(self._producer)
        queues = 1 + max(client.queue_id for client in self.clients)
        topics = sorted({client.topic for client in self.clients})
        for topic in topics:
            self._create(topic, queues)
        wanted = self.answers + len(self.clients)
        for number, client in enumerate(self.clients):
            client.connect(self._port)
            self._watch(client)
            client.heartbeat()
            if number % _CONNECTING == _CONNECTING - 1:
                self.run(0.05)
        self.run_until(lambda: self.answers >= wanted, "the answer to every heartbeat")

    def _watch(self, client: Client) -> None:
        self._by_fd[client.sock.fileno()] = client
        self._epoll.register(client.sock, select.EPOLLIN)

    def _create(self, topic: str, queues: int) -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        }
        wanted = self.answers + 1
        self._producer.sock.send(frame(17, _SEND, fields))
        self.run_until(lambda: self.answers >= wanted, f"topic {topic}")

    def pull_all(self, first_s: Callable[[], float]) -> None:
        """Send a pull for each client, which may wait `first_s()`; later ones SUSPEND_S."""
        for client in self.clients:
            client.pull(first_s())
            self.step(0)

    def beat_from_now(self) -> None:
        """Heartbeats from now on, evenly over their period."""
        now, gap = time.monotonic(), HEARTBEAT_S / len(self.clients)
        self._beats = [(now + gap * n, client) for n, client in enumerate(self.clients)]
        self._beats.reverse()

    def fall_silent(self) -> None:
        """No more heartbeats, and the next pulls wait for ever."""
        self._beats = []
        self.suspend_s = _PARKED_S

    def send(self, client: Client) -> None:
        """Code 310 to the client's queue."""
        fields = {
            "a": "bench",
            "b": client.topic,
            "c": "TBW102",
            "d": 4,
            "e": client.queue_id,
            "f": 0,
            "g": int(time.time() * 1000),
            "h": 0,
            "i": "",
            "j": 0,
            "k": "false",
            "m": "false",
        }
        self._producer.sock.send(frame(310, _SEND, fields, bytes(128)))

    # -- the loop ------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Turn for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.step(left)

    def run_until(self, condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        """Turn until `condition` holds. Raises TimeoutError."""
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(what)
            self.step(0.1)

    def step(self, timeout_s: float) -> None:
        """One turn: what came, then the heartbeats that are due."""
        if self._beats:
            timeout_s = min(timeout_s, max(0.0, self._beats[-1][0] - time.monotonic()))
        for fd, _events in self._epoll.poll(timeout_s):
            self._read(self._by_fd[fd])
        now = time.monotonic()
        while self._beats and self._beats[-1][0] <= now:
            due, client = self._beats.pop()
            client.heartbeat()
            self._beats.insert(0, (due + HEARTBEAT_S, client))

    def _read(self, client: Client) -> None:
        data = client.sock.recv(1 << 16)
        if not data:
            raise ConnectionResetError(f"the broker closed the connection of {client.group}")
        client.received += data
        for header in take_frames(client.received):
            if not int(str(header["flag"])) & 1:
                continue  # 40: a member came. Nobody here rebalances.
            self.answers += 1
            if header["opaque"] == _PULL:
                self._pulled(client, header)
            elif header["code"] != 0:
                raise RuntimeError(f"{client.group}: answer {header}")

    def _pulled(self, client: Client, header: dict[str, object]) -> None:
        """Found, or nothing within the time (19): the next pull."""
        if header["code"] not in (0, 19):
            raise RuntimeError(f"{client.group}: pull answered with {header}")
        fields = header["extFields"]
        assert isinstance(fields, dict)
        client.offset = int(fields["nextBeginOffset"])
        if header["code"] == 0:
            self.woken(client)
        client.pull(self.suspend_s)


def watch(what: str, pid: int, seconds: float, run: Callable[[float], None]) -> float:
    """Print what the broker used while `run(seconds)`; cores, all processes together."""
    stolen, before, began = StolenTime(), look_at(pid), time.monotonic()
    run(seconds)
    passed = time.monotonic() - began
    used = usage(before, look_at(pid), passed)
    together = sum(each.cpu for each in used)
    each = ", ".join(f"{one.name} {100 * one.cpu:.2f}" for one in used)
    print(
        f"{what:10} {100 * together:6.2f} % of a core ({each}), "
        f"{sum(one.switches for one in used):.0f} sleeps/s, {stolen.share():.0%} stolen",
        flush=True,
    )
    return together


def wake(herd: Herd, count: int) -> list[float]:
    """The time from send to answer, ms, for `count` clients at random."""
    times: list[float] = []
    woken: list[Client] = []
    herd.woken = woken.append
    for _ in range(count):
        client = random.choice(herd.clients)
        herd.run(random.uniform(0.01, 0.03))
        woken.clear()
        began = time.perf_counter()
        herd.send(client)
        herd.run_until(lambda: bool(woken), f"a message for {client.topic}")
        times.append(1000 * (time.perf_counter() - began))
        assert woken == [client], "another client was answered"
    return times


def percentiles(times: Sequence[float]) -> tuple[float, float]:
    """p50 and p99."""
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return cuts[49], cuts[98]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many clients, in groups of how many; how long each state is looked at; how many of them
    are woken."""

    clients: int = 5_000
    group: int = 50
    seconds: float = 30
    wakes: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """What they cost. request_us is None where it could not be told."""

    parked_percent: float
    request_us: float | None
    times_ms: Sequence[float]
    """Of wake-ups."""

    @property
    def figures(self) -> dict[str, float]:
        """As a row of bin/bench compare has them."""
        p50, p99 = percentiles(self.times_ms)
        asked = {} if self.request_us is None else {"request_us": self.request_us}
        return {"parked_percent": self.parked_percent, **asked, "p50_ms": p50, "p99_ms": p99}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Load()
    parser.add_argument("--clients", type=int, default=usual.clients)
    parser.add_argument("--group", type=int, default=usual.group, help="clients of a group")
    parser.add_argument("--seconds", type=float, default=usual.seconds)
    parser.add_argument("--wakes", type=int, default=usual.wakes)
    parser.add_argument("--json", type=Path, default=OUT_DIR / "idle.json")
    options = parser.parse_args()
    load = Load(
        clients=options.clients, group=options.group, seconds=options.seconds, wakes=options.wakes
    )
    machine = describe_machine(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix="bench-idle-") as root:
        finish(measure("ours", Path(root), load), load, machine, options.json)


def measure(side: str, directory: Path, load: Load) -> Idle:
    """One broker, from its start to its end."""
    allow_descriptors(load.clients + _BROKERS_OWN)
    large = {"mappedFileSizeCommitLog": str(256 * MIB), "mappedFileSizeConsumeQueue": "6000000"}
    broker = side_broker(side, directory, conf=large)
    broker.start()
    try:
        return watch_all(broker.process.pid, broker.port, load)
    finally:
        broker.end()


def watch_all(pid: int, port: int, options: Load) -> Idle:
    """The whole measurement."""
    wait_until(lambda: len(look_at(pid)) == 5, "all processes")
    quiet_cpu_s(pid, 30)
    time.sleep(5)
    watch("nobody", pid, options.seconds, time.sleep)
    print("\n".join(budget_lines(look_at_memory(pid))), flush=True)
    herd = Herd(port, options.clients, options.group)
    herd.connect()
    herd.pull_all(lambda: random.uniform(0, SUSPEND_S))
    herd.beat_from_now()
    herd.run(SUSPEND_S + 5)
    print_memory(look_at(pid))
    before = herd.answers
    alive = watch("as Java's", pid, options.seconds, herd.run)
    rate = (herd.answers - before) / options.seconds
    times = wake(herd, options.wakes)
    herd.fall_silent()
    herd.run(SUSPEND_S + 2)
    before = herd.answers
    parked = watch("parked", pid, options.seconds, herd.run)
    assert herd.answers == before, "a parked pull was answered"
    p50, p99 = percentiles(times)
    print(
        f"as Java's: {rate:.0f} requests/s, {100 * alive:.2f} % of a core\n"
        f"{len(times)} wake-ups: p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {max(times):.2f} ms"
    )
    # With few clients the difference is smaller than what the broker does by itself.
    request_us = 1e6 * (alive - parked) / rate if alive > parked else None
    return Idle(parked_percent=100 * parked, request_us=request_us, times_ms=times)


def finish(found: Idle, load: Load, machine: Mapping[str, object], path: Path) -> None:
    """Print each figure beside its goal, and keep them."""
    rows = []
    for name, goal in GOALS.items():
        figure = found.figures.get(goal.figure)
        verdict = goal.verdict(None if figure is None else {goal.figure: figure})
        print(f"{name:42}{'-' if figure is None else f'{figure:.2f}':>8}   {verdict.text}")
        unmeasured = {"java": None, "ratio": None}
        rows.append({"name": name, "ours": figure, **unmeasured, "goal": asdict(verdict)})
    run = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "clients": load.clients,
    }
    report = {"run": run, "machine": machine, "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1))
    print(f"written: {path}")


def print_memory(processes: list[Process]) -> None:
    """Of each process; no goal."""
    each = ", ".join(f"{one.name} {one.anonymous / MIB:.0f}" for one in processes)
    print(f"{'':10} MiB anonymous: {each}")


if __name__ == "__main__":
    main()
