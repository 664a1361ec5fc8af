"""broker.out.escape_bridge: to which broker a message is sent, and what counts as stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.out.broker_outer_api import BrokerIdentity
from broker.out.escape_bridge import FRESH_MS, EscapeBridge, EscapedMessage, EscapeError
from remoting.body.route import BrokerData, QueueData, TopicRouteData
from remoting.errors import RemotingConnectError
from remoting.remoting_command import RemotingCommand
from remoting.response_table import ResponseCallback
from tests.broker.broker_fakes import FakeClock

MESSAGE = EscapedMessage(
    topic="T",
    producer_group=None,
    flag=1,
    sys_flag=2,
    born_timestamp=3,
    reconsume_times=4,
    properties="KEYS\x01k\x02WAIT\x01false",
    body=b"body",
)
IDENTITY = BrokerIdentity(
    cluster_name="C", broker_name="a", broker_id=1, broker_addr="a1:1", ha_server_addr="a1:2"
)


class World:
    """The name server's route of T, and the brokers: they answer with `code`."""

    connection_listener: Callable[[str], None] | None = None

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.perms = {"a": 4, "b": 6, "c": 6, "d": 4, "e": 6}
        self.known = True
        self.code: int | None = 0
        self.down: set[str] = set()
        self.queues = 2
        self.routes = 0
        self.sent: list[tuple[str, RemotingCommand]] = []
        self.bridge = EscapeBridge(IDENTITY, self, self, self.clock)

    def get_topic_route(self, topic: str, timeout_ms: int) -> TopicRouteData | None:
        self.routes += 1
        if not self.known:
            return None
        return TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=name,
                    read_queue_nums=4,
                    write_queue_nums=self.queues,
                    perm=perm,
                    topic_sys_flag=0,
                )
                for name, perm in self.perms.items()
            ],
            broker_datas=[
                BrokerData(
                    cluster="C",
                    broker_name=name,
                    broker_addrs={1 if name == "e" else 0: f"{name}0:1"},
                )
                for name in self.perms
            ],
            filter_server_table={},
        )

    def invoke_sync(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        self.sent.append((address, command))
        if self.code is None or address in self.down:
            raise RemotingConnectError(address, "refused")
        return command.response(self.code, "words")

    def invoke_async(
        self, address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        raise AssertionError

    def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        raise AssertionError


def test_other_masters_and_their_queues_take_turns() -> None:
    world = World()
    for _ in range(5):
        world.bridge.put(MESSAGE)
    places = [(address, command.ext_fields["e"]) for address, command in world.sent]
    once = [("b0:1", "0"), ("c0:1", "0"), ("b0:1", "1"), ("c0:1", "1")]
    assert places == [*once, once[0]]
    assert world.routes == 1
    command = world.sent[0][1]
    assert (command.code, command.body) == (310, b"body")
    expected = {
        "a": "InnerProducerGroup_a_1",
        "b": "T",
        "c": "TBW102",
        "d": "8",
        "e": "0",
        "f": "2",
        "g": "3",
        "h": "1",
        "i": MESSAGE.properties,
        "j": "4",
        "k": "false",
        "m": "false",
    }
    assert dict(command.ext_fields) == expected


@pytest.mark.parametrize("code", [0, 10, 11, 12])
def test_what_counts_as_stored(code: int) -> None:
    world = World()
    world.code = code
    world.bridge.put(MESSAGE)


@pytest.mark.parametrize(("code", "words"), [(14, "code 14, words"), (None, "refused")])
def test_after_a_failure_the_name_servers_are_asked_again(code: int | None, words: str) -> None:
    world = World()
    world.code = code
    with pytest.raises(EscapeError, match=words):
        world.bridge.put(MESSAGE)
    world.code = 0
    world.bridge.put(MESSAGE)
    assert world.routes == 2


def test_a_route_is_old_after_a_while() -> None:
    world = World()
    world.bridge.put(MESSAGE)
    world.clock.monotonic += FRESH_MS
    world.bridge.put(MESSAGE)
    assert world.routes == 2
    assert [address for address, _ in world.sent] == ["b0:1", "c0:1"], "the turn stays"


def test_one_that_does_not_take_it_holds_nothing_up_that_others_take() -> None:
    world = World()
    world.down = {"b0:1"}
    with pytest.raises(EscapeError):
        world.bridge.put(MESSAGE)
    for _ in range(4):
        world.bridge.put(MESSAGE)
    assert [address for address, _ in world.sent] == ["b0:1", *["c0:1"] * 4]
    world.down.add("c0:1")
    for _ in range(2):
        with pytest.raises(EscapeError):
            world.bridge.put(MESSAGE)
    assert {address for address, _ in world.sent[-2:]} == {"b0:1", "c0:1"}, "all failed: any"
    world.down.clear()
    world.clock.monotonic += FRESH_MS
    for _ in range(2):
        world.bridge.put(MESSAGE)
    assert {address for address, _ in world.sent[-2:]} == {"b0:1", "c0:1"}


@pytest.mark.parametrize("queues", [0, -1, 2**31 - 1])
def test_a_broker_may_register_any_number_of_queues(queues: int) -> None:
    world = World()
    world.queues = queues
    if queues > 0:
        world.bridge.put(MESSAGE)
    else:
        with pytest.raises(EscapeError, match="no other broker"):
            world.bridge.put(MESSAGE)


@pytest.mark.parametrize("known", [True, False])
def test_nobody_can_take_it(known: bool) -> None:
    world = World()
    world.known = known
    world.perms = {"a": 6, "d": 4, "e": 6}
    with pytest.raises(EscapeError, match="topic T: no other broker"):
        world.bridge.put(MESSAGE)
    assert world.sent == []
