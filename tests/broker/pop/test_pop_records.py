"""Bodies of check points and acks, handles and names: compared with what Java 5.3.3 wrote."""

import json

import pytest

from broker.pop.ack_msg import AckMsg, BatchAckMsg
from broker.pop.pop_check_point import PopCheckPoint, stored_point
from remoting.body.batch_ack import BatchAck
from remoting.headers.extra_info_util import (
    ExtraInfo,
    build_extra_info,
    msg_offset_item,
    offset_count_item,
    parse_extra_info,
    real_topic,
    retry_flag,
)
from remoting.key_builder import (
    is_pop_retry_topic_v2,
    parse_normal_topic,
    parse_retry_topic_v2,
    pop_retry_topic,
)

CK = (
    b'{"bm":0,"bn":"jbroker","c":"GSimple","d":[0,1,2],"it":15000,"n":3,"pt":1795391998666,"q":3,'
    b'"reviveTime":1795392013666,"ro":0,"so":0,"t":"TNormal"}'
)
ACK = b'{"ao":1,"bn":"jbroker","c":"GSimple","pt":1795391998666,"q":3,"so":0,"t":"TNormal"}'


def test_a_check_point_of_java_is_read_and_written_back_byte_for_byte():
    point = PopCheckPoint.from_json_bytes(CK)
    assert point.to_json_bytes() == CK
    assert point.unique_key == "TNormal@3@0@GSimple@1795391998666@jbroker@ck"
    assert point.deliver_ms == 1795392012666
    in_memory = point.check_point(5)
    assert (in_memory.offsets, in_memory.revive_time_ms) == ([0, 1, 2], point.revive_time)
    assert stored_point(in_memory, "jbroker").to_json_bytes() == CK


@pytest.mark.parametrize("suspends", [False, True])
def test_a_check_point_of_5_5_says_whether_it_suspends(suspends):
    raw = CK.replace(b'"so":0,', b'"so":0,"sp":%s,' % str(suspends).lower().encode())
    point = PopCheckPoint.from_json_bytes(raw)
    assert point.to_json_bytes() == raw
    in_memory = point.check_point(5)
    assert in_memory.suspends == suspends
    # Brokers before 5.5 see no difference where there is none.
    assert stored_point(in_memory, "jbroker").to_json_bytes() == (raw if suspends else CK)


def test_an_ack_of_java_is_read_and_written_back_and_finds_its_check_point():
    ack = AckMsg.from_json_bytes(ACK)
    assert ack.to_json_bytes() == ACK
    assert ack.unique_key == "TNormal@3@1@GSimple@1795391998666@jbroker@ack"
    assert ack.key == PopCheckPoint.from_json_bytes(CK).key


def test_a_batch_of_acks_has_a_list_and_the_offset_minus_one():
    batch = BatchAckMsg(
        topic="T", consumer_group="G", queue_id=1, start_offset=4, pop_time=9, broker_name="b",
        ack_offset_list=[4, 6],
    )  # fmt: skip
    tree = json.loads(batch.to_json_bytes())
    assert tree == {
        "ao": -1, "aol": [4, 6], "bn": "b", "c": "G", "pt": 9, "q": 1, "so": 4, "t": "T",
    }  # fmt: skip
    assert batch.unique_key == "T@1@-1@G@9@b@ack"


def test_an_old_check_point_without_differences_counts_from_its_start():
    old = PopCheckPoint(start_offset=10, num=3)
    assert old.check_point(0).offsets == [10, 11, 12]


@pytest.mark.parametrize(("text", "times"), [(None, 0), ("3", 3), ("x", 127)])
def test_how_often_it_was_put_again(text, times):
    assert PopCheckPoint(re_put_times=text).parse_re_put_times() == times


def test_a_handle_with_the_proxys_ninth_part_is_read():
    info = parse_extra_info("0 1795391998666 15000 0 1 jbroker 3 1 1212")
    assert info == ExtraInfo(0, 1795391998666, 15000, 0, "1", "jbroker")
    assert info.real_topic("T", "G") == "%RETRY%G_T"
    assert not info.is_order
    assert build_extra_info(info, 3, 1) == "0 1795391998666 15000 0 1 jbroker 3 1"
    assert parse_extra_info("0 1 2 999 0 b 0").is_order


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "getReviveQid fail, extraInfoStrs length 1"),
        ("1 2", "getReviveQid fail, extraInfoStrs length 2"),
        ("1 x 3 4", 'For input string: "x"'),
        (f"{1 << 63} 2 3 4", f'For input string: "{1 << 63}"'),
    ],
)
def test_a_bad_handle_is_refused_in_javas_words(text, words):
    with pytest.raises(ValueError, match=words):
        parse_extra_info(text)


def test_items_of_the_offset_lists():
    assert msg_offset_item("0", 3, [0, 1, 2]) == "0 3 0,1,2"
    assert offset_count_item("0", 3, 7, 2) == "0 qo3%7 2"


def test_names_of_retry_topics():
    v1, v2 = (pop_retry_topic("T", "G", enable_retry_v2) for enable_retry_v2 in (False, True))
    assert (v1, v2) == ("%RETRY%G_T", "%RETRY%G+T")
    assert [retry_flag(topic) for topic in ("T", v1, v2)] == ["0", "1", "2"]
    assert [parse_normal_topic(topic, "G") for topic in ("T", v1, v2)] == ["T", "T", "T"]
    assert parse_retry_topic_v2(v2) == ("T", "G")
    assert parse_retry_topic_v2(v1) is None
    assert not is_pop_retry_topic_v2(v1)
    assert real_topic("T", "G", "2") == v2
    with pytest.raises(ValueError, match="getRetry fail"):
        real_topic("T", "G", "3")


def test_a_batch_acks_bits_are_offsets():
    assert BatchAck(
        consumer_group="G", topic="T", retry="0", start_offset=100, bit_set="BQE="
    ).offsets() == [100, 102, 108]
