"""Half messages that name the time of their delivery: it begins with the commit, and what could not
be taken then is refused at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker.hot_path_world import TIMERS, HotPathWorld, send_request
from tests.broker.send.test_placement import HALF


@pytest.mark.parametrize(
    ("delay", "enabled", "code"),
    [("5", True, 0), ("259201", True, 13), ("x", True, 13), ("5", False, 1)],
)
def test_a_half_whose_time_could_not_be_taken_is_refused(
    tmp_path: Path, delay: str, enabled: bool, code: int
) -> None:
    world = HotPathWorld(tmp_path, timers=replace(TIMERS, enabled=enabled))
    world.topic()
    answer = world.client().call(send_request(properties=f"{HALF}\x02TIMER_DELAY_SEC\x01{delay}"))
    assert answer.code == code
    assert [record.topic for record in world.records()] == ["RMQ_SYS_TRANS_HALF_TOPIC"] * (not code)
