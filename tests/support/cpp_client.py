"""apache/rocketmq-client-cpp as a broker sees it: its frames and bodies, byte for byte.

Built from reading that client's source (src/protocol: RemotingCommand, CommandHeader,
HeartbeatData, LockBatchBody, ConsumerRunningInfo; src/consumer/SubscriptionData; jsoncpp 0.10's
FastWriter), not from a capture. What is peculiar to it: enums as numbers, 64-bit numbers as text,
32-bit ones as numbers even in extFields, empty sets left out, objects as keys of mqTable in
another layout than the rest, a line feed at the end of header and body, and empty ACL fields in
every request.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from remoting.remoting_command import RemotingCommand
from tests.support.frame_decoder import FrameDecoder

VERSION: Final = 333  # V4_6_0
ACTIVELY, PASSIVELY = 0, 1
BROADCASTING, CLUSTERING = 0, 1
FROM_LAST_OFFSET, FROM_FIRST_OFFSET = 0, 4
_ACL_FIELDS: Final = {"AccessKey": "", "OnsChannel": "", "Signature": ""}

HEARTBEAT: Final = (
    b'{"clientID":"127.0.0.1@4711","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,'
    b'"groupName":"CppGroup","messageModel":1,"subscriptionDataSet":[{"codeSet":[0,0],'
    b'"subString":"TagA || TagB","subVersion":"1700000000000","tagsSet":["TagA","TagB"],'
    b'"topic":"CppTopic"},{"subString":"*","subVersion":"1700000000001",'
    b'"topic":"%RETRY%CppGroup"}]}],"producerDataSet":[{"groupName":"CppProducers"}]}\n'
)
"""A push consumer that is a producer, too. codeSet is atoi of the tags: 0 for a word."""

LOCK_BATCH: Final = (
    b'{"clientId":"127.0.0.1@4711","consumerGroup":"CppGroup","mqSet":[{"brokerName":"broker-a",'
    b'"queueId":0,"topic":"CppTopic"},{"brokerName":"broker-a","queueId":1,"topic":"CppTopic"}]}\n'
)

RUNNING_INFO: Final = (
    b'{"mqTable":{{\n   "brokerName" : "broker-a",\n   "queueId" : 1,\n   "topic" : "CppTopic"\n}:'
    b'{\n   "cachedMsgCount" : 0,\n   "cachedMsgMaxOffset" : "0",\n   "cachedMsgMinOffset" : "0",\n'
    b'   "commitOffset" : "7",\n   "droped" : false,\n'
    b'   "lastConsumeTimestamp" : "1700000000002",\n'
    b'   "lastLockTimestamp" : "123",\n   "lastPullTimestamp" : "1700000000003",\n'
    b'   "locked" : true,\n   "transactionMsgCount" : 0,\n   "transactionMsgMaxOffset" : "0",\n'
    b'   "transactionMsgMinOffset" : "0",\n   "tryUnlockTimes" : 0\n}},"jstack":"","properties":{'
    b'"PROP_CLIENT_CORE_VERSION":"","PROP_CLIENT_VERSION":"V4_6_0","PROP_CONSUMEORDERLY":"false",'
    b'"PROP_CONSUMER_START_TIMESTAMP":"1700000000000","PROP_CONSUME_TYPE":"CONSUME_PASSIVELY",'
    b'"PROP_NAMESERVER_ADDR":"127.0.0.1:9876","PROP_THREADPOOL_CORE_SIZE":"1"},'
    b'"subscriptionSet":[{"subString":"*","subVersion":"1700000000000","topic":"CppTopic"}]}\n'
)
"""The body of its answer to 307."""

EMPTY_RUNNING_INFO: Final = b'{"mqTable":},"jstack":"","properties":{}}\n'
"""What it writes while it has no queue: no JSON, Java cannot read it either."""


def fast_json(value: Any) -> bytes:
    """As jsoncpp's FastWriter: sorted keys, no blanks, a line feed."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode() + b"\n"


def frame(
    code: int, fields: Mapping[str, object], body: bytes, *, opaque: int, flag: int = 0
) -> bytes:
    """A frame with its header as RemotingCommand::Encode writes it."""
    header = fast_json(
        {
            "code": code,
            "language": "CPP",
            "version": VERSION,
            "opaque": opaque,
            "flag": flag,
            "remark": "",
            "extFields": {**_ACL_FIELDS, **fields},
        }
    )
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def send_fields(topic: str, queue_id: int, properties: str) -> dict[str, object]:
    """extFields of its send (310)."""
    return {
        "a": "CppProducers",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": "1700000000000",
        "h": 0,
        "i": properties,
        "j": "0",
        "k": "false",
        "l": 0,
        "m": "false",
    }


def pull_fields(
    group: str, topic: str, queue_id: int, offset: int, subscription: str
) -> dict[str, object]:
    """extFields of its pull (11)."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": str(offset),
        "maxMsgNums": 32,
        "sysFlag": 6,
        "commitOffset": "0",
        "subVersion": "1700000000000",
        "suspendTimeoutMillis": "15000",
        "subscription": subscription,
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    code: int
    remark: str | None
    fields: Mapping[str, str]
    body: bytes


class CppClient:
    """One connection, one request at a time. Raises OSError, TimeoutError."""

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._frames = FrameDecoder()
        self._opaques = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def call(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Answer:
        """One request and its answer; what the broker asks meanwhile is passed over."""
        opaque = next(self._opaques)
        self._sock.sendall(frame(code, fields, body, opaque=opaque))
        while True:
            command = self._next()
            if command.is_response and command.opaque == opaque:
                return Answer(command.code, command.remark, command.ext_fields, command.body)

    def await_request(self, codes: Sequence[int]) -> RemotingCommand:
        """The broker's next request among `codes`."""
        while (command := self._next()).is_response or command.code not in codes:
            pass
        return command

    def answer(self, request: RemotingCommand, body: bytes) -> None:
        """Answer a request of the broker: its flag, with the bit of a response."""
        self._sock.sendall(frame(0, {}, body, opaque=request.opaque, flag=request.flag | 1))

    def _next(self) -> RemotingCommand:
        while (command := self._frames.next_command()) is None:
            data = self._sock.recv(1 << 18)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            self._frames.feed(data)
        return command
