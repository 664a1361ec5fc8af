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
        ("x" * 128, "longer"),
    ],
)
def test_bad_names(topic: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        validate_topic(topic)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("topic", ["a", "%RETRY%g", "%DLQ%g-1", "ns%t|x_1", "x" * 127])
def test_good_names(topic: str) -> None:
    validate_topic(topic)


@given(st.text(max_size=140))
def test_what_passes_is_safe_as_a_directory(topic: str) -> None:
    try:
        validate_topic(topic)
    except RequestError:
        return
    assert re.fullmatch(r"[%|a-zA-Z0-9_-]{1,127}", topic)
    assert is_legal_topic(topic)


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("", "blank"),
        (" ", "blank"),
        ("/", "contains illegal characters, allowing only"),
        ("a/b", r"group\['a/b'\] contains illegal characters"),
        ("DELAY\x01-9\x02", r"'DELAY\\x01-9\\x02'"),
        ("g\n", "illegal characters"),
        ("x" * 256, "longer than group max length 255"),
    ],
)
def test_bad_groups(group: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        validate_group(group)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert not is_legal_group(group)


@pytest.mark.parametrize("group", ["a", "-1", "%RETRY%g", "ns%g|x_1", "x" * 255])
def test_good_groups(group: str) -> None:
    validate_group(group)
    assert is_legal_group(group)
