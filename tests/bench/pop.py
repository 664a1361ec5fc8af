"""Pop and ack, ours beside Java 5.3.3's: `bin/bench pop` (or `python -m tests.bench.pop`).

Each broker in turn gets one topic of four queues with --messages messages of --size bytes.
--clients processes pop with --batch and acknowledge every message of a batch, the acks of a batch
in one go, before their next pop. Printed for each: messages handed out and acknowledged a second,
processor time of the broker a message, and bytes of log written a message. The driver speaks
plain frames, written and cut apart here without the project's codec, so that it costs little
beside the broker. Figures are read by people; nothing is asserted.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from remoting.body.kv_table import KVTable
from remoting.request_code import RequestCode
from tests.bench.measuring import JAVA_JVM, quiet_cpu_s
from tests.interop import harness
from tests.support.deadline import wait_until
from tests.support.stolen_time import StolenTime
from tools.chaos.free_ports import free_port

TOPIC: Final = "BenchPop"
GROUP: Final = "GBenchPop"
QUEUES: Final = 4
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


def frame(header: str) -> bytes:
    """A frame without body."""
    data = header.encode()
    return _HEAD.pack(4 + len(data), len(data)) + data


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
    """`count` messages, evenly over the queues; waits until they can be popped. (Java answers in
    any order, and refuses some on a busy machine.)"""
    with broker.client() as frames:
        frames.send(TOPIC, 0, bytes(size))
        client, sent = RawClient(broker.port, broker.name), 1
        while sent < count:
            numbers = range(sent, min(sent + _PIPELINED, count))
            client.sock.sendall(b"".join(_send(number % QUEUES, size) for number in numbers))
            headers = [client.next_header() for _ in numbers]
            sent += sum(b'"code":0,' in header for header in headers)
        wait_until(lambda: sum(frames.offset(30, TOPIC, q) for q in range(QUEUES)) >= count, 60)


def _send(queue_id: int, size: int) -> bytes:
    header = _SEND % (TOPIC, queue_id, int(time.time() * 1000))
    data = header.encode()
    return _HEAD.pack(4 + len(data) + size, len(data)) + data + bytes(size)


def log_end(broker: harness.Broker) -> int:
    """Bytes in the broker's commit log, as it says."""
    with broker.client() as client:
        body = client.call(RequestCode.GET_BROKER_RUNTIME_INFO, {}).body
    return int(KVTable.from_json_bytes(body).table["commitLogMaxOffset"])


def measure(broker: harness.Broker, options: argparse.Namespace) -> None:
    """Fill, consume, print."""
    fill(broker, options.messages, options.size)
    before_cpu, before_log = quiet_cpu_s(broker.process.pid), log_end(broker)
    results: multiprocessing.Queue[Any] = multiprocessing.Queue()
    arguments = (broker.port, broker.name, options.batch, results)
    workers = [
        multiprocessing.Process(target=consume, args=arguments) for _ in range(options.clients)
    ]
    stolen, began = StolenTime(), time.monotonic()
    for worker in workers:
        worker.start()
    found = []
    for _worker in workers:
        try:
            found.append(results.get(timeout=600))
        except queue.Empty:
            raise SystemExit(f"{broker.process.log_path}: a client did not end") from None
    for worker in workers:
        worker.join()
    done = sum(count for count, _last in found)
    took_s = max(last for _count, last in found) - began
    cpu_us = 1e6 * (quiet_cpu_s(broker.process.pid) - before_cpu) / max(done, 1)
    written = (log_end(broker) - before_log) / max(done, 1)
    print(
        f"{broker.kind:>8}: batch {options.batch}, {options.clients} clients: "
        f"{done / took_s:8,.0f} messages/s, {cpu_us:4.0f} us of processor time and {written:5.1f} "
        f"bytes of log a message ({done} of {options.messages}, {100 * stolen.share():.0f}% of the "
        "machine stolen)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--only", choices=("ours", "java-5.3"), help="measure one of the two")
    options = parser.parse_args()
    for kind in ("ours", "java-5.3"):
        if options.only in (None, kind):
            with tempfile.TemporaryDirectory(prefix="bench-pop-") as root:
                run(kind, Path(root), options)


def run(kind: str, root: Path, options: argparse.Namespace) -> None:
    """One broker, from its start to its end."""
    jvm = JAVA_JVM if kind != "ours" else ()
    conf = {
        "timerWheelEnable": "true",
        "mappedFileSizeCommitLog": str(256 << 20),
        "autoCreateTopicEnable": "true",
    }
    port = free_port(-2, 1)
    broker = harness.broker(kind, root, None, port=port, jvm=jvm, conf=conf)
    broker.start()
    try:
        measure(broker, options)
    finally:
        broker.end()


if __name__ == "__main__":
    main()
