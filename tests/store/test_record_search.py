"""The search for whole records behind damage reads linearly much, whatever the bytes say."""

from __future__ import annotations

import pytest

from store import message_codec
from store.message_codec import body_crc, encode_record
from store.record_search import find_in_view
from store.search_budget import A_BYTE, FREE, SearchBudget
from tests.support.memory_commit_log import message
from tests.support.nested_heads import STEP, nested_heads

SIZE = 2 << 20

pytestmark = pytest.mark.interpreted


class Read:
    """Bytes of bodies that were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(message_codec, "body_crc", self._counted)

    def _counted(self, body: memoryview) -> int:
        self.count += len(body)
        return body_crc(body)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    return Read(monkeypatch)


def found(data: bytearray, position: int = 0, start: int = 0, **others: SearchBudget) -> int:
    return find_in_view(memoryview(data), position, len(data), len(data), start, **others)


@pytest.mark.parametrize("start", [0, 1 << 40])
def test_heads_within_heads_are_not_each_read_to_the_end(read: Read, start: int) -> None:
    assert found(nested_heads(SIZE, start), start=start) == -1
    assert FREE / 2 < read.count <= FREE + A_BYTE * SIZE


def test_the_searches_of_a_scan_share_what_they_may_read(read: Read) -> None:
    """Damage again and again, each followed by such bytes."""
    data, budget = nested_heads(SIZE), SearchBudget(0)
    for position in range(0, SIZE, SIZE // 4):
        assert found(data, position, budget=budget) == -1
    assert read.count <= FREE + A_BYTE * SIZE


def test_a_record_behind_them_is_found(read: Read) -> None:
    """Within what was allowed for the bytes in between."""
    data = nested_heads(SIZE)
    at = SIZE - 8 - STEP + 101
    data[at - 1] = 0
    record = encode_record(message("T", body=b"good", phy_offset=at))
    data[at : at + len(record)] = record
    assert found(data) == at


def test_what_is_no_record_by_its_head_costs_nothing(read: Read) -> None:
    data = nested_heads(SIZE)
    data[SIZE - 12] = 9  # No topic ends where a record would.
    read.count = 0
    assert found(data) == -1
    assert read.count == 0


def test_a_whole_record_costs_nothing() -> None:
    record = encode_record(message("T", body=bytes(1_000), phy_offset=0))
    budget = SearchBudget(0)
    for _ in range(3):
        assert found(bytearray(record), budget=budget) == 0
    assert budget.allows(0, FREE)
    assert not budget.allows(0, FREE + 1)
    budget.spend(1)
    assert not budget.allows(0, FREE)
    assert budget.allows(1, FREE + A_BYTE - 1)
    assert not budget.allows(1, FREE + A_BYTE)
