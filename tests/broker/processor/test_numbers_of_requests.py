"""Numbers and codes in headers: fast routes take what Java takes, and nothing else.

Java reads an int with Integer.parseInt, a long with Long.parseLong, and of a key that is there
twice the last one (fastjson).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pytest

from broker.metrics import metrics_table as table
from broker.metrics.remoting_metrics import RemotingMetrics
from broker.pop.ack_frame import decode_ack_frame
from broker.pop.pop_header import decode_pop_frame
from broker.topic.system_topics import SystemTopics
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, create_metric_slots
from remoting.command_custom_header import decode_header
from remoting.errors import HeaderError
from remoting.frame import pack_head
from remoting.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from remoting.remoting_codec import encode_command
from remoting.remoting_command import SerializeType
from remoting.request_code import RequestCode as Code
from tests.broker.hot_path_world import pull_request, send_request
from tests.broker.send.test_send_message_processor import as_v1
from tests.broker.twins import ROWS, KeptTwins, Twins

JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ
REFUSED: Final = (
    *("1.0", "1e3", "1E3", "1e0", "-1.0", " 1", "1 ", "1_0", "٣", "²", "0x1", "x", "NaN", "true"),
    *("null", "--1", "1" * 25, str(-(2**63) - 1), str(2**63)),
)
"""By every number."""
TAKEN: Final = (("0", 0), ("1", 1), ("+1", 1), ("01", 1), ("-0", 0))
SHORTS: Final = ("d", "f", "h", "j", "l")
LONGS: Final = ("g",)
"""Java's ints and longs of a send, and of a pull."""
PULL_SHORTS: Final = ("queueId", "maxMsgNums", "sysFlag", "requestSource")
PULL_LONGS: Final = ("queueOffset", "commitOffset", "suspendTimeoutMillis", "subVersion")


@pytest.fixture(scope="module")
def kept() -> Iterator[KeptTwins]:
    with contextlib.closing(KeptTwins()) as kept:
        yield kept


@pytest.fixture
def twins(kept: KeptTwins) -> Twins:
    return kept.find(ROWS["plain"])


def _send(twins: Twins, code: int, serialize: SerializeType, name: str, text: str) -> int:
    request = send_request(b"body", code=Code.SEND_MESSAGE_V2, serialize=serialize)
    request.ext_fields[name] = text
    if code == Code.SEND_MESSAGE:
        request = as_v1(request)
    (answer,) = twins.feed(encode_command(request))
    return answer.code


@pytest.mark.parametrize("serialize", [JSON, BINARY])
@pytest.mark.parametrize("code", [Code.SEND_MESSAGE_V2, Code.SEND_MESSAGE])
def test_sends(twins: Twins, code: int, serialize: SerializeType) -> None:
    for name in (*SHORTS, *LONGS):
        for text, _ in TAKEN:
            assert _send(twins, code, serialize, name, text) == 0, (name, text)
        outside = REFUSED if name in LONGS else (*REFUSED, str(2**31), str(-(2**31) - 1))
        for text in outside:
            assert _send(twins, code, serialize, name, text) == 1, (name, text)
    for text in (str(2**31), str(2**63 - 1), str(-(2**63))):
        assert _send(twins, code, serialize, "g", text) == 0, text
    twins.compare()


@pytest.mark.parametrize("serialize", [JSON, BINARY])
def test_pulls(twins: Twins, serialize: SerializeType) -> None:
    for name in (*PULL_SHORTS, *PULL_LONGS):
        outside = REFUSED if name in PULL_LONGS else (*REFUSED, str(2**31), str(-(2**31) - 1))
        for text in (*(text for text, _ in TAKEN), *outside):
            request = pull_request(serialize=serialize)
            request.ext_fields[name] = text
            (answer,) = twins.feed(encode_command(request))
            assert (answer.code == 1) == (text in outside), (name, text)
    twins.compare()


POP: Final = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "maxMsgNums": "1", "invisibleTime": "1",
    "pollTime": "1", "initMode": "0", "bornTime": "0",
}  # fmt: skip
ACK: Final = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "offset": "0", "extraInfo": "0 1 2 3",
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "decode", "header", "fields", "names"),
    [
        (
            200050,
            decode_pop_frame,
            PopMessageRequestHeader,
            POP,
            {
                **dict.fromkeys(("queueId", "maxMsgNums", "initMode"), 31),
                **dict.fromkeys(("invisibleTime", "pollTime", "bornTime"), 63),
            },
        ),
        (
            200051,
            decode_ack_frame,
            AckMessageRequestHeader,
            ACK,
            {"queueId": 31, "offset": 63},
        ),
    ],
)
def test_pops_and_acks(
    code: int,
    decode: Callable[[bytes], Any],
    header: type[Any],
    fields: dict[str, str],
    names: dict[str, int],
) -> None:
    """What the fast route does not read is left to the general one, which refuses it by name."""
    for name, bits in names.items():
        outside = [*REFUSED, str(2**bits), str(-(2**bits) - 1), ""]
        for text in outside:
            changed = {**fields, name: text}
            with pytest.raises(HeaderError, match=name):
                decode_header(header, changed)
            with pytest.raises(msgspec.DecodeError):
                decode(json.dumps({"code": code, "opaque": 1, "extFields": changed}).encode())
        for text, value in (*TAKEN[:2], (str(2**bits - 1), 2**bits - 1)):
            changed = {**fields, name: text}
            frame = decode(json.dumps({"code": code, "opaque": 1, "extFields": changed}).encode())
            assert getattr(frame.extFields, name) == value
    for other in (code + 1, 2**31, "x"):
        twice = json.dumps({"code": code, "opaque": 1, "extFields": fields})[:-1]
        with pytest.raises(msgspec.DecodeError):
            decode(f'{twice},"code":{json.dumps(other)}}}'.encode())


def _frame(header: str) -> bytes:
    data = header.encode()
    return pack_head(JSON, len(data), 0) + data


def test_of_two_codes_the_last_one_counts(twins: Twins) -> None:
    fields = {**pull_request().ext_fields, **send_request(b"").ext_fields}
    rest = f'"extFields":{json.dumps(fields)},"flag":0,"language":"JAVA","opaque":9,"version":401'
    for last in (11, 361, 310, 10, 320, 12_345, 0, -5):
        once = twins.check(_frame(f'{{"code":{last},{rest}}}'))
        for first in (11, 361, 310, 10, 320):
            before = twins.hot.count_answers(last) if last in (11, 361) else 0
            twice = twins.check(_frame(f'{{"code":{first},{rest},"code":{last}}}'))
            assert last in (310, 10, 320) or twice == once, (first, last)
            if last in (11, 361):
                assert twins.hot.count_answers(last) == before + 1


def test_codes_that_nobody_knows_share_one_key() -> None:
    slots = MetricSlots(create_metric_slots(), ProcessIndex.REMOTING)
    metrics = RemotingMetrics(slots, SystemTopics())
    for code in range(1_000_000, 1_002_000):
        metrics.sent(code, 0, 1.0)
        metrics.dropped(code, 0, 1.0, 1)
        metrics.answered(code, 3, 1.0)
    assert len(slots.series(table.RPC_LATENCY.name)) == 3
    assert len(metrics._rpc) == 3
