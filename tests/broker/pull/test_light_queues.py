"""One broker with light message queues: sends, pulls, held pulls, restarts, refusals."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.store import lmq_golden
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

pytestmark = pytest.mark.timeout(120)

_MOST = 6


def send(
    client: FrameClient, names: str, *, topic: str = "T", more: str = "", flag: int = 0
) -> tuple[int, str]:
    fields = {
        "a": "p",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": flag,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": (f"INNER_MULTI_DISPATCH\x01{names}\x02" if names else "") + more,
        "j": 0,
        "k": "false",
        "l": 16,
        "m": "false",
    }
    answer = client.call(310, fields, b"x")
    return answer.code, answer.remark or ""


def answered_as_java(client: FrameClient) -> None:
    """Offsets of light and ordinary groups, as Java 4.9.7 answers the same requests."""
    golden = lmq_golden.load("4.9.7")
    for code in (15, 14):
        for exchange in golden.answers(code):
            answer = client.call(code, exchange["fields"])
            assert (answer.code, answer.ext_fields) == (exchange["code"], exchange["ext"]), exchange


def refused(client: FrameClient) -> None:
    code, remark = send(client, "%LMQ%a/b")
    assert (code, remark) == (13, "INNER_MULTI_DISPATCH %LMQ%a/b can not contains / character")
    assert send(client, "%LMQ%a,other")[0] == 13
    assert send(client, "%LMQ%" + "x" * 123)[0] == 13
    code, remark = send(client, ",".join(f"%LMQ%n{number}" for number in range(_MOST)))
    assert code == 1
    assert remark.startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and ")


def ends(client: FrameClient, *names: str) -> list[int]:
    return [client.offset(30, f"%LMQ%{name}", 0) for name in names]


def test_a_broker_with_light_queues(tmp_path: Path) -> None:
    broker = OurBroker(
        tmp_path,
        enableLmq="true",
        enableMultiDispatch="true",
        maxLmqConsumeQueueNum=_MOST,
        flushConsumerOffsetInterval=200,
    )
    with broker.start():
        with broker.client() as client, broker.client() as waiting:
            held = waiting.post_pull("%LMQ%b", 0, 0, suspend_ms=20_000)
            assert send(client, "%LMQ%a,%LMQ%b", more="TAGS\x01A\x02WAIT\x01true\x02") == (0, "")
            woken = waiting.take_pull(held, 10)
            assert (woken.code, woken.next_offset) == (0, 1)
            assert send(client, "") == (0, "")
            # The topic is known now, and the short way must not be taken.
            assert send(client, "%LMQ%a", more="INNER_MULTI_QUEUE_OFFSET\x0199\x02") == (0, "")
            assert send(client, "%LMQ%a", more="DELAY\x011\x02") == (0, "")
            assert send(client, "", topic="%LMQ%a") == (0, "")
            wait_until(lambda: ends(client, "a", "b") == [4, 1], 15)
            pulled = client.pull("%LMQ%a", 0, 0)
            assert (pulled.code, pulled.next_offset, pulled.max_offset) == (0, 4, 4)
            assert [m.topic for m in pulled.messages] == ["T", "T", "%LMQ%a", "T"]
            offsets = [m.find_property("INNER_MULTI_QUEUE_OFFSET") for m in pulled.messages]
            assert offsets == ["0,0", "1", None, "3"]
            assert client.pull("%LMQ%none", 0, 0).code != 0
            batch = b"".join(_batch_item(name) for name in ("%LMQ%c", "%LMQ%c", "%LMQ%b"))
            answer = client.call(320, {**_batch_header(), "m": "true"}, batch)
            assert answer.code == 0, answer.remark
            wait_until(lambda: ends(client, "a", "b", "c") == [4, 2, 2])
            refused(client)
            answered_as_java(client)
        broker.crash()
    with broker.start():
        with broker.client() as client:
            assert ends(client, "a", "b", "c") == [4, 2, 2]
            assert send(client, "%LMQ%c,%LMQ%d") == (0, "")
            wait_until(lambda: ends(client, "c", "d") == [3, 1])
            assert client.pull("%LMQ%c", 0, 2).messages[0].topic == "T"
            answered_as_java(client)
            # 316 keeps what is in no table; 215 deletes one light queue.
            assert client.call(316, {}).code == 0
            assert ends(client, "c", "d") == [3, 1]
            assert client.call(215, {"topic": "%LMQ%c"}).code == 0
            assert ends(client, "c", "d") == [0, 1]
            assert send(client, "%LMQ%c") == (0, "")
            wait_until(lambda: ends(client, "c") == [1])
        assert "the log is searched" not in broker.log("store")
        assert broker.terminate() == 0
    assert broker.check().is_clean
    text = (broker.store_dir / "config" / "lmqConsumerOffset.json").read_text()
    assert text == lmq_golden.load("4.9.7").offsets_file
    stored = json.loads(
        (broker.store_dir / "config" / "topics.json").read_text().replace("\t", "")
    )["topicConfigTable"]
    assert not [name for name in stored if name.startswith("%LMQ%")]


def _batch_header() -> dict[str, object]:
    now_ms = int(time.time() * 1000)
    names = {"a": "p", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": now_ms, "h": 0}
    return {**names, "i": "", "j": 0, "k": "false", "l": 16}


def _batch_item(name: str) -> bytes:
    """totalSize, magic, CRC, flag, body, properties."""
    properties = f"INNER_MULTI_DISPATCH\x01{name}".encode()
    rest = bytes(12) + (1).to_bytes(4, "big") + b"x" + len(properties).to_bytes(2, "big")
    return (4 + len(rest) + len(properties)).to_bytes(4, "big") + rest + properties
