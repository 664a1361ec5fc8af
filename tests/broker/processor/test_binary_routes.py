"""Binary headers on the fast routes: the log and the answers are those of the general path."""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import FrameError
from remoting.frame import pack_head
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.request_code import RequestCode as Code
from tests.broker.hot_path_world import pull_request, send_request
from tests.broker.send.test_batch_send_route import FLUSH, ODD_NUMBERS, PLAIN, USUAL
from tests.broker.send.test_send_message_processor import as_v1
from tests.broker.twins import KeptTwins, Twin, Twins
from tests.remoting.golden_frames import GOLDEN, GoldenFrame

BINARY = SerializeType.ROCKETMQ
SENDS = (Code.SEND_MESSAGE_V2, Code.SEND_MESSAGE, Code.SEND_BATCH_MESSAGE)
KEY = "UNIQ_KEY\x01"


def binary_send(code: int, body: bytes = b"body", **fields: Any) -> RemotingCommand:
    request = send_request(body, code=code, serialize=BINARY, **fields)
    return as_v1(request) if code == Code.SEND_MESSAGE else request


def raw(
    code: int,
    entries: list[tuple[str | bytes, str | bytes]],
    body: bytes = b"",
    *,
    flag: int = 0,
    remark: bytes = b"",
    block_length: int | None = None,
) -> bytes:
    """A whole frame, of entries in any order, as often as wanted, right or wrong."""
    block = b""
    for name, value in entries:
        name, value = (one.encode() if isinstance(one, str) else one for one in (name, value))
        block += struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value
    header = struct.pack(">hbhii", code, 0, 401, 77, flag)
    header += struct.pack(">i", len(remark)) + remark
    header += struct.pack(">i", len(block) if block_length is None else block_length) + block
    return pack_head(BINARY, len(header), len(body)) + header + body


@pytest.fixture(scope="module")
def kept() -> Iterator[KeptTwins]:
    with contextlib.closing(KeptTwins()) as kept:
        yield kept


@pytest.fixture
def twins(kept: KeptTwins) -> Twins:
    return kept.find(USUAL)


# -- sends -----------------------------------------------------------------------------------------

_pairs = st.sampled_from(
    [
        *("KEYS\x01k", f"{KEY}ABCDEF", f"{KEY}\x0b 100 % é\u2028", "TAGS\x01é", "WAIT\x01false"),
        *("CLUSTER\x01other", "", "K\x01", "DELAY\x013", "TIMER_OUT_MS\x011", "TRAN_MSG\x01true"),
        *("POP_CK\x011", "1ST_POP_TIME\x01", "INNER_MULTI_QUEUE_OFFSET\x017", "REAL_QID\x019"),
    ]
)
_values: dict[str, st.SearchStrategy[Any]] = {
    "queue_id": st.sampled_from(["0", "1", "3", "00", "+1", "4", "x", ""]),
    "sys_flag": st.sampled_from(["0", "0", "2", "257", "4", "8", "-144", "2147483648", "+1", ""]),
    "born_timestamp": st.sampled_from(["0", "-1", "1795177732426", "9223372036854775808", "1.0"]),
    "flag": st.sampled_from(["0", "-2147483648", "007", " 1", *map(str, ODD_NUMBERS)]),
    "properties": st.one_of(st.none(), st.lists(_pairs, max_size=3).map("\x02".join)),
    "reconsume_times": st.sampled_from([None, "0", "3", "", "x"]),
    "unit_mode": st.sampled_from([None, "false", "true", "TRUE"]),
    "max_reconsume_times": st.sampled_from([None, "16", "null", *map(str, ODD_NUMBERS)]),
    "batch": st.sampled_from([None, "false", "true"]),
}


@given(
    code=st.sampled_from(SENDS),
    fields=st.fixed_dictionaries(_values),
    body=st.one_of(st.binary(max_size=20), st.just(PLAIN)),
    again=st.lists(st.sampled_from([("h", "5"), ("zz", "more"), ("b", "T"), ("", "x"), ("e", "")])),
    remark=st.sampled_from([b"", b"", b"", b"remark"]),
    data=st.data(),
)
def test_both_paths_do_the_same(
    kept: KeptTwins,
    code: int,
    fields: dict[str, Any],
    body: bytes,
    again: list[tuple[str | bytes, str | bytes]],
    remark: bytes,
    data: st.DataObject,
) -> None:
    request = binary_send(code, body, **fields)
    entries = data.draw(st.permutations([*request.ext_fields.items(), *again]))
    kept.find_as_left(USUAL).check(raw(code, list(entries), body, remark=remark))


@pytest.mark.parametrize("code", SENDS)
@pytest.mark.parametrize(
    "properties", ["KEYS\x01k", f"{KEY}ABC\x02WAIT\x01true", f"{KEY}\x0b 1 %é"]
)
def test_usual_sends_take_the_fast_path(twins: Twins, code: int, properties: str) -> None:
    is_batch = code == Code.SEND_BATCH_MESSAGE
    body, batch = (PLAIN, "true") if is_batch else (b"body", "false")
    assert twins.check(binary_send(code, body, properties=properties, batch=batch))
    if not is_batch:
        assert twins.check(binary_send(code, PLAIN, properties=properties, batch="true"))
    assert twins.taken == []


@pytest.mark.parametrize(
    ("flag", "properties"), [(0, "DELAY\x013"), (4, "TRAN_MSG\x01true\x02PGROUP\x01p")]
)
def test_delayed_and_half_messages(twins: Twins, flag: int, properties: str) -> None:
    for _ in range(2):
        assert twins.check(binary_send(310, properties=properties, sys_flag=flag))
    assert twins.taken == []


@pytest.mark.parametrize("odd", ["a longer header", "no values", "another topic", "oneway"])
def test_unusual_headers_do_the_same(twins: Twins, odd: str) -> None:
    fields = list(binary_send(310).ext_fields.items())
    frame = {
        "a longer header": raw(310, [*fields, *[(f"name{n}", "value") for n in range(100)]], b"b"),
        "no values": raw(310, [], b"b"),
        "another topic": raw(310, [*fields, ("b", "Unknown"), ("c", "None")], b"b"),
        "oneway": raw(310, [("b", "T"), *fields], b"b", flag=2),
    }[odd]
    twins.check(frame)


@pytest.mark.parametrize("code", SENDS[:1])
@pytest.mark.parametrize(
    "header",
    [
        {"entries": [("b", b"\xff\xfe")]},
        {"entries": [("b", "T")], "block_length": 7},
        {"entries": [("b", "T")], "block_length": 2**31 - 1},
        {"entries": [("x", "y")] * 4097},
    ],
)
def test_what_cannot_be_read_is_refused_by_both(
    twins: Twins, code: int, header: dict[str, Any]
) -> None:
    data = raw(code, **header)
    for twin in twins.pair:
        with pytest.raises(FrameError, match="ROCKETMQ header"):
            twin._server.on_data(twin.clients[0].connection, memoryview(data), len(data))


def test_sends_that_wait_for_the_disk(kept: KeptTwins) -> None:
    twins = kept.find(FLUSH)
    for code in SENDS[:2]:
        assert twins.check(binary_send(code, properties=f"{KEY}A B")) == b""
    assert twins.check(binary_send(310, properties="WAIT\x01false")).count(b"A B") == 0
    twins.each(Twin.flush)
    assert twins.check().count(b"A B") == 2
    assert twins.taken == []


@pytest.mark.parametrize(
    "path",
    sorted(
        path
        for name in ("310-SEND_MESSAGE_V2", "320-SEND_BATCH_MESSAGE")
        for path in (GOLDEN / "wire-rocketmq" / name).glob("*.req.bin")
    )[::5],
    ids=lambda path: f"{path.parent.name[:3]}-{path.name[:2]}",
)
def test_golden_sends_take_the_fast_path(twins: Twins, path: Path) -> None:
    frame = GoldenFrame(path, "request").frame
    (first,) = twins.feed(frame)
    twins.taken.clear()
    (second,) = twins.feed(frame)
    assert (first.code, second.code) == (0, 0)
    assert first.ext_fields.keys() == second.ext_fields.keys()
    assert twins.taken == []
    twins.compare()


# -- pulls -----------------------------------------------------------------------------------------

_topics = itertools.count()


def filled(twins: Twins, count: int = 5) -> str:
    """A new topic with messages."""
    topic = f"Filled{next(_topics)}"
    twins.each(lambda twin: twin.change(topic, read_queue_nums=4, write_queue_nums=4))
    send(twins, topic, count)
    twins.taken.clear()
    return topic


def send(twins: Twins, topic: str, count: int) -> bytes:
    return twins.check(
        *[
            send_request(b"%d" % n, topic=topic, properties=f"TAGS\x01T{n % 2}")
            for n in range(count)
        ]
    )


@pytest.mark.parametrize("code", [Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE])
@pytest.mark.parametrize(
    ("changes", "is_fast"),
    [
        ({}, True),
        ({"maxMsgNums": 2}, True),
        ({"queueOffset": 3, "subscription": "T1"}, True),
        ({"queueOffset": 99}, True),
        ({"topic": "Unknown"}, True),
        ({"consumerGroup": "no/group"}, True),
        ({"queueId": 9}, True),
        ({"subscription": "a b ||", "expressionType": "SQL92"}, True),
        ({"maxMsgNums": "+2"}, False),
        ({"queueOffset": "x"}, False),
        ({"queueOffset": 2**63}, False),
        ({"topic": None}, False),
        ({"topic": ""}, False),
    ],
)
def test_pulls_do_the_same(twins: Twins, code: int, changes: dict[str, Any], is_fast: bool) -> None:
    request = pull_request(serialize=BINARY, **{"topic": filled(twins), **changes})
    request.code = code
    for _ in range(2):
        (answer,) = twins.feed(encode_command(request))
        assert answer.serialize_type is BINARY
    assert twins.taken == ([] if is_fast else [code] * 2)
    twins.compare()


def test_the_bytes_of_a_pulls_answer(twins: Twins) -> None:
    topic = filled(twins)
    assert b"FOUND" in twins.check(pull_request(serialize=BINARY, topic=topic))
    assert twins.check(pull_request(serialize=BINARY, topic=topic, queueOffset=99))


def test_a_pull_that_waits(twins: Twins) -> None:
    topic = filled(twins, 2)
    request = pull_request(serialize=BINARY, topic=topic, sysFlag=6, queueOffset=2)
    assert twins.check(request) == b""
    assert send(twins, topic, 1).count(b"FOUND") == 1
    assert b"FOUND" in twins.check(pull_request(serialize=BINARY, topic=topic, queueOffset=1))
