"""Every command of mqadmin with arguments that mean something, in an order servers survive.

Pure data: the same steps run against the servers of both worlds (admin_world.py), and a test
compares what they print. {cluster}, {name} (of the broker), {broker} and {namesrv} (addresses),
{export} (a directory) and what a world learns on its way ({client}, {offset_id}, ...) are filled
in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

TOPIC: Final = "SideBySide"
ORDERED: Final = "SideBySideOrdered"
GONE: Final = "SideBySideGone"
TRACED: Final = "SideBySideTraced"
GROUP: Final = "side-by-side"
CLONE: Final = "side-by-side-clone"
READERS: Final = "side-by-side-readers"
PRODUCERS: Final = "side-by-side-producers"
LITE_PARENT: Final = "SideBySideLite"
LITE_GROUP: Final = "side-by-side-lite"
LITE_CLIENT: Final = "lite-client"
QUEUES: Final = 4
RETRY_QUEUES: Final = 2
SENT: Final = 9
"""Messages that a consumer of the topic gets before the steps of ONLINE."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command with its arguments.

    masked: its numbers are measured (rates, times, sizes), so each is shown as one sign.
    rows: its rows come in the order of a hash map, so they are sorted.
    until: it is asked again until its output holds this.
    traced: it sends a message, and again until a message's trace is stored: the tool ends half a
        second after its send, and a trace that is not on its way by then is lost.
    lines: it goes on for ever and is ended behind so many.
    logged: it prints nothing and writes to the client's log, up to this: 20 s later, so it is begun
        with its phase, and its log is read in its place.
    file: what it writes under {export} is compared, too.
    only: the line ("4.9", "5", "5.5") whose mqadmin takes these arguments, where not all do.
    """

    command: str
    arguments: str = ""
    masked: bool = False
    rows: bool = False
    until: str = ""
    traced: bool = False
    lines: int = 0
    logged: str = ""
    file: str = ""
    only: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps, behind something that a world does first: the name of a method of AdminWorld."""

    before: str
    steps: Sequence[Step]


TRACE_TOPIC: Final = "-t RMQ_SYS_TRACE_TOPIC"
_T = f"-t {TOPIC}"
_G = f"-g {GROUP}"
_B = "-b {broker}"
_C = "-c {cluster}"

CREATE: Final = Phase(
    "write_lists",
    (
        Step("updateTopic", f"{_C} {_T} -r {QUEUES} -w {QUEUES}"),
        Step("updateTopic", f"{_B} -t {ORDERED} -r 2 -w 2 -o true"),
        Step("updateTopic", f"{_B} -t {GONE}"),
        Step("updateTopic", f"{_B} -t {TRACED} -r 1 -w 1"),
        Step("updateTopicList", f"{_B} -f {{topics}}", only="5"),
        Step("updateSubGroup", f"{_C} {_G} -r 3 -q {RETRY_QUEUES}"),
        Step("updateSubGroup", f"{_B} -g {CLONE} -m true -d true -i 0 -w 1 -a true"),
        Step("updateSubGroupList", f"{_B} -f {{groups}}", only="5"),
        Step("topicRoute", _T, until="writeQueueNums"),
        *(
            Step(
                "sendMessage",
                f"{_T} -p body-{n} -k key-{n} -c Tag{n % 2} -b {{name}} -i {n % QUEUES}",
            )
            for n in range(SENT - 1)
        ),
        Step(
            "sendMessage",
            f"-t {TRACED} -p traced -k traced -b {{name}} -i 0 -m true",
            traced=True,
        ),
    ),
)

ONLINE: Final = Phase(
    "go_online",
    (
        Step("topicRoute", _T),
        Step("topicRoute", f"{_T} -l"),
        Step("topicRoute", "-t NoSuchTopic"),
        Step("topicStatus", _T),
        Step("topicStatus", "-t NoSuchTopic"),
        Step("topicStatus", f"{_T} {_C}", only="5"),
        Step("topicClusterList", _T),
        Step("topicList", rows=True),
        Step("topicList", "-c", rows=True),
        Step("allocateMQ", f"{_T} -i 10.0.0.1,10.0.0.2"),
        Step("updateOrderConf", f"-t {ORDERED} -m get"),
        Step("updateOrderConf", f"-t {ORDERED} -m put -v {{name}}:2"),
        Step("updateOrderConf", f"-t {ORDERED} -m get"),
        Step("updateOrderConf", f"-t {ORDERED} -m delete"),
        Step("queryMsgById", "-i {offset_id}", only="4.9"),
        Step("queryMsgById", f"-i {{offset_id}} {_G} -d {{client}}", only="4.9"),
        Step("queryMsgById", f"-i {{offset_id}} {_T}", only="5"),
        Step("queryMsgById", f"-i {{offset_id}} {_T} {_G} -d {{client}}", only="5"),
        Step("queryMsgByKey", f"{_T} -k key-3", until="[0-9A-F]{32}"),
        Step("queryMsgByKey", f"{_T} -k no-such-key"),
        Step("queryMsgByKey", f"{_T} -k key-3 -b 0 -e 9999999999999 -m 1 {_C}", only="5"),
        Step("queryMsgByKey", f"{_T} -k key-3 -b 0 -e 1", only="5"),
        Step("queryMsgByUniqueKey", f"{_T} -i {{unique_id}}"),
        Step("queryMsgByUniqueKey", f"{_T} -i {{unique_id}} -a"),
        Step("queryMsgByUniqueKey", f"{_T} -i {{unique_id}} {_G} -d {{client}}"),
        Step("queryMsgByOffset", f"{_T} -b {{name}} -i 1 -o 1"),
        Step("queryMsgByOffset", f"{_T} -b {{name}} -i 1 -o 1000"),
        Step("queryMsgTraceById", f"-i {{traced_id}} {TRACE_TOPIC}", masked=True, until="Pub"),
        Step("queryCq", f"{_T} -q 1 -i 0 -c 5 {_B}"),
        Step("queryCq", f"{_T} -q 1 -i 0 -c 5 {_B} {_G}"),
        Step("queryCq", f"{_T} -q 1 -i 0 -c 5 {_B} -g nobody"),
        Step("printMsg", f"{_T} -d true"),
        Step("printMsg", f"{_T} -s Tag1"),
        Step("printMsgByQueue", f"{_T} -a {{name}} -i 1 -p true -d true"),
        Step("printMsgByQueue", f"{_T} -a {{name}} -i 1 -f true"),
        Step("consumeMessage", f"{_T} -g {READERS} -b {{name}} -i 1 -o 0 -c 2"),
        Step("consumeMessage", f"{_T} -g {READERS} -c 3"),
        Step("producerConnection", f"-g {PRODUCERS} {_T}"),
        Step("producerConnection", f"-g nobody {_T}"),
        Step("producer", _B, rows=True),
        Step("consumerConnection", _G),
        Step("consumerConnection", f"{_G} {_B}"),
        Step("consumerConnection", "-g nobody"),
        Step("consumerProgress", masked=True, rows=True),
        Step("consumerProgress", _G, rows=True),
        Step("consumerProgress", f"{_G} -s true", rows=True),
        Step("consumerProgress", "-g nobody"),
        Step("consumerProgress", f"{_G} {_T} {_C}", rows=True, only="5"),
        Step("consumerStatus", _G),
        Step("consumerStatus", f"{_G} -i {{client}}", masked=True, rows=True),
        Step("consumerStatus", "-g nobody"),
        Step("getConsumerConfig", _G),
        Step("getConsumerConfig", f"-g {CLONE}"),
        Step("getConsumerConfig", "-g nobody"),
        Step("brokerConsumeStats", _B, masked=True, rows=True),
        Step("brokerConsumeStats", f"{_B} -l 1000 -o true -t 5000", masked=True),
        Step("statsAll", _T, masked=True, rows=True),
        Step("statsAll", masked=True, rows=True),
        Step("brokerStatus", _B, masked=True, rows=True),
        Step("brokerStatus", _C, masked=True, rows=True),
        Step("clusterList", masked=True),
        Step("clusterList", "-m", masked=True),
        Step("clusterList", _C, masked=True, only="5"),
        Step("haStatus", _B, masked=True, only="5"),
        Step("haStatus", _C, masked=True, only="5"),
        Step("getBrokerConfig", _B, masked=True, rows=True),
        Step("getBrokerConfig", _C, masked=True, rows=True),
        Step("getNamesrvConfig", masked=True, rows=True),
        Step("exportMetadata", f"{_C} -f {{export}}", file="metadata.json", rows=True),
        Step("exportMetadata", f"{_B} -t -f {{export}}", file="topic.json", rows=True),
        Step("exportMetadata", f"{_B} -g -f {{export}}", file="subscriptionGroup.json", rows=True),
        Step("exportConfigs", f"{_C} -f {{export}}", file="configs.json"),
        Step("exportMetrics", f"{_C} -f {{export}}", file="metrics.json", masked=True),
    ),
)

CHANGE: Final = Phase(
    "nothing",
    (
        Step("updateBrokerConfig", f"{_B} -k fileReservedTime -v 71"),
        Step("updateBrokerConfig", f"{_C} -k fileReservedTime -v 72"),
        Step("updateNamesrvConfig", "-k orderMessageEnable -v true"),
        Step("updateKvConfig", f"-s {TOPIC} -k colour -v green"),
        Step("deleteKvConfig", f"-s {TOPIC} -k colour"),
        Step("updateAclConfig", f"{_B} -a sidebyside -s 12345678 -u SUB -t a=PUB", only="4.9"),
        Step("updateAclConfig", f"{_C} -a sidebyside -s 123456789 -w 127.0.0.*", only="4.9"),
        Step("clusterAclConfigVersion", _B, only="4.9"),
        Step("clusterAclConfigVersion", _C, only="4.9"),
        Step("updateGlobalWhiteAddr", f"{_B} -g 127.0.0.1,10.0.0.*", only="4.9"),
        Step("deleteAclConfig", f"{_B} -a sidebyside", only="4.9"),
        Step("deleteAclConfig", f"{_B} -a nobody", only="4.9"),
        Step("updateTopicPerm", f"{_B} -t {ORDERED} -p 4"),
        Step("updateTopicPerm", f"{_C} -t {ORDERED} -p 6"),
        Step("updateTopicPerm", f"{_B} -t {ORDERED} -p 6"),
        Step("wipeWritePerm", "-b {name}", masked=True),
        Step("topicRoute", _T),
        Step("addWritePerm", "-b {name}", masked=True),
        Step("topicRoute", _T),
        Step("sendMsgStatus", "-b {name} -c 3 -s 64", masked=True),
        Step("checkMsgSendRT", f"{_T} -a 5 -s 64", masked=True),
        Step("clusterRT", f"-a 5 -s 64 {_C}", masked=True, lines=2),
        Step("cleanExpiredCQ", _B),
        Step("cleanExpiredCQ", _C),
        Step("deleteExpiredCommitLog", _B),
        Step("deleteExpiredCommitLog", _C),
        Step("updateColdDataFlowCtrGroupConfig", f"{_B} {_G} -v 4096", only="5"),
        Step("updateColdDataFlowCtrGroupConfig", f"{_C} -g {CLONE} -v 8192", only="5"),
        Step("getColdDataFlowCtrInfo", _B, rows=True, only="5"),
        Step("removeColdDataFlowCtrGroupConfig", f"{_C} {_G}", only="5"),
        Step("removeColdDataFlowCtrGroupConfig", f"{_B} -g nobody", only="5"),
        Step("getColdDataFlowCtrInfo", _C, only="5"),
        Step("setCommitLogReadAheadMode", f"{_B} -m 1", only="5"),
        Step("setCommitLogReadAheadMode", f"{_C} -m 0", only="5"),
        Step("setCommitLogReadAheadMode", f"{_B} -m 2", only="5"),
        Step("startMonitoring", rows=True, logged="=endRound"),
    ),
)

OFFLINE: Final = Phase(
    "stop_the_consumer",
    (
        Step("cloneGroupOffset", f"-s {GROUP} -d {CLONE} {_T} -o true"),
        Step("consumerProgress", f"-g {CLONE}", rows=True),
        Step("resetOffsetByTime", f"{_G} {_T} -s 0", rows=True),
        Step("resetOffsetByTime", f"{_G} {_T} -s now -f true", rows=True),
        Step("resetOffsetByTime", f"-g nobody {_T} -s now", rows=True),
        Step("skipAccumulatedMessage", f"{_G} {_T} -f true", rows=True),
        Step("consumerProgress", _G, rows=True),
        Step("deleteSubGroup", f"{_C} -g {CLONE} -r true"),
        Step("deleteSubGroup", f"{_B} {_G}"),
        Step("getConsumerConfig", f"-g {CLONE}"),
        Step("deleteTopic", f"{_C} -t {GONE}"),
        Step("topicRoute", f"-t {GONE}"),
        Step("cleanUnusedTopic", _B),
        Step("cleanUnusedTopic", _C),
        Step("topicList", rows=True),
    ),
)

_P: Final = f"-p {LITE_PARENT}"
_LITE_GROUP: Final = f"{_P} -g {LITE_GROUP}"
_LITE_CLIENT: Final = f"-c {LITE_CLIENT}"
LITE: Final = Phase(
    "use_lite_topics",
    tuple(
        replace(step, only="5.5")
        for step in (
            Step("getBrokerLiteInfo", f"{_B} -d"),
            Step("getBrokerLiteInfo", _C),
            Step("getParentTopicInfo", _P),
            Step("getParentTopicInfo", "-p NoSuchTopic"),
            Step("getParentTopicInfo", f"-p {TOPIC}"),
            Step("getLiteTopicInfo", f"{_P} -l s1 -s"),
            Step("getLiteTopicInfo", f"{_P} -l s2"),
            Step("getLiteTopicInfo", f"{_P} -l never"),
            Step("getLiteTopicInfo", f"-p {TOPIC} -l s1"),
            Step("getLiteClientInfo", f"{_LITE_GROUP} {_LITE_CLIENT} -s"),
            Step("getLiteClientInfo", f"{_LITE_GROUP} -c nobody"),
            Step("getLiteClientInfo", f"{_P} -g nobody {_LITE_CLIENT}"),
            Step("getLiteClientInfo", f"{_P} -g {READERS} {_LITE_CLIENT}"),
            Step("getLiteGroupInfo", f"{_LITE_GROUP} -k 5"),
            Step("getLiteGroupInfo", f"{_LITE_GROUP} -l s1"),
            Step("getLiteGroupInfo", f"{_LITE_GROUP} -l s2"),
            Step("getLiteGroupInfo", f"{_LITE_GROUP} -l never"),
            Step("getLiteGroupInfo", f"{_P} -g nobody"),
            Step("triggerLiteDispatch", _LITE_GROUP),
            Step("triggerLiteDispatch", f"{_LITE_GROUP} {_LITE_CLIENT} -b {{name}}"),
            Step("triggerLiteDispatch", f"{_P} -g nobody"),
        )
    ),
)

PHASES: Final = (CREATE, ONLINE, CHANGE, OFFLINE, LITE)

BEYOND: Final = Phase(
    "nothing",
    (
        Step("setConsumeMode", f"{_B} {_G} {_T} -m POP -q 1"),
        Step("exportPopRecord", _B),
        Step("addBroker", "-c {broker} -b broker.conf"),
        Step("removeBroker", "-c {broker} -b {cluster}:{name}:1"),
        Step("getSyncStateSet", "-a {broker} -b {name}"),
        Step("getBrokerEpoch", "-b {name}"),
        Step("getControllerMetaData", "-a {broker}"),
        Step("getControllerConfig", "-a {broker}"),
        Step("updateControllerConfig", "-a {broker} -k a -v b"),
        Step("electMaster", f"-a {{broker}} -b 1 -bn {{name}} {_C}"),
        Step("cleanBrokerMetadata", f"-a {{broker}} -bn {{name}} {_C}"),
        Step("resetMasterFlushOffset", f"{_B} -o 0"),
        Step("updateStaticTopic", f"-b {{name}} -t {TOPIC}Static -qn 4"),
        Step("remappingStaticTopic", f"-b {{name}} {_T}"),
        Step("createUser", f"{_B} -u u -p p"),
        Step("updateUser", f"{_B} -u u -p p"),
        Step("deleteUser", f"{_B} -u u"),
        Step("getUser", f"{_B} -u u"),
        Step("listUser", _B),
        Step("copyUser", "-f {broker} -t {broker} -u u"),
        Step("createAcl", f"{_B} -s User:u -r Topic:t -a Pub -d Allow"),
        Step("updateAcl", f"{_B} -s User:u -r Topic:t -a Pub -d Allow"),
        Step("deleteAcl", f"{_B} -s User:u"),
        Step("getAcl", f"{_B} -s User:u"),
        Step("listAcl", _B),
        Step("copyAcl", "-f {broker} -t {broker} -s User:u"),
        Step("rocksDBConfigToJson", f"{_C} -t topics"),
        Step("checkRocksdbCqWriteProgress", _C),
        Step("switchTimerEngine", f"{_C} -e F", only="5.5"),
    ),
)
"""What a 4.9 broker has nothing for: asked of ours only, which must say so."""
