"""bin/bench compare: its rows on a broker of ours, tiny; its goals, ratios and table."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import machine
from tests.bench.busy_loops import busy_loops
from tests.bench.compare import (
    QUICK,
    Bench,
    by_setup,
    chosen_rows,
    lengths_of,
    parse,
    possible_rows,
    possible_sides,
    rotated,
    rounds_of,
    rows_of_round,
    turns,
)
from tests.bench.compare_report import Start, budget_of, goal_table, report, table
from tests.bench.goals import Goal, judge, ratios
from tests.bench.rows import SETUPS, TABLE, all_rows
from tests.bench.session import Lengths, Session
from tests.bench.shapes import LostError, Pull, Send, send_figures
from tests.bench.spin_test import judged, spin_test
from tests.bench.sync_counter import SyncCounter
from tools.chaos.processes import is_running
from tools.compiled_module_list import COMPILED_MODULES

TINY = Lengths(counts=0.001, seconds=0.001, warm_up=0.001)
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@needs_compiler
def test_rows_of_one_start(tmp_path: Path) -> None:
    rows = chosen_rows("pull-tag-1of10,pull-sql-1of10", 1)
    start = Bench(tmp_path, TINY).measure("sources", "filter", rows)
    assert (start.side, start.setup) == ("sources", "filter")
    for run in start.runs.values():
        assert (run["messages"], run["received"]) == (404, 40)
        assert run["received_per_s"] == pytest.approx(run["msg_per_s"] * 40 / 404)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@needs_compiler
def test_sync_flush_counts_what_reaches_the_disk(tmp_path: Path) -> None:
    rows = chosen_rows("sync-flush-4x64-128", 1)
    [run] = Bench(tmp_path, TINY).measure("sources", "sync-flush", rows).runs.values()
    assert (run["messages"], run["refused"]) == (200, 0)
    assert run["syncs_per_s"] > 0


@needs_compiler
def test_all_kinds_of_syncs_are_counted_in_all_processes(tmp_path: Path) -> None:
    counter = SyncCounter(tmp_path / "syncs")
    script = (
        "import mmap, os, sys\n"
        "file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "os.truncate(file, 4096)\n"
        "view = mmap.mmap(file, 4096)\n"
        "os.fsync(file); os.fdatasync(file)\n"
        "if os.fork() == 0: view.flush(); os._exit(0)\n"
        "os.wait()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "file")]
    subprocess.run(command, env={**os.environ, **counter.environment}, check=True)
    assert counter.read() == 3


def test_busy_loops_run_until_the_block_ends() -> None:
    with busy_loops(2) as pids:
        assert len(pids) == 2
        assert all(map(is_running, pids))
        assert all(os.getpriority(os.PRIO_PROCESS, pid) == os.nice(0) for pid in pids)
        assert len({os.getsid(0), *map(os.getsid, pids)}) == 3
    assert not any(map(is_running, pids))


def test_every_row_has_a_setup_and_goals() -> None:
    rows = all_rows(10)
    assert len({row.name for row in rows}) == len(rows)
    assert all(row.setup in SETUPS and row.goals for row in rows)
    grouped = by_setup(rows)
    assert sum(map(len, grouped.values())) == len(rows)  # rows of a setup are neighbours


def test_rows_are_chosen_by_name() -> None:
    chosen = chosen_rows("client-java-1,send-1x1-128", 1)
    assert [row.name for row in chosen] == ["send-1x1-128", "client-java-1"]
    with pytest.raises(SystemExit, match="no row nothing; known: send-1x1-128, "):
        chosen_rows("client-java-1,nothing", 1)


def test_a_client_that_cannot_be_built_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    rows = chosen_rows("client-java-16,client-go-16", 1)
    assert [row.name for row in possible_rows(rows)] == ["client-java-16"]
    words = "client-go-16: not measured, there is no go on the PATH\n"
    assert capsys.readouterr().out == words


def test_lengths() -> None:
    assert lengths_of(parse(["--quick"])) == QUICK
    assert lengths_of(parse([])) == Lengths(1.0, 1.0)
    assert lengths_of(parse(["--quick", "--factor", "0.01"])) == Lengths(0.01, 0.01, 0.01)
    assert lengths_of(parse(["--table"])) == QUICK
    assert Lengths(counts=0.25).count(100_000, 16) == 24_992
    assert Lengths(counts=0.0001).count(1_000, 16) == 16


def test_short_runs_warm_java_up_as_long_as_whole_ones() -> None:
    assert QUICK.warm_up_count(200_000) == Lengths().warm_up_count(200_000) == 200_000
    assert TINY.warm_up_count(30_000, 16) == 16


def test_how_many_rounds() -> None:
    assert [rounds_of(parse(given)) for given in ([], ["--table"], ["--quick"])] == [5, 5, 1]
    assert rounds_of(parse(["--quick", "--rounds", "3"])) == 3


def test_each_round_begins_with_another_side() -> None:
    assert [rotated("abc", number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_what_takes_long_is_measured_in_the_last_round() -> None:
    rows = chosen_rows("send-1x1-128,clients-5000", 1)
    assert [row.name for row in rows_of_round(rows, is_last=False)] == ["send-1x1-128"]
    assert rows_of_round(rows, is_last=True) == rows


def test_the_table_has_the_rows_of_the_goals() -> None:
    assert {row.name for row in chosen_rows(",".join(TABLE), 1)} == set(TABLE)


def test_goals_of_both_kinds() -> None:
    """Those that were set for rows of 28 November 2026; others are the same for both kinds."""
    [send, binary] = chosen_rows("send-4x64-128,binary-4x64-128", 1)
    limits = [(goal.limit, goal.kinds) for goal in send.goals if goal.figure == "msg_per_s"]
    assert limits == [(3.5, ("compiled",)), (2.3, ("sources",))]
    assert [(goal.limit, goal.kinds) for goal in binary.goals] == [
        (1.8, ("compiled",)),
        (1.5, ("sources",)),
    ]
    for row in all_rows(1):
        for kind in ("compiled", "sources"):
            of_kind = [(goal.figure, goal.of_ratio) for goal in row.goals if kind in goal.kinds]
            assert len(set(of_kind)) == len(of_kind), row.name


def test_modules_that_are_of_other_sources_are_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = iter(["stale", None])
    monkeypatch.setattr("tests.bench.compare.find_staleness", lambda: next(found))
    commands = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command[1:])
        return subprocess.CompletedProcess(command, 0, "", "no compiler")

    monkeypatch.setattr("tests.bench.compare.subprocess.run", run)
    assert possible_sides(["compiled", "java"]) == ["compiled", "java"]
    assert commands == [["-m", "tools.mqcompile"]]
    assert possible_sides(["java"]) == ["java"]
    monkeypatch.setattr("tests.bench.compare.find_staleness", lambda: "stale")
    assert possible_sides(["compiled", "sources"]) == ["sources"]
    assert "compiled: not measured, stale\nno compiler" in capsys.readouterr().err


def test_ratios_are_of_what_both_have() -> None:
    assert ratios({"msg_per_s": 30.0, "p50_us": 5.0, "x": 1.0}, {"msg_per_s": 20.0, "x": 0.0}) == {
        "msg_per_s": 1.5
    }
    assert ratios(None, {"msg_per_s": 20.0}) == {}


def test_goals_are_least_speeds_and_most_times() -> None:
    goals = (Goal("msg_per_s", 2.0), Goal("p50_us", 0.5), Goal("seconds", 1.0, of_ratio=False))
    ours = {"msg_per_s": 39.0, "p50_us": 5.0, "seconds": 1.0}
    java = {"msg_per_s": 20.0, "p50_us": 10.0, "seconds": 0.1}
    assert [verdict.text for verdict in judge(goals, ours, java)] == [
        "msg_per_s 1.95, goal 2.00: MISSED",
        "p50_us 0.50, goal 0.50: held",
        "seconds 1.00, goal 1.00: held",
    ]
    assert [verdict.text for verdict in judge(goals, ours, None)] == [
        "msg_per_s goal 2.00: not measured",
        "p50_us goal 0.50: not measured",
        "seconds 1.00, goal 1.00: held",
    ]
    assert [verdict.held for verdict in judge(goals, ours, None)] == [None, None, True]


def test_figures_are_of_the_sends_that_were_taken() -> None:
    load = {"total": 100, "not_success": 20, "msg_per_s": 50.0, "cpu_s": 0.8, "rss_anon_max": 7}
    load |= {"p50_us": 1, "p99_us": 2, "p999_us": 3, "max_us": 4, "syncs": 10}
    figures = send_figures(load)
    assert (figures["messages"], figures["refused"], figures["msg_per_s"]) == (80, 20, 40.0)
    assert figures["cpu_us"] == pytest.approx(10_000)
    assert figures["syncs_per_s"] == 5.0
    with pytest.raises(LostError, match="no send was taken"):
        send_figures({**load, "not_success": 100})


def test_the_table_shows_medians_ratios_goals_and_what_was_refused() -> None:
    goals = (
        Goal("msg_per_s", 3.0, kinds=("compiled",)),
        Goal("msg_per_s", 2.5, kinds=("sources",)),
        Goal("p50_us", 0.5, kinds=("compiled",), anchor="java-5.5"),
    )
    shape = Send(name="s", conns=1, inflight=1, body=1, total=1, goals=goals)
    times = {"p50_us": 5.0, "p99_us": 9.0, "p999_us": 12.0, "cpu_us": 8.0, "refused": 2}
    speeds = {"compiled": (100.0, 3000.0), "sources": (1000.0,), "java": (90.0, 910.0)}
    starts = [
        Start(side, "plain", 2.0, runs={"s": {"msg_per_s": speed} | times})
        for side, each in speeds.items()
        for speed in each
    ]
    data = report(starts, [shape], {"java": "4.9.7"}, {"cpus": 2}, {})
    assert data["machine"] == {"cpus": 2, "first_touch_gb_s": 2.0}
    [row] = data["rows"]
    assert row["sides"]["compiled"]["msg_per_s"] == 1550.0
    assert row["ratios"]["compiled"]["java"]["msg_per_s"] == pytest.approx(3.1)
    assert row["ratios"]["sources"]["java-5.5"] == {}
    assert table([row])[1:] == [
        "s                     compiled       1,550        5        9       12      8.0"
        "   4 refused   runs 100 3,000",
        "s                     sources        1,000        5        9       12      8.0"
        "   2 refused",
        "s                     java             500        5        9       12      8.0"
        "   4 refused   runs 90 910",
    ]
    lines = [line.split() for line in goal_table([row], {"java": "4.9.7"})[1:]]
    speed = ["1,550", "1,000", "500", "-", "3.10", "2.00*", "-", "-", "3.00", "2.50"]
    assert lines == [
        ["s", "msg_per_s", *speed, "held", "/", "MISSED"],
        [
            "s",
            "p50_us",
            "5.00",
            "5.00",
            "5.00",
            "-",
            "1.00",
            "1.00",
            "-",
            "-*",
            "0.50",
            "-",
            "not",
            "measured",
            "/",
            "-",
        ],
    ]


def test_a_row_has_its_limits_and_its_cost_beside_another() -> None:
    goal = Goal("of_limit", 0.8, of_ratio=False)
    plain, guarded = (
        Send(name=name, conns=1, inflight=1, body=1, total=1, goals=goals, beside=beside)
        for name, goals, beside in (("plain", (goal,), ""), ("acl", (), "plain"))
    )
    runs: dict[str, tuple[float, float | None]] = {
        "compiled": (100.0, 50.0),
        "java": (80.0, 60.0),
        "limit": (200.0, None),
        "limit-c": (400.0, None),
    }
    starts = [
        Start(side, "plain", 2.0, runs={name: {"msg_per_s": speed, "cpu_us": 1000 / speed}})
        for side, speeds in runs.items()
        for name, speed in zip(("plain", "acl"), speeds, strict=True)
        if speed is not None
    ]
    rows = report(starts, [plain, guarded], {}, {}, {})["rows"]
    assert rows[0]["sides"]["limit"]["msg_per_s"] == 200.0
    assert [goal["text"] for goal in rows[0]["goals"]] == [
        "of_limit 0.50, goal 0.80: MISSED",
        "of_limit goal 0.80: not measured",
    ]
    assert [line.strip() for line in goal_table(rows, {})[2:]] == [
        "limit, stripped   200 messages/s: compiled 50%",
        "limit, C          400 messages/s: compiled 25%",
    ]
    assert rows[0]["costs"] == {}
    assert rows[1]["costs"]["compiled"] == {"msg_per_s": 0.5, "cpu_us": 10.0}
    assert table(rows)[-1] == (
        "        cost beside plain: compiled 0.50 times the speed, +10.0 us CPU; "
        "java 0.75 times the speed, +4.2 us CPU"
    )


def test_memory_stands_beside_its_budget() -> None:
    whole = [{"name": name, "resident": 2**20, "share": 2**19} for name in ("store", "unknown")]
    starts = [
        {"side": "java", "idle": whole},
        {"side": "compiled", "idle": whole},
        {"side": "sources", "idle": whole[:1]},
    ]
    lines = budget_of(starts)
    assert [line.split()[0] for line in lines] == ["process", "store", "unknown", "together"]
    assert budget_of(starts[:1]) == []


def test_the_limits_are_measured_beside_ours_and_java() -> None:
    rows = chosen_rows("send-4x64-128,batch-16-128", 1)
    assert turns(["compiled"], rows) == {"compiled": rows}
    assert turns(["compiled", "java"], rows) == {
        **dict.fromkeys(("compiled", "java"), rows),
        **dict.fromkeys(("limit", "limit-c"), rows[:1]),
    }
    assert turns(["compiled", "java"], rows[1:]) == {"compiled": rows[1:], "java": rows[1:]}


def test_a_row_is_for_the_sides_that_it_names() -> None:
    rows = chosen_rows("pop-1,pop-32", 1)
    assert turns(["sources", "java", "java-5.5"], rows) == {"sources": rows, "java-5.5": rows}


def test_a_machine_is_quiet_when_spinning_gets_its_cores() -> None:
    assert judged([0.99, 1.0], 0.0, 3.0)["quiet"]
    assert not judged([0.99, 0.94], 0.0, 0.0)["quiet"]
    assert not judged([1.0, 1.0], 0.03, 0.0)["quiet"]
    assert judged([0.5], 0.0, 1.25)["text"] == (
        "the machine was NOT QUIET: spinning got 50% of the cores, 0% stolen, load average 1.2"
    )


def test_a_core_that_is_spun_on_gives_a_share() -> None:
    spun = spin_test()
    assert len(spun["shares"]) == len(os.sched_getaffinity(0))
    assert all(0 < share < 1.1 for share in spun["shares"])


@needs_compiler
@pytest.mark.parametrize("side", ["limit", "limit-c"])
def test_a_stripped_broker_loses_nothing(side: str, tmp_path: Path) -> None:
    rows = chosen_rows("send-4x64-128,pull-32-128", 1)
    start = Bench(tmp_path, TINY).measure(side, "plain", rows)
    assert start.failures == {}
    assert [run["messages"] for run in start.runs.values()] == [400, 404]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("guard", ["acl", "tls"])
def test_guarded_rows_are_sent(guard: str, tmp_path: Path) -> None:
    rows = possible_rows(chosen_rows(f"{guard}-4x64-128", 1))
    if not rows:
        pytest.skip("no headers of OpenSSL")
    [run] = Bench(tmp_path, TINY).measure("sources", guard, rows).runs.values()
    assert (run["messages"], run["refused"]) == (200, 0)


def test_a_load_generator_without_openssl_runs_no_guarded_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.bench.compare.loadgen_has_openssl", lambda: False)
    rows = chosen_rows("send-1x1-128,acl-4x64-128", 1)
    assert [row.name for row in possible_rows(rows)] == ["send-1x1-128"]
    assert "acl-4x64-128: not measured, loadgen is built without" in capsys.readouterr().out


@needs_compiler
def test_a_pull_that_lacks_messages_is_no_figure(tmp_path: Path) -> None:
    source = Send(name="few", conns=1, inflight=1, body=1, total=4_000)

    class Forgetful(Pull):
        def _expected(self, session: Session) -> float:
            return session.sent[source.topic]["total"] + 5

    rows = [Forgetful(name="pull-few", source=source), Pull(name="pull-all", source=source)]
    start = Bench(tmp_path, TINY).measure("sources", "plain", rows)
    assert start.failures == {"pull-few": "pull-few: 9 sent, 8 received"}
    assert start.runs["pull-all"]["received"] == 8
    data = report([start], rows, {}, {}, {})
    assert table([data["rows"][0]])[1:] == [
        "pull-few              FAILED, sources: pull-few: 9 sent, 8 received"
    ]
    assert list(tmp_path.iterdir()) == []


def test_what_a_machine_is() -> None:
    assert machine.cpu_model("processor\t: 0\nmodel name\t: Xeon\nmodel name\t: Xeon\n") == "Xeon"
    assert machine.memory("MemTotal:       1024 kB\n") == 1 << 20
    with pytest.raises(ValueError, match="without MemTotal"):
        machine.memory("")
    mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nother /tmpfoo xfs rw 0 0\n"
    assert machine.file_system(mounts, Path("/tmp/compare")) == "tmpfs"
    assert machine.file_system(mounts, Path("/var")) == "ext4"
    described = machine.describe_machine(Path("/"))
    assert described["cpus"] == os.cpu_count()
    assert described["compiled_modules"] in (0, len(COMPILED_MODULES))
