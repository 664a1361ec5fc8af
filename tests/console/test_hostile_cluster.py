"""A cluster of brokers each of which answers in another harmful way, over real sockets: every page
is a page or a sentence, soon, and nothing ends."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.testclient import TestClient

from console import poller
from console.questions import POLLED_BYTES
from console.server import Console, ConsoleOptions
from console.site import VIEWS
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.remoting.fake_peer import FakePeer, PeerConnection
from tests.support.deadline import wait_until
from tools.admin_client import NameServers

PAGE_S: Final = 20
"""Until a page must have come, whatever a broker does."""
LONG: Final = "t" * 300
DEEP: Final = b'{"table":' * 100_000
LARGE: Final = b'{"table":{"a":"' + b"x" * POLLED_BYTES + b'"}}'
WRONG: Final = b'{"table":[1],"offsetTable":5,"haConnectionInfo":{"a":1},"master":[]}'
NUMBERS: Final = b'{"table":{"putTps":"1e999 nan","commitLogDiskRatio":"inf","x":"-9e99"}}'
HOUR_MS: Final = 3_600_000

Answer = Callable[[PeerConnection, RemotingCommand], None]


def body(data: bytes) -> Answer:
    """Answers everything with this."""
    return lambda connection, request: connection.send(request.response(0, None, {}, data))


def refuses(connection: PeerConnection, request: RemotingCommand) -> None:
    connection.send(request.response(16, "No permission.\u202e\x1b[2J" + "x" * 5_000))


def closes(connection: PeerConnection, _request: RemotingCommand) -> None:
    connection.close()


def silent(_connection: PeerConnection, _request: RemotingCommand) -> None:
    """Never says anything."""


def drips(connection: PeerConnection, request: RemotingCommand) -> None:
    """One byte a second, to the first request of a connection."""
    if getattr(connection, "drips", False):
        return
    connection.drips = True  # type: ignore[attr-defined]

    def run() -> None:
        for each in encode_command(request.response(0, None, {}, b"{}")):
            connection.send_bytes(bytes([each]))
            if connection.closed.wait(1):
                return

    threading.Thread(target=run, daemon=True).start()


def ahead(connection: PeerConnection, request: RemotingCommand) -> None:
    """Its clock is an hour ahead."""
    tree = {"master": True, "timestamp": time.time_ns() // 1_000_000 + HOUR_MS}
    data = {"table": {"brokerVersionDesc": "V5_3_3", "bootTimestamp": str(tree["timestamp"])}}
    connection.send(
        request.response(0, None, {}, json.dumps(tree if request.code == 907 else data).encode())
    )


BROKERS: Final[dict[str, tuple[Answer, str]]] = {
    "ahead": (ahead, "has a clock that is 1 h 0 min ahead"),
    "closes": (closes, "does not answer: 127.0.0.1"),
    "deep": (body(DEEP), "nested too deep"),
    "drips": (drips, "no response before the deadline"),
    "large": (body(LARGE), f"the console reads at most {POLLED_BYTES:,}"),
    "nothing": (body(b""), "cannot be read"),
    "refuses": (refuses, "refuses the console's questions"),
    "silent": (silent, "no response before the deadline"),
    "wrong": (body(WRONG), "does not answer: "),
}
"""What each broker does, and a part of what the overview says of it."""


def stop(peer: FakePeer) -> None:
    """At the end; it may be dead already."""
    with suppress(OSError):
        peer.stop()


class Cluster:
    """A name server that lists brokers by name, and a console that looks at them."""

    def __init__(self, stack: ExitStack, root: Path, brokers: dict[str, Answer]) -> None:
        self.peers = {name: FakePeer(answer) for name, answer in brokers.items()}
        self.names = FakePeer(self._answer)
        for peer in (*self.peers.values(), self.names):
            stack.callback(stop, peer)
        values = {"resend_audit": root / "resend"}
        options = ConsoleOptions(
            NameServers.parse(self.names.address), root / "audit", values=values
        )
        self.console = Console(options, stack)
        self.console.start(stack)
        self.operator = TestClient(
            self.console.application,
            base_url="http://127.0.0.1:8088",
            raise_server_exceptions=False,
        )
        self.operator.get("/" + self.console.url().partition("8088/")[2])

    def get(self, url: str) -> str:
        """A page, or a sentence; soon."""
        began = time.monotonic()
        answer = self.operator.get(url)
        assert time.monotonic() - began < PAGE_S, url
        assert answer.status_code in (200, 400, 401, 404, 502), (url, answer.text)
        assert "Traceback" not in answer.text
        assert "The console itself failed" not in answer.text
        assert "\x1b" not in answer.text
        return answer.text

    def _answer(self, connection: PeerConnection, request: RemotingCommand) -> None:
        found = {
            name: {"cluster": "C", "brokerName": name, "brokerAddrs": {"0": peer.address}}
            for name, peer in self.peers.items()
        }
        queues = [
            {"brokerName": n, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for n in found
        ]
        trees: dict[int, Any] = {
            RequestCode.GET_BROKER_CLUSTER_INFO: {
                "brokerAddrTable": found,
                "clusterAddrTable": {"C": list(found)},
            },
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {
                "topicList": [LONG, "T", "%RETRY%g", "%DLQ%g"]
            },
            RequestCode.GET_ROUTEINFO_BY_TOPIC: {
                "queueDatas": queues,
                "brokerDatas": list(found.values()),
            },
        }
        connection.send(request.response(0, None, {}, json.dumps(trees[request.code]).encode()))


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(
            stack,
            tmp_path_factory.mktemp("zoo"),
            {name: answer for name, (answer, _words) in BROKERS.items()},
        )


def test_each_broker_that_does_harm_is_a_sentence_on_the_overview(
    zoo: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    def sentences() -> dict[str, str]:
        rows = json.loads(zoo.get("/index.json?table=findings"))
        return {row["what"].partition(":")[0]: row["sentence"] for row in rows}

    def missing() -> dict[str, str]:
        found = sentences()
        return {n: words for n, (_, words) in BROKERS.items() if words not in found.get(n, "")}

    with suppress(AssertionError):
        wait_until(lambda: not missing(), 20)
    assert missing() == {}, sentences()
    wait_until(lambda: all("cannot be read" in why for why in reasons(zoo, "deep")[1:]))
    wait_until(lambda: all("the console reads at most" in why for why in reasons(zoo, "large")))
    page = zoo.get("/")
    assert "No permission.\\u202e\\x1b[2J" in page
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def reasons(zoo: Cluster, name: str) -> list[str]:
    """Why a broker's figures, metrics and HA status are not known."""
    (seen,) = [b for b in zoo.console.watch.snapshot().brokers if b.place.broker_name == name]
    return [told.error or "" for told in (seen.runtime, seen.metrics, seen.ha)]


def urls() -> Iterator[str]:
    for view in VIEWS:
        path = re.sub(r"\{\w+\}", "x", view.path)
        yield path
        for name in (LONG, "T", "g"):
            yield f"{path}?topic={name}&name={name}&group={name}&key=k"
        yield f"{path}?cluster=C&name=deep"
    yield f"/message?topic=T&id={'A' * 32}"
    yield "/dead-letters/export?name=g"
    for action, fields in (
        ("deleteTopic", "topic=T&cluster=C"),
        ("sendMessage", "topic=T&body=x"),
        ("resendDeadLetters", "group=g"),
    ):
        yield f"/do/{action}?{fields}&step=plan"


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_every_page_of_such_a_cluster_comes(zoo: Cluster) -> None:
    for url in urls():
        zoo.get(url)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", ["silent", "refuses", "large"])
def test_every_page_of_a_cluster_of_one_such_broker_comes(name: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path, {name: BROKERS[name][0]})
        for url in urls():
            cluster.get(url)


def test_a_name_server_that_does_harm_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deep JSON, another answer each time, an end of the connection, and then it is dead."""
    monkeypatch.setattr(poller, "NAMES_MS", 500)
    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path, {"b": body(NUMBERS)})
        wait_until(lambda: "b:0" in cluster.get("/"))
        good = cluster.names.answer
        empty = b'{"brokerAddrTable":{},"clusterAddrTable":{},"topicList":[]}'
        answers = [body(DEEP), closes, body(empty), good]

        def flap(connection: PeerConnection, request: RemotingCommand) -> None:
            answers.append(answers.pop(0))
            answers[-1](connection, request)

        cluster.names.answer = body(DEEP)
        connections = list(cluster.names.connections)
        for connection in connections:
            connection.close()
        wait_until(lambda: "nested too deep" in cluster.get("/"))
        assert "b:0" in cluster.get("/"), "what was known stays"
        cluster.names.answer = flap
        for connection in cluster.names.connections:
            if not connection.closed.is_set():
                connection.close()
        before = len(cluster.names.commands)
        wait_until(lambda: len(cluster.names.commands) > before + 4, 20)
        for url in ("/", "/topics", "/replication", "/topic?name=T"):
            cluster.get(url)
        cluster.names.stop()
        wait_until(lambda: "Connection refused" in cluster.get("/"), 20)
        for url in ("/", "/topics", "/replication", "/topic?name=T", "/messages?topic=T"):
            cluster.get(url)
