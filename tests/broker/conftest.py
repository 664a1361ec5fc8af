"""What a broker test has opened is closed behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.hot_path_world import close_worlds, living_worlds


@pytest.fixture(autouse=True)
def worlds_end() -> Iterator[None]:
    """Worlds of a wider scope live on."""
    before = living_worlds()
    yield
    close_worlds(but=before)
