"""What a pop of lite topics gets, in which order, how often, and whom it lets wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from remoting.errors import RequestError
from remoting.lite_names import to_lmq_name
from tests.broker.lite.served_world import PARENT, RECORD, LiteServed


@pytest.fixture
def world(tmp_path: Path) -> LiteServed:
    return LiteServed(tmp_path)


def test_a_lite_topic_is_closed_until_all_is_acknowledged(world: LiteServed) -> None:
    world.subscribe("PARTIAL_ADD", "s")
    world.send("s", "s")
    assert world.popped() == [0, 1]
    world.send("s")
    assert world.popped() == []
    world.ack("s", 1)
    assert world.popped() == []
    world.ack("s", 0)
    assert world.popped() == [2]
    assert world.counts == [0]


def test_what_was_not_acknowledged_comes_again_with_what_followed_it(world: LiteServed) -> None:
    world.subscribe("PARTIAL_ADD", "s")
    world.send("s", "s", "s")
    assert world.popped() == [0, 1, 2]
    world.ack("s", 0)
    world.pass_time(59_999)
    assert world.popped() == []
    world.pass_time(1)
    world.send("s")
    assert world.popped() == [1, 2, 3]
    assert world.counts == [1, 1, 0]
    world.pass_time(60_000)
    assert world.popped() == [1, 2, 3]
    assert world.counts == [2, 2, 1]


def test_many_lite_topics_share_an_answer_as_far_as_it_reaches(world: LiteServed) -> None:
    world.subscribe("PARTIAL_ADD", "a", "b", "c")
    world.send("a", "b", "a", "c")
    assert world.popped(maxMsgNum=3) == [0, 2, 1]
    assert world.popped(maxMsgNum=3) == [3]


def test_the_same_attempt_gets_the_same_messages(world: LiteServed) -> None:
    world.subscribe("PARTIAL_ADD", "s")
    world.send("s")
    assert world.popped(attemptId="x") == [0]
    world.dispatcher.offer(world.registry.groups_of(PARENT)[0], to_lmq_name(PARENT, "s"))
    assert world.popped(attemptId="y") == []
    world.dispatcher.offer(world.registry.groups_of(PARENT)[0], to_lmq_name(PARENT, "s"))
    assert world.popped(attemptId="x") == [0]
    assert world.counts == [0]


def test_messages_that_are_gone_are_passed_over(world: LiteServed) -> None:
    world.subscribe("PARTIAL_ADD", "s")
    world.send("s", "s", "s")
    world.gone[to_lmq_name(PARENT, "s")] = 2
    assert world.popped() == [2]
    assert world.lite_queues.committed("G", to_lmq_name(PARENT, "s")) == 2


@pytest.mark.parametrize(("young", "first"), [(True, [0, 1]), (False, [1])])
def test_a_new_group_begins_where_the_queue_is_young(
    tmp_path: Path, young: bool, first: list[int]
) -> None:
    world = LiteServed(tmp_path, young=young)
    world.send("s", "s")
    world.subscribe("PARTIAL_ADD", "s")
    assert world.popped() == first


def test_an_operators_reset_wins_and_opens_the_queue(world: LiteServed) -> None:
    world.subscribe("PARTIAL_ADD", "s")
    world.send("s", "s")
    world.popped()
    world.ack("s", 0)
    world.offsets.assign_reset_offset("operator", "G", to_lmq_name(PARENT, "s"), 0, 0)
    world.ack("s", 1)
    world.dispatcher.dispatch_all()
    world.dispatcher.step()
    assert world.popped() == [0, 1]


def test_a_pop_waits_for_an_event_of_its_client(world: LiteServed) -> None:
    world.subscribe("PARTIAL_ADD", "s")
    world.subscribe("PARTIAL_ADD", "other", client="d")
    world.post_pop(pollTime=10_000)
    world.send("other")
    assert world.answers == []
    world.send("s")
    assert len(world.answers) == 1
    world.post_pop(pollTime=10_000)
    world.pass_time(9_000)
    assert len(world.answers) == 1
    world.pass_time(1_100)
    assert world.answers[-1][0].code == 210
    for _ in range(5):
        world.post_pop(pollTime=10_000)
    assert world.answers[-1][0].code == 209


def test_an_offset_behind_the_end_is_of_messages_that_are_gone(world: LiteServed) -> None:
    """This broker was a slave that had the offset and not the messages; others come."""
    lmq = to_lmq_name(PARENT, "a")
    world.offsets.commit_offset("x", "G", lmq, 0, 7)
    world.subscribe("PARTIAL_ADD", "a")
    world.send("a")
    assert world.popped() == [0]
    assert world.lite_queues.committed("G", lmq) == 0
    world.ack("a", 0)
    assert not world.lite_queues.wants("G", lmq)


def test_waiting_pops_hear_of_the_deletion_of_their_group(world: LiteServed) -> None:
    world.group("H")
    world.subscribe("PARTIAL_ADD", "a")
    for client, group in (("c", "G"), ("c", "G"), ("unknown", "G"), ("c", "H")):
        world.post_pop(client, group, pollTime=20_000)
    assert world.answers == []
    del world.groups["G"]
    world.waiters.wake_group("G")
    sent = [call.args[0] for call in world.connection.send_command.call_args_list]
    assert [command.code for command in sent if command.code == 26] == [26] * 3
    assert world.waiters.polling_num("c", "H", 0) == 1


def test_a_client_of_another_group_takes_no_events(world: LiteServed) -> None:
    world.group("H")
    world.subscribe("PARTIAL_ADD", "s")
    world.send("s")
    assert world.popped("c", "H") == []
    assert world.popped("unknown") == []
    assert world.popped() == [0]


@pytest.mark.parametrize(
    ("others", "code"),
    [
        ({"topic": "None"}, 17),
        ({"topic": "T"}, 29),
        ({"consumerGroup": "None"}, 26),
        ({"maxMsgNum": 33}, 29),
        ({"maxMsgNum": -1}, 1),
        ({"invisibleTime": -1}, 29),
        ({"bornTime": 1}, 210),
    ],
)
def test_what_is_refused(world: LiteServed, others: dict[str, object], code: int) -> None:
    with pytest.raises(RequestError) as error:
        world.post_pop(**others)
    assert error.value.code == code


def test_a_group_that_is_bound_elsewhere_is_refused(world: LiteServed) -> None:
    world.group("H", lite__bind__topic="Other")
    with pytest.raises(RequestError, match="subscription bind topic not match, H"):
        world.post_pop("c", "H")


@pytest.mark.parametrize("name", ["clientId", "attemptId"])
def test_names_that_are_kept_are_bounded(world: LiteServed, name: str) -> None:
    world.post_pop(**{name: "x" * 255})
    with pytest.raises(RequestError, match=f"{name} of 256 characters"):
        world.post_pop(**{name: "x" * 256})


def test_an_answer_of_many_large_messages_fits_a_frame(world: LiteServed) -> None:
    lites = [f"s{number}" for number in range(5)]
    world.subscribe("PARTIAL_ADD", *lites)
    world.send(*lites)
    large = bytes(4_194_303)
    for queue in world.queues.values():
        queue[0] = memoryview(bytes(queue[0]) + large)
    sizes = []
    while not sizes or sizes[-1]:
        world.post_pop()
        sizes.append(len(world.answers.pop()[1]))
    assert sizes == [RECORD + len(large)] * 5 + [0]


def test_a_pop_that_takes_fewer_begins_the_counts_of_the_rest_anew(tmp_path: Path) -> None:
    """As RocketMQ's list of the last pop (docs/lite_topics.md says so)."""
    world = LiteServed(tmp_path)
    world.subscribe("PARTIAL_ADD", "s")
    world.send("s", "s")
    shown = []
    for most in (2, 2, 1, 2, 2):
        assert world.popped(maxMsgNum=most) == list(range(most))
        shown.append(world.counts)
        world.pass_time(60_001)
    assert shown == [[0, 0], [1, 1], [2], [3, 0], [4, 1]]
