"""Words for what Spark throws. Sessions themselves: test_command_line.py, test_java_home.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.spark_session import explain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x\nCaused by: java.lang.OutOfMemoryError: Java heap", "spark.driver.memory=4g"),
        ("java.io.IOException: No space left on device", "set SPARK_LOCAL_DIRS to a larger"),
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
