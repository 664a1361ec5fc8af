"""Rows beside the halves and delays that Placement takes in the hot loop: no row is passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.send.marks import HALF
from broker.send.rules import SINGLE, Rule
from store.inner_batch import INNER_BATCH_FLAG
from store.message_codec import TRANSACTION_MASK, TRANSACTION_PREPARED
from tests.broker.hot_path_world import general_requests, send_request
from tests.broker.send.test_placement import DELAYED
from tests.broker.send.test_placement import HALF as HALF_TEXT
from tests.broker.send.test_rules import codes, refuse, world_with

_PREPARED = {"properties": HALF_TEXT, "sys_flag": TRANSACTION_PREPARED}


@pytest.mark.interpreted
@pytest.mark.parametrize("flags", [TRANSACTION_PREPARED, TRANSACTION_MASK, TRANSACTION_MASK | 1])
def test_a_row_that_looks_at_prepared_halves_sees_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: int
) -> None:
    """Also once the half topic is there, from which on the hot loop stores halves itself."""
    world = world_with(monkeypatch, tmp_path, Rule(SINGLE, refuse, flags=flags))
    assert codes(world, send_request(properties=HALF_TEXT)) == [0]
    forbidden = [send_request(**_PREPARED) for _ in range(2)]
    assert codes(world, forbidden[0], send_request(), forbidden[1]) == [16, 0, 16]


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "fields", [{"properties": HALF_TEXT}, _PREPARED, {"properties": DELAYED}], ids=str
)
def test_without_such_a_row_they_are_taken_in_the_hot_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fields: dict[str, Any]
) -> None:
    row = Rule(SINGLE, refuse, flags=INNER_BATCH_FLAG)
    world = world_with(monkeypatch, tmp_path, row)
    assert codes(world, send_request(properties=HALF_TEXT)) == [0]
    general = general_requests(world)
    assert (codes(world, send_request(**fields)), general) == ([0], [])


@pytest.mark.interpreted
def test_a_row_for_halves_sees_those_without_the_bit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = world_with(monkeypatch, tmp_path, Rule(SINGLE, refuse, marks=HALF))
    assert codes(world, send_request(properties=HALF_TEXT), send_request()) == [16, 0]
