"""Commands that show and change settings of brokers, name servers, topics and groups."""

from __future__ import annotations

import pytest

from remoting.body.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from remoting.body.subscription_group_config import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster, running_cluster
from tests.tools.mqadmin_bench import Bench

CLOSED = "127.0.0.1:1"


def two_masters(cluster: FakeCluster, second: str) -> None:
    """A cluster of two broker names that both have topic T, with different queues."""
    members = {"a": cluster.address, "b": second}
    info = ClusterInfo(
        broker_addr_table={
            name: BrokerData(cluster="c", broker_name=name, broker_addrs={0: address})
            for name, address in members.items()
        },
        cluster_addr_table={"c": list(members)},
    )
    cluster.always(RequestCode.GET_BROKER_CLUSTER_INFO, body=info.to_json_bytes())
    route = TopicRouteData(
        broker_datas=list(info.broker_addr_table.values()),
        queue_datas=[
            QueueData(broker_name="a", read_queue_nums=4, write_queue_nums=4, perm=6),
            QueueData(broker_name="b", read_queue_nums=8, write_queue_nums=2, perm=2),
        ],
    )
    cluster.always(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=route.to_standard_json_bytes())


class TestUpdateBrokerConfig:
    def test_what_the_broker_says_is_shown(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.UPDATE_BROKER_CONFIG, remark="applies after a restart")
        options = ["-b", cluster.address, "-k", " traceOn ", "-v", " false "]
        outcome = mqadmin.run("updateBrokerConfig", *options)
        assert outcome.out == (
            f"update broker config success, {cluster.address}\napplies after a restart\n"
        )
        assert cluster.asked(RequestCode.UPDATE_BROKER_CONFIG)[0].body == b"traceOn=false\n"

    def test_a_cluster_means_its_masters(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        options = ["-c", "GoldenCluster", "-k", "traceOn", "-v", "false"]
        cluster.always(RequestCode.UPDATE_BROKER_CONFIG, remark="now")
        assert mqadmin.run_json("updateBrokerConfig", *options) == {
            "brokerAddrs": [cluster.address],
            "key": "traceOn",
            "value": "false",
            "remarks": {cluster.address: "now"},
        }

    def test_one_that_fails_does_not_keep_it_from_the_others(
        self, mqadmin: Bench, cluster: FakeCluster
    ) -> None:
        two_masters(cluster, CLOSED)
        outcome = mqadmin.run("updateBrokerConfig", "-c", "c", "-k", "k", "-v", "v")
        assert (outcome.code, outcome.out) == (1, "")
        assert outcome.err.startswith(
            f"mqadmin updateBrokerConfig: succeeded at brokers: {cluster.address}; failed: {CLOSED}"
        )

    def test_a_refusal_is_the_brokers_own(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.UPDATE_BROKER_CONFIG, 16, "brokerConfigPath cannot be changed")
        options = ["-b", cluster.address, "-k", "brokerConfigPath", "-v", "/x"]
        outcome = mqadmin.run("updateBrokerConfig", *options)
        assert outcome.err == (
            f"mqadmin updateBrokerConfig: {cluster.address} answered NO_PERMISSION (16): "
            "brokerConfigPath cannot be changed\n"
        )

    @pytest.mark.parametrize(
        ("key", "value", "line"),
        [
            ("a=b", "v", "-k: 'a=b' is not a valid settings key"),
            ("a b", "v", "-k: 'a b' is not a valid settings key"),
            ("", "v", "-k: '' is not a valid settings key"),
            ("a", "v\nrocketmqHome=/x", "-v: a value must be a single line"),
        ],
    )
    def test_only_one_setting_is_ever_sent(
        self, mqadmin: Bench, cluster: FakeCluster, key: str, value: str, line: str
    ) -> None:
        outcome = mqadmin.run("updateBrokerConfig", "-b", cluster.address, "-k", key, "-v", value)
        assert outcome.code == 2
        assert outcome.err.startswith(f"mqadmin updateBrokerConfig: {line}")
        assert cluster.requests == []


class TestUpdateNamesrvConfig:
    def test_reaches_every_name_server(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.UPDATE_NAMESRV_CONFIG, remark="in force now")
        with running_cluster() as second:
            second.always(RequestCode.UPDATE_NAMESRV_CONFIG)
            servers = f"{cluster.address};{second.address}"
            outcome = mqadmin.run("updateNamesrvConfig", "-k", "k", "-v", "v", servers=servers)
            bodies = [c.asked(RequestCode.UPDATE_NAMESRV_CONFIG)[0].body for c in (cluster, second)]
        assert bodies == [b"k=v\n"] * 2
        assert outcome.out == (
            "update name server config success!"
            f"[{cluster.address}, {second.address}]\nk : v\nin force now\n"
        )

    def test_data(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.UPDATE_NAMESRV_CONFIG)
        assert mqadmin.run_json("updateNamesrvConfig", "-k", "k", "-v", "v") == {
            "nameServers": [cluster.address],
            "key": "k",
            "value": "v",
            "remarks": {cluster.address: None},
        }


class TestUpdateTopicPerm:
    def test_each_broker_keeps_its_queues(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        with running_cluster() as second:
            two_masters(cluster, second.address)
            for each in (cluster, second):
                each.always(RequestCode.UPDATE_AND_CREATE_TOPIC)
            data = mqadmin.run_json("updateTopicPerm", "-t", "T", "-c", "c", "-p", "4")
            headers = [
                c.asked(RequestCode.UPDATE_AND_CREATE_TOPIC)[0].ext_fields
                for c in (cluster, second)
            ]
        assert [(h["readQueueNums"], h["writeQueueNums"], h["perm"]) for h in headers] == [
            ("4", "4", "4"),
            ("8", "2", "4"),
        ]
        by_address = {item["brokerAddr"]: item["oldPerm"] for item in data["brokers"]}
        assert by_address == {cluster.address: 6, second.address: 2}

    def test_the_same_perm_changes_nothing(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        two_masters(cluster, CLOSED)
        outcome = mqadmin.run("updateTopicPerm", "-t", "T", "-b", cluster.address, "-p", "6")
        assert outcome.out == "new perm equals to the old one!\n"
        assert cluster.asked(RequestCode.UPDATE_AND_CREATE_TOPIC) == []

    def test_an_address_without_the_topic(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        outcome = mqadmin.run("updateTopicPerm", "-t", "GTopic", "-b", CLOSED, "-p", "6")
        assert outcome.err == (
            f"mqadmin updateTopicPerm: broker {CLOSED}: no master there has this topic\n"
        )


class TestUpdateOrderConf:
    def test_put(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.PUT_KV_CONFIG)
        options = ["-t", "T", "-m", "put", "-v", "a:4;b:8"]
        outcome = mqadmin.run("updateOrderConf", *options)
        assert outcome.out == "update orderConf success. topic=[T], orderConf=[a:4;b:8]\n"
        assert cluster.asked(RequestCode.PUT_KV_CONFIG)[0].ext_fields == {
            "namespace": "ORDER_TOPIC_CONFIG",
            "key": "T",
            "value": "a:4;b:8",
        }

    @pytest.mark.parametrize("conf", [[], ["-v", "a"], ["-v", "a:x"], ["-v", ""]])
    def test_put_needs_counts(self, mqadmin: Bench, conf: list[str]) -> None:
        outcome = mqadmin.run("updateOrderConf", "-t", "T", "-m", "put", *conf)
        assert outcome.code == 2
        assert "-m put needs -v brokerName1:num;brokerName2:num" in outcome.err

    def test_get(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.GET_KV_CONFIG, fields={"value": "a:4"})
        data = mqadmin.run_json("updateOrderConf", "-t", "T", "-m", "get")
        assert data == {"topic": "T", "orderConf": "a:4"}
        outcome = mqadmin.run("updateOrderConf", "-t", "T", "-m", "get")
        assert outcome.out == "get orderConf success. topic=[T], orderConf=[a:4]\n"

    def test_get_of_a_topic_without(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.GET_KV_CONFIG, 22, "no")
        outcome = mqadmin.run("updateOrderConf", "-t", "T", "-m", "get")
        assert outcome.err == "mqadmin updateOrderConf: topic T has no order conf\n"

    def test_delete_asks(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.DELETE_KV_CONFIG)
        options = ["-t", "T", "-m", "delete"]
        outcome = mqadmin.run("updateOrderConf", *options)
        assert (outcome.code, cluster.requests) == (1, [])
        assert "Delete the order conf of topic T?" in outcome.err
        outcome = mqadmin.run("updateOrderConf", *options, "--yes")
        assert outcome.out == "delete orderConf success. topic=[T]\n"
        assert len(cluster.asked(RequestCode.DELETE_KV_CONFIG)) == 1


class TestGetConsumerConfig:
    GROUP = SubscriptionGroupConfig(group_name="g", retry_max_times=3)

    def groups(self, cluster: FakeCluster, *configs: SubscriptionGroupConfig) -> None:
        wrapper = SubscriptionGroupWrapper(
            subscription_group_table={config.group_name: config for config in configs}
        )
        cluster.always(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, body=wrapper.to_json_bytes())

    def test_all_nine_settings(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        self.groups(cluster, self.GROUP)
        lines = mqadmin.run("getConsumerConfig", "-g", "g").out.splitlines()
        assert lines[0] == f"{'=' * 29}GoldenCluster:broker-g{'=' * 29}"
        assert lines[1:] == [
            f"{name:<40}=  {value}"
            for name, value in {
                "groupName": "g",
                "consumeEnable": "true",
                "consumeFromMinEnable": "true",
                "consumeBroadcastEnable": "true",
                "retryQueueNums": "1",
                "retryMaxTimes": "3",
                "brokerId": "0",
                "whichBrokerWhenConsumeSlowly": "1",
                "notifyConsumerIdsChangedEnable": "true",
            }.items()
        ]
        (data,) = mqadmin.run_json("getConsumerConfig", "-g", "g")
        assert (data["clusterName"], data["brokerName"]) == ("GoldenCluster", "broker-g")
        assert data["subscriptionGroupConfig"]["retryMaxTimes"] == 3

    def test_an_unknown_group(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        self.groups(cluster, SubscriptionGroupConfig(group_name="orders"))
        outcome = mqadmin.run("getConsumerConfig", "-g", "order")
        assert outcome.err == (
            "mqadmin getConsumerConfig: group order does not exist; the nearest is orders\n"
        )

    def test_a_broker_name_without_members_is_left_out(
        self, mqadmin: Bench, cluster: FakeCluster
    ) -> None:
        self.groups(cluster, self.GROUP)
        info = ClusterInfo(
            broker_addr_table={
                "a": BrokerData(cluster="c", broker_name="a", broker_addrs={0: cluster.address}),
                "gone": BrokerData(cluster="c", broker_name="gone"),
            },
        )
        cluster.always(RequestCode.GET_BROKER_CLUSTER_INFO, body=info.to_json_bytes())
        (data,) = mqadmin.run_json("getConsumerConfig", "-g", "g")
        assert (data["clusterName"], data["brokerName"]) == ("c", "a")


def test_runtime_numbers_are_numbers_in_json(mqadmin: Bench, cluster: FakeCluster) -> None:
    table = {
        "commitLogMaxOffset": "12",
        "commitLogDiskRatio": "0.33",
        "putTps": "1.5 2 nothing",
        "remainHowManyDataToFlush": "0 B",
        "earliestMessageTimeStamp": "-1",
    }

    def answer(request: RemotingCommand) -> RemotingCommand:
        pairs = ",".join(f'"{key}":"{value}"' for key, value in table.items())
        return request.response(0, body=f'{{"table":{{{pairs}}}}}'.encode())

    cluster.answers[RequestCode.GET_BROKER_RUNTIME_INFO] = answer
    assert mqadmin.run_json("brokerStatus", "-b", cluster.address) == {
        cluster.address: {
            "commitLogMaxOffset": 12,
            "commitLogDiskRatio": 0.33,
            "putTps": [1.5, 2.0],
            "remainHowManyDataToFlush": "0 B",
            "earliestMessageTimeStamp": -1,
        }
    }
