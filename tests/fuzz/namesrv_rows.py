"""Row: every request of a name server."""

from __future__ import annotations

import functools
import socket
from collections.abc import Sequence
from pathlib import Path

from namesrv.namesrv_config import NamesrvConfig
from namesrv.namesrv_controller import NamesrvController
from remoting.remoting_config import RemotingServerConfig
from remoting.request_code import RequestCode as Code
from tests.fuzz.mutation import MOST_COMMANDS, frames_of, mutate_frames
from tests.fuzz.served_connection import (
    ServedConnection,
    call_at_once,
    request,
    serve_at_once,
)
from tests.fuzz.target import Target
from tests.remoting.golden_frames import golden_frames

_ANY_FIELDS = {
    "topic": "GTopic",
    "cluster": "GoldenCluster",
    "clusterName": "GoldenCluster",
    "brokerName": "broker-g",
    "brokerAddr": "127.0.0.1:20911",
    "haServerAddr": "127.0.0.1:20912",
    "brokerId": "0",
    "namespace": "ORDER_TOPIC_CONFIG",
    "key": "k",
    "value": "v",
    "compressed": "false",
    "bodyCrc32": "0",
    "heartbeatTimeoutMillis": "1000",
}
_BYSTANDER = "bystander-5d1f"


class NamesrvWorld:
    """A NamesrvController that never listens; a bystander's broker stays registered."""

    def __init__(self, root: Path) -> None:
        config = NamesrvConfig(
            kv_config_path=str(root / "kv.json"),
            config_store_path=str(root / "namesrv.properties"),
            order_message_enable=True,
        )
        self._listening = socket.socket()
        self._controller = NamesrvController(
            config, RemotingServerConfig(), self._listening, lambda: 5_000
        )
        call_at_once(self._controller._loop)
        self._server = self._controller._server
        serve_at_once(self._server)
        self._bystander = self._connect()
        fields = {**_ANY_FIELDS, "brokerName": _BYSTANDER, "clusterName": _BYSTANDER}
        fields["brokerAddr"] = "127.0.0.1:30911"
        self._bystander.feed(request(Code.REGISTER_BROKER, fields))
        assert [answer.code for answer in self._answers(self._bystander)] == [0]
        self.check()

    def _connect(self) -> ServedConnection:
        return ServedConnection(self._server, self._controller._loop)

    def _answers(self, peer: ServedConnection) -> list[object]:
        self._server.flush()
        return list(peer.answers())

    def run(self, data: bytes) -> None:
        """One connection's bytes: each request is answered, or the connection closed."""
        peer = self._connect()
        commands = frames_of(data)
        try:
            peer.feed(data)
            self._server.flush()
            answers = len(peer.answers())
            if peer.connection.is_open and len(commands) < MOST_COMMANDS:
                asked = [c.code for c in commands if not c.is_response and not c.is_oneway]
                assert answers == len(asked), f"{answers} answers to {asked}"
        finally:
            peer.close()

    def check(self) -> None:
        """The bystander's broker is in the cluster."""
        self._bystander.feed(request(Code.GET_BROKER_CLUSTER_INFO, {}))
        self._server.flush()
        (answer,) = self._bystander.answers()
        assert answer.code == 0, answer

    def close(self) -> None:
        """Nothing was opened but a socket."""
        self._server.shutdown()
        self._controller._loop.close()
        self._listening.close()


@functools.cache
def _seeds() -> Sequence[bytes]:
    codes = {*range(100, 107), *range(205, 220), 224, 304, *range(311, 328), 901, 904}
    found: dict[tuple[int, int], bytes] = {}
    for frame in golden_frames(side="request"):
        command = frame.command()
        if command.code in codes:
            found.setdefault((command.code, command.serialize_type), frame.frame)
    known = {code for code, _ in found}
    made = [request(code, _ANY_FIELDS) for code in Code if code in codes - known]
    settings = request(Code.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true\n")
    return [*found.values(), *made, settings]


ROWS = (
    Target(
        name="namesrv",
        what="a name server's requests: every code, fields and bodies",
        world=NamesrvWorld,
        seeds=_seeds,
        rooms=("remoting", "namesrv"),
        mutate=mutate_frames,
        tokens=lambda: [text.encode() for text in {*_ANY_FIELDS, *_ANY_FIELDS.values()}],
        largest=8192,
        lives=1_000,
    ),
)
