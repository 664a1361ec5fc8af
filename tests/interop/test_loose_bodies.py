"""What the real fastjson reads in loose bodies: the table that our reader is held to is true.

One JVM for each client version reads every case (src/interop/Bodies.java); no server is needed.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.interop.java_peers import CLIENT_VERSIONS, QUICK_JVM, driver_classpath, java_command
from tests.support.loose_bodies import CASES, REFUSED, normalized

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

Read = Callable[[Sequence[tuple[str, bytes]]], list[bytes | str]]
"""Bodies with the names of their classes; what Java wrote again, or why it read nothing."""


@pytest.fixture(params=CLIENT_VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def java_reads(version: str, tmp_path: Path) -> Read:
    def read(bodies: Sequence[tuple[str, bytes]]) -> list[bytes | str]:
        command = java_command(driver_classpath(version), "interop.Bodies", tmp_path, jvm=QUICK_JVM)
        lines = (f"{name}\t{base64.b64encode(body).decode()}\n" for name, body in bodies)
        done = subprocess.run(
            command, input="".join(lines), capture_output=True, text=True, timeout=120, check=True
        )
        answers = done.stdout.splitlines()
        assert len(answers) == len(bodies), done.stderr
        return [base64.b64decode(a[2:]) if a.startswith("= ") else a[2:] for a in answers]

    return read


def test_java_reads_what_the_table_says(version: str, java_reads: Read) -> None:
    answers = java_reads([(case.java_class, case.text) for case in CASES])
    wrong = []
    for case, answer in zip(CASES, answers, strict=True):
        expected = case.java if version in case.lines else REFUSED
        seen = REFUSED if isinstance(answer, str) else case.seen(answer)
        if normalized(seen) != normalized(expected):
            wrong.append(f"{case}: {answer!r}, not {expected!r}")
    assert not wrong, "\n".join(wrong)
