"""remoting.resource_names: RocketMQ's rule for names, and its words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import RequestError
from remoting.resource_names import (
    is_legal_group,
    is_legal_topic,
    validate_group,
    validate_topic,
)
from remoting.response_code import ResponseCode


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("", "blank"),
        ("  \t", "blank"),
        ("a b", "illegal characters"),
        ("tópico", "illegal characters"),
        ("a.b", "illegal characters"),
        ("a\n", "illegal characters"),
        ("../x", "illegal characters"),
        ("a b", r"The specified topic: a b, contains illegal characters, allowing only \^\[%\|a"),
        (
            "x" * 128,
            "^SYSTEM_ERROR: The specified topic: x{128}, is longer than topic max length: 127$",
        ),
        (
            "%DLQ%".ljust(256, "g"),
            "The specified topic is DLQ or Retry topic: %DLQ%g{251}, and it's longer than topic "
            "max length: 255$",
        ),
        ("%RETRY%".ljust(256, "g"), "is DLQ or Retry topic"),
        ("%retry%".ljust(128, "g"), "max length: 127"),
        ("x" * 5000, "topic: x{300}, is longer"),
        ("\x01" * 5000, r"topic: (\\x01){75}, contains"),
    ],
)
def test_bad_names(topic: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        validate_topic(topic)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    "topic",
    ["a", "%RETRY%g", "%DLQ%".ljust(255, "g"), "%RETRY%".ljust(255, "g"), "ns%t|x_1", "x" * 127],
)
def test_good_names(topic: str) -> None:
    validate_topic(topic)


def test_settings_may_limit_retry_topics_as_others() -> None:
    for topic in ("%RETRY%".ljust(128, "g"), "%DLQ%".ljust(128, "g")):
        assert is_legal_topic(topic)
        assert not is_legal_topic(topic, 127)
        with pytest.raises(RequestError, match="max length: 127"):
            validate_topic(topic, 127)


@given(st.text(max_size=140))
def test_what_passes_is_safe_as_a_directory(topic: str) -> None:
    try:
        validate_topic(topic)
    except RequestError:
        return
    limit = 255 if topic.startswith(("%RETRY%", "%DLQ%")) else 127
    assert re.fullmatch(rf"[%|a-zA-Z0-9_-]{{1,{limit}}}", topic)
    assert is_legal_topic(topic)


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("", "The specified group is blank.$"),
        (" ", "blank"),
        ("/", "The specified group: /, contains illegal characters, allowing only"),
        ("a/b", "group: a/b, contains illegal characters"),
        ("DELAY\x01-9\x02", r"group: DELAY\\x01-9\\x02, contains"),
        ("g\n", "illegal characters"),
        ("x" * 121, "The specified group: x{121}, is longer than group max length: 120$"),
    ],
)
def test_bad_groups(group: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        validate_group(group)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert not is_legal_group(group)


@pytest.mark.parametrize("group", ["a", "-1", "%RETRY%g", "ns%g|x_1", "x" * 120])
def test_good_groups(group: str) -> None:
    validate_group(group)
    assert is_legal_group(group)
    assert is_legal_topic(f"%RETRY%{group}", 127), "records of version 1 can name it"
