"""Commands that read messages, groups and connections, beyond what the golden outputs show."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from remoting.body.client_connection import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from remoting.body.consumer_running_info import ConsumerRunningInfo, ProcessQueueInfo
from remoting.body.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from remoting.body.message_queue import MessageQueue
from remoting.body.query_queue import ConsumeQueueData, QueryConsumeQueueResponseBody
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
        self.tags = ["a"] * 5
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
        tags = self.tags[offset : offset + count]
        found = [record(properties=f"TAGS\x01{tag}".encode()) for tag in tags]
        return request.response(0, None, fields, b"".join(found))


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


class TestQueries:
    UNIQUE = ("queryMsgByUniqueKey", "-t", "GTopic", "-i", "none")

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("queryMsgByKey", "-t", "GTopic", "-k", "none"), "key none"),
            (UNIQUE, "unique key none"),
        ],
    )
    def test_no_such_message(
        self, mqadmin: Bench, cluster: FakeCluster, arguments: tuple[str, ...], reason: str
    ) -> None:
        cluster.always(RequestCode.QUERY_MESSAGE, 22, "no")
        outcome = mqadmin.run(*arguments)
        assert outcome.err == f"mqadmin {arguments[0]}: topic GTopic has no message with {reason}\n"

    def found(self, cluster: FakeCluster) -> None:
        """Every query finds one message; every send is stored."""
        fields = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
        properties = b"UNIQ_KEY\x01none\x02TAGS\x01a\x02KEYS\x01k"
        own = socket.inet_aton("127.0.0.1") + int(cluster.address.rpartition(":")[2]).to_bytes(4)
        stored = record(topic=b"GTopic", properties=properties)
        stored = stored.replace(bytes([127, 0, 0, 2]) + (10911).to_bytes(4), own)
        cluster.always(RequestCode.QUERY_MESSAGE, fields=fields, body=stored)
        cluster.always(RequestCode.VIEW_MESSAGE_BY_ID, body=stored)
        cluster.always(
            RequestCode.SEND_MESSAGE_V2,
            fields={"msgId": "ID", "queueId": "0", "queueOffset": "7"},
        )

    def own_id(self, cluster: FakeCluster) -> str:
        return f"7F000001{int(cluster.address.rpartition(':')[2]):08X}{4:016X}"

    def test_have_it_consumed(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        self.found(cluster)
        result = (
            b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}'
        )
        cluster.always(RequestCode.CONSUME_MESSAGE_DIRECTLY, body=result)
        outcome = mqadmin.run(*self.UNIQUE, "-g", "g", "-d", "c")
        assert outcome.out == (
            "ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult=CR_SUCCESS, "
            "remark=null, spentTimeMills=3]\n"
        )
        fields = cluster.asked(RequestCode.CONSUME_MESSAGE_DIRECTLY)[0].ext_fields
        assert (fields["consumerGroup"], fields["clientId"]) == ("g", "c")

    def test_send_it_again(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        self.found(cluster)
        options = ["-i", self.own_id(cluster), "-s", "true"]
        outcome = mqadmin.run("queryMsgById", *options)
        assert outcome.out.startswith("prepare resend msg. originalMsgId=7F000001")
        (data,) = mqadmin.run_json("queryMsgById", *options)
        assert (data["sendStatus"], data["queueOffset"]) == ("SEND_OK", 7)
        request = cluster.asked(RequestCode.SEND_MESSAGE_V2)[0]
        assert request.body == b"hello"
        assert "TAGS\x01a" in request.ext_fields["i"]

    def test_an_answer_without_a_message(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.VIEW_MESSAGE_BY_ID)
        message_id = self.own_id(cluster)
        outcome = mqadmin.run("queryMsgById", "-i", message_id)
        assert outcome.err == (
            f"mqadmin queryMsgById: {cluster.address} answered {message_id} without a message\n"
        )

    def test_a_body_that_cannot_be_saved(
        self, mqadmin: Bench, cluster: FakeCluster, tmp_path: Path
    ) -> None:
        self.found(cluster)
        (tmp_path / f"rocketmq-{os.getuid()}").write_text("a file where a directory should be")
        outcome = mqadmin.run(*self.UNIQUE)
        assert outcome.code == 0
        assert "Message Body Path:   not saved: cannot write the message's body to " in outcome.out


class TestPrintMsgByQueue:
    QUEUE = ("-t", "GTopic", "-a", "broker-g", "-i", "1")

    def test_without_a_wish_it_is_wrong_usage(self, mqadmin: Bench) -> None:
        outcome = mqadmin.run("printMsgByQueue", *self.QUEUE)
        assert outcome.code == 2
        assert "one of -p true (print) and -f true (count by tag) is needed" in outcome.err

    def test_count_by_tag(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        queue = Queue(cluster)
        queue.tags = ["b", "a", "a", "", "b"]
        outcome = mqadmin.run("printMsgByQueue", *self.QUEUE, "-f", "true")
        assert outcome.out == f"Tag: {'b':<30} Count: 2\nTag: {'a':<30} Count: 2\n"
        data = mqadmin.run_json("printMsgByQueue", *self.QUEUE, "-f", "true", "-s", "a")
        assert data == [{"tag": "a", "count": 2}]

    def test_print_with_and_without_bodies(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        Queue(cluster)
        out = mqadmin.run("printMsgByQueue", *self.QUEUE, "-p", "true").out
        assert out.count("BODY: NOT PRINT BODY") == out.count("\n") == 5
        options = [*self.QUEUE, "-p", "true", "-d", "true", "-f", "true"]
        lines = mqadmin.run("printMsgByQueue", *options).out.splitlines()
        assert [line.endswith(" BODY: hello") for line in lines] == [True] * 5 + [False]
        assert lines[-1] == f"Tag: {'a':<30} Count: 5"

    def test_between_times(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        Queue(cluster)
        options = [*self.QUEUE, "-p", "true", "-b", "1000", "-e", "2000"]
        assert len(mqadmin.run_json("printMsgByQueue", *options)) == 3

    def test_a_charset_that_nobody_knows(self, mqadmin: Bench) -> None:
        outcome = mqadmin.run("printMsgByQueue", *self.QUEUE, "-p", "true", "-c", "martian")
        assert (outcome.code, "unknown charset martian" in outcome.err) == (2, True)


class TestQueryCq:
    OPTIONS = ("-t", "GTopic", "-q", "1", "-i", "7")

    def test_entries(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        body = QueryConsumeQueueResponseBody(
            subscription_data=SubscriptionData(topic="GTopic", sub_string="a"),
            filter_data="filter",
            queue_data=[
                ConsumeQueueData(physic_offset=100, physic_size=50, tags_code=97, eval=True),
                ConsumeQueueData(physic_offset=150, physic_size=60, msg="gone", bit_map="10"),
            ],
            max_queue_index=9,
            min_queue_index=2,
        )
        cluster.always(RequestCode.QUERY_CONSUME_QUEUE, body=body.to_json_bytes())
        outcome = mqadmin.run("queryCq", *self.OPTIONS, "-c", "2", "-g", "g")
        ruler = "=" * 38
        lines = outcome.out.splitlines()
        assert lines[0] == "Subscription data: "
        assert '\t"subString":"a",' in lines
        assert lines[lines.index(ruler) :] == [
            ruler,
            "Filter data: ",
            "filter",
            ruler,
            "Queue data: ",
            "max: 9, min: 2",
            ruler,
            "idx: 7",
            "ConsumeQueueData{physicOffset=100, physicSize=50, tagsCode=97, extendDataJson='null', "
            "bitMap='null', eval=true, msg='null'}",
            ruler,
            "idx: 8",
            "ConsumeQueueData{physicOffset=150, physicSize=60, tagsCode=0, extendDataJson='null', "
            "bitMap='10', eval=false, msg='gone'}",
            ruler,
        ]
        assert cluster.asked(RequestCode.QUERY_CONSUME_QUEUE)[0].ext_fields == {
            "topic": "GTopic",
            "queueId": "1",
            "index": "7",
            "count": "2",
            "consumerGroup": "g",
        }
        data = mqadmin.run_json("queryCq", *self.OPTIONS, "-b", cluster.address)
        assert (data["brokerAddr"], data["maxQueueIndex"]) == (cluster.address, 9)
        assert data["queueData"][0]["tagsCode"] == 97
        assert cluster.requests[-1].ext_fields["count"] == "10"

    def test_an_index_that_does_not_exist(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.QUERY_CONSUME_QUEUE, 0, "Index 7 of consumeQueue is not found")
        outcome = mqadmin.run("queryCq", *self.OPTIONS)
        assert outcome.err == (
            f"mqadmin queryCq: {cluster.address} has no entry 7 in queue 1 of GTopic: "
            "Index 7 of consumeQueue is not found\n"
        )

    def test_a_topic_without_brokers(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=b"{}")
        outcome = mqadmin.run("queryCq", *self.OPTIONS)
        assert outcome.err == "mqadmin queryCq: topic GTopic has no running broker\n"


class TestProducer:
    def test_a_line_for_each(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        info = ProducerInfo(
            client_id="c@1", remote_ip="/10.0.0.1:4", version=409, last_update_timestamp=17
        )
        table = ProducerTableInfo(data={"p": [info], "empty": []}).to_json_bytes()
        cluster.always(RequestCode.GET_ALL_PRODUCER_INFO, body=table)
        outcome = mqadmin.run("producer", "-b", cluster.address)
        assert outcome.out == (
            "producer group (empty) instances are empty\n"
            "producer group (p) instance : clientId=c@1,remoteIP=/10.0.0.1:4, language=JAVA, "
            "version=409, lastUpdateTimestamp=17\n"
        )
        assert mqadmin.run_json("producer", "-b", cluster.address) == [
            {
                "producerGroup": "p",
                "clientId": "c@1",
                "remoteIP": "/10.0.0.1:4",
                "language": "JAVA",
                "version": 409,
                "lastUpdateTimestamp": 17,
            }
        ]

    def test_none(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.GET_ALL_PRODUCER_INFO, body=b"{}")
        outcome = mqadmin.run("producer", "-b", cluster.address)
        assert outcome.out == f"no producer is connected to {cluster.address}\n"
        assert mqadmin.run_json("producer", "-b", cluster.address) == []


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
        (data,) = mqadmin.run_json("producerConnection", "-g", "p", "-t", "GTopic")
        assert data == {
            "number": 1,
            "clientId": "10.0.0.9@77",
            "clientAddr": "10.0.0.9:4000",
            "language": "JAVA",
            "version": "V4_9_8",
        }

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
