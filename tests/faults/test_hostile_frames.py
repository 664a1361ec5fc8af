"""Frames that are cut, mixed, too large or false, against a real broker and its name server.

tests/broker/test_bad_input.py has what each kind of bad request is answered; here: how frames come
makes no difference, no connection gets another's bytes, and nothing is inflated.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from remoting.errors import FrameError
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.response_code import ResponseCode
from store.message import Message
from tests.bench.measuring import MemoryWatch, rss_anon
from tests.support.deadline import wait_until
from tests.support.frame_decoder import FrameDecoder
from tests.support.our_broker import FrameClient, OurBroker, drain, pull_fields

pytestmark = [pytest.mark.slow]

TOPIC = "Frames"
BATCH, MAX_OFFSET, PULL, ROUTE = 320, 30, 11, 105


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    made = OurBroker(tmp_path_factory.mktemp("frames"), mappedFileSizeCommitLog=16 << 20)
    with made.start(), made.client() as client:
        assert client.send(TOPIC, 0, b"first").code == ResponseCode.SUCCESS
        wait_until(lambda: client.offset(MAX_OFFSET, TOPIC, 0) == 1)
        yield made


# -- how frames come -----------------------------------------------------------------------------

PULL_FIELDS = pull_fields(TOPIC, 0, 0)
REQUESTS = {
    "pull": ("main", RemotingCommand(PULL, ext_fields=dict(PULL_FIELDS))),
    "offset": ("main", RemotingCommand(MAX_OFFSET, ext_fields={"topic": TOPIC, "queueId": "0"})),
    "refused": ("main", RemotingCommand(MAX_OFFSET, ext_fields={"topic": "None", "queueId": "x"})),
    "heartbeat": ("main", RemotingCommand(34, body=b'{"clientID":"c","consumerDataSet":[]}')),
    "unknown code": ("main", RemotingCommand(9_999)),
    "route": ("namesrv", RemotingCommand(ROUTE, ext_fields={"topic": TOPIC})),
}


class Wire:
    """A connection on which single writes can be seen to have been read."""

    def __init__(self, broker: OurBroker, listener: str) -> None:
        address = ("127.0.0.1", broker.ports[listener])
        self._sock = socket.create_connection(address, 30)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._other = FrameClient(address)
        self._probe = ROUTE if listener == "namesrv" else MAX_OFFSET

    def close(self) -> None:
        self._sock.close()
        self._other.close()

    def write(self, data: bytes) -> None:
        """Written, and read by the other side: its loop has answered another connection since."""
        self._sock.sendall(data)
        self._other.call(self._probe, {"topic": TOPIC, "queueId": 0})

    def read(self, count: int) -> list[bytes]:
        """The next frames, as they came."""
        frames = []
        for _ in range(count):
            head = self._read_exactly(4)
            frames.append(head + self._read_exactly(int.from_bytes(head, "big")))
        return frames

    def _read_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += (piece := self._sock.recv(size - len(data)))
            assert piece, "closed"
        return data


@pytest.mark.fault(37)
@pytest.mark.parametrize("serialize", list(SerializeType))
@pytest.mark.parametrize("name", REQUESTS)
def test_however_a_frame_comes_the_answer_is_the_same(
    broker: OurBroker, name: str, serialize: SerializeType
) -> None:
    listener, request = REQUESTS[name]
    request.serialize_type = serialize
    frame = encode_command(request)
    wire = Wire(broker, listener)
    try:
        wire.write(frame)
        (expected,) = wire.read(1)
        for cut in range(1, len(frame)):
            wire.write(frame[:cut])
            wire.write(frame[cut:])
            assert wire.read(1) == [expected], cut
        for at in range(len(frame)):
            wire.write(frame[at : at + 1])
        assert wire.read(1) == [expected]
        wire.write(frame * 1_000)
        assert set(wire.read(1_000)) == {expected}
    finally:
        wire.close()


@pytest.mark.fault(42)
@pytest.mark.parametrize("connections", [20, pytest.param(300, marks=pytest.mark.long)])
def test_no_connection_gets_into_another_s_message(broker: OurBroker, connections: int) -> None:
    """Large and small frames of all connections come in random pieces, in turn."""
    topic = f"Mixed{connections}"
    chance = random.Random(connections)
    expected: set[bytes] = set()
    streams: dict[int, bytes] = {}
    for number in range(connections):
        stream = b""
        for message in range(6):
            size = chance.choice((10, 300, 5_000, 70_000, 200_000))
            marker = b"<%03d.%d>" % (number, message)
            body = (marker * (size // len(marker) + 1))[:size]
            expected.add(body)
            stream += encode_command(send_of(topic, number % 4, body))
        streams[number] = stream
    sockets = {
        number: socket.create_connection(("127.0.0.1", broker.ports["main"]), 30)
        for number in streams
    }
    left = dict(streams)
    while left:
        number = chance.choice(list(left))
        size = chance.choice((1, 7, 300, 4_096, 60_000))
        sockets[number].sendall(left[number][:size])
        left[number] = left[number][size:]
        if not left[number]:
            del left[number]
    for sock in sockets.values():
        decoder = FrameDecoder()
        codes: list[int] = []
        while len(codes) < 6:
            if (answer := decoder.next_command()) is None:
                decoder.feed(sock.recv(1 << 16))
            else:
                codes.append(answer.code)
        assert set(codes) == {ResponseCode.SUCCESS}
        sock.close()
    with broker.client() as client:
        stored = [m.body for q in range(4) for m in _all_of(client, topic, q, connections)]
    assert len(stored) == 6 * connections
    assert set(stored) == expected


def _all_of(client: FrameClient, topic: str, queue_id: int, connections: int) -> list[Message]:
    count = 6 * sum(number % 4 == queue_id for number in range(connections))
    wait_until(lambda: client.offset(MAX_OFFSET, topic, queue_id) == count, 20)
    return drain(client, topic, queue_id)


def send_of(
    topic: str, queue_id: int, body: bytes, *, sys_flag: int = 0, batch: bool = False
) -> RemotingCommand:
    fields = {
        "a": "faults",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": str(sys_flag),
        "g": str(int(time.time() * 1000)),
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "l": "16",
        "m": "true" if batch else "false",
    }
    return RemotingCommand.request(BATCH if batch else 310, fields, body)


# -- headers without bounds ----------------------------------------------------------------------

LIMIT_S = 0.05


def _fields(count: int) -> bytes:
    return b'{"code":35,"extFields":{' + b",".join(b'"k%d":"v"' % n for n in range(count)) + b"}}"


BOMBS = {
    "depth": b'{"code":35,"extFields":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "objects in objects": b'{"z":' * 100_000 + b"1" + b"}" * 100_000,
    "keys": _fields(100_000),
    "keys at the limit of a header": _fields(70_000),
    "a number": b'{"code":' + b"9" * 1_000_000 + b"}",
    "a number in a field": b'{"code":35,"extFields":{"a":' + b"9" * 1_000_000 + b"}}",
    "a fraction": b'{"code":35,"opaque":0.' + b"9" * 1_000_000 + b"}",
    "the same key": b'{"code":35,' + b'"code":35,' * 50_000 + b'"flag":0}',
    "not a number": b'{"code":NaN,"flag":Infinity,"opaque":-Infinity}',
    "half a surrogate pair": b'{"code":35,"remark":"\\ud800","extFields":{"\\udfff":"\\ud800x"}}',
    "surrogates everywhere": b'{"code":35,"remark":"' + b"\\ud800" * 100_000 + b'"}',
    "not UTF-8": b'{"code":35,"remark":"' + b"\xff\xfe\xc0\x80" * 100_000 + b'"}',
    "escapes": b'{"code":35,"remark":"' + b"\\" * 900_000 + b'"}',
    "loose keys": b"{code:35," + b"a:1," * 200_000 + b"b:2}",
    "single quotes": b"{'code':35,'remark':'" + b"x'" * 400_000 + b"}",
    "white space": b'{"code":35' + b" " * 900_000 + b"}",
    "commas": b"{" + b"," * 900_000 + b"}",
}


@pytest.mark.fault(38)
@pytest.mark.parametrize("name", BOMBS)
def test_a_header_without_bounds_costs_little(broker: OurBroker, name: str) -> None:
    """An answer or a closed connection; the processor time of one frame by the decoder alone."""
    header = BOMBS[name]
    frame = struct.pack(">iI", 4 + len(header), len(header)) + header
    took_s = min(_decoding_s(frame) for _ in range(5))
    assert took_s <= LIMIT_S
    with broker.client() as client:
        with socket.create_connection(("127.0.0.1", broker.ports["main"]), 30) as sock:
            sock.sendall(frame)
            with contextlib.suppress(ConnectionResetError):
                sock.recv(1)
        assert client.send(TOPIC, 1, b"others are served").code == ResponseCode.SUCCESS
    assert "RecursionError" not in broker.log("remoting")


def _decoding_s(frame: bytes) -> float:
    decoder = FrameDecoder()
    began = time.thread_time()
    try:
        decoder.feed(frame)
        decoder.next_command()
    except FrameError:
        pass
    return time.thread_time() - began


# -- bodies that lie -----------------------------------------------------------------------------


def item(body: bytes, *, size: int | None = None, body_size: int | None = None) -> bytes:
    """A message of a batch: its size, magic, CRC, flag, body size, body, properties."""
    whole = 22 + len(body)
    return (
        struct.pack(
            ">iiiii",
            whole if size is None else size,
            0,
            0,
            0,
            len(body) if body_size is None else body_size,
        )
        + body
        + b"\0\0"
    )


LIES = {
    "size beyond the body": item(b"two", size=1_000),
    "size 0": item(b"two", size=0),
    "size negative": item(b"two", size=-1),
    "size 2 GiB": item(b"two", size=2**31 - 1),
    "body beyond the item": item(b"two", body_size=1_000),
    "body negative": item(b"two", body_size=-1),
    "body 2 GiB": item(b"two", body_size=2**31 - 1),
    "cut off": item(b"two")[:-3],
    "a byte too many": item(b"two") + b"\0",
}


@pytest.mark.fault(40)
@pytest.mark.parametrize("name", LIES)
def test_a_batch_is_stored_whole_or_not_at_all(broker: OurBroker, name: str) -> None:
    with broker.client() as client:
        end = client.offset(MAX_OFFSET, TOPIC, 2)
        request = send_of(TOPIC, 2, item(b"one") + LIES[name] + item(b"three"), batch=True)
        answer = client.call(BATCH, request.ext_fields, request.body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer.remark
        whole = send_of(TOPIC, 2, item(b"one") + item(b"two"), batch=True)
        assert client.call(BATCH, whole.ext_fields, whole.body).code == ResponseCode.SUCCESS
        wait_until(lambda: client.offset(MAX_OFFSET, TOPIC, 2) == end + 2)
        bodies = [message.body for message in client.pull(TOPIC, 2, end).messages]
        assert bodies == [b"one", b"two"]


@pytest.mark.fault(40)
def test_the_broker_inflates_no_body(broker: OurBroker, proved: Callable[[str], None]) -> None:
    """256 MiB of zeros, four times, compressed as its flags say."""
    deflate = zlib.compressobj(1)
    bomb = b"".join(deflate.compress(bytes(1 << 20)) for _ in range(256)) + deflate.flush()
    before = rss_anon(broker.pid)
    with MemoryWatch(broker.pid) as memory, broker.client() as client:
        for _ in range(4):
            request = send_of(TOPIC, 3, bomb, sys_flag=1)
            answer = client.call(310, request.ext_fields, request.body)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        wait_until(lambda: client.offset(MAX_OFFSET, TOPIC, 3) == 4)
        assert {message.body for message in drain(client, TOPIC, 3)} == {bomb}
    more = memory.highest - before
    assert more < 100_000_000
    proved(f"bodies of 256 MiB, compressed to {len(bomb)} bytes: {more} bytes of memory more")


# -- properties ----------------------------------------------------------------------------------

PROPERTIES = [
    "",
    "\x01",
    "\x02",
    "\x01\x02\x01\x02",
    "\x02\x02K\x01v\x02",
    "K\x01v\x01w\x02",
    "K\x01\x02",
    "UNIQ_KEY\x01\x02",
    "K\x01" + "v" * 32_000,
]


@pytest.mark.fault(39)
def test_separators_in_properties_stay_in_their_message(broker: OurBroker) -> None:
    """Whatever stands in the properties, the messages before and behind it are what was sent."""
    topic = "Separators"
    with broker.client() as client:
        for number, properties in enumerate(PROPERTIES):
            request = send_of(topic, 0, b"%d" % number)
            fields = request.ext_fields | {"i": properties}
            assert client.call(310, fields, request.body).code == ResponseCode.SUCCESS
        wait_until(lambda: client.offset(MAX_OFFSET, topic, 0) == len(PROPERTIES))
        found = drain(client, topic, 0)
    assert [message.body for message in found] == [b"%d" % n for n in range(len(PROPERTIES))]
    by_body = defaultdict(str, {m.body: m.properties.decode() for m in found})
    for number, properties in enumerate(PROPERTIES):
        assert by_body[b"%d" % number].startswith(properties)
