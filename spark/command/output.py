"""Lines for stdout and stderr, which may be closed, full, or a pipe that nobody reads.

Called on the driver's main thread by whatever tells something. Knows nothing of what is told. What
cannot be written must not decide the exit code, which is the verdict.
"""

from __future__ import annotations

import contextlib
from typing import TextIO


def say(stream: TextIO | None, line: str) -> bool:
    """Writes a line at once; whether it could be written.

    `stream` is None when the program was started without it (`2>&-`). One that fails is closed:
    Python would try once more at its end what is left in it, and then exit with 120.
    """
    if stream is None:
        return False
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()
    except (OSError, ValueError):  # the latter: it is closed
        with contextlib.suppress(OSError, ValueError):
            stream.close()
        return False
    return True
