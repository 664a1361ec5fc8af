"""NameServerLookup: when it looks, what stays; and a broker that finds its name server by HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.out.broker_outer_api import BrokerOuterAPI
from broker.out.name_server_lookup import NameServerLookup, parse_name_servers
from broker.out.top_addressing import LookupFailedError
from tests.broker.broker_fakes import FakeClock
from tests.broker.out.test_broker_outer_api import FakeClient
from tests.broker.out.test_top_addressing import AddressServer
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

PERIOD_MS = 120_000


class World:
    def __init__(self, *first: str) -> None:
        self.clock = FakeClock()
        self.api = BrokerOuterAPI(FakeClient(), first)
        self.found: list[str] | None = ["a:1", "b:2"]
        self.looks = 0
        self.lookup = NameServerLookup(
            self.look_up, self.api, self.clock.monotonic_ms, period_ms=PERIOD_MS
        )

    def look_up(self) -> list[str]:
        self.looks += 1
        if self.found is None:
            raise LookupFailedError("nobody answers")
        return self.found


def test_a_found_list_is_taken_and_told_once() -> None:
    world = World()
    assert world.lookup.look_if_due()
    assert world.api.name_servers == ("a:1", "b:2")
    world.clock.monotonic += PERIOD_MS
    assert not world.lookup.look_if_due()
    world.found = ["c:3"]
    world.clock.monotonic += PERIOD_MS
    assert world.lookup.look_if_due()
    assert world.api.name_servers == ("c:3",)
    assert world.looks == 3


def test_it_looks_once_a_period_but_always_while_nothing_is_known() -> None:
    world = World()
    world.found = None
    for _ in range(3):
        assert not world.lookup.look_if_due()
    assert world.looks == 3
    world.found = ["a:1"]
    assert world.lookup.look_if_due()
    world.clock.monotonic += PERIOD_MS - 1
    world.lookup.look_if_due()
    assert world.looks == 4
    world.clock.monotonic += 1
    world.lookup.look_if_due()
    assert world.looks == 5


def test_a_failed_look_up_keeps_the_list_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    world = World("a:1")
    world.found = None
    for _ in range(2):
        assert not world.lookup.look_if_due()
        world.clock.monotonic += PERIOD_MS
    assert world.api.name_servers == ("a:1",)
    (error,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert error.getMessage() == "name servers: nobody answers; keeping those in use: a:1"
    world.found = ["a:1"]
    caplog.set_level("INFO")
    assert not world.lookup.look_if_due()
    assert "works again: a:1" in caplog.text


@pytest.fixture
def server() -> Iterator[AddressServer]:
    server = AddressServer()
    yield server
    server.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_broker_finds_its_name_server(server: AddressServer, tmp_path: Path) -> None:
    names = OurBroker(tmp_path / "names", brokerName="other")
    with names.start():
        server.body = f"127.0.0.1:{names.ports['namesrv']}\n".encode()
        broker = OurBroker(
            tmp_path / "broker",
            brokerName="by-http",
            fetchNamesrvAddrByAddressServer="true",
            rmqAddressServerSubGroup="mine",
            fetchNamesrvAddrInterval=1_000,
        )
        broker.env = {
            "JAVA_OPT_EXT": f"-Drocketmq.namesrv.domain={server.domain}",
            "http_proxy": "http://127.0.0.1:9",
        }
        with broker.start(), names.client("namesrv") as routes:
            assert "namesrv" not in broker.ports
            wait_until(lambda: b"by-http" in routes.call(106, {}).body, 30)
            assert set(server.paths) == {"/rocketmq/mine"}
            server.status = 500
            asked = len(server.paths)
            wait_until(lambda: len(server.paths) >= asked + 2, 30)
            server.status, server.body = 200, b"127.0.0.1:1"
            wait_until(lambda: "['127.0.0.1:1'], were" in broker.log("remoting"), 30)
            assert "status 500; keeping those in use: 127.0.0.1:" in broker.log("remoting")


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        (None, []),
        ("", []),
        ("a:1", ["a:1"]),
        ("a:1;b:2", ["a:1", "b:2"]),
        (" a:1 ; ;b:2;a:1;", ["a:1", "b:2"]),
    ],
)
def test_parse_name_servers(text: str | None, addresses: list[str]) -> None:
    assert parse_name_servers(text) == addresses
