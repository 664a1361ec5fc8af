"""Pulls that filter by properties: checks, results, long polls, over a real log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.filter import selector_verdicts
from broker.filter.unit_marks import SCAN_LIMIT_MS
from remoting.body.heartbeat import SubscriptionData
from remoting.remoting_command import RemotingCommand
from store.control_slots import MIN_PHY_OFFSET
from tests.broker.hot_path_world import Client, HotPathWorld, pull_request, send_request

FOUND, NOT_FOUND, RETRY = 0, 19, 20
ON = {"enable_property_filter": True}
SQL = SubscriptionData(topic="T", sub_string="a > 5", expression_type="SQL92", sub_version=7)


def make_world(tmp_path: Path, **pull: Any) -> HotPathWorld:
    world = HotPathWorld(tmp_path, file_size=1 << 20, pull={**ON, **pull})
    world.topic()
    world.topic("%RETRY%G", 1)
    return world


@pytest.fixture
def world(tmp_path: Path) -> HotPathWorld:
    return make_world(tmp_path)


@pytest.fixture
def client(world: HotPathWorld) -> Client:
    return world.client()


def subscribe(world: HotPathWorld, subscription: SubscriptionData = SQL) -> None:
    """A heartbeat of group G, as the managers note it."""
    world.consumers.groups.add("G")
    world.consumers.subscriptions["G", subscription.topic] = subscription
    world.filters.register("G", [subscription])


def fill(world: HotPathWorld, *properties: str, topic: str = "T") -> None:
    sender = world.client()
    sender.send(*[send_request(topic=topic, properties=text) for text in properties])
    world.turn()
    assert {answer.code for answer in sender.answers()} == {0}
    world.dispatch()


def by_number(*numbers: int) -> list[str]:
    return [f"a\x01{number}\x02TAGS\x01tag" for number in numbers]


def numbers(answer: RemotingCommand) -> tuple[int, str | None, int]:
    """(code, remark, next)."""
    return answer.code, answer.remark, int(answer.ext_fields["nextBeginOffset"])


def own(expression: str | None = "a > 5", **changes: Any) -> RemotingCommand:
    """A pull that brings its expression."""
    return pull_request(subscription=expression, expressionType="SQL92", **changes)


def pull(**changes: Any) -> RemotingCommand:
    """A pull that relies on the heartbeat."""
    return pull_request(
        **{"sysFlag": 0, "subVersion": 7, "expressionType": None, "subscription": None, **changes}
    )


# -- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["own", "heartbeat"])
def test_only_what_matches_is_given(world: HotPathWorld, client: Client, kind: str) -> None:
    subscribe(world)
    fill(world, *by_number(9, 1, 7, 8, 2), "b\x01x", "a\x01x")
    answer = client.call(own() if kind == "own" else pull())
    assert numbers(answer) == (FOUND, "FOUND", 7)
    records = world.raw_records()
    assert answer.body == records[0] + records[2] + records[3]
    assert world.stats.gets == [("G", "T", 3, len(answer.body))]


def test_nothing_matches(world: HotPathWorld, client: Client) -> None:
    fill(world, *by_number(1, 2, 3))
    assert numbers(client.call(own(queueOffset=1))) == (RETRY, "NO_MATCHED_MESSAGE", 3)


def test_the_batch_ends_behind_the_last_one_wanted(world: HotPathWorld, client: Client) -> None:
    fill(world, *by_number(*[9, 1] * 40))
    answer = client.call(own(maxMsgNums=3))
    assert numbers(answer) == (FOUND, "FOUND", 5)
    assert numbers(client.call(own())) == (FOUND, "FOUND", 63)
    assert numbers(client.call(own(queueOffset=63))) == (FOUND, "FOUND", 80)


def test_a_scan_is_as_long_as_one_by_tags(world: HotPathWorld, client: Client) -> None:
    fill(world, *by_number(*[1] * 801, 9))
    assert numbers(client.call(own())) == (RETRY, "NO_MATCHED_MESSAGE", 800)
    assert numbers(client.call(own(queueOffset=800))) == (FOUND, "FOUND", 802)


@pytest.mark.interpreted
def test_a_scan_ends_when_its_time_is_up(
    world: HotPathWorld, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world, *[f"a\x011\x02b\x01{number}" for number in range(50)])
    really = selector_verdicts._find_value

    def find_slowly(properties: bytes, mark: bytes, name: bytes) -> bytes | None:
        world.clock.advance(1)
        return really(properties, mark, name)

    monkeypatch.setattr(selector_verdicts, "_find_value", find_slowly)
    answer = client.call(own("a > 5 OR b = 'x'", queueOffset=10))
    # Of each message two properties are looked for, and its values are new.
    assert numbers(answer) == (RETRY, "NO_MATCHED_MESSAGE", 10 + -(-SCAN_LIMIT_MS // 2))
    answer = client.call(own("a > 5 OR b = 'x'", queueOffset=9))
    assert int(answer.ext_fields["nextBeginOffset"]) > 12, "known values are not judged again"


def test_a_scan_unit_by_unit_ends_when_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, filter_support_retry=True)
    subscribe(world)
    fill(
        world, *[f"RETRY_TOPIC\x01T\x02a\x011\x02TAGS\x01{n}" for n in range(50)], topic="%RETRY%G"
    )
    really = world.loop_reader.view_of_file

    def view_slowly(phy_offset: int) -> memoryview | None:
        world.clock.advance(1)
        return really(phy_offset)

    monkeypatch.setattr(world.loop_reader, "view_of_file", view_slowly)
    answer = world.client().call(own("TRUE", topic="%RETRY%G", queueOffset=10))
    # Each unit is checked against its record first: two looks at the log.
    assert numbers(answer) == (RETRY, "NO_MATCHED_MESSAGE", 10 + -(-SCAN_LIMIT_MS // 2))


def test_messages_that_are_gone(world: HotPathWorld, client: Client) -> None:
    fill(world, *by_number(9, 9, 1))
    world.counters[MIN_PHY_OFFSET] = len(world.raw_records()[0])
    answer = client.call(own())
    assert numbers(answer) == (FOUND, "FOUND", 3)
    world.counters[MIN_PHY_OFFSET] = 1 << 20
    assert numbers(client.call(own())) == (RETRY, "MESSAGE_WAS_REMOVING", 3)


def test_class_filter_mode_gives_everything(world: HotPathWorld, client: Client) -> None:
    subscribe(world, replace(SQL, class_filter_mode=True))
    fill(world, *by_number(1, 9))
    assert numbers(client.call(pull())) == (FOUND, "FOUND", 2)
    assert len(client.call(pull()).body) == sum(map(len, world.raw_records()))


# -- checks --------------------------------------------------------------------------------------

OFF = "The broker does not support consumer to filter message by SQL92"


def refusal(answer: RemotingCommand) -> tuple[int, str | None]:
    return answer.code, answer.remark


@pytest.mark.parametrize(
    ("kind", "expression", "on", "expected"),
    [
        ("SQL92", "a > 5", False, (1, OFF)),
        ("SQL92", "a >", False, (1, OFF)),
        ("JS", "a > 5", False, (1, OFF.replace("SQL92", "JS"))),
        ("SQL92", "", False, (23, "the expression is incomplete")),
        ("SQL92", "a >", True, (23, "the expression is incomplete")),
        ("SQL92", None, True, (23, "the expression is incomplete")),
        ("JS", "a > 5", True, (23, "unknown filter type JS, use TAG or SQL92")),
    ],
)
def test_a_pull_with_an_expression_is_checked(
    tmp_path: Path, kind: str, expression: str | None, on: bool, expected: tuple[int, str]
) -> None:
    world = make_world(tmp_path, enable_property_filter=on)
    request = pull_request(subscription=expression, expressionType=kind)
    code, words = expected
    if code == 23:
        words = f"parse the consumer's subscription failed: {words}"
    assert refusal(world.client().call(request)) == (code, words)


def test_a_pull_after_a_heartbeat_is_checked_in_order(tmp_path: Path) -> None:
    world = make_world(tmp_path, enable_property_filter=False)
    client = world.client()
    world.consumers.groups.add("G")
    world.consumers.subscriptions["G", "T"] = SQL
    assert client.call(pull(subVersion=8)).code == 25
    assert refusal(client.call(pull())) == (
        27,
        "group G has no filter for topic T: its expression could not be compiled, see the "
        "broker's log",
    )
    world.filters.register("G", [replace(SQL, sub_version=6)])
    assert refusal(client.call(pull())) == (
        28,
        "the filter of group G for topic T is not the latest: version 6, the consumer has 7",
    )
    world.filters.register("G", [SQL])
    assert refusal(client.call(pull())) == (1, OFF)


# -- retry topics --------------------------------------------------------------------------------

RETRIED = [f"RETRY_TOPIC\x01T\x02a\x01{number}\x02TAGS\x01t" for number in (9, 1, 8)]


@pytest.mark.parametrize("supported", [False, True])
def test_retried_messages(tmp_path: Path, supported: bool) -> None:
    """They pass unfiltered, unless the broker is told to filter them."""
    world = make_world(tmp_path, filter_support_retry=supported)
    subscribe(world)
    retry = SubscriptionData(topic="%RETRY%G", sub_string="*", sub_version=7)
    world.consumers.subscriptions["G", "%RETRY%G"] = retry
    fill(world, *RETRIED, "RETRY_TOPIC\x01other\x02a\x011", topic="%RETRY%G")
    answer = world.client().call(pull(topic="%RETRY%G"))
    records = world.raw_records()
    wanted = [records[0], records[2], records[3]] if supported else records
    assert numbers(answer) == (FOUND, "FOUND", 4)
    assert answer.body == b"".join(wanted)


def test_retried_messages_by_tag_and_properties(tmp_path: Path) -> None:
    world = make_world(tmp_path, filter_support_retry=True)
    subscribe(world)
    fill(world, *RETRIED, "RETRY_TOPIC\x01T\x02a\x019\x02TAGS\x01other", topic="%RETRY%G")
    answer = world.client().call(pull_request(topic="%RETRY%G", subscription="t"))
    records = world.raw_records()
    assert answer.body == records[0] + records[2]


def test_other_topics_are_not_touched_by_that_setting(tmp_path: Path) -> None:
    world = make_world(tmp_path, filter_support_retry=True)
    subscribe(world)
    fill(world, *RETRIED)
    assert len(world.client().call(pull_request()).body) == sum(map(len, world.raw_records()))


# -- long polls ----------------------------------------------------------------------------------


def arrive(world: HotPathWorld, *numbers_: int) -> None:
    fill(world, *by_number(*numbers_))
    world.hold.wake(("T", 0))
    world.server.flush()


@pytest.mark.parametrize("kind", ["own", "heartbeat"])
def test_a_held_pull_wakes_for_a_match_only(world: HotPathWorld, client: Client, kind: str) -> None:
    subscribe(world)
    request = own(sysFlag=6) if kind == "own" else pull(sysFlag=2)
    client.send(request)
    world.turn()
    arrive(world, 1, 2)
    assert client.answers() == []
    arrive(world, 9, 1)
    (answer,) = client.answers()
    assert numbers(answer) == (FOUND, "FOUND", 4)
    assert answer.body == world.raw_records()[2]
    assert world.hold.is_empty


def test_a_held_pull_says_how_far_it_looked(world: HotPathWorld, client: Client) -> None:
    client.send(own(sysFlag=6))
    world.turn()
    arrive(world, 1, 2)
    world.clock.advance(15_000)
    world.hold.scan(world.clock.monotonic_ms())
    world.server.flush()
    (answer,) = client.answers()
    assert numbers(answer) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE", 2)


def test_a_held_pull_follows_a_newer_expression(world: HotPathWorld, client: Client) -> None:
    subscribe(world)
    client.send(pull(sysFlag=2))
    world.turn()
    subscribe(world, replace(SQL, sub_string="a < 5", sub_version=8))
    arrive(world, 9)
    assert client.answers() == []
    arrive(world, 1)
    (answer,) = client.answers()
    assert answer.body == world.raw_records()[1]


def test_a_held_pull_whose_expression_became_wrong_is_refused(
    world: HotPathWorld, client: Client
) -> None:
    subscribe(world)
    client.send(pull(sysFlag=2))
    world.turn()
    subscribe(world, replace(SQL, sub_string="a <", sub_version=8))
    arrive(world, 9)
    (answer,) = client.answers()
    assert answer.code == 27
    assert world.hold.is_empty


def test_a_held_pull_may_become_one_by_tags(world: HotPathWorld, client: Client) -> None:
    subscribe(world)
    client.send(pull(sysFlag=2))
    world.turn()
    subscribe(world, SubscriptionData(topic="T", sub_string="*", sub_version=8))
    arrive(world, 1)
    (answer,) = client.answers()
    assert answer.body == world.raw_records()[0]


@pytest.mark.parametrize("by_tags", [False, True])
def test_a_held_pull_that_cannot_look_to_the_end_is_answered(
    world: HotPathWorld, client: Client, by_tags: bool
) -> None:
    """Nothing would wake it for the rest."""
    client.send(pull_request(sysFlag=6, subscription="wanted") if by_tags else own(sysFlag=6))
    world.turn()
    arrive(world, *[1] * 801)
    (answer,) = client.answers()
    assert numbers(answer) == (RETRY, "NO_MATCHED_MESSAGE", 800)
    assert world.hold.is_empty
