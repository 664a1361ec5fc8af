"""Runs each request of its input in a child of its own, which may kill itself.

Used by the children of fault tests (`python -m tests.faults...`): a fork is cheaper than a fresh
interpreter for each of hundreds of deaths.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def serve(play: Callable[[dict[str, Any]], None]) -> None:
    """Fork for every request (a line of JSON on stdin) until the input ends; each child's exit
    code, negative for a signal, on stdout."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                play(json.loads(line))
                code = 0
            finally:
                sys.stderr.flush()
                if code:
                    sys.excepthook(*sys.exc_info())
                    sys.stderr.flush()
                os._exit(code)
        status = os.waitpid(pid, 0)[1]
        print(os.waitstatus_to_exitcode(status), flush=True)
