"""The console before a Java 5.3.3 broker: every page answers, in words where that broker does not
tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from console.server import Console, ConsoleOptions
from console.site import VIEWS
from tests.interop import harness
from tests.interop.processes import wait_until
from tools.admin_client import NameServers

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(180),
]
TOPIC = "ConsoleOfJava"
QUERIES = {
    "/replication/group": "cluster=DefaultCluster&name=broker-a",
    "/replication/history": "cluster=DefaultCluster&name=broker-a&span=hour",
    "/topic": f"name={TOPIC}",
    "/messages": f"topic={TOPIC}",
    "/message": f"topic={TOPIC}&broker=broker-a&queue=0&offset=0",
    "/search": "q=Console",
}
SAID = {
    "/": "broker-a",
    "/replication": "No master has a replica.",
    "/topics": TOPIC,
    "/topic": "read and write",
    "/messages": "told by Java",
    "/message": "told by Java",
    "/settings": "brokerName",
    "/sends": "does not tell",
    "/scrub": "does not tell",
    "/verdicts": "--reports",
}
"""What a page must say."""


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    root = tmp_path_factory.mktemp("console-java")
    names = harness.name_server("ours", root / "names").start()
    broker = harness.broker(harness.JAVA_5, root / "broker", names.address)
    try:
        with harness.served(broker) as client, ExitStack() as stack:
            assert client.send(TOPIC, 0, b"told by Java").code == 0
            yield _operator(root, names.address, stack)
    finally:
        names.stop()


def _operator(root: Path, address: str, stack: ExitStack) -> TestClient:
    options = ConsoleOptions(NameServers.parse(address), root / "audit.log")
    console = Console(options, stack)
    console.start(stack)
    operator = TestClient(console.application, base_url="http://127.0.0.1:8088")
    assert operator.get(console.url().partition(":8088")[2]).status_code == 200
    wait_until(lambda: _is_known(console), "the broker's answers")
    return operator


def _is_known(console: Console) -> bool:
    snapshot = console.watch.snapshot()
    masters = snapshot.masters()
    topics = snapshot.topics.value or ()
    return TOPIC in topics and any(one.runtime.value and one.ha.at_ms for one in masters)


@pytest.mark.parametrize(
    "path", [view.path for view in VIEWS if view.template and "{" not in view.path]
)
def test_a_page(operator: TestClient, path: str) -> None:
    query = QUERIES.get(path, "")
    text = ""

    def says() -> bool:
        nonlocal text
        answer = operator.get(f"{path}?{query}")
        text = answer.text
        assert answer.status_code in ((200,) if path in SAID else (200, 400, 404, 502)), text
        return SAID.get(path, "") in text

    wait_until(says, f"{path} says {SAID.get(path)}", poll_s=1.0)
    assert "The console itself failed" not in text
    base = "/index" if path == "/" else path
    json.loads(operator.get(f"{base}.json?{query}").text)
