"""Commands and options that only 5.x has: what they ask, and what they print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remoting.body.broker_member_group import BrokerMemberGroup
from remoting.body.controller import (
    BrokerReplicasInfo,
    CheckRocksdbCqWriteResult,
    ElectMasterResponseBody,
    EpochEntry,
    EpochEntryCache,
    ReplicaIdentity,
    ReplicasInfo,
)
from remoting.remoting_serializable import loads_lenient
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench

NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def asked_body(cluster: FakeCluster, code: RequestCode) -> Any:
    (request,) = cluster.asked(code)
    return loads_lenient(request.body)


@pytest.fixture
def controller(cluster: FakeCluster) -> FakeCluster:
    """One that is its own leader."""
    leader = {
        "group": "g",
        "controllerLeaderId": "n0",
        "controllerLeaderAddress": cluster.address,
        "isLeader": "true",
        "peers": f"n0:{cluster.address};n1:10.0.0.2:9878",
    }
    cluster.always(RequestCode.CONTROLLER_GET_METADATA_INFO, fields=leader)
    return cluster


class TestLists:
    def test_topics_as_fastjson_reads_them(
        self, mqadmin: Bench, cluster: FakeCluster, tmp_path: Path
    ) -> None:
        path = tmp_path / "topics.json"
        path.write_text("[{topicName:'A', readQueueNums:'3'}, {'topic_name':'B', order:true,}]")
        cluster.always(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
        outcome = mqadmin.run("updateTopicList", "-c", "GoldenCluster", "-f", str(path))
        assert outcome.out == (
            f"submit batch of topic config to {cluster.address} success, "
            "please check the result later.\n"
        )
        rows = asked_body(cluster, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)["topicConfigList"]
        found = [(row["topicName"], row["readQueueNums"], row["order"]) for row in rows]
        assert found == [("A", 3, False), ("B", 16, True)]

    def test_groups(self, mqadmin: Bench, cluster: FakeCluster, tmp_path: Path) -> None:
        path = tmp_path / "groups.json"
        path.write_text('[{"groupName": "g", "retryMaxTimes": 3}]')
        cluster.always(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
        outcome = mqadmin.run_json("updateSubGroupList", "-b", cluster.address, "-f", str(path))
        assert outcome == {"brokerAddrs": [cluster.address], "names": ["g"]}
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        (row,) = asked_body(cluster, code)["groupConfigList"]
        assert (row["groupName"], row["retryMaxTimes"], row["retryQueueNums"]) == ("g", 3, 1)

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (None, "cannot be read"),
            ("[", "cannot be read"),
            ("{}", "holds no list"),
            ("[]", "or an empty one"),
            ('[{"topicName": "A"}, {"perm": 6}]', "row 2: topicName is missing"),
            ('[{"topicName": "A", "perm": "much"}]', "row 1: perm"),
        ],
    )
    def test_a_bad_file_is_refused(
        self, mqadmin: Bench, cluster: FakeCluster, tmp_path: Path, text: str | None, why: str
    ) -> None:
        path = tmp_path / "topics.json"
        if text is not None:
            path.write_text(text)
        outcome = mqadmin.run("updateTopicList", "-b", cluster.address, "-f", str(path))
        assert outcome.code == 1
        assert why in outcome.err
        assert cluster.requests == []


class TestGroups:
    def test_the_options_of_5x(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        policy = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":7}}'
        options = ["-o", "true", "-p", policy, "--attributes", "+a=b, +c=d=e,-f"]
        outcome = mqadmin.run("updateSubGroup", "-b", cluster.address, "-g", "g", *options)
        assert outcome.code == 0, outcome.err
        sent = asked_body(cluster, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        assert sent["consumeMessageOrderly"] is True
        assert sent["attributes"] == {"+a": "b", "+c": "d=e", "-f": ""}
        assert sent["groupRetryPolicy"]["exponentialRetryPolicy"]["initial"] == 7
        assert sent["groupRetryPolicy"]["type"] == "EXPONENTIAL"

    def test_without_them_a_4_9_broker_gets_what_it_knows(
        self, mqadmin: Bench, cluster: FakeCluster
    ) -> None:
        cluster.always(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        mqadmin.run("updateSubGroup", "-b", cluster.address, "-g", "g")
        sent = asked_body(cluster, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        unknown = {"attributes", "groupRetryPolicy", "consumeMessageOrderly"}
        assert not sent.keys() & unknown

    @pytest.mark.parametrize(
        "options",
        [
            ["--attributes", "a=b"],
            ["--attributes", "+a"],
            ["--attributes", "-a=b"],
            ["--attributes", "+a=1,+a=2"],
            ["-p", "{"],
            ["-p", "[]"],
        ],
    )
    def test_what_is_none_is_a_wrong_usage(
        self, mqadmin: Bench, cluster: FakeCluster, options: list[str]
    ) -> None:
        outcome = mqadmin.run("updateSubGroup", "-b", cluster.address, "-g", "g", *options)
        assert (outcome.code, cluster.requests) == (2, [])

    def test_consume_mode(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.SET_MESSAGE_REQUEST_MODE)
        options = ["-b", cluster.address, "-t", "T", "-g", "g", "-m", "POP", "-q", "3"]
        assert mqadmin.run("setConsumeMode", *options).out == (
            f"set consume mode to {cluster.address} success.\n"
            "topic[T] group[g] consume mode[POP] popShareQueueNum[3]\n"
        )
        assert asked_body(cluster, RequestCode.SET_MESSAGE_REQUEST_MODE) == {
            "consumerGroup": "g",
            "mode": "POP",
            "popShareQueueNum": 3,
            "topic": "T",
        }
        assert mqadmin.run("setConsumeMode", *options[:-3], "NONE").code == 2

    def test_export_of_pop_records(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.GET_BROKER_CONFIG, body=b"brokerName=a\n")
        line = f"Export broker records, brokerName=a, brokerAddr={cluster.address}, dryRun="
        dry = mqadmin.run("exportPopRecord", "-b", cluster.address, "-d", "true")
        assert dry.out == f"{line}true\n"
        assert cluster.asked(RequestCode.POP_ROLLBACK) == []
        cluster.always(RequestCode.POP_ROLLBACK)
        assert mqadmin.run("exportPopRecord", "-b", cluster.address).out == f"{line}false\n"
        cluster.always(RequestCode.POP_ROLLBACK, NOT_SUPPORTED, "not here")
        refused = mqadmin.run("exportPopRecord", "-c", "GoldenCluster")
        assert (refused.code, refused.out) == (1, "")
        assert "succeeded at brokers: none; failed: " in refused.err


class TestController:
    def test_metadata(self, mqadmin: Bench, controller: FakeCluster) -> None:
        at = controller.address
        assert mqadmin.run("getControllerMetaData", "-a", at).out == (
            "#ControllerGroup\tg\n#ControllerLeaderId\tn0\n"
            f"#ControllerLeaderAddress\t{at}\n#Peer:\tn0:{at}\n#Peer:\tn1:10.0.0.2:9878\n"
        )

    def test_any_of_several_may_be_away(self, mqadmin: Bench, controller: FakeCluster) -> None:
        at = controller.address
        found = mqadmin.run("getControllerMetaData", "-a", f"127.0.0.1:1;{at};127.0.0.1:2")
        assert f"#ControllerLeaderAddress\t{at}\n" in found.out
        none = mqadmin.run("getControllerMetaData", "-a", "127.0.0.1:1;127.0.0.1:2")
        assert none.code == 1
        assert "127.0.0.1:1" in none.err
        assert "127.0.0.1:2" in none.err

    def test_replicas_in_sync(self, mqadmin: Bench, controller: FakeCluster) -> None:
        one, two = (
            ReplicaIdentity(broker_name="a", broker_id=n, broker_address=f"h:{n}", alive=n == 1)
            for n in (1, 2)
        )
        info = ReplicasInfo(
            master_broker_id=1,
            master_address="h:1",
            master_epoch=4,
            sync_state_set_epoch=7,
            in_sync_replicas=[one],
            not_in_sync_replicas=[two],
        )
        body = BrokerReplicasInfo(replicas_info_table={"a": info}).to_json_bytes()
        controller.always(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
        outcome = mqadmin.run("getSyncStateSet", "-a", controller.address, "-b", "a")
        identity = "Replica:\tReplicaIdentity{brokerName='a', brokerId="
        assert outcome.out == (
            "#brokerName\ta\n#MasterBrokerId\t1\n#MasterAddr\th:1\n#MasterEpoch\t4\n"
            "#SyncStateSetEpoch\t7\n#SyncStateSetNums\t1\n\n"
            f"InSync{identity}1, brokerAddress='h:1', alive=true}}\n\n"
            f"NotInSync{identity}2, brokerAddress='h:2', alive=false}}\n"
        )
        assert asked_body(controller, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA) == ["a"]
        assert mqadmin.run("getSyncStateSet", "-a", controller.address).code == 2

    def test_epochs(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        entries = [EpochEntry(epoch=1, end_offset=50), EpochEntry(epoch=2, start_offset=50)]
        found = EpochEntryCache(
            cluster_name="c", broker_name="a", broker_id=1, epoch_list=entries, max_offset=90
        )
        cluster.always(RequestCode.GET_BROKER_EPOCH_CACHE, body=found.to_json_bytes())
        lines = mqadmin.run("getBrokerEpoch", "-c", "GoldenCluster").out.splitlines()
        assert lines[:6] == [
            "#clusterName\tc",
            "#brokerName\ta",
            f"#brokerAddr\t{cluster.address}",
            "#brokerId\t1",
            "#Epoch: EpochEntry{epoch=1, startOffset=0, endOffset=50}",
            "#Epoch: EpochEntry{epoch=2, startOffset=50, endOffset=90}",
        ]
        unknown = mqadmin.run("getBrokerEpoch", "-b", "broker-h")
        assert (unknown.code, unknown.out) == (1, "")
        assert "the nearest is broker-g" in unknown.err

    def test_election(self, mqadmin: Bench, controller: FakeCluster) -> None:
        members = BrokerMemberGroup(cluster="c", broker_name="a", broker_addrs={1: "h:1", 2: "h:2"})
        controller.always(
            RequestCode.CONTROLLER_ELECT_MASTER,
            fields={"masterAddress": "h:1", "masterEpoch": "5", "syncStateSetEpoch": "8"},
            body=ElectMasterResponseBody(broker_member_group=members).to_json_bytes(),
        )
        options = ["-a", controller.address, "-b", "2", "-bn", "a", "-c", "c"]
        assert mqadmin.run("electMaster", *options).out == (
            "#ClusterName\tc\n#BrokerName\ta\n#BrokerMasterAddr\th:1\n#MasterEpoch\t5\n"
            "#SyncStateSetEpoch\t8\n\t#Broker\t1\th:1\n\t#Broker\t2\th:2\n"
        )
        (asked,) = controller.asked(RequestCode.CONTROLLER_ELECT_MASTER)
        assert asked.ext_fields["designateElect"] == "true"
        assert (asked.ext_fields["brokerId"], asked.ext_fields["brokerName"]) == ("2", "a")

    def test_cleaning_asks_and_checks(self, mqadmin: Bench, controller: FakeCluster) -> None:
        controller.always(RequestCode.CLEAN_BROKER_DATA)
        options = ["-a", controller.address, "-bn", "a"]
        # Without -b all are forgotten: one that names none must not mean that.
        none = (["-c", "c", "-b", ""], ["-c", "c", "-b", " ; "])
        for wrong in (["-b", "1;x", "-l"], [], *none):
            assert mqadmin.run("cleanBrokerMetadata", *options, *wrong, "--yes").code == 2
        asked = mqadmin.run("cleanBrokerMetadata", *options, "-c", "c", "-b", "1;2")
        assert (asked.code, controller.requests) == (1, [])
        assert "forget brokers 1;2 of a? Without a terminal, confirm with --yes" in asked.err
        done = mqadmin.run("cleanBrokerMetadata", *options, "-c", "c", "-b", "1;2", "--yes")
        assert done.out == "clear broker a metadata from controller success!\n"
        (request,) = controller.asked(RequestCode.CLEAN_BROKER_DATA)
        fields = request.ext_fields
        assert (fields["brokerControllerIdsToClean"], fields["isCleanLivingBroker"]) == (
            "1;2",
            "false",
        )

    def test_settings(self, mqadmin: Bench, controller: FakeCluster) -> None:
        at = controller.address
        controller.always(RequestCode.GET_CONTROLLER_CONFIG, body=b"b=2\na=1\n")
        assert mqadmin.run_json("getControllerConfig", "-a", f"{at};") == {at: {"b": "2", "a": "1"}}
        controller.always(RequestCode.UPDATE_CONTROLLER_CONFIG)
        options = ["-k", "a", "-v", "b"]
        outcome = mqadmin.run("updateControllerConfig", "-a", at, *options)
        assert outcome.out == f"update controller config success![{at}]\na : b\n"
        some = mqadmin.run("updateControllerConfig", "-a", f"127.0.0.1:1;{at}", *options)
        assert some.code == 1
        assert f"succeeded at controllers: {at}; failed: " in some.err

    def test_a_broker_without_one_says_so(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        words = "request type 1005 not supported"
        cluster.always(RequestCode.CONTROLLER_GET_METADATA_INFO, NOT_SUPPORTED, words)
        for name in ("getControllerMetaData", "getSyncStateSet"):
            options = ["-a", cluster.address, *(["-b", "a"] if name == "getSyncStateSet" else [])]
            outcome = mqadmin.run(name, *options)
            assert (outcome.code, outcome.out) == (1, "")
            assert outcome.err.rstrip().endswith(words)


class TestRocksDB:
    def test_brokers_export(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON)
        outcome = mqadmin.run("rocksDBConfigToJson", "-b", cluster.address)
        assert outcome.out == (
            "Use [rpc mode] call broker to export to json file\nbroker export done.\n"
        )
        mqadmin.run("rocksDBConfigToJson", "-c", "GoldenCluster", "-t", "TOPICS")
        kinds = [
            request.ext_fields["configType"]
            for request in cluster.asked(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON)
        ]
        assert kinds == ["topics;subscriptionGroups;consumerOffsets;", "topics;"]

    def test_files_are_refused_in_words(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        local = mqadmin.run("rocksDBConfigToJson", "-p", "/data/config", "-t", "topics")
        other = mqadmin.run("exportMetadataInRocksDB", "-p", "/data/config", "-t", "topics")
        for outcome in (local, other):
            assert (outcome.code, outcome.out, cluster.requests) == (1, "", [])
            assert "/data/config: files of RocksDB cannot be read here" in outcome.err
        assert mqadmin.run("rocksDBConfigToJson", "-b", "h:1", "-t", "all").code == 2
        assert mqadmin.run("rocksDBConfigToJson", "-t", "topics").code == 2

    @pytest.mark.parametrize(
        ("status", "line"),
        [
            (2, "check doing, please wait and get the result from log..."),
            (3, "check error, please check log... errInfo: why"),
        ],
    )
    def test_comparison(self, mqadmin: Bench, cluster: FakeCluster, status: int, line: str) -> None:
        result = CheckRocksdbCqWriteResult(check_result="why", check_status=status)
        code = RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS
        cluster.always(code, body=result.to_json_bytes())
        options = ["-c", "GoldenCluster", "-cf", "5"]
        outcome = mqadmin.run("checkRocksdbCqWriteProgress", *options)
        assert outcome.out == f"broker-g {line}\n"
        (asked,) = cluster.asked(code)
        assert asked.ext_fields == {"topic": "", "checkStoreTime": "5"}


def test_the_times_and_the_number_of_a_query(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.always(RequestCode.QUERY_MESSAGE, ResponseCode.QUERY_NOT_FOUND)
    options = ["-t", "NoRoute", "-k", "k", "-b", "5", "-e", "9", "-m", "3", "-c", "GTopic"]
    mqadmin.run("queryMsgByKey", *options)
    mqadmin.run("queryMsgTraceById", "-i", "x", "-t", "GTopic", "-b", "5", "-e", "9", "-c", "3")
    for asked in cluster.asked(RequestCode.QUERY_MESSAGE):
        fields = asked.ext_fields
        found = [fields[name] for name in ("beginTimestamp", "endTimestamp", "maxNum")]
        assert found == ["5", "9", "3"]
    topics = [each.ext_fields["topic"] for each in cluster.asked(RequestCode.QUERY_MESSAGE)]
    assert topics == ["NoRoute", "GTopic"]


def test_a_setting_of_slaves_too(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.always(RequestCode.UPDATE_BROKER_CONFIG)
    options = ["-c", "GoldenCluster", "-k", "k", "-v", "v"]
    mqadmin.run("updateBrokerConfig", *options)
    masters = len(cluster.asked(RequestCode.UPDATE_BROKER_CONFIG))
    mqadmin.run("updateBrokerConfig", *options, "-a", "true")
    assert len(cluster.asked(RequestCode.UPDATE_BROKER_CONFIG)) > 2 * masters


def test_the_body_in_a_charset(mqadmin: Bench, cluster: FakeCluster) -> None:
    options = ["-t", "GTopic", "-b", "broker-g", "-i", "0", "-o", "0"]
    for wrong in ("no-such", "hex", "idna", "punycode", "undefined"):
        outcome = mqadmin.run("queryMsgByOffset", *options, "-f", wrong)
        assert (outcome.code, "there is no charset" in outcome.err) == (2, True), outcome.err


def test_json_of_lists_is_json(mqadmin: Bench, controller: FakeCluster) -> None:
    at = controller.address
    found = mqadmin.run("getControllerMetaData", "-a", at, "--json").out
    assert json.loads(found)["peers"] == [f"n0:{at}", "n1:10.0.0.2:9878"]


class TestMasterFlushOffset:
    def test_what_is_asked_and_said(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.RESET_MASTER_FLUSH_OFFSET)
        outcome = mqadmin.run("resetMasterFlushOffset", "-b", cluster.address, "-o", "4096")
        assert outcome.out == "reset master flush offset to 4096 success\n"
        (request,) = cluster.asked(RequestCode.RESET_MASTER_FLUSH_OFFSET)
        assert request.ext_fields == {"masterFlushOffset": "4096"}

    @pytest.mark.parametrize("offset", ["-1", "many", str(1 << 63)])
    def test_what_is_no_offset(self, mqadmin: Bench, cluster: FakeCluster, offset: str) -> None:
        outcome = mqadmin.run("resetMasterFlushOffset", "-b", cluster.address, "-o", offset)
        assert outcome.code == 2
        assert cluster.asked(RequestCode.RESET_MASTER_FLUSH_OFFSET) == []


def test_cold_data_with_numbers_that_no_broker_sends(mqadmin: Bench, cluster: FakeCluster) -> None:
    row = b'{"coldAcc":0.5,"createTimeMills":99999999999999999999,"lastColdReadTimeMills":-1}'
    body = b'{"runtimeTable":{"g":' + row + b"}}"
    cluster.always(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, body=body)
    outcome = mqadmin.run("getColdDataFlowCtrInfo", "-b", cluster.address)
    assert outcome.code == 0
    assert '"coldAcc": 0.5' in outcome.out
