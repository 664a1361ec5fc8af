"""Commands that move the offsets of groups or show them broker by broker."""

from __future__ import annotations

from typing import Any

import pytest

from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import ResetOffsetBody
from remoting.body.stats import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    TopicOffset,
    TopicStatsTable,
)
from remoting.language_code import LanguageCode
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench

LOSSES = {
    "resetOffsetByTime": (
        ["-g", "G_group", "-t", "GTopic", "-s", "now"],
        "Set the offsets of group G_group in topic GTopic to time now?",
    ),
    "skipAccumulatedMessage": (
        ["-g", "G_group", "-t", "GTopic"],
        "Skip everything in topic GTopic that group G_group has not consumed?",
    ),
    "cloneGroupOffset": (
        ["-s", "G_group", "-d", "G_clone", "-t", "GTopic"],
        "Overwrite the offsets of group G_clone in topic GTopic with G_group's?",
    ),
}


def queue(queue_id: int, topic: str = "GTopic") -> MessageQueue:
    return MessageQueue(broker_name="broker-g", queue_id=queue_id, topic=topic)


def progress(cluster: FakeCluster, **offsets: tuple[int, int]) -> None:
    """Let every group have consumed q<id>=(consumed, of) of GTopic."""
    table = {
        queue(int(name[1:])): OffsetWrapper(broker_offset=end, consumer_offset=reached)
        for name, (reached, end) in offsets.items()
    }
    body = ConsumeStats(offset_table=table).to_json_bytes()
    cluster.always(RequestCode.GET_CONSUME_STATS, body=body)


def offline(cluster: FakeCluster, time_offset: int) -> None:
    """Nobody is online; every queue ends at 9 and has `time_offset` at any time."""
    cluster.always(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, 206, "not online")
    cluster.always(RequestCode.GET_MAX_OFFSET, fields={"offset": "9"})
    cluster.always(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields={"offset": str(time_offset)})
    cluster.always(RequestCode.UPDATE_CONSUMER_OFFSET)


def told(cluster: FakeCluster) -> dict[str, str]:
    """What the broker was told to remember: queue id to offset."""
    requests = cluster.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
    return {r.ext_fields["queueId"]: r.ext_fields["commitOffset"] for r in requests}


@pytest.mark.parametrize("name", LOSSES)
def test_each_asks_first(mqadmin: Bench, cluster: FakeCluster, name: str) -> None:
    options, question = LOSSES[name]
    outcome = mqadmin.run(name, *options)
    assert outcome.err == f"mqadmin {name}: {question} Without a terminal, confirm with --yes\n"
    assert cluster.requests == []


class TestResetOffsetByTime:
    ONLINE = ("-g", "G_group", "-t", "GTopic", "-s", "1795177732468", "--yes")

    def test_through_the_members(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        body = ResetOffsetBody(offset_table={queue(1): 7, queue(0): 5}).to_json_bytes()
        cluster.always(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, body=body)
        outcome = mqadmin.run("resetOffsetByTime", *self.ONLINE, "-f", "false")
        assert outcome.out == (
            "rollback consumer offset by specified group[G_group], topic[GTopic], force[false], "
            "timestamp(string)[1795177732468], timestamp(long)[1795177732468]\n"
            "#brokerName  #queueId  #offset\n"
            "broker-g     0         5\n"
            "broker-g     1         7\n"
        )
        (request,) = cluster.asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
        assert request.language == LanguageCode.PYTHON
        assert request.ext_fields == {
            "topic": "GTopic",
            "group": "G_group",
            "timestamp": "1795177732468",
            "isForce": "false",
        }
        data = mqadmin.run_json("resetOffsetByTime", *self.ONLINE)
        assert data == {
            "group": "G_group",
            "topic": "GTopic",
            "force": True,
            "timestamp": 1795177732468,
            "online": True,
            "queues": [
                {"brokerName": "broker-g", "queueId": 0, "offset": 5},
                {"brokerName": "broker-g", "queueId": 1, "offset": 7},
            ],
        }

    def test_c_plus_plus_clients(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
        assert mqadmin.run_json("resetOffsetByTime", *self.ONLINE, "-c")["queues"] == []
        (request,) = cluster.asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
        assert request.language == LanguageCode.CPP

    def test_a_date(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
        options = ["-g", "g", "-t", "GTopic", "-s", "2026-11-20#12:28:52:468", "--yes"]
        assert mqadmin.run_json("resetOffsetByTime", *options)["timestamp"] == 1795177732468

    def test_another_refusal_is_no_reason_to_write(
        self, mqadmin: Bench, cluster: FakeCluster
    ) -> None:
        offline(cluster, 3)
        cluster.always(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, 1, "broken")
        outcome = mqadmin.run("resetOffsetByTime", *self.ONLINE)
        assert outcome.err.endswith("answered SYSTEM_ERROR (1): broken\n")
        assert told(cluster) == {}

    def test_without_force_nobody_goes_forward(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        offline(cluster, 3)
        progress(cluster, q0=(2, 9), q1=(5, 9))
        data = mqadmin.run_json("resetOffsetByTime", *self.ONLINE, "-f", "false")
        assert told(cluster) == {"1": "3"}
        assert data["online"] is False
        assert data["queues"] == [
            {
                "brokerName": "broker-g",
                "queueId": queue_id,
                "brokerOffset": 9,
                "consumerOffset": reached,
                "timestampOffset": 3,
                "rollbackOffset": rolled,
            }
            for queue_id, reached, rolled in ((0, 2, 2), (1, 5, 3))
        ]

    def test_other_topics_stay(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        offline(cluster, 3)
        table = {queue(0): OffsetWrapper(), queue(1, "%RETRY%G_group"): OffsetWrapper()}
        body = ConsumeStats(offset_table=table).to_json_bytes()
        cluster.always(RequestCode.GET_CONSUME_STATS, body=body)
        mqadmin.run_json("resetOffsetByTime", *self.ONLINE)
        assert told(cluster) == {"0": "3"}

    def test_a_group_that_consumed_nothing_yet(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        offline(cluster, 3)
        progress(cluster)
        data = mqadmin.run_json("resetOffsetByTime", *self.ONLINE)
        assert told(cluster) == {str(queue_id): "3" for queue_id in range(4)}
        assert data["queues"][2]["brokerOffset"] == 14

    def test_a_broker_that_leaves_out_queues(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        offline(cluster, 3)
        progress(cluster)
        stats = TopicStatsTable(offset_table={queue(0): TopicOffset()}).to_json_bytes()
        cluster.always(RequestCode.GET_TOPIC_STATS_INFO, body=stats)
        outcome = mqadmin.run("resetOffsetByTime", *self.ONLINE)
        assert outcome.err == (
            f"mqadmin resetOffsetByTime: {cluster.address} has no statistics of GTopic, "
            "queues [1, 2, 3]\n"
        )
        assert told(cluster) == {}


class TestSkipAccumulatedMessage:
    OPTIONS = ("-g", "G_group", "-t", "GTopic", "--yes")

    def test_online(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        body = ResetOffsetBody(offset_table={queue(0): 5}).to_json_bytes()
        cluster.always(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, body=body)
        outcome = mqadmin.run("skipAccumulatedMessage", *self.OPTIONS)
        assert outcome.out == "#brokerName  #queueId  #offset\nbroker-g     0         5\n"
        (request,) = cluster.asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
        assert request.ext_fields["timestamp"] == "-1"

    def test_offline_goes_to_the_end(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        offline(cluster, 3)
        progress(cluster, q0=(2, 9))
        outcome = mqadmin.run("skipAccumulatedMessage", *self.OPTIONS)
        assert outcome.out.splitlines() == [
            "#brokerName  #queueId  #brokerOffset  #consumerOffset  #timestampOffset  "
            "#rollbackOffset",
            "broker-g     0         9              2                9                 9",
        ]
        assert told(cluster) == {"0": "9"}


class TestCloneGroupOffset:
    def test_only_the_topic_named(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.UPDATE_CONSUMER_OFFSET)
        table = {
            queue(0): OffsetWrapper(consumer_offset=4),
            queue(1, "Other"): OffsetWrapper(consumer_offset=5),
            queue(2): OffsetWrapper(consumer_offset=-1),
        }
        body = ConsumeStats(offset_table=table).to_json_bytes()
        cluster.always(RequestCode.GET_CONSUME_STATS, body=body)
        options = ["-s", "a", "-d", "b", "-t", "GTopic", "--yes"]
        assert mqadmin.run_json("cloneGroupOffset", *options) == {
            "srcGroup": "a",
            "destGroup": "b",
            "topic": "GTopic",
            "queues": [{"brokerName": "broker-g", "queueId": 0, "offset": 4}],
        }
        assert told(cluster) == {"0": "4"}

    def test_a_group_without_offsets(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        progress(cluster)
        options = ["-s", "a", "-d", "b", "-t", "GTopic", "--yes"]
        outcome = mqadmin.run("cloneGroupOffset", *options)
        assert outcome.err == ("mqadmin cloneGroupOffset: group a has no offsets in topic GTopic\n")


class TestBrokerConsumeStats:
    def prepare(self, cluster: FakeCluster) -> None:
        def stats(*items: tuple[int, int, int]) -> ConsumeStats:
            table = {
                queue(n): OffsetWrapper(
                    broker_offset=10, consumer_offset=reached, last_timestamp=time_ms
                )
                for n, reached, time_ms in items
            }
            return ConsumeStats(offset_table=table)

        answer = ConsumeStatsList(
            consume_stats_list=[
                {"g": [stats((2, 9, 1795177732468), (1, 4, 1795177732468), (0, 0, 0))]}
            ],
            broker_addr="x:1",
            total_diff=17,
        )
        cluster.always(RequestCode.GET_BROKER_CONSUME_STATS, body=answer.to_json_bytes())

    def test_table(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        self.prepare(cluster)
        outcome = mqadmin.run("brokerConsumeStats", "-b", cluster.address)
        assert outcome.out == (
            "#Topic  #Group  #Broker Name  #QID  #Broker Offset  #Consumer Offset  #Diff  #LastTime"
            "\n"
            "GTopic  g       broker-g      1     10              4                 6      "
            "2026-11-20 12:28:52\n"
            "GTopic  g       broker-g      2     10              9                 1      "
            "2026-11-20 12:28:52\n"
            "\n"
            "Diff Total: 17\n"
        )

    def test_level_and_order(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        self.prepare(cluster)
        options = ["-b", cluster.address, "-l", "2", "-o", "true", "-t", "900"]
        data: dict[str, Any] = mqadmin.run_json("brokerConsumeStats", *options)
        assert data == {
            "queues": [
                {
                    "topic": "GTopic",
                    "group": "g",
                    "brokerName": "broker-g",
                    "queueId": 1,
                    "brokerOffset": 10,
                    "consumerOffset": 4,
                    "diff": 6,
                    "lastTimestamp": 1795177732468,
                }
            ],
            "diffTotal": 17,
        }
        (request,) = cluster.asked(RequestCode.GET_BROKER_CONSUME_STATS)
        assert request.ext_fields == {"isOrder": "true"}
