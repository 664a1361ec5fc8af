"""A checkpoint's offsets, and the sharing of a trigger's limit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.body.message_queue import MessageQueue
from spark.sources.errors import SourceError
from spark.sources.stream_offsets import decode_offsets, encode_offsets, share


def queue(number: int, broker: str = "b", topic: str = "T") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=number)


def test_the_text_is_stable() -> None:
    """A checkpoint of today is read by every later version: these bytes do not change."""
    offsets = {queue(10): 1, queue(2): 2**62, queue(0, "a"): 0, queue(0, "b", "S"): 7}
    text = '{"version": 1, "offsets": {"S": {"b": {"0": 7}}, "T": {"a": {"0": 0}, "b": {"2": '
    text += '4611686018427387904, "10": 1}}}}'
    assert json.dumps(encode_offsets(offsets)) == text
    assert decode_offsets(json.loads(text)) == offsets


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({"version": 2, "offsets": {}}, "version 2"),
        ({}, "version None"),
        ({"version": 1}, "cannot be read"),
        ({"version": 1, "offsets": {"T": {"b": [1]}}}, "cannot be read"),
        ({"version": 1, "offsets": {"T": {"b": {"x": 1}}}}, "cannot be read"),
        ({"version": 1, "offsets": {"T": {"b": {"0": None}}}}, "cannot be read"),
    ],
)
def test_other_offsets(kept: dict[str, Any], said: str) -> None:
    with pytest.raises(SourceError, match=said):
        decode_offsets(kept)


def shared(most: int, *sizes: int) -> list[int]:
    ends = {queue(number): 100 + size for number, size in enumerate(sizes)}
    found = share(dict.fromkeys(ends, 100), ends, most)
    return [found[each] - 100 for each in ends]


def test_shares() -> None:
    assert shared(10, 3, 4) == [3, 4]
    assert shared(10, 30, 10) == [8, 2]
    assert shared(1, 5, 6, 5) == [0, 1, 0]
    assert shared(10, 90, 1, 1) == [10, 0, 0]


def test_a_queue_that_became_shorter_goes_back() -> None:
    """What losses allowed: the end lies before the begin."""
    assert shared(1, -50, 5) == [-50, 1]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.integers(1, 500))
def test_no_more_than_the_limit_and_nobody_waits_for_ever(sizes: list[int], most: int) -> None:
    parts = shared(most, *sizes)
    assert sum(parts) == min(most, sum(sizes))
    assert all(0 <= part <= size for part, size in zip(parts, sizes, strict=True))
    left = sizes
    for _ in range(sum(sizes) // most + 1):
        left = [size - part for size, part in zip(left, shared(most, *left), strict=True)]
    assert sum(left) == 0
