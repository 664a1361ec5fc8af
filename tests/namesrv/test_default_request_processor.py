"""DefaultRequestProcessor: Java's recorded frames give Java's recorded answers; faults by name."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remoting.body.data_version import DataVersion
from remoting.body.register_broker import RegisterBrokerBody, body_crc32
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper
from remoting.remoting_command import RemotingCommand
from remoting.remoting_serializable import loads_lenient
from remoting.request_code import RequestCode
from tests.support.frame_decoder import FrameDecoder

GOLDEN = Path(__file__).parents[1] / "golden"
VERSION = DataVersion(counter=3, timestamp=1000)


def decoded(path: Path) -> RemotingCommand:
    decoder = FrameDecoder()
    decoder.feed(path.read_bytes())
    command = decoder.next_command()
    assert command is not None
    return command


class Recorded:
    """The frames of one golden folder."""

    def __init__(self, wire: str) -> None:
        self._folder = GOLDEN / wire

    def request(self, code: int, number: int) -> RemotingCommand:
        return decoded(self._path(code, number, "req"))

    def response(self, code: int, number: int) -> RemotingCommand:
        return decoded(self._path(code, number, "resp"))

    def _path(self, code: int, number: int, kind: str) -> Path:
        (folder,) = self._folder.glob(f"{code:03d}-*")
        return folder / f"{number:02d}.{kind}.bin"


def assert_same_header(ours: RemotingCommand, java: RemotingCommand) -> None:
    """Everything but the language, which says who wrote it."""
    for name in ("code", "version", "opaque", "flag", "remark", "serialize_type"):
        assert getattr(ours, name) == getattr(java, name), name
    assert ours.ext_fields == java.ext_fields
    assert ours.has_ext_fields == java.has_ext_fields or java.serialize_type


def assert_same(ours: RemotingCommand, java: RemotingCommand) -> None:
    assert_same_header(ours, java)
    ours_body, java_body = (loads_lenient(c.body) if c.body else None for c in (ours, java))
    assert ours_body == java_body


def slave_of(master: RemotingCommand) -> RemotingCommand:
    """The registration of the recorded cluster's slave, made from its master's."""
    fields = {**master.ext_fields, "brokerId": "1", "brokerAddr": "127.0.0.2:21911"}
    fields["haServerAddr"] = "127.0.0.2:21912"
    return RemotingCommand(
        103, version=master.version, opaque=77, ext_fields=fields, body=master.body
    )


@pytest.fixture(params=["wire-json", "wire-rocketmq"])
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(request.param)


# -- golden frames -----------------------------------------------------------------------------


def of_5x(recorded: RemotingCommand) -> RemotingCommand:
    """A route or cluster of 4.9.7 as 5.3.3 writes it: clients of 5.x, apache's Rust client for one,
    insist on enableActingMaster."""
    body = re.sub(
        rb'("cluster":"GoldenCluster")(?=})', rb'\1,"enableActingMaster":false', recorded.body
    )
    assert body.count(b"enableActingMaster") == recorded.body.count(b'"cluster":')
    recorded.body = body
    return recorded


def test_the_recorded_life_of_a_cluster(namesrv: Any, recorded: Recorded) -> None:
    assert_same(namesrv.ask(recorded.request(105, 1)), recorded.response(105, 1))
    registration = recorded.request(103, 1)
    assert_same(namesrv.ask(registration), recorded.response(103, 1))
    answer = namesrv.ask(slave_of(registration))
    assert answer.ext_fields == {
        "masterAddr": "127.0.0.2:20911",
        "haServerAddr": registration.ext_fields["haServerAddr"],
    }
    assert_same(namesrv.ask(recorded.request(105, 3)), of_5x(recorded.response(105, 3)))
    assert_same(namesrv.ask(recorded.request(106, 1)), of_5x(recorded.response(106, 1)))
    assert namesrv.ask(recorded.request(105, 5)).code == 17
    for number in (2, 3, 4, 5):
        assert namesrv.ask(recorded.request(103, number)).code == 0
    last = recorded.request(103, 6)
    assert_same(namesrv.ask(last), recorded.response(103, 6))
    assert_same(namesrv.ask(recorded.request(105, 10)), of_5x(recorded.response(105, 10)))
    answer = namesrv.ask(recorded.request(206, 1))
    assert_same_header(answer, recorded.response(206, 1))
    registered = loads_lenient(last.body)["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert set(loads_lenient(answer.body)["topicList"]) == set(registered)


def test_the_bytes_of_a_route_are_those_of_java(namesrv: Any) -> None:
    recorded = Recorded("wire-json")
    namesrv.ask(recorded.request(103, 1))
    namesrv.ask(slave_of(recorded.request(103, 1)))
    for code in (105, 106):
        number = 3 if code == 105 else 1
        ours = namesrv.ask(recorded.request(code, number))
        assert ours.body == of_5x(recorded.response(code, number)).body


def test_recorded_orders(namesrv: Any, recorded: Recorded) -> None:
    namesrv.ask(recorded.request(103, 6))
    count = len(namesrv.routes.get_all_topic_list())
    for code, key in ((205, "wipeTopicCount"), (327, "addTopicCount")):
        java = recorded.response(code, 1)
        java.ext_fields[key] = str(count)
        assert_same(namesrv.ask(recorded.request(code, 1)), java)
    for code in (100, 102, 216, 104):
        assert_same(namesrv.ask(recorded.request(code, 1)), recorded.response(code, 1))
    assert namesrv.routes.get_all_topic_list() == []


def test_the_recorded_settings_question(namesrv: Any, recorded: Recorded) -> None:
    answer = namesrv.ask(recorded.request(319, 1))
    assert_same_header(answer, recorded.response(319, 1))
    ours = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
    java_lines = recorded.response(319, 1).body.decode().splitlines()
    java = {line.split("=", 1)[0] for line in java_lines}
    assert ours["orderMessageEnable"] == "false"
    assert {"kvConfigPath", "configStorePath", "configBlackList"} <= ours.keys() & java


# -- registration bodies -----------------------------------------------------------------------


def body_of(*names: str) -> RegisterBrokerBody:
    table = {name: TopicConfig(topic_name=name, read_queue_nums=4) for name in names}
    wrapper = TopicConfigSerializeWrapper(data_version=VERSION, topic_config_table=table)
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)


def register(
    body: bytes, *, version: int = 409, compressed: bool = False, **fields: str
) -> RemotingCommand:
    ext_fields = {
        "brokerName": "b",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "c",
        "haServerAddr": "10.0.0.1:10912",
        "brokerId": "0",
        "compressed": "true" if compressed else "false",
        "bodyCrc32": str(body_crc32(body)),
        **fields,
    }
    return RemotingCommand(103, version=version, opaque=5, ext_fields=ext_fields, body=body)


def test_compressed_registrations_of_4_9_and_of_5_x(namesrv: Any) -> None:
    body = body_of("T1", "T2").encode(compressed=True)
    assert namesrv.ask(register(body, compressed=True)).code == 0
    assert sorted(namesrv.routes.get_all_topic_list()) == ["T1", "T2"]
    words = b"T3 8 8 6 SINGLE_TAG {}"
    version = b'{"counter":9,"stateVersion":0,"timestamp":5}'
    parts = [len(version).to_bytes(4), version, (1).to_bytes(4), len(words).to_bytes(4), words]
    five = zlib.compress(b"".join([*parts, (2).to_bytes(4), b"[]", bytes(4)]), 9)
    assert namesrv.ask(register(five, compressed=True, version=479)).code == 0
    assert "T3" in namesrv.routes.get_all_topic_list()


def test_a_compressed_body_that_a_5_3_3_broker_calls_uncompressed(namesrv: Any) -> None:
    body = body_of("T1").encode(compressed=True)
    assert namesrv.ask(register(body, compressed=False, version=479)).code == 0
    assert namesrv.routes.get_all_topic_list() == ["T1"]


def test_a_registration_without_body_and_one_of_an_old_broker(namesrv: Any) -> None:
    assert namesrv.ask(register(b"", bodyCrc32="0")).code == 0
    assert namesrv.ask(register(b"", brokerId="0")).code == 0
    held = namesrv.routes.query_data_version("10.0.0.1:10911", VERSION, 0)[1]
    assert (held.counter, held.timestamp) == (0, 0)
    bare = body_of("Old").topic_config_serialize_wrapper.to_json_bytes()
    assert namesrv.ask(register(bare, version=36)).code == 0
    assert namesrv.routes.get_all_topic_list() == ["Old"]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (register(b"{}", bodyCrc32="1"), "crc32 not match"),
        (register(b"not json"), "RegisterBrokerBody"),
        (register(b"not zlib", compressed=True), "RegisterBrokerBody"),
        (register(b'{"topicConfigSerializeWrapper":5}'), "topicConfigSerializeWrapper"),
        (register(b"{}", brokerId="x"), "brokerId"),
        (RemotingCommand(103), "brokerName: is missing"),
        (RemotingCommand(105), "topic: is missing"),
        (RemotingCommand(100, ext_fields={"namespace": "n", "key": "", "value": "v"}), "is null"),
        (RemotingCommand(318, body=b"\xff"), "UnsupportedEncodingException"),
    ],
)
def test_what_cannot_be_read_is_answered_1_and_changes_nothing(
    namesrv: Any, request_: RemotingCommand, words: str
) -> None:
    answer = namesrv.ask(request_)
    assert answer.code == 1
    assert words in answer.remark
    assert namesrv.routes.sizes() == dict.fromkeys(namesrv.routes.sizes(), 0)


def test_a_crc_of_0_is_not_checked(namesrv: Any) -> None:
    assert namesrv.ask(register(body_of("T").encode(), bodyCrc32="0")).code == 0


def test_a_registration_that_waited_while_its_connection_closed_leaves_nothing(
    namesrv: Any, new_connection: Callable[..., Any]
) -> None:
    closed = new_connection(connection_id=9, is_open=False)
    namesrv.ask(register(body_of("T").encode()), closed)
    assert namesrv.routes.sizes()["brokerLiveTable"] == 0


def test_5_x_fields_of_a_registration(namesrv: Any) -> None:
    body = body_of("T").encode()
    fields = {
        "heartbeatTimeoutMillis": "3000",
        "enableActingMaster": "true",
        "__ZONE_NAME": "z",
    }
    namesrv.ask(register(body, version=479, **fields))
    route = loads_lenient(namesrv.ask(question(105, topic="T")).body)
    assert route["brokerDatas"][0]["enableActingMaster"] is True
    assert route["brokerDatas"][0]["zoneName"] == "z"
    beat = {"clusterName": "c", "brokerName": "b", "brokerAddr": "10.0.0.1:10911"}
    namesrv.now_ms = 2_000
    assert namesrv.ask(question(904, **beat)).code == 0
    assert namesrv.routes.scan_not_active_broker(5_000) == []
    assert len(namesrv.routes.scan_not_active_broker(5_001)) == 1


# -- questions ---------------------------------------------------------------------------------


def question(code: int, body: bytes = b"", version: int = 409, **fields: str) -> RemotingCommand:
    return RemotingCommand(code, version=version, opaque=3, ext_fields=fields, body=body)


@pytest.mark.parametrize(
    ("version", "fields", "standard"),
    [
        (400, {}, False),
        (0, {}, False),
        (400, {"acceptStandardJsonOnly": "false"}, False),
        (401, {}, True),
        (479, {}, True),
        (0, {"acceptStandardJsonOnly": "true"}, True),
    ],
)
def test_who_gets_a_route_with_quoted_keys(
    namesrv: Any, version: int, fields: dict[str, str], standard: bool
) -> None:
    namesrv.ask(register(body_of("T").encode()))
    body = namesrv.ask(question(105, version=version, topic="T", **fields)).body
    assert (b'{"0":"10.0.0.1:10911"}' in body) == standard
    assert (b'{0:"10.0.0.1:10911"}' in body) != standard


def test_query_data_version(namesrv: Any) -> None:
    fields = {
        "brokerName": "b",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "c",
        "brokerId": "0",
    }
    ask = question(322, VERSION.to_json_bytes(), **fields)
    answer = namesrv.ask(ask)
    assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")
    namesrv.ask(register(body_of("T").encode()))
    answer = namesrv.ask(ask)
    assert answer.ext_fields == {"changed": "false"}
    assert json.loads(answer.body) == {"counter": 3, "timestamp": 1000}


def test_order_config_is_in_registrations_always_and_in_routes_when_enabled(
    new_namesrv: Callable[..., Any],
) -> None:
    namesrv = new_namesrv()
    put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b:4"}
    assert namesrv.ask(register(body_of("T").encode())).body == b""
    namesrv.ask(question(100, **put))
    answer = namesrv.ask(register(body_of("T").encode()))
    assert json.loads(answer.body) == {"table": {"T": "b:4"}}
    assert "orderTopicConf" not in json.loads(namesrv.ask(question(105, topic="T")).body)
    assert namesrv.ask(question(318, b"orderMessageEnable=true")).code == 0
    route = json.loads(namesrv.ask(question(105, topic="T")).body)
    assert route["orderTopicConf"] == "b:4"
    assert namesrv.ask(question(105, topic="X")).code == 17


def test_key_value_questions(namesrv: Any) -> None:
    fields = {"namespace": "n", "key": "k"}
    missing = namesrv.ask(question(101, **fields))
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: n Key: k")
    missing = namesrv.ask(question(219, namespace="n"))
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: n")
    assert namesrv.ask(question(100, value="v", **fields)).code == 0
    assert namesrv.ask(question(101, **fields)).ext_fields == {"value": "v"}
    assert namesrv.ask(question(219, namespace="n")).body == b'{"table":{"k":"v"}}'
    assert namesrv.ask(question(102, **fields)).code == 0
    assert namesrv.ask(question(101, **fields)).code == 22


def test_lists_and_members(namesrv: Any) -> None:
    namesrv.ask(register(body_of("T").encode()))
    expected = {
        (224, ("cluster", "c")): {"topicList": ["T"]},
        (224, ("cluster", "x")): {"topicList": []},
        (304, ("", "")): {"brokerAddr": "10.0.0.1:10911", "topicList": ["c", "b"]},
        (311, ("", "")): {"topicList": []},
        (312, ("", "")): {"topicList": []},
        (313, ("", "")): {"topicList": []},
    }
    for (code, (key, value)), body in expected.items():
        assert json.loads(namesrv.ask(question(code, **{key: value})).body) == body
    answer = namesrv.ask(question(901, clusterName="c", brokerName="b"))
    group = {"brokerAddrs": {"0": "10.0.0.1:10911"}, "brokerName": "b", "cluster": "c"}
    assert loads_lenient(answer.body) == {"brokerMemberGroup": group}


def test_register_topic_of_5_x(namesrv: Any) -> None:
    namesrv.ask(register(body_of("T").encode()))
    body = b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":2,"writeQueueNums":2}]}'
    assert namesrv.ask(question(217, body, topic="N")).code == 0
    assert namesrv.ask(question(105, topic="N")).code == 0


def test_a_route_that_is_too_long_is_not_read(namesrv: Any) -> None:
    """A megabyte of filter servers' names took 0.1 s of the loop."""
    servers = ",".join(f'"{number:06}":["a"]' for number in range(20_000))
    body = b'{"queueDatas":[],"filterServerTable":{%s}}' % servers.encode()
    answer = namesrv.ask(question(217, body, topic="N"))
    assert answer.code == 1
    assert answer.remark.endswith(f"a route of {len(body)} bytes, over the limit of 262144")


@pytest.mark.parametrize("code", [10, 11, 17, 25, 34, 903, 99999, -1])
def test_an_unknown_code_is_answered_3(namesrv: Any, code: int) -> None:
    answer = namesrv.ask(RemotingCommand(code))
    assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_every_code_of_the_table_is_a_known_request_code(namesrv: Any) -> None:
    codes = set(namesrv.processor.codes)
    assert {RequestCode(code) for code in codes} == codes
    assert len(codes) == 23
