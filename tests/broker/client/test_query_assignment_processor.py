"""broker.client.query_assignment_processor: code 400 against queues that are dealt out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.query_assignment_processor import (
    AssignmentParts,
    QueryAssignmentProcessor,
)
from broker.settings.broker_config import BrokerConfig
from broker.subscription.message_request_mode_manager import MessageRequestModeManager
from remoting.body.message_queue import MessageQueue
from remoting.body.message_request_mode import (
    SetMessageRequestModeRequestBody,
)
from remoting.errors import RequestError
from remoting.message_request_mode import MessageRequestMode
from remoting.remoting_command import RemotingCommand
from tests.broker.broker_fakes import FakeConnection

TOPIC, GROUP = "T", "G"
Queue = tuple[str, int]


class Members:
    """Of a group; in no order, as ConsumerManager gives them."""

    def __init__(self, client_ids: list[str]) -> None:
        self._client_ids = client_ids

    def client_ids(self, _group: str) -> list[str]:
        return list(reversed(self._client_ids))


def assigned(
    queues: list[Queue] | None,
    members: list[str],
    *,
    settings: BrokerConfig | None = None,
    row: SetMessageRequestModeRequestBody | None = None,
    **asked: str,
) -> tuple[str, list[Queue]] | None:
    """(mode, queues) as a client reads the answer; None: it keeps what it has."""
    modes = MessageRequestModeManager(Path("unused"))
    if row is not None:
        modes.find = lambda topic, group: row  # type: ignore[method-assign]
    topic = asked.get("topic", TOPIC)
    known = queues and [MessageQueue(topic=topic, broker_name=b, queue_id=q) for b, q in queues]
    processor = QueryAssignmentProcessor(
        settings or BrokerConfig(),
        AssignmentParts(
            modes=modes,
            subscribe_info=lambda _topic: known,
            consumers=Members(members),  # type: ignore[arg-type]
            find_topic=lambda _topic: None,
            find_group=lambda _group: None,
            is_slave=lambda: False,
        ),
    )
    body = {
        "topic": TOPIC,
        "consumerGroup": GROUP,
        "clientId": "c0",
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
        **asked,
    }
    command = RemotingCommand.request(400, body=json.dumps(body).encode())
    answer = processor.process_request(FakeConnection(), command)
    assert answer is not None
    assert answer.code == 0
    found: list[Any] | None = json.loads(answer.body).get("messageQueueAssignments")
    if found is None:
        return None
    rows = [row["messageQueue"] for row in found]
    assert {row["topic"] for row in rows} <= {topic}
    (mode,) = {row["mode"] for row in found} or {"none"}
    return mode, [(row["brokerName"], row["queueId"]) for row in rows]


def hands_of(queues: list[Queue], members: int, strategy: str) -> list[list[Queue]]:
    """Circle: dealt like cards. AVG: as many, but each member's lie next to each other."""
    hands: list[list[Queue]] = [[] for _ in range(members)]
    for number, queue in enumerate(queues):
        hands[number % members].append(queue)
    if strategy == "AVG":
        left = list(queues)
        hands = [[left.pop(0) for _ in hand] for hand in hands]
    return hands


QUEUES = st.builds(
    lambda brokers, each: [(f"b{b}", q) for b in range(brokers) for q in range(each)],
    st.integers(1, 3),
    st.integers(1, 5),
)
STRATEGY = st.sampled_from(["AVG", "AVG_BY_CIRCLE"])


@given(QUEUES, st.integers(1, 9), STRATEGY)
def test_every_queue_is_pulled_by_one_member(
    queues: list[Queue], count: int, strategy: str
) -> None:
    members = [f"c{number}" for number in range(count)]
    for member, hand in zip(members, hands_of(queues, count, strategy), strict=True):
        found = assigned(queues, members, clientId=member, strategyName=strategy)
        assert found is not None
        assert found[1] == hand


@given(QUEUES, st.integers(1, 9), st.integers(-1, 9), STRATEGY)
def test_popping_members_share_with_those_behind_them(
    queues: list[Queue], count: int, share: int, strategy: str
) -> None:
    """As allocate4Pop of RocketMQ 5.3.3: all queues of each broker by id -1 where it shares with
    everybody; one queue each where there are more members than queues."""
    members = [f"c{number}" for number in range(count)]
    hands = hands_of(queues, count, strategy)
    row = SetMessageRequestModeRequestBody(
        topic=TOPIC, consumer_group=GROUP, mode=MessageRequestMode.POP, pop_share_queue_num=share
    )
    for number, member in enumerate(members):
        found = assigned(queues, members, row=row, clientId=member, strategyName=strategy)
        if share <= 0 or share >= count - 1:
            expected = {(broker, -1) for broker, _ in queues}
        elif count > len(queues):
            expected = {queues[number % len(queues)]}
        else:
            followers = [(number + further) % count for further in range(share + 1)]
            expected = {queue for one in followers for queue in hands[one]}
        assert found is not None
        assert found[0] == "POP"
        assert set(found[1]) == expected
        assert len(found[1]) == len(expected)


MANY: list[Queue] = [("a", 0), ("a", 1), ("b", 0)]


def test_all_queues_for_broadcasting_and_where_the_broker_does_not_balance() -> None:
    members = ["c0", "c1"]
    assert assigned(MANY, members, messageModel="BROADCASTING") == ("PULL", MANY)
    plain = BrokerConfig(server_load_balancer_enable=False)
    assert assigned(MANY, members, settings=plain) == ("PULL", MANY)


def test_a_retry_topic_is_pulled_where_popping_is_the_default() -> None:
    pops = BrokerConfig(default_message_request_mode=MessageRequestMode.POP)
    assert assigned(MANY, ["c0"], settings=pops) == ("POP", [("a", -1), ("b", -1)])
    assert assigned(MANY, ["c0"], settings=pops, topic="%RETRY%G") == ("PULL", MANY)


@pytest.mark.parametrize(
    ("queues", "members", "asked"),
    [
        (None, ["c0"], {}),
        (MANY, [], {}),
        (MANY, ["c0"], {"clientId": ""}),
        (MANY, ["c0"], {"strategyName": "CONFIG"}),
    ],
    ids=["no route", "no member", "no client id", "unknown strategy"],
)
def test_a_client_keeps_what_it_has(
    queues: list[Queue] | None, members: list[str], asked: dict[str, str]
) -> None:
    assert assigned(queues, members, **asked) is None


def test_one_that_is_no_member_gets_nothing() -> None:
    assert assigned(MANY, ["c1", "c2"]) == ("none", [])


def test_a_request_without_what_it_needs_is_refused() -> None:
    with pytest.raises(RequestError, match="topic, consumerGroup or messageModel is missing"):
        assigned(MANY, ["c0"], messageModel="")
