"""Lines for streams that are closed, full, or in another encoding."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from spark.command.output import say, say_text

ROOT = Path(__file__).resolve().parents[3]


def test_a_line() -> None:
    stream = io.StringIO()
    assert say(stream, "a – b")
    assert stream.getvalue() == "a – b\n"


def test_a_line_is_one_line_and_nothing_that_a_terminal_obeys() -> None:
    stream = io.StringIO()
    say(stream, "c/b\nproved: all\r\x1b[2J\u202e\0")
    assert stream.getvalue() == "c/b\\u000aproved: all\\u000d\\u001b[2J\\u202e\\u0000\n"
    say_text(stream, "a\nb")
    assert stream.getvalue().endswith("\na\nb\n")


def test_what_the_encoding_lacks_is_escaped() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    assert say(stream, "a – \ud800")
    assert raw.getvalue() == b"a \\u2013 \\ud800\n"


def test_streams_that_cannot_be_written() -> None:
    assert not say(None, "x")
    with open("/dev/full", "w", encoding="utf-8") as full:
        assert not say(full, "x")
        assert not say(full, "y")
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as pipe:
        assert not say(pipe, "x")


def test_a_full_stdout_does_not_decide_the_exit_code() -> None:
    """Python's own would be 120: it tries once more what is left in the stream."""
    program = (
        "import sys; from spark.command.output import say;"
        " sys.exit(0 if say(sys.stdout, 'x') else 5)"
    )
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=full, timeout=60)
    assert result.returncode == 5
