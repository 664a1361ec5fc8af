"""Words for what Spark throws. Sessions themselves: test_command_line.py, test_java_home.py."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from spark.job.spark_session import _not_launched, count_tasks, explain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x\nCaused by: java.lang.OutOfMemoryError: Java heap", "spark.driver.memory=4g"),
        ("java.io.IOException: No space left on device", "set SPARK_LOCAL_DIRS to a larger"),
        ("java.io.IOException: Disk quota exceeded", "set SPARK_LOCAL_DIRS to a larger"),
        ("An error\n\tat a\nCaused by: one: a\nCaused by: two: b\n\tat c", "two: b"),
        ("[PATH_NOT_FOUND] Path does not exist: x\n;line", "[PATH_NOT_FOUND] Path does not exist"),
        ("", "RuntimeError"),
    ],
)
def test_what_spark_throws_becomes_one_line(tmp_path: Path, text: str, expected: str) -> None:
    explained = explain(RuntimeError(text), tmp_path / "none.log")
    assert expected in explained
    assert "\n" not in explained


def test_the_log_of_a_jvm_that_died_is_read(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("fine\njava.lang.OutOfMemoryError: Java heap space\n\tat x\n")
    assert "spark.driver.memory=4g" in explain(RuntimeError("Answer from Java is empty"), log)


def test_a_jvm_that_died_is_told_with_its_reason(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    refused = ConnectionRefusedError(111, "Connection refused")
    assert "is the machine short of memory?" in explain(refused, log)
    log.write_text("java.lang.OutOfMemoryError: Java heap space\n")
    assert "spark.driver.memory=4g" in explain(refused, log)


@pytest.mark.parametrize(
    ("number", "way_out"),
    [(errno.ENOSPC, "make room, or set TMPDIR"), (errno.ENOENT, "unset SPARK_HOME, or")],
)
def test_a_start_that_fails_before_the_jvm(number: int, way_out: str) -> None:
    told = _not_launched(OSError(number, "why", "/some/path"))
    assert "/some/path: why; " in told
    assert way_out in told


@pytest.mark.parametrize("error", [Py4JNetworkError("x"), ConnectionRefusedError(111, "x")])
def test_the_bar_of_a_jvm_that_died_has_no_tasks(error: Exception) -> None:
    class Dead:
        @property
        def sparkContext(self) -> Any:  # noqa: N802 - PySpark's name
            raise error

    assert count_tasks(Dead()) == (0, 0)  # type: ignore[arg-type]
