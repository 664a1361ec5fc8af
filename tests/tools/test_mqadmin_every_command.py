"""What all commands have in common, run for each: one JSON value a round, and repetition."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from remoting.body.client_connection import (
    Connection,
    ConsumerConnection,
    GroupList,
    ProducerConnection,
    ProducerTableInfo,
)
from remoting.body.cold_data_flow_ctr_info import AccAndTimeStamp, ColdDataFlowCtrInfo
from remoting.body.consumer_running_info import ConsumerRunningInfo
from remoting.body.controller import BrokerReplicasInfo, EpochEntryCache, ReplicasInfo
from remoting.body.ha_runtime_info import HARuntimeInfo
from remoting.body.log_verification import LogVerification
from remoting.body.message_queue import MessageQueue
from remoting.body.query_queue import QueryConsumeQueueResponseBody
from remoting.body.route import BrokerData, QueueData, TopicRouteData
from remoting.body.stats import BrokerStatsData, ConsumeStats, ConsumeStatsList, OffsetWrapper
from remoting.body.topic_config import TopicList
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench
from tests.tools.test_message_decoder import record
from tests.tools.test_message_trace import KEY, pub
from tests.tools.test_mqadmin_acl import VERSIONS
from tests.tools.test_mqadmin_sending import store
from tools.command_table import COMMANDS
from tools.static_topic_plan import create_plan

ADDRESS = "ADDRESS"
"""Stands for the cluster's own address."""

LIST = "LIST"
"""Stands for a file with a topic that is a group, too."""

LOG = "LOG"
"""A file with a message."""

OFFSET_ID = "OFFSET_ID"
"""Stands for an offset id that names the cluster."""

QUEUE = MessageQueue(broker_name="broker-g", queue_id=0, topic="GTopic")
PROGRESS = OffsetWrapper(broker_offset=5, consumer_offset=3, last_timestamp=1795177732468)
CLIENT = Connection(client_id="c@1", client_addr="10.0.0.1:4", version=409)
RUNS: dict[str, list[str]] = {
    "updateTopic": ["-b", ADDRESS, "-t", "T"],
    "updateTopicList": ["-b", ADDRESS, "-f", LIST],
    "deleteTopic": ["-c", "GoldenCluster", "-t", "T", "--yes"],
    "updateTopicPerm": ["-b", ADDRESS, "-t", "GTopic", "-p", "4"],
    "updateOrderConf": ["-t", "T", "-m", "put", "-v", "a:1"],
    "updateStaticTopic": ["-b", "broker-g", "-t", "Static", "-qn", "2"],
    "remappingStaticTopic": ["-b", "broker-g", "-t", "Static"],
    "updateSubGroup": ["-b", ADDRESS, "-g", "g"],
    "updateSubGroupList": ["-b", ADDRESS, "-f", LIST],
    "setConsumeMode": ["-b", ADDRESS, "-g", "g", "-t", "T", "-m", "POP"],
    "getConsumerConfig": ["-g", "TOOLS_CONSUMER"],
    "deleteSubGroup": ["-b", ADDRESS, "-g", "g", "--yes"],
    "topicList": ["-c"],
    "topicRoute": ["-t", "GTopic", "-l"],
    "topicStatus": ["-t", "GTopic"],
    "topicClusterList": ["-t", "GTopic"],
    "allocateMQ": ["-t", "GTopic", "-i", "a,b"],
    "brokerStatus": ["-c", "GoldenCluster"],
    "getBrokerConfig": ["-c", "GoldenCluster"],
    "updateBrokerConfig": ["-b", ADDRESS, "-k", "k", "-v", "v"],
    "brokerConsumeStats": ["-b", ADDRESS],
    "cleanExpiredCQ": ["--yes"],
    "cleanUnusedTopic": ["--yes"],
    "deleteExpiredCommitLog": ["--yes"],
    "updateColdDataFlowCtrGroupConfig": ["-b", ADDRESS, "-g", "g", "-v", "1"],
    "removeColdDataFlowCtrGroupConfig": ["-b", ADDRESS, "-g", "g"],
    "getColdDataFlowCtrInfo": ["-c", "GoldenCluster"],
    "setCommitLogReadAheadMode": ["-b", ADDRESS, "-m", "1"],
    "sendMsgStatus": ["-b", "broker-g", "-c", "2"],
    "queryMsgById": ["-i", OFFSET_ID, "-g", "g", "-d", "c@1"],
    "queryMsgByKey": ["-t", "GTopic", "-k", "kB"],
    "queryMsgByUniqueKey": ["-t", "GTopic", "-i", KEY],
    "queryMsgByOffset": ["-t", "GTopic", "-b", "broker-g", "-i", "0", "-o", "0"],
    "queryMsgTraceById": ["-i", KEY, "-t", "GTopic"],
    "queryCq": ["-t", "GTopic", "-q", "0", "-i", "0"],
    "printMsg": ["-t", "GTopic"],
    "printMsgByQueue": ["-t", "GTopic", "-a", "broker-g", "-i", "0", "-f", "true"],
    "listDlq": ["-g", "g", "--auditFile", "dlq.jsonl"],
    "resendDlq": ["-g", "g", "-a", "-t", "GTopic", "--yes", "--auditFile", "dlq.jsonl"],
    "exportDlq": ["-g", "g", "-f", "letters.jsonl"],
    "sendMessage": ["-t", "GTopic", "-p", "x"],
    "consumeMessage": ["-t", "GTopic"],
    "producerConnection": ["-g", "p", "-t", "GTopic"],
    "producer": ["-b", ADDRESS],
    "consumerConnection": ["-g", "G_group"],
    "consumerProgress": ["-g", "G_group"],
    "consumerStatus": ["-g", "G_group", "-i", "c@1"],
    "startMonitoring": [],
    "resetOffsetByTime": ["-g", "G_group", "-t", "GTopic", "-s", "now", "--yes"],
    "skipAccumulatedMessage": ["-g", "G_group", "-t", "GTopic", "--yes"],
    "cloneGroupOffset": ["-s", "G_group", "-d", "g", "-t", "GTopic", "--yes"],
    "haStatus": ["-b", ADDRESS],
    "resetMasterFlushOffset": ["-b", ADDRESS, "-o", "7"],
    "adminAudit": ["-b", ADDRESS],
    "verifyReplica": ["-c", "GoldenCluster"],
    "clusterList": ["-m"],
    "clusterRT": ["-a", "2", "-p", "true"],
    "checkMsgSendRT": ["-t", "GTopic", "-a", "2"],
    "statsAll": ["-a"],
    "updateKvConfig": ["-s", "n", "-k", "k", "-v", "v"],
    "deleteKvConfig": ["-s", "n", "-k", "k", "--yes"],
    "wipeWritePerm": ["-b", "broker-g"],
    "addWritePerm": ["-b", "broker-g"],
    "getNamesrvConfig": [],
    "updateNamesrvConfig": ["-k", "k", "-v", "v"],
    "addBroker": ["-c", ADDRESS, "-b", "/x.conf"],
    "removeBroker": ["-c", ADDRESS, "-b", "c:b:0"],
    "updateAclConfig": ["-b", ADDRESS, "-a", "a", "-s", "s"],
    "deleteAclConfig": ["-b", ADDRESS, "-a", "a", "--yes"],
    "clusterAclConfigVersion": ["-b", ADDRESS],
    "updateGlobalWhiteAddr": ["-b", ADDRESS, "-g", "10.0.0.1"],
    "createUser": ["-b", ADDRESS, "-u", "alice", "-p", "secret"],
    "updateUser": ["-b", ADDRESS, "-u", "alice", "-s", "disable"],
    "deleteUser": ["-b", ADDRESS, "-u", "alice", "--yes"],
    "getUser": ["-b", ADDRESS, "-u", "alice"],
    "listUser": ["-c", "GoldenCluster"],
    "copyUser": ["-f", ADDRESS, "-t", ADDRESS],
    "createAcl": ["-b", ADDRESS, "-s", "User:alice", "-r", "Topic:*", "-a", "Pub", "-d", "Allow"],
    "updateAcl": ["-b", ADDRESS, "-s", "User:alice", "-r", "Topic:*", "-a", "Pub", "-d", "Deny"],
    "deleteAcl": ["-b", ADDRESS, "-s", "User:alice", "--yes"],
    "getAcl": ["-b", ADDRESS, "-s", "User:alice"],
    "listAcl": ["-c", "GoldenCluster"],
    "copyAcl": ["-f", ADDRESS, "-t", ADDRESS],
    "getBrokerLiteInfo": ["-c", "GoldenCluster", "-d"],
    "getParentTopicInfo": ["-p", "P"],
    "getLiteTopicInfo": ["-p", "P", "-l", "s1", "-s"],
    "getLiteClientInfo": ["-p", "P", "-g", "g", "-c", "c@1", "-s"],
    "getLiteGroupInfo": ["-p", "P", "-g", "g"],
    "triggerLiteDispatch": ["-p", "P", "-g", "g"],
    "exportMetadata": ["-b", ADDRESS, "-f", "."],
    "exportConfigs": ["-c", "GoldenCluster", "-f", "."],
    "exportMetrics": ["-c", "GoldenCluster", "-f", "."],
    "exportPopRecord": ["-c", "GoldenCluster"],
    "getSyncStateSet": ["-a", ADDRESS, "-b", "broker-g"],
    "getBrokerEpoch": ["-c", "GoldenCluster"],
    "getControllerMetaData": ["-a", ADDRESS],
    "getControllerConfig": ["-a", ADDRESS],
    "updateControllerConfig": ["-a", ADDRESS, "-k", "k", "-v", "v"],
    "electMaster": ["-a", ADDRESS, "-b", "2", "-bn", "broker-g", "-c", "GoldenCluster"],
    "cleanBrokerMetadata": ["-a", ADDRESS, "-bn", "broker-g", "-l", "--yes"],
    "dumpCompactionLog": ["-f", LOG],
    "rocksDBConfigToJson": ["-b", ADDRESS],
    "exportMetadataInRocksDB": ["-p", "/nowhere", "-t", "topics"],
    "checkRocksdbCqWriteProgress": ["-c", "GoldenCluster"],
}
REFUSED = {"exportMetadataInRocksDB"}
"""Always, and in words: there is no RocksDB here."""
ANSWERED = [name for name in COMMANDS if name not in REFUSED]


@pytest.fixture
def willing(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCluster:
    """A cluster that does whatever it is asked; every topic lies at broker-g."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / LOG).write_bytes(record())
    (tmp_path / LIST).write_text('[{"topicName": "T", "groupName": "g"}]')
    for code in (18, 225, 355, 401, 513, 908, 1009, 1011, 2001, 2002, 2004, 200056):
        cluster.always(RequestCode(code))
    for code in (15, 17, 25, 50, 51, 53, 100, 102, 200, 207, 215, 216, 222, 306, 316, 318, 329):
        cluster.always(RequestCode(code))
    for code in (RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER):
        cluster.always(code)
    for code in range(3001, 3011):
        cluster.always(RequestCode(code))
    route = TopicRouteData(
        broker_datas=[
            BrokerData(
                cluster="GoldenCluster", broker_name="broker-g", broker_addrs={0: cluster.address}
            )
        ],
        queue_datas=[
            QueueData(broker_name="broker-g", read_queue_nums=2, write_queue_nums=2, perm=6)
        ],
    )
    bodies: dict[RequestCode, Any] = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: route,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: TopicList(),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: ConsumerConnection(connection_set=[CLIENT]),
        RequestCode.GET_PRODUCER_CONNECTION_LIST: ProducerConnection(connection_set=[CLIENT]),
        RequestCode.GET_ALL_PRODUCER_INFO: ProducerTableInfo(),
        RequestCode.GET_CONSUMER_RUNNING_INFO: ConsumerRunningInfo(),
        RequestCode.GET_BROKER_CONSUME_STATS: ConsumeStatsList(),
        RequestCode.QUERY_CONSUME_QUEUE: QueryConsumeQueueResponseBody(),
        RequestCode.VERIFY_LOG: LogVerification(),
        RequestCode.VIEW_BROKER_STATS_DATA: BrokerStatsData(),
        RequestCode.GET_BROKER_HA_STATUS: HARuntimeInfo(master=True),
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: ColdDataFlowCtrInfo(
            runtime_table={"g": AccAndTimeStamp(cold_acc=1, last_cold_read_time_mills=1)}
        ),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: GroupList(group_list=["G_group"]),
        RequestCode.GET_CONSUME_STATS: ConsumeStats(offset_table={QUEUE: PROGRESS}),
    }
    for code, body in bodies.items():
        cluster.always(code, body=body.to_json_bytes())
    for code in range(200074, 200080):
        cluster.always(RequestCode(code), body=b"{}")
    cluster.always(RequestCode.CONSUME_MESSAGE_DIRECTLY, body=b"{}")
    cluster.always(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, fields=VERSIONS)
    cluster.always(RequestCode.GET_ADMIN_AUDIT, body=b"{}")
    cluster.always(RequestCode.GET_MIN_OFFSET, fields={"offset": "0"})
    cluster.always(RequestCode.GET_MAX_OFFSET, fields={"offset": "1"})
    pulled = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "1"}
    pulled["nextBeginOffset"] = "1"
    cluster.always(RequestCode.PULL_MESSAGE, fields=pulled, body=record())
    properties = f"UNIQ_KEY\x01{KEY}\x02KEYS\x01kB {KEY}"
    stored = record(topic=b"GTopic", body=pub("true").encode(), properties=properties.encode())
    found = stored.replace(bytes([127, 0, 0, 2]) + _port(10911), _store_host(cluster))
    indexed = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
    cluster.always(RequestCode.QUERY_MESSAGE, fields=indexed, body=found)
    cluster.always(RequestCode.VIEW_MESSAGE_BY_ID, body=found)
    cluster.answers[RequestCode.SEND_MESSAGE_V2] = store
    leader = {"controllerLeaderAddress": cluster.address, "peers": f"1:{cluster.address}"}
    cluster.always(RequestCode.CONTROLLER_GET_METADATA_INFO, fields=leader)
    cluster.always(RequestCode.CONTROLLER_ELECT_MASTER, fields={"masterEpoch": "3"})
    cluster.always(RequestCode.GET_CONTROLLER_CONFIG, body=b"a=1\n")
    replicas = BrokerReplicasInfo(replicas_info_table={"broker-g": ReplicasInfo()})
    cluster.always(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=replicas.to_json_bytes())
    cluster.always(RequestCode.GET_BROKER_EPOCH_CACHE, body=EpochEntryCache().to_json_bytes())
    cluster.always(RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, body=b'{"checkStatus":2}')
    cluster.always(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)
    mapped = create_plan("Static", 1, {"broker-g"}, {}, 1)["broker-g"]
    cluster.always(RequestCode.GET_TOPIC_CONFIG, body=mapped.to_json_bytes())
    return cluster


def _port(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _store_host(cluster: FakeCluster) -> bytes:
    host, _, port = cluster.address.rpartition(":")
    return socket.inet_aton(host) + _port(int(port))


def _arguments(cluster: FakeCluster, name: str) -> list[str]:
    stand_ins = {ADDRESS: cluster.address, OFFSET_ID: f"{_store_host(cluster).hex()}{4:016x}"}
    return [stand_ins.get(part, part) for part in RUNS[name]]


def test_there_is_a_run_of_every_command() -> None:
    assert list(RUNS) == list(COMMANDS)


@pytest.mark.parametrize("name", ANSWERED)
def test_json_is_one_value_each_round(mqadmin: Bench, willing: FakeCluster, name: str) -> None:
    mqadmin.rounds = 2
    outcome = mqadmin.run(name, *_arguments(willing, name), "--json", "--interval", "1")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert len(lines) == 2
    assert all(isinstance(json.loads(line), dict | list) for line in lines)
    assert mqadmin.waits == [1.0, 1.0]


@pytest.mark.parametrize("name", ANSWERED)
def test_without_json_there_is_text(mqadmin: Bench, willing: FakeCluster, name: str) -> None:
    outcome = mqadmin.run(name, *_arguments(willing, name))
    assert outcome.code == 0, outcome.err
    assert outcome.out.strip()
