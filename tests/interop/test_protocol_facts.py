"""The checked-in facts about the protocol of 5.5.0 are what its classes say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop.java_peers import QUICK_JVM, driver_classpath, java_command

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

GOLDEN = Path(__file__).parents[1] / "golden" / "protocol-5.5.0.json"


def test_the_facts_are_those_of_the_jars(tmp_path: Path) -> None:
    """To write the file anew: `facts(Path("/tmp/x"))`."""
    assert GOLDEN.read_text() == facts(tmp_path)


def facts(home: Path) -> str:
    """What interop.Facts prints on the class path of a 5.5.0 client."""
    command = java_command(driver_classpath("5.5.0"), "interop.Facts", home, jvm=QUICK_JVM)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
