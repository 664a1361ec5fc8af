"""broker.wiring.broker_tables: when the tables are saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.resync_request import ResyncAction, ResyncRequest, finish_request, write_request
from tests.broker.wiring.test_lost_tables import tables


class Scheduled(dict[str, tuple[int, int | None]]):
    """A ScheduledExecutor that runs nothing: by name, first delay and period in ms."""

    def schedule(
        self, name: str, _function: object, *, first_delay_ms: int, period_ms: int | None
    ) -> None:
        self[name] = first_delay_ms, period_ms


@pytest.mark.parametrize(
    ("name", "interval_ms"), [("persist", 5_000), ("persist-delay-offsets", 10_000)]
)
def test_a_process_that_starts_saves_as_soon_as_any_other(
    tmp_path: Path, name: str, interval_ms: int
) -> None:
    """docs/durability.md: what a kill costs of offsets is one interval, also soon after another."""
    scheduled = Scheduled()
    tables(tmp_path).schedule_on(scheduled)  # type: ignore[arg-type]
    assert scheduled[name] == (interval_ms, interval_ms)


@pytest.mark.parametrize("action", [ResyncAction.TRUNCATE, ResyncAction.START_OVER, None])
def test_after_a_cut_nothing_points_behind_what_stayed(
    tmp_path: Path, action: ResyncAction | None
) -> None:
    """The queue grows again with other messages: who had been at 120 would pass over twenty."""
    found = tables(tmp_path)
    for group, topic, offset in (("G", "T", 120), ("G", "Gone", 7), ("H", "T", 90)):
        found.offsets.commit_offset("test", group, topic, 0, offset)
    found.schedule_offsets.replace_all({2: 40, 3: 5})
    if action is not None:
        write_request(tmp_path, ResyncRequest(action=action, offset=1))
        finish_request(tmp_path)
    ends = {("T", 0): 100, ("SCHEDULE_TOPIC_XXXX", 1): 30, ("SCHEDULE_TOPIC_XXXX", 2): 9}
    found.limit_to_cut(tmp_path, lambda *queue: ends.get(queue, 0))
    is_cut = action is not None
    assert found.offsets.query_offset("G", "T", 0) == (100 if is_cut else 120)
    assert found.offsets.query_offset("G", "Gone", 0) == (0 if is_cut else 7)
    assert found.offsets.query_offset("H", "T", 0) == 90
    assert found.schedule_offsets.offsets() == {2: 30 if is_cut else 40, 3: 5}
    if is_cut:
        again = tables(tmp_path)
        again.offsets.load()
        again.schedule_offsets.load()
        assert again.offsets.query_offset("G", "T", 0) == 100, "saved: the queue grows again"
        assert again.schedule_offsets.offsets() == {2: 30, 3: 5}
