"""Messages as large, as deep and as odd as a broker takes them: each has a page, soon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.console.console_on_broker import ConsoleWorld
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tools.admin_client import AdminClient, NameServers
from tools.message_sender import MessageSender, OutgoingMessage

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MIB: Final = 1 << 20
PAGE_S: Final = 20
BODIES: Final = {
    "the largest": b"a" * (16 * MIB - 2_000),
    "deep": b"[" * 100_000,
    "deep and whole": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "turned": b'"' + b"\\u202e" * 2_000_000 + b'"',
    "many": b"[" + b",".join([b"{}"] * 4_000_000) + b"]",
    "bytes": bytes(range(256)) * 60_000,
    "a long number": b'{"a":' + b"9" * 5_000_000 + b"}",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleWorld]:
    root: Path = tmp_path_factory.mktemp("large")
    settings = {"maxMessageSize": str(16 * MIB), "mappedFileSizeCommitLog": str(64 * MIB)}
    broker = OurBroker(root, autoCreateTopicEnable="true", **settings).start()
    try:
        with ExitStack() as stack:
            made = ConsoleWorld(root, broker, stack)
            made.post("sendMessage", topic="Large", body="the first makes the topic")
            servers = NameServers.parse(f"127.0.0.1:{broker.ports['namesrv']}")
            with AdminClient(servers, lambda: 0) as client:
                sender = MessageSender(client, "Large")
                for number, body in enumerate(BODIES.values()):
                    properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number}"}
                    message = OutgoingMessage(body=body, properties=properties)
                    assert sender.send_message(message, sender.queues[0]).send_status == "SEND_OK"
            wait_until(lambda: made.operator.get("/messages.json?topic=Large&key=k6").json())
            yield made
    finally:
        broker.terminate()


@pytest.mark.parametrize("number", range(len(BODIES)), ids=list(BODIES))
@pytest.mark.parametrize("form", ["/message", "/message.json"])
def test_each_has_a_page(world: ConsoleWorld, number: int, form: str) -> None:
    began = time.monotonic()
    answer = world.operator.get(f"{form}?topic=Large&id={number:032X}")
    assert (answer.status_code, f"{number:032X}" in answer.text) == (200, True)
    assert time.monotonic() - began < PAGE_S
    assert len(answer.content) < 4 * MIB
    assert "\u202e" not in answer.text


def test_all_of_them_are_listed(world: ConsoleWorld) -> None:
    began = time.monotonic()
    found = world.operator.get("/messages.json?topic=Large").json()
    assert time.monotonic() - began < PAGE_S
    assert {one["msgId"] for one in found} >= {f"{n:032X}" for n in range(len(BODIES))}
