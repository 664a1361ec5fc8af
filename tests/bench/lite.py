"""What lite topics cost, ours beside Java 5.5.0's: `bin/bench lite` (`python -m tests.bench.lite`).

Each broker in turn, once with few lite topics and once with --topics of them and --clients
subscribers, who have them in equal parts: one message to each lite topic; the subscriptions, one
request a client; then sends to lite topics at random, and the whole way of a message while every
client waits in a pop: send, wake-up, answer, ack, and the next pop. Printed: the anonymous memory
of the broker's processes before and after, processor time a subscription, a send and a whole way,
and how long one message takes from its send to its client, nobody else sending. The clients are on
--links connections, as behind proxies; one process drives them all with frames written here, so
that it costs little beside the broker. Our broker writes the queues' files later: that is counted
apart, in the worst case, which is a file for each message, and nothing else is measured meanwhile.
Both sides are warmed up with as many messages. Java stores its queues in RocksDB: with a mapped
file for each it does not get 100,000 of them. Figures are read by people; nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import selectors
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from remoting.lite_names import to_lmq_name
from store.lmq_places import lmq_places
from store.message_codec import decode_record
from tests.bench.broker_figures import allow_descriptors, look_at
from tests.bench.measuring import COMPILED, JAVA_5, MIB, SOURCES, quiet_cpu_s, side_broker
from tests.bench.pop import frame
from tests.interop import harness
from tests.support.deadline import wait_until
from tests.support.lite_parent import make_group, make_parent
from tests.support.stolen_time import StolenTime

PARENT: Final = "BenchLite"
GROUP: Final = "GBenchLite"
SIDES: Final = (COMPILED, SOURCES, JAVA_5)
FEW: Final = 1_000
FEW_CLIENTS: Final = 50
_WINDOW: Final = 200
_UNDER_WAY: Final = 50
"""Messages whose way is not over."""
_POLL_MS: Final = 20_000
"""As proxies do; Java forgets the events of a client that has not asked for 35 s."""
_HEAD: Final = struct.Struct(">ii")
_OFFSET: Final = struct.Struct(">q")
_WRITE_MS: Final = 5_000
"""How often queues' files are written, half as often each: of a minute not to be waited for."""
_SEND: Final = (
    '{"code":310,"extFields":{"a":"bench","b":"BenchLite","c":"TBW102","d":"4","e":"%d","f":"0",'
    '"g":"%d","h":"0","i":"__LITE_TOPIC\\u0001%s\\u0002","j":"0","k":"false","m":"false"},'
    '"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":513}'
)
_POP: Final = (
    '{"code":200070,"extFields":{"clientId":"%s","consumerGroup":"GBenchLite","topic":"BenchLite",'
    '"maxMsgNum":"32","invisibleTime":"60000","pollTime":"%d","bornTime":"%d","attemptId":"%d"},'
    '"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":513}'
)
_ACK: Final = (
    '{"code":200051,"extFields":{"queueId":"0","offset":"%d","topic":"BenchLite","liteTopic":"%s",'
    '"consumerGroup":"GBenchLite","extraInfo":"0 %s 60000 999 0 %s 0 %d"},"flag":0,'
    '"language":"JAVA","opaque":2,"serializeTypeCurrentRPC":"JSON","version":513}'
)
_FIRST_CLIENT: Final = 10
"""Opaques from here on are pops: the number of the client above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of a broker."""

    topics: int = 100_000
    clients: int = 5_000
    sends: int = 20_000
    wakes: int = 5_000
    links: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteFigures:
    """What came of it."""

    topics: int
    clients: int
    before_mib: float
    after_mib: float
    first_us: float
    """The first message of each lite topic, with the writing of its queue's file."""
    subscription_us: float
    send_us: float
    later_us: float
    """Ours: what is written of a message after its send was over."""
    way_us: float
    wake_ms: float
    """Median, from a send to its client."""
    wake_p99_ms: float
    stolen: float

    def __str__(self) -> str:
        """One line."""
        ways = (
            "no ways measured"
            if math.isnan(self.wake_ms)
            else f"whole way {self.way_us:.0f}; "
            f"wake-up p50 {self.wake_ms:.2f} ms, p99 {self.wake_p99_ms:.2f} ms"
        )
        return (
            f"{self.topics:7,} lite topics, {self.clients:5,} clients: memory "
            f"{self.before_mib:,.0f} -> {self.after_mib:,.0f} MiB; processor time, us: "
            f"first message {self.first_us:.1f}, subscription {self.subscription_us:.1f}, "
            f"send {self.send_us:.1f} and {self.later_us:.1f} later, "
            f"{ways}; {self.stolen:.0%} of the machine stolen"
        )


class Link:
    """One connection, as of a proxy."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray()

    def send(self, *frames: bytes) -> None:
        """All of them."""
        self.sock.sendall(b"".join(frames))

    def receive(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """The answers that one read brings: header and body."""
        got = self.sock.recv(1 << 18)
        if not got:
            raise ConnectionResetError("the broker closed the connection")
        self._data += got
        at = 0
        while len(self._data) - at >= 8:
            length, header_length = _HEAD.unpack_from(self._data, at)
            if len(self._data) - at < 4 + length:
                break
            header = json.loads(self._data[at + 8 : at + 8 + header_length])
            yield header, bytes(self._data[at + 8 + header_length : at + 4 + length])
            at += 4 + length
        del self._data[:at]

    def ask_all(self, frames: Sequence[bytes]) -> int:
        """Send them, a window at a time; how many were answered with 0."""
        done = good = 0
        while done < len(frames):
            part = frames[done : done + _WINDOW]
            self.send(*part)
            left = len(part)
            while left:
                for header, _body in self.receive():
                    left -= 1
                    good += header["code"] == 0
            done += len(part)
        return good


def written_up_to(checkpoint: Path) -> int:
    """The place in the log that a checkpoint file promises the queues' files up to."""
    found: int = _OFFSET.unpack_from(checkpoint.read_bytes(), 40)[0]
    return found


def send_frame(number: int) -> bytes:
    """A message to a lite topic."""
    return frame(_SEND % (number % 4, int(time.time() * 1000), lite_name(number)), bytes(128))


def lite_name(number: int) -> str:
    """As long as such names are."""
    return f"session-{number:012}"


class Clients:
    """All clients, each in a pop."""

    def __init__(self, broker: harness.Broker, load: Load) -> None:
        self._name, self._count = broker.name, load.clients
        self.links = [Link(broker.port) for _ in range(min(load.links, load.clients))]
        self._each = load.topics // load.clients
        self._selector = selectors.DefaultSelector()
        for link in self.links:
            self._selector.register(link.sock, selectors.EVENT_READ, link)
        self._attempts = 0

    def subscribe(self) -> None:
        """Each client its part of the lite topics, from their ends on."""
        for at, link in enumerate(self.links):
            numbers = range(at, self._count, len(self.links))
            good = link.ask_all([self._subscription(number) for number in numbers])
            assert good == len(numbers)

    def _subscription(self, number: int) -> bytes:
        first = number * self._each
        change = {
            "action": "PARTIAL_ADD",
            "clientId": f"client-{number}",
            "group": GROUP,
            "topic": PARENT,
            "liteTopicSet": [lite_name(each) for each in range(first, first + self._each)],
            "offsetOption": {"type": "POLICY", "value": 2},
            "version": 0,
        }
        header = (
            '{"code":200071,"extFields":{},"flag":0,"language":"JAVA","opaque":3,'
            '"serializeTypeCurrentRPC":"JSON","version":513}'
        )
        return frame(header, json.dumps({"subscriptionSet": [change]}).encode())

    def wait_all(self) -> None:
        """A pop of each client waits."""
        for number in range(self._count):
            self._link_of(number).send(self._pop(number))

    def _link_of(self, number: int) -> Link:
        return self.links[number % len(self.links)]

    def _pop(self, number: int) -> bytes:
        self._attempts += 1
        now_ms = int(time.time() * 1000)
        return frame(
            _POP % (f"client-{number}", _POLL_MS, now_ms, self._attempts, _FIRST_CLIENT + number)
        )

    def turn(self) -> int:
        """What has come: each message is acknowledged, and its client waits again. How many."""
        done = 0
        for key, _events in self._selector.select(10):
            link: Link = key.data
            for header, body in link.receive():
                if header["opaque"] < _FIRST_CLIENT:
                    assert header["code"] == 0, header
                    continue
                frames = self._acks(header["extFields"], body) if header["code"] == 0 else []
                done += len(frames)
                link.send(*frames, self._pop(header["opaque"] - _FIRST_CLIENT))
        return done

    def _acks(self, fields: dict[str, str], body: bytes) -> list[bytes]:
        found, at = [], 0
        while at < len(body):
            record, size = decode_record(body, at)
            at += size
            ((lmq, offset),) = lmq_places(record.properties).items()
            lite = lmq.rpartition("$")[2]
            found.append(frame(_ACK % (offset, lite, fields["popTime"], self._name, offset)))
        return found

    def close(self) -> None:
        """All connections."""
        for link in self.links:
            link.sock.close()


class Bench:
    """One broker with its lite topics."""

    def __init__(self, broker: harness.Broker, load: Load) -> None:
        self._broker = broker
        self._load = load
        self._random = random.Random(1)
        self._producer = Link(broker.port)

    def measure(self) -> LiteFigures:
        """All of it, in its order."""
        load, stolen = self._load, StolenTime()
        before = self._memory()
        first_us = self._cost(
            lambda: (self._send_all(range(load.topics)), self._wait_written()), load.topics
        )
        clients = Clients(self._broker, load)
        subscription_us = self._cost(clients.subscribe, load.topics)
        clients.wait_all()
        self._ways(clients, load.wakes)
        way_us = self._cost(lambda: self._ways(clients, load.wakes), max(load.wakes, 1))
        waits = sorted(self._wake_ms(clients) for _ in range(min(load.wakes, 300)))
        after = self._memory()
        clients.close()
        self._send_all(self._some(load.sends))
        self._wait_written()
        some = self._some(load.sends)
        send_us = self._cost(lambda: self._send_all(some), load.sends)
        later_us = self._cost(self._wait_written, load.sends)
        return LiteFigures(
            topics=load.topics,
            clients=load.clients,
            before_mib=before / MIB,
            after_mib=after / MIB,
            first_us=first_us,
            subscription_us=subscription_us,
            send_us=send_us,
            later_us=later_us,
            way_us=way_us,
            wake_ms=statistics.median(waits) if waits else math.nan,
            wake_p99_ms=waits[int(0.99 * len(waits))] if waits else math.nan,
            stolen=stolen.share(),
        )

    def _memory(self) -> int:
        quiet_cpu_s(self._broker.process.pid)
        return sum(each.anonymous for each in look_at(self._broker.process.pid))

    def _cost(self, do: Callable[[], object], count: int) -> float:
        """Processor time of the broker, us, for each of `count`."""
        before = quiet_cpu_s(self._broker.process.pid)
        do()
        return 1e6 * (quiet_cpu_s(self._broker.process.pid) - before) / count

    def _some(self, count: int) -> list[int]:
        return self._random.choices(range(self._load.topics), k=count)

    def _send_all(self, numbers: Sequence[int]) -> None:
        """Until the last is dispatched. (Java refuses some on a busy machine.)"""
        for begin in range(0, len(numbers), _WINDOW):
            left = [send_frame(number) for number in numbers[begin : begin + _WINDOW]]
            while left:
                left = left[: len(left) - self._producer.ask_all(left)]
        lmq = to_lmq_name(PARENT, lite_name(numbers[-1]))
        with self._broker.client() as frames:
            wait_until(lambda: frames.offset(30, lmq, 0) > 0, 60)

    def _wait_written(self) -> None:
        """Until our broker's checkpoint says that all queues are written."""
        checkpoint = self._broker.store_dir / "checkpoint"
        if self._broker.kind != "ours":
            return
        with self._broker.client() as frames:
            body = json.loads(frames.call(28, {}).body)
        end = int(body["table"]["commitLogMaxOffset"])
        wait_until(lambda: checkpoint.exists() and written_up_to(checkpoint) >= end, 120)

    def _ways(self, clients: Clients, count: int) -> None:
        under_way = done = 0
        for number in self._some(count):
            self._producer.send(send_frame(number))
            under_way += 1
            while under_way >= _UNDER_WAY:
                got = clients.turn()
                under_way, done = under_way - got, done + got
        while done < count:
            done += clients.turn()
        left = count
        while left:
            left -= sum(1 for _ in self._producer.receive())

    def _wake_ms(self, clients: Clients) -> float:
        began = time.monotonic()
        self._producer.send(*map(send_frame, self._some(1)))
        while not clients.turn():
            pass
        took_ms = 1e3 * (time.monotonic() - began)
        assert len(list(self._producer.receive())) == 1
        return took_ms


def measure(side: str, directory: Path, load: Load) -> LiteFigures:
    """One broker, from its start to its end."""
    conf = {
        "timerWheelEnable": "true",
        "enableLmq": "true",
        "enableMultiDispatch": "true",
        "maxLmqConsumeQueueNum": "200000",
        "maxLiteSubscriptionCount": "200000",
        "mappedFileSizeCommitLog": str(256 * MIB),
    }
    if side == JAVA_5:
        conf["storeType"] = "defaultRocksDB"
    else:
        conf["flushConsumeQueueThoroughInterval"] = str(_WRITE_MS)
    broker = side_broker(side, directory, conf=conf)
    broker.start()
    try:
        with broker.client() as frames:
            make_parent(frames, PARENT)
            make_group(frames, GROUP, PARENT)
        return Bench(broker, load).measure()
    finally:
        broker.end()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Load()
    parser.add_argument("--topics", type=int, default=usual.topics)
    parser.add_argument("--clients", type=int, default=usual.clients)
    parser.add_argument("--sends", type=int, default=usual.sends)
    parser.add_argument(
        "--wakes",
        type=int,
        default=usual.wakes,
        help="messages whose whole way is measured; 0: none",
    )
    parser.add_argument("--links", type=int, default=usual.links)
    parser.add_argument("--only", choices=SIDES, action="append", help="measure this one")
    options = parser.parse_args(arguments)
    allow_descriptors(1_000)
    for side in options.only or SIDES:
        for topics, clients in ((FEW, FEW_CLIENTS), (options.topics, options.clients)):
            load = Load(
                topics=topics,
                clients=clients,
                sends=options.sends,
                wakes=options.wakes,
                links=options.links,
            )
            with tempfile.TemporaryDirectory(prefix="bench-lite-") as root:
                print(f"{side:>8}: {measure(side, Path(root), load)}", flush=True)


if __name__ == "__main__":
    main()
