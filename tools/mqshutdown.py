"""mqshutdown broker|namesrv|controller|brokerContainer: stops all of this kind on this host.

Runs as a short-lived program of the operator. RocketMQ greps `ps` and returns at once; here
pid files name the running processes (`conf.pid_file`), and it returns when these have ended, so
that a start may follow. Same output; exit code 1 if nothing runs, as in 5.x. SIGTERM only: what to
do about a process that does not stop is the operator's decision. Standard library only, so that it
needs no virtual environment.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from conf.installation import enter_program
from conf.pid_file import PidRecord, running

KINDS: Final = {
    "broker": "mqbroker",
    "brokerContainer": "mqbrokercontainer",
    "namesrv": "mqnamesrv",
    "controller": "mqcontroller",
}
_SHOWN: Final = {"mqbrokercontainer": "broker container"}
"""What RocketMQ calls a kind, where that is not its program."""
USAGE: Final = (
    "Usage: mqshutdown broker | namesrv | controller | brokerContainer (--version prints the "
    "version)"
)
EXIT_FAILED: Final = 1
WAIT_S: Final = 30.0
"""Longer than a broker takes: its supervisor kills a process that has not stopped within 10 s. A
container takes that twice at most: for its slaves, then for its masters."""
_PAUSE_S: Final = 0.05
_PAUSE: Final = threading.Event()


def run() -> int:
    """The console script `mqshutdown` of an installed wheel."""
    enter_program("mqshutdown", sys.argv[1:], os.environ)
    return main(sys.argv[1:])


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 when every process found has stopped."""
    if len(arguments) != 1 or arguments[0] not in KINDS:
        print(USAGE)
        return EXIT_FAILED
    kind = KINDS[arguments[0]]
    records = running(kind)
    if not records:
        print(f"No {_SHOWN.get(kind, kind)} running.")
        if kind == KINDS["broker"] and running(KINDS["brokerContainer"]):
            print("A broker container is running: mqshutdown brokerContainer")
        return EXIT_FAILED
    told = [record for record in records if _ask(kind, record)]
    late = _wait(kind, told)
    for record in late:
        print(
            f"{_SHOWN.get(kind, kind)}({record.pid}) has not stopped within {WAIT_S:.0f} s:"
            f" see its log files, or end it with kill -9 {record.pid}"
        )
    return EXIT_FAILED if late or len(told) < len(records) else 0


def _wait(kind: str, told: Sequence[PidRecord]) -> list[PidRecord]:
    """The processes that still run at the deadline."""
    deadline = time.monotonic() + WAIT_S
    while left := [record for record in running(kind) if record in told]:
        if time.monotonic() >= deadline:
            break
        _PAUSE.wait(_PAUSE_S)
    return left


def _ask(kind: str, record: PidRecord) -> bool:
    kind = _SHOWN.get(kind, kind)
    print(f"The {kind}({record.pid}) is running...")
    try:
        os.kill(record.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it ended by itself since its file was read
    except PermissionError:
        print(f"{kind}({record.pid}) belongs to another user: stop it as that user")
        return False
    print(f"Send shutdown request to {kind}({record.pid}) OK")
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
