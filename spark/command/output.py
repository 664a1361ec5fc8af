"""Lines for stdout and stderr, which may be closed, full, or a pipe that nobody reads.

Names that others chose stand in them: a line is one line, and has nothing that a terminal obeys.

Called on the main thread by the commands. A line that cannot be written must not decide the exit
code, which is the verdict. Knows nothing of what the lines say.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Final, TextIO

from spark.figures import wording

PROGRAM: Final = "mqreport"


def say(stream: TextIO | None, line: str) -> bool:
    """Writes a line at once, what is invisible in it as `\\u000a`; whether it could be written."""
    return say_text(stream, wording.visible(line))


def say_text(stream: TextIO | None, text: str) -> bool:
    """Writes a text of ours, which may have several lines, at once; whether it could be written.

    `stream` is None when the program was started without it (`2>&-`). One that fails is closed:
    at exit Python would write again what is left in it, and then exit with 120.
    """
    if stream is None:
        return False
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()
    except (OSError, ValueError):  # the latter: it is closed
        with contextlib.suppress(OSError, ValueError):
            stream.close()
        return False
    return True


def complain(text: str) -> None:
    """An error or a note, on stderr."""
    say(sys.stderr, f"{PROGRAM}: {text}")


def deliver(text: str, path: str | None) -> None:
    """The text that a command was asked for: to a file, else to stdout. Raises OSError."""
    if path is None:
        say_text(sys.stdout, text.rstrip("\n"))
    else:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise OSError(error.errno, f"cannot be written: {error.strerror}", path) from error
