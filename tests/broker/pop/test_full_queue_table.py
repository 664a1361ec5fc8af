"""A popped message that comes back while the queue table is full and its retry topic has no queue:
it waits as a check point of its own, and holds up no other group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ipc import queue_table
from store.control_slots import PUT_OFF, PutOffBy
from tests.broker.pop.test_damaged_check_points import REVIVE, ReviveWorld

pytestmark = pytest.mark.interpreted
"""MAX_QUEUES of compiled modules cannot be changed."""


def test_it_gets_a_check_point_that_is_due_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look tried all of them again, and after 2,000 nothing of its revive queue came back."""
    world = ReviveWorld(tmp_path)
    world.store_point(c="Other")
    world.look()
    assert world.revived == []
    assert [message.topic for message in world.hot.records()][-1] == "%RETRY%Other_T"
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 3)
    for number in range(5):
        world.store_point(so=number)
    world.store_point(c="Other", so=7)
    world.look(6)
    assert world.revived == []
    assert [point.start_offset for point in world.records.put] == [0, 1, 2, 3, 4]
    assert {point.re_put_times for point in world.records.put} == {"1"}
    assert all(point.revive_time >= world.now_ms + 10_000 for point in world.records.put)
    last = world.hot.records()[-1]
    assert (last.topic, last.body) == ("%RETRY%Other_T", b"7")
    assert world.hot.counters[PUT_OFF + PutOffBy.POP_REVIVAL] == 5
    assert world.offsets.query_offset("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0) == 6
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 4)
    for point in world.records.put[:]:
        world.store_point(so=point.start_offset, rp=point.re_put_times)
    world.look(6)
    assert sorted(world.revived) == [b"0", b"1", b"2", b"3", b"4"]
    world.hot.close()


def test_it_is_never_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where those that cannot be read are (skipWhenCKRePutReachMaxTimes)."""
    world = ReviveWorld(tmp_path)
    world.service.use(replace(world.service._settings, skip_when_ck_re_put_reach_max_times=True))
    world.look()
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 2)
    world.store_point(rp="17")
    world.look()
    assert [point.re_put_times for point in world.records.put] == ["18"]
    world.hot.close()
