"""broker.wiring.broker_tables: when the tables are saved."""

from __future__ import annotations

from pathlib import Path

import pytest

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
