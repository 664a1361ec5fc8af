"""The demo's sentences are the program's: the README's picture shows what it can say."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark.config.objectives import Objective
from spark.figures.result_tables import TABLES
from spark.figures.verdicts import judged
from spark.reported_day import Day
from tests.spark.core_tables import core_tables
from tests.spark.demo_report import CLUSTER, DAY_MS, W0_MS, demo_objective, demo_report
from tests.spark.dump_lines_builder import Life, Line, processes, write_dump, write_file

DAY = Day(datetime.date(2026, 3, 14), W0_MS, W0_MS + DAY_MS)


def test_verdicts_and_reasons() -> None:
    demo = demo_report()
    groups: dict[str, Mapping[str, Any]] = {row["broker"]: row for row in demo.group_days}
    objective = Objective(**demo_objective())
    for row in demo.replica_days:
        # Without an objective for it the age of the metadata is not looked at.
        asked = dict.fromkeys(TABLES["replica_days"]) | {"excluded_s": 0.0} | row
        group = dict.fromkeys(TABLES["group_days"]) | groups[row["broker"]]
        assert judged(asked, objective, group) == (row["verdict"], list(row["reasons"]))


def at(clock: str) -> int:
    moment = datetime.datetime.fromisoformat(f"2026-03-14T{clock}+00:00")
    return int(moment.timestamp() * 1000)


def broker_a() -> list[Line]:
    """Restarted with another setting."""
    life = Life(cluster=CLUSTER, broker="broker-a", start_ms=W0_MS - 3_600_000, seq=7)
    lines = life.lines(at("18:02:20"), 3, config="90c1be22a4f7")
    after = life.restarted(at("18:02:45"))
    return lines + after.lines(at("18:02:50"), 2, config="17d3550be1aa")


def broker_b() -> list[Line]:
    life = Life(cluster=CLUSTER, broker="broker-b", start_ms=W0_MS - 3_600_000, seq=7)
    return life.lines(at("03:20:05"), 1) + life.lines(
        at("03:20:10"), 1, processes=processes(ha_restarts=1)
    )


def test_events_and_bad_lines(tmp_path: Path) -> None:
    demo = demo_report()
    (bad,) = demo.bad_lines
    write_dump(tmp_path, [*broker_a(), *broker_b()])
    write_file(tmp_path / bad["example_file"].removeprefix("/dumps/"), [bad["example_text"]])
    tables = core_tables([tmp_path], DAY)
    (row,) = tables["bad_lines"]
    assert (row["reason"], row["text"]) == (bad["reason"], bad["example_text"])
    assert row["file"] == bad["example_file"].replace("/dumps", str(tmp_path))
    found = sorted(tuple(row[name] for name in TABLES["events"]) for row in tables["events"])
    assert found == sorted(tuple(row[name] for name in TABLES["events"]) for row in demo.events)
