"""SendMessageProcessor: every form of a send against a real log; both paths store the same."""

from __future__ import annotations

import json
import struct
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.send.send_header import V1_NAMES
from broker.send.send_records import PeerHost
from ha.control_slots import REPLICA_COUNT, REPLICATED_OFFSET
from ipc.control_page import BEAT, ProcessIndex
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.request_code import RequestCode as Code
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.batch_codec import BATCH_ITEM_HEAD, MOST_BATCH_MESSAGES
from store.control_slots import (
    APPEND_END,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    RUNNING_FLAGS,
    STORE_STATE,
    SYNC_FLUSH_WANTED,
    StoreState,
)
from store.message_codec import (
    BLANK_SIZE,
    decode_host,
    decode_message_id,
    encode_message_id,
    fixed_size,
)
from tests.broker.broker_fakes import CONFIG
from tests.broker.hot_path_world import (
    Client,
    HotPathWorld,
    properties_of,
    send_fields,
    send_request,
)
from tests.remoting.golden_frames import GOLDEN, GoldenFrame

JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ
REGION = {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}


@pytest.fixture
def world(tmp_path: Path) -> HotPathWorld:
    world = HotPathWorld(tmp_path)
    world.topic()
    return world


@pytest.fixture
def client(world: HotPathWorld) -> Client:
    return world.client()


def batch_body(*items: tuple[int, bytes, bytes]) -> bytes:
    """(flag, body, properties) as a Java client packs them."""
    packed = b""
    for flag, body, properties in items:
        size = BATCH_ITEM_HEAD.size + len(body) + 2 + len(properties)
        packed += BATCH_ITEM_HEAD.pack(size, 0, 0, flag, len(body)) + body
        packed += struct.pack(">h", len(properties)) + properties
    return packed


def as_v1(request: RemotingCommand) -> RemotingCommand:
    """Code 10 of a 310."""
    long = {short: name for name, short in V1_NAMES.items()}
    changed = RemotingCommand.request(
        Code.SEND_MESSAGE, {long[k]: v for k, v in request.ext_fields.items()}, request.body
    )
    changed.opaque, changed.flag = request.opaque, request.flag
    changed.serialize_type = request.serialize_type
    return changed


# -- every form of a send --------------------------------------------------------------------------

_text = st.text(
    st.characters(blacklist_characters="\x00\x01\x02", blacklist_categories=["Cs"]), max_size=8
)
_names = st.one_of(
    st.sampled_from(["WAIT", "CLUSTER", "TAGS", "KEYS", "UNIQ_KEY", "XWAIT", "WAITX", "NOWAIT"]),
    _text.filter(lambda name: name not in ("DELAY", "TRAN_MSG")),
)
_values = st.one_of(st.sampled_from(["true", "false", "", "GoldenCluster"]), _text)
_properties = st.tuples(
    st.lists(st.tuples(_names, _values), max_size=5), st.sampled_from(["", "\x02", "\x02\x02"])
).map(lambda made: "\x02".join(f"{name}\x01{value}" for name, value in made[0]) + made[1])
_legal = st.fixed_dictionaries(
    {
        "queue_id": st.sampled_from(["0", "1", "3", "00", "+1", "03"]),
        "sys_flag": st.sampled_from([0, 1, 0x2, 0x10, 0x20, 0x30, 257, 769, 0x7FFFFF73, -144]),
        "born_timestamp": st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 1_795_177_732_426]),
        "flag": st.integers(-(2**31), 2**31 - 1),
        "properties": st.one_of(st.none(), _properties),
        "reconsume_times": st.one_of(st.none(), st.integers(-1, 2**31 - 1)),
        "unit_mode": st.sampled_from([None, "true", "false"]),
        "max_reconsume_times": st.sampled_from([None, 16]),
        "batch": st.sampled_from([None, "false"]),
    }
)


@pytest.fixture(scope="module")
def forms_client() -> Iterator[Client]:
    with tempfile.TemporaryDirectory() as root:
        world = HotPathWorld(Path(root) / "store", file_size=1 << 20)
        world.topic()
        client = world.client()
        client.call(send_request())
        yield client
        world.close()


@given(fields=_legal, body=st.binary(max_size=40), serialize=st.sampled_from([JSON, BINARY]))
def test_every_form_of_a_single_send_stores_the_same(
    forms_client: Client, fields: dict[str, Any], body: bytes, serialize: SerializeType
) -> None:
    request = send_request(body, **fields)
    client = forms_client
    other = send_request(body, serialize=serialize, **fields)
    forms = [request, other, as_v1(other)]
    answers = [client.call(form) for form in forms]
    assert {answer.code for answer in answers} == {0}
    assert [a.serialize_type for a in answers] == [JSON, serialize, serialize]
    stored = client.world.records()[-3:]
    same = [replace(m, phy_offset=0, queue_offset=0) for m in stored]
    assert same[0] == same[1] == same[2]
    for message, answer in zip(stored, answers, strict=True):
        assert answer.ext_fields["queueOffset"] == str(message.queue_offset)
        assert answer.ext_fields["msgId"] == encode_message_id(
            message.store_host, message.phy_offset
        )


@pytest.mark.interpreted
def test_the_fast_path_is_really_taken(world: HotPathWorld, client: Client) -> None:
    """Else the comparison above compares nothing."""
    client.call(send_request())

    def refuse(connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand | None:
        pytest.fail("the general path was taken")

    world.send_processor.process_request = refuse  # type: ignore[method-assign]
    assert client.call(send_request()).code == 0
    assert client.call(as_v1(send_request())).code == 0


@pytest.mark.parametrize("fast", [False, True])
def test_letters_of_a_code_10_name_nothing(tmp_path: Path, fast: bool) -> None:
    world = HotPathWorld(tmp_path, fast=fast)
    world.topic()
    client = world.client()
    client.call(send_request())
    request = as_v1(send_request())
    request.ext_fields |= {"b": "Another", "e": "3", "i": "KEYS\x01another"}
    assert client.call(request).code == 0
    assert world.records()[-1].topic == "T"


@pytest.mark.parametrize("code", [10, 310])
def test_the_last_of_two_codes_counts(world: HotPathWorld, client: Client, code: int) -> None:
    """Whatever the first one is: no fast path takes it for what it is not."""
    client.call(send_request())
    request = send_request() if code == 310 else as_v1(send_request())
    frame = encode_command(request)
    header = frame[8 : len(frame) - len(request.body)]
    twice = header.rstrip()[:-1] + b',"code":777}'
    assert header.startswith(b'{"code":%d,' % code)
    size = struct.pack(">ii", 4 + len(twice) + len(request.body), len(twice))
    before = len(world.records())
    client.send(size + twice + bytes(request.body))
    world.turn()
    (answer,) = client.answers()
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert len(world.records()) == before


# -- golden frames -------------------------------------------------------------------------------


def golden_record(what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    records = json.loads((GOLDEN / "store-G" / "records-master.json").read_text())
    (found,) = [record for record in records if what(record)]
    return dict(found)


def assert_as_java_stored(message: Any, java: dict[str, Any]) -> None:
    ours = (
        message.queue_id,
        message.flag,
        message.sys_flag,
        message.born_timestamp,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.topic,
        message.body.hex(),
        properties_of(message.properties),
    )
    assert ours == (
        java["queueId"],
        java["flag"],
        java["sysFlag"],
        java["bornTimestamp"],
        java["reconsumeTimes"],
        java["preparedTransactionOffset"],
        java["topic"],
        java["bodyHexStored"],
        java["properties"],
    )
    address, port = decode_host(message.store_host)
    assert f"/{address}:{port}" == java["storeHost"]


def assert_fields_of_java(
    answer: RemotingCommand, java: RemotingCommand, request: RemotingCommand
) -> None:
    """The fields of 4.9.8, and the one that 5.x adds."""
    key = properties_of(request.ext_fields["i"].encode())["UNIQ_KEY"]
    assert answer.ext_fields["transactionId"] == key
    assert answer.ext_fields.keys() - {"transactionId"} == java.ext_fields.keys()


@pytest.fixture(params=["wire-json", "wire-rocketmq"])
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("number", range(1, 8))
def test_golden_single_sends(tmp_path: Path, wire: str, number: int) -> None:
    world = HotPathWorld(tmp_path)
    client = world.client()
    directory = GOLDEN / wire / "310-SEND_MESSAGE_V2"
    frame = GoldenFrame(directory / f"{number:02d}.req.bin", "request")
    request = frame.command()
    client.send(frame.frame)
    world.turn()
    answers = client.answers()
    (message,) = world.records()
    if request.is_oneway:
        assert answers == []
    else:
        (answer,) = answers
        java = GoldenFrame(directory / f"{number:02d}.resp.bin", "response").command()
        assert (answer.code, answer.opaque, answer.flag, answer.remark, answer.serialize_type) == (
            java.code,
            java.opaque,
            java.flag,
            java.remark,
            java.serialize_type,
        )
        assert_fields_of_java(answer, java, request)
        for name in ("queueId", "TRACE_ON", "MSG_REGION"):
            assert answer.ext_fields[name] == java.ext_fields[name]
        assert answer.ext_fields["msgId"] == encode_message_id(message.store_host, 0)
        assert decode_message_id(java.ext_fields["msgId"])[0] == message.store_host
    sent = properties_of(request.ext_fields["i"].encode())
    if wire == "wire-json":
        java_record = golden_record(
            lambda r: r.get("properties", {}).get("UNIQ_KEY") == sent["UNIQ_KEY"]
        )
        assert_as_java_stored(message, java_record)
    del sent["WAIT"]
    assert properties_of(message.properties) == {**sent, "CLUSTER": "GoldenCluster"}
    assert world.topics.find(message.topic).write_queue_nums == 4  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [1, 2])
def test_golden_batches(tmp_path: Path, wire: str, number: int) -> None:
    world = HotPathWorld(tmp_path)
    directory = GOLDEN / wire / "320-SEND_BATCH_MESSAGE"
    frame = GoldenFrame(directory / f"{number:02d}.req.bin", "request")
    answer = world.client().call(frame.frame)
    java = GoldenFrame(directory / f"{number:02d}.resp.bin", "response").command()
    assert (answer.code, answer.opaque) == (java.code, java.opaque)
    assert answer.ext_fields.keys() == java.ext_fields.keys()
    assert answer.ext_fields["queueId"] == java.ext_fields["queueId"]
    assert answer.ext_fields["queueOffset"] == "0"
    messages = world.records()
    ids = [encode_message_id(m.store_host, m.phy_offset) for m in messages]
    assert answer.ext_fields["msgId"] == ",".join(ids)
    java_ids = java.ext_fields["msgId"].split(",")
    assert len(messages) == len(java_ids)
    assert [m.queue_offset for m in messages] == list(range(len(messages)))
    if wire != "wire-json":
        return
    for message, java_id in zip(messages, java_ids, strict=True):
        record = golden_record(lambda r, i=java_id: r.get("offsetMsgId") == i)  # type: ignore[misc]
        assert_as_java_stored(message, record)
        # Java writes the appended pairs in hash order; nothing else differs.
        java_raw = bytes.fromhex(record["rawHex"])
        assert sorted(message.properties) == sorted(java_raw[-len(message.properties) :])


@pytest.mark.parametrize("number", [8, 9, 10])
def test_golden_half_messages(tmp_path: Path, wire: str, number: int) -> None:
    world = HotPathWorld(tmp_path)
    directory = GOLDEN / wire / "310-SEND_MESSAGE_V2"
    frame = GoldenFrame(directory / f"{number:02d}.req.bin", "request")
    answer = world.client().call(frame.frame)
    java = GoldenFrame(directory / f"{number:02d}.resp.bin", "response").command()
    assert (answer.code, answer.remark) == (java.code, java.remark)
    assert_fields_of_java(answer, java, frame.command())
    for name in ("queueId", "TRACE_ON", "MSG_REGION"):
        assert answer.ext_fields[name] == java.ext_fields[name]
    assert answer.ext_fields["queueOffset"] == "0"
    (message,) = world.records()
    assert (message.topic, message.queue_offset) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert world.topics.find(message.topic).write_queue_nums == 1  # type: ignore[union-attr]
    assert world.stats.types == {"transaction"}
    if wire == "wire-json":
        properties = properties_of(message.properties)
        record = golden_record(
            lambda r: (
                r.get("topic") == "RMQ_SYS_TRANS_HALF_TOPIC"
                and r["properties"]["UNIQ_KEY"] == properties["UNIQ_KEY"]
                and "TRANSACTION_CHECK_TIMES" not in r["properties"]
            )
        )
        assert_as_java_stored(message, record)


KEY_OF_5X = "FD00000000000000000000000000000273704E0E2F2A713F5E830000"


@pytest.mark.parametrize("fast", [False, True])
def test_the_answer_of_5x(tmp_path: Path, fast: bool) -> None:
    """A send to a broker of 5.3.3 and its answer, as they were captured."""
    world = HotPathWorld(tmp_path, fast=fast)
    world.topic("TCtl")
    client = world.client()
    client.call(send_request(topic="TCtl"))
    request = (
        '{"code":310,"extFields":{"a":"1795391176947","b":"TCtl","c":"TBW102","d":"4","e":"0",'
        '"f":"0","g":"1795391178372","h":"0","i":"UNIQ_KEY\\u0001' + KEY_OF_5X + "\\u0002"
        'WAIT\\u0001true\\u0002","j":"0","k":"false","m":"false","n":"cb"},"flag":0,'
        '"language":"JAVA","opaque":2,"serializeTypeCurrentRPC":"JSON","version":479}'
    ).encode()
    answer = client.call(struct.pack(">ii", len(request) + 6, len(request)) + request + b"hi")
    theirs = {
        "queueId": "0",
        "transactionId": KEY_OF_5X,
        "msgId": "7F00000100005F5A0000000000000000",
        "TRACE_ON": "true",
        "MSG_REGION": "DefaultRegion",
        "queueOffset": "0",
    }
    ours = {**theirs, "msgId": answer.ext_fields["msgId"], "queueOffset": "1"}
    assert (answer.code, answer.ext_fields) == (0, ours)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("UNIQ_KEY\x01a", "a"),
        ('KEYS\x01k\x02UNIQ_KEY\x01\\"é%d\x7f\x02TAGS\x01t', '\\"é%d\x7f'),
        ("UNIQ_KEY\x01a\x02UNIQ_KEY\x01b", "b"),
        ("UNIQ_KEY\x01a\x02XUNIQ_KEY\x01b", "a"),
        ("XUNIQ_KEY\x01b", None),
        ("UNIQ_KEY\x01", None),
        ("", None),
    ],
)
def test_the_transaction_id_is_the_clients_own_id(
    tmp_path: Path, fast: bool, text: str, key: str | None
) -> None:
    world = HotPathWorld(tmp_path, fast=fast)
    world.topic()
    client = world.client()
    client.call(send_request())
    answer = client.call(send_request(properties=text))
    assert answer.ext_fields.get("transactionId") == key
    batch = client.call(send_request(batch_body((0, b"x", b"")), properties=text, batch="true"))
    assert batch.ext_fields.get("transactionId") == key


# -- what is stored ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_text", "stored"),
    [
        ("", "CLUSTER\x01GoldenCluster"),
        ("KEYS\x01k", "KEYS\x01k\x02CLUSTER\x01GoldenCluster"),
        ("KEYS\x01k\x02", "KEYS\x01k\x02CLUSTER\x01GoldenCluster"),
        ("WAIT\x01true", "CLUSTER\x01GoldenCluster"),
        ("WAIT\x01true\x02KEYS\x01k", "KEYS\x01k\x02CLUSTER\x01GoldenCluster"),
        ("KEYS\x01k\x02WAIT\x01false\x02", "KEYS\x01k\x02CLUSTER\x01GoldenCluster"),
        ("NOWAIT\x01false", "NOWAIT\x01false\x02CLUSTER\x01GoldenCluster"),
        ("CLUSTER\x01Other\x02KEYS\x01k", "KEYS\x01k\x02CLUSTER\x01GoldenCluster"),
        ("KEYS\x01ключ 鍵 🔑", "KEYS\x01ключ 鍵 🔑\x02CLUSTER\x01GoldenCluster"),
    ],
)
@pytest.mark.parametrize("serialize", [JSON, BINARY])
def test_properties_of_a_single_send(
    world: HotPathWorld, client: Client, given_text: str, stored: str, serialize: SerializeType
) -> None:
    client.call(send_request())
    client.call(send_request(properties=given_text, serialize=serialize))
    assert world.records()[1].properties.decode() == stored


@pytest.mark.parametrize(
    ("header", "item", "stored"),
    [
        ("", "", "CLUSTER\x01GoldenCluster"),
        ("WAIT\x01true", "", "WAIT\x01true\x02CLUSTER\x01GoldenCluster"),
        ("WAIT\x01true", "A\x01b", "A\x01b\x02WAIT\x01true\x02CLUSTER\x01GoldenCluster"),
        ("WAIT\x01true\x02", "A\x01b\x02", "A\x01b\x02WAIT\x01true\x02CLUSTER\x01GoldenCluster"),
        (
            "WAIT\x01false",
            "WAIT\x01true",
            "WAIT\x01true\x02WAIT\x01false\x02CLUSTER\x01GoldenCluster",
        ),
    ],
)
def test_properties_of_a_batch_are_appended_to_each_record(
    world: HotPathWorld, client: Client, header: str, item: str, stored: str
) -> None:
    body = batch_body((7, b"one", item.encode()), (8, b"two", item.encode()))
    answer = client.call(
        send_request(body, code=Code.SEND_BATCH_MESSAGE, batch="true", properties=header)
    )
    assert answer.code == 0
    messages = world.records()
    assert [m.properties.decode() for m in messages] == [stored, stored]
    assert [(m.flag, m.body) for m in messages] == [(7, b"one"), (8, b"two")]


def test_a_batch_may_come_under_310_and_a_single_one_under_320(
    world: HotPathWorld, client: Client
) -> None:
    """The field m decides, not the code."""
    body = batch_body((0, b"one", b""), (0, b"two", b""))
    assert client.call(send_request(body, batch="true")).ext_fields["msgId"].count(",") == 1
    client.call(send_request(b"three", code=Code.SEND_BATCH_MESSAGE))
    assert [m.body for m in world.records()] == [b"one", b"two", b"three"]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("repeat", [1, 2])
def test_a_multi_tag_topic_marks_its_records(
    world: HotPathWorld, client: Client, batch: bool, repeat: int
) -> None:
    world.topic(topic_filter_type="MULTI_TAG")
    body = batch_body((0, b"one", b"")) if batch else b"one"
    for _ in range(repeat):
        client.call(send_request(body, batch=batch and "true"))
    assert {m.sys_flag for m in world.records()} == {2}


@pytest.mark.parametrize("store_host", ["127.0.0.2", "fd00::2"])
@pytest.mark.parametrize("host", ["10.0.0.7", "fe80::1%eth0"])
def test_hosts_and_their_flags(tmp_path: Path, store_host: str, host: str) -> None:
    world = HotPathWorld(tmp_path, store_host=store_host)
    world.topic()
    client = world.client(host, 5000)
    for _ in range(2):
        client.call(send_request(sys_flag=0x30))
    for message in world.records():
        assert decode_host(message.born_host) == (host.split("%")[0], 5000)
        assert decode_host(message.store_host) == (store_host, 20911)
        expected = (0x10 if ":" in host else 0) | (0x20 if ":" in store_host else 0)
        assert message.sys_flag == expected
    assert PeerHost("1.2.3.4", 5).host == bytes([1, 2, 3, 4, 0, 0, 0, 5])


def test_an_empty_body_is_stored(world: HotPathWorld, client: Client) -> None:
    for _ in range(2):
        assert client.call(send_request(b"")).code == 0
    assert [m.body for m in world.records()] == [b"", b""]
    assert {raw[8:12] for raw in world.raw_records()} == {bytes(4)}


def test_the_store_timestamp_is_the_brokers_clock(world: HotPathWorld, client: Client) -> None:
    world.clock.advance(777)
    world.turn()
    client.call(send_request())
    assert world.records()[0].store_timestamp == world.clock.now_ms()


# -- queue ids -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "queue_id"), [("0", 0), ("3", 3), ("00", 0), ("+1", 1), ("0000000002", 2), ("-0", 0)]
)
@pytest.mark.parametrize("warm", [False, True])
def test_legal_queue_ids(
    world: HotPathWorld, client: Client, text: str, queue_id: int, warm: bool
) -> None:
    if warm:
        client.call(send_request())
    answer = client.call(send_request(queue_id=text))
    assert answer.ext_fields["queueId"] == str(queue_id)
    assert world.records()[-1].queue_id == queue_id


def test_a_negative_queue_id_means_any_write_queue(world: HotPathWorld, client: Client) -> None:
    world.topic(read_queue_nums=9, write_queue_nums=3)
    for _ in range(60):
        client.call(send_request(queue_id=-1))
    assert {m.queue_id for m in world.records()} == {0, 1, 2}


def test_the_larger_of_read_and_write_queues_counts(world: HotPathWorld, client: Client) -> None:
    world.topic(read_queue_nums=6, write_queue_nums=2)
    assert client.call(send_request(queue_id=5)).code == 0
    assert client.call(send_request(queue_id=6)).code == 1


@pytest.mark.parametrize("text", ["4", "1000000000", "2147483647", "99999999999"])
def test_queue_ids_that_are_too_large(world: HotPathWorld, client: Client, text: str) -> None:
    client.call(send_request())
    answer = client.call(send_request(queue_id=text))
    assert answer.code == 1
    assert f"queueId[{text}] is illegal" in (answer.remark or "")
    assert len(world.records()) == 1


@pytest.mark.parametrize("text", ["1" * 5000, "٣", "x", "", "1.0", " 1"])
def test_a_queue_id_that_is_no_number(world: HotPathWorld, client: Client, text: str) -> None:
    """5,000 digits once ended the loop: int() refuses more than 4,300."""
    client.call(send_request())
    answer = client.call(send_request(queue_id=text))
    assert answer.code == 1
    assert "queueId" in (answer.remark or "")
    assert len(world.records()) == 1


# -- checks, in order ----------------------------------------------------------------------------


def refused(world: HotPathWorld, request: RemotingCommand, code: int, words: str) -> None:
    """Refused with code and words and the region fields, by both paths; nothing is stored."""
    client = world.client()
    before = world.counters[APPEND_END]
    for _ in range(2):
        answer = client.call(request)
        assert answer.code == code
        assert words in (answer.remark or "")
        assert answer.ext_fields == REGION
    assert world.counters[APPEND_END] == world.counters[MAX_PHY_OFFSET] == before


def test_check_1_the_start_time(tmp_path: Path) -> None:
    send = {"start_accept_send_request_timestamp_ms": 1_700_000_000_010}
    world = HotPathWorld(tmp_path, send=send)
    refused(world, send_request(topic="no/name"), 1, "broker unable to service, until")
    world.clock.advance(10)
    world.turn()
    assert world.client().call(send_request()).code == 0


def test_check_2_an_order_topic_of_a_broker_without_write_permission(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, config=replace(CONFIG, broker_permission=4))
    world.topic("Ordered", order=True)
    world.topic("Plain", order=False)
    words = "the broker[127.0.0.2] sending message is forbidden"
    refused(world, send_request(topic="Ordered", queue_id=99), 16, words)
    assert world.client().call(send_request(topic="Plain")).code == 0


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("", "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        ("a/b", "illegal characters"),
        ("../up", "illegal characters"),
        ("nul\0", "illegal characters"),
        ("Ünïcode", "illegal characters"),
        ("x" * 128, "longer than topic max length"),
        ("x" * 300, "longer than topic max length"),
    ],
)
def test_check_3_the_topic_name(world: HotPathWorld, topic: str, words: str) -> None:
    refused(world, send_request(topic=topic), 1, words)


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    ],
)
def test_check_4_topics_that_only_the_broker_writes(world: HotPathWorld, topic: str) -> None:
    refused(world, send_request(topic=topic), 16, f"Sending message to topic[{topic}] is forbidden")


def test_check_5_an_unknown_topic_without_template(world: HotPathWorld) -> None:
    request = send_request(topic="New", default_topic="Nothing")
    refused(world, request, 17, "topic[New] not exist, apply first please!")
    assert world.topics.find("New") is None
    client = world.client()
    assert client.call(send_request(topic="New", default_topic_queue_nums=3)).code == 0
    assert world.topics.find("New").write_queue_nums == 3  # type: ignore[union-attr]


def test_check_6_the_queue_id_comes_before_kind_store_and_sizes(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, send={"is_slave": True, "max_message_size": 3})
    world.topic()
    refused(world, send_request(queue_id=4, sys_flag=4), 1, "queueId[4] is illegal")


NOBODY = "says that it belongs to a transaction, but it has no property TRAN_MSG=true"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sys_flag": 4}, NOBODY),
        ({"sys_flag": 12}, NOBODY),
        ({"sys_flag": 4, "properties": "TRAN_MSG\x01false"}, NOBODY),
        ({"properties": "DELAY\x01x"}, "its property DELAY is 'x', expected a level from 1 to 18"),
    ],
)
def test_check_8_what_could_never_be_consumed(
    world: HotPathWorld, fields: dict[str, Any], words: str
) -> None:
    world.client().call(send_request())
    refused(world, send_request(b"one", **fields), 13, words)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sys_flag": 4}, "transactional"),
        ({"sys_flag": 8}, "transactional"),
        ({"sys_flag": 12}, "transactional"),
        ({"properties": "TRAN_MSG\x01true"}, "transactional"),
        ({"properties": "KEYS\x01k\x02TRAN_MSG\x01true\x02PGROUP\x01P"}, "transactional"),
        ({"properties": "DELAY\x013"}, "delayed"),
        ({"properties": "KEYS\x01k\x02DELAY\x0118\x02"}, "delayed"),
    ],
)
def test_check_8_a_batch_is_neither_delayed_nor_transactional(
    world: HotPathWorld, fields: dict[str, Any], words: str
) -> None:
    world.client().call(send_request())
    body = batch_body((0, b"one", b""))
    refused(world, send_request(body, batch="true", **fields), 13, words)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sys_flag": 128}, "it is an inner batch, its topic's queue.type is SimpleCQ"),
        ({"sys_flag": 192, "properties": "INNER_NUM\x012"}, "queue.type is SimpleCQ"),
        ({"sys_flag": 128, "properties": "DELAY\x013"}, "queue.type is SimpleCQ"),
        ({"properties": "KEYS\x01k\x02INNER_NUM\x012"}, "has the property INNER_NUM, but is not"),
        ({"properties": "INNER_NUM\x012\x02TRAN_MSG\x01true"}, "has the property INNER_NUM"),
    ],
)
@pytest.mark.parametrize("code", [10, 310, 320])
def test_check_10_marks_of_an_inner_batch(
    world: HotPathWorld, code: int, fields: dict[str, Any], words: str
) -> None:
    world.client().call(send_request())
    batch = code == 320 and "TRAN_MSG" not in str(fields)
    if batch and "DELAY" in str(fields):
        pytest.skip("a batch has no delay")
    body = batch_body((0, b"one", b"")) if batch else b"one"
    request = send_request(body, batch="true" if batch else "false", **fields)
    request.code = code
    refused(world, as_v1(request) if code == 10 else request, 13, words)


def test_check_10_an_item_of_a_batch_is_no_inner_batch(world: HotPathWorld) -> None:
    world.client().call(send_request())
    body = batch_body((0, b"one", b""), (0, b"two", b"INNER_NUM\x012"))
    refused(world, send_request(body, batch="true"), 13, "has the property INNER_NUM, but is not")


@pytest.mark.parametrize("fast", [False, True])
def test_a_delayed_message_is_stored_for_its_level(tmp_path: Path, fast: bool) -> None:
    world = HotPathWorld(tmp_path, fast=fast)
    world.topic()
    client = world.client()
    client.call(send_request())
    text = "KEYS\x01k\x02WAIT\x01true\x02CLUSTER\x01x\x02DELAY\x014"
    answer = client.call(send_request(b"b", queue_id=2, properties=text))
    assert (answer.code, answer.ext_fields["queueId"]) == (0, "2")
    message = world.records()[-1]
    assert (message.topic, message.queue_id, message.body) == ("SCHEDULE_TOPIC_XXXX", 3, b"b")
    assert properties_of(message.properties) == {
        "KEYS": "k",
        "WAIT": "true",
        "CLUSTER": "GoldenCluster",
        "DELAY": "4",
        "REAL_TOPIC": "T",
        "REAL_QID": "2",
    }


@pytest.mark.parametrize("level", ["0", "-1", ""])
def test_no_delay(world: HotPathWorld, client: Client, level: str) -> None:
    text = f"KEYS\x01k\x02DELAY\x01{level}"
    assert client.call(send_request(properties=text)).code == 0
    [message] = world.records()
    assert message.topic == "T"


def test_transactions_that_are_not_wanted(tmp_path: Path) -> None:
    words = "the broker[10.0.0.1] sending transaction message is forbidden"
    world = HotPathWorld(tmp_path, send={"reject_transactions": words})
    world.topic()
    refused(world, send_request(properties="TRAN_MSG\x01true"), 16, words)


def test_a_half_keeps_no_delay_and_no_transaction_bits(world: HotPathWorld, client: Client) -> None:
    text = "TRAN_MSG\x01true\x02DELAY\x013\x02PGROUP\x01P"
    answer = client.call(send_request(properties=text, sys_flag=5, queue_id=1))
    assert (answer.code, answer.ext_fields["queueId"]) == (0, "1")
    [message] = world.records()
    assert (message.topic, message.queue_id, message.sys_flag) == (
        "RMQ_SYS_TRANS_HALF_TOPIC",
        0,
        1,
    )
    assert properties_of(message.properties) == {
        "TRAN_MSG": "true",
        "PGROUP": "P",
        "CLUSTER": "GoldenCluster",
        "REAL_TOPIC": "T",
        "REAL_QID": "1",
    }


# -- a consumer sends to its retry topic itself --------------------------------------------------

RETRY = {
    "topic": "%RETRY%G",
    "default_topic_queue_nums": 1,
    "properties": "RETRY_TOPIC\x01T\x02DELAY\x014",
}


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    ("times", "limit", "version", "topic"),
    [
        (15, None, 409, "SCHEDULE_TOPIC_XXXX"),
        (16, None, 409, "%DLQ%G"),
        (2, 3, 409, "SCHEDULE_TOPIC_XXXX"),
        (3, 3, 409, "%DLQ%G"),
        (20, 30, 409, "SCHEDULE_TOPIC_XXXX"),
        (3, 3, 120, "SCHEDULE_TOPIC_XXXX"),
        (3, 3, 121, "%DLQ%G"),
    ],
)
def test_a_retry_or_a_dead_letter(
    tmp_path: Path, fast: bool, times: int, limit: int | None, version: int, topic: str
) -> None:
    world = HotPathWorld(tmp_path, fast=fast)
    request = send_request(reconsume_times=times, max_reconsume_times=limit, **RETRY)
    request.version = version
    client = world.client()
    for _ in range(2):
        assert client.call(request).code == 0
    first, second = world.records()
    assert first.topic == second.topic == topic
    assert (first.queue_offset, second.queue_offset) == (0, 1)
    assert first.reconsume_times == times
    properties = properties_of(first.properties)
    if topic == "%DLQ%G":
        assert properties == {"RETRY_TOPIC": "T", "CLUSTER": "GoldenCluster"}
        assert world.topics.find(topic).write_queue_nums == 1  # type: ignore[union-attr]
    else:
        assert (properties["REAL_TOPIC"], properties["DELAY"]) == ("%RETRY%G", "4")


def test_a_retry_of_an_unknown_group(tmp_path: Path) -> None:
    config = replace(CONFIG, auto_create_subscription_group=False)
    world = HotPathWorld(tmp_path, config=config)
    refused(world, send_request(**RETRY), 26, "subscription group not exist, G")


def test_a_dead_letter_topic_that_cannot_be_made(
    world: HotPathWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.topics, "create", lambda *_: None)
    refused(world, send_request(reconsume_times=16, **RETRY), 1, "topic[%DLQ%G] not exist")


def test_a_delayed_item_of_a_batch(world: HotPathWorld) -> None:
    body = batch_body((0, b"one", b""), (0, b"two", b"DELAY\x012"))
    refused(world, send_request(body, batch="true"), 13, "delayed")


@pytest.mark.parametrize(
    "text", ["DELAY\x010", "XDELAY\x013", "DELAYX\x013", "TRAN_MSG\x01false", "K\x01DELAY"]
)
def test_look_alikes_are_plain_messages(world: HotPathWorld, client: Client, text: str) -> None:
    for _ in range(2):
        assert client.call(send_request(properties=text)).code == 0
    assert text.encode() in world.records()[1].properties


def test_check_9_a_slave_before_the_sizes(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, send={"is_slave": True, "max_message_size": 3})
    world.topic()
    refused(world, send_request(b"too large"), 14, "slave")


def test_check_9_a_store_that_refuses_writes(world: HotPathWorld, client: Client) -> None:
    client.call(send_request())
    world.counters[RUNNING_FLAGS] = 1 << 4
    refused(world, send_request(), 14, "the disk is full")
    assert world.stats.failed > 0
    world.counters[RUNNING_FLAGS] = 0
    assert client.call(send_request()).code == 0


@pytest.mark.parametrize("batch", [None, "true"])
def test_check_11_the_body_may_be_as_large_as_max_message_size(tmp_path: Path, batch: str) -> None:
    world = HotPathWorld(tmp_path, send={"max_message_size": 1000})
    world.topic()
    room = 1000 - (22 if batch else 0)
    fits = batch_body((0, bytes(room), b"")) if batch else bytes(room)
    client = world.client()
    for _ in range(2):
        assert client.call(send_request(fits, batch=batch)).code == 0
    over = batch_body((0, bytes(room + 1), b"")) if batch else bytes(room + 1)
    refused(world, send_request(over, batch=batch), 13, "body of 1001 bytes (maxMessageSize 1000)")


def test_check_11_properties_as_they_are_stored(tmp_path: Path) -> None:
    """The limit holds for the stored bytes: WAIT is gone, CLUSTER is there, é takes two."""
    world = HotPathWorld(tmp_path, file_size=1 << 18)
    world.topic()
    client = world.client()
    client.call(send_request())
    cluster = len("\x02CLUSTER\x01GoldenCluster")
    longest = "K\x01" + "v" * (32767 - cluster - 2)
    assert client.call(send_request(properties=longest)).code == 0
    assert client.call(send_request(properties=longest + "\x02WAIT\x01true")).code == 0
    assert client.call(send_request(properties=longest, serialize=BINARY)).code == 0
    assert [len(m.properties) for m in world.records()[1:]] == [32767] * 3
    refused(world, send_request(properties=longest + "v"), 13, "properties of 32768 bytes")
    refused(world, send_request(properties="K\x01" + "é" * 17000), 13, "properties of")


@pytest.mark.parametrize("fields", [{}, {"serialize": BINARY}])
def test_a_megabyte_of_properties_is_refused_before_anybody_looks_into_it(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    """10 s each, when every WAIT was taken out of all that follows it."""
    world = HotPathWorld(tmp_path, file_size=1 << 18)
    world.topic()
    world.client().call(send_request())
    began_s = time.thread_time()
    for pair in ("WAIT\x01\x02", "CLUSTER\x01\x02", "x\x01\x02WAIT\x01"):
        text = pair * (1_000_000 // len(json.dumps(pair)))
        words = f"properties of {len(text)} bytes (limit 32767)"
        refused(world, send_request(properties=text, **fields), 13, words)
    assert time.thread_time() - began_s < 1


def test_a_batch_of_too_many_is_refused_before_it_is_made(tmp_path: Path) -> None:
    """4 MiB of empty messages took 220 ms, nearly all of it for records that nobody stored."""
    world = HotPathWorld(tmp_path, file_size=1 << 25)
    world.topic()
    world.client().call(send_request())
    item = batch_body((0, b"", b""))
    for body in (item * 32_768, batch_body((0, b"", b"x")) + item * 32_767):
        request = send_request(body, batch="true", properties="")
        tracemalloc.start()
        try:
            refused(world, request, 13, "a batch of ")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        # The body is held three times: in the frame, by its sender and by the broker.
        assert peak < 3 * len(body) + (1 << 18)


def test_the_light_queues_of_a_send_count_together(tmp_path: Path) -> None:
    """Of a batch each message was looked at alone: 50 with 50 new queues each made 2,500, with a
    limit of 100."""
    world = HotPathWorld(tmp_path, light_queues=3)
    world.topic()
    items = [(0, b"x", f"INNER_MULTI_DISPATCH\x01%LMQ%{n},%LMQ%a".encode()) for n in range(3)]
    request = send_request(batch_body(*items), batch="true", properties="")
    refused(world, request, 1, "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]")
    assert world.log.lmq is not None
    assert world.log.lmq.queue_count == 0
    request = send_request(batch_body(*items[:2]), batch="true", properties="")
    assert world.client().call(request).code == 0
    assert world.log.lmq.queue_count == 3


def test_what_is_sent_to_light_queues_themselves_counts(tmp_path: Path) -> None:
    """Whoever sent to them made as many as the queue table holds."""
    world = HotPathWorld(tmp_path, light_queues=3)
    for name in ("%LMQ%a", "%LMQ%b", "%LMQ%c", "%LMQ%d"):
        world.topic(name)
    client = world.client()
    assert client.call(send_request(topic="%LMQ%a")).code == 0
    assert client.call(send_request(topic="%LMQ%b")).code == 0
    two = "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%c"
    assert client.call(send_request(topic="%LMQ%b", properties=two)).code == 0
    words = "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]"
    refused(world, send_request(topic="%LMQ%d"), 1, words)
    refused(world, send_request(properties="INNER_MULTI_DISPATCH\x01%LMQ%d"), 1, words)
    for name in ("%LMQ%a", "%LMQ%b", "%LMQ%c"):
        assert client.call(send_request(topic=name)).code == 0


@pytest.mark.parametrize("batch", ["false", "true"])
def test_what_is_stored_always_has_its_places_in_light_queues(tmp_path: Path, batch: str) -> None:
    """The broker's own CLUSTER and the common properties of a batch count, too: what took the
    last bytes was answered 0, and was in no light queue."""
    world = HotPathWorld(tmp_path, file_size=1 << 22, light_queues=3)
    world.topic()
    client, codes = world.client(), set()
    names = "INNER_MULTI_DISPATCH\x01%LMQ%a\x02P\x01"
    for length in (*range(31_700, 32_700, 20), *range(32_700, 32_767)):
        text = names + "x" * (length - len(names))
        request = send_request(properties=text)
        if batch == "true":
            body = batch_body((0, b"x", text[:200].encode()))
            request = send_request(body, batch=batch, properties="Q\x01" + text[200:-3])
        codes.add(client.call(request).code)
    assert codes == {0, 13}
    records = world.records()
    assert all(b"INNER_MULTI_QUEUE_OFFSET" in record.properties for record in records)
    assert len({record.properties for record in records}) == len(records)


def test_a_batch_that_grows_to_gigabytes_is_refused_before_it_is_made(tmp_path: Path) -> None:
    """1.2 GB and 4.6 s with 40,000 messages: each got the 30 KB that they have in common."""
    world = HotPathWorld(tmp_path, file_size=1 << 18)
    world.topic()
    world.client().call(send_request())
    body = batch_body(*[(0, b"", b"")] * 4_000)
    for properties, path in (
        ("K\x01" + "v" * 30_000, "fast"),
        ("INNER_\x01" + "v" * 30_000, "general"),
    ):
        request = send_request(body, batch="true", properties=properties)
        tracemalloc.start()
        try:
            refused(world, request, 13, "a batch of 4000 messages that takes 12")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 16 << 20, path


def test_a_batch_of_more_messages_than_there_may_be_is_refused(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, file_size=1 << 23)
    world.topic()
    item = batch_body((0, b"", b""))
    most = item * MOST_BATCH_MESSAGES
    assert world.client().call(send_request(most, batch="true", properties="")).code == 0
    words = "a batch of 16001 messages (limit 16000)"
    refused(world, send_request(most + item, batch="true", properties=""), 13, words)
    other = batch_body((0, b"x", b""))
    refused(world, send_request(most + other, batch="true", properties=""), 13, words)


def test_check_11_properties_of_a_batch(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, file_size=1 << 18)
    world.topic()
    body = batch_body((0, b"one", b""))
    text = "K\x01" + "v" * 32766
    refused(world, send_request(body, batch="true", properties=text), 1, "32768 characters")
    item = batch_body((0, b"one", b""), (0, b"two", b"K\x01" + b"v" * 32760))
    refused(world, send_request(item, batch="true", properties=""), 13, "properties of")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no message"),
        (b"\0" * 5, "too few"),
        (BATCH_ITEM_HEAD.pack(22, 0, 0, 0, 1000) + bytes(2), "claims a body"),
        (BATCH_ITEM_HEAD.pack(22, 0, 0, 0, -1) + bytes(2), "claims a body"),
        (BATCH_ITEM_HEAD.pack(23, 0, 0, 0, 0) + bytes(2), "claims 23 bytes"),
        (BATCH_ITEM_HEAD.pack(22, 0, 0, 0, 0) + b"\xff\xff", "claims properties"),
        (batch_body((0, b"fine", b"")) + b"rest", "too few"),
        (batch_body((0, b"fine", b""), (0, b"bad", b"K\x01\xff\xfe")), "invalid start byte"),
    ],
)
def test_a_batch_that_lies_is_refused_whole(world: HotPathWorld, body: bytes, words: str) -> None:
    refused(world, send_request(body, batch="true"), 13, words)


@pytest.mark.parametrize("name", list("abcdefgh"))
@pytest.mark.parametrize("v1", [False, True])
def test_a_missing_field_is_named(world: HotPathWorld, name: str, v1: bool) -> None:
    request = send_request()
    del request.ext_fields[name]
    long = {short: long for long, short in V1_NAMES.items()}[name]
    request = as_v1(request) if v1 else request
    refused(world, request, 1, f"SendMessageRequestHeader.{long}: is missing")


@pytest.mark.parametrize("serialize", [JSON, BINARY])
def test_long_names_are_the_only_ones_of_code_10(
    world: HotPathWorld, client: Client, serialize: SerializeType
) -> None:
    """The guard judged `topic`; `b` behind it must not send the message elsewhere."""
    client.call(send_request())
    request = as_v1(send_request(serialize=serialize))
    world.topic("U")
    request.ext_fields["b"] = "U"
    assert client.call(request).code == 0
    assert {message.topic for message in world.records()} == {"T"}
    del request.ext_fields["topic"]
    refused(world, request, 1, "SendMessageRequestHeader.topic: is missing")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("default_topic_queue_nums", "x"),
        ("sys_flag", "1" * 30),
        ("sys_flag", str(2**31)),
        ("born_timestamp", str(2**63)),
        ("flag", "-2147483649"),
        ("reconsume_times", "many"),
        ("max_reconsume_times", ""),
    ],
)
def test_a_field_that_is_no_number_or_out_of_range(
    world: HotPathWorld, name: str, text: str
) -> None:
    world.client().call(send_request())
    fields: dict[str, Any] = {name: text}
    refused(world, send_request(**fields), 1, "")


@pytest.mark.parametrize("serialize", [JSON, BINARY])
@pytest.mark.parametrize(("text", "messages"), [("TRUE", 2), ("True", 2), ("1", 1), ("yes", 1)])
def test_flags_are_read_as_java_reads_them(
    world: HotPathWorld, client: Client, text: str, messages: int, serialize: SerializeType
) -> None:
    """Boolean.parseBoolean: `true` in any case, everything else is false."""
    body = batch_body((0, b"one", b""), (0, b"two", b""))
    for _ in range(2):
        request = send_request(body, batch=text, unit_mode=text, serialize=serialize)
        assert client.call(request).code == 0
    assert len(world.records()) == 2 * messages


# -- oneway --------------------------------------------------------------------------------------


@pytest.mark.parametrize("serialize", [JSON, BINARY])
def test_oneway_is_stored_and_never_answered(
    world: HotPathWorld, client: Client, serialize: SerializeType
) -> None:
    client.send(send_request(oneway=True, serialize=serialize))
    client.send(send_request(oneway=True, serialize=serialize, topic="no/name"))
    client.send(send_request(oneway=True, serialize=serialize, queue_id=77))
    world.turn()
    assert client.answers() == []
    assert len(world.records()) == 1
    assert (world.stats.answers, world.stats.oneways) == ({}, {(310, 0): 1})


def test_a_turn_of_many_sends_is_published_and_counted_once(
    world: HotPathWorld, client: Client
) -> None:
    client.call(send_request())
    world.rings = 0
    other = world.client()
    client.send(*[send_request(b"12345") for _ in range(10)])
    other.send(send_request(b"12345", topic="Other"))
    before = world.counters[MAX_PHY_OFFSET]
    world.turn()
    assert world.rings == 1
    assert world.counters[MAX_PHY_OFFSET] > before
    assert [int(a.ext_fields["queueOffset"]) for a in client.answers()] == list(range(1, 11))
    assert len(other.answers()) == 1
    stored = {topic: count for topic, (count, _) in world.stats.puts.items()}
    assert stored == {"T": 11, "Other": 1}
    assert sum(size for _, size in world.stats.puts.values()) == world.counters[MAX_PHY_OFFSET]
    assert world.stats.answers == {(310, 0): 12}


# -- files ---------------------------------------------------------------------------------------


def fill_file(world: HotPathWorld, client: Client) -> int:
    """Send until the next record needs another file; returns how many were sent."""
    record = fixed_size(0) + 2 + len("KEYS\x01k\x02CLUSTER\x01GoldenCluster") + 1000
    sent = 0
    while world.log.position % world.file_size + record + BLANK_SIZE <= world.file_size:
        assert client.call(send_request(bytes(1000))).code == 0
        sent += 1
    return sent


@pytest.mark.parametrize("fast", [True, False])
def test_records_cross_to_the_next_file(tmp_path: Path, fast: bool) -> None:
    world = HotPathWorld(tmp_path, file_size=4096, files=3, fast=fast)
    world.topic()
    client = world.client()
    sent = fill_file(world, client)
    assert client.call(send_request(bytes(1000))).code == 0
    assert world.records()[-1].phy_offset == 4096
    assert len(world.records()) == sent + 1


def test_held_sends_keep_their_order_and_are_answered(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, file_size=4096, files=1)
    world.topic()
    client = world.client()
    sent = fill_file(world, client)
    wanted = [send_request(bytes(1000)), send_request(b"small"), send_request(b"z", oneway=True)]
    wanted.append(send_request(batch_body((0, b"in batch", b"")), batch="true"))
    wanted.append(send_request(b"binary", serialize=BINARY))
    client.send(*wanted)
    world.turn()
    assert client.answers() == []
    client.send(send_request(b"last"))
    world.turn()
    assert (len(world.records()), client.answers()) == (sent, [])
    world.clock.advance(300)
    world.allocate(1)
    world.turn()
    bodies = [m.body for m in world.records()[sent:]]
    assert bodies == [bytes(1000), b"small", b"z", b"in batch", b"binary", b"last"]
    answers = client.answers()
    assert [a.code for a in answers] == [0] * 5
    assert [a.opaque for a in answers[:4]] == [w.opaque for w in wanted if not w.is_oneway]
    assert [m.queue_offset for m in world.records()] == list(range(sent + 6))
    assert world.stats.timed == [(310, 0, 300)] * 6, "they took as long as they waited"
    assert world.stats.oneways == {(310, 0): 1}
    assert client.call(send_request(b"fast again")).code == 0
    client.call(send_request(batch_body((0, b"in batch", b"")), batch="true"))
    assert len(world.stats.timed) == 6, "the turn is all that they take"


def test_a_held_send_that_waits_for_the_disk_took_both_times(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, file_size=4096, files=1, waits_for_flush=True)
    world.topic()
    client = world.client()
    client.send(send_request(bytes(3000)), send_request(bytes(3000)))
    world.turn()
    world.clock.advance(300)
    world.allocate(1)
    world.turn()
    world.clock.advance(50)
    world.counters[FLUSHED_OFFSET] = world.counters[MAX_PHY_OFFSET]
    world.turn()
    assert [answer.code for answer in client.answers()] == [0, 0]
    assert world.stats.waited_answers == {(310, 0): 1, (None, 0): 1}
    assert world.stats.timed == [(310, 0, 350)]


def test_held_sends_are_refused_after_five_seconds(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, file_size=4096, files=1)
    world.topic()
    client = world.client()
    sent = fill_file(world, client)
    client.send(send_request(bytes(1000)), send_request(bytes(1000), oneway=True))
    world.turn()
    world.clock.advance(5_000)
    world.turn()
    world.turn()
    assert client.answers() == []
    world.clock.advance(1)
    world.turn()
    world.turn()
    (answer,) = client.answers()
    assert answer.code == 1
    assert "could not be created in time" in (answer.remark or "")
    assert world.stats.timed == [(310, 1, 5_001)] * 2
    assert world.stats.oneways == {(310, 1): 1}
    assert answer.ext_fields == REGION
    world.allocate(1)
    world.turn()
    assert len(world.records()) == sent
    assert client.call(send_request(bytes(1000))).ext_fields["queueOffset"] == str(sent)


def test_held_sends_are_refused_early_while_the_store_works(tmp_path: Path) -> None:
    """The disk is slow: SYSTEM_BUSY with the original's words, and nothing to a oneway send."""
    world = HotPathWorld(tmp_path, file_size=4096, files=1)
    world.topic()
    client = world.client()
    world.counters[STORE_STATE] = StoreState.READY

    def store_works(time_ms: int) -> None:
        for _ in range(time_ms // 50):
            world.clock.advance(50)
            world.counters[BEAT + ProcessIndex.STORE] += 1
            world.append_queue.look()
            world.turn()

    store_works(6_000)
    sent = fill_file(world, client)
    client.send(send_request(bytes(1000)), send_request(bytes(1000), oneway=True))
    client.send(send_request(batch_body((0, b"in batch", bytes(1000))), batch="true"))
    world.turn()
    store_works(150)
    assert client.answers() == []
    store_works(50)
    words = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
    assert [(a.code, a.remark, a.ext_fields) for a in client.answers()] == [
        (2, words + "period in queue: 200ms, size of queue: 2", REGION),
        (2, words + "period in queue: 200ms, size of queue: 0", REGION),
    ]
    assert world.stats.answers[310, 2] == 2
    assert world.stats.failed == 0
    world.allocate(1)
    assert client.call(send_request(bytes(1000))).code == 0
    assert len(world.records()) == sent + 1


def test_a_batch_larger_than_a_file_is_refused(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, file_size=4096, files=3)
    world.topic()
    body = batch_body(*[(0, bytes(1000), b"")] * 4)
    refused(world, send_request(body, batch="true"), 13, "does not fit a file")


@pytest.mark.parametrize("warm", [False, True])
def test_a_record_larger_than_a_file_is_refused(tmp_path: Path, warm: bool) -> None:
    """maxMessageSize may be set above the size of a file; once this ended the loop."""
    world = HotPathWorld(tmp_path, file_size=4096, files=3)
    world.topic()
    client = world.client()
    if warm:
        client.call(send_request())
    refused(world, send_request(bytes(4096)), 13, "4096")
    assert client.call(send_request(bytes(3000))).code == 0


# -- a topic being deleted -----------------------------------------------------------------------


def test_sends_to_a_topic_being_deleted_are_refused_and_it_starts_at_0_again(
    world: HotPathWorld, client: Client
) -> None:
    client.call(send_request())
    client.send(send_request())
    end = world.send_processor.block_topic("T")
    assert end == world.counters[MAX_PHY_OFFSET] == world.log.position
    world.turn()
    client.answers()
    refused(world, send_request(), 17, "topic[T] is being deleted")
    assert client.call(send_request(topic="Other")).code == 0
    world.send_processor.unblock_topic("T", deleted=True)
    assert client.call(send_request()).ext_fields["queueOffset"] == "0"


def test_a_deletion_that_failed_keeps_the_offsets(world: HotPathWorld, client: Client) -> None:
    client.call(send_request())
    world.send_processor.block_topic("T")
    world.send_processor.unblock_topic("T", deleted=False)
    assert client.call(send_request()).ext_fields["queueOffset"] == "1"


def test_held_sends_of_a_topic_being_deleted_are_refused(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, file_size=4096, files=1)
    world.topic()
    client = world.client()
    sent = fill_file(world, client)
    client.send(send_request(bytes(1000)), send_request(bytes(1001), topic="Other"))
    world.send_processor.block_topic("T")
    world.turn()
    (answer,) = client.answers()
    assert (answer.code, "being deleted" in (answer.remark or "")) == (17, True)
    world.allocate(1)
    world.turn()
    assert [m.topic for m in world.records()[sent:]] == ["Other"]


# -- durability ----------------------------------------------------------------------------------


@pytest.mark.parametrize("serialize", [JSON, BINARY])
def test_sync_flush_answers_when_the_bytes_are_on_disk(
    tmp_path: Path, serialize: SerializeType
) -> None:
    world = HotPathWorld(tmp_path, waits_for_flush=True)
    world.topic()
    client = world.client()
    client.send(send_request(serialize=serialize))
    world.turn()
    assert client.answers() == []
    assert world.counters[SYNC_FLUSH_WANTED] == world.counters[MAX_PHY_OFFSET] > 0
    client.send(send_request(serialize=serialize))
    first_end = world.counters[MAX_PHY_OFFSET]
    world.turn()
    world.counters[FLUSHED_OFFSET] = first_end
    world.turn()
    (answer,) = client.answers()
    assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "0")
    assert answer.serialize_type is serialize
    world.clock.advance(5_000)
    world.turn()
    (late,) = client.answers()
    assert (late.code, late.ext_fields["queueOffset"], late.ext_fields["TRACE_ON"]) == (
        10,
        "1",
        "true",
    )


@pytest.mark.parametrize("key", ["", 'a key of 100 % \u00e9"\\'])
@pytest.mark.parametrize("serialize", [JSON, BINARY])
@pytest.mark.parametrize("fast", [False, True])
def test_an_answer_that_waited_differs_in_its_code_alone(
    tmp_path: Path, fast: bool, serialize: SerializeType, key: str
) -> None:
    world = HotPathWorld(tmp_path, fast=fast, waits_for_flush=True)
    world.topic()
    client = world.client()
    client.call(send_request(properties="WAIT\x01false"))
    properties = f"UNIQ_KEY\x01{key}" if key else ""
    requests = [send_request(serialize=serialize, properties=properties) for _ in range(3)]
    client.send(*requests)
    world.turn()
    assert client.answers() == []
    first_end = sum(map(len, world.raw_records()[:2]))
    world.counters[FLUSHED_OFFSET] = first_end
    world.turn()
    (safe,) = client.answers()
    world.clock.advance(5_000)
    world.turn()
    answers = [safe, *client.answers()]
    assert [answer.code for answer in answers] == [0, 10, 10]
    stored = world.records()[1:]
    for request, answer, message in zip(requests, answers, stored, strict=True):
        expected = {
            "queueId": "0",
            **REGION,
            "msgId": encode_message_id(world.log.store_host, message.phy_offset),
            "queueOffset": str(message.queue_offset),
        }
        if key:
            expected["transactionId"] = key
        assert answer.ext_fields == expected
        assert (answer.opaque, answer.flag, answer.remark) == (request.opaque, 1, None)
        assert answer.serialize_type is serialize
        assert answer.body == b""


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("", True),
        ("WAIT\x01true", True),
        ("WAIT\x01false", False),
        ("K\x01v\x02WAIT\x01false\x02", False),
        ("NOWAIT\x01false", True),
        ("WAIT\x01false\x02WAIT\x01true", True),
    ],
)
@pytest.mark.parametrize("batch", [None, "true"])
def test_wait_false_is_answered_at_once(
    tmp_path: Path, text: str, waits: bool, warm: bool, batch: str | None
) -> None:
    world = HotPathWorld(tmp_path, waits_for_flush=True)
    world.topic()
    client = world.client()
    if warm:
        client.send(send_request(properties="WAIT\x01false"))
        world.turn()
        client.answers()
    body = batch_body((0, b"one", b"WAIT\x01false")) if batch else b"one"
    client.send(send_request(body, properties=text, batch=batch))
    world.turn()
    assert len(client.answers()) == (0 if waits else 1)


def test_sync_master_codes(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, waits_for_replicas=True)
    world.topic()
    client = world.client()
    assert client.call(send_request()).code == 11
    world.counters[REPLICA_COUNT] = 1
    world.turn()
    client.send(send_request())
    world.turn()
    assert client.answers() == []
    world.counters[REPLICATED_OFFSET] = world.counters[MAX_PHY_OFFSET]
    world.turn()
    assert [a.code for a in client.answers()] == [0]
    client.send(send_request())
    world.turn()
    world.clock.advance(3_000)
    world.turn()
    (late,) = client.answers()
    assert (late.code, late.ext_fields["queueOffset"]) == (12, "2")
    assert len(world.records()) == 3


@pytest.mark.parametrize(
    ("waits", "sent", "body", "published"),
    [
        (True, 127, b"x", 1),
        (True, 128, b"x", 1),
        (True, 260, b"x", 3),
        (False, 260, b"x", 1),
        # Each record has 190 bytes and a few beside its body; published with 256 KiB of them.
        (True, 7, bytes(40_000), 1),
        (True, 8, bytes(40_000), 2),
        (False, 8, bytes(40_000), 1),
    ],
)
def test_many_sends_are_published_before_the_turn_ends(
    tmp_path: Path, waits: bool, sent: int, body: bytes, published: int
) -> None:
    """So that the replicas that they wait for get the first ones while the others are read."""
    world = HotPathWorld(tmp_path, waits_for_replicas=waits, file_size=1 << 20)
    world.topic()
    world.counters[REPLICA_COUNT] = 1
    client = world.client()
    client.send(send_request())
    world.turn()
    rings = world.rings
    for _ in range(sent):
        client.send(send_request(body))
    world.turn()
    assert world.rings - rings == published
    assert len(world.records()) == 1 + sent


def test_answers_to_a_connection_that_went_are_dropped(world: HotPathWorld) -> None:
    client = world.client()
    client.send(send_request())
    client.connection.close("gone")
    world.turn()
    assert client.answers() == []
    assert len(world.records()) == 1


def test_send_fields_helper_uses_every_short_name() -> None:
    assert set(send_fields(max_reconsume_times=1)) == set("abcdefghijklm")


@pytest.mark.parametrize("fast", [True, False])
def test_messages_of_an_order_are_counted_as_such(tmp_path: Path, fast: bool) -> None:
    world = HotPathWorld(tmp_path, fast=fast)
    world.topic()
    client = world.client()
    client.call(send_request())
    assert world.stats.types == {"normal"}
    client.call(send_request(properties="__SHARDINGKEY\x01k\x02"))
    assert world.stats.types == {"normal", "fifo"}
    assert world.stats.puts["T"][0] == 2
    assert world.stats.answers == {(310, 0): 2}


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("serialize", SerializeType)
def test_a_priority_chooses_the_queue_and_the_answer_says_which(
    tmp_path: Path, fast: bool, serialize: SerializeType
) -> None:
    world = HotPathWorld(tmp_path, fast=fast)
    world.topic()
    client = world.client()
    client.call(send_request(serialize=serialize))
    text = "_SYS_MSG_PRIORITY_\x017\x02TAGS\x01A"
    answer = client.call(send_request(serialize=serialize, properties=text))
    assert answer.ext_fields["queueId"] == "3", "the last of four"
    record = world.records()[-1]
    assert (record.queue_id, record.queue_offset) == (3, 0)
    assert properties_of(record.properties)["_SYS_MSG_PRIORITY_"] == "7"
    assert world.stats.types == {"normal", "priority"}


@pytest.mark.parametrize("fast", [True, False])
def test_an_ordered_message_has_no_priority(tmp_path: Path, fast: bool) -> None:
    world = HotPathWorld(tmp_path, fast=fast)
    world.topic()
    text = "_SYS_MSG_PRIORITY_\x013\x02__SHARDINGKEY\x01s"
    for _ in range(2):
        answer = world.client().call(send_request(queue_id=1, properties=text))
        assert answer.ext_fields["queueId"] == "1"
    for record in world.records():
        assert record.queue_id == 1
        assert "_SYS_MSG_PRIORITY_" not in properties_of(record.properties)
