"""FrameClient: a blocking connection to a broker, requests in flight in the caller's order.

One thread. Every wait has a limit: what does not answer is an error, as it is for a client.

Tested by tests/tools/chaos/test_mixed_load.py.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from remoting.frame import split_frames
from remoting.remoting_codec import decode_command, encode_command
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.signature import RequestSigner
from tools.message_decoder import MessageExt, decode_messages

_RECEIVE: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Sent:
    """The answer to a send."""

    code: int
    queue_id: int
    queue_offset: int
    phy_offset: int = -1
    """By the offset id."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to a pull."""

    code: int
    next_offset: int
    messages: list[MessageExt]


class FrameClient:
    """See the module. Raises OSError (TimeoutError among them)."""

    def __init__(
        self,
        address: tuple[str, int],
        timeout_s: float,
        source: str | None = None,
        signer: RequestSigner | None = None,
    ) -> None:
        """source: the local IP address. signer: whose account signs each request."""
        self.peer = address
        self._signer = signer
        local = None if source is None else (source, 0)
        self._sock = socket.create_connection(address, timeout_s, local)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timeout_s = timeout_s
        self._buffer = bytearray()
        self._answers: dict[int, RemotingCommand] = {}
        self.requests: list[RemotingCommand] = []
        """What the broker asked, in the order of coming; the caller takes them out."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._sock.close()

    def post(self, *commands: RemotingCommand) -> None:
        """Send them in one write, do not wait."""
        if self._signer is not None:
            for command in commands:
                self._signer.sign(command)
        self._sock.sendall(b"".join(map(encode_command, commands)))

    def take(self, opaque: int, timeout_s: float | None = None) -> RemotingCommand:
        """The answer to this request. timeout_s: another one than the connection's."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while opaque not in self._answers:
            self._sock.settimeout(max(deadline - time.monotonic(), 0.001))
            data = self._sock.recv(_RECEIVE)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            self._buffer += data
            view = memoryview(bytes(self._buffer))
            used = split_frames(view, len(view), FrameClient._take_frame, self)
            del self._buffer[:used]
        return self._answers.pop(opaque)

    def _take_frame(self, kind: int, header: bytes, body: memoryview) -> bool:
        command = decode_command(header, kind, bytes(body))
        if command.is_response:
            self._answers[command.opaque] = command
        else:
            self.requests.append(command)
        return True

    def call(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> RemotingCommand:
        """One request and its answer."""
        texts = {key: str(value) for key, value in fields.items()}
        return self.ask(RemotingCommand.request(code, texts, body))

    def ask(self, request: RemotingCommand) -> RemotingCommand:
        """The answer to a request that is made already."""
        self.post(request)
        return self.take(request.opaque)

    def pull(self, topic: str, queue_id: int, offset: int, wait_ms: int = 0) -> Pulled:
        """Up to 32 messages from `offset` on."""
        answer = self.ask(pull_request(topic, queue_id, offset, wait_ms))
        following = int(answer.ext_fields.get("nextBeginOffset", offset))
        messages = list(decode_messages(answer.body)) if answer.code == 0 else []
        return Pulled(answer.code, following, messages)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue's end."""
        answer = self.call(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id})
        return int(answer.ext_fields.get("offset", -1)) if answer.code == 0 else -1


def pull_request(
    topic: str, queue_id: int, offset: int, wait_ms: int = 0, *, group: str = "mqchaos"
) -> RemotingCommand:
    """11, for up to 32 messages; wait_ms: held so long at the queue's end."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4 | (2 if wait_ms else 0),
        "commitOffset": 0,
        "suspendTimeoutMillis": wait_ms,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    texts = {key: str(value) for key, value in fields.items()}
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, texts)


def send_request(
    topic: str, queue_id: int, body: bytes, properties: str = "", sys_flag: int = 0
) -> RemotingCommand:
    """310, as RocketMQ's clients send it."""
    fields = {
        "a": "mqchaos",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": str(sys_flag),
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "l": "16",
        "m": "false",
    }
    return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, fields, body)


def sent_of(answer: RemotingCommand) -> Sent:
    """What an answer to send_request says."""
    fields = answer.ext_fields
    message_id = fields.get("msgId", "")
    return Sent(
        answer.code,
        int(fields.get("queueId", -1)),
        int(fields.get("queueOffset", -1)),
        int(message_id[-16:], 16) if message_id else -1,
    )
