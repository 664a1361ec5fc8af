"""broker.out.broker_rpc: the masters of other broker names are found and asked."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker.out.broker_rpc import FRESH_MS, BrokerRpc
from remoting.body.route import BrokerData, ClusterInfo
from remoting.errors import RemotingConnectError, RequestError
from remoting.remoting_command import RemotingCommand
from tests.broker.broker_fakes import FakeClock
from tests.support.deadline import wait_until


class World:
    """A name server, and brokers that answer with their address."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.masters = {"broker-b": "b:1"}
        self.is_up = True
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.rpc = BrokerRpc(self, self, self.clock, timeout_ms=3_000)

    def get_broker_cluster_info(self) -> list[ClusterInfo]:
        self.asked += 1
        assert self.may_answer.wait(30)
        if not self.is_up:
            return []
        table = {
            name: BrokerData(broker_name=name, broker_addrs={0: address, 1: "slave:1"})
            for name, address in self.masters.items()
        }
        table["only-a-slave"] = BrokerData(broker_name="only-a-slave", broker_addrs={1: "s:1"})
        return [ClusterInfo(broker_addr_table=table)]

    def invoke_sync(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        assert timeout_ms == 3_000
        if address == "down:1":
            raise RemotingConnectError(address, "refused")
        return command.response(0, address, command.ext_fields)

    def ask(self, broker: str = "broker-b") -> str | None:
        return self.rpc.ask(broker, 30, {"topic": "T"}).remark


def test_the_master_is_looked_up_now_and_then() -> None:
    world = World()
    assert [world.ask(), world.ask()] == ["b:1", "b:1"]
    assert world.asked == 1
    world.masters["broker-b"] = "b:2"
    world.clock.advance(FRESH_MS)
    assert world.ask() == "b:2"
    world.is_up = False
    world.clock.advance(FRESH_MS)
    assert world.ask() == "b:2", "what was known last"


@pytest.mark.parametrize("broker", ["broker-c", "only-a-slave"])
def test_an_unknown_broker_is_asked_for_once_a_second(broker: str) -> None:
    world = World()
    for _ in range(3):
        with pytest.raises(RequestError) as error:
            world.ask(broker)
        assert error.value.remark == f"cannot find addr for broker {broker}"
    assert world.asked == 1
    world.masters["broker-c"] = "c:1"
    world.clock.advance(1_000)
    assert world.ask("broker-c") == "c:1"


def test_a_broker_that_does_not_answer_may_have_moved() -> None:
    world = World()
    world.masters["broker-b"] = "down:1"
    with pytest.raises(RequestError, match="broker broker-b does not answer: down:1: refused"):
        world.ask()
    world.masters["broker-b"] = "b:2"
    assert world.ask() == "b:2"


def test_who_asks_while_the_name_servers_are_asked_waits_for_their_answer() -> None:
    """The first requests come together; none of them is told that there is no such broker."""
    world = World()
    world.may_answer.clear()
    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(world.ask) for _ in range(3)]
        try:
            wait_until(lambda: all(each.running() or each.done() for each in asking), 30)
            assert not any(each.done() for each in asking)
        finally:
            world.may_answer.set()
        assert [each.result(30) for each in asking] == ["b:1"] * 3
    assert world.asked == 1
