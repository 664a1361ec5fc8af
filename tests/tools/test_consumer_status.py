"""mqadmin consumerStatus: files, verdicts, members that do not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from remoting.body.client_connection import Connection, ConsumerConnection
from remoting.body.consumer_running_info import (
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from remoting.body.heartbeat import SubscriptionData
from remoting.body.message_queue import MessageQueue
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import GOLDEN_HOURS, Bench
from tools.running_info import format_running_info

NOW_MS = int(GOLDEN_HOURS * 3_600_000)
QUEUE = MessageQueue(broker_name="b", queue_id=1, topic="T")


def info(expression: str = "*", *, jstack: str | None = None) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        properties={
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMER_START_TIMESTAMP": "1",
        },
        subscription_set=[SubscriptionData(topic="T", sub_string=expression)],
        mq_table={QUEUE: ProcessQueueInfo(commit_offset=3, cached_msg_count=1)},
        status_table={"T": ConsumeStatus(pull_tps=2.5)},
        jstack=jstack,
    )


def online(cluster: FakeCluster, infos: dict[str, ConsumerRunningInfo | None]) -> None:
    """These clients are the members of every group; None: does not answer."""
    connections = [
        Connection(client_id=name, client_addr="10.0.0.9:1", version=409) for name in infos
    ]
    body = ConsumerConnection(connection_set=connections).to_json_bytes()
    cluster.always(RequestCode.GET_CONSUMER_CONNECTION_LIST, body=body)

    def answer(request: RemotingCommand) -> RemotingCommand:
        found = infos[request.ext_fields["clientId"]]
        if found is None:
            return request.response(207, "timed out")
        return request.response(0, body=found.to_json_bytes())

    cluster.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = answer


@pytest.fixture(autouse=True)
def _in_tmp_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_file_for_each_member(mqadmin: Bench, cluster: FakeCluster, tmp_path: Path) -> None:
    online(cluster, {"b@2": info(), "a@1": info()})
    outcome = mqadmin.run("consumerStatus", "-g", "G_group")
    blocked = (
        "MessageQueue [topic=T, brokerName=b, queueId=1] can't consume for a while, maybe blocked, "
        f"{NOW_MS}ms"
    )
    assert outcome.out.splitlines() == [
        "#Index  #ClientId  #Version  #ConsumerRunningInfoFile",
        f"1       a@1        V4_9_8    {NOW_MS}/a@1",
        f"2       b@2        V4_9_8    {NOW_MS}/b@2",
        "",
        "",
        "Same subscription in the same group of consumer",
        "",
        "Rebalance OK",
        f"a@1 {blocked}",
        f"b@2 {blocked}",
    ]
    written = (tmp_path / str(NOW_MS) / "a@1").read_text()
    assert written == format_running_info(info()) + "\n"


def test_different_subscriptions(mqadmin: Bench, cluster: FakeCluster) -> None:
    online(cluster, {"a@1": info(), "b@2": info("TagA")})
    outcome = mqadmin.run("consumerStatus", "-g", "G_group")
    assert outcome.out.splitlines()[3:] == [
        "",
        "",
        "WARN: Different subscription in the same group of consumer!!!",
    ]


def test_json_has_all_of_it(mqadmin: Bench, cluster: FakeCluster) -> None:
    online(cluster, {"a@1": info(jstack="stack")})
    data = mqadmin.run_json("consumerStatus", "-g", "G_group", "-s")
    assert cluster.asked(RequestCode.GET_CONSUMER_RUNNING_INFO)[0].ext_fields == {
        "consumerGroup": "G_group",
        "clientId": "a@1",
        "jstackEnable": "true",
    }
    (member,) = data["consumers"]
    assert (member["clientId"], member["version"]) == ("a@1", "V4_9_8")
    assert member["file"] == f"{NOW_MS}/a@1"
    running = member["runningInfo"]
    assert (running["queues"][0]["topic"], running["queues"][0]["commitOffset"]) == ("T", 3)
    assert running["topics"][0]["pullTPS"] == 2.5
    assert running["jstack"] == "stack"
    assert data["sameSubscription"] is True
    assert len(data["problems"]) == 1


def test_one_member_goes_to_stdout(mqadmin: Bench, cluster: FakeCluster, tmp_path: Path) -> None:
    online(cluster, {"a@1": info()})
    outcome = mqadmin.run("consumerStatus", "-g", "G_group", "-i", "a@1")
    assert outcome.out == format_running_info(info()) + "\n"
    assert list(tmp_path.glob("[0-9]*")) == []
    data = mqadmin.run_json("consumerStatus", "-g", "G_group", "-i", "a@1")
    assert "jstack" not in data
    assert data["subscriptions"][0]["subString"] == "*"


def test_who_does_not_answer_has_a_line(mqadmin: Bench, cluster: FakeCluster) -> None:
    online(cluster, {"a@1": None, "b@2": info()})
    outcome = mqadmin.run("consumerStatus", "-g", "G_group", "-b", cluster.address)
    assert outcome.code == 0
    assert outcome.out.splitlines()[1].startswith("1       b@2")
    assert outcome.err == (
        f"mqadmin consumerStatus: client a@1: {cluster.address} answered CONSUME_MSG_TIMEOUT "
        "(207): timed out\n"
    )


def test_nobody_answers(mqadmin: Bench, cluster: FakeCluster) -> None:
    online(cluster, {"a@1": None})
    outcome = mqadmin.run("consumerStatus", "-g", "G_group")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.endswith(
        "mqadmin consumerStatus: no member of group G_group returned its running info\n"
    )


def test_nobody_is_online(mqadmin: Bench) -> None:
    outcome = mqadmin.run("consumerStatus", "-g", "G_group")
    assert outcome.err == "mqadmin consumerStatus: no consumer of group G_group is online\n"


@pytest.mark.parametrize(
    ("client_id", "name"),
    [("../../x", "_.._.._x"), ("/etc/passwd", "_etc_passwd"), ("10.0.0.1@5#9", "10.0.0.1@5#9")],
)
def test_files_stay_in_their_directory(
    mqadmin: Bench, cluster: FakeCluster, client_id: str, name: str, tmp_path: Path
) -> None:
    online(cluster, {client_id: info()})
    assert mqadmin.run("consumerStatus", "-g", "G_group").code == 0
    assert [path.name for path in (tmp_path / str(NOW_MS)).iterdir()] == [name]


def test_where_nothing_can_be_written(mqadmin: Bench, cluster: FakeCluster, tmp_path: Path) -> None:
    online(cluster, {"a@1": info()})
    (tmp_path / str(NOW_MS)).write_text("a file where the directory should be")
    outcome = mqadmin.run("consumerStatus", "-g", "G_group")
    assert outcome.code == 1
    assert outcome.err.startswith(f"mqadmin consumerStatus: cannot write {NOW_MS}/a@1: ")
    assert outcome.err.endswith("; run mqadmin in a writable directory\n")
