"""broker.client.known_heartbeats: what the loop renews is what the general path would have done."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.consumer_manager import CHANNEL_EXPIRED_MS
from broker.client.known_heartbeat_route import KnownHeartbeatRoute
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.broker.broker_fakes import CONFIG, FakeConnection, golden, request_of
from tests.broker.processor_world import World


def heartbeat(
    client: str = "c",
    group: str = "g",
    topics: tuple[str, ...] = ("t",),
    version: int | None = 7,
    kind: str = "TAG",
    model: str = "CLUSTERING",
    producer: str = "p",
) -> bytes:
    """A heartbeat as Java writes it; version None: without subVersion."""
    subscriptions = []
    for topic in topics:
        subscription: dict[str, Any] = {"expressionType": kind, "subString": "*", "topic": topic}
        if version is not None:
            subscription["subVersion"] = version
        subscriptions.append(subscription)
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": model,
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    data = {
        "clientID": client,
        "consumerDataSet": [consumer],
        "producerDataSet": [{"groupName": producer}],
    }
    return json.dumps(data, separators=(",", ":")).encode()


class Answers:
    """HeartbeatStats."""

    def __init__(self) -> None:
        self.count = 0

    def add_answers(self, request_code: int, code: int, count: int = 1) -> None:
        assert (request_code, code) == (RequestCode.HEART_BEAT, 0)
        self.count += count


class Broker(World):
    """With the loop's route before the pool's processor, or without."""

    def __init__(self, tmp_path: Path, *, fast: bool = True) -> None:
        super().__init__(tmp_path)
        self.answers = Answers()
        self.processor = self.client_manage()
        self._route = KnownHeartbeatRoute(self.heartbeats, self.answers)
        self._fast = fast

    def beat(self, connection: FakeConnection, body: bytes, **header: Any) -> bool:
        """Whether the loop took it."""
        frame = {"code": 34, "flag": 0, "language": "JAVA", "opaque": 5, "version": 407, **header}
        text = json.dumps(frame, separators=(",", ":")).encode()
        if self._fast and self._route.process_fast(connection, text, memoryview(body)):  # type: ignore[arg-type]
            return True
        self.processor.process_request(connection, RemotingCommand.request(34, body=body))
        return False

    def state(self) -> object:
        """All that heartbeats change."""
        groups = {name: self.consumers.find_group(name) for name in self.consumers.group_names()}
        return (
            {
                name: (
                    [
                        (member.client_id, member.connection.remote_address, member.last_update_ms)
                        for member in info.infos()
                    ],
                    # Without a version it is the time of parsing, by the machine's clock.
                    [
                        replace(each, sub_version=min(each.sub_version, 1_000))
                        for each in info.subscriptions.values()
                    ],
                    self.consumers.is_broadcasting(name),
                )
                for name, info in groups.items()
                if info is not None
            },
            {
                name: [(each.client_id, each.last_update_ms, each.heard_ms) for each in members]
                for name, members in self.producers.all_groups().items()
            },
            sorted(self.topics.topic_names()),
            [name for name in ("g", "h") if self.groups.find(name) is not None],
        )


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


@pytest.fixture
def known(broker: Broker) -> FakeConnection:
    """A client whose heartbeat is known."""
    connection = FakeConnection()
    assert [broker.beat(connection, heartbeat()) for _ in range(3)] == [False, False, True]
    return connection


def test_the_third_that_is_the_same_is_known_and_keeps_its_client_alive(
    broker: Broker, known: FakeConnection
) -> None:
    for _ in range(20):
        broker.clock.advance(CHANNEL_EXPIRED_MS // 2)
        assert broker.beat(known, heartbeat())
        broker.consumers.scan_not_active_channel()
        broker.producers.scan_not_active_channel()
    assert broker.consumers.client_ids("g") == ["c"]
    member = broker.consumers.find_member("g", "c")
    assert member is not None
    assert member.last_update_ms == broker.clock.now_ms()
    assert broker.answers.count == 21


def test_the_answer_is_that_of_the_general_path(broker: Broker, known: FakeConnection) -> None:
    _request, java = golden(34)
    known.sent.clear()
    assert broker.beat(known, heartbeat(), opaque=77)
    (answer,) = known.sent
    general = broker.client_manage().process_request(
        FakeConnection(), RemotingCommand.request(34, body=heartbeat())
    )
    assert java is not None
    assert general is not None
    assert (answer.opaque, answer.code, answer.flag) == (77, java.code, java.flag)
    assert (answer.has_ext_fields, answer.remark, answer.body, answer.serialize_type) == (
        (general.has_ext_fields, general.remark, general.body, general.serialize_type)
    )


def leave(broker: Broker, connection: FakeConnection) -> None:
    request = request_of(35, clientID="c", consumerGroup="g")
    broker.client_manage().process_request(connection, request)


def leave_producers(broker: Broker, connection: FakeConnection) -> None:
    broker.client_manage().process_request(
        connection, request_of(35, clientID="c", producerGroup="p")
    )


def subscribe_otherwise(broker: Broker, _connection: FakeConnection) -> None:
    broker.beat(FakeConnection(), heartbeat("d", topics=("other",)))


def broadcast(broker: Broker, _connection: FakeConnection) -> None:
    broker.beat(FakeConnection(), heartbeat("d", model="BROADCASTING"))


def delete_group(broker: Broker, _connection: FakeConnection) -> None:
    assert broker.groups.delete("g")


def delete_retry_topic(broker: Broker, _connection: FakeConnection) -> None:
    assert broker.topics.delete("%RETRY%g")


@pytest.mark.parametrize(
    "change",
    [
        leave,
        leave_producers,
        subscribe_otherwise,
        broadcast,
        delete_group,
        delete_retry_topic,
    ],
)
def test_after_a_change_of_somebody_it_is_looked_at(
    broker: Broker, known: FakeConnection, change: Callable[[Broker, FakeConnection], None]
) -> None:
    before = broker.state()
    change(broker, known)
    assert not broker.beat(known, heartbeat())
    if change not in (subscribe_otherwise, broadcast):
        assert broker.state() == before


def test_limits_that_were_changed_hold_for_known_ones(
    broker: Broker, known: FakeConnection
) -> None:
    broker.processor.config = replace(CONFIG, heartbeat_max_groups=1)
    with pytest.raises(RequestError, match="2 groups, over the limit of 1"):
        broker.beat(known, heartbeat())


@pytest.mark.parametrize(
    "body",
    [
        heartbeat(kind="SQL92"),
        heartbeat(version=None),
        heartbeat(topics=tuple(f"topic-{number:060}" for number in range(40))),
    ],
)
def test_what_is_never_known(broker: Broker, body: bytes) -> None:
    """Property filters expire by their last heartbeat; without subVersion the newest one wins; and
    long ones would be kept for every client."""
    connection = FakeConnection()
    for _ in range(5):
        broker.clock.advance(10)
        assert not broker.beat(connection, body)
    assert len(broker.heartbeats) == 0


def test_oneway_and_broken_headers_go_the_general_way(
    broker: Broker, known: FakeConnection
) -> None:
    assert not broker.beat(known, heartbeat(), flag=2)
    assert not broker.beat(known, heartbeat(), opaque="x")
    assert broker.beat(known, heartbeat())


def test_a_closed_connection_leaves_nothing(broker: Broker) -> None:
    connection = FakeConnection()
    for _ in range(2):
        broker.beat(connection, heartbeat())
    assert len(broker.heartbeats) == 1
    broker.heartbeats.forget(connection)
    connection.is_open = False
    broker.beat(connection, heartbeat())
    assert len(broker.heartbeats) == 0
    assert broker.consumers.group_names() == []


BODIES = [
    heartbeat(client, group, topics, version, "TAG", model, producer)
    for client, producer in (("c", "p"), ("d", "q"))
    for group in ("g", "h")
    for topics, version in ((("t",), 7), (("t", "u"), 7), (("t",), 8), (("t",), None))
    for model in ("CLUSTERING", "BROADCASTING")
]


def test_any_history_ends_as_without_the_loops_route(tmp_path: Path) -> None:
    taken = notified = 0
    for seed in range(60):
        chosen = random.Random(seed)
        pair = Broker(tmp_path / f"{seed}"), Broker(tmp_path / f"{seed}-plain", fast=False)
        clients = [(FakeConnection(f"1.1.1.{n}:1"), FakeConnection(f"1.1.1.{n}:1")) for n in (1, 2)]
        bodies = chosen.sample(BODIES, 3)
        for _ in range(60):
            client, body = chosen.choice(clients), chosen.choice(bodies)
            change = chosen.choice([None] * 30 + [leave, delete_group, delete_retry_topic])
            for broker, connection in zip(pair, client, strict=True):
                broker.clock.advance(50)
                if change is leave:
                    leave(broker, connection)
                elif change is delete_group:
                    broker.groups.delete("g")
                elif change is delete_retry_topic:
                    broker.topics.delete("%RETRY%g")
                else:
                    taken += broker.beat(connection, body)
            assert pair[0].state() == pair[1].state(), seed
        for client in clients:
            # Notifications; answers of the pool are sent by the server.
            told = [[each for each in one.sent if each.code == 40] for one in client]
            assert len(told[0]) == len(told[1]), seed
            notified += len(told[0])
    assert taken > 100
    assert notified > 100
