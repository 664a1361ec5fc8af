"""broker.out.topic_queue_mapping_clean_service: what of a static topic is forgotten, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from broker.out.topic_queue_mapping_clean_service import TopicQueueMappingCleanService
from broker.topic.topic_queue_mapping_manager import TopicQueueMappingManager
from remoting.body.message_queue import MessageQueue
from remoting.body.route import TopicRouteData
from remoting.body.stats import TopicOffset, TopicStatsTable
from remoting.body.topic_config import TopicConfig, TopicConfigAndQueueMapping
from remoting.body.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import FakeClock

OLD = LogicQueueMappingItem(bname="b", queue_id=5)
LEADER = LogicQueueMappingItem(bname="a", gen=1, logic_offset=10_000)
PASSED_ON = [LogicQueueMappingItem(bname="a", queue_id=1), replace(LEADER, bname="b", queue_id=3)]
ALL = [*PASSED_ON, LogicQueueMappingItem(bname="c", gen=2, logic_offset=20_000)]


def detail_of(broker: str, **queues: list[LogicQueueMappingItem]) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail(
        topic="T",
        total_queues=2,
        bname=broker,
        epoch=5,
        hosted_queues={int(name[1:]): items for name, items in queues.items()},
    )


class World:
    """Broker "a" with the service, and the answers of others."""

    def __init__(self, tmp_path: Path) -> None:
        self.mappings = TopicQueueMappingManager(tmp_path / "m.json", "a", FakeClock())
        self.mappings.load()
        self.mappings.update(detail_of("a", q0=[OLD, LEADER], q1=PASSED_ON), force=False)
        self.hour = 4
        self.bounds: tuple[int, int] | None = (7, 9)
        self.asked_for_bounds = 0
        self.theirs = detail_of("c", q1=ALL)
        self.leader_of_1 = self.theirs
        self.service = TopicQueueMappingCleanService(
            self.mappings, self, self.route, frozenset({4}), lambda: self.hour
        )

    def ask(self, broker_name: str, code: int, ext_fields: Mapping[str, str]) -> RemotingCommand:
        if code == 351:
            assert (broker_name, ext_fields["lo"]) == ("c", "true")
            config = TopicConfig(topic_name="T")
            body = TopicConfigAndQueueMapping.of(config, self.theirs).to_json_bytes()
            return RemotingCommand(0, body=body)
        assert (broker_name, code, ext_fields["lo"]) == ("b", 202, "false")
        self.asked_for_bounds += 1
        if self.bounds is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "is down")
        queue = MessageQueue(topic="T", broker_name="b", queue_id=5)
        offset = TopicOffset(min_offset=self.bounds[0], max_offset=self.bounds[1])
        return RemotingCommand(
            0, body=TopicStatsTable(offset_table={queue: offset}).to_json_bytes()
        )

    def route(self, topic: str, _timeout_ms: int) -> TopicRouteData:
        stale = replace(detail_of("b", q1=PASSED_ON).info(), epoch=4)
        led = self.leader_of_1.info()
        return TopicRouteData(topic_queue_mapping_by_broker={"c": led, "b": stale})

    def after(self) -> dict[int, list[LogicQueueMappingItem]]:
        self.service.clean()
        return self.mappings.table["T"].hosted_queues


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_was_passed_on_further_goes(world: World) -> None:
    assert world.after() == {0: [OLD, LEADER]}
    assert world.mappings.data_version.counter == 2


@pytest.mark.parametrize("bounds", [(9, 9), (0, 0)])
def test_an_item_whose_messages_are_gone_goes(world: World, bounds: tuple[int, int]) -> None:
    world.bounds = bounds
    assert world.after()[0] == [LEADER]


def test_an_undecided_leader_keeps_the_item_before_it(world: World) -> None:
    world.bounds = (0, 0)
    undecided = replace(LEADER, logic_offset=-1)
    world.mappings.update(detail_of("a", q0=[OLD, undecided], q1=PASSED_ON), force=True)
    assert world.after()[0] == [OLD, undecided]


def test_only_in_the_hours_of_delete_when(world: World) -> None:
    world.hour, world.bounds = 5, (0, 0)
    assert world.after() == {0: [OLD, LEADER], 1: PASSED_ON}


@pytest.mark.parametrize(
    "theirs",
    [
        replace(detail_of("c", q1=ALL), epoch=6),
        replace(detail_of("c", q1=ALL), total_queues=3),
        detail_of("c"),
        detail_of("c", q1=PASSED_ON),
    ],
)
def test_a_leader_that_does_not_know_better_changes_nothing(
    world: World, theirs: TopicQueueMappingDetail
) -> None:
    world.theirs = theirs
    assert world.after()[1] == PASSED_ON


def test_a_next_leader_that_still_leads_keeps_the_items(world: World) -> None:
    world.leader_of_1 = detail_of("b", q1=PASSED_ON)
    assert world.after()[1] == PASSED_ON


def test_a_broker_that_does_not_answer_stops_nothing_else(world: World) -> None:
    world.bounds = None
    assert world.after() == {0: [OLD, LEADER]}


def test_a_broker_that_does_not_answer_is_asked_once_a_run(world: World) -> None:
    for topic in ("U", "V"):
        detail = replace(detail_of("a", q0=[OLD, LEADER]), topic=topic)
        world.mappings.update(detail, force=False)
    world.bounds = None
    world.after()
    assert world.asked_for_bounds == 1
    world.bounds = (9, 9)
    assert world.after()[0] == [LEADER], "it is asked again in the next run"
