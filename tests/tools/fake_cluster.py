"""One server that plays the name server and the broker of the golden cluster.

It answers with the frames that the Java servers sent (tests/golden/wire-json); addresses inside
them are replaced by its own. What has no golden frame is answered by a function of the test.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from remoting.remoting_command import RemotingCommand
from remoting.remoting_server import RemotingServer
from remoting.request_code import RequestCode
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_processor import ConnectionLike, Route
from remoting.selector_loop import SelectorLoop
from remoting.server_tls import ServerTls
from tests.remoting.golden_frames import golden_frames

MASTER = "127.0.0.2:20911"
SLAVE = "127.0.0.2:21911"
NAMING_FIELDS = (
    "topic",
    "consumerGroup",
    "queueId",
    "queueOffset",
    "key",
    "offset",
    "statsName",
    "statsKey",
    "b",
    "e",
)
"""Request fields by which a golden exchange is chosen."""

Answer = Callable[[RemotingCommand], RemotingCommand]


class FakeCluster:
    """Answers golden frames; `answers` by code come first, `requests` is everything asked."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answers: dict[int, Answer] = {}
        self.requests: list[RemotingCommand] = []
        self._golden: dict[int, list[tuple[RemotingCommand, RemotingCommand]]] = {}
        requests = {g.path: g for g in golden_frames(side="request", kind="wire-json")}
        for response in golden_frames(side="response", kind="wire-json"):
            request = requests.get(response.path.with_name(response.path.name[:2] + ".req.bin"))
            if request is not None:
                pair = (request.command(), response.command())
                self._golden.setdefault(response.code, []).append(pair)

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        self.requests.append(request)
        if request.code in self.answers:
            return self.answers[request.code](request)
        if request.ext_fields.get("topic", "").startswith("%RETRY%") and request.code == 105:
            request.ext_fields["topic"] = "GTopic"  # every broker that has one has the other
        for asked, answer in reversed(self._golden.get(request.code, [])):
            if _names(asked) == _names(request):
                return self._replay(request, answer)
        return request.response(17 if request.code == 105 else 1, "no golden frame for this")

    def _replay(self, request: RemotingCommand, golden: RemotingCommand) -> RemotingCommand:
        body = golden.body
        for address in (MASTER, SLAVE):
            body = body.replace(address.encode(), self.address.encode())
        return request.response(golden.code, golden.remark, golden.ext_fields, body)

    def always(
        self,
        code: RequestCode,
        status: int = 0,
        remark: str | None = None,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        """Answer every request of one code with this."""
        self.answers[code] = lambda request: request.response(status, remark, fields, body)

    def asked(self, code: RequestCode) -> list[RemotingCommand]:
        """The requests of one code."""
        return [request for request in self.requests if request.code == code]


def _names(command: RemotingCommand) -> dict[str, str]:
    return {key: command.ext_fields[key] for key in NAMING_FIELDS if key in command.ext_fields}


@contextmanager
def running_cluster(tls: ServerTls | None = None) -> Iterator[FakeCluster]:
    """A fake cluster on a free port of loopback, with TLS if wanted."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        cluster = FakeCluster(f"127.0.0.1:{listening.getsockname()[1]}")
        loop = SelectorLoop("fake-cluster")
        route = Route(cluster)
        server = RemotingServer(
            loop, RequestDispatcher({int(code): route for code in RequestCode}), tls=tls
        )
        server.add_listener(listening)
        server.start()
        loop.start()
        try:
            yield cluster
        finally:
            loop.stop()
            server.shutdown()
            loop.close()
