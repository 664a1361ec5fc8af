"""Popped messages of kvStore as check points: records as Java writes them, handles that stay good,
and messages that come again from a broker of ours."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from adopt.command_line import DONE, main
from adopt.pop_records import PopRecord, check_points, read_pop_records, timer_properties
from adopt.rocks_codec import encode_pop_key
from adopt.rocks_database import write_database
from broker.pop.pop_check_point import PopCheckPoint
from remoting.request_code import RequestCode
from store.message_codec import decode_record
from tests.adopt.golden_stores import GOLDEN, NAMES, unpack_all
from tests.support.archives import unpack
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

HOUR_MS = 3_600_000


def test_a_record_is_what_java_writes(tmp_path: Path) -> None:
    """Each check point in the log of a 5.3.3 broker without kvStore."""
    unpack(GOLDEN / "timer-5.3.3" / "store-clean-stop.tar.xz", tmp_path)
    (log,) = tmp_path.rglob("commitlog/" + "0" * 20)
    raw, at, seen = log.read_bytes(), 0, 0
    while any(raw[at : at + 8]):
        message, size = decode_record(raw, at)
        at += size
        if message.topic == "rmq_sys_wheel_timer" and message.find_property("TAGS") == "ck":
            point = PopCheckPoint.from_json_bytes(message.body)
            assert point.to_json_bytes() == message.body
            if message.find_property("REAL_QID") == "0":
                topic = message.find_property("REAL_TOPIC") or ""
                assert timer_properties(point, topic) == message.properties
                seen += 1
    assert seen


def record(offset: int, **others: object) -> PopRecord:
    usual = {"group": "G", "topic": "T", "queue_id": 2, "pop_time": 1000, "invisible_time": 500}
    return PopRecord(**{**usual, "offset": offset, "attempts": 0, **others})  # type: ignore[arg-type]


def test_messages_of_one_pop_are_one_check_point() -> None:
    """Its first message's offset is in each handle."""
    (point,) = check_points([record(9), record(5), record(7), record(5)], "b")
    assert point.key == ("T", "G", 2, 5, 1000)
    assert (point.num, point.queue_offset_diff, point.re_put_times) == (3, [0, 2, 4], None)


def test_pops_that_differ_stay_apart() -> None:
    others = [
        {"group": "H"},
        {"topic": "U"},
        {"queue_id": 3},
        {"pop_time": 1001},
        {"invisible_time": 501},
        {"attempts": 3},
        {"suspends": True},
    ]
    found = check_points([record(5), *(record(5, **each) for each in others)], "b")
    assert len(found) == 8
    assert [p.revive_time for p in found] == sorted(p.revive_time for p in found)
    assert sorted(p.re_put_times or "" for p in found)[-1] == "3"


def test_a_check_point_holds_32_and_no_far_offsets() -> None:
    found = check_points([record(n) for n in (*range(70), 1 << 40)], "b")
    assert sorted(p.num for p in found) == [1, 6, 32, 32]
    assert sorted(o for p in found for o in (p.start_offset + d for d in p.queue_offset_diff)) == [
        *range(70),
        1 << 40,
    ]


GOOD = {
    "popTime": 1000,
    "groupId": "G",
    "topicId": "T",
    "queueId": 2,
    "retryFlag": 0,
    "invisibleTime": 500,
    "offset": 7,
    "attemptTimes": 1,
}


@pytest.mark.parametrize(
    "change",
    [
        {"popTime": "now"},
        {"popTime": 1 << 63},
        {"popTime": 999},
        {"groupId": None},
        {"topicId": "../T"},
        {"queueId": -1},
        {"queueId": True},
        {"offset": 1.5},
        {"invisibleTime": -500},
    ],
)
def test_damaged_records_are_named_and_left_out(tmp_path: Path, change: dict[str, object]) -> None:
    key = encode_pop_key(1500, "G", "T", 2, 7)
    texts = [json.dumps(GOOD | each).encode() for each in ({}, change)]
    entries = [(key, texts[0]), (key + b"2", texts[1]), (key + b"3", b"{"), (b"", b"[]")]
    write_database(tmp_path / "kvStore", {"popState": entries})
    found, damaged = read_pop_records(tmp_path / "kvStore")
    assert found == [PopRecord("G", "T", 2, 1000, 500, 7, 1)]
    assert len(damaged) == 3


def test_what_was_popped_comes_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody acknowledged the 24 messages within their hour."""
    unpack_all(tmp_path)
    root = tmp_path / "broker"
    root.mkdir()
    target = root / "store"
    assert main([str(tmp_path / "pop"), "--to", str(target), *NAMES]) == DONE, capsys.readouterr()
    assert time.time() * 1000 > 1795734646679 + HOUR_MS
    broker = OurBroker(
        root,
        brokerName="rb",
        brokerClusterName="RocksCluster",
        mappedFileSizeCommitLog=16 << 20,
        mappedFileSizeConsumeQueue=60_000,
        maxHashSlotNum=5_000,
        maxIndexNum=20_000,
    )
    with broker.start(), broker.client() as client:
        topic = "%RETRY%GRocks1_TRocksB"

        def count() -> int:
            return client.offset(RequestCode.GET_MAX_OFFSET, topic, 0)

        wait_until(lambda: count() >= 24, 60)
        assert count() == 24
