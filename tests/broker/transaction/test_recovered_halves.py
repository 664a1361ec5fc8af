"""What waits when a broker begins to lead, from the records alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.transaction.recovered_halves import waiting_of
from store.message import Message
from tests.broker.hot_path_world import record

INTERVAL_MS = 60_000


def half(place: int, properties: str = "", *, stored_ms: int = 0, born_ms: int = 0) -> Message:
    text = f"PGROUP\x01P\x02UNIQ_KEY\x01K\x02REAL_TOPIC\x01T\x02REAL_QID\x010{properties}"
    made = record(b"body", text.encode())
    return Message(
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        queue_id=0,
        flag=0,
        queue_offset=place,
        phy_offset=place * 200,
        sys_flag=0,
        born_timestamp=born_ms,
        born_host=made.born_host,
        store_timestamp=stored_ms,
        store_host=made.born_host,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"body",
        properties=text.encode(),
    )


def found(
    *halves: Message, find_half: Callable[[int], Message | None] = lambda place: None
) -> list[tuple[int, int]]:
    """Places and since when."""
    waiting = waiting_of(halves, find_half, INTERVAL_MS)
    assert {(one.topic, one.group) for one in waiting} <= {("T", "P")}
    return [(one.half, one.stored_ms) for one in waiting]


def test_halves_wait_since_they_were_stored() -> None:
    """Two of one key are two messages; when they were born is their sender's word."""
    assert found(half(3, stored_ms=50, born_ms=7), half(4, stored_ms=60, born_ms=7)) == [
        (3, 50),
        (4, 60),
    ]


def test_a_half_and_its_copies_are_one() -> None:
    """After a crash the checks begin before what they had stored again."""
    copies = (
        half(9, "\x02TRANSACTION_CHECK_TIMES\x011", stored_ms=80_000),
        half(12, "\x02TRANSACTION_CHECK_TIMES\x012", stored_ms=140_000),
    )
    assert found(half(3, stored_ms=50), *copies) == [(12, 50)]


@pytest.mark.parametrize(
    ("times", "since_ms"),
    [("1", 640_000), ("3", 520_000), ("-9", 700_000), ("x", 700_000), ("9999999", 0)],
)
def test_a_copy_alone_has_waited_as_long_as_it_was_checked(times: str, since_ms: int) -> None:
    copy = half(9, f"\x02TRANSACTION_CHECK_TIMES\x01{times}", stored_ms=700_000, born_ms=5)
    assert found(copy) == [(9, since_ms)]


@pytest.mark.parametrize(
    ("place", "born_ms", "since_ms"), [("3", 0, 400), ("3", 1, 700), ("9", 0, 700), ("-4", 0, 700)]
)
def test_a_copy_that_names_its_first_record(place: str, born_ms: int, since_ms: int) -> None:
    """If it is one of it."""
    named = half(3, stored_ms=400, born_ms=born_ms)
    copy = half(9, f"\x02TRAN_PREPARED_QUEUE_OFFSET\x01{place}", stored_ms=700)
    assert found(copy, find_half=lambda at: named if at == 3 else None) == [(9, since_ms)]


def test_a_half_of_no_topic_and_group() -> None:
    (one,) = waiting_of([replace(half(1), properties=b"")], lambda place: None, INTERVAL_MS)
    assert one == (1, "unknown", "", 0)
