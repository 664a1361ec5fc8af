"""What prepares and drives the Java peers, without Java: nothing waits for a mute process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.interop import java_peers, prepare
from tests.interop.driver import CommandProcess, DriverError

_ANSWERS_ONCE = """
import json, sys
asked = json.loads(sys.stdin.readline())
sys.stdin.readline()
print(json.dumps({"id": asked["id"], "ok": 1}), flush=True)
print("[error][cds] something that is no answer", flush=True)
sys.stdin.read()
"""


def test_a_driver_that_says_something_else_fails_what_waits(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _ANSWERS_ONCE]
    process = CommandProcess("driver", command, tmp_path, {})
    first, second = process.submit("first"), process.submit("second")
    assert first.result(60) == 1
    with pytest.raises(DriverError, match="no answer"):
        second.result(60)
    with pytest.raises(DriverError, match="no answer"):
        process.call("third")
    process.close()


def test_an_archive_that_is_older_than_its_jar_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM that is given one refuses to make another."""
    monkeypatch.setattr(java_peers, "TARGET_DIR", tmp_path)
    jar = tmp_path / "driver.jar"
    jar.touch()
    archive = java_peers.archive_path(f"{jar}:lib/*")
    archive.touch()
    os.utime(jar, (1_000, 1_000))
    assert prepare._part(f"{jar}:lib/*") is None
    assert archive.exists()
    os.utime(jar, (1 << 32, 1 << 32))
    assert prepare._part(f"{jar}:lib/*") is not None
    assert not archive.exists()
