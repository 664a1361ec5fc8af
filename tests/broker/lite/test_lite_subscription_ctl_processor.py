"""200071: every action, where a subscription begins, slices, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.lite.lite_subscription_ctl_processor import SLICE
from remoting.errors import RequestError
from remoting.lite_names import to_lmq_name
from remoting.remoting_command import RemotingCommand
from tests.broker.lite.served_world import PARENT, LiteServed


@pytest.fixture
def world(tmp_path: Path) -> LiteServed:
    return LiteServed(tmp_path, most=5_000)


def lites(world: LiteServed, client: str = "c") -> list[str]:
    found = world.registry.find(client, "G")
    return [] if found is None else [lmq.rpartition("$")[2] for lmq in found.lmqs]


def told(world: LiteServed) -> list[RemotingCommand]:
    sent = [call.args[0] for call in world.connection.send_command.call_args_list]
    return [command for command in sent if command.code == 200073]


def test_every_action(world: LiteServed) -> None:
    assert world.subscribe("PARTIAL_ADD", "a", "b").code == 0
    assert world.subscribe("PARTIAL_ADD", "c").code == 0
    assert lites(world) == ["a", "b", "c"]
    world.subscribe("PARTIAL_REMOVE", "b", "x")
    assert lites(world) == ["a", "c"]
    world.subscribe("COMPLETE_ADD", "c", "d")
    assert lites(world) == ["c", "d"]
    world.subscribe("COMPLETE_REMOVE")
    assert world.registry.is_empty


def test_the_first_error_ends_the_request_and_what_came_before_stays(world: LiteServed) -> None:
    good = {"action": "PARTIAL_ADD", "clientId": "c", "group": "G", "topic": PARENT}
    answer = world.subscribe_all(
        good | {"liteTopicSet": ["a"]},
        good | {"clientId": " ", "liteTopicSet": ["z"]},
        good | {"group": "None", "liteTopicSet": ["b"]},
        good | {"liteTopicSet": ["d"]},
    )
    assert answer.code == 604
    assert answer.remark is not None
    assert answer.remark.endswith("Consumer group is not allowed to consume.")
    assert lites(world) == ["a"]


@pytest.mark.parametrize("lite", ["", "a b", "a$b", "x" * 65])
def test_names(world: LiteServed, lite: str) -> None:
    answer = world.subscribe("PARTIAL_ADD", lite)
    assert (answer.code, "alphanumeric" in (answer.remark or "")) == (604, True)
    assert world.registry.is_empty


def test_a_group_that_is_bound_elsewhere(world: LiteServed) -> None:
    world.group("H", lite__bind__topic="Other")
    assert world.subscribe("PARTIAL_ADD", "a", group="H").code == 604
    world.groups["I"] = world.groups["G"].__class__(group_name="I")
    assert world.subscribe("PARTIAL_ADD", "a", group="I").code == 604


def test_many_lite_topics_take_many_turns(world: LiteServed) -> None:
    names = [f"s{number}" for number in range(2 * SLICE + 1)]
    body = {"action": "PARTIAL_ADD", "clientId": "c", "group": "G", "topic": PARENT}
    world.connection.send_command.reset_mock()
    request = RemotingCommand(
        200071, body=json.dumps({"subscriptionSet": [body | {"liteTopicSet": names}]}).encode()
    )
    world.ctl.process_request(world.connection, request)
    turns = 0
    while world.later:
        world.later.pop(0)()
        turns += 1
        assert len(lites(world)) <= turns * SLICE
    assert (turns, len(lites(world))) == (3, 2 * SLICE + 1)
    world.connection.send_command.assert_called_once()


def test_a_client_that_is_dropped_between_two_slices_is_not_filled_on(world: LiteServed) -> None:
    names = [f"s{number}" for number in range(SLICE + 1)]
    body = {"action": "PARTIAL_ADD", "clientId": "c", "group": "G", "topic": PARENT}
    request = RemotingCommand(
        200071, body=json.dumps({"subscriptionSet": [body | {"liteTopicSet": names}]}).encode()
    )
    world.ctl.process_request(world.connection, request)
    world.later.pop(0)()
    client = world.registry.find("c", "G")
    assert client is not None
    world.registry.drop(client)
    assert world.turn().code == 604
    assert (world.registry.is_empty, world.registry.subscription_count) == (True, 0)


@pytest.mark.parametrize(
    ("option", "first"),
    [
        ({"type": "POLICY", "value": 0}, [2, 3]),
        ({"type": "POLICY", "value": 1}, [0, 1, 2, 3]),
        ({"type": "POLICY", "value": 2}, []),
        ({"type": "OFFSET", "value": 1}, [1, 2, 3]),
        ({"type": "OFFSET", "value": 99}, []),
        ({"type": "OFFSET", "value": -5}, [0, 1, 2, 3]),
        ({"type": "TAIL_N", "value": 1}, [1, 2, 3]),
        ({"type": "TIMESTAMP", "value": 1}, [2, 3]),
        (None, [2, 3]),
    ],
)
def test_where_a_subscription_begins(
    world: LiteServed, option: dict[str, object] | None, first: list[int]
) -> None:
    world.send("s", "s", "s", "s")
    world.lite_queues.commit("x", "G", to_lmq_name(PARENT, "s"), 2)
    world.subscribe("PARTIAL_ADD", "s", offsetOption=option)
    assert world.popped() == first


def test_nothing_is_remembered_of_lite_topics_that_do_not_exist(world: LiteServed) -> None:
    option = {"type": "OFFSET", "value": 7}
    world.subscribe("PARTIAL_ADD", *map(str, range(100)), offsetOption=option)
    assert world.offsets.pairs() == []


def test_what_was_unsubscribed_begins_anew_where_the_group_says_so(world: LiteServed) -> None:
    world.group("G", **{"lite.sub.reset.offset.unsubscribe": "true"})
    world.send("s")
    world.subscribe("PARTIAL_ADD", "s")
    assert world.popped() == [0]
    world.ack("s", 0)
    world.subscribe("PARTIAL_REMOVE", "s")
    world.subscribe("PARTIAL_ADD", "s")
    assert world.popped() == [0]


def test_the_newer_client_of_an_exclusive_group_takes_over(world: LiteServed) -> None:
    world.group("G", **{"lite.sub.model": "Exclusive"})
    world.send("s")
    world.subscribe("PARTIAL_ADD", "s", client="old")
    assert world.popped("old") == [0]
    world.ack("s", 0)
    world.subscribe("PARTIAL_ADD", "s", client="new")
    assert [command.ext_fields["clientId"] for command in told(world)] == ["old"]
    world.subscribe("COMPLETE_ADD", "s", client="old")
    assert len(told(world)) == 2
    assert (lites(world, "old"), lites(world, "new")) == ([], ["s"])
    world.subscribe("COMPLETE_ADD", client="old")
    world.subscribe("COMPLETE_ADD", "s", client="old")
    assert (lites(world, "old"), lites(world, "new")) == (["s"], [])
    assert world.popped("old") == []


def test_a_slave_agrees_and_notes_nothing(world: LiteServed) -> None:
    world.leads = False
    for action in ("PARTIAL_ADD", "COMPLETE_ADD", "PARTIAL_REMOVE", "COMPLETE_REMOVE"):
        assert world.subscribe(action, "a").code == 0
    assert world.registry.is_empty
    answer = world.subscribe("PARTIAL_ADD", "a b")
    assert answer.code == 604, "what is no name is none anywhere"


def test_a_broker_that_ceases_to_lead_between_two_slices_notes_no_more(world: LiteServed) -> None:
    change = {"action": "PARTIAL_ADD", "clientId": "c", "group": "G", "topic": PARENT}
    names = [f"s{number}" for number in range(SLICE + 10)]
    body = json.dumps(
        {"subscriptionSet": [change | {"liteTopicSet": names}, change | {"liteTopicSet": ["z"]}]}
    ).encode()
    world.ctl.process_request(world.connection, RemotingCommand(200071, body=body))
    world.later.pop(0)()
    world.leads = False
    world.dispatcher.clear()
    world.registry.clear()
    assert world.turn().code == 604
    assert (world.registry.is_empty, world.registry.subscription_count) == (True, 0)


def test_a_wildcard_group_subscribes_as_a_whole(world: LiteServed) -> None:
    world.group("G", **{"lite.sub.wildcard": "true"})
    world.send("s", "t")
    answer = world.subscribe("PARTIAL_ADD", "s")
    assert answer.code == 604
    assert answer.remark == (
        "java.lang.IllegalStateException: subscribe lite operation is not supported for this group"
    )
    world.subscribe("COMPLETE_ADD")
    while world.dispatcher.step():
        pass
    assert world.popped() == [0, 1]


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", "Request body is null."), (b"{}", "LiteSubscriptionCtlRequestBody is empty.")],
)
def test_bodies(world: LiteServed, body: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        world.ctl.process_request(world.connection, RemotingCommand(200071, body=body))


@pytest.mark.parametrize("action", ["COMPLETE_ADD", "PARTIAL_REMOVE"])
def test_many_changes_of_no_lite_topic_take_many_turns(world: LiteServed, action: str) -> None:
    change = {"action": action, "clientId": "c", "group": "G", "topic": PARENT}
    body = json.dumps({"subscriptionSet": [change] * (2 * SLICE + 1)}).encode()
    world.ctl.process_request(world.connection, RemotingCommand(200071, body=body))
    turns = 0
    while world.later:
        world.later.pop(0)()
        turns += 1
    assert turns == 3


def test_a_request_that_names_more_than_there_can_be(world: LiteServed) -> None:
    change = {"action": "PARTIAL_ADD", "clientId": "c", "group": "G", "topic": PARENT}
    half = change | {"liteTopicSet": ["a"] * 50_000}
    assert world.subscribe_all(half, half).code == 0
    answer = world.subscribe_all(half, half, change | {"liteTopicSet": ["b"]})
    assert (answer.code, lites(world)) == (2018, ["a"])
    assert answer.remark == "the request names 100001 lite topics (limit 100000): split it"


def test_whoever_gives_up_what_was_taken_from_it_needs_no_room_for_that(world: LiteServed) -> None:
    world.group("G", lite__sub__model="Exclusive")
    world.most = 6
    for action in ("PARTIAL_REMOVE", "COMPLETE_ADD"):
        for client in ("c", "d"):
            assert world.subscribe("PARTIAL_ADD", "a", "b", client=client).code == 0
        assert world.subscribe("PARTIAL_ADD", "x", client="d").code == 2018
        world.subscribe(action, *(("a", "b") if action == "PARTIAL_REMOVE" else ()))
        assert world.subscribe("PARTIAL_ADD", "x", client="d").code == 0
        world.subscribe("COMPLETE_REMOVE", client="d")
