"""sendMessage and the commands that measure sends: what goes over the wire, what is printed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.remoting.golden_frames import golden_frames
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench
from tools.message_decoder import decode_properties
from tools.message_sender import UniqueKeys

SEND = ("sendMessage", "-t", "GTopic", "-p", "grüße")
ID = "7F000002000051AF0000000000000000"


def store(request: RemotingCommand, code: int = 0) -> RemotingCommand:
    """A broker's answer to a send: stored in the queue asked for."""
    fields = {"msgId": ID, "queueId": request.ext_fields["e"], "queueOffset": "7"}
    return request.response(code, None, fields)


@pytest.fixture
def storing(cluster: FakeCluster) -> FakeCluster:
    """A cluster that stores whatever comes."""
    cluster.answers[RequestCode.SEND_MESSAGE_V2] = store
    return cluster


def sent(cluster: FakeCluster) -> list[RemotingCommand]:
    return cluster.asked(RequestCode.SEND_MESSAGE_V2)


class TestSendMessage:
    def test_request_and_row(self, mqadmin: Bench, storing: FakeCluster) -> None:
        heading, row = mqadmin.lines(*SEND, "-k", "k1 k2", "-c", "TagA", "-b", "broker-g")
        assert " ".join(heading) == "#Broker Name #QID #Send Result #MsgId"
        (request,) = sent(storing)
        properties = decode_properties(request.ext_fields["i"])
        key = properties.pop("UNIQ_KEY")
        assert row == ["broker-g", request.ext_fields["e"], "SEND_OK", key]
        assert properties == {"KEYS": "k1 k2", "WAIT": "true", "TAGS": "TagA"}
        assert request.body == "grüße".encode()

    def test_the_header_has_the_fields_of_java(self, mqadmin: Bench, storing: FakeCluster) -> None:
        mqadmin.lines(*SEND, "-b", "broker-g", "-i", "2")
        frames = golden_frames(side="request", kind="wire-json")
        java = next(f.command() for f in frames if f.code == 310).ext_fields
        ours = sent(storing)[0].ext_fields
        assert ours.keys() == java.keys()
        changing = ("a", "g", "i")
        assert [ours[k] for k in ours if k not in changing] == [
            java[k] for k in ours if k not in changing
        ]

    def test_json(self, mqadmin: Bench, storing: FakeCluster) -> None:
        result = mqadmin.run_json(*SEND, "-b", "broker-g", "-i", "3")
        assert re.fullmatch("[0-9A-F]{32}", result.pop("msgId"))
        assert result == {
            "sendStatus": "SEND_OK",
            "offsetMsgId": ID,
            "brokerName": "broker-g",
            "queueId": 3,
            "queueOffset": 7,
        }

    @pytest.mark.parametrize(
        "name", ["FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"]
    )
    def test_stored_but_not_safe_is_shown(
        self, mqadmin: Bench, cluster: FakeCluster, name: str
    ) -> None:
        code = ResponseCode[name]
        cluster.answers[RequestCode.SEND_MESSAGE_V2] = lambda request: store(request, code)
        assert mqadmin.lines(*SEND)[1][2] == name

    @pytest.mark.parametrize(
        ("told", "shown"),
        [({"durability": "MEMORY,FLUSHED"}, "MEMORY,FLUSHED"), ({}, "the broker does not say")],
        ids=["ours", "java"],
    )
    def test_durability_is_asked_for_and_shown(
        self, mqadmin: Bench, cluster: FakeCluster, told: dict[str, str], shown: str
    ) -> None:
        def answer(request: RemotingCommand) -> RemotingCommand:
            response = store(request)
            response.ext_fields.update(told)
            return response

        cluster.answers[RequestCode.SEND_MESSAGE_V2] = answer
        heading, row = mqadmin.lines(*SEND, "--durability")
        assert heading[-1] == "#Durability"
        assert " ".join(row).endswith(shown)
        assert sent(cluster)[0].ext_fields["reportDurability"] == "true"
        assert mqadmin.run_json(*SEND, "--durability").get("durability") == told.get("durability")

    def test_a_refusal_is_an_error(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.answers[RequestCode.SEND_MESSAGE_V2] = lambda request: request.response(
            14, "service not available"
        )
        outcome = mqadmin.run(*SEND)
        assert outcome.code == 1
        assert "SERVICE_NOT_AVAILABLE (14): service not available" in outcome.err
        assert len(sent(cluster)) == 1

    def test_a_topic_that_is_not_there_yet_goes_to_the_templates_queues(
        self, mqadmin: Bench, storing: FakeCluster
    ) -> None:
        queues = set()
        for _ in range(60):
            queues.add(mqadmin.lines("sendMessage", "-t", "New", "-p", "x")[1][1])
        assert queues == {"0", "1", "2", "3"}
        assert {(r.ext_fields["b"], r.ext_fields["c"]) for r in sent(storing)} == {
            ("New", "TBW102")
        }

    def test_no_template_no_topic(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: request.response(17)
        outcome = mqadmin.run("sendMessage", "-t", "GTopik", "-p", "x")
        assert outcome.code == 1
        assert "the nearest is GTopic; no broker creates topics by itself" in outcome.err

    def test_a_topic_without_write_permission(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        route = (
            b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:1"},"brokerName":"b","cluster":"c"}],'
            b'"queueDatas":[{"brokerName":"b","perm":4,"readQueueNums":4,"writeQueueNums":4}]}'
        )
        cluster.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: request.response(
            0, body=route
        )
        assert "no queue that can be written" in mqadmin.run(*SEND).err

    def test_no_trace_is_said(self, mqadmin: Bench, storing: FakeCluster) -> None:
        outcome = mqadmin.run(*SEND, "-m", "true")
        assert outcome.code == 0
        assert "is not traced" in outcome.err


class TestMeasuring:
    def test_check_goes_round_the_queues(self, mqadmin: Bench, storing: FakeCluster) -> None:
        lines = mqadmin.lines("checkMsgSendRT", "-t", "GTopic", "-a", "6", "-s", "5")
        assert [line[1:3] for line in lines[1:7]] == [[str(q), "true"] for q in (0, 1, 2, 3, 0, 1)]
        assert lines[7][:2] == ["Avg", "RT:"]
        assert {request.body for request in sent(storing)} == {b"aaaaa"}

    def test_check_goes_on_after_a_failure(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        codes: Iterator[int] = itertools.cycle([0, 1])
        cluster.answers[RequestCode.SEND_MESSAGE_V2] = lambda request: store(request, next(codes))
        outcome = mqadmin.run("checkMsgSendRT", "-t", "GTopic", "-a", "4", "--json")
        assert [row["success"] for row in outcome.data] == [True, False, True, False]
        assert outcome.err.count("\n") == 2

    def test_cluster(self, mqadmin: Bench, storing: FakeCluster) -> None:
        (row,) = mqadmin.run_json("clusterRT", "-a", "3")
        assert row.pop("rt") >= 0
        assert row == {
            "clusterName": "GoldenCluster",
            "brokerName": "broker-g",
            "successCount": 3,
            "failCount": 0,
        }

    def test_cluster_as_log(self, mqadmin: Bench, storing: FakeCluster) -> None:
        out = mqadmin.run("clusterRT", "-a", "2", "-p", "true", "-m", "room1").out
        assert re.fullmatch(r"[\d-]+ [\d:]+\|room1\|GoldenCluster\|broker-g\|\d+\n", out)

    def test_status(self, mqadmin: Bench, storing: FakeCluster) -> None:
        lines = mqadmin.run("sendMsgStatus", "-b", "broker-g", "-c", "2").out.splitlines()
        pattern = (
            r"rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK, msgId=[0-9A-F]{32}, "
            rf"offsetMsgId={ID}, messageQueue=MessageQueue \[topic=broker-g, "
            r"brokerName=broker-g, queueId=\d\], queueOffset=7\]"
        )
        assert [bool(re.fullmatch(pattern, line)) for line in lines] == [True, True]
        assert len(sent(storing)) == 3


def test_unique_keys_differ_and_carry_the_time() -> None:
    month_start_ms = 1_793_491_200_000
    keys = UniqueKeys(month_start_ms + 1)
    made = [keys.next_key(month_start_ms + 5) for _ in range(3)]
    assert len(set(made)) == 3
    assert [len(key) for key in made] == [32] * 3
    assert [key[-4:] for key in made] == ["0000", "0001", "0002"]
    assert keys.next_key(month_start_ms + 6)[20:28] > made[0][20:28]
