"""Random histories of pop, judged by what docs/pop.md promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.pop.pop_model import check_seed


@pytest.mark.parametrize("seed", range(20))
def test_a_history_keeps_the_promises(tmp_path: Path, seed: int) -> None:
    check_seed(tmp_path, seed)
