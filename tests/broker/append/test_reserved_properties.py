"""The border: what the broker reads back from records is its own word, whatever clients send."""

from __future__ import annotations

import base64
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.append.admitted_properties import admitted_properties
from broker.append.offset_moved_events import OffsetMovedEvents
from broker.pop.ack_msg import AckMsg
from broker.pop.revive_records import ReviveRecords
from broker.send.recall_message_processor import RecallMessageProcessor
from broker.settings.broker_config import BrokerConfig
from broker.timer.timer_put import TimerPut
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.request_code import RequestCode as Code
from store.batch_codec import iterate_batch
from store.control_slots import MAX_PHY_OFFSET
from store.message_properties import parse_properties
from store.message_store_config import MessageStoreConfig
from store.reserved_properties import (
    COUNTED,
    DROPPED,
    MARK,
    OTHER_MARK,
    REFUSED,
    RESERVED,
    any_holds_reserved,
    holds_reserved,
    without_properties,
)
from tests.broker.append.property_reads import property_reads
from tests.broker.broker_fakes import FakeConnection
from tests.broker.hot_path_world import TIMERS, HotPathWorld, properties_of, send_request
from tests.broker.send.test_consumer_send_msg_back_processor import SendBacks
from tests.broker.send.test_reply_message_processor import TEXT, Replies
from tests.broker.send.test_send_message_processor import as_v1, batch_body
from tests.broker.transaction_world import COMMIT, TransactionWorld

_SAYS: Final = "a sender says it"
A_CLIENTS_OWN: Final[dict[str, str]] = {
    "KEYS": f"{_SAYS}: the index and compaction go by it, for this message",
    "TAGS": f"{_SAYS}: filters go by it. Ops, check points and acks are known by it in topics that "
    "only the broker writes",
    "UNIQ_KEY": f"{_SAYS}: the index, answers, and which message of its topic a recall means",
    "WAIT": f"{_SAYS}: whether its own answer waits",
    "DELAY": f"{_SAYS}: checked and written anew by divert_delayed",
    "TIMER_DELIVER_MS": f"{_SAYS}: checked by TimerHook",
    "TIMER_DELAY_MS": f"{_SAYS}: checked by TimerHook",
    "TIMER_DELAY_SEC": f"{_SAYS}: checked by TimerHook",
    "TRAN_MSG": f"{_SAYS}: makes a half of its own message",
    "PGROUP": f"{_SAYS}: who is asked about its half, and must end it; a right of its own (F15)",
    "CHECK_IMMUNITY_TIME_IN_SECONDS": f"{_SAYS}: when the first check of its half comes",
    "INNER_MULTI_DISPATCH": f"{_SAYS}: checked by check_light_queues; the broker adds the offsets",
    "CLUSTER": "written anew; of several the last one counts, which is the broker's",
    "PUSH_REPLY_TIME": "written anew into what a requester is pushed",
    "REPLY_TO_CLIENT": f"{_SAYS}: whom its reply is pushed to",
    "RETRY_TOPIC": "a consumer that sends a message back itself says it: shown to consumers, and "
    "counted in a statistic where such a topic exists",
    "ORIGIN_MESSAGE_ID": "a consumer that sends a message back itself says it: shown to consumers",
    "__SHARDINGKEY": f"{_SAYS}: how the send is counted",
    "__LITE_TOPIC": f"{_SAYS}: checked by lite_sends; the broker makes the light queue's name",
    "_SYS_MSG_PRIORITY_": f"{_SAYS}: which queue of its topic it takes, and how it is counted",
    "ORIGIN_GROUP": "written anew when a popped message comes again; the last one counts",
}
"""What is read back, or written beside it, and may come from a client: why."""
READ_BY_ANY_NAME: Final = {
    "broker.admin.admin_audit_what": "lines of settings that an operator sends: no record's",
    "broker.append.admitted_properties": "the border itself",
    "broker.filter.message_filter": "a consumer's SQL names them, and gets what matches",
    "broker.filter.selector_verdicts": "a consumer's SQL names them, and gets what matches",
    "store.message": "Message.property_map, for tests and tools: no product code calls it",
}


# -- which there are -----------------------------------------------------------------------------


@pytest.mark.interpreted
def test_every_property_that_is_read_back_is_classified() -> None:
    names = set(property_reads().names)
    assert names - RESERVED - A_CLIENTS_OWN.keys() == set()
    assert A_CLIENTS_OWN.keys() - names == set(), "explained, but nobody reads it"
    assert RESERVED & A_CLIENTS_OWN.keys() == set()


@pytest.mark.interpreted
def test_reads_by_any_name_are_known() -> None:
    modules = {place.partition(":")[0] for place in property_reads().unknown}
    assert modules == READ_BY_ANY_NAME.keys()


@pytest.mark.interpreted
def test_the_walk_finds_what_is_there() -> None:
    """Else it would pass for lack of finding anything: a read by a constant of another module, of
    bytes, through another function, in a loop, and what is only written."""
    names = property_reads().names
    assert "broker.timer.asked_time" in names["TIMER_ROLL_TIMES"]
    assert "store.inner_batch" in names["INNER_BASE"]
    assert "broker.transaction.transactional_message_service" in names["TRAN_PREPARED_QUEUE_OFFSET"]
    assert "broker.append.diverted_messages" in names["TIMER_DELAY_SEC"]
    assert "broker.timer.delivered_properties" in names["TIMER_ENQUEUE_MS"]


def test_every_name_has_a_mark() -> None:
    assert all(MARK in name or OTHER_MARK in name for name in RESERVED)


# -- pure ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_name_is_found_wherever_it_stands(name: str) -> None:
    pair = f"{name}\x011"
    for text in (pair, f"{pair}\x02", f"A\x01b\x02{pair}", f"A\x01b\x02{name}\x01\x02C\x01d"):
        assert holds_reserved(text)
        raw = text.encode()
        assert any_holds_reserved(raw, [raw])
        assert any_holds_reserved(b"A\x01b" + raw + raw, [b"A\x01b", raw, raw])
    for text in ("", name, f"X{pair}", f"A\x01{pair}", f"A\x01{name}\x02B\x01c", f"{name}X\x011"):
        assert not holds_reserved(text)
        assert admitted_properties(text) == text
    two = (f"A\x01b\x02{name[:3]}".encode(), f"{name[3:]}\x011".encode())
    assert not any_holds_reserved(b"".join(two), two)


def test_the_others_stay_as_they_are() -> None:
    odd = "\x02\x02A\x01\x02nothing\x02A\x01b\x01c\x02\x01d\x02Ümlaut\x01é\x02"
    for name in DROPPED:
        assert admitted_properties(f"{name}\x017\x02{odd}{name}\x01x\x02{name}\x01") == odd[:-1]


def test_a_message_of_a_mib_is_admitted_at_once() -> None:
    """No property text costs more than its length; this took 10 s with one property at a time."""
    text = "POP_CK\x01\x02" * 130_000
    began_s = time.thread_time()
    assert admitted_properties(text) == ""
    assert time.thread_time() - began_s < 1.5, "0.1 s here"


# -- every entrance ------------------------------------------------------------------------------

ON: Final = replace(TIMERS, enabled=True)
VALUES: Final = ("7", "9" * 4301, "T+U")
KINDS: Final = {
    "plain": "KEYS\x01k\x02UNIQ_KEY\x01U\x02WAIT\x01true",
    "delayed": "KEYS\x01k\x02DELAY\x013\x02",
    "timer": "UNIQ_KEY\x01U\x02TIMER_DELAY_SEC\x015\x02",
    "half": "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U\x02WAIT\x01true\x02",
    "light": "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02TAGS\x01t",
}


def with_pair(text: str, pair: str, at: int) -> str:
    """`pair` as the first, the second or the last one of a text."""
    pairs = text.rstrip("\x02").split("\x02")
    pairs.insert(at if at >= 0 else len(pairs), pair)
    return "\x02".join(pairs) + ("\x02" if text.endswith("\x02") else "")


class Three:
    """A broker that is told what only brokers write, another one that has no fast paths, and one
    that is told the same without it: light queues, timers, everything on."""

    def __init__(self, root: Path, **topic: Any) -> None:
        self.worlds = [
            HotPathWorld(
                root / name,
                fast=name != "general",
                file_size=16 << 20,
                files=2,
                light_queues=100,
                timers=ON,
            )
            for name in ("forged", "general", "honest")
        ]
        self.clients = [world.client("10.1.2.3", 4711) for world in self.worlds]
        self.compared = 0
        for world in self.worlds:
            world.topic(**topic)
        # Then the fast path knows both topics.
        self.told(send_request())
        self.told(send_request(properties=KINDS["half"]))

    def told(self, *requests: RemotingCommand, honest: RemotingCommand | None = None) -> list[int]:
        """Requests that arrive together; `honest`: instead of the last one. All store the same;
        the codes of their answers."""
        codes: list[list[int]] = []
        for world, client in zip(self.worlds, self.clients, strict=True):
            is_honest = world is self.worlds[-1] and honest is not None
            client.send(*(*requests[:-1], honest) if is_honest and honest else requests)
            world.turn()
            codes.append([answer.code for answer in client.answers()])
        first = self.worlds[0]
        for world in self.worlds[1:]:
            assert world.log.position == first.log.position
            assert world.log_bytes(self.compared) == first.log_bytes(self.compared)
        self.compared = first.counters[MAX_PHY_OFFSET]
        assert codes[0] == codes[1] == codes[2]
        return codes[0]

    def refuses(self, request: RemotingCommand) -> list[int]:
        """Nothing is stored; the codes."""
        before = [world.log.position for world in self.worlds]
        codes = []
        for world, client in zip(self.worlds, self.clients, strict=True):
            client.send(request)
            world.turn()
            codes += [answer.code for answer in client.answers()]
        assert [world.log.position for world in self.worlds] == before
        return codes

    def close(self) -> None:
        for world in self.worlds:
            world.close()


@pytest.fixture(scope="module")
def three() -> Iterator[Three]:
    with tempfile.TemporaryDirectory() as root:
        three = Three(Path(root))
        yield three
        three.close()


def single(text: str) -> RemotingCommand:
    return send_request(properties=text)


def as_code_10(text: str) -> RemotingCommand:
    return as_v1(send_request(properties=text))


def binary(text: str) -> RemotingCommand:
    return send_request(properties=text, serialize=SerializeType.ROCKETMQ)


def binary_code_10(text: str) -> RemotingCommand:
    return as_v1(send_request(properties=text, serialize=SerializeType.ROCKETMQ))


def retried(text: str) -> RemotingCommand:
    return send_request(properties=text, topic="%RETRY%G")


def dead(text: str) -> RemotingCommand:
    return send_request(properties=text, topic="%RETRY%G", reconsume_times=16)


SINGLES: Final = (single, as_code_10, binary, binary_code_10, retried, dead)
_BODY: Final = batch_body(*((0, b"item", b"TAGS\x01t") for _ in range(5)))


def batch_around(text: str, code: int = Code.SEND_BATCH_MESSAGE) -> RemotingCommand:
    return send_request(_BODY, code=code, batch="true", properties=text)


def batch_310(text: str) -> RemotingCommand:
    return batch_around(text, Code.SEND_MESSAGE_V2)


def batch_binary(text: str) -> RemotingCommand:
    request = batch_around(text)
    request.serialize_type = SerializeType.ROCKETMQ
    return request


def batch_item(text: str, others: int = 5) -> RemotingCommand:
    items = [(0, b"item", b"TAGS\x01t")] * others
    items.insert(others // 2, (0, b"item", text.encode()))
    return send_request(batch_body(*items), code=320, batch="true", properties="KEYS\x01k")


def batch_of_alike(text: str) -> RemotingCommand:
    items = [(0, b"item", text.encode())] * 6
    return send_request(batch_body(*items), code=320, batch="true", properties="")


BATCHES: Final = (batch_around, batch_310, batch_binary, batch_item, batch_of_alike)


@pytest.mark.parametrize("entrance", SINGLES)
@pytest.mark.parametrize("kind", KINDS)
def test_single_sends(three: Three, kind: str, entrance: Callable[[str], RemotingCommand]) -> None:
    text = KINDS[kind]
    for name in DROPPED:
        if (kind, name) == ("timer", "TIMER_OUT_MS"):
            continue  # tests/broker/test_timer_messages.py
        for number, value in enumerate(VALUES):
            forged = with_pair(text, f"{name}\x01{value}", (0, 1, -1)[number])
            (code,) = three.told(entrance(forged), honest=entrance(text))
            assert code == 0
    for name in (*REFUSED, *COUNTED):
        for at in (0, 1, -1):
            codes = three.refuses(entrance(with_pair(text, f"{name}\x01T+U", at)))
            assert set(codes) == {13}


@pytest.mark.parametrize("entrance", BATCHES)
def test_batches(three: Three, entrance: Callable[[str], RemotingCommand]) -> None:
    text = "KEYS\x01k\x02A\x01b"
    for name in DROPPED:
        for number, value in enumerate(VALUES):
            forged = with_pair(text, f"{name}\x01{value}", (0, 1, -1)[number])
            (code,) = three.told(entrance(forged), honest=entrance(text))
            assert code == 0
    for name in (*REFUSED, *COUNTED):
        assert set(three.refuses(entrance(with_pair(text, f"{name}\x01T+U", 1)))) == {13}


def test_sends_that_arrive_together(three: Three) -> None:
    """In the middle of a run, which the fast path takes as one."""
    for name in DROPPED:
        forged = with_pair(KINDS["plain"], f"{name}\x017", 1)
        codes = three.told(single("A\x01b"), single(forged), honest=single(KINDS["plain"]))
        assert codes == [0, 0]


def test_a_batch_that_is_one_record(tmp_path: Path) -> None:
    """The records of batch queues hold the batch as its client sent it."""
    three = Three(tmp_path, attributes={"+queue.type": "BatchCQ"})
    around = "UNIQ_KEY\x01U\x02"

    def request(text: str, own: str = "") -> RemotingCommand:
        body = batch_body((3, b"one", b"A\x01b"), (4, b"two", own.encode()))
        return send_request(body, code=320, batch="true", properties=around + text)

    for name in DROPPED:
        pair = f"{name}\x017"
        assert three.told(request(pair), honest=request("")) == [0]
        assert three.told(request("", f"B\x01c\x02{pair}"), honest=request("", "B\x01c")) == [0]
    items = list(iterate_batch(three.worlds[0].records()[-1].body))
    assert [(item.flag, bytes(item.body)) for item in items] == [(3, b"one"), (4, b"two")]
    for name in REFUSED:
        pair = f"{name}\x01T+U"
        for refused in (request(pair), request("", pair)):
            assert set(three.refuses(refused)) == {13}


def test_a_half_and_its_commit(tmp_path: Path) -> None:
    stored = []
    for forged in (True, False):
        world = TransactionWorld(tmp_path / str(forged))
        more = "".join(f"\x02{name}\x017" for name in DROPPED) if forged else ""
        half = world.prepare(properties=more, client=world.hot.client("10.1.2.3", 4711))
        world.end(half, COMMIT)
        (message,) = world.messages("T")
        stored.append(message)
    assert stored[0] == stored[1]


@pytest.mark.parametrize("name", [*DROPPED, *REFUSED])
def test_replies(tmp_path: Path, name: str) -> None:
    seen = []
    for text in (f"{name}\x01T+U\x02{TEXT}", TEXT):
        replies = Replies(tmp_path / str(len(seen)), light_queues=100, timers=ON)
        answer = replies.call(properties=text)
        assert answer is not None
        pushed = [push.ext_fields["properties"] for push in replies.asker.pushed]
        seen.append((answer.code, replies.world.records(), pushed))
    if name in REFUSED:
        assert seen[0] == (13, [], [])
    else:
        assert seen[0] == seen[1]


def test_what_is_sent_back_from_an_old_log(tmp_path: Path) -> None:
    """The copy means nothing by what a client has said before the border was there."""
    backs = SendBacks(tmp_path)
    forged = "\x02".join(f"{name}\x01T+U" for name in (*DROPPED, *REFUSED))
    backs.message(properties=f"KEYS\x01k\x02{forged}".encode())
    answer = backs.call()
    assert answer is not None
    assert answer.code == 0
    (message,) = backs.world.records()
    properties = properties_of(message.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("%RETRY%G", "0")
    gone = {"POP_CK", "TIMER_DEL_UNIQKEY", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"}
    assert properties.keys() & gone == set()
    assert properties["KEYS"] == "k"


def test_a_send_back_is_counted_under_a_topic_that_exists(tmp_path: Path) -> None:
    backs = SendBacks(tmp_path)
    parts = replace(
        backs.processor._parts, find_topic=lambda topic: topic in ("T", "Known") or None
    )
    backs.processor._parts = parts
    for name in ("x" * 5000, "Known"):
        backs.message(properties=f"RETRY_TOPIC\x01{name}".encode())
        backs.call()
    assert backs.world.stats.send_backs == [("G", "T"), ("G", "Known")]


# -- recalls -------------------------------------------------------------------------------------


class Recalls:
    """A broker that recalls."""

    def __init__(self, root: Path, **store: bool) -> None:
        self.world = HotPathWorld(root, timers=ON, send={"recall_by_property": True})
        self.world.topic()
        self.processor = RecallMessageProcessor(
            BrokerConfig(broker_name="b", region_id="R", recall_message_enable=True),
            MessageStoreConfig(timer_max_delay_sec=ON.max_delay_ms // 1000, **store),
            self.world.topics.find,
            TimerPut(self.world.timers, self.world.log, self.world.append_queue),
            self.world.waiters,
            self.world.clock,
            self.world.append_queue.find_refusal,
        )

    def recall(self, key: str, *, group: str = "P", topic: str = "T") -> int:
        at_ms = self.world.clock.now_ms() + 5000
        handle = base64.urlsafe_b64encode(f"v1 {topic} b {at_ms} {key}".encode()).decode()
        fields = {"producerGroup": group, "topic": topic, "recallHandle": handle}
        request = RemotingCommand.request(Code.RECALL_MESSAGE, fields)
        connection = FakeConnection()
        answer = self.processor.process_request(connection, request)
        self.world.turn()
        return (answer or connection.sent.pop()).code


def test_a_recall_says_what_the_broker_makes_it_say(tmp_path: Path) -> None:
    recalls = Recalls(tmp_path)
    assert recalls.recall("U") == 0
    (message,) = recalls.world.records()
    assert parse_properties(message.properties.decode())["TIMER_DEL_UNIQKEY"] == "T+U"
    for bad in ("U\x02TIMER_DEL_UNIQKEY\x01Other+U", "U\x01", "\x02U"):
        assert recalls.recall(bad) == 604
        assert recalls.recall("U", group=bad) == 604
    recalls.world.topic("SCHEDULE_TOPIC_XXXX")
    assert recalls.recall("U", topic="SCHEDULE_TOPIC_XXXX") == 16
    assert len(recalls.world.records()) == 1


def test_a_recall_as_5_5_reads_it(tmp_path: Path) -> None:
    recalls = Recalls(tmp_path, append_topic_for_timer_delete_key=False)
    assert recalls.recall("U") == 0
    (message,) = recalls.world.records()
    assert parse_properties(message.properties.decode())["TIMER_DEL_UNIQKEY"] == "U"


def test_a_recall_that_a_client_sends_itself(tmp_path: Path) -> None:
    """With recallByPropertyEnable, and for the topic that it sends to."""
    world = Recalls(tmp_path).world
    client = world.client()
    base = "TIMER_DELAY_SEC\x015\x02UNIQ_KEY\x01V\x02TIMER_DEL_UNIQKEY\x01"
    assert client.call(send_request(properties=base + "T+U")).code == 0
    assert properties_of(world.records()[-1].properties)["TIMER_DEL_UNIQKEY"] == "T+U"
    for value in ("Other+U", "", "TX+U", "T"):
        answer = client.call(send_request(properties=base + value))
        assert (answer.code, answer.remark) == (
            13,
            "the message is illegal: its property TIMER_DEL_UNIQKEY names another topic than T, "
            "where it is sent",
        )
    batch = batch_body((0, b"x", b"TIMER_DEL_UNIQKEY\x01T+U"))
    assert client.call(send_request(batch, code=320, batch="true")).code == 13
    around = batch_around("TIMER_DEL_UNIQKEY\x01T+U")
    assert client.call(around).code == 13
    assert len(world.records()) == 1


# -- topics --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic",
    [
        *("rmq_sys_REVIVE_LOG_GoldenCluster", "rmq_sys_REVIVE_LOG_other", "rmq_sys_wheel_timer"),
        *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"),
        *("TRANS_CHECK_MAX_TIME_TOPIC", "OFFSET_MOVED_EVENT", "rmq_sys_SYNC_BROKER_MEMBER_b"),
    ],
)
def test_topics_that_only_the_broker_writes(tmp_path: Path, topic: str) -> None:
    """Forged check points stopped all revival."""
    replies = Replies(tmp_path)
    world, remark = replies.world, f"Sending message to topic[{topic}] is forbidden."
    if world.topics.find(topic) is None:
        world.topic(topic)
    client = world.client()
    for request in (single(""), as_code_10(""), binary(""), batch_around("")):
        name = "topic" if request.code == Code.SEND_MESSAGE else "b"
        request.ext_fields[name] = topic
        answer = client.call(request)
        assert (answer.code, answer.remark) == (16, remark)
    answer = replies.call(topic=topic)
    assert answer is not None
    assert (answer.code, answer.remark) == (16, remark)
    assert (world.records(), replies.asker.pushed) == ([], [])


def test_traces_may_be_sent(tmp_path: Path) -> None:
    """Java's clients with a cloud's access channel send them to this topic."""
    world = HotPathWorld(tmp_path)
    answer = world.client().call(send_request(topic="rmq_sys_TRACE_DATA_eu"))
    assert answer.code == 0


# -- texts of clients within properties that the broker writes -----------------------------------


class _Puts:
    """PutsTimers and the counts."""

    def __init__(self) -> None:
        self.properties: list[str] = []

    def put(self, topic: str, queue_id: int, body: bytes, properties: str, on_done: object) -> None:
        self.properties.append(properties)


def test_a_handle_adds_no_properties_to_an_ack() -> None:
    """Its names come from the client: topic, group and broker name are parts of the UNIQ_KEY."""
    puts = _Puts()
    records = ReviveRecords(puts, "rmq_sys_REVIVE_LOG_c", None)  # type: ignore[arg-type]
    ack = AckMsg(broker_name="b\x02TIMER_DEL_UNIQKEY\x01T+U", topic="T", consumer_group="G")
    records.put_ack(ack, 5, 0, lambda end: None, lambda why: None)
    (text,) = puts.properties
    assert parse_properties(text).keys() == {"TIMER_DELIVER_MS", "UNIQ_KEY", "TAGS"}


def test_a_group_adds_no_properties_to_an_event(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path)
    events = OffsetMovedEvents(world.log, world.append_queue, "b", is_slave=lambda: False)
    events.add("%LMQ%g\x02INNER_MULTI_DISPATCH\x01%LMQ%x", "T", 0, 9, 0)
    world.turn()
    (message,) = world.records()
    assert parse_properties(message.properties.decode()).keys() == {"KEYS", "DELAY", "TAGS"}


@given(
    st.lists(
        st.sampled_from(["REAL_QID", "REAL_", "POP_CK", "a", "\x01", "\x01", "\x02", "\x02", "\n"])
    ).map("".join)
)
def test_what_is_left_without_some_properties(text: str) -> None:
    """Pair by pair, as it is written: nothing else moves."""
    names = frozenset({"REAL_QID", "POP_CK"})
    pairs = text.split("\x02")
    kept = [p for p in pairs if "\x01" not in p or p.partition("\x01")[0] not in names]
    assert without_properties(text, names) == "\x02".join(kept)
