"""What is wrong with paths is said before Spark starts: by the command itself, without a Java."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

from spark.command import report_run
from spark.command.arguments import parse_arguments
from spark.command.command_line import main
from spark.command.preflight import check_paths, in_words
from tests.spark.dump_lines_builder import T0
from tests.spark.local_results import dumps

DAY_MS = 86_400_000
NOW_MS = T0 + 3 * DAY_MS
DATE = datetime.date(2026, 3, 10)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(report_run.ReportRun, "__enter__", start)
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(word) for word in arguments], lambda: NOW_MS) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err.splitlines()[-1]


def test_dumps_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = told(capsys, "--dumps", tmp_path / "none", "--out", tmp_path / "o", "--date", DATE)
    assert line == (
        f"mqreport: --dumps {tmp_path}/none: no such directory; give the metricsDumpPath of a"
        " broker (<storePathRootDir>/metrics)"
    )
    (tmp_path / "file").touch()
    line = told(capsys, "--dumps", tmp_path / "file", "--out", tmp_path / "o", "--date", DATE)
    assert line.endswith("file: is a file; give the directory that has dt=DATE in it")
    assert not (tmp_path / "o").exists()


def test_an_out_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--dumps", dumps(tmp_path / "d", str(DATE)), "--date", DATE, "--out"]
    (tmp_path / "file").touch()
    line = told(capsys, *given, tmp_path / "file" / "o")
    assert line.startswith(f"mqreport: --out {tmp_path}/file/o: cannot be written: ")
    assert "Not a directory" in line
    assert "cannot be written: " in told(capsys, *given, "/proc/o")
    monkeypatch.setattr(Path, "touch", _refuse)  # root may write everywhere
    line = told(capsys, *given, tmp_path / "o")
    assert f"--out {tmp_path}/o: cannot be written: {tmp_path}: Permission denied; " in line


def _refuse(path: Path) -> None:
    raise PermissionError(13, os.strerror(13), str(path))


def test_a_date_without_dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = dumps(tmp_path / "d", "2026-03-01", "2026-03-02", "2026-03-05")
    given = ["--dumps", place, "--out", str(tmp_path / "o"), "--date", str(DATE)]
    line = told(capsys, *given)
    assert line == (
        f"mqreport: --date 2026-03-10: no dumps of it in {place}; there are dumps of 2026-03-01"
        " to 2026-03-02, 2026-03-05; no earlier result and no `expect` names a replica either"
    )
    # A night of which everything was lost is reported, not refused: its replicas are known.
    (tmp_path / "o" / "parquet" / "replica_days" / "dt=2026-03-09").mkdir(parents=True)
    note = check_paths(parse_arguments(given, {}), DATE, {})
    assert note is not None
    assert note.endswith("2026-03-05; the report says what is unknown of the date")
    assert check_paths(parse_arguments(given, {}), datetime.date(2026, 3, 5), {}) is None
    assert check_paths(parse_arguments([*given, "--catch-up", "7"], {}), DATE, {}) is None


def test_what_only_spark_can_reach_is_left_to_it(tmp_path: Path) -> None:
    far = parse_arguments(["--dumps", "s3a://b/d", "--out", "hdfs://c/o"], {})
    assert check_paths(far, DATE, {}) is None
    near = parse_arguments(["--dumps", "none", "--out", "/proc/o"], {})
    assert check_paths(near, DATE, {"HADOOP_CONF_DIR": "/etc/hadoop"}) is None
    yarn = parse_arguments(["--dumps", "none", "--out", "/proc/o", "--master", "yarn"], {})
    assert check_paths(yarn, DATE, {}) is None


def test_dates_in_words() -> None:
    first = datetime.date(2026, 2, 27)
    every = [first + datetime.timedelta(days=n) for n in (0, 1, 2, 4, 6, 8, 10, 12)]
    assert in_words(every[:4]) == "2026-02-27 to 2026-03-01, 2026-03-03"
    assert in_words(every) == "…, 2026-03-03, 2026-03-05, 2026-03-07, 2026-03-09, 2026-03-11"
