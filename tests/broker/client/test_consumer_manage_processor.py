"""broker.client.consumer_manage_processor: member lists and consumer offsets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.wiring.broker_tables import OWN_GROUPS
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import (
    CONFIG,
    StoredMessage,
    assert_same_answer,
    golden,
    request_of,
)
from tests.broker.processor_world import World


@pytest.mark.parametrize("number", [1, 2, 3])
def test_member_lists_of_java(tmp_path: Path, number: int) -> None:
    world = World(tmp_path)
    request, answer = golden(38, number)
    assert answer is not None
    client_id = "192.0.2.2@gc1" if b"gc1" in answer.body else answer.body.decode().split('"')[3]
    world.heartbeat(client_id, consumer=request.ext_fields["consumerGroup"], topics=("t",))
    assert_same_answer(world.ask(world.consumer_manage(), request), answer)


def test_nobody_is_there(tmp_path: Path) -> None:
    world = World(tmp_path)
    answer = world.ask(world.consumer_manage(), request_of(38, consumerGroup="g"))
    assert (answer.code, answer.remark) == (1, "no consumer for this group, g")
    assert answer.has_ext_fields


@pytest.mark.parametrize("number", [1, 2, 3])
def test_new_consumers_of_java_start_at_zero(tmp_path: Path, number: int) -> None:
    world = World(tmp_path)
    request, answer = golden(14, number)
    assert_same_answer(world.ask(world.consumer_manage(), request), answer)


@pytest.mark.parametrize("number", [4, 5, 6])
def test_commits_of_java(tmp_path: Path, number: int) -> None:
    world = World(tmp_path)
    request, answer = golden(15, number)
    fields = request.ext_fields
    world.groups.find_or_create(fields["consumerGroup"])
    world.topics.create(fields["topic"], 8, 6)
    assert_same_answer(world.ask(world.consumer_manage(), request), answer)
    stored = world.offsets.query_offset(
        fields["consumerGroup"], fields["topic"], int(fields["queueId"])
    )
    assert stored == int(fields["commitOffset"])


@pytest.mark.parametrize(
    ("group", "topic", "queue_id", "code", "remark"),
    [
        ("no.body", "t", 0, 26, "Group no.body not exist!"),
        ("nobody", "nothing", 0, 17, "Topic nothing not exist!"),
        ("nobody", "t", 4, 1, "queueId[4] is illegal, topic:[t] has 4 queues"),
        ("g", "nothing", 0, 17, "Topic nothing not exist!"),
        ("g", "t", 4, 1, "queueId[4] is illegal, topic:[t] has 4 queues"),
        ("g", "t", -1, 1, "queueId[-1] is illegal, topic:[t] has 4 queues"),
    ],
)
def test_no_row_for_what_does_not_exist(
    tmp_path: Path, group: str, topic: str, queue_id: int, code: int, remark: str
) -> None:
    """As in 5.3.3. 4.9.8 keeps every row that anybody names, and writes them all every 5 s."""
    world = World(tmp_path)
    world.groups.find_or_create("g")
    world.topics.create("t", 4, 6)
    known = world.groups.group_names()
    request = request_of(
        15, consumerGroup=group, topic=topic, queueId=str(queue_id), commitOffset="5"
    )
    answer = world.ask(world.consumer_manage(), request)
    assert (answer.code, answer.remark) == (code, remark)
    assert world.offsets.query_offset(group, topic, queue_id) is None
    assert world.groups.group_names() == known


@pytest.mark.parametrize("group", OWN_GROUPS)
def test_nobody_says_how_far_the_broker_itself_is(tmp_path: Path, group: str) -> None:
    """Transactions before that would never be checked, and popped messages never come again."""
    world = World(tmp_path)
    world.offsets = ConsumerOffsetManager(tmp_path / "own.json", OWN_GROUPS)
    world.offsets.commit_own_offset("broker", group, "t", 0, 5)
    request = request_of(15, consumerGroup=group, topic="t", queueId="0", commitOffset="99")
    answer = world.ask(world.consumer_manage(), request)
    assert (answer.code, answer.remark) == (
        16,
        f"the offsets of group {group} are the broker's own",
    )
    assert world.offsets.query_offset(group, "t", 0) == 5


@pytest.mark.parametrize("group", OWN_GROUPS)
def test_no_operator_says_it_either(tmp_path: Path, group: str) -> None:
    """By a clone of another group's offsets, or by a deletion of the group."""
    world = World(tmp_path)
    world.offsets = ConsumerOffsetManager(tmp_path / "own.json", OWN_GROUPS)
    world.topic("t", 1)
    world.commit("g", "t", 99)
    world.offsets.commit_own_offset("broker", group, "t", 0, 5)
    clone = request_of(314, srcGroup="g", destGroup=group, topic="t", offline="true")
    delete = request_of(207, groupName=group, cleanOffset="true")
    for processor, request in ((world.admin_offset(), clone), (world.admin_group(), delete)):
        answer = world.ask(processor, request)
        assert (answer.code, answer.remark) == (
            16,
            f"the offsets of group {group} are the broker's own",
        )
    assert world.offsets.query_offset(group, "t", 0) == 5


@pytest.mark.parametrize("creates", [True, False])
def test_a_commit_creates_its_group_where_a_pull_does(tmp_path: Path, creates: bool) -> None:
    """Tools of Java set where a new group begins, and hear nothing: Java commits one-way."""
    world = World(tmp_path, replace(CONFIG, auto_create_subscription_group=creates))
    world.topics.create("t", 4, 6)
    request = request_of(15, consumerGroup="new", topic="t", queueId="3", commitOffset="5")
    assert world.ask(world.consumer_manage(), request).code == (0 if creates else 26)
    assert world.offsets.query_offset("new", "t", 3) == (5 if creates else None)
    assert (world.groups.find("new") is not None) is creates


def test_an_offset_that_is_stored_may_change(tmp_path: Path) -> None:
    """Though its topic has fewer queues now, or is gone: the client is told nothing new."""
    world = World(tmp_path)
    world.offsets.commit_offset("192.0.2.1:1", "g", "gone", 9, 5)
    request = request_of(15, consumerGroup="g", topic="gone", queueId="9", commitOffset="6")
    assert world.ask(world.consumer_manage(), request).code == ResponseCode.SUCCESS
    assert world.offsets.query_offset("g", "gone", 9) == 6


FIRST = StoredMessage(1_000, 1)


@pytest.mark.parametrize(
    ("stored", "base", "on_disk", "zero", "offset"),
    [
        (7, 0, False, None, 7),
        (7, 0, True, "false", 7),
        (0, 5, True, None, 0),
        (None, 0, False, None, 0),
        (None, 0, True, None, None),
        (None, 5, False, None, None),
        (None, 0, False, "false", None),
        (None, 0, False, "true", 0),
        (-1, 0, False, None, 0),
        (-1, 5, False, None, None),
    ],
)
def test_where_a_group_goes_on(
    tmp_path: Path,
    stored: int | None,
    base: int,
    on_disk: bool,
    zero: str | None,
    offset: int | None,
) -> None:
    world = World(tmp_path)
    world.store.put("t", 0, FIRST, base=base)
    world.store.memory_from = 2_000 if on_disk else 0
    if stored is not None:
        world.commit("g", "t", stored)
    fields = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    if zero is not None:
        fields["setZeroIfNotFound"] = zero
    answer = world.ask(world.consumer_manage(), request_of(14, **fields))
    if offset is None:
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        assert answer.has_ext_fields
        assert answer.ext_fields == {}
    else:
        assert (answer.code, answer.ext_fields) == (0, {"offset": str(offset)})


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    answer = world.ask(world.consumer_manage(), request_of(15, consumerGroup="g", topic="t"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "queueId" in answer.remark
