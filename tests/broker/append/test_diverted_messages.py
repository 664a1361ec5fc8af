"""Diverted messages: which ones are, and what their properties look like meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.append.diverted_messages import (
    delay_level,
    divert_delayed,
    divert_half,
    home_of,
    is_half,
)
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.message_properties import parse_properties


@pytest.mark.parametrize(
    ("text", "sys_flag", "level"),
    [
        ("", 0, 0),
        ("KEYS\x01DELAY", 0, 0),
        ("XDELAY\x013", 0, 0),
        ("DELAY\x01", 0, 0),
        ("DELAY\x010", 0, 0),
        ("DELAY\x01-4", 0, 0),
        ("DELAY\x013", 0, 3),
        ("KEYS\x01k\x02DELAY\x01+3\x02", 0, 3),
        ("DELAY\x0118", 0, 18),
        ("DELAY\x0119", 0, 18),
        ("DELAY\x01999999999", 0, 18),
        ("DELAY\x012\x02DELAY\x014", 0, 4),
        ("DELAY\x013", 8, 3),
        ("DELAY\x013", 9, 3),
        ("DELAY\x013", 4, 0),
        ("DELAY\x013", 12, 0),
    ],
)
def test_delay_levels(text: str, sys_flag: int, level: int) -> None:
    assert delay_level(text, sys_flag, 18) == level


@pytest.mark.parametrize("value", ["x", "1.5", " 3", "3s", "٣", "1_0", "9" * 10, "9" * 5000])
def test_a_level_that_is_no_number(value: str) -> None:
    with pytest.raises(RequestError) as refused:
        delay_level(f"DELAY\x01{value}", 0, 18)
    assert (refused.value.code, refused.value.remark) == (
        ResponseCode.MESSAGE_ILLEGAL,
        f"the message is illegal: its property DELAY is {value[:40]!r}, expected a level from 1 "
        "to 18 (messageDelayLevel)",
    )


@pytest.mark.parametrize(
    ("text", "half"),
    [
        ("", False),
        ("TRAN_MSG\x01true", True),
        ("K\x01v\x02TRAN_MSG\x01TRUE\x02", True),
        ("TRAN_MSG\x01false", False),
        ("TRAN_MSG\x01yes", False),
        ("XTRAN_MSG\x01true", False),
    ],
)
def test_halves(text: str, half: bool) -> None:
    assert is_half(text) is half


_names = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)
_properties = st.dictionaries(
    st.sampled_from(["KEYS", "DELAY", "REAL_TOPIC", "REAL_QID", "WAIT", "XREAL_QID"]) | _names,
    _names,
)


@given(_properties, st.integers(1, 18), st.integers(0, 999_999_999))
def test_a_delayed_message_knows_its_home(
    given_properties: dict[str, str], level: int, queue_id: int
) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in given_properties.items())
    there = divert_delayed("Topic", queue_id, 8, text, level)
    assert there[:3] == ("SCHEDULE_TOPIC_XXXX", level - 1, 8)
    assert home_of(there.properties.encode()) == ("Topic", queue_id)
    assert parse_properties(there.properties) == {
        **given_properties,
        "DELAY": str(level),
        "REAL_TOPIC": "Topic",
        "REAL_QID": str(queue_id),
    }


@given(_properties, st.integers(0, 999_999_999), st.sampled_from([0, 4, 8, 12, 5, 0x14]))
def test_a_half_loses_delay_and_transaction_bits(
    given_properties: dict[str, str], queue_id: int, sys_flag: int
) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in given_properties.items())
    there = divert_half("Topic", queue_id, sys_flag, text)
    assert there[:3] == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, sys_flag & ~12)
    expected = {**given_properties, "REAL_TOPIC": "Topic", "REAL_QID": str(queue_id)}
    expected.pop("DELAY", None)
    assert parse_properties(there.properties) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"REAL_TOPIC\x01T",
        b"REAL_QID\x011",
        b"REAL_TOPIC\x01\x02REAL_QID\x011",
        b"REAL_TOPIC\x01T\x02REAL_QID\x01x",
        b"REAL_TOPIC\x01T\x02REAL_QID\x01-1",
        b"REAL_TOPIC\x01T\x02REAL_QID\x011234567890",
    ],
)
def test_no_home(text: bytes) -> None:
    assert home_of(text) is None
