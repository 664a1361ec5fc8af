"""Static topics at a broker: which physical queue serves what a client asks, here or elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.pull.static_topic_entry import StaticTopicEntry
from broker.pull.static_topic_processor import StaticTopicProcessor
from remoting.body.message_queue import MessageQueue
from remoting.body.stats import ConsumeStats, TopicOffset, TopicStatsTable
from remoting.body.topic_config import TopicConfigAndQueueMapping
from remoting.body.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.request_processor import RequestProcessor
from tests.broker.broker_fakes import json_of, request_of
from tests.broker.hot_path_world import HotPathWorld, pull_request, send_request
from tests.broker.processor_world import World

OWN, OTHER = "broker-g", "broker-h"
OLD = LogicQueueMappingItem(bname=OTHER, queue_id=5, gen=0)
LEADER = LogicQueueMappingItem(bname=OWN, queue_id=1, gen=1, logic_offset=10_000)
UNDECIDED = replace(LEADER, logic_offset=-1)
FIRST = LogicQueueMappingItem(bname=OWN, queue_id=2)


def detail_of(**queues: list[LogicQueueMappingItem]) -> TopicQueueMappingDetail:
    """q0=[...]: the items of global id 0."""
    hosted = {int(name[1:]): items for name, items in queues.items()}
    return TopicQueueMappingDetail(
        topic="T", total_queues=3, bname=OWN, epoch=1, hosted_queues=hosted
    )


GONE = LogicQueueMappingItem(bname=OTHER, queue_id=6, gen=1, logic_offset=10_000)
MAPPING = detail_of(q0=[OLD, LEADER], q1=[FIRST], q2=[FIRST, GONE])
"""Of queue 2 the other broker is the leader."""


class Brokers:
    """AsksBrokers: notes what was asked; the answers by code."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, dict[str, str]]] = []
        self.answers: dict[int, RemotingCommand] = {}

    def ask(self, broker_name: str, code: int, ext_fields: Mapping[str, str]) -> RemotingCommand:
        self.asked.append((broker_name, code, dict(ext_fields)))
        return self.answers[code]


class StaticWorld(World):
    """One broker, and what it asks of the other."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.topic("T", 4)
        self.groups.find_or_create("g")
        self.brokers = Brokers()
        self.handed_over: list[RemotingCommand] = []
        self.map(MAPPING)
        ordinary: dict[int, RequestProcessor] = {}
        for processor in (
            *(self.consumer_manage(), self.admin_offset(), self.admin_queue()),
            *(self.admin_consume_stats(), self.admin_topic()),
        ):
            ordinary |= dict.fromkeys(processor.table, processor)
        self.ordinary = ordinary
        self.static = StaticTopicProcessor(self.mappings.table, ordinary, self.brokers)

    def map(self, detail: TopicQueueMappingDetail) -> None:
        self.mappings.update(detail, force=True)

    def entry(self, code: int) -> StaticTopicEntry:
        return StaticTopicEntry(
            self.mappings.table,
            self.ordinary[code],
            self.static,
            lambda _connection, request: self.handed_over.append(request),
        )

    def call(self, code: int, **fields: Any) -> RemotingCommand:
        return self.ask(self.static, request_of(code, **{"topic": "T", **fields}))

    def offset(self, code: int, **fields: Any) -> int:
        answer = self.call(code, **fields)
        assert answer.code == 0
        return int(answer.ext_fields["offset"])

    def other_says(self, code: int, answer: int = 0, body: bytes = b"", **fields: object) -> None:
        texts = {name: str(value) for name, value in fields.items()}
        self.brokers.answers[code] = RemotingCommand(answer, ext_fields=texts, body=body)


@pytest.fixture
def world(tmp_path: Path) -> StaticWorld:
    return StaticWorld(tmp_path)


# -- consumer offsets ----------------------------------------------------------------------------


def test_an_offset_is_kept_where_its_item_is(world: StaticWorld) -> None:
    assert world.call(15, consumerGroup="g", queueId=0, commitOffset=10_007).code == 0
    assert world.offsets.query_offset("g", "T", 1) == 7
    world.other_says(15)
    assert world.call(15, consumerGroup="g", queueId=0, commitOffset=42).code == 0
    [(broker, code, fields)] = world.brokers.asked
    assert (broker, code) == (OTHER, 15)
    assert fields == {
        "topic": "T",
        "consumerGroup": "g",
        "queueId": "5",
        "commitOffset": "42",
        "lo": "false",
        "bname": OTHER,
    }


def test_an_offset_is_read_from_the_newest_item_that_has_one(world: StaticWorld) -> None:
    world.other_says(14, offset=42)
    assert world.offset(14, consumerGroup="g", queueId=0) == 42
    assert world.brokers.asked[0][2]["setZeroIfNotFound"] == "false"
    world.other_says(14, offset=12_000)
    assert world.offset(14, consumerGroup="g", queueId=0) == 10_000, "as far as the item is seen"
    world.offsets.commit_offset("x", "g", "T", 1, 7)
    assert world.offset(14, consumerGroup="g", queueId=0) == 10_007
    world.other_says(14, answer=22)
    answer = world.call(14, consumerGroup="new", queueId=0)
    assert answer.code == 22
    assert answer.remark == "Not found, maybe this group consumer boot first"


def test_a_queue_that_was_never_remapped_is_as_any_other(world: StaticWorld) -> None:
    assert world.offset(14, consumerGroup="new", queueId=1) == 0
    world.offsets.commit_offset("x", "g", "T", 2, 9)
    assert world.offset(14, consumerGroup="g", queueId=1) == 9
    assert world.brokers.asked == []


# -- offsets of a queue --------------------------------------------------------------------------


def test_the_bounds_of_a_logic_queue(world: StaticWorld) -> None:
    world.store.fill("T", 1, 3, 1_000)
    world.other_says(31, offset=4)
    world.other_says(32, timestamp=77)
    assert world.offset(30, queueId=0) == 10_003
    assert world.offset(31, queueId=0) == 4
    assert world.call(32, queueId=0).ext_fields == {"timestamp": "77"}
    assert [(asked[1], asked[2]["queueId"]) for asked in world.brokers.asked] == [
        (31, "5"),
        (32, "5"),
    ]


def test_the_end_of_a_queue_whose_new_leader_is_not_decided(world: StaticWorld) -> None:
    """It is that of the old one, at its physical queue. (RocketMQ asks for the new one's id.)"""
    world.map(detail_of(q0=[OLD, UNDECIDED]))
    world.other_says(30, offset=812)
    assert world.offset(30, queueId=0) == 812
    assert world.brokers.asked[0][2]["queueId"] == "5"


@pytest.mark.parametrize(
    ("timestamp", "expected"), [(500, 42), (2_000, 42), (2_001, 10_000), (9_000, 10_003)]
)
def test_the_search_by_time_goes_through_the_items(
    world: StaticWorld, timestamp: int, expected: int
) -> None:
    world.store.fill("T", 1, 3, 4_000)
    world.other_says(29, offset=42)
    queue = MessageQueue(topic="T", broker_name=OTHER, queue_id=5)
    newest = TopicOffset(max_offset=50, last_update_timestamp=2_000)
    world.other_says(202, body=TopicStatsTable(offset_table={queue: newest}).to_json_bytes())
    assert world.offset(29, queueId=0, timestamp=timestamp) == expected


@pytest.mark.parametrize(
    ("timestamp", "expected"), [(500, 42), (3_997, 42), (3_999, 10_001), (4_000, 10_002)]
)
def test_the_search_for_the_last_message_until_a_time(
    world: StaticWorld, timestamp: int, expected: int
) -> None:
    """Between the newest of the old item and the oldest of the new one it is the old one's."""
    world.store.fill("T", 1, 3, 4_000)
    world.other_says(29, offset=42)
    world.other_says(32, timestamp=1_000)
    fields = {"queueId": 0, "timestamp": timestamp, "boundaryType": "UPPER"}
    assert world.offset(29, **fields) == expected


@pytest.mark.parametrize(
    ("code", "fields", "remark"),
    [
        (14, {"consumerGroup": "g"}, "T-2 does not exit in request process of current broker"),
        (15, {"consumerGroup": "g", "commitOffset": 1}, "T-2 does not exit"),
        (29, {"timestamp": 1}, "T-2 does not exit"),
        (30, {}, "T-2 does not exit"),
        (31, {}, f"T-2 is not leader in broker {OWN}, request code 31"),
        (32, {}, "T-2 does not exit"),
    ],
)
def test_who_does_not_lead_a_queue_says_so(
    world: StaticWorld, code: int, fields: dict[str, object], remark: str
) -> None:
    answer = world.call(code, queueId=2, **fields)
    assert answer.code == 501
    assert answer.remark is not None
    assert answer.remark.startswith(remark)


def test_an_answer_of_another_kind_is_an_error(world: StaticWorld) -> None:
    world.other_says(31, answer=17)
    answer = world.call(31, queueId=0)
    assert (answer.code, answer.remark) == (1, f"broker {OTHER} answered with code 17: None")


# -- the way in ----------------------------------------------------------------------------------


def test_only_what_may_wait_for_another_broker_leaves_the_loop(world: StaticWorld) -> None:
    world.store.fill("T", 2, 3, 1_000)
    entry = world.entry(30)

    def ask(**fields: Any) -> str | None:
        answer = entry.process_request(world.connection, request_of(30, **fields))
        return None if answer is None else answer.ext_fields["offset"]

    assert ask(topic="T", queueId=1) == "3", "global id 1 is physical queue 2"
    assert ask(topic="T", queueId=2, lo="false") == "3"
    assert ask(topic="U", queueId=1) == "0"
    assert world.handed_over == []
    assert ask(topic="T", queueId=0) is None
    assert [request.ext_fields["queueId"] for request in world.handed_over] == ["0"]
    with pytest.raises(RequestError, match="queueId"):
        entry.process_request(world.connection, request_of(30, topic="T", queueId="x"))


def test_a_forwarded_pull_does_not_wait_there(world: StaticWorld) -> None:
    world.other_says(
        *(11, 0, b"records"),
        suggestWhichBrokerId=0,
        nextBeginOffset=44,
        minOffset=0,
        maxOffset=60,
    )
    fields = dict(pull_request(queueOffset=40, sysFlag=7).ext_fields)
    answer = world.ask(world.static, request_of(11, **fields))
    assert (answer.code, answer.body) == (0, b"records")
    assert answer.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "44",
        "minOffset": "0",
        "maxOffset": "10000",
        "offsetDelta": "0",
    }
    [(broker, code, asked)] = world.brokers.asked
    assert (broker, code) == (OTHER, 11)
    assert (asked["sysFlag"], asked["queueId"], asked["queueOffset"]) == ("4", "5", "40")
    assert (asked["lo"], asked["bname"]) == ("false", OTHER)
    world.other_says(11, answer=16)
    assert world.ask(world.static, request_of(11, **fields)).code == 1


# -- administration ------------------------------------------------------------------------------


def create(detail: TopicQueueMappingDetail, **changes: object) -> RemotingCommand:
    fields = {
        "topic": "T",
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        **changes,
    }
    request = request_of(513, **fields)
    request.body = detail.to_json_bytes()
    return request


def test_a_mapping_comes_with_the_topics_settings(world: StaticWorld) -> None:
    admin = world.admin_topic()
    newer = replace(MAPPING, epoch=2)
    assert world.ask(admin, create(newer, readQueueNums=9, writeQueueNums=8)).code == 0
    found = world.topics.find("T")
    assert found is not None
    assert (found.read_queue_nums, found.write_queue_nums) == (9, 8)
    assert world.mappings.table["T"] == newer
    answer = world.ask(admin, create(replace(MAPPING, epoch=1), readQueueNums=4))
    assert (answer.code, answer.remark) == (1, "Can't accept data with small epoch 1 < 2")
    assert world.topics.find("T") == found, "refused whole"
    answer = world.ask(admin, create(replace(MAPPING, epoch=9), topicFilterType="NONE"))
    assert answer.code != 0
    assert world.mappings.table["T"] == newer, "refused whole"
    assert world.ask(admin, create(replace(MAPPING, epoch=1), force="true")).code == 0
    answer = world.ask(admin, create(replace(MAPPING, topic="U", epoch=3)))
    assert answer.code == 1
    assert world.ask(admin, request_of(513, **create(MAPPING).ext_fields)).code == 1
    world.is_slave = True
    assert "from slave broker" in str(world.ask(admin, create(newer)).remark)


def test_what_shows_the_mapping(world: StaticWorld) -> None:
    admin = world.admin_topic()
    body = world.ask(admin, request_of(351, topic="T", lo="true")).body
    assert TopicConfigAndQueueMapping.from_json_bytes(body).mapping_detail == MAPPING
    assert "mappingDetail" not in json_of(world.ask(admin, request_of(351, topic="T")).body)
    table = json_of(world.ask(admin, request_of(21)).body)
    assert list(table["topicQueueMappingDetailMap"]) == ["T"]
    assert table["mappingDataVersion"]["counter"] == 1
    assert world.ask(admin, request_of(215, topic="T")).code == 0
    assert world.mappings.table == {}


def test_a_groups_progress_in_a_queue_it_never_came_to(world: StaticWorld) -> None:
    """-1, so that the tool looks at the item before; 0 for an ordinary topic."""
    world.offsets.commit_offset("x", "g", "T", 1, 7)
    world.topic("U", 1)
    world.heartbeat("c", consumer="g", topics=("T", "U"))
    processor = world.admin_consume_stats()
    for topic, expected in (("T", [-1, 7, -1, -1]), ("U", [0])):
        answer = world.ask(processor, request_of(208, consumerGroup="g", topic=topic))
        table = ConsumeStats.from_json_bytes(answer.body).offset_table
        found = {queue.queue_id: row.consumer_offset for queue, row in table.items()}
        assert [found[queue_id] for queue_id in sorted(found)] == expected


# -- messages ------------------------------------------------------------------------------------


@pytest.fixture
def hot(tmp_path: Path) -> HotPathWorld:
    hot = HotPathWorld(tmp_path, file_size=1 << 20)
    hot.topic()
    own = replace(MAPPING, bname="broker-a")
    leader, first = replace(LEADER, bname="broker-a"), replace(FIRST, bname="broker-a")
    queues = {0: [OLD, leader], 1: [first], 2: [first, GONE]}
    hot.mappings["T"] = replace(own, hosted_queues=queues)
    return hot


def test_a_send_goes_to_the_leaders_queue(hot: HotPathWorld) -> None:
    client = hot.client()
    answers = [client.call(send_request(queue_id=0)) for _ in range(2)]
    assert [a.ext_fields["queueId"] for a in answers] == ["0", "0"]
    assert [a.ext_fields["queueOffset"] for a in answers] == ["10000", "10001"]
    assert [record.queue_id for record in hot.records()] == [1, 1]
    answer = client.call(send_request(queue_id=2))
    assert answer.code == 501
    assert answer.remark == "T-2 does not exit in request process of current broker broker-a"
    any_queue = client.call(send_request(queue_id=-1))
    assert any_queue.ext_fields["queueId"] in ("0", "1")


def test_a_send_before_the_leaders_place_is_decided(hot: HotPathWorld) -> None:
    detail = hot.mappings["T"]
    undecided = replace(UNDECIDED, bname="broker-a")
    hot.mappings["T"] = replace(detail, hosted_queues={0: [OLD, undecided]})
    answer = hot.client().call(send_request(queue_id=0))
    assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "-1")


def test_a_send_with_lo_false_names_the_physical_queue(hot: HotPathWorld) -> None:
    request = send_request(queue_id=3)
    request.ext_fields["lo"] = "false"
    client = hot.client()
    assert client.call(request).ext_fields["queueId"] == "3"
    assert client.call(send_request(queue_id=3)).code == 501, "the fast path does not take it"


def test_a_priority_changes_no_logic_queue(hot: HotPathWorld) -> None:
    """They may lie with other brokers, and the answer's offset is one of the queue asked. (RocketMQ
    stores it in the physical queue of that number, and answers as if it had not.)"""
    client = hot.client()
    plain = client.call(send_request(queue_id=0)).ext_fields
    answer = client.call(send_request(queue_id=0, properties="_SYS_MSG_PRIORITY_\x011")).ext_fields
    assert (answer["queueId"], plain["queueId"]) == ("0", "0")
    assert int(answer["queueOffset"]) == int(plain["queueOffset"]) + 1
    assert len({record.queue_id for record in hot.records()}) == 1


@pytest.mark.parametrize("serialize", list(SerializeType))
def test_a_pull_of_an_item_here(hot: HotPathWorld, serialize: SerializeType) -> None:
    client = hot.client()
    for _ in range(3):
        client.call(send_request(queue_id=0))
    hot.dispatch()
    answer = client.call(pull_request(queueId=0, queueOffset=10_001, serialize=serialize))
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert answer.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "10003",
        "minOffset": "10000",
        "maxOffset": "10003",
        "offsetDelta": "10000",
    }
    assert answer.body == b"".join(hot.raw_records()[1:])
    refused = client.call(pull_request(queueId=2))
    assert refused.code == 501
    assert str(refused.remark).startswith("T-2 cannot find mapping item in request process")


def test_a_pull_stops_where_the_next_item_begins(hot: HotPathWorld) -> None:
    """Four messages lie in an old queue that had room for two: nothing of the new one is skipped,
    and no offset is seen twice. (RocketMQ goes on at 4, after two of the new one's messages.)"""
    old = replace(FIRST, bname="broker-a")
    leader = replace(LEADER, bname="broker-a", logic_offset=2)
    hot.mappings["T"] = replace(hot.mappings["T"], hosted_queues={0: [old, leader]})
    client = hot.client()
    for _ in range(4):
        late = send_request(queue_id=2)
        late.ext_fields["lo"] = "false"
        client.call(late)
    client.call(send_request(queue_id=0))
    hot.dispatch()
    records = hot.raw_records()
    first = client.call(pull_request(queueId=0, queueOffset=0))
    assert (first.code, first.ext_fields["nextBeginOffset"]) == (0, "2")
    assert first.body == b"".join(records[:2])
    second = client.call(pull_request(queueId=0, queueOffset=2))
    assert (second.code, second.ext_fields["nextBeginOffset"]) == (0, "3")
    assert second.body == records[4]


def test_a_pull_that_waits_is_woken_by_its_physical_queue(hot: HotPathWorld) -> None:
    client = hot.client()
    client.send(pull_request(queueId=0, queueOffset=10_000, sysFlag=6))
    hot.turn()
    assert client.answers() == []
    hot.client().call(send_request(queue_id=0))
    hot.dispatch()
    hot.turn()
    [answer] = client.answers()
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (0, "10001")


def test_a_pull_of_an_item_elsewhere_is_handed_over(hot: HotPathWorld) -> None:
    client = hot.client()
    client.send(pull_request(queueId=0, queueOffset=3))
    hot.turn()
    assert client.answers() == []
    assert [request.ext_fields["queueOffset"] for request in hot.handed_over] == ["3"]


@pytest.mark.parametrize(("commit", "kept"), [(10_002, [("G", "T", 1, 2)]), (40, [])])
def test_what_a_pull_commits_is_physical(
    hot: HotPathWorld, commit: int, kept: list[tuple[str, str, int, int]]
) -> None:
    """(RocketMQ keeps the offset as the client sees it.) One of another item comes by 15."""
    hot.client().call(pull_request(queueId=0, queueOffset=10_000, sysFlag=5, commitOffset=commit))
    assert hot.commits.seen == kept
