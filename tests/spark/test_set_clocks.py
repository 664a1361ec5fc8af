"""Days whose clocks were set while something else went on, too, each by its events: no verdict is
better than they were.

Each is judged by the plain program and by the product's own functions, which agree.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.day_events import MINUTE
from tests.spark.plain_verdicts import INSUFFICIENT
from tests.spark.test_met_and_was_not import W0, W1, connected, judged, life, story_of


@pytest.mark.parametrize("machine_version", [1, 2])
def test_hidden_down_time_of_a_slave_without_its_name(tmp_path: Path, machine_version: int) -> None:
    """The broker was down for 18 minutes of the hour, which its clock does not show, and its slave
    went by its ip until then: it did not "not exist yet"."""
    away = W0 - 180 * MINUTE, W0 + 18 * MINUTE
    first = connected(life(W0 - 200 * MINUTE, away[0]), was_remembered=False)
    second = connected(
        life(away[1], W1 + 20 * MINUTE, version=machine_version), was_remembered=False
    )
    story = story_of(first, second)
    story.named_after["b:1"] = 30 * MINUTE
    story.clock = [(away[0] + 1, -18 * MINUTE + 1)]
    row = judged(story, tmp_path)
    assert row["verdict"] == INSUFFICIENT
    assert row["unknown_s"] > 17 * 60
