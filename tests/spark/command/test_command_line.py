"""The command as a user runs it: exit codes, the line on stdout, catching up, spark-submit."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.command import command_line
from spark.command.catch_up import CatchUp
from spark.command.command_line import main
from spark.figures.report_data import worst_exit_code
from spark.job.java_home import JavaError, find_java
from tests.spark.dump_lines_builder import T0, Life, every, replica, write_dump
from tests.spark.local_results import LocalFiles, report
from tests.support.deadline import wait_until

ROOT = Path(__file__).resolve().parents[3]
DAY_MS = 86_400_000
NOW_MS = T0 + 3 * DAY_MS
SMALL = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    "spark.ui.enabled": "false",
}
"""A report of a few lines is mostly work for Java's compilers: the quick one saves a third."""
SETTINGS = [word for key, value in SMALL.items() for word in ("--conf", f"{key}={value}")]
MOST_S = 500
INTERVAL_MS = 600_000


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "spark", *map(str, arguments)]


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=ROOT, env=os.environ | environment, capture_output=True, text=True,
        timeout=MOST_S,
    )  # fmt: skip


def write_day(root: Path, day: int, state: str = "in_sync", first_ms: int = 0) -> None:
    """A day of samples, one each ten minutes; `day` counts from 2026-03-10."""
    start_ms = T0 + day * DAY_MS + first_ms
    life = Life(start_ms=start_ms, machine_ms=T0, interval_ms=INTERVAL_MS, marks=True)
    life.boot = f"{day + 1:016x}"
    first = T0 + day * DAY_MS + first_ms
    moments = every(first, T0 + (day + 1) * DAY_MS, INTERVAL_MS)  # the last one closes the day
    write_dump(root, [life.line(ts, replicas=[replica(state=state)]) for ts in moments])


# -- without Spark -----------------------------------------------------------------------------


def test_the_worst_of_several_dates_counts() -> None:
    codes: tuple[list[int], ...] = (
        [0, 0],
        [0, 2],
        [2, 1],
        [1, 3, 0],
        [],
        [1, 10, 2],
        [99, 10],
        [99, 3],
        [0, 10],
    )
    assert list(map(worst_exit_code, codes)) == [0, 2, 1, 3, 0, 10, 99, 3, 10]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "mqreport: the following arguments are required: --dumps, --out (mqreport --help)"),
        (["--dmps", "x"], "mqreport: unknown argument --dmps; did you mean --dumps?"),
        (["--dumps", "d", "--out", "o", "--date", "x"], "mqreport: --date x: is not a date"),
        (
            ["--dumps", "d", "--out", "o", "--date", "2999-01-01"],
            "is in the future; today is 2026-",
        ),
        (
            ["--dumps", "d", "--out", "o", "--date", "today", "--between", "23:59", "24:00"],
            "mqreport: the window of 2026-03-13 begins at 23:59 UTC, in the future",
        ),
        (["import", "--out", "x"], "mqreport: import needs --out DUMPS and the files"),
        (
            ["import", "--out", "x", "none.json"],
            "mqreport: none.json: cannot be read: No such file",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments, lambda: NOW_MS) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert expected in shown.err.splitlines()[-1]


def test_every_mistake_in_the_objectives_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sla = tmp_path / "sla.yaml"
    sla.write_text("objectives:\n- name: a\n  lag: 3\n  rpo_bytes: x\n")
    assert main(["--dumps", "d", "--out", "o", "--sla", str(sla)], lambda: NOW_MS) == 3
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[:3] for line in lines] == [
        ["mqreport", f" {sla}", number] for number in ("3", "4")
    ]


def test_a_defect_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own exit code for it is 1: breached."""

    def broken(*_arguments: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(command_line, "_run", broken)
    assert main(["--dumps", "d", "--out", "o"], lambda: NOW_MS) == 3
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["--bogus"],
        ["--dumps", "d", "--out", "o", "--date", "2999-01-01"],
        ["--dumps", "d", "--out", "o", "--sla", "none.yaml"],
    ],
)
def test_a_mistake_that_cannot_be_told_is_no_verdict(arguments: list[str], stderr: str) -> None:
    """Python's own exit code for it is 1: breached."""
    assert _exit_code_with(stderr, command(*arguments)) == 3


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
def test_a_defect_that_cannot_be_told_is_no_verdict(stderr: str) -> None:
    program = "import sys; from spark.command import command_line as c; c._report = None\n"
    program += "sys.exit(c.main(['--dumps', 'd', '--out', 'o'], lambda: 0))"
    assert _exit_code_with(stderr, [sys.executable, "-c", program]) == 3


def _exit_code_with(redirection: str, words: list[str]) -> int:
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", *words]
    return subprocess.run(shell, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=60).returncode


@pytest.mark.parametrize("missing", ["msgspec", "spark.command.command_line", "pyspark"])
def test_a_library_that_is_missing_is_no_verdict(missing: str) -> None:
    """On a cluster's driver, say."""
    program = f"import runpy, sys; sys.modules[{missing!r}] = None\n"
    program += "sys.argv = ['x', '--dumps', 'd', '--out', 'o']\n"
    program += "runpy.run_module('spark', run_name='__main__', alter_sys=True)"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 3
    assert missing in result.stderr
    assert result.stderr.endswith("; requirements: docs/nightly.md\n")


def test_help_needs_no_spark() -> None:
    program = "import sys; sys.modules['pyspark'] = None; sys.argv = ['x', '--help']\n"
    program += "from spark.command.command_line import main\nmain(sys.argv[1:], lambda: 0)"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "Exit codes: 0 met, 1 breached, 2 insufficient data, 3 bad input" in result.stdout
    assert "130 interrupted" in result.stdout


def test_a_setup_that_fails_is_no_verdict(tmp_path: Path) -> None:
    """The launchers' own exit code for it is 1."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "mine").touch()
    result = subprocess.run(
        [ROOT / "bin" / "mqreport", "--help"],
        env=os.environ | {"BROKER_VENV": str(tmp_path / "venv")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 3
    assert "exists and is not a virtual environment" in result.stderr


# -- with Spark: a run costs ten processor seconds and more, so most of these are long ------------


@pytest.fixture
def java() -> None:
    try:
        find_java(os.environ)
    except JavaError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true, and Spark has no Java: {error}")
        pytest.skip(f"Spark has no Java: {error}")


@pytest.mark.long
@pytest.mark.timeout(2 * MOST_S)
@pytest.mark.usefixtures("java")
def test_nights_that_were_missed(tmp_path: Path) -> None:
    dumps, out = tmp_path / "dumps", tmp_path / "out"
    write_day(dumps, 0)
    write_day(dumps, 1, "disconnected")
    write_day(dumps, 2, first_ms=12 * 3_600_000)
    arguments = ["--dumps", dumps, "--out", out, "--date", "2026-03-12", "--catch-up", "30"]
    arguments += ["--master", "local[1]", *SETTINGS]

    missed = run(*arguments)
    told = missed.stdout.splitlines()
    page = out / "report" / "dt=2026-03-10" / "report.html"
    assert told[0].startswith("2026-03-10 met: 1 replica; 30 days (begun 1 day ago) met"), (
        missed.stderr
    )
    assert told[0].endswith(f"; page: {page}")
    assert [line.split(":")[0] for line in told[1:]] == [
        "2026-03-11 breached",
        "2026-03-12 insufficient data",
    ]
    assert "c/b/b:1: " in told[1]
    assert missed.returncode == 1
    assert page.exists()
    calendar = (out / "index.html").read_text(encoding="utf-8")
    assert [f'href="report/dt=2026-03-{day}/report.html"' in calendar for day in (10, 11, 12)] == [
        *(True, True, True),
    ]
    assert not (out / ".index.html.crc").exists()
    lines = missed.stderr.splitlines()
    assert lines[0].startswith("mqreport: objectives: ")
    assert lines[1].startswith("mqreport: starting Spark on Java ")
    assert all(line.startswith("mqreport: 2026-03-1") for line in lines[2:]), missed.stderr

    again = CatchUp(LocalFiles(), [str(dumps)], str(out), datetime.date(2026, 3, 12), 30)
    assert (again.missing, again.untold) == ([], {})


@pytest.mark.long
@pytest.mark.timeout(MOST_S)
@pytest.mark.usefixtures("java")
def test_a_night_without_anything_to_catch_up(tmp_path: Path) -> None:
    """In every run: what the next night finds, above; that with Spark's files, test_results; what
    is told, test_report_run."""
    dumps, out = tmp_path / "dumps", tmp_path / "out"
    write_day(dumps, 0)
    report(out, "2026-03-10", exit_code=1)
    nothing = run("--dumps", dumps, "--out", out, "--date", "2026-03-10", "--catch-up", "30",
                  "--master", "local[1]", *SETTINGS)  # fmt: skip
    assert (nothing.returncode, nothing.stdout) == (0, ""), nothing.stderr
    assert "nothing to catch up: none of the 30 dates up to 2026-03-10 lacks" in nothing.stderr


@pytest.mark.long
@pytest.mark.timeout(MOST_S)
@pytest.mark.usefixtures("java")
def test_input_that_is_not_there(tmp_path: Path) -> None:
    result = run("--dumps", tmp_path / "none", "--out", tmp_path / "out", "--date", "2026-03-10",
                 "--master", "local[1]", *SETTINGS)  # fmt: skip
    assert (result.returncode, result.stdout) == (3, "")
    assert str(tmp_path / "none") in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out" / "report").exists()


@pytest.mark.slow
@pytest.mark.timeout(MOST_S)
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["--conf", "spark.driver.memory=1k"], {}, "Spark failed to start: "),
        pytest.param(
            ["--master", "nonsense"], {}, "Spark failed to start: ", marks=pytest.mark.long
        ),
        (
            [],
            {"SPARK_HOME": "/nowhere"},
            "cannot run /nowhere/./bin/spark-submit: No such file or directory; unset SPARK_HOME",
        ),
    ],
)
def test_a_spark_that_does_not_start(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], expected: str
) -> None:
    write_day(tmp_path / "dumps", 0)
    paths = ["--dumps", tmp_path / "dumps", "--out", tmp_path / "out", "--date", "2026-03-10"]
    result = run(*paths, *arguments, TMPDIR=str(tmp_path), **environment)
    assert (result.returncode, result.stdout) == (3, ""), result.stderr
    assert expected in result.stderr
    assert "Traceback" not in result.stderr
    assert "install Java" not in result.stderr


@pytest.mark.long
@pytest.mark.timeout(MOST_S)
@pytest.mark.usefixtures("java")
def test_an_out_that_spark_cannot_reach(tmp_path: Path) -> None:
    write_day(tmp_path / "dumps", 0)
    result = run("--dumps", tmp_path / "dumps", "--out", "s3a://bucket/x", "--date", "2026-03-10",
                 "--master", "local[1]", *SETTINGS, TMPDIR=str(tmp_path))  # fmt: skip
    assert (result.returncode, result.stdout) == (3, "")
    lines = result.stderr.splitlines()
    assert lines[-1].startswith("mqreport: s3a://bucket/x: ")
    assert lines[-1].endswith("Spark needs an S3 client: docs/nightly.md, spark.jars.packages")
    log = Path(lines[-2].removeprefix("mqreport: Spark's log: "))
    assert log.stat().st_size
    assert "Traceback" not in result.stderr


@pytest.mark.long
@pytest.mark.timeout(MOST_S)
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("stdout", [">/dev/full", "| true"])
def test_a_stdout_that_cannot_be_written_loses_no_report(tmp_path: Path, stdout: str) -> None:
    """The next date is made, too, and the exit code is the verdict."""
    write_day(tmp_path / "dumps", 0, "disconnected")
    write_day(tmp_path / "dumps", 1)
    words = command("--dumps", tmp_path / "dumps", "--out", tmp_path / "out", "--date",
                    "2026-03-11", "--catch-up", "2", "--master", "local[1]", *SETTINGS)  # fmt: skip
    script = f'{{ "$@"; echo "exit $?" >&2; }} {stdout}'
    result = subprocess.run(["sh", "-c", script, "sh", *words], cwd=ROOT, capture_output=True,
                            text=True, timeout=MOST_S)  # fmt: skip
    lines = result.stderr.splitlines()
    unwritten = "mqreport: cannot write to stdout: 2026-03-1"
    assert [line[len(unwritten) :][:9] for line in lines if line.startswith(unwritten)] == [
        "0 breache",
        "1 met: 1 ",
    ]
    assert lines[-1] == "exit 1"
    assert "Traceback" not in result.stderr
    assert len(list((tmp_path / "out").glob("report/*/summary.json"))) == 2


@pytest.mark.slow
@pytest.mark.timeout(MOST_S)
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    ("number", "stage"),
    [
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, 2, marks=pytest.mark.long),
        (signal.SIGTERM, 4),
        pytest.param(signal.SIGKILL, 2, marks=pytest.mark.long),
    ],
)
def test_a_run_that_is_stopped_leaves_the_old_result(
    tmp_path: Path, number: signal.Signals, stage: int
) -> None:
    """In stage 2 files are read and groups computed, in stage 4 tables are written."""
    write_day(tmp_path / "dumps", 0)
    old = old_result(tmp_path / "out")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    paths = ["--dumps", tmp_path / "dumps", "--out", tmp_path / "out", "--date", "2026-03-10"]
    with _started(command(*paths, "--master", "local[1]", *SETTINGS), scratch) as process:
        log = tmp_path / "scratch" / "stderr"
        wait_until(lambda: f"2026-03-10: {stage}/" in log.read_text(), 300)
        children = _children(process.pid)
        assert children
        process.send_signal(number)
        is_killed = number == signal.SIGKILL
        assert process.wait(60) == (-number if is_killed else 130)
    assert "Traceback" not in log.read_text()
    if is_killed:  # Java ends by itself: nobody holds its stdin any more
        wait_until(lambda: not any(_runs(child) for child in children), 60)
    else:
        assert log.read_text().splitlines()[-1] == (
            "mqreport: interrupted: whatever was not finished keeps its previous result"
        )
        assert not [child for child in children if _runs(child)]
        assert [path.name for path in scratch.iterdir() if path.name.startswith("mqreport")] == []
    assert {path: path.read_text() for path in old} == old


@pytest.mark.long
@pytest.mark.timeout(MOST_S)
@pytest.mark.usefixtures("java")
def test_a_jvm_that_is_killed_is_an_error(tmp_path: Path) -> None:
    write_day(tmp_path / "dumps", 0)
    old = old_result(tmp_path / "out")
    paths = ["--dumps", tmp_path / "dumps", "--out", tmp_path / "out", "--date", "2026-03-10"]
    with _started(command(*paths, "--master", "local[1]", *SETTINGS), tmp_path) as process:
        log = tmp_path / "stderr"
        wait_until(lambda: "2026-03-10: 4/" in log.read_text(), 300)
        for child in _children(process.pid):
            os.kill(child, signal.SIGKILL)
        assert process.wait(60) == 3
    lines = log.read_text().splitlines()
    assert "2026-03-10: Spark failed: " in lines[-2]
    assert "the JVM was killed: is the machine short of memory?" in lines[-2]
    assert lines[-1].startswith("mqreport: Spark's log: ")
    assert "Traceback" not in log.read_text()
    assert {path: path.read_text() for path in old} == old


def old_result(out: Path) -> dict[Path, str]:
    """Files of a date's result that a run reads at its very end, if at all."""
    names = [f"report/dt=2026-03-10/{name}" for name in ("report.html", "summary.json")]
    names += [f"parquet/{name}/dt=2026-03-10/part.parquet" for name in ("incidents", "minutes")]
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(f"old {name}")
    return {out / name: f"old {name}" for name in names}


@contextlib.contextmanager
def _started(words: list[str], scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"TMPDIR": str(scratch)}
    with (scratch / "stderr").open("wb") as log:
        process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _children(pid: int) -> list[int]:
    found = [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [grandchild for child in found for grandchild in _children(child)]


def _runs(pid: int) -> bool:
    """A dead process that nobody has waited for does not: in a container that may be for ever."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.long
@pytest.mark.timeout(MOST_S)
@pytest.mark.usefixtures("java")
def test_under_spark_submit(tmp_path: Path) -> None:
    """From the zip of --py-files: nothing of the checkout but the program's file."""
    write_day(tmp_path / "dumps", 0)
    main_file = tmp_path / "away" / "__main__.py"
    main_file.parent.mkdir()
    main_file.write_bytes((ROOT / "spark" / "__main__.py").read_bytes())
    package = tmp_path / "mqreport.zip"
    program = "import shutil, sys; shutil.make_archive(sys.argv[1], 'zip', sys.argv[2], 'spark')"
    subprocess.run([sys.executable, "-c", program, package.with_suffix(""), ROOT], check=True)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ROCKETMQ_HOME")}
    environment |= {"JAVA_HOME": str(find_java(os.environ).home), "PYSPARK_PYTHON": sys.executable}
    submit = Path(sys.executable).parent / "spark-submit"
    result = subprocess.run(
        [submit, "--master", "local[1]", *SETTINGS, "--py-files", package, main_file,
         "--dumps", tmp_path / "dumps", "--out", tmp_path / "out", "--date", "2026-03-10"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=MOST_S,
    )  # fmt: skip
    page = tmp_path / "out" / "report" / "dt=2026-03-10" / "report.html"
    assert result.returncode == 0, result.stderr[-3000:]
    last = result.stdout.splitlines()[-1]
    assert last.startswith("2026-03-10 met: 1 replica; 30 days (begun 1 day ago) met; ")
    assert last.endswith(f"; page: {page}")
    assert "<h1" in page.read_text()
