"""YoungHalves: what is kept for commits, and for how long."""

from __future__ import annotations

from broker.transaction.transaction_records import committed
from broker.transaction.young_halves import YoungHalves
from store.record import Record
from tests.broker.hot_path_world import record


def add(halves: YoungHalves, queue_offset: int, body: bytes = b"body", phy_offset: int = 7) -> None:
    halves.add(queue_offset, phy_offset, "T", 3, record(body))


def test_a_half_is_found_as_it_was_stored() -> None:
    halves = YoungHalves()
    assert halves.find(5) is None
    buffer = bytearray(b"body")
    stored = record(b"", b"PGROUP\x01P")
    with memoryview(buffer) as view:
        halves.add(5, 1000, "T", 3, _with_body(stored, view))
    buffer[:] = b"next"
    half = halves.find(5)
    assert half is not None
    assert (half.phy_offset, half.topic) == (1000, "T")
    assert half.committed == committed(_with_body(stored, b"body"), 1000, 3, 0)
    halves.drop(5)
    assert (halves.find(5), len(halves)) == (None, 0)


def _with_body(stored: Record, body: bytes | memoryview) -> Record:
    return Record(
        **{name: getattr(stored, name) for name in stored.__struct_fields__ if name != "body"},
        body=body,
    )


def test_nothing_is_kept_for_nobody() -> None:
    halves = YoungHalves()
    add(halves, 1)
    assert len(halves) == 0
    halves.find(1)
    add(halves, 2)
    assert len(halves) == 1


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    halves = YoungHalves(limit=10_000)
    halves.find(0)
    for number in range(100):
        add(halves, number, b"x" * 400)
    assert [number for number in range(100) if halves.find(number)] == list(range(90, 100))
    for number in range(90, 100):
        halves.drop(number)
    for number in range(10):
        add(halves, number, b"x" * 400)
    assert len(halves) == 10, "what was dropped takes no room"
    add(halves, 1000, b"x" * 20_000)
    assert len(halves) == 0, "one that is larger than all is not kept"


def test_a_queue_that_begins_again() -> None:
    halves = YoungHalves()
    halves.find(0)
    add(halves, 1, phy_offset=10)
    add(halves, 1, phy_offset=99)
    half = halves.find(1)
    assert half is not None
    assert (half.phy_offset, len(halves)) == (99, 1)
