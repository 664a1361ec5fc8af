"""Pop and ack, ours beside Java 5.5.0's: `bin/bench pop` (or `python -m tests.bench.pop`).

Each broker in turn gets one topic of four queues with --messages messages of --size bytes, after
as many for its warm-up, always, as a JVM needs. --clients processes pop with --batch and
acknowledge every message of a batch, the acks of a batch in one go, before their next pop. Printed
for each: messages handed out and acknowledged a second, processor time of the broker a message, and
bytes of log written a message. The driver speaks plain frames, written and cut apart here without
the project's codec, so that it costs little beside the broker. Figures are read by people; nothing
is asserted. bin/bench compare has two rows of this.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import socket
import struct
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from remoting.body.kv_table import KVTable
from remoting.request_code import RequestCode
from tests.bench.measuring import COMPILED, JAVA_5, SOURCES, quiet_cpu_s, side_broker
from tests.interop import harness
from tests.support.deadline import wait_until
from tests.support.stolen_time import StolenTime

TOPIC: Final = "BenchPop"
GROUP: Final = "GBenchPop"
QUEUES: Final = 4
SIDES: Final = (COMPILED, SOURCES, JAVA_5)
WARM_UP: Final = 50_000
_WARM_UP_BATCH: Final = 32
_PIPELINED: Final = 200
_MISSES: Final = 20
"""Empty pops in a row after which a client ends."""
_MISS_S: Final = 0.01
_HEAD: Final = struct.Struct(">ii")
_POP: Final = (
    '{"code":200050,"extFields":{"consumerGroup":"%s","topic":"%s","queueId":"-1",'
    '"maxMsgNums":"%d","invisibleTime":"60000","pollTime":"0","bornTime":"%d","initMode":"0",'
    '"expType":"TAG","exp":"*","order":"false"},"flag":0,"language":"JAVA","opaque":1,'
    '"serializeTypeCurrentRPC":"JSON","version":479}'
)
_SEND: Final = (
    '{"code":310,"extFields":{"a":"bench","b":"%s","c":"TBW102","d":"4","e":"%d","f":"0",'
    '"g":"%d","h":"0","i":"","j":"0","k":"false","m":"false"},"flag":0,"language":"JAVA",'
    '"opaque":3,"serializeTypeCurrentRPC":"JSON","version":479}'
)
_ACK: Final = (
    '{"code":200051,"extFields":{"queueId":"%s","offset":"%s","topic":"%s","consumerGroup":"%s",'
    '"extraInfo":"%s %s %s %s 0 %s %s %s"},"flag":0,"language":"JAVA","opaque":2,'
    '"serializeTypeCurrentRPC":"JSON","version":479}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of a broker."""

    messages: int = 200_000
    size: int = 128
    batch: int = 32
    clients: int = 4
    warm_up: int = WARM_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class Popped:
    """What came of it."""

    done: int
    msg_per_s: float
    cpu_us: float
    log_bytes: float
    """Written, a message."""
    stolen: float

    @property
    def figures(self) -> dict[str, float]:
        """As a row of bin/bench compare has them."""
        return {
            "messages": self.done,
            "msg_per_s": self.msg_per_s,
            "cpu_us": self.cpu_us,
            "log_bytes": self.log_bytes,
        }


def frame(header: str, body: bytes = b"") -> bytes:
    """A whole frame."""
    data = header.encode()
    return _HEAD.pack(4 + len(data) + len(body), len(data)) + data + body


@dataclass
class RawClient:
    """One connection of one client process."""

    port: int
    broker_name: str
    sock: socket.socket = field(init=False)
    data: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.sock = socket.create_connection(("127.0.0.1", self.port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def next_header(self) -> bytes:
        """The header of the next answer; its body is dropped."""
        while len(self.data) < 8 or len(self.data) < 4 + _HEAD.unpack_from(self.data)[0]:
            got = self.sock.recv(1 << 18)
            if not got:
                raise ConnectionResetError("the broker closed the connection")
            self.data += got
        length, header_length = _HEAD.unpack_from(self.data)
        header = bytes(self.data[8 : 8 + header_length])
        del self.data[: 4 + length]
        return header

    def pop(self, batch: int) -> list[bytes]:
        """The acks of what was handed out."""
        now_ms = int(time.time() * 1000)
        self.sock.sendall(frame(_POP % (GROUP, TOPIC, batch, now_ms)))
        answer = json.loads(self.next_header())
        return self._acks(answer["extFields"]) if answer["code"] == 0 else []

    def _acks(self, fields: dict[str, str]) -> list[bytes]:
        starts = {
            (flag, queue_id): start
            for flag, queue_id, start in map(str.split, fields["startOffsetInfo"].split(";"))
        }
        acks = []
        for flag, queue_id, offsets in map(str.split, fields["msgOffsetInfo"].split(";")):
            info = (starts[flag, queue_id], fields["popTime"], fields["invisibleTime"])
            where = (fields["reviveQid"], self.broker_name, queue_id)
            for offset in offsets.split(","):
                text = _ACK % (queue_id, offset, TOPIC, GROUP, *info, *where, offset)
                acks.append(frame(text))
        return acks

    def ack(self, acks: list[bytes]) -> None:
        """Send them, wait for all answers."""
        self.sock.sendall(b"".join(acks))
        for _ in acks:
            header = self.next_header()
            assert b'"code":0,' in header, header


def consume(port: int, name: str, batch: int, results: multiprocessing.Queue[Any]) -> None:
    """Pop and acknowledge until nothing is left; how many, and when the last, goes to `results`."""
    client, done, misses, last = RawClient(port, name), 0, 0, time.monotonic()
    while misses < _MISSES:
        acks = client.pop(batch)
        if not acks:
            misses += 1
            time.sleep(_MISS_S)
            continue
        client.ack(acks)
        misses, last = 0, time.monotonic()
        done += len(acks)
    results.put((done, last))


def fill(broker: harness.Broker, count: int, size: int) -> None:
    """`count` more messages, evenly over the queues; waits until they can be popped. (Java answers
    in any order, and refuses some on a busy machine.)"""
    with broker.client() as frames:
        frames.send(TOPIC, 0, bytes(size))

        def stored() -> int:
            return sum(frames.offset(30, TOPIC, queue_id) for queue_id in range(QUEUES))

        client, sent, wanted = RawClient(broker.port, broker.name), 1, stored() + count - 1
        while sent < count:
            numbers = range(sent, min(sent + _PIPELINED, count))
            client.sock.sendall(b"".join(_send(number % QUEUES, size) for number in numbers))
            headers = [client.next_header() for _ in numbers]
            sent += sum(b'"code":0,' in header for header in headers)
        wait_until(lambda: stored() >= wanted, 60)


def _send(queue_id: int, size: int) -> bytes:
    return frame(_SEND % (TOPIC, queue_id, int(time.time() * 1000)), bytes(size))


def log_end(broker: harness.Broker) -> int:
    """Bytes in the broker's commit log, as it says."""
    with broker.client() as client:
        body = client.call(RequestCode.GET_BROKER_RUNTIME_INFO, {}).body
    return int(KVTable.from_json_bytes(body).table["commitLogMaxOffset"])


def consume_all(broker: harness.Broker, batch: int, clients: int) -> tuple[int, float]:
    """Pop and acknowledge what is there; how many, and the seconds until the last."""
    results: multiprocessing.Queue[Any] = multiprocessing.Queue()
    arguments = (broker.port, broker.name, batch, results)
    workers = [multiprocessing.Process(target=consume, args=arguments) for _ in range(clients)]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    found = []
    for _worker in workers:
        try:
            found.append(results.get(timeout=600))
        except queue.Empty:
            raise RuntimeError(f"{broker.process.log_path}: a client did not end") from None
    for worker in workers:
        worker.join()
    return sum(count for count, _last in found), max(last for _count, last in found) - began


def measure(side: str, directory: Path, load: Load) -> Popped:
    """One broker, from its start to its end: warm-up, then what is measured."""
    conf = {
        "timerWheelEnable": "true",
        "mappedFileSizeCommitLog": str(256 << 20),
        "autoCreateTopicEnable": "true",
    }
    broker = side_broker(side, directory, conf=conf)
    broker.start()
    try:
        fill(broker, load.warm_up, load.size)
        consume_all(broker, _WARM_UP_BATCH, load.clients)
        fill(broker, load.messages, load.size)
        before_cpu, before_log = quiet_cpu_s(broker.process.pid), log_end(broker)
        stolen = StolenTime()
        done, took_s = consume_all(broker, load.batch, load.clients)
        return Popped(
            done=done,
            msg_per_s=done / took_s,
            cpu_us=1e6 * (quiet_cpu_s(broker.process.pid) - before_cpu) / max(done, 1),
            log_bytes=(log_end(broker) - before_log) / max(done, 1),
            stolen=stolen.share(),
        )
    finally:
        broker.end()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Load()
    parser.add_argument("--messages", type=int, default=usual.messages)
    parser.add_argument("--size", type=int, default=usual.size)
    parser.add_argument("--batch", type=int, default=usual.batch)
    parser.add_argument("--clients", type=int, default=usual.clients)
    parser.add_argument("--only", choices=SIDES, help="measure one of them")
    options = parser.parse_args(arguments)
    load = Load(
        messages=options.messages,
        size=options.size,
        batch=options.batch,
        clients=options.clients,
    )
    for side in [options.only] if options.only else SIDES:
        with tempfile.TemporaryDirectory(prefix="bench-pop-") as root:
            popped = measure(side, Path(root), load)
        print(
            f"{side:>8}: batch {load.batch}, {load.clients} clients: "
            f"{popped.msg_per_s:8,.0f} messages/s, {popped.cpu_us:4.0f} us of processor time and "
            f"{popped.log_bytes:5.1f} bytes of log a message ({popped.done} of {load.messages}, "
            f"{popped.stolen:.0%} of the machine stolen)",
            flush=True,
        )


if __name__ == "__main__":
    main()
