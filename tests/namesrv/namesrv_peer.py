"""A broker or client of the name server's tests: one blocking socket, real frames."""

from __future__ import annotations

import socket
import zlib
from types import TracebackType
from typing import Self

from remoting.body.data_version import DataVersion
from remoting.body.register_broker import RegisterBrokerBody, body_crc32
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from tests.support.frame_decoder import FrameDecoder

DEADLINE_S = 60.0


class Peer:
    """Context manager over one connection."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self._decoder = FrameDecoder()
        self.local = "{}:{}".format(*self._sock.getsockname())
        """This end, "ip:port"."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._sock.close()

    def send(self, request: RemotingCommand) -> None:
        self._sock.sendall(encode_command(request))

    def ask(self, request: RemotingCommand) -> RemotingCommand:
        """The next answer; raises EOFError when the name server closes."""
        self.send(request)
        while (answer := self._decoder.next_command()) is None:
            data = self._sock.recv(65536)
            if not data:
                raise EOFError
            self._decoder.feed(data)
        assert answer.opaque == request.opaque
        return answer

    def wait_for_close(self) -> None:
        """Return when the name server has closed; fail after the deadline."""
        assert self._sock.recv(1) == b""


def address_of(name: str, broker_id: int = 0, *, port: int = 10911) -> str:
    """Where that broker says it is: an address of this machine, one for each name and id."""
    return f"127.1.{zlib.crc32(name.encode()) % 250}.{1 + broker_id}:{port}"


def registration(
    name: str, broker_id: int = 0, topics: tuple[str, ...] = ("T",), *, oneway: bool = False
) -> RemotingCommand:
    """REGISTER_BROKER as a 4.9.8 broker sends it."""
    wrapper = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=1, timestamp=1),
        topic_config_table={topic: TopicConfig(topic_name=topic) for topic in topics},
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
    fields = {
        "brokerName": name,
        "brokerAddr": address_of(name, broker_id),
        "clusterName": "C",
        "haServerAddr": address_of(name, broker_id, port=10912),
        "brokerId": str(broker_id),
        "compressed": "false",
        "bodyCrc32": str(body_crc32(body)),
    }
    return RemotingCommand.request(103, fields, body, oneway=oneway)


def route(topic: str = "T") -> RemotingCommand:
    """GET_ROUTEINFO_BY_TOPIC."""
    return RemotingCommand.request(105, {"topic": topic})
