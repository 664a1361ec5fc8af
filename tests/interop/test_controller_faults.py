"""Three real brokers in the safe mode under faults drawn from a seed: nothing that was answered is
lost or doubled, nothing that was read is gone, and the three logs are equal in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.controller_faults import run

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(400)]


@pytest.mark.parametrize(
    ("seed", "faults", "only"),
    [(1, 6, ()), (2, 5, ("elect-kill", "elect", "stop-process", "stop-master")), (5, 6, ())],
)
def test_faults(tmp_path: Path, seed: int, faults: int, only: tuple[str, ...]) -> None:
    assert run(seed, faults, [*only], tmp_path) == []
