"""ConsumerSendMsgBackProcessor: what comes back, where it goes, and what Java stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.send.consumer_send_msg_back_processor import (
    ConsumerSendMsgBackProcessor,
    SendBackParts,
)
from broker.settings.broker_config import BrokerConfig
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from store.control_slots import MAX_PHY_OFFSET, RUNNING_FLAGS
from store.message import Message
from store.message_codec import encode_host, encode_message_id, encode_record
from store.message_store_config import BrokerRole, MessageStoreConfig
from tests.broker.broker_fakes import CONFIG, FakeConnection
from tests.broker.hot_path_world import HotPathWorld, properties_of
from tests.remoting.golden_frames import GOLDEN, GoldenFrame

BROKER = BrokerConfig(broker_ip1="10.0.0.1")
STORE = MessageStoreConfig()


class Reader:
    """StoreAccess: records by their offset."""

    def __init__(self) -> None:
        self.records: dict[int, bytes] = {}

    def record_at(self, phy_offset: int) -> bytes | None:
        return self.records.get(phy_offset)


class SendBacks:
    """A broker that takes messages back; the loop runs what is handed to it when told."""

    def __init__(
        self,
        root: Path,
        broker: BrokerConfig = BROKER,
        store: MessageStoreConfig = STORE,
        **kinds: Any,
    ) -> None:
        self.world = HotPathWorld(root, **kinds)
        self.reader = Reader()
        self.handed: list[Callable[[], None]] = []
        self.queued_ms = 0
        """How long a request waits for its pool."""
        self.connection = FakeConnection()
        self.processor = ConsumerSendMsgBackProcessor(
            SendBackParts(
                log=self.world.writable_log,
                reader=self.reader,  # type: ignore[arg-type]
                topics=self.world.topics,
                find_group=self.world.groups.find_or_create,
                stats=self.world.stats,
                on_loop=self.handed.append,
                new_topics=self.world.new_topics,
                is_compacted=lambda topic: topic == "Compacted",
            ),
            broker,
            store,
        )
        self.message()

    def message(self, phy_offset: int = 100, **fields: Any) -> None:
        """There is a message at `phy_offset`."""
        message = Message(
            topic="T",
            queue_id=3,
            phy_offset=phy_offset,
            flag=9,
            body=b"body",
            properties=b"TAGS\x01t\x02KEYS\x01k\x02CLUSTER\x01C",
            born_timestamp=77,
            born_host=encode_host("10.9.8.7", 55),
            store_host=encode_host("10.0.0.1", 10911),
            store_timestamp=88,
        )
        self.reader.records[phy_offset] = encode_record(replace(message, **fields))

    def call(self, **fields: Any) -> RemotingCommand | None:
        """A request and its answer: at once, or by the loop in its next turn."""
        header = {"offset": 100, "group": "G", "delayLevel": 0, **fields}
        given = {name: str(value) for name, value in header.items() if value is not None}
        return self.serve(RemotingCommand.request(Code.CONSUMER_SEND_MSG_BACK, given))

    def serve(self, request: RemotingCommand) -> RemotingCommand | None:
        request.came_ns = self.world.clock.monotonic_ns() - self.queued_ms * 1_000_000
        answer = self.processor.process_request(self.connection, request)
        if answer is not None:
            return answer
        for function in self.handed:
            function()
        self.handed.clear()
        self.world.turn()
        return self.connection.sent.pop() if self.connection.sent else None

    def refused(self, **fields: Any) -> tuple[int, str]:
        with pytest.raises(RequestError) as caught:
            self.call(**fields)
        assert self.world.records() == []
        return int(caught.value.code), caught.value.remark


@pytest.fixture
def backs(tmp_path: Path) -> SendBacks:
    return SendBacks(tmp_path)


def test_a_message_waits_for_its_retry(backs: SendBacks) -> None:
    answer = backs.call()
    assert answer is not None
    assert (answer.code, answer.remark) == (0, None)
    [copy] = backs.world.records()
    assert (copy.topic, copy.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert (copy.flag, copy.body, copy.born_timestamp) == (9, b"body", 77)
    assert copy.born_host == encode_host("10.9.8.7", 55)
    assert copy.store_host == encode_host("127.0.0.2", 20911)
    assert copy.reconsume_times == 1
    assert properties_of(copy.properties) == {
        "TAGS": "t",
        "KEYS": "k",
        "CLUSTER": "C",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": encode_message_id(encode_host("10.0.0.1", 10911), 100),
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "0",
    }
    topic = backs.world.topics.find("%RETRY%G")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    size = backs.world.counters[MAX_PHY_OFFSET]
    stats = backs.world.stats
    assert stats.puts == {"SCHEDULE_TOPIC_XXXX": (1, size)}
    assert stats.queue_puts == [("SCHEDULE_TOPIC_XXXX", 2, size)]
    assert (stats.send_backs, stats.answers) == ([("G", "T")], {(36, 0): 1})


@pytest.mark.parametrize(
    ("times", "asked", "level"), [(0, 0, 3), (4, 0, 7), (4, 2, 2), (14, 0, 17)]
)
def test_levels_grow_with_the_tries(backs: SendBacks, times: int, asked: int, level: int) -> None:
    backs.message(reconsume_times=times)
    backs.call(delayLevel=asked)
    [copy] = backs.world.records()
    assert (copy.queue_id, copy.reconsume_times) == (level - 1, times + 1)


def test_a_message_with_the_largest_number_of_tries_is_sent_back(backs: SendBacks) -> None:
    """It was stored as it came; one more does not fit, and ended the process."""
    largest = (1 << 31) - 1
    backs.message(reconsume_times=largest)
    backs.call(delayLevel=3, maxReconsumeTimes=largest)
    [copy] = backs.world.records()
    assert copy.reconsume_times == largest


@pytest.mark.parametrize(
    ("times", "fields", "version", "dead"),
    [
        (15, {}, 409, False),
        (16, {}, 409, True),
        (0, {"delayLevel": -1}, 409, True),
        (2, {"maxReconsumeTimes": 2}, 409, True),
        (2, {"maxReconsumeTimes": 2}, 120, False),
        (20, {"maxReconsumeTimes": 30}, 409, False),
    ],
)
def test_tries_that_are_used_up(
    backs: SendBacks, times: int, fields: dict[str, int], version: int, dead: bool
) -> None:
    backs.message(reconsume_times=times)
    header = {"offset": "100", "group": "G", "delayLevel": "0"}
    header |= {name: str(value) for name, value in fields.items()}
    request = RemotingCommand.request(Code.CONSUMER_SEND_MSG_BACK, header)
    request.version = version
    answer = backs.serve(request)
    assert answer is not None
    assert answer.code == 0
    [copy] = backs.world.records()
    if not dead:
        assert copy.topic == "SCHEDULE_TOPIC_XXXX"
        return
    assert (copy.topic, copy.queue_id, copy.reconsume_times) == ("%DLQ%G", 0, times + 1)
    properties = properties_of(copy.properties)
    assert (properties["DELAY"], properties["RETRY_TOPIC"]) == ("0", "T")
    assert "REAL_TOPIC" not in properties
    topic = backs.world.topics.find("%DLQ%G")
    assert topic is not None
    assert (topic.write_queue_nums, topic.perm) == (1, 6)


def test_where_a_message_came_from_first_is_kept(backs: SendBacks) -> None:
    text = b"RETRY_TOPIC\x01First\x02ORIGIN_MESSAGE_ID\x01ID\x02DELAY\x015\x02REAL_TOPIC\x01x"
    backs.message(topic="%RETRY%G", properties=text, reconsume_times=1)
    backs.call()
    [copy] = backs.world.records()
    properties = properties_of(copy.properties)
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("First", "ID")
    assert (properties["DELAY"], properties["REAL_TOPIC"]) == ("4", "%RETRY%G")
    assert backs.world.stats.send_backs == [("G", "First")]


def test_properties_that_are_no_utf_8_come_back_as_they_were(backs: SendBacks) -> None:
    backs.message(properties=b"K\x01\xff\xfe\x02TAGS\x01t")
    backs.call()
    [copy] = backs.world.records()
    assert copy.properties.startswith(b"K\x01\xff\xfe\x02TAGS\x01t\x02RETRY_TOPIC\x01T\x02")


def test_a_committed_message_is_delayed_too(backs: SendBacks) -> None:
    backs.message(sys_flag=8, prepared_transaction_offset=5)
    backs.call()
    [copy] = backs.world.records()
    assert (copy.topic, copy.sys_flag, copy.prepared_transaction_offset) == (
        "SCHEDULE_TOPIC_XXXX",
        8,
        0,
    )


def test_an_ipv6_message_keeps_its_born_host(backs: SendBacks) -> None:
    born = encode_host("2001:db8::1", 55)
    store = encode_host("2001:db8::2", 56)
    backs.message(sys_flag=0x30, born_host=born, store_host=store)
    backs.call()
    [copy] = backs.world.records()
    assert (copy.sys_flag, copy.born_host) == (0x10, born)
    assert properties_of(copy.properties)["ORIGIN_MESSAGE_ID"] == encode_message_id(store, 100)


def test_a_group_spreads_its_retries(backs: SendBacks) -> None:
    backs.world.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=3))
    for _ in range(40):
        backs.call(unitMode="true")
    queues = {properties_of(m.properties)["REAL_QID"] for m in backs.world.records()}
    assert queues == {"0", "1", "2"}
    topic = backs.world.topics.find("%RETRY%G")
    assert topic is not None
    assert (topic.write_queue_nums, topic.topic_sys_flag) == (3, 2)


def test_a_group_without_retries_forgets_the_message(backs: SendBacks) -> None:
    backs.world.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=0))
    answer = backs.call()
    assert answer is not None
    assert (answer.code, backs.world.records()) == (0, [])


def test_refusals(tmp_path: Path) -> None:
    backs = SendBacks(tmp_path / "a")
    assert backs.refused(offset=99) == (1, "look message by offset failed, 99")
    backs.world.topics.create("%RETRY%G", 1, 4)
    topic = backs.world.topics.find("%RETRY%G")
    assert topic is not None
    backs.world.topics.update(replace(topic, perm=4))
    assert backs.refused() == (16, "the topic[%RETRY%G] sending message is forbidden")
    slave = SendBacks(tmp_path / "b", store=MessageStoreConfig(broker_role=BrokerRole.SLAVE))
    assert slave.refused() == (1, "this broker is a slave: send the message back to its master")
    closed = SendBacks(tmp_path / "c", replace(BROKER, broker_permission=4))
    assert closed.refused() == (16, "the broker[10.0.0.1] sending message is forbidden")
    strict = SendBacks(tmp_path / "d", config=replace(CONFIG, auto_create_subscription_group=False))
    assert strict.refused() == (26, "subscription group not exist, G")


def test_a_retry_topic_that_cannot_be_made(
    backs: SendBacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backs.world.topics, "create", lambda *_: None)
    assert backs.refused() == (1, "topic[%RETRY%G] not exist")


def test_properties_that_grow_too_long(backs: SendBacks) -> None:
    backs.message(properties=b"K\x01" + b"v" * 32_700)
    code, words = backs.refused()
    assert code == 1
    assert words.startswith("PROPERTIES_SIZE_EXCEEDED: ")
    assert words.endswith(" bytes (limit 32767)")


def test_an_inner_batch_does_not_come_back_whole(backs: SendBacks) -> None:
    """Java's consumer then sends its one message of it to the retry topic itself."""
    backs.message(sys_flag=192, properties=b"INNER_NUM\x012\x02INNER_BASE\x010")
    code, words = backs.refused()
    assert (code, words.partition(":")[0]) == (1, "MESSAGE_ILLEGAL")
    assert "it is an inner batch" in words


def test_a_store_that_takes_nothing(backs: SendBacks) -> None:
    backs.world.counters[RUNNING_FLAGS] = 16
    answer = backs.call()
    assert answer is not None
    assert (answer.code, answer.remark) == (1, "SERVICE_NOT_AVAILABLE: the disk is full")
    assert backs.world.stats.answers == {(36, 1): 1}


def test_oneway_is_not_answered(backs: SendBacks) -> None:
    header = {"offset": "100", "group": "G", "delayLevel": "0"}
    request = RemotingCommand.request(Code.CONSUMER_SEND_MSG_BACK, header, oneway=True)
    assert backs.serve(request) is None
    assert len(backs.world.records()) == 1
    assert (backs.world.stats.answers, backs.world.stats.oneways) == ({}, {(36, 0): 1})


def test_it_takes_as_long_as_it_waits_for_its_pool_and_the_loop(backs: SendBacks) -> None:
    backs.queued_ms = 30
    backs.handed.append(lambda: backs.world.clock.advance(2_000))
    assert backs.call() is not None
    assert backs.world.stats.timed == [(36, 0, 2_030)]


def test_replicas_are_not_waited_for(tmp_path: Path) -> None:
    """As the original (WAIT=false): the consumer that gives a message back cannot do better."""
    backs = SendBacks(tmp_path, waits_for_replicas=True)
    answer = backs.call()
    assert answer is not None
    assert answer.code == 0


@pytest.mark.parametrize("missing", ["offset", "group", "delayLevel"])
def test_a_field_that_is_missing(backs: SendBacks, missing: str) -> None:
    with pytest.raises(RequestError) as caught:
        backs.call(**{missing: None})
    assert missing in caught.value.remark


# -- what Java stored ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3])
def test_stored_as_by_java(tmp_path: Path, number: int) -> None:
    records = json.loads((GOLDEN / "store-G" / "records-master.json").read_text())
    backs = SendBacks(tmp_path)
    for record in records:
        if "rawHex" in record and "topic" in record:
            backs.reader.records[record["phyOffset"]] = bytes.fromhex(record["rawHex"])
    directory = GOLDEN / "wire-json" / "036-CONSUMER_SEND_MSG_BACK"
    request = GoldenFrame(directory / f"{number:02d}.req.bin", "request").command()
    answer = backs.serve(request)
    java = GoldenFrame(directory / f"{number:02d}.resp.bin", "response").command()
    assert answer is not None
    assert (answer.code, answer.remark, answer.ext_fields) == (
        java.code,
        java.remark,
        java.ext_fields,
    )
    [copy] = backs.world.records()
    properties = properties_of(copy.properties)
    [expected] = [
        record
        for record in records
        if record.get("properties", {}).get("ORIGIN_MESSAGE_ID") == properties["ORIGIN_MESSAGE_ID"]
        and record["topic"] == copy.topic
    ]
    assert properties == expected["properties"]
    assert (copy.queue_id, copy.flag, copy.sys_flag, copy.born_timestamp) == (
        expected["queueId"],
        expected["flag"],
        expected["sysFlag"],
        expected["bornTimestamp"],
    )
    assert (copy.reconsume_times, copy.body.hex()) == (
        expected["reconsumeTimes"],
        expected["bodyHexStored"],
    )


@pytest.mark.parametrize(
    ("group", "code", "words"),
    [
        ("/", 26, "subscription group not exist, /"),
        ("a/b", 26, "subscription group not exist, a/b"),
        ("DELAY\x01-9\x02", 26, "subscription group not exist, "),
        ("g" * 256, 26, "subscription group not exist, "),
        ("g" * 121, 26, "subscription group not exist, "),
    ],
)
@pytest.mark.parametrize("level", [-1, 0, 3])
def test_a_group_without_a_possible_retry_topic_keeps_its_message(
    backs: SendBacks, group: str, code: int, words: str, level: int
) -> None:
    found, remark = backs.refused(group=group, delayLevel=level)
    assert found == code
    assert remark.startswith(words)
    assert backs.world.topics.find(f"%RETRY%{group}") is None


def test_a_message_of_a_compaction_topic(tmp_path: Path) -> None:
    """At first its offset is one of the compaction log: another message may be there. Once it is
    in the retry topic it is found."""
    world = SendBacks(tmp_path)
    with pytest.raises(RequestError, match="look message by offset failed, 100"):
        world.call(originTopic="Compacted")
    world.message(topic="%RETRY%G")
    answer = world.call(originTopic="Compacted")
    assert answer is not None
    assert answer.code == 0
