"""The net under the hot routes: whatever is asked, a broker with them and one without them store,
answer, count and keep the same (tests/broker/twins.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given

from tests.broker.twin_requests import (
    Turn,
    histories,
)
from tests.broker.twins import ROWS, Twins


class Net:
    """Twins of one row, new ones after each difference. Plays histories."""

    def __init__(self, row: str) -> None:
        self._row = row
        self._twins: Twins | None = None

    def close(self) -> None:
        if self._twins is not None:
            self._twins.close()
            self._twins = None

    def play(self, history: list[Turn]) -> None:
        if self._twins is None:
            self._twins = Twins(ROWS[self._row])
        try:
            self._twins.play(history)
        except BaseException:
            self.close()
            raise


@pytest.fixture(scope="module", params=ROWS)
def net(request: pytest.FixtureRequest) -> Iterator[Net]:
    net = Net(request.param)
    yield net
    net.close()


@given(history=histories)
def test_whatever_is_asked(net: Net, history: list[Turn]) -> None:
    net.play(history)
