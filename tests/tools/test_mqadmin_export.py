"""exportConfigs, exportMetadata, exportMetrics: the files, and where they may be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remoting.body.client_connection import Connection, ConsumerConnection
from remoting.body.kv_table import KVTable
from remoting.body.route import BrokerData, ClusterInfo
from remoting.body.stats import BrokerStatsData, BrokerStatsItem
from remoting.body.subscription_group_config import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper, TopicList
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster, running_cluster
from tests.tools.mqadmin_bench import GOLDEN_HOURS, Bench

NOW_MS = int(GOLDEN_HOURS * 3_600_000)


def metadata(cluster: FakeCluster, *topics: TopicConfig, retry_queues: int = 1) -> None:
    """Topics and groups of a broker, with the system's own among them."""
    own = [TopicConfig(topic_name=name) for name in ("SYSTEM", "%RETRY%g", "%DLQ%g")]
    table = TopicConfigSerializeWrapper(
        topic_config_table={config.topic_name: config for config in (*own, *topics)}
    )
    cluster.always(RequestCode.GET_ALL_TOPIC_CONFIG, body=table.to_json_bytes())
    system = TopicList(topic_list=["SYSTEM"]).to_json_bytes()
    cluster.always(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, body=system)
    names = ("g", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER")
    groups = SubscriptionGroupWrapper(
        subscription_group_table={
            name: SubscriptionGroupConfig(group_name=name, retry_queue_nums=retry_queues)
            for name in names
        }
    )
    cluster.always(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, body=groups.to_json_bytes())


def topic(name: str, queues: int) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


def members(cluster: FakeCluster, **brokers: dict[int, str]) -> None:
    """A cluster "c" with these broker names."""
    info = ClusterInfo(
        broker_addr_table={
            name: BrokerData(cluster="c", broker_name=name, broker_addrs=addresses)
            for name, addresses in brokers.items()
        },
        cluster_addr_table={"c": list(brokers)},
    )
    cluster.always(RequestCode.GET_BROKER_CLUSTER_INFO, body=info.to_json_bytes())


class TestExportConfigs:
    def test_file_and_data(self, mqadmin: Bench, cluster: FakeCluster, tmp_path: Path) -> None:
        settings = b"brokerName=broker-g\nbrokerRole=SYNC_MASTER\nstorePathRootDir=/x\n"
        cluster.always(RequestCode.GET_BROKER_CONFIG, body=settings)
        options = ["-c", "GoldenCluster", "-f", str(tmp_path / "new")]
        outcome = mqadmin.run("exportConfigs", *options)
        path = tmp_path / "new" / "configs.json"
        assert outcome.out == f"export {path} success\n"
        assert path.read_text() == (
            '{\n\t"brokerConfigs":{\n\t\t"broker-g":{\n\t\t\t"brokerName":"broker-g",\n'
            '\t\t\t"brokerRole":"SYNC_MASTER"\n\t\t}\n\t},\n\t"clusterScale":{\n'
            '\t\t"namesrvSize":1,\n\t\t"masterBrokerSize":1,\n\t\t"slaveBrokerSize":1\n\t}\n}'
        )
        data = mqadmin.run_json("exportConfigs", *options)
        assert data == {"filePath": str(path), "content": json.loads(path.read_text())}

    def test_an_unknown_cluster_writes_nothing(self, mqadmin: Bench, tmp_path: Path) -> None:
        outcome = mqadmin.run("exportConfigs", "-c", "nowhere", "-f", str(tmp_path))
        assert outcome.err == "mqadmin exportConfigs: cluster nowhere does not exist\n"
        assert not (tmp_path / "configs.json").exists()

    def test_where_nothing_can_be_written(self, mqadmin: Bench, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        options = ["-c", "GoldenCluster", "-f", str(tmp_path / "file")]
        outcome = mqadmin.run("exportConfigs", *options)
        assert outcome.code == 1
        assert outcome.err.startswith(
            f"mqadmin exportConfigs: cannot write {tmp_path}/file/configs.json: "
        )

    def test_the_usual_directory(
        self, mqadmin: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tools.commands.export.DEFAULT_DIRECTORY", str(tmp_path / "export"))
        data = mqadmin.run_json("exportConfigs", "-c", "GoldenCluster")
        assert data["filePath"] == str(tmp_path / "export" / "configs.json")
        monkeypatch.setattr("os.getuid", lambda: -1)
        outcome = mqadmin.run("exportConfigs", "-c", "GoldenCluster")
        assert outcome.err == (
            f"mqadmin exportConfigs: {tmp_path}/export belongs to another user: "
            "choose a directory with -f\n"
        )


class TestExportMetadata:
    def test_a_cluster_is_added_up(
        self, mqadmin: Bench, cluster: FakeCluster, tmp_path: Path
    ) -> None:
        with running_cluster() as second:
            members(cluster, a={0: cluster.address}, b={0: second.address, 1: "127.0.0.1:1"})
            metadata(cluster, topic("T", 4), topic("OnlyA", 1))
            metadata(second, topic("T", 8), retry_queues=2)
            mqadmin.run_json("exportMetadata", "-c", "c", "-f", str(tmp_path))
        tree: dict[str, Any] = json.loads((tmp_path / "metadata.json").read_text())
        topics = {name: t["readQueueNums"] for name, t in tree["topicConfigTable"].items()}
        assert topics == {"OnlyA": 1, "T": 12}
        assert tree["topicConfigTable"]["T"]["writeQueueNums"] == 12
        groups = {g: c["retryQueueNums"] for g, c in tree["subscriptionGroupTable"].items()}
        assert groups == {"g": 3}
        assert tree["exportTime"] == NOW_MS

    @pytest.mark.parametrize(
        ("letter", "name", "keys"),
        [
            ("-t", "topic", ["exportTime", "topicConfigTable"]),
            ("-g", "subscriptionGroup", ["exportTime", "subscriptionGroupTable"]),
        ],
    )
    def test_one_half_of_a_cluster(
        self,
        mqadmin: Bench,
        cluster: FakeCluster,
        tmp_path: Path,
        letter: str,
        name: str,
        keys: list[str],
    ) -> None:
        metadata(cluster, topic("T", 4))
        mqadmin.run_json("exportMetadata", "-c", "GoldenCluster", letter, "-f", str(tmp_path))
        assert list(json.loads((tmp_path / f"{name}.json").read_text())) == keys

    @pytest.mark.parametrize(
        ("letter", "name", "table"),
        [
            ("-t", "topic", "topicConfigTable"),
            ("-g", "subscriptionGroup", "subscriptionGroupTable"),
        ],
    )
    def test_one_brokers_table_with_its_version(
        self,
        mqadmin: Bench,
        cluster: FakeCluster,
        tmp_path: Path,
        letter: str,
        name: str,
        table: str,
    ) -> None:
        metadata(cluster, topic("T", 4))
        mqadmin.run_json("exportMetadata", "-b", cluster.address, letter, "-f", str(tmp_path))
        tree = json.loads((tmp_path / f"{name}.json").read_text())
        assert list(tree) == ["dataVersion", table]
        assert list(tree[table]) == ["T" if letter == "-t" else "g"]

    def test_topics_of_groups_on_demand(
        self, mqadmin: Bench, cluster: FakeCluster, tmp_path: Path
    ) -> None:
        metadata(cluster, topic("T", 4))
        options = ["-b", cluster.address, "-s", "-f", str(tmp_path)]
        data = mqadmin.run_json("exportMetadata", *options)
        assert list(data["content"]["topicConfigTable"]) == ["%DLQ%g", "%RETRY%g", "T"]

    def test_halves_exclude_each_other(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        outcome = mqadmin.run("exportMetadata", "-b", cluster.address, "-t", "-g")
        assert outcome.code == 2
        assert "-t and -g exclude each other" in outcome.err


RUNTIME = {
    "putTps": "10.5 1 1",
    "getTransferedTps": "20.5 1 1",
    "commitLogDiskRatio": "0.33",
    "consumeQueueDiskRatio": "0.34",
    "putMessageAverageSize": "128.0",
    "msgPutTotalYesterdayMorning": "100",
    "msgPutTotalTodayMorning": "160",
    "msgGetTotalYesterdayMorning": "5",
    "msgGetTotalTodayMorning": "7",
}


class TestExportMetrics:
    def prepare(self, cluster: FakeCluster) -> None:
        metadata(cluster, topic("T", 4), topic("U", 4))
        info = KVTable(table=RUNTIME).to_json_bytes()
        cluster.always(RequestCode.GET_BROKER_RUNTIME_INFO, body=info)
        settings = b"clientCallbackExecutorThreads=2\n"
        cluster.always(RequestCode.GET_BROKER_CONFIG, body=settings)
        item = BrokerStatsData(
            stats_minute=BrokerStatsItem(tps=1.25, sum=75), stats_hour=BrokerStatsItem(sum=300)
        ).to_json_bytes()

        def stats(request: RemotingCommand) -> RemotingCommand:
            if request.ext_fields["statsKey"] == "SCHEDULE_TOPIC_XXXX":
                return request.response(0, body=item)
            return request.response(1, "no such item")

        cluster.answers[RequestCode.VIEW_BROKER_STATS_DATA] = stats
        client = Connection(client_id="c", client_addr="x:1", version=409)
        body = ConsumerConnection(connection_set=[client]).to_json_bytes()
        cluster.always(RequestCode.GET_CONSUMER_CONNECTION_LIST, body=body)

    def test_the_report(self, mqadmin: Bench, cluster: FakeCluster, tmp_path: Path) -> None:
        self.prepare(cluster)
        with running_cluster() as second:
            self.prepare(second)
            second.always(RequestCode.GET_BROKER_CONFIG)
            members(cluster, a={0: cluster.address}, b={0: second.address})
            data = mqadmin.run_json("exportMetrics", "-c", "c", "-f", str(tmp_path))
        tree = json.loads((tmp_path / "metrics.json").read_text())
        assert data["content"] == tree
        assert tree["totalData"] == {
            "totalOneDayNum": {
                "normalOneDayInNum": 120,
                "normalOneDayOutNum": 4,
                "scheduleOneDayInNum": 600,
                "transOneDayInNum": 0,
            },
            "totalTps": {
                "totalNormalInTps": 21.0,
                "totalNormalOutTps": 41.0,
                "totalScheduleInTps": 2.5,
                "totalTransInTps": 0.0,
            },
        }
        assert tree["evaluateReport"]["b"]["runtimeEnv"] == {}
        assert tree["evaluateReport"]["a"] == {
            "runtimeEnv": {"cpuNum": "2"},
            "runtimeQuota": {
                "diskRatio": {"commitLogDiskRatio": "0.33", "consumeQueueDiskRatio": "0.34"},
                "groupSize": 1,
                "messageAverageSize": "128.0",
                "oneDayNum": {
                    "normalOneDayInNum": 60,
                    "normalOneDayOutNum": 2,
                    "scheduleOneDayInNum": 300,
                    "transOneDayInNum": 0,
                },
                "topicSize": 2,
                "tps": {
                    "normalInTps": 10.5,
                    "normalOutTps": 20.5,
                    "scheduleInTps": 1.25,
                    "transInTps": 0.0,
                },
            },
            "runtimeVersion": {"clientInfo": ["JAVA%V4_9_8"], "rocketmqVersion": "V4_9_8"},
        }

    def test_what_is_not_known_is_left_out(
        self, mqadmin: Bench, cluster: FakeCluster, tmp_path: Path
    ) -> None:
        self.prepare(cluster)
        cluster.always(RequestCode.GET_BROKER_RUNTIME_INFO, body=b'{"table":{}}')
        cluster.always(RequestCode.GET_CONSUMER_CONNECTION_LIST, 1, "broken")
        outcome = mqadmin.run("exportMetrics", "-c", "GoldenCluster", "-f", str(tmp_path))
        assert outcome.code == 0
        assert outcome.err == (
            f"mqadmin exportMetrics: group g: {cluster.address} answered SYSTEM_ERROR (1): broken\n"
        )
        report = json.loads((tmp_path / "metrics.json").read_text())["evaluateReport"]["broker-g"]
        assert report["runtimeVersion"]["clientInfo"] == []
        assert "messageAverageSize" not in report["runtimeQuota"]
        assert report["runtimeQuota"]["diskRatio"] == {}
        assert report["runtimeQuota"]["oneDayNum"]["normalOneDayInNum"] == 0
