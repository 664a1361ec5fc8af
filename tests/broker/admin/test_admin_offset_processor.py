"""broker.admin.admin_offset_processor: the tables of offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.admin.admin_offset_processor import MAX_OFFSET
from remoting.body.reset_offset import QueryCorrectionOffsetBody
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import assert_same_answer, golden, json_of, request_of
from tests.broker.processor_world import World


@pytest.mark.parametrize("code", [43, 45])
def test_tables_of_java(tmp_path: Path, code: int) -> None:
    world = World(tmp_path)
    request, answer = golden(code)
    assert_same_answer(world.ask(world.admin_offset(), request), answer)


@pytest.mark.parametrize("code", [43, 45])
def test_offsets_that_rest_on_another_log_are_nobodys_to_copy(tmp_path: Path, code: int) -> None:
    world = World(tmp_path)
    said: list[str | None] = ["the log was cut at 5"]
    processor = world.admin_offset(find_objection=lambda: said[0])
    answer = world.ask(processor, request_of(code))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "are not to be used: the log was cut at 5" in answer.remark
    said[0] = None
    assert world.ask(processor, request_of(code)).code == ResponseCode.SUCCESS


def test_a_slave_of_5_x_gets_an_edition(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit("g", "t", 5, 6)
    request = RemotingCommand.request(43)
    request.version = 475
    assert world.ask(world.admin_offset(), request).body == (
        b'{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":0},'
        b'"offsetTable":{"t@g":{0:5,1:6}}}'
    )


def test_a_master_of_5_x_that_comes_online_gets_an_edition(tmp_path: Path) -> None:
    """Without it 5.3.3 ends in a NullPointerException, and tries again for ever."""
    world = World(tmp_path)
    world.schedule_offsets.update_offset(3, 5)
    request = RemotingCommand.request(45)
    request.version = 475
    assert world.ask(world.admin_offset(), request).body == (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":0},"offsetTable":{3:5}}'
    )


def test_topics_of_a_group_for_mqadmin_of_5_x(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.commit("g", "t1", 1)
    world.commit("g", "t2", 1)
    world.commit("other", "t3", 1)
    body = json_of(world.ask(world.admin_offset(), request_of(343, group="g")).body)
    assert body["brokerAddr"] == "127.0.0.2:20911"
    assert sorted(body["topicList"]) == ["t1", "t2"]


def corrections(world: World, **fields: str) -> dict[int, int]:
    request = request_of(308, topic="t", compareGroup="g", **fields)
    answer = world.ask(world.admin_offset(), request)
    assert answer.code == 0
    return QueryCorrectionOffsetBody.from_json_bytes(answer.body).correction_offsets


def test_correction_offsets(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.put("t", 1, base=5)
    world.commit("g", "t", 7, 4, 9)
    world.commit("slow", "t", 3, 6)
    world.commit("slowest", "t", 1, 5)
    world.commit("slowest", "other", 0, 0)
    assert corrections(world) == {0: 1, 1: MAX_OFFSET, 2: 9}
    assert corrections(world, filterGroups="slowest,unknown") == {0: 3, 1: MAX_OFFSET, 2: 9}
    assert corrections(world, filterGroups="slow,slowest,g") == {}
    assert world.offsets.query_offsets("slow", "t") == {0: 3, 1: 6}, "nothing is deleted"


def cloned(world: World, **fields: str) -> dict[str, dict[int, int]]:
    request = request_of(314, srcGroup="g", destGroup="new", **fields)
    assert world.ask(world.admin_offset(), request).code == 0
    names = world.offsets.topics_of_group("new")
    return {name: world.offsets.query_offsets("new", name) for name in names}


def test_a_clone_of_one_topic(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("t1", 2)
    world.topic("t2", 1)
    world.commit("g", "t1", 3, 4)
    world.commit("g", "t2", 5)
    assert cloned(world, topic="t1") == {"t1": {0: 3, 1: 4}}
    assert World(tmp_path).offsets.query_offsets("new", "t1") == {0: 3, 1: 4}, "saved"


@pytest.mark.parametrize("fields", [{}, {"topic": " "}])
def test_a_clone_of_every_topic(tmp_path: Path, fields: dict[str, str]) -> None:
    world = World(tmp_path)
    world.topic("t1", 1)
    world.topic("t2", 1)
    world.commit("g", "t1", 3)
    world.commit("g", "t2", 5)
    world.commit("g", "gone", 6)
    assert cloned(world, **fields) == {"t1": {0: 3}, "t2": {0: 5}}


@pytest.mark.parametrize(("offline", "topics"), [("false", ["t1"]), ("true", ["t1", "t2"])])
def test_a_clone_of_topics_that_are_not_subscribed_any_more(
    tmp_path: Path, offline: str, topics: list[str]
) -> None:
    world = World(tmp_path)
    world.topic("t1", 1)
    world.topic("t2", 1)
    world.commit("g", "t1", 3)
    world.commit("g", "t2", 5)
    world.heartbeat("c", consumer="g", topics=("t1",))
    assert sorted(cloned(world, offline=offline)) == topics


def test_a_clone_that_cannot_be_saved(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic("t", 1)
    world.commit("g", "t", 3)
    (tmp_path / "consumerOffset.json.tmp").mkdir()
    answer = world.ask(
        world.admin_offset(), request_of(314, srcGroup="g", destGroup="new", topic="t")
    )
    assert answer.code == 1
    assert answer.remark == (
        "the copy of the offsets for group new is in effect but could not be saved; saving is "
        "retried every few seconds (see the broker's log), and a restart before it "
        "succeeds loses the change"
    )
    assert world.offsets.query_offset("new", "t", 0) == 3
