"""Commands that read messages, groups and connections, beyond what the golden outputs show."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from remoting.body.client_connection import Connection, ConsumerConnection, ProducerConnection
from remoting.body.consumer_running_info import ConsumerRunningInfo, ProcessQueueInfo
from remoting.body.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from remoting.body.message_queue import MessageQueue
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench
from tests.tools.test_message_decoder import one, record
from tools.errors import AdminError
from tools.message_text import message_ext_text, message_json, parse_time, save_body
from tools.report import Column, table

CLIENT = Connection(client_id="10.0.0.9@77", client_addr="10.0.0.9:4000", version=409)


def group_online(
    cluster: FakeCluster,
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
    tags: tuple[str, ...] = (),
) -> None:
    """Let one member of every group be connected, subscribed to GTopic."""
    body = ConsumerConnection(
        connection_set=[CLIENT],
        consume_type=consume_type,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_table={
            "GTopic": SubscriptionData(topic="GTopic", sub_string="TagA", tags_set=list(tags))
        },
    ).to_json_bytes()
    cluster.answers[RequestCode.GET_CONSUMER_CONNECTION_LIST] = lambda request: request.response(
        0, body=body
    )


class Queue:
    """A queue of five messages at every broker; `stuck` never moves on."""

    def __init__(self, cluster: FakeCluster, *, stuck: bool = False) -> None:
        self.stuck = stuck
        cluster.answers |= {
            RequestCode.GET_MIN_OFFSET: lambda request: request.response(0, None, {"offset": "0"}),
            RequestCode.GET_MAX_OFFSET: lambda request: request.response(0, None, {"offset": "5"}),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda request: request.response(
                0, None, {"offset": "1" if request.ext_fields["timestamp"] == "1000" else "4"}
            ),
            RequestCode.PULL_MESSAGE: self.pull,
        }

    def pull(self, request: RemotingCommand) -> RemotingCommand:
        offset = int(request.ext_fields["queueOffset"])
        count = min(int(request.ext_fields["maxMsgNums"]), 2, 5 - offset)
        fields = {
            "suggestWhichBrokerId": "0",
            "minOffset": "0",
            "maxOffset": "5",
            "nextBeginOffset": str(offset if self.stuck else offset + count),
        }
        return request.response(0, None, fields, record() * count)


class TestReading:
    def test_count_is_a_limit_over_queues(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        Queue(cluster)
        assert len(mqadmin.run_json("consumeMessage", "-t", "GTopic", "-c", "7")) == 7
        assert len(mqadmin.run_json("consumeMessage", "-t", "GTopic")) == 20

    def test_from_an_offset_on(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        Queue(cluster)
        options = ["-t", "GTopic", "-b", "broker-g", "-i", "1"]
        assert len(mqadmin.run_json("consumeMessage", *options, "-o", "3")) == 2
        outcome = mqadmin.run("consumeMessage", *options, "-o", "9")
        assert "no matched msg, offset=9" in outcome.out

    def test_between_times(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        Queue(cluster)
        options = ["-t", "GTopic", "-b", "broker-g", "-i", "1", "-s", "1000", "-e", "2000"]
        assert len(mqadmin.run_json("consumeMessage", *options)) == 3

    def test_the_future_has_no_messages(self, mqadmin: Bench) -> None:
        outcome = mqadmin.run("consumeMessage", "-t", "GTopic", "-s", str(2**52))
        assert (outcome.code, "future" in outcome.err) == (2, True)

    def test_a_broker_that_does_not_move_on(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        Queue(cluster, stuck=True)
        outcome = mqadmin.run("printMsg", "-t", "GTopic")
        assert outcome.code == 1
        assert "a pull at offset 0 leads back to 0" in outcome.err

    def test_print_all(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        Queue(cluster)
        lines = mqadmin.run("printMsg", "-t", "GTopic").out.splitlines()
        assert len(lines) == 4 * (1 + 5 + 1)
        assert lines[0] == (
            "minOffset=0, maxOffset=5, MessageQueue [topic=GTopic, brokerName=broker-g, queueId=0]"
        )
        assert lines[1].startswith("MSGID: 7F0000020000")
        assert lines[1].endswith(" BODY: hello")

    def test_print_without_bodies(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        Queue(cluster)
        out = mqadmin.run("printMsg", "-t", "GTopic", "-d", "false").out
        assert out.count("BODY: NOT PRINT BODY") == 20
        data = mqadmin.run_json("printMsg", "-t", "GTopic", "-d", "false")
        assert not any("body" in message for message in data)

    def test_tags_are_compared_here_too(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        Queue(cluster)
        assert len(mqadmin.run_json("printMsg", "-t", "GTopic", "-s", "a || b")) == 20
        assert mqadmin.run_json("printMsg", "-t", "GTopic", "-s", "b") == []

    def test_nothing_at_an_offset(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": "0"}
        fields |= {"minOffset": "0", "maxOffset": "0"}
        cluster.answers[RequestCode.PULL_MESSAGE] = lambda request: request.response(19, "", fields)
        options = ["-t", "GTopic", "-b", "broker-g", "-i", "0", "-o", "7"]
        outcome = mqadmin.run("queryMsgByOffset", *options)
        assert outcome.code == 1
        assert "no message at offset 7: NO_NEW_MSG" in outcome.err


class TestGroups:
    def test_who_is_connected(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        group_online(cluster)
        data = mqadmin.run_json("consumerConnection", "-g", "G_group")
        assert data["connections"][0]["version"] == "V4_9_8"
        assert data["subscriptions"] == [{"topic": "GTopic", "subExpression": "TagA"}]
        assert data["consumeType"] == "CONSUME_PASSIVELY"
        out = mqadmin.run("consumerConnection", "-g", "G_group").out
        assert "Below is subscription:" in out
        assert "MessageModel: CLUSTERING" in out

    def test_producers_are_numbered(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        body = ProducerConnection(connection_set=[CLIENT]).to_json_bytes()
        cluster.answers[RequestCode.GET_PRODUCER_CONNECTION_LIST] = lambda request: (
            request.response(0, body=body)
        )
        lines = mqadmin.lines("producerConnection", "-g", "p", "-t", "GTopic")
        assert lines[1] == ["0001", "10.0.0.9@77", "10.0.0.9:4000", "JAVA", "V4_9_8"]

    def test_no_producers(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.answers[RequestCode.GET_PRODUCER_CONNECTION_LIST] = lambda request: (
            request.response(1, "the producer group[p] not exist")
        )
        outcome = mqadmin.run("producerConnection", "-g", "p", "-t", "GTopic")
        assert outcome.code == 1
        assert "the producer group[p] not exist" in outcome.err

    def test_an_online_group_in_the_list(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        group_online(cluster)
        rows = mqadmin.run_json_with_complaints("consumerProgress")
        row = next(row for row in rows if row["group"] == "G_group")
        assert (row["count"], row["type"], row["model"]) == (1, "PUSH", "CLUSTERING")

    def test_which_client_reads_which_queue(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        group_online(cluster)
        queue = MessageQueue(broker_name="broker-g", queue_id=1, topic="GTopic")
        info = ConsumerRunningInfo(mq_table={queue: ProcessQueueInfo()})
        cluster.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda request: request.response(
            0, body=info.to_json_bytes()
        )
        lines = mqadmin.lines("consumerProgress", "-g", "G_group", "-s", "true")
        clients = {(line[0], line[2]): line[5] for line in lines[1:-2]}
        assert clients["GTopic", "1"] == "10.0.0.9"
        assert clients["GTopic", "0"] == "N/A"

    def test_an_unknown_group(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.answers[RequestCode.GET_CONSUME_STATS] = lambda request: request.response(
            0, body=b'{"consumeTps":0.0,"offsetTable":{}}'
        )
        outcome = mqadmin.run("consumerProgress", "-g", "nobody")
        assert outcome.code == 1
        assert "group nobody has consumed nothing yet; groups with progress: G_bcast_group" in (
            outcome.err
        )

    def test_deleting_a_group_takes_its_topics_along(
        self, mqadmin: Bench, cluster: FakeCluster
    ) -> None:
        cluster.answers |= dict.fromkeys((207, 215, 216), lambda request: request.response(0))
        options = ["-g", "g", "-c", "GoldenCluster", "-r", "true", "--yes"]
        data = mqadmin.run_json("deleteSubGroup", *options)
        assert data["topics"] == ["%RETRY%g", "%DLQ%g"]
        assert cluster.asked(RequestCode.DELETE_SUBSCRIPTIONGROUP)[0].ext_fields == {
            "groupName": "g",
            "removeOffset": "true",
        }
        deleted = cluster.asked(RequestCode.DELETE_TOPIC_IN_BROKER)
        assert [request.ext_fields["topic"] for request in deleted] == data["topics"]


class TestTracks:
    QUERY = ("queryMsgByUniqueKey", "-t", "GTopic", "-i")
    KEY = "FD00000000000000000000000000000219CD4E0E2F2A6486717A0002"

    def track(self, mqadmin: Bench) -> str:
        (message,) = mqadmin.run_json(*self.QUERY, self.KEY)
        found: str = message["messageTracks"][0]["trackType"]
        return found

    def test_pull_groups_tell_nothing(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        group_online(cluster, ConsumeType.CONSUME_ACTIVELY)
        assert self.track(mqadmin) == "PULL"

    def test_behind_the_offset(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        group_online(cluster)
        assert self.track(mqadmin) == "NOT_CONSUME_YET"

    @pytest.mark.parametrize(
        ("tags", "kind"), [(("TagB",), "CONSUMED"), (("TagX",), "CONSUMED_BUT_FILTERED")]
    )
    def test_consumed(
        self, mqadmin: Bench, cluster: FakeCluster, tags: tuple[str, ...], kind: str
    ) -> None:
        group_online(cluster, tags=tags)
        golden_host = "127.0.0.2:20911"
        body = (
            f'{{"brokerAddrTable":{{"broker-g":{{"brokerAddrs":{{0:"{golden_host}"}},'
            '"brokerName":"broker-g","cluster":"c"}},"clusterAddrTable":{"c":["broker-g"]}}'
        )
        cluster.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda request: request.response(
            0, body=body.encode()
        )
        assert self.track(mqadmin) == kind

    def test_trouble_is_shown_not_raised(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.answers[RequestCode.GET_CONSUMER_CONNECTION_LIST] = lambda request: (
            request.response(1, "broken")
        )
        assert self.track(mqadmin) == "UNKNOWN"


class TestUpdateTopicOrder:
    def conf(self, cluster: FakeCluster) -> str:
        return cluster.asked(RequestCode.PUT_KV_CONFIG)[0].ext_fields["value"]

    def prepare(self, cluster: FakeCluster, old: str | None) -> None:
        cluster.answers |= {
            RequestCode.UPDATE_AND_CREATE_TOPIC: lambda request: request.response(0),
            RequestCode.PUT_KV_CONFIG: lambda request: request.response(0),
            RequestCode.GET_KV_CONFIG: lambda request: (
                request.response(22, "none")
                if old is None
                else request.response(0, None, {"value": old})
            ),
        }

    def test_of_a_cluster(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        self.prepare(cluster, "other:3")
        options = ["-t", "T", "-c", "GoldenCluster", "-w", "4", "-o", "true"]
        out = mqadmin.run("updateTopic", *options).out
        assert self.conf(cluster) == "broker-g:4"
        assert "set cluster orderConf. isOrder=true, orderConf=[broker-g:4]" in out

    @pytest.mark.parametrize(
        ("old", "new"), [(None, "broker-g:4"), ("other:3;broker-g:9", "other:3;broker-g:4")]
    )
    def test_of_a_broker_keeps_the_others(
        self, mqadmin: Bench, cluster: FakeCluster, old: str | None, new: str
    ) -> None:
        self.prepare(cluster, old)
        options = ["-t", "T", "-b", cluster.address, "-w", "4", "-o", "true"]
        assert mqadmin.run("updateTopic", *options).code == 0
        assert self.conf(cluster) == new


class TestMessageText:
    def test_bodies_stay_in_their_directory(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        message = one(record(properties=b"UNIQ_KEY\x01../../etc/x"))
        path = save_body(message)
        assert path.parent == tmp_path / f"rocketmq-{os.getuid()}" / "msgbodys"
        assert path.read_bytes() == b"hello"
        assert path.stat().st_mode & 0o777 == 0o600

    def test_a_link_is_not_followed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        message = one(record())
        path = save_body(message)
        path.unlink()
        path.symlink_to(tmp_path / "target")
        with pytest.raises(AdminError, match="cannot write"):
            save_body(message)
        assert not (tmp_path / "target").exists()

    def test_no_control_character_reaches_the_terminal(self) -> None:
        message = one(record(body=b"\x1b[2Jx", properties=b"a\x01\x1b]0;b"))
        assert "\x1b" not in message_ext_text(message)

    def test_a_binary_body_is_base64_in_json(self) -> None:
        data = message_json(one(record(body=b"\xff\x00")))
        assert (data["bodyBase64"], "body" in data) == ("/wA=", False)

    def test_a_note_on_the_body_is_in_json(self) -> None:
        message = replace(one(record()), body_note="cut")
        assert message_json(message)["bodyNote"] == "cut"

    def test_times(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert parse_time("1795177732468") == 1795177732468
        assert parse_time("2026-11-20#12:28:52:468") % 1000 == 468
        with pytest.raises(AdminError):
            parse_time("2026-11-20")


def test_wide_characters_keep_the_columns() -> None:
    columns = (Column("#A", "a"), Column("#B", "b", right=True))
    report = table(columns, [("日本", 1), ("x\ny", 22)])
    assert report.text.splitlines() == ["#A      #B", "日本     1", "x\\x0ay  22"]
    assert report.data == [{"a": "日本", "b": 1}, {"a": "x\ny", "b": 22}]
