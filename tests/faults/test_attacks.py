"""A broker under attack, before any login: its memory stays small and a good client is served.

Each attack runs beside a client that sends one message after the other and counts for itself. What
is asserted: every send succeeds, and no process of the broker holds more than 400 MB. How much
slower the client is, is printed ("proved"): it depends on the machine.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import statistics
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from remoting.frame import pack_head
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from tests.bench.measuring import MemoryWatch
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker, pull_fields
from tests.support.program import own_interpreters

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MOST_BYTES: Final = 400_000_000
"""Of all processes of the broker together, the name server among them."""
TOPIC: Final = "Attacked"
BOMB: Final = struct.pack(">i", 16_777_212)
"""The length of the largest frame."""

PULL: Final = pull_fields(TOPIC, 0, 0)

Attack = Callable[[OurBroker], "contextlib.AbstractContextManager[None]"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    made = OurBroker(tmp_path_factory.mktemp("attacked"))
    with own_interpreters():
        made.start()
    with made, made.client() as client:
        # Something to pull: 64 messages of 64 KiB.
        for _ in range(64):
            assert client.send(TOPIC, 0, bytes(1 << 16)).code == 0
        yield made


class GoodClient:
    """One send after the other, on one connection, in a thread of its own."""

    def __init__(self, broker: OurBroker) -> None:
        self._broker = broker
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.latencies_ms: list[float] = []
        self.failures: list[str] = []

    def __enter__(self) -> GoodClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            with self._broker.client() as client:
                while not self._done.wait(0.002):
                    began = time.perf_counter()
                    sent = client.send(TOPIC, 1, b"good")
                    self.latencies_ms.append((time.perf_counter() - began) * 1000)
                    if sent.code:
                        self.failures.append(f"{sent.code} {sent.remark}")
        except OSError as error:
            self.failures.append(str(error))

    def at(self, percent: int) -> float:
        """A percentile of its latencies, in ms."""
        return statistics.quantiles(self.latencies_ms, n=100)[percent - 1]


def repeatedly(step: Callable[[], None], rate: float) -> contextlib.AbstractContextManager[None]:
    """Call `step` `rate` times a second, in a thread of its own."""

    @contextlib.contextmanager
    def running() -> Iterator[None]:
        done = threading.Event()

        def run() -> None:
            while not done.wait(1 / rate):
                with contextlib.suppress(OSError):
                    step()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(30)

    return running()


@contextlib.contextmanager
def held(address: tuple[str, int], count: int, data: bytes) -> Iterator[None]:
    """So many connections that have sent `data` and nothing more."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection(address, timeout=30))
            with contextlib.suppress(OSError):
                sock.sendall(data)
        yield


def main_port(broker: OurBroker) -> tuple[str, int]:
    return ("127.0.0.1", broker.ports["main"])


def lengths_at_the_broker(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """200 connections that announce 16 MiB: 3.2 GB where the announced size is allocated."""
    return held(main_port(broker), 200, BOMB)


def lengths_at_the_name_server(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    return held(("127.0.0.1", broker.ports["namesrv"]), 200, BOMB)


def lengths_and_away(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """139 connections a second, each with a length and gone."""

    def once() -> None:
        with socket.create_connection(main_port(broker), timeout=5) as sock:
            sock.sendall(BOMB)

    return repeatedly(once, 139)


def halves_of_frames(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """100 connections with 2 MiB of 16 MiB: 200 MB, of which the broker holds 128 MiB."""
    return held(main_port(broker), 100, BOMB + bytes(2 << 20))


def headers_cut_short(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """Slow loris: many connections with half a header, as many as descriptors allow."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    return held(main_port(broker), min(2_000, soft - used - 100), pack_head(0, 200, 0) + b"{")


def nested_headers(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """JSON of depth 100,000, again and again."""
    header = b'{"code":11,"extFields":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    frame = pack_head(0, len(header), 0) + header

    def once() -> None:
        with socket.create_connection(main_port(broker), timeout=5) as sock:
            sock.sendall(frame)
            sock.recv(1)

    return repeatedly(once, 20)


def answers_unread(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """30 connections ask for 2,000 times 2 MiB each and read nothing."""
    return held(main_port(broker), 30, encode_command(RemotingCommand.request(11, PULL)) * 500)


def tables_unread(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """30 connections ask for the topic table 500 times each and read nothing: pool threads answer,
    later than the loop takes the requests."""
    return held(main_port(broker), 30, encode_command(RemotingCommand.request(21, {})) * 500)


def groups_in_a_heartbeat(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """30,000 new groups in one heartbeat, twice a second."""
    consumer = (
        '{"groupName":"g%d","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        '"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[]}'
    )
    consumers = ",".join(consumer % number for number in range(30_000))
    body = f'{{"clientID":"many","consumerDataSet":[{consumers}],"producerDataSet":[]}}'.encode()
    frame = encode_command(RemotingCommand.request(34, {}, body))

    def once() -> None:
        with socket.create_connection(main_port(broker), timeout=5) as sock:
            sock.sendall(frame)
            sock.recv(1)

    return repeatedly(once, 2)


def fields_without_end(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """A header of 14 MiB with a million fields, three times a second."""
    fields = b",".join(b'"k%d":"v"' % number for number in range(1_000_000))
    header = b'{"code":35,"extFields":{' + fields + b"}}"
    return repeatedly(one_frame(broker, pack_head(0, len(header), 0) + header), 3)


def locks_of_megabytes(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """100,000 queues to lock in one request, which the loop parses, three times a second."""
    queue = '{"brokerName":"b","queueId":%d,"topic":"t"}'
    queues = ",".join(queue % number for number in range(100_000))
    body = f'{{"clientId":"c","consumerGroup":"g","mqSet":[{queues}]}}'.encode()
    return repeatedly(one_frame(broker, encode_command(RemotingCommand.request(41, {}, body))), 3)


def pulls_without_end(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """3,000 pulls on each of two connections wait for a tag that the client's queue never has: each
    of them is run again for each of its messages."""
    fields = PULL | {"queueId": "1", "queueOffset": "999999", "sysFlag": "6"}
    fields |= {"subscription": "never", "suspendTimeoutMillis": "100000"}
    with broker.client() as client:
        end = client.call(30, {"topic": TOPIC, "queueId": "1"}).ext_fields["offset"]
    pull = encode_command(RemotingCommand.request(11, fields | {"queueOffset": end}))
    return held(main_port(broker), 2, pull * 3_000)


def registrations_inflated(broker: OurBroker) -> contextlib.AbstractContextManager[None]:
    """A registration of 250 KB with 3 million topics, once a second."""
    version = b'{"counter":1,"timestamp":1}'
    topic = b"%07d 4 4 6 SINGLE_TAG"
    blocks = b"".join(struct.pack(">i", 24) + (topic % number)[:24] for number in range(20_000))
    plain = struct.pack(">i", len(version)) + version + struct.pack(">i", 3_000_000)
    deflate = zlib.compressobj(9)
    body = deflate.compress(plain) + b"".join(deflate.compress(blocks) for _ in range(150))
    body += deflate.flush()
    fields = {
        "brokerName": "attacker",
        "brokerAddr": "127.0.0.1:1",
        "clusterName": "c",
        "haServerAddr": "127.0.0.1:2",
        "brokerId": "0",
        "compressed": "true",
    }
    frame = encode_command(RemotingCommand.request(103, fields, body))
    return repeatedly(one_frame(broker, frame, "namesrv"), 1)


def one_frame(broker: OurBroker, frame: bytes, port: str = "main") -> Callable[[], None]:
    """A step: connect, send the frame, wait for an answer or the end."""

    def once() -> None:
        with socket.create_connection(("127.0.0.1", broker.ports[port]), timeout=5) as sock:
            sock.sendall(frame)
            sock.recv(1)

    return once


ATTACKS: Final[list[Attack]] = [
    lengths_at_the_broker,
    lengths_at_the_name_server,
    lengths_and_away,
    halves_of_frames,
    headers_cut_short,
    nested_headers,
    answers_unread,
    tables_unread,
    groups_in_a_heartbeat,
    fields_without_end,
    locks_of_megabytes,
    pulls_without_end,
    registrations_inflated,
]


@pytest.fixture(scope="module")
def alone(broker: OurBroker) -> GoodClient:
    """The client without an attack."""
    with GoodClient(broker) as client:
        time.sleep(1.5)
    assert client.failures == []
    return client


@pytest.mark.fault(35)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_memory_stays_small_and_a_client_is_served(
    broker: OurBroker, alone: GoodClient, attack: Attack, proved: Callable[[str], None]
) -> None:
    with MemoryWatch(broker.pid) as memory, attack(broker), GoodClient(broker) as during:
        time.sleep(2.0)
        wait_until(lambda: len(during.latencies_ms) >= 20 or bool(during.failures), timeout_s=60)
    assert during.failures == []
    assert memory.highest <= MOST_BYTES
    proved(
        f"{attack.__name__.replace('_', ' ')}: p50 {during.at(50) / alone.at(50):.1f} and p99 "
        f"{during.at(99) / alone.at(99):.1f} times the client's alone, "
        f"{memory.highest >> 20} MiB"
    )


def test_the_store_is_whole_afterwards(tmp_path: Path) -> None:
    """What was half sent is nowhere, and the broker stops as always."""
    with OurBroker(tmp_path).start() as broker, broker.client() as client:
        assert client.send(TOPIC, 0, b"before").code == 0
        with halves_of_frames(broker):
            assert client.send(TOPIC, 0, b"during").code == 0
        bodies = [message.body for message in client.pull(TOPIC, 0, 0).messages]
        assert bodies == [b"before", b"during"]
        assert broker.terminate() == 0
        assert broker.check().errors == []
