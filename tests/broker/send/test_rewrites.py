"""What becomes of a message that says which queue it belongs to (priority.md of RocketMQ 5.5)."""

from __future__ import annotations

import pytest

from broker.send.rewrites import Sent, rewritten

_PRIORITY = "_SYS_MSG_PRIORITY_\x01"


def sent(text: str, *, queue_id: int = 2, write_queues: int = 4, may_move: bool = True) -> Sent:
    return Sent(text, queue_id, "T", write_queues, may_move)


@pytest.mark.parametrize(
    ("priority", "write_queues", "queue_id"),
    [("0", 4, 0), ("3", 4, 3), ("4", 4, 3), ("2147483647", 4, 3), ("+1", 4, 1), ("9", 1, 0)],
)
def test_a_priority_is_a_queue(priority: str, write_queues: int, queue_id: int) -> None:
    before = sent(f"KEYS\x01k\x02{_PRIORITY}{priority}\x02", write_queues=write_queues)
    assert rewritten(before) == before._replace(queue_id=queue_id)


@pytest.mark.parametrize("priority", ["-1", "", "x", "1.5", "2147483648", "9" * 5000, "１"])
def test_what_is_no_priority_counts_for_nothing(priority: str) -> None:
    for other in ("", "__SHARDINGKEY\x01s\x02"):
        before = sent(f"{other}{_PRIORITY}{priority}")
        assert rewritten(before) == before


@pytest.mark.parametrize(
    "other",
    [
        "TRAN_MSG\x01true",
        "TRAN_MSG\x01TRUE",
        "DELAY\x010",
        "TIMER_DELIVER_MS\x015",
        "TIMER_DELAY_SEC\x01x",
        "TIMER_DELAY_MS\x015",
        "__SHARDINGKEY\x01s",
    ],
)
@pytest.mark.parametrize(
    ("place", "kept"),
    [
        ("{0}\x02{1}", "{0}"),
        ("{1}\x02{0}\x02", "{0}\x02"),
        ("{1}\x02{0}\x02{1}", "{0}"),
    ],
)
def test_a_message_of_another_type_loses_its_priority(other: str, place: str, kept: str) -> None:
    before = sent(place.format(other, f"{_PRIORITY}3"))
    assert rewritten(before) == before._replace(text=kept.format(other))


@pytest.mark.parametrize(
    "other",
    ["TRAN_MSG\x01false", "DELAY\x01", "KEYS\x01DELAY\x02TAGS\x01a", "X__SHARDINGKEY\x01s"],
)
def test_a_message_of_no_other_type_keeps_it(other: str) -> None:
    before = sent(f"{other}\x02{_PRIORITY}3")
    assert rewritten(before) == before._replace(queue_id=3)


def test_the_last_one_counts_as_in_a_map_of_java() -> None:
    assert rewritten(sent(f"{_PRIORITY}3\x02{_PRIORITY}1")).queue_id == 1


def test_a_name_within_a_value_is_none() -> None:
    before = sent(f"KEYS\x01a {_PRIORITY}3")
    assert rewritten(before) == before


def test_what_may_not_move_stays() -> None:
    before = sent(f"{_PRIORITY}3", may_move=False)
    assert rewritten(before) == before
