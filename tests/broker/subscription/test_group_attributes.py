"""Attributes of groups: the answers of RocketMQ 5.5.0's own classes, and what the broker reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.subscription import group_attributes
from broker.subscription.group_attributes import (
    altered_of_group,
    is_lite_exclusive,
    is_wildcard,
    lite_bind_topic,
    lite_client_max_events,
    lite_client_quota,
    priority_factor,
    resets_exclusive,
    resets_unsubscribed,
)
from broker.topic.topic_attributes import parse_changes
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from tests.remoting.golden_frames import GOLDEN

Attributes = dict[str, str] | None


def _answers_of_java() -> Iterator[tuple[Attributes, str, str]]:
    for line in (GOLDEN / "attributes-5.5.0.txt").read_text().splitlines():
        if line.startswith("group"):
            _, current, change, result = line.split(" | ")
            yield _map_of(current), change, result


def _map_of(text: str) -> Attributes:
    """A map as Java prints it."""
    if text == "null":
        return None
    return dict(pair.split("=", 1) for pair in text[1:-1].split(", ") if pair)  # type: ignore[misc]


@pytest.mark.parametrize(("current", "change", "result"), list(_answers_of_java()))
def test_the_rules_of_java(current: Attributes, change: str, result: str) -> None:
    if result.startswith("!"):
        with pytest.raises(RequestError) as refused:
            altered_of_group(current, parse_changes(change))
        answer = refused.value.code, refused.value.remark
        assert answer == (ResponseCode.SYSTEM_ERROR, result[1:])
    else:
        assert altered_of_group(current, parse_changes(change)) == _map_of(result)


@pytest.mark.parametrize(
    ("current", "change", "words"),
    [
        (None, {"+a": "b"}, "unsupported key: a"),
        (None, {"a": "b"}, "kv string format wrong."),
        (None, {"ab": "b"}, "only add attribute is supported while creating topic. key: b"),
        ({}, {"-a": ""}, "attempt to delete a nonexistent key: a"),
        ({}, {"ab": ""}, "wrong format key: b"),
        ({}, {"+message.type": "FIFO"}, "unsupported key: message.type"),
    ],
)
def test_changes_that_no_text_says(current: Attributes, change: dict[str, str], words: str) -> None:
    """A body (200) may hold any. The words of AttributeUtil."""
    with pytest.raises(RequestError) as refused:
        altered_of_group(current, change)
    assert (refused.value.code, refused.value.remark) == (ResponseCode.SYSTEM_ERROR, words)


def test_what_the_broker_reads_where_nothing_is_set() -> None:
    for none in (None, {}):
        assert priority_factor(none) == 100
        assert lite_bind_topic(none) is None
        assert not is_lite_exclusive(none)
        assert not resets_exclusive(none)
        assert not resets_unsubscribed(none)
        assert lite_client_quota(none) == 2000
        assert lite_client_max_events(none) is None
        assert not is_wildcard(none)


def test_what_the_broker_reads_where_all_is_set() -> None:
    everything = {
        group_attributes.PRIORITY_FACTOR: "70",
        group_attributes.LITE_BIND_TOPIC: "TLite",
        group_attributes.LITE_SUB_MODEL: "Exclusive",
        group_attributes.LITE_RESET_EXCLUSIVE: "TRUE",
        group_attributes.LITE_RESET_UNSUBSCRIBE: "true",
        group_attributes.LITE_CLIENT_QUOTA: "-1",
        group_attributes.LITE_CLIENT_MAX_EVENTS: "10",
        group_attributes.LITE_WILDCARD: "false",
    }
    assert priority_factor(everything) == 70
    assert lite_bind_topic(everything) == "TLite"
    assert is_lite_exclusive(everything)
    assert resets_exclusive(everything)
    assert resets_unsubscribed(everything)
    assert lite_client_quota(everything) == -1
    assert lite_client_max_events(everything) == 10
    assert is_wildcard(everything), "whatever its value"


@pytest.mark.parametrize("stored", ["", "ten", "101", "-1", "9" * 5000, "1.5", "７０"])
def test_a_stored_factor_that_nobody_could_have_set(stored: str) -> None:
    assert priority_factor({group_attributes.PRIORITY_FACTOR: stored}) == 100
