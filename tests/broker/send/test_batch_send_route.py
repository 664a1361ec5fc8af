"""BatchSendRoute beside the general path: the same bytes in the log, the same bytes as answers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from broker.send.batch_send_route import SEND_BATCH_PREFIX
from ha.control_slots import REPLICA_COUNT
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET
from tests.broker.hot_path_world import HotPathWorld, send_request
from tests.broker.send.test_send_message_processor import as_v1, batch_body
from tests.broker.twins import ROWS, KeptTwins, Row, Twin, Twins
from tests.remoting.golden_frames import GOLDEN, GoldenFrame

BATCH = Code.SEND_BATCH_MESSAGE
Item = tuple[int, bytes, bytes]
"""Flag, body, properties."""
PLAIN = batch_body((0, b"one", b"A\x01b"), (7, b"", b""), (0, b"three", b"KEYS\x01k\x02"))


def batch_request(body: bytes = PLAIN, code: int = BATCH, **fields: Any) -> RemotingCommand:
    fields = {"batch": "true", "properties": "WAIT\x01true"} | fields
    return with_names_of(code, send_request(body, code=code, **fields))


def with_names_of(code: int, request: RemotingCommand) -> RemotingCommand:
    return as_v1(request) if code == Code.SEND_MESSAGE else request


USUAL = Row({"maxMessageSize": str(1 << 22)})
FLUSH = Row({"flushDiskType": "SYNC_FLUSH"})


@pytest.fixture(scope="module")
def kept() -> Iterator[KeptTwins]:
    with contextlib.closing(KeptTwins()) as kept:
        yield kept


@pytest.fixture
def twins(kept: KeptTwins) -> Twins:
    return kept.find(USUAL)


# -- anything ------------------------------------------------------------------------------------

ODD_NUMBERS = ("1.0", "1e3", " 5", "5 ", "+5", "05", "٣", "-0", "", 2**31, -(2**31) - 1, 2**63)
"""Texts that Java, and the decoders, may or may not read as numbers."""


# -- what takes the fast path --------------------------------------------------------------------


@pytest.mark.parametrize("code", [BATCH, Code.SEND_MESSAGE_V2, Code.SEND_MESSAGE])
@pytest.mark.parametrize(
    ("body", "properties"),
    [
        (PLAIN, "WAIT\x01true"),
        (PLAIN, "UNIQ_KEY\x01ABC\x02WAIT\x01true"),
        (PLAIN, 'UNIQ_KEY\x01\x0b 100 % "\\ \x7f \u2028 é'),
        (PLAIN, ""),
        (batch_body((0, b"alone", b"")), "WAIT\x01true"),
        (batch_body(*[(0, b"body", b"UNIQ_KEY\x01ABC\x02WAIT\x01true")] * 16), "WAIT\x01true"),
        (batch_body(*[(0, b"body", b"TAGS\x01\xc3\xa9")] * 100), "WAIT\x01true"),
    ],
)
def test_plain_batches_take_the_fast_path(
    twins: Twins, code: int, body: bytes, properties: str
) -> None:
    assert twins.check(batch_request(body, code, properties=properties))
    assert twins.taken == []


def test_ids_of_messages_are_their_own(twins: Twins) -> None:
    """Not that of the batch, which all of them had up to RocketMQ 5.3 (#9416)."""
    start = twins.compared
    body = batch_body((0, b"a", b"UNIQ_KEY\x01A"), (0, b"b", b"UNIQ_KEY\x01B"), (0, b"c", b""))
    for properties in ("WAIT\x01true\x02UNIQ_KEY\x01X", "UNIQ_KEY\x01X\x02A\x01b", "UNIQ_KEY\x01X"):
        assert twins.check(batch_request(body, properties=properties))
    assert twins.taken == []
    found = [record.find_property("UNIQ_KEY") for record in twins.hot.stored(start)]
    assert found == ["A", "B", None] * 3


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        (batch_body((0, b"a", b"REAL_QID\x011")), [""]),
        (batch_body((0, b"a", b"REAL_QID\x011\x02")), [""]),
        (
            batch_body((0, b"a", b"K\x01v\x02POP_CK\x011 2\x02L\x01w"), (3, b"", b"")),
            ["K.v;L.w", ""],
        ),
        (
            batch_body(*[(0, b"a", b"TIMER_DEQUEUE_MS\x01%d\x02A\x01b\x02" % n) for n in range(9)]),
            ["A.b;"] * 9,
        ),
        (batch_body((0, b"REAL_TOPIC\x01", b"A\x01\xc3\xa9\x02__CRC32#\x01\xc3\xa9")), ["A.é"]),
        (batch_body((0, b"a", b"xREAL_QID\x011"), (0, b"", b"REAL_QID\x01")), ["xREAL_QID.1", ""]),
    ],
)
def test_reserved_properties_are_lost_on_the_fast_path(
    twins: Twins, body: bytes, stored: list[str]
) -> None:
    """As on the general path, which costs four times as much."""
    start = twins.compared
    assert twins.check(batch_request(body, properties=""))
    assert twins.taken == []
    for record, own in zip(twins.hot.stored(start), stored, strict=True):
        text = record.properties.decode().partition("CLUSTER")[0]
        assert text.replace("\x01", ".").replace("\x02", ";").rstrip(";") == own.rstrip(";")


@pytest.mark.parametrize(
    "last",
    [b"TIMER_DEL_UNIQKEY\x01T+a", b"DELAY\x013", b"INNER_NUM\x012", b"REAL_QID\x01\xff"],
)
def test_what_is_refused_beside_reserved_properties(twins: Twins, last: bytes) -> None:
    body = batch_body((0, b"a", b"REAL_QID\x011"), (0, b"b", last))
    assert json.loads(twins.check(batch_request(body))[8:])["code"] == 13
    assert twins.taken == [BATCH]


@pytest.mark.parametrize("number", [1, 2])
def test_golden_batches_take_the_fast_path(twins: Twins, number: int) -> None:
    path = GOLDEN / "wire-json" / "320-SEND_BATCH_MESSAGE" / f"{number:02d}.req.bin"
    frame = GoldenFrame(path, "request").frame
    assert b'"code":0,' in twins.check(frame), "the topic is new"
    twins.taken.clear()
    assert b'"code":0,' in twins.check(frame)
    assert twins.taken == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"batch": "false"}, 0),
        ({"queue_id": 4}, 1),
        ({"properties": "DELAY\x013"}, 13),
        ({"properties": "TRAN_MSG\x01true"}, 13),
        ({"sys_flag": 8}, 13),
        ({"body": b""}, 13),
        ({"body": PLAIN[:-1]}, 13),
        ({"body": PLAIN + b"\0"}, 13),
        ({"body": batch_body((0, b"x", b"DELAY\x013"))}, 13),
        ({"body": batch_body((0, b"x", b"A\x01\xff"))}, 13),
        ({"body": batch_body((0, b"x", b"A\x01".ljust(32760, b"v")))}, 13),
        ({"topic": "Unknown", "default_topic": "Nothing"}, 17),
    ],
)
def test_what_is_not_plain_takes_the_general_path(
    twins: Twins, changes: dict[str, Any], code: int
) -> None:
    request = batch_request(**changes)
    answer = twins.check(request)
    assert json.loads(answer[8:])["code"] == code
    assert twins.taken == [BATCH]


def test_a_oneway_batch(twins: Twins) -> None:
    request = batch_request()
    request.flag = 2
    before = twins.hot.count_answers(BATCH, oneway=True)
    assert twins.check(request) == b""
    assert [twin.count_answers(BATCH, oneway=True) - before for twin in twins.pair] == [1, 1]


def test_a_frame_that_says_two_codes_is_served_as_the_last_one(twins: Twins) -> None:
    frame = encode_command(batch_request())
    (header_size,) = {int.from_bytes(frame[4:8], "big")}
    header = frame[8 : 8 + header_size]
    assert header.startswith(SEND_BATCH_PREFIX)
    twice = header[:-1] + b',"code":310}'
    length = 4 + len(twice) + len(PLAIN)
    raw = length.to_bytes(4, "big") + len(twice).to_bytes(4, "big") + twice + PLAIN
    assert twins.check(raw)
    assert twins.taken == [310]


def test_a_deleted_or_changed_topic_is_looked_up_again(twins: Twins) -> None:
    twins.check(batch_request())
    changed = {"read_queue_nums": 4, "write_queue_nums": 4, "topic_filter_type": "MULTI_TAG"}
    twins.each(lambda twin: twin.change("T", **changed))
    for _ in range(2):
        start = twins.compared
        twins.check(batch_request())
        assert twins.taken == [BATCH]
        assert [message.sys_flag for message in twins.hot.stored(start)] == [2, 2, 2]
    twins.each(lambda twin: twin.block("T"))
    assert json.loads(twins.check(batch_request())[8:])["code"] == 17


def test_a_topic_with_batch_queues(twins: Twins) -> None:
    for properties in ("", "UNIQ_KEY\x01ABC") * 2:
        twins.check(batch_request(topic="Batches", properties=properties))
    assert twins.taken == [BATCH] * 4


def test_a_topic_whose_messages_need_keys(twins: Twins) -> None:
    for _ in range(2):
        keyed = batch_body((0, b"x", b"KEYS\x01k"))
        assert json.loads(twins.check(batch_request(keyed, topic="Compact"))[8:])["code"] == 0
    assert json.loads(twins.check(batch_request(topic="Compact"))[8:])["code"] == 13


def test_a_body_over_the_limit(kept: KeptTwins) -> None:
    twins = kept.find(Row({"maxMessageSize": str(len(PLAIN) - 1)}))
    assert json.loads(twins.check(batch_request())[8:])["code"] == 13


def test_a_store_that_refuses_writes(twins: Twins) -> None:
    twins.each(lambda twin: twin.refuse_writes(refuse=True))
    answer = twins.check(batch_request())
    twins.each(lambda twin: twin.refuse_writes(refuse=False))
    assert json.loads(answer[8:])["code"] == 14


@pytest.mark.parametrize("host", ["10.0.0.7", "fe80::1"])
@pytest.mark.parametrize("store_host", ["127.0.0.1", "fd00::2"])
def test_hosts(kept: KeptTwins, host: str, store_host: str) -> None:
    twins = kept.find(Row({"brokerIP1": store_host}))
    client = twins.connect(host)
    start = twins.compared
    for body in (PLAIN, batch_body(*[(0, b"body", b"")] * 5)):
        assert twins.check(batch_request(body), client=client)
    assert twins.taken == []
    hosts = {
        (message.born_host[:-4], message.store_host[:-4]) for message in twins.hot.stored(start)
    }
    assert hosts == {(ip_address(host).packed, ip_address(store_host).packed)}


# -- files, order, durability --------------------------------------------------------------------


@pytest.mark.parametrize(
    "items", [[(0, bytes(200), b"")] * 4, [(0, bytes(300), b""), (1, b"", b"")]]
)
def test_batches_cross_to_the_next_file(kept: KeptTwins, items: list[Item]) -> None:
    twins = kept.find(Row(file_size=4096))
    start = twins.hot.log.position
    for _ in range(12):
        twins.check(batch_request(batch_body(*items)), batch_request(batch_body(*items)))
    crossed = twins.hot.log.position // 4096 - start // 4096
    assert crossed > 2
    assert 0 < len(twins.taken) <= crossed


def test_batches_wait_behind_held_ones_and_are_taken_again() -> None:
    twins = Twins(replace(ROWS["small files"], file_size=8192))
    large = batch_request(batch_body(*[(0, bytes(700), b"")] * 4))
    while twins.check(large):
        pass
    start = twins.compared
    twins.taken.clear()
    assert twins.check(large, batch_request(), send_request()) == b""
    assert twins.taken == [BATCH, BATCH, 310]
    twins.each(Twin.room)
    assert twins.check().count(b'"code":0,') == 4
    assert len(twins.hot.stored(start)) == 4 + 4 + 3 + 1
    twins.check(batch_request())
    assert twins.taken == [BATCH, BATCH, 310]
    twins.close()


@pytest.mark.parametrize("properties", ["WAIT\x01true", "WAIT\x01false", "UNIQ_KEY\x01%d"])
def test_sync_flush(kept: KeptTwins, properties: str) -> None:
    twins = kept.find(FLUSH)
    requests = [batch_request(properties=properties) for _ in range(2)]
    first = twins.check(requests[0])
    assert bool(first) is (properties == "WAIT\x01false")
    end = twins.hot.page.counters[MAX_PHY_OFFSET]
    twins.check(requests[1])

    def flush_the_first(twin: Twin) -> None:
        twin.page.counters[FLUSHED_OFFSET] = end

    twins.each(flush_the_first)
    assert bool(twins.check()) is not bool(first)
    twins.each(lambda twin: twin.pass_time(5_000))
    late = twins.check()
    assert b'"code":10,' in late or first
    assert twins.taken == []


def test_many_batches_are_published_before_the_turn_ends(tmp_path: Path) -> None:
    """As single sends are, so that the replicas that they wait for get the first ones early."""
    world = HotPathWorld(tmp_path, waits_for_replicas=True, file_size=1 << 20)
    world.topic()
    world.counters[REPLICA_COUNT] = 1
    client = world.client()
    client.send(send_request())
    world.turn()
    rings = world.rings
    client.send(*[batch_request() for _ in range(128)])
    assert world.rings - rings == 1
    world.turn()
    assert len(world.records()) == 1 + 3 * 128


# -- what both kinds of sends answer ---------------------------------------------------------------


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE_V2, Code.SEND_MESSAGE, BATCH])
@pytest.mark.parametrize(
    ("key", "written"),
    [
        ("7F00000100002A139F1B5D3E00000001", "7F00000100002A139F1B5D3E00000001"),
        ("a-b_c%d", "a-b_c%d"),
        ('q"\\/', 'q\\"\\\\/'),
        ("\x0b\x1f\n", "\\u000B\\u001F\\n"),
        ("\x7f\x80\x9f\xa0", "\\u007F\\u0080\\u009F\xa0"),
        ("\u2027\u2028\u2029", "\u2027\\u2028\\u2029"),
        ("ü1", "ü1"),
        ("中\U0001f600", "中\U0001f600"),
        ("\uff11", "\uff11"),
    ],
)
def test_unique_keys_are_escaped_as_java_does(
    twins: Twins, code: int, key: str, written: str
) -> None:
    """The rows are those that fastjson 1.2.83 wrote (tests/remoting/test_java_text.py)."""
    is_batch = code == BATCH
    body, batch = (PLAIN, "true") if is_batch else (b"body", "false")
    request = send_request(body, code=code, properties=f"UNIQ_KEY\x01{key}", batch=batch)
    answer = twins.check(with_names_of(code, request))
    assert f'"transactionId":"{written}"}}'.encode() in answer
    assert twins.taken == []
