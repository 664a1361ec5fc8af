"""remoting.body.topic_queue_mapping: the bytes of a Java 5.3.3 broker and name server."""

from __future__ import annotations

import zlib

from remoting.body.data_version import DataVersion
from remoting.body.register_broker import INT32, decode_register_broker_body
from remoting.body.route import TopicRouteData
from remoting.body.topic_config import TopicConfig, TopicConfigAndQueueMapping
from remoting.body.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    TopicQueueMappingSerializeWrapper,
)
from remoting.mq_version import V4_9_4, V5_0_0
from remoting.remoting_serializable import loads_lenient

_ITEM = """[
					{
						"bname":"broker-a",
						"endOffset":-1,
						"gen":0,
						"logicOffset":0,
						"queueId":%d,
						"startOffset":0,
						"timeOfEnd":-1,
						"timeOfStart":-1
					}
				]"""
FILE = """{
	"dataVersion":{
		"counter":1,
		"stateVersion":0,
		"timestamp":1795617409162
	},
	"topicQueueMappingInfoMap":{
		"StaticT":{
			"bname":"broker-a",
			"currIdMap":{},
			"dirty":false,
			"epoch":1795617410069,
			"hostedQueues":{0:<0>,1:<1>
			},
			"scope":"__global__",
			"topic":"StaticT",
			"totalQueues":2
		}
	}
}""".replace("<0>", _ITEM % 0).replace("<1>", _ITEM % 1)
"""topicQueueMapping.json, written by a 5.3.3 broker."""
INFO = (
    b'{"bname":"broker-a","currIdMap":{"0":0,"1":1},"dirty":false,"epoch":1795617410069,'
    b'"scope":"__global__","topic":"StaticT","totalQueues":2}'
)
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:31038"},"brokerName":"broker-a",'
    b'"cluster":"InteropCluster","enableActingMaster":false}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":2,"topicSysFlag":0,'
    b'"writeQueueNums":2}],"topicQueueMappingByBroker":{"broker-a":' + INFO + b"}}"
)
"""105 of a 5.3.3 name server."""
CONFIG = (
    b'{"attributes":{},"mappingDetail":{"bname":"broker-a","currIdMap":{},"dirty":false,'
    b'"epoch":1795617410069,"hostedQueues":{0:[{"bname":"broker-a","endOffset":-1,"gen":0,'
    b'"logicOffset":0,"queueId":0,"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1}]},'
    b'"scope":"__global__","topic":"StaticT","totalQueues":1},"order":false,"perm":6,'
    b'"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"StaticT","topicSysFlag":0,'
    b'"writeQueueNums":1}'
)
"""351 with lo=true."""


def test_the_file_of_java() -> None:
    found = TopicQueueMappingSerializeWrapper.from_json(loads_lenient(FILE.encode()))
    assert found.to_pretty_json_bytes() == FILE.encode()
    assert found.data_version == DataVersion(counter=1, state_version=0, timestamp=1795617409162)
    detail = found.topic_queue_mapping_info_map["StaticT"]
    item = LogicQueueMappingItem(bname="broker-a", queue_id=1)
    assert detail.hosted_queues[1] == [item]
    assert detail.info() == TopicQueueMappingInfo.from_json_bytes(INFO)


def test_the_route_of_java() -> None:
    found = TopicRouteData.from_json_bytes(ROUTE)
    assert found.to_standard_json_bytes() == ROUTE
    assert b'"currIdMap":{0:0,1:1}' in found.to_json_bytes(), "what old clients get"


def test_the_topic_of_java() -> None:
    found = TopicConfigAndQueueMapping.from_json_bytes(CONFIG)
    assert found.to_json_bytes() == CONFIG
    config = TopicConfig(topic_name="StaticT", read_queue_nums=1, write_queue_nums=1, attributes={})
    assert found.mapping_detail is not None
    assert TopicConfigAndQueueMapping.of(config, found.mapping_detail) == found


def test_what_is_registered_names_the_queues_that_are_led() -> None:
    detail = TopicQueueMappingDetail(
        topic="T",
        bname="b",
        hosted_queues={
            3: [LogicQueueMappingItem(bname="b", queue_id=5)],
            1: [
                LogicQueueMappingItem(bname="b", queue_id=0),
                LogicQueueMappingItem(bname="c", queue_id=7, gen=1, logic_offset=-1),
            ],
            2: [],
        },
    )
    assert detail.info().curr_id_map == {3: 5}


def test_the_compressed_registration_of_5_x() -> None:
    def block(data: bytes) -> bytes:
        return INT32.pack(len(data)) + data

    parts = block(DataVersion(counter=2).to_json_bytes()) + INT32.pack(0) + block(b"[]")
    old = zlib.compress(parts)
    new = zlib.compress(parts + INT32.pack(1) + block(INFO))
    for body, version, mappings in (
        (old, V4_9_4, None),
        (old, V5_0_0, None),
        (new, V5_0_0, {"StaticT": TopicQueueMappingInfo.from_json_bytes(INFO)}),
    ):
        found = decode_register_broker_body(body, compressed=True, version=version)
        wrapper = found.topic_config_serialize_wrapper
        assert wrapper.topic_queue_mapping_info_map == mappings
