"""broker.schedule.due_message: what another broker is sent of a delayed message."""

from __future__ import annotations

from broker.schedule.due_message import read_due_message
from store.message_codec import encode_record
from tests.support.memory_commit_log import message


def delayed(properties: str, topic: str = "SCHEDULE_TOPIC_XXXX", sys_flag: int = 0) -> bytes:
    return encode_record(
        message(
            topic,
            2,
            7,
            flag=4,
            sys_flag=sys_flag,
            born_timestamp=99,
            reconsume_times=3,
            properties=properties.encode(),
        )
    )


def test_the_delay_is_taken_out() -> None:
    properties = "KEYS\x01k\x02DELAY\x013\x02REAL_TOPIC\x01T\x02REAL_QID\x015\x02PGROUP\x01P\x02"
    found = read_due_message(delayed(properties + "WAIT\x01true", sys_flag=0x31))
    assert found is not None
    assert (found.topic, found.producer_group) == ("T", "P")
    assert (found.flag, found.sys_flag, found.born_timestamp) == (4, 1, 99)
    assert (found.reconsume_times, found.body) == (3, b"body")
    pairs = found.properties.split("\x02")
    assert sorted(filter(None, pairs)) == [
        "KEYS\x01k",
        "PGROUP\x01P",
        "REAL_QID\x015",
        "REAL_TOPIC\x01T",
        "WAIT\x01false",
    ]


def test_what_cannot_be_delivered() -> None:
    home = "REAL_QID\x010\x02REAL_TOPIC\x01"
    assert read_due_message(delayed("DELAY\x013")) is None
    assert read_due_message(delayed(home + "RMQ_SYS_TRANS_HALF_TOPIC")) is None
    assert read_due_message(delayed(home + "T", topic="T")) is None
    found = read_due_message(delayed(home + "T"))
    assert found is not None
    assert found.producer_group is None
