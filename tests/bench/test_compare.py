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
    turns,
)
from tests.bench.compare_report import Start, report, table
from tests.bench.goals import Goal, judge, ratios
from tests.bench.rows import SETUPS, all_rows
from tests.bench.session import Lengths, Session
from tests.bench.shapes import LostError, Pull, Send, send_figures
from tests.bench.sync_counter import SyncCounter
from tools.chaos.processes import is_running
from tools.compiled_module_list import COMPILED_MODULES

TINY = Lengths(counts=0.001, seconds=0.001)
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@needs_compiler
def test_rows_of_one_start(tmp_path: Path) -> None:
    rows = chosen_rows("pull-tag-1of10,pull-sql-1of10", 1)
    start = Bench(tmp_path, TINY).measure("ours", "filter", rows)
    assert (start.side, start.setup) == ("ours", "filter")
    for run in start.runs.values():
        assert (run["messages"], run["received"]) == (404, 40)
        assert run["received_per_s"] == pytest.approx(run["msg_per_s"] * 40 / 404)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@needs_compiler
def test_sync_flush_counts_what_reaches_the_disk(tmp_path: Path) -> None:
    rows = chosen_rows("sync-flush-4x64-128", 1)
    [run] = Bench(tmp_path, TINY).measure("ours", "sync-flush", rows).runs.values()
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
    assert lengths_of(parse(["--quick", "--factor", "0.01"])) == Lengths(0.01, 0.01)
    assert Lengths(counts=0.25).count(100_000, 16) == 24_992
    assert Lengths(counts=0.0001).count(1_000, 16) == 16


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
    shape = Send(name="s", conns=1, inflight=1, body=1, total=1, goals=(Goal("msg_per_s", 2.0),))
    times = {"p50_us": 5.0, "p99_us": 9.0, "p999_us": 12.0}
    starts = [
        Start(
            side, "plain", 2.0, 0, {"s": {"msg_per_s": speed, "cpu_us": 8.0, "refused": 2} | times}
        )
        for side, speed in (("ours", 100.0), ("java", 90.0), ("ours", 3000.0), ("java", 1000.0))
    ]
    data = report(starts, [shape], "4.9.7", {"cpus": 2}, {})
    assert data["machine"] == {"cpus": 2, "first_touch_gb_s": 2.0}
    [row] = data["rows"]
    assert row["ours"]["msg_per_s"] == 1550.0
    assert row["ratios"]["msg_per_s"] == pytest.approx(1550 / 545)
    assert table([row])[1:] == [
        "s                     ours        1,550        5        9       12      8.0    2.84"
        "   4 refused   runs 100 3,000",
        "s                     java          545        5        9       12      8.0        "
        "   4 refused   runs 90 1,000",
        "        msg_per_s 2.84, goal 2.00: held",
    ]


def test_a_row_has_its_limit_and_its_cost_beside_another() -> None:
    goal = Goal("of_limit", 0.8, of_ratio=False)
    plain, guarded = (
        Send(name=name, conns=1, inflight=1, body=1, total=1, goals=goals, beside=beside)
        for name, goals, beside in (("plain", (goal,), ""), ("acl", (), "plain"))
    )
    runs = {"ours": (100.0, 50.0), "java": (80.0, 60.0), "limit": (200.0, None)}
    starts = [
        Start(side, "plain", 2.0, 0, {name: {"msg_per_s": speed, "cpu_us": 1000 / speed}})
        for side, speeds in runs.items()
        for name, speed in zip(("plain", "acl"), speeds, strict=True)
        if speed is not None
    ]
    rows = report(starts, [plain, guarded], "4.9.7", {}, {})["rows"]
    assert rows[0]["limit"]["msg_per_s"] == 200.0
    assert rows[0]["goals"][0]["text"] == "of_limit 0.50, goal 0.80: MISSED"
    assert rows[0]["costs"] == {}
    assert rows[1]["costs"]["ours"] == {"msg_per_s": 0.5, "cpu_us": 10.0}
    lines = table(rows)
    assert sum(line.split()[1] == "limit" for line in lines) == 1
    assert lines[-1] == (
        "        cost beside plain: ours 0.50 times the speed, +10.0 us CPU; "
        "java 0.75 times the speed, +4.2 us CPU"
    )


def test_the_limit_is_measured_beside_both_brokers() -> None:
    rows = chosen_rows("send-4x64-128,batch-16-128", 1)
    assert turns(["ours"], rows) == {"ours": rows}
    assert turns(["ours", "java"], rows) == {"ours": rows, "java": rows, "limit": rows[:1]}
    assert turns(["ours", "java"], rows[1:]) == {"ours": rows[1:], "java": rows[1:]}


@needs_compiler
def test_the_stripped_broker_loses_nothing(tmp_path: Path) -> None:
    rows = chosen_rows("send-4x64-128,pull-32-128", 1)
    start = Bench(tmp_path, TINY).measure("limit", "plain", rows)
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
    [run] = Bench(tmp_path, TINY).measure("ours", guard, rows).runs.values()
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
    start = Bench(tmp_path, TINY).measure("ours", "plain", rows)
    assert start.failures == {"pull-few": "pull-few: 9 sent, 8 received"}
    assert start.runs["pull-all"]["received"] == 8
    data = report([start], rows, "-", {}, {})
    assert table([data["rows"][0]])[1:] == [
        "pull-few              FAILED, ours: pull-few: 9 sent, 8 received"
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
