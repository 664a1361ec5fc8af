"""docs/performance.md from what was measured: made-up figures, every section, the pictures."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench import replication
from tests.bench.compare import description, parse
from tests.bench.compare_report import Start, report
from tests.bench.cores import LAYOUTS, LOADS, Bench, Group, Run, figures, lines
from tests.bench.cores import report as cores_report
from tests.bench.cores_groups import group_layouts
from tests.bench.cores_model import (
    JAVA_ON_TWO,
    ONE_GROUP,
    PINNED_GROUPS,
    TWO_GROUPS,
    Model,
    java_at_best,
    models,
)
from tests.bench.goals import Goal
from tests.bench.performance_page import PAGE, SECTIONS, main, marks, replaced
from tests.bench.replicated_sends import Lag
from tests.bench.rows import all_rows

MACHINE = {
    "cpus": 2,
    "usable_cpus": 2,
    "cpu_model": "Xeon",
    "kernel": "6.1",
    "memory": 24e9,
    "python": "3.11.7",
    "java": "openjdk 17",
    "file_system": "ext4",
    "compiled_modules": 50,
    "quiet": {"quiet": True, "text": "the machine was quiet: spinning got 100% of the cores"},
}


SPEEDS = {
    "compiled": 250.0,
    "sources": 200.0,
    "java": 100.0,
    "java-5.5": 125.0,
    "limit": 500.0,
    "limit-c": 1000.0,
}


def compared() -> dict[str, Any]:
    """A report of all rows: ours is twice as fast in each, compiled 2.5 times, half the limit."""
    rows = all_rows(0.25)
    starts = []
    for side, speed in SPEEDS.items():
        run = {"msg_per_s": speed, "cpu_us": 1000 / speed}
        times = {"p50_us": 9e3 / speed, "p99_us": 9e4 / speed, "p999_us": 9e5 / speed}
        boot = {"seconds": 100 / speed, "store_gb": 0.25}
        runs = {
            row.name: boot if row.setup == "boot" else run | times
            for row in rows
            if not side.startswith("limit") or row.name == "send-4x64-128"
        }
        starts.append(Start(side, "plain", 2.0, runs=runs))
    starts[2].failures["client-go-16"] = "the go client ended:\nat once"
    run = description(parse(["--quick"]), 1, 210.0)
    versions = {"java": "4.9.7", "java-5.5": "5.5.0"}
    return report(starts, rows, versions, MACHINE, run)


def cores() -> dict[str, Any]:
    """A report of one load in two layouts."""
    one = Run(100_000, 1, 2, 1.0, {"remoting": 8.0, "store": 3.0}, {"remoting": 0.9})
    two = Run(150_000, 1, 2, 1.0, {"remoting": 9.0, "store": 3.0}, {"remoting": 1.4})
    java = Run(60_000, 1, 2, 1.0, {"java": 20.0}, {"java": 1.5})
    runs = {ONE_GROUP: [one], TWO_GROUPS: [two, two], JAVA_ON_TWO: [java]}
    of_load = {name: {"send 4x64": rounds} for name, rounds in runs.items()}
    return cores_report(of_load, MACHINE, 2, "4.9.7")


def groups() -> dict[str, Any]:
    """A report of one load with one group and with eight, on one core."""
    one = Run(100_000, 1, 2, 1.0, {"remoting": 8.0, "store": 2.0}, {"remoting": 0.9})
    eight = Run(80_000, 1, 2, 1.0, {"remoting": 9.0, "store": 3.0}, {"remoting": 0.9})
    names = [layout.name for layout in group_layouts("1,8")]
    runs = {names[0]: {"pull 32": [one]}, names[1]: {"pull 32": [eight]}}
    return cores_report(runs, MACHINE, 1, "4.9.7")


def replicated() -> dict[str, Any]:
    """A report of the lag."""
    runs = replication.Runs(lags=[Lag("used", 1.0, 6.0, 9.0, 100.0)])
    found = replication.lines_of(runs)
    return replication.report(runs, found, "4.9.7", MACHINE, {"rounds": 1, "counts": 0.1})


def idle() -> dict[str, Any]:
    """A report of one figure."""
    goal = Goal("p99_ms", 3.0, of_ratio=False).verdict({"p99_ms": 2.5})
    row = {"name": "wake-ups: p99, ms", "ours": 2.5, "java": None, "ratio": None}
    verdict = {"figure": goal.figure, "limit": goal.limit, "reached": goal.reached}
    rows = [{**row, "goal": {**verdict, "of_ratio": False, "held": goal.held}}]
    return {"run": {"date": "2026-11-25"}, "machine": MACHINE, "rows": rows}


def write(directory: Path, reports: Mapping[str, Any]) -> None:
    for name, data in reports.items():
        (directory / f"{name}.json").write_text(json.dumps(data))


def empty_page(directory: Path) -> Path:
    page = directory / "performance.md"
    parts = ["# Performance", "Before."]
    for section in SECTIONS:
        begin, end = marks(section)
        parts += [begin, "old", end, f"After {section}."]
    page.write_text("\n\n".join(parts) + "\n")
    return page


def test_every_section_is_written_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="extra bench of setup.cfg, which bin/bench installs")
    page = empty_page(tmp_path)
    reports = {
        "compare": compared(),
        "cores": cores(),
        "cores-groups": groups(),
        "replication": replicated(),
        "idle": idle(),
    }
    write(tmp_path, reports)
    assert main(["--from", str(tmp_path), "--page", str(page)]) == 0
    text = page.read_text()
    assert "Before." in text
    assert "old" not in text
    assert all(f"After {section}." in text for section in SECTIONS)
    assert "The machine was quiet: spinning got 100% of the cores." in text
    assert "| send-4x64-128 | 250 | 200 | 100 | 125 | 2.50 / 2.00 | 2.00 / 1.60 |\n" in text
    assert "| send-4x64-128 | 36 / 45 / 90 / 72 |" in text
    assert "| 50% / 40% | 25% / 20% |\n" in text
    words = "| 2.50 | 3.50 | **missed** | 2.00 | 2.30 | **missed** |\n"
    assert f"| send-4x64-128 | messages/s | Java 4.9.7 {words}" in text
    held = "| 0.40 | 0.40 | held | 0.50 | 0.40 | **missed** |\n"
    assert f"| send-4x64-128 | CPU | Java 4.9.7 {held}" in text
    ratio = "| 0.40 | 0.70 | held | 0.50 | 0.70 | held |\n"
    assert f"| boot-killed | ratio | Java 4.9.7 {ratio}" in text
    assert "| pop-1 | messages/s | Java 5.5.0 | 2.00 | 2.00 | held | – | – | – |\n" in text
    assert "**client-go-16 failed**: java: the go client ended." in text
    assert "beside send-4x64-128: compiled has 100% of the speed and +0.0 µs, sources has" in text
    assert "| lag, 20,000 msg/s, memory used: p99, ms | 6.00 | – | – | 5: **missed** |" in text
    assert "| wake-ups: p99, ms | 2.50 | – | – | 3: held |" in text
    assert "| a second group on two cores | 1.50 |" in text
    assert "| two groups beside Java, two cores | 2.50 |" in text
    assert "| one core | pull 32 | 8 | 80,000 | 0.80 | 9.0 | 3.0 | 1.20 | 2 |" in text
    assert "| send 4x64, Java 4.9.7 | 20.0 | – | – | ≤ 0.40 |" in text
    pictures = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert pictures == ["performance-cores.svg", "performance-rows.svg"]
    drawn = [path.read_bytes() for path in sorted((tmp_path / "pictures").iterdir())]
    assert main(["--from", str(tmp_path), "--page", str(page)]) == 0
    assert page.read_text() == text
    assert [path.read_bytes() for path in sorted((tmp_path / "pictures").iterdir())] == drawn


def test_a_section_without_a_report_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="extra bench of setup.cfg, which bin/bench installs")
    page = empty_page(tmp_path)
    before = page.read_text()
    assert main(["--from", str(tmp_path), "--page", str(page)]) == 0
    assert page.read_text() == before
    assert "compare: left as it is, there is no " in capsys.readouterr().out


def test_a_report_of_another_bench_is_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="extra bench of setup.cfg, which bin/bench installs")
    page = empty_page(tmp_path)
    write(tmp_path, {"compare": {"rows": []}})
    with pytest.raises(SystemExit, match=r"compare\.json: cannot be shown, run bin/bench compare"):
        main(["--from", str(tmp_path), "--page", str(page)])


def test_the_page_has_every_section() -> None:
    page = PAGE.read_text()
    for section in SECTIONS:
        assert replaced(page, section, "new") != page
    with pytest.raises(ValueError, match="no section between <!-- nothing"):
        replaced(page, "nothing", "new")


def test_the_model_is_what_its_formula_says() -> None:
    model = models(cores())["send 4x64"]
    assert (model.remoting_us, model.others_us) == (9.0, 3.0)
    assert model.kept == pytest.approx(0.9)
    assert model.on_pairs(16) == pytest.approx(8 * 0.9 * 1e6 / 9)
    assert model.on_each(16) == pytest.approx(16 * 0.9 * 1e6 / 12)
    assert java_at_best(cores(), "send 4x64") == 20.0
    assert java_at_best(cores(), "pull 32") is None
    better = {"msg_per_s": 1e9, "cpu_us": {"remoting": 9.0}, "load_us": 1.0}
    assert Model.of(better, better).kept == 1.0
    assert any("16 cores, extrapolated:      800,000" in line for line in lines(cores()))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_two_groups_of_a_container_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(LOADS, "send 64x1")
    [layout] = [one for one in LAYOUTS if one.name == PINNED_GROUPS]
    before = os.sched_getaffinity(0)
    runs = Bench(tmp_path, 0.001).measure(layout)
    assert list(runs) == ["send 4x64", "pull 32"]
    for run in runs.values():
        assert run.msg_per_s > 0
        assert {"remoting", "store", "ha", "supervisor"} <= run.cpu_us.keys()
    assert os.sched_getaffinity(0) == before
    assert list(tmp_path.iterdir()) == []


def test_groups_divide_the_connections_and_the_messages() -> None:
    layouts = group_layouts("1,8")
    assert [layout.name for layout in layouts] == [
        "1 on one core",
        "8 on one core",
        "1 on two cores",
        "8 on two cores",
    ]
    eight = layouts[1]
    assert eight.groups == (Group((0,), (0,), (1,)),) * 8
    assert eight.loads["send 64x4 in all"] == (8, 4)
    assert eight.loads["send 64x4 a group"] == (64, 4)
    assert eight.parts == 8
    for text in ("1,x", "0", "3", "128"):
        with pytest.raises(SystemExit, match=f"cores: --groups {text}"):
            group_layouts(text)


def test_two_groups_have_the_slower_ones_time() -> None:
    done = [
        {"total": 100, "msg_per_s": 50.0, "p50_us": 3.0, "p99_us": 5.0},
        {"total": 120, "msg_per_s": 30.0, "p50_us": 2.0, "p99_us": 9.0, "not_success": 20},
    ]
    run = figures(done, 5.0, 1.0, {"remoting": 2.0}, {"remoting": 3.0})
    assert (run.msg_per_s, run.p50_us, run.p99_us) == (50.0, 3.0, 9.0)
    assert run.cpu_us == {"remoting": pytest.approx(15_000)}
    assert run.cores == {"remoting": 0.4, "loadgen": 0.2}
    assert run.load_us == pytest.approx(5_000)


def test_lines_of_replication_have_their_goals() -> None:
    line = replication.Line("x", 30.0, 20.0, Goal("msg_per_s", 1.8))
    assert line.verdict is not None
    assert line.verdict.text == "msg_per_s 1.50, goal 1.80: MISSED"
    alone = replication.Line("x", 30.0, None, Goal("msg_per_s", 1.8)).verdict
    assert alone is not None
    assert alone.text == "msg_per_s goal 1.80: not measured"
    assert replication.Line("x", 30.0, 20.0).verdict is None
