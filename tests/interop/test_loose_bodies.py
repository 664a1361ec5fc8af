"""What the real fastjson reads in loose bodies: the table that our reader is held to is true.

One JVM for each client version reads every case (src/interop/Bodies.java); no server is needed.
"""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

import pytest

from remoting.body.consumer_offset import DelayOffsetSerializeWrapper
from remoting.remoting_serializable import loads_lenient
from tests.interop.java_peers import CLIENT_VERSIONS, QUICK_JVM, driver_classpath, java_command
from tests.remoting.golden_bodies import golden_beans
from tests.support.loose_bodies import ABSENT, CASES, HEADERS, REFUSED, normalized
from tests.support.loose_writer import LooseWriter

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

_TEXTS_OF_EACH: Final = 8
_NOT_IN_CLIENTS: Final = DelayOffsetSerializeWrapper
"""Its class is in the jar of the store."""
_TIME_OF_READING: Final = re.compile(rb'"mappingDataVersion":\{[^}]*\},')

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
            command, input="".join(lines), capture_output=True, text=True, timeout=120, check=False
        )
        answers = done.stdout.splitlines()
        assert (done.returncode, len(answers)) == (0, len(bodies)), done.stderr
        return [base64.b64decode(a[2:]) if a.startswith("= ") else a[2:] for a in answers]

    return read


def test_java_reads_what_the_table_says(version: str, java_reads: Read) -> None:
    answers = java_reads([(case.java_class, case.text) for case in CASES])
    wrong = []
    for case, answer in zip(CASES, answers, strict=True):
        expected = case.read_by(version)
        seen = REFUSED if isinstance(answer, str) else case.seen(answer)
        if normalized(seen) != normalized(expected):
            wrong.append(f"{case}: {answer!r}, not {expected!r}")
    assert not wrong, "\n".join(wrong)


def test_java_reads_in_headers_what_the_table_says(version: str, java_reads: Read) -> None:
    answers = java_reads([("RemotingCommand", header.text) for header in HEADERS])
    wrong = []
    for header, answer in zip(HEADERS, answers, strict=True):
        expected = header.read_by(version)
        seen = REFUSED if isinstance(answer, str) else _member(answer, header.member)
        if expected is not None and normalized(seen) != normalized(expected):
            wrong.append(f"{header}: {answer!r}, not {expected!r}")
    assert not wrong, "\n".join(wrong)


def _member(written: bytes, name: str) -> object:
    return loads_lenient(written).get(name, ABSENT)


@pytest.mark.parametrize("version", [each for each in CLIENT_VERSIONS if each != "5.5.0"])
def test_java_reads_the_golden_meaning_however_loosely_it_is_written(java_reads: Read) -> None:
    """What the property test of our reader mutates has the meaning that it says; to fastjson1, of
    which it makes the most. fastjson2 reads less: see the table."""
    golden = [bean for bean in golden_beans() if not isinstance(bean, _NOT_IN_CLIENTS)]
    loose = [
        (bean, LooseWriter(Random(f"{seed} {number}")).write(bean))
        for number, bean in enumerate(golden)
        for seed in range(_TEXTS_OF_EACH)
    ]
    plain = [(bean, bean.to_json_bytes()) for bean, _ in loose]
    read = java_reads([(type(bean).__name__, text) for bean, text in plain + loose])
    meanings, answers = read[: len(plain)], read[len(plain) :]
    assert all(isinstance(meaning, bytes) for meaning in meanings)
    wrong = [
        f"{type(bean).__name__} {text.decode()}: {answer!r}"
        for (bean, text), meaning, answer in zip(loose, meanings, answers, strict=True)
        if _tree(answer) != _tree(meaning)
    ]
    assert not wrong, f"{len(wrong)} of {len(loose)}:\n" + "\n".join(wrong[:20])


def _tree(answer: bytes | str) -> str:
    """For comparing; without what 5.x fills in with the time of reading."""
    if isinstance(answer, str):
        return answer
    return normalized(loads_lenient(_TIME_OF_READING.sub(b"", answer)))


def fastjson2_reads(java_reads: Read) -> dict[str, object]:
    """What tests/golden/fastjson2-5.5.0.json says."""
    found: dict[str, object] = {}
    for case, answer in zip(
        CASES, java_reads([(case.java_class, case.text) for case in CASES]), strict=True
    ):
        seen = REFUSED if isinstance(answer, str) else case.seen(answer)
        if normalized(seen) != normalized(case.java if "5.3.3" in case.lines else REFUSED):
            found[case.key] = seen
    for header, answer in zip(
        HEADERS, java_reads([("RemotingCommand", each.text) for each in HEADERS]), strict=True
    ):
        seen = REFUSED if isinstance(answer, str) else _member(answer, header.member)
        if "5.3.3" not in header.lines or normalized(seen) != normalized(header.java):
            found[header.key] = seen
    return found
