"""What only a 5.x broker knows, asked of a real broker of ours with frames made by hand.

The answer is the one that 4.9.8 gives, and that a 5.3.3 peer reports or falls back by: code 3.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from remoting.request_code import RequestCode
from tests.broker.compatibility_facts import NOT_ON_VIP, UNUSED
from tests.support.our_broker import OurBroker

WORD = struct.Struct(">I")
BINARY = struct.Struct(">hBhii")
OF_NOBODY = [*sorted(code for codes, _ in UNUSED for code in codes), 0, -1, 999, 32_767, 2**31 - 1]
KNOWN = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
JAVA, V5_3_3, ONEWAY = 0, 479, 2
FIELDS = {"topic": "T", "consumerGroup": "G", "queueId": "-1", "ns": "n"}
BODY = b'{"consumerGroup":"G","messageModel":"CLUSTERING","topic":"T"}'
HEARTBEAT = b'{"clientID":"c","producerDataSet":[{"groupName":"P"}],"consumerDataSet":[]}'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    with OurBroker(tmp_path_factory.mktemp("unknown")).start() as running:
        yield running


class Peer:
    """One connection that sends and takes bytes."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, header: bytes, kind: int, body: bytes = BODY) -> None:
        word = WORD.pack(kind << 24 | len(header))
        self._sock.sendall(WORD.pack(4 + len(header) + len(body)) + word + header + body)

    def take(self) -> tuple[int, bytes, bytes]:
        """Kind of the header, header, body."""
        frame = self._exactly(WORD.unpack(self._exactly(4))[0])
        word = WORD.unpack_from(frame)[0]
        end = 4 + (word & 0xFFFFFF)
        return word >> 24, frame[4:end], frame[end:]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    def ask_json(self, code: int, opaque: int, flag: int = 0, body: bytes = BODY) -> None:
        header = {
            "code": code,
            "extFields": FIELDS,
            "flag": flag,
            "language": "JAVA",
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": V5_3_3,
        }
        self.send(json.dumps(header).encode(), 0, body)

    def take_json(self) -> dict[str, Any]:
        """The header of an answer in JSON; its body is empty."""
        kind, header, body = self.take()
        assert (kind, body) == (0, b"")
        answer: dict[str, Any] = json.loads(header)
        return answer

    def ask_binary(self, code: int, opaque: int) -> None:
        fields = b"".join(
            struct.pack(">h", len(key)) + key.encode() + WORD.pack(len(text)) + text.encode()
            for key, text in FIELDS.items()
        )
        head = BINARY.pack(code, JAVA, V5_3_3, opaque, 0)
        self.send(head + WORD.pack(0) + WORD.pack(len(fields)) + fields, 1)

    def take_binary(self) -> tuple[int, int, int, str, int]:
        """code, opaque, flag, remark, size of the ext fields."""
        kind, header, body = self.take()
        assert (kind, body) == (1, b"")
        code, _language, _version, opaque, flag = BINARY.unpack_from(header)
        start = BINARY.size + 4
        end = start + WORD.unpack_from(header, BINARY.size)[0]
        return code, opaque, flag, header[start:end].decode(), WORD.unpack_from(header, end)[0]


@contextmanager
def connected(broker: OurBroker, listener: str) -> Iterator[Peer]:
    with socket.create_connection(("127.0.0.1", broker.ports[listener]), 30) as sock:
        yield Peer(sock)


def refusal(code: int, opaque: int) -> dict[str, Any]:
    return {
        "code": 3,
        "flag": 1,
        "opaque": opaque,
        "remark": f" request type {code} not supported",
        "serializeTypeCurrentRPC": "JSON",
    }


@pytest.mark.parametrize("listener", ["main", "vip", "namesrv"])
def test_a_json_request_is_told_that_it_is_not_supported(broker: OurBroker, listener: str) -> None:
    with connected(broker, listener) as peer:
        for opaque, code in enumerate(OF_NOBODY, 1):
            peer.ask_json(code, opaque)
            answer = peer.take_json()
            assert answer.pop("language")
            assert answer.pop("version")
            assert answer == refusal(code, opaque)


@pytest.mark.parametrize("listener", ["main", "vip", "namesrv"])
def test_so_is_one_with_a_binary_header(broker: OurBroker, listener: str) -> None:
    with connected(broker, listener) as peer:
        for opaque, code in enumerate(OF_NOBODY, 1):
            if -32_768 <= code <= 32_767:
                peer.ask_binary(code, opaque)
                remark = f" request type {code} not supported"
                assert peer.take_binary() == (3, opaque, 1, remark, 0)


def test_pulls_are_not_for_the_vip_port(broker: OurBroker) -> None:
    with connected(broker, "vip") as peer:
        for opaque, code in enumerate(sorted(NOT_ON_VIP), 1):
            peer.ask_json(code, opaque)
            assert peer.take_json()["remark"] == f" request type {code} not supported"


def test_nobody_answers_a_oneway_one_and_the_connection_lives(broker: OurBroker) -> None:
    with connected(broker, "main") as peer:
        for opaque, code in enumerate([905, *OF_NOBODY], 1):
            peer.ask_json(code, opaque, ONEWAY)
        peer.ask_json(KNOWN, 1_000)
        _, header, body = peer.take()
        assert (json.loads(header)["opaque"], json.loads(header)["code"]) == (1_000, 0)
        assert b"subscriptionGroupTable" in body


def test_a_heartbeat_promises_nothing_of_5_x(broker: OurBroker) -> None:
    """Without IS_SUPPORT_HEART_BEAT_V2 a 5.3.3 client goes on with whole heartbeats."""
    with connected(broker, "main") as peer:
        peer.ask_json(RequestCode.HEART_BEAT, 1, body=HEARTBEAT)
        answer = peer.take_json()
        assert answer["code"] == 0
        assert "IS_SUPPORT_HEART_BEAT_V2" not in answer.get("extFields", {})
