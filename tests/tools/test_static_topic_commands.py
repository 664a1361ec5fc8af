"""updateStaticTopic and remappingStaticTopic against two brokers that keep what they are sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from remoting.body.message_queue import MessageQueue
from remoting.body.stats import TopicOffset, TopicStatsTable
from remoting.body.topic_config import TopicConfig, TopicConfigAndQueueMapping
from remoting.body.topic_queue_mapping import TopicQueueMappingDetail
from remoting.command_custom_header import decode_header
from remoting.headers.topic import CreateTopicRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster, running_cluster
from tests.tools.mqadmin_bench import Bench
from tests.tools.test_mqadmin_settings import two_masters
from tools.static_topic_plan import mapping_of


class Brokers:
    """ "a" and "b": what each has of topic T, and which of them was sent something, in order."""

    def __init__(self, a: FakeCluster, b: FakeCluster) -> None:
        self.topics: dict[str, TopicConfigAndQueueMapping | None] = {"a": None, "b": None}
        self.sent: list[tuple[str, bool]] = []
        for name, cluster in (("a", a), ("b", b)):
            self._serve(name, cluster)

    def _serve(self, name: str, cluster: FakeCluster) -> None:
        def create(request: RemotingCommand) -> RemotingCommand:
            header = decode_header(CreateTopicRequestHeader, request.ext_fields)
            self.sent.append((name, bool(header.force)))
            config = TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
            )
            detail = TopicQueueMappingDetail.from_json_bytes(request.body)
            self.topics[name] = TopicConfigAndQueueMapping.of(config, detail)
            return request.response(0)

        def show(request: RemotingCommand) -> RemotingCommand:
            assert request.ext_fields["lo"] == "true"
            found = self.topics[name]
            if found is None:
                return request.response(17, "No topic in this broker. topic: T")
            return request.response(0, body=found.to_json_bytes())

        queues = {
            MessageQueue(topic="T", broker_name=name, queue_id=number): TopicOffset(max_offset=7)
            for number in range(8)
        }
        stats = TopicStatsTable(offset_table=queues)
        cluster.answers[RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC] = create
        cluster.answers[RequestCode.GET_TOPIC_CONFIG] = show
        cluster.always(RequestCode.GET_TOPIC_STATS_INFO, body=stats.to_json_bytes())


@pytest.fixture
def brokers(cluster: FakeCluster) -> Iterator[Brokers]:
    with running_cluster() as second:
        two_masters(cluster, second.address)
        yield Brokers(cluster, second)


def test_create_remap_and_send_a_plan_again(mqadmin: Bench, brokers: Brokers) -> None:
    assert mqadmin.run_json("updateStaticTopic", "-t", "T", "-b", "a", "-qn", "2")["queues"] == [
        {"globalId": number, "brokerName": "a", "queueId": number, "logicOffset": 0}
        for number in (0, 1)
    ]
    assert brokers.sent == [("a", False), ("b", False)], "every broker of the cluster is told"
    brokers.sent.clear()
    outcome = mqadmin.run("remappingStaticTopic", "-t", "T", "-b", "b")
    lines = outcome.out.splitlines()
    assert lines[2:] == [f"queue {n}: b-{n} from offset 10000" for n in (0, 1)]
    assert [name for name, _ in brokers.sent] == ["b", "a", "b"]
    (before, after) = (Path(line.rpartition(" ")[2]) for line in lines[:2])
    assert re.fullmatch(r"T-[0-9]+\.before", before.name)
    whole = dict(brokers.topics)
    brokers.topics["b"] = None
    arguments = ("-t", "T", "-mf", str(after), "-fr", "true")
    assert mqadmin.run("remappingStaticTopic", *arguments).code == 0
    assert brokers.topics == whole
    assert brokers.sent[-1] == ("b", True)


def test_a_plan_that_is_sent_again_moves_no_queue_that_has_begun(
    mqadmin: Bench, brokers: Brokers, cluster: FakeCluster
) -> None:
    """It ended after queue 0 had its offset. Queue 1 gets one now; that of 0 stays, though messages
    reached the old queue late."""
    mqadmin.run_json("updateStaticTopic", "-t", "T", "-b", "a", "-qn", "2")
    outcome = mqadmin.run("remappingStaticTopic", "-t", "T", "-b", "b")
    after = outcome.out.splitlines()[1].rpartition(" ")[2]
    config = brokers.topics["b"]
    assert config is not None
    detail = mapping_of("b", config)
    old, new = detail.hosted_queues[1]
    hosted = {**detail.hosted_queues, 1: [old, replace(new, logic_offset=-1)]}
    brokers.topics["b"] = replace(config, mapping_detail=replace(detail, hosted_queues=hosted))
    queue = MessageQueue(topic="T", broker_name="a", queue_id=0)
    offsets = {
        queue: TopicOffset(max_offset=7_000),
        replace(queue, queue_id=1): TopicOffset(max_offset=7_000),
    }
    stats = TopicStatsTable(offset_table=offsets)
    cluster.always(RequestCode.GET_TOPIC_STATS_INFO, body=stats.to_json_bytes())
    again = mqadmin.run_json("remappingStaticTopic", "-t", "T", "-mf", after)
    assert [row["logicOffset"] for row in again["queues"]] == [10_000, 20_000]
    assert [name for name, _ in brokers.sent[-3:]] == ["b", "a", "b"]
    refused = mqadmin.run("updateStaticTopic", "-t", "T", "-mf", after)
    assert refused.code != 0
    assert f"{after} is a plan of remappingStaticTopic" in refused.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["updateStaticTopic", "-t", "T", "-b", "a"], "-qn NUMBER is needed"),
        (["updateStaticTopic", "-t", "T", "-qn", "1"], "one of -b BROKERS and -c CLUSTERS"),
        (["updateStaticTopic", "-t", "T", "-b", "z", "-qn", "1"], "Can't find addr for broker z"),
        (["remappingStaticTopic", "-t", "T", "-c", "d"], "cluster d does not exist"),
        (["remappingStaticTopic", "-t", "T", "-c", "c"], "topic T: no broker has it"),
        (["remappingStaticTopic", "-t", "a b", "-c", "c"], "illegal characters"),
    ],
)
def test_what_cannot_be_done(
    mqadmin: Bench, brokers: Brokers, arguments: list[str], words: str
) -> None:
    outcome = mqadmin.run(*arguments)
    assert outcome.code != 0
    assert words in outcome.err
    assert brokers.sent == []


def test_an_ordinary_topic_is_left_alone(mqadmin: Bench, brokers: Brokers) -> None:
    brokers.topics["a"] = TopicConfigAndQueueMapping(topic_name="T")
    outcome = mqadmin.run("remappingStaticTopic", "-t", "T", "-b", "b")
    assert "Mapping info should not be null in broker a" in outcome.err
    assert brokers.sent == []
