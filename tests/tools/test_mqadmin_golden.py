"""Each command against what the original printed for the same answers of the same servers."""

from __future__ import annotations

import re
import socket

import pytest

from remoting.body.route import BrokerData, QueueData, TopicRouteData
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.remoting.golden_frames import golden_frames
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import GOLDEN_HOURS, Bench, as_set, golden, words
from tools.message_decoder import encode_message_id

UNIQUE = "FD00000000000000000000000000000219CD4E0E2F2A6486717A0002"


def golden_request(code: RequestCode) -> RemotingCommand:
    """The first request of Java under this code."""
    frames = golden_frames(side="request", kind="wire-json")
    return next(frame.command() for frame in frames if frame.code == code)


def own_id(cluster: FakeCluster, phy_offset: int) -> str:
    """An offset id that names the fake cluster."""
    host, _, port = cluster.address.rpartition(":")
    return encode_message_id(socket.inet_aton(host), int(port), phy_offset)


def without_hash_order(lines: list[list[str]]) -> list[list[str]]:
    """Properties in any order, without the bounds; no body path, tracks as one line each."""
    result = []
    for line in lines:
        text = " ".join(line)
        if text.startswith("Message Body Path"):
            continue
        for part in re.split(r"(?<=\])(?=MessageTrack)", text):
            cleaned = re.sub(r"(MIN|MAX)_OFFSET=\d+, |, (MIN|MAX)_OFFSET=\d+", "", part)
            ordered = re.sub(
                r"\{([^{}]*)\}", lambda m: "{" + ", ".join(sorted(m[1].split(", "))) + "}", cleaned
            )
            result.append(ordered.split())
    return result


def test_cluster_list(mqadmin: Bench) -> None:
    """But for the hours since 1970 that Java's tool prints for "I do not know"."""
    theirs = golden(0).replace(f"{GOLDEN_HOURS:.2f}", "-")
    assert mqadmin.lines("clusterList") == words(theirs)


def test_broker_status(mqadmin: Bench, cluster: FakeCluster) -> None:
    ours = mqadmin.lines("brokerStatus", "-b", cluster.address)
    theirs = words(golden(1))
    assert [line[0] for line in ours] == [line[0] for line in theirs]
    changing = {"runtime", "getMissTps", "getTotalTps", "getFoundTps", "getTransferedTps", "putTps"}
    changing |= {line[0] for line in theirs if "Total" in line[0]}
    stable = [line for line in theirs if line[0] not in changing]
    assert as_set(stable) <= as_set(ours)


def test_topic_list(mqadmin: Bench) -> None:
    ours = mqadmin.lines("topicList")
    assert ours == sorted(ours)
    assert as_set(ours) == as_set(words(golden(2)))


def test_topic_route_is_the_text_of_the_original(mqadmin: Bench, cluster: FakeCluster) -> None:
    ours = mqadmin.run("topicRoute", "-t", "GTopic").out
    text = golden(3).replace("127.0.0.2:20911", cluster.address)
    assert ours == text.replace("127.0.0.2:21911", cluster.address)


def test_topic_status(mqadmin: Bench) -> None:
    assert mqadmin.lines("topicStatus", "-t", "GTopic") == words(golden(4))


def test_consumer_progress_of_a_group(mqadmin: Bench) -> None:
    assert mqadmin.lines("consumerProgress", "-g", "G_group") == words(golden(5))


def test_consumer_progress_of_all_groups(mqadmin: Bench) -> None:
    assert as_set(mqadmin.lines("consumerProgress")) == as_set(words(golden(6)))


def test_query_by_id(mqadmin: Bench, cluster: FakeCluster) -> None:
    ours = mqadmin.lines("queryMsgById", "-i", own_id(cluster, 405))
    assert without_hash_order(ours) == without_hash_order(words(golden(7)))


def test_query_by_key(mqadmin: Bench) -> None:
    assert mqadmin.lines("queryMsgByKey", "-t", "GTopic", "-k", "kB") == words(golden(8))
    (request,) = mqadmin.cluster.asked(RequestCode.QUERY_MESSAGE)
    java = golden_request(RequestCode.QUERY_MESSAGE).ext_fields
    assert request.ext_fields == {k: v for k, v in java.items() if k in request.ext_fields}


def test_query_by_unique_key(mqadmin: Bench) -> None:
    ours = mqadmin.lines("queryMsgByUniqueKey", "-t", "GTopic", "-i", UNIQUE)
    assert without_hash_order(ours) == without_hash_order(words(golden(9)))


def test_query_by_offset(mqadmin: Bench) -> None:
    ours = mqadmin.lines("queryMsgByOffset", "-t", "GTopic", "-b", "broker-g", "-i", "0", "-o", "0")
    assert without_hash_order(ours) == without_hash_order(words(golden(10)))
    assert "MAX_OFFSET=6" in " ".join(" ".join(line) for line in ours)


def test_broker_config(mqadmin: Bench, cluster: FakeCluster) -> None:
    ours = mqadmin.lines("getBrokerConfig", "-b", cluster.address)
    theirs = words(golden(11))
    assert ours[0] == theirs[0]
    names = {line[0] for line in theirs}
    assert {line[0] for line in ours} == names
    assert len(as_set(ours) & as_set(theirs)) >= len(names) - 3


def test_update_topic(mqadmin: Bench, cluster: FakeCluster) -> None:
    options = ["-t", "GAdminTopic", "-r", "4", "-w", "4", "-b", cluster.address]
    assert mqadmin.lines("updateTopic", *options) == words(golden(12))
    (request,) = cluster.asked(RequestCode.UPDATE_AND_CREATE_TOPIC)
    java = golden_request(RequestCode.UPDATE_AND_CREATE_TOPIC).ext_fields
    assert request.ext_fields == {
        key: value for key, value in java.items() if key not in ("Signature", "AccessKey")
    }


def test_attributes_of_a_topic(mqadmin: Bench, cluster: FakeCluster) -> None:
    """As mqadmin of 5.3.3 sends and prints them."""
    changes = "+message.type=FIFO,-reserve.time"
    out = mqadmin.run("updateTopic", "-t", "GAdminTopic", "-b", cluster.address, "-a", changes).out
    (request,) = cluster.asked(RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert request.ext_fields["attributes"] == changes
    assert out.endswith("order=false, attributes={+message.type=FIFO, -reserve.time}]\n")
    options = ["-t", "GAdminTopic", "-b", cluster.address, "-a", changes]
    topic = mqadmin.run_json("updateTopic", *options)["topicConfig"]
    assert topic["attributes"] == changes


def test_update_broker_config(mqadmin: Bench, cluster: FakeCluster) -> None:
    options = ["-b", cluster.address, "-k", "defaultQueryMaxNum", "-v", "33"]
    assert mqadmin.lines("updateBrokerConfig", *options) == words(golden(14))
    (request,) = cluster.asked(RequestCode.UPDATE_BROKER_CONFIG)
    assert request.body == golden_request(RequestCode.UPDATE_BROKER_CONFIG).body


def test_update_topic_perm(mqadmin: Bench, cluster: FakeCluster) -> None:
    route = TopicRouteData(
        broker_datas=[BrokerData(broker_name="broker-g", broker_addrs={0: cluster.address})],
        queue_datas=[
            QueueData(broker_name="broker-g", read_queue_nums=4, write_queue_nums=4, perm=6)
        ],
    )
    cluster.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: request.response(
        0, body=route.to_standard_json_bytes()
    )
    options = ["-t", "GAdminTopic", "-p", "4", "-b", cluster.address]
    assert mqadmin.lines("updateTopicPerm", *options) == words(golden(15))
    (request,) = cluster.asked(RequestCode.UPDATE_AND_CREATE_TOPIC)
    java = golden_request(RequestCode.UPDATE_AND_CREATE_TOPIC).ext_fields | {"perm": "4"}
    assert request.ext_fields == {
        key: value for key, value in java.items() if key not in ("Signature", "AccessKey")
    }


def test_reset_offset_by_time_of_a_group_that_is_offline(
    mqadmin: Bench, cluster: FakeCluster
) -> None:
    cluster.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda request: request.response(
        0, None, {"offset": "0"}
    )
    cluster.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda request: request.response(0)
    options = ["-g", "G_group", "-t", "GTopic", "-s", "0", "--yes"]
    ours = mqadmin.lines("resetOffsetByTime", *options)
    assert as_set(ours) == as_set(words(golden(18)))
    (asked,) = cluster.asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    java = golden_request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET).ext_fields
    assert asked.ext_fields == {
        k: v for k, v in java.items() if k not in ("Signature", "AccessKey")
    }
    told = cluster.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert {request.ext_fields["queueId"] for request in told} == {"0", "1", "2", "3"}
    frames = golden_frames(side="request", kind="wire-json")
    sent_by_java = [frame.command().ext_fields for frame in frames if frame.code == 15][3:]
    assert sent_by_java
    for fields in sent_by_java:
        own = {k: v for k, v in fields.items() if k not in ("Signature", "AccessKey")}
        assert own in [request.ext_fields for request in told]


def test_clone_group_offset(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda request: request.response(0)
    options = ["-s", "G_group", "-d", "G_clone", "-t", "GTopic", "--yes"]
    assert mqadmin.lines("cloneGroupOffset", *options) == words(golden(27))
    told = [request.ext_fields for request in cluster.asked(RequestCode.UPDATE_CONSUMER_OFFSET)]
    assert {fields["consumerGroup"] for fields in told} == {"G_clone"}
    assert [(fields["queueId"], fields["commitOffset"]) for fields in told] == [
        ("0", "6"),
        ("1", "4"),
        ("2", "14"),
        ("3", "6"),
    ]


def test_update_sub_group(mqadmin: Bench, cluster: FakeCluster) -> None:
    ours = mqadmin.lines("updateSubGroup", "-g", "G_admin_group", "-b", cluster.address)
    assert ours == words(golden(13))
    (request,) = cluster.asked(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    assert request.body == golden_request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).body


@pytest.mark.parametrize(
    ("number", "arguments"),
    [
        (16, ["updateKvConfig", "-s", "NS1", "-k", "k1", "-v", "v1"]),
        (17, ["deleteKvConfig", "-s", "NS1", "-k", "k1", "--yes"]),
        (21, ["wipeWritePerm", "-b", "broker-g"]),
        (22, ["addWritePerm", "-b", "broker-g"]),
    ],
)
def test_name_server_changes(mqadmin: Bench, number: int, arguments: list[str]) -> None:
    assert mqadmin.lines(*arguments) == words(golden(number))


def test_delete_sub_group(mqadmin: Bench, cluster: FakeCluster) -> None:
    options = ["-g", "G_admin_group", "-b", cluster.address, "--yes"]
    assert mqadmin.lines("deleteSubGroup", *options) == words(golden(19))


def test_consume_message(mqadmin: Bench) -> None:
    options = ["-t", "GTopic", "-b", "broker-g", "-i", "3", "-c", "3"]
    ours = without_hash_order(mqadmin.lines("consumeMessage", *options))
    assert ours == without_hash_order(words(golden(20)))
    (request,) = mqadmin.cluster.asked(RequestCode.PULL_MESSAGE)
    assert request.ext_fields["consumerGroup"] == "TOOLS_CONSUMER"
    assert request.ext_fields["sysFlag"] == "4"


def test_name_server_config(mqadmin: Bench) -> None:
    ours = mqadmin.lines("getNamesrvConfig")
    theirs = words(golden(23))
    assert ours[0] == theirs[0]
    assert as_set(ours) == as_set(theirs)


def test_allocate_mq_shares_as_the_original(mqadmin: Bench) -> None:
    members = "10.0.0.1@1,10.0.0.2@2"
    ours = mqadmin.run_json("allocateMQ", "-t", "GTopic", "-i", members)["result"]
    assert {member: [q["queueId"] for q in queues] for member, queues in ours.items()} == {
        "10.0.0.1@1": [0, 1],
        "10.0.0.2@2": [2, 3],
    }
    text = mqadmin.run("allocateMQ", "-t", "GTopic", "-i", members).out
    assert sorted(text.strip()) == sorted(golden(24).strip())


def test_stats_all(mqadmin: Bench) -> None:
    ours = mqadmin.lines("statsAll", "-t", "GTopic")
    theirs = words(golden(25))
    assert ours[0] == theirs[0]
    assert [line[:2] for line in ours] == [line[:2] for line in theirs]
    assert ours[1] == [*theirs[1][:2], ours[1][2], *theirs[1][3:]]


def test_delete_topic(mqadmin: Bench) -> None:
    options = ["-t", "GAdminTopic", "-c", "GoldenCluster", "--yes"]
    assert mqadmin.lines("deleteTopic", *options) == words(golden(26))
    asked = [request.code for request in mqadmin.cluster.requests]
    assert asked == [106, 215, 216]
