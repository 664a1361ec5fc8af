"""Attributes of topics: the answers of RocketMQ's own classes, and what is refused here."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from broker.topic.topic_attributes import (
    altered,
    check_message_type,
    has_priorities,
    is_compaction,
    parse_changes,
    unsupported,
)
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from tests.remoting.golden_frames import GOLDEN
from tests.support.every_row import every_row

Attributes = dict[str, str] | None


def _map_of(text: str) -> Attributes:
    """A map as Java prints it."""
    if text == "null":
        return None
    pairs = (pair.split("=", 1) for pair in text[1:-1].split(", ") if pair)
    return dict(pairs)  # type: ignore[arg-type]


def _answers_of_java() -> Iterator[tuple[Attributes, str, str]]:
    for line in (GOLDEN / "topic-attributes-5.3.3.txt").read_text().splitlines():
        if not line.startswith("#"):
            current, change, result = line.split(" | ")
            yield _map_of(current), change, _TYPES_OF_5_5.get(result, result)
    for line in (GOLDEN / "attributes-5.5.0.txt").read_text().splitlines():
        if line.startswith("topic"):
            _, current, change, result = line.split(" | ")
            yield _map_of(current), change, result


_TYPES_OF_5_5 = {
    "!value is not in set: [UNSPECIFIED, TRANSACTION, FIFO, MIXED, DELAY, NORMAL]": (
        "!value is not in set: "
        "[UNSPECIFIED, MIXED, TRANSACTION, PRIORITY, FIFO, DELAY, LITE, NORMAL]"
    )
}
"""What 5.3.3 says, and what 5.5.0 says instead."""
TWICE_WRONG = "+message.type=FIFO,-message.type"
"""Java names the fault that it meets first in the order of its hash map."""
HAS_NO_VALUE = re.compile(r"\+[a-z.]+==?(FIFO)?|=")


@every_row(("current", "change", "result"), list(_answers_of_java()))
def test_the_rules_of_java(current: Attributes, change: str, result: str) -> None:
    before = None if current is None else dict(current)
    if not result.startswith("!"):
        changes = parse_changes(change)
        if {"COMPACTION", "BatchCQ"} <= set(changes.values()):
            with pytest.raises(RequestError, match="is not supported by this broker"):
                altered(current, changes)
        else:
            assert altered(current, changes) == _map_of(result)
    else:
        with pytest.raises(RequestError) as refused:
            altered(current, parse_changes(change))
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
        if not HAS_NO_VALUE.fullmatch(change) and change != TWICE_WRONG:
            assert refused.value.remark == result[1:]
    assert current == before


@pytest.mark.parametrize("change", ["+message.type=", "+reserve.time==5"])
def test_a_value_that_is_missing(change: str) -> None:
    name = change.partition("=")[0]
    with pytest.raises(RequestError) as refused:
        parse_changes(change)
    assert refused.value.remark == (
        f"attribute {name} has no value; write {name}=value, or -name to remove it"
    )


def test_what_another_broker_does_and_this_one_does_not() -> None:
    assert unsupported(None) == []
    assert unsupported({"message.type": "FIFO", "cleanup.policy": "DELETE"}) == []
    theirs = {"cleanup.policy": "COMPACTION", "queue.type": "BatchCQ"}
    assert unsupported(theirs) == ["cleanup.policy=COMPACTION"]
    assert not is_compaction(theirs)


def test_a_change_of_what_is_named_twice() -> None:
    with pytest.raises(RequestError, match="alter duplication key"):
        altered({"message.type": "NORMAL"}, parse_changes(TWICE_WRONG))


def test_a_topic_of_mixed_messages_is_enabled_by_a_setting() -> None:
    mixed = parse_changes("+message.type=MIXED")
    check_message_type(mixed, enable_mixed=True)
    check_message_type({"+message.type": "FIFO", "-reserve.time": ""}, enable_mixed=False)
    check_message_type(None, enable_mixed=False)
    with pytest.raises(RequestError, match=r"^INVALID_PARAMETER: MIXED message type is not"):
        check_message_type(mixed, enable_mixed=False)


def test_what_the_broker_reads_of_a_topic() -> None:
    assert has_priorities({"message.type": "PRIORITY"})
    assert not has_priorities({"message.type": "LITE"})
    assert not has_priorities(None)
