"""200053 with `suspend`, as proxies of 5.5 give back what they may not hand over.

What becomes of it: test_pop_revive_service.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.broker.pop.handle_world import HandleWorld, handle


@pytest.mark.parametrize(
    ("said", "suspends"),
    [
        ({"suspend": "true", "liteTopic": ""}, True),
        ({"suspend": "TRUE"}, True),
        ({"suspend": "false", "liteTopic": ""}, False),
        ({"suspend": ""}, False),
        ({}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_killed", [False, True])
def test_its_check_point_says_so(
    tmp_path: Path, said: dict[str, Any], suspends: bool, is_killed: bool
) -> None:
    """Also when the journal alone has it, and when it was renewed once more."""
    world = HandleWorld(tmp_path / "popjournal")
    world.pop()
    assert world.ask_change(**said).code == 0
    if is_killed:
        world.journal.close()
        world.start()
    world.flush(20_000)
    bodies = [json.loads(each.body) for each in world.timers.records]
    (renewed,) = [body for body in bodies if body.get("n") == 1]
    assert renewed.get("sp", False) == suspends
    assert [body for body in bodies if body.get("n") == 2 and "sp" in body] == []


def test_the_later_word_counts(tmp_path: Path) -> None:
    world = HandleWorld(tmp_path / "popjournal")
    world.pop(count=1)
    answer = world.ask_change(suspend="true")
    assert answer.ext_fields is not None
    renewed = handle(pop_time=answer.ext_fields["popTime"], invisible=30_000)
    assert world.ask_change(extraInfo=renewed).code == 0
    world.flush(20_000)
    (body,) = [json.loads(each.body) for each in world.timers.records]
    assert "sp" not in body
