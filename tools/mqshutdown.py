"""mqshutdown broker|namesrv: asks every broker or name server of this host to stop.

Runs as a short-lived program of the operator. The original greps `ps`; here the pid files say who
runs (`conf.pid_file`). Same words; exit code 1 where nothing runs, as in 5.x. SIGTERM only: who
does not stop is the operator's decision. Standard library only, so that it needs no virtual
environment.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from conf.pid_file import PidRecord, running

KINDS = {"broker": "mqbroker", "namesrv": "mqnamesrv"}
USAGE = "Useage: mqshutdown broker | namesrv"
EXIT_FAILED = 1


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 when every process found was told to stop."""
    if len(arguments) != 1 or arguments[0] not in KINDS:
        print(USAGE)
        return EXIT_FAILED
    kind = KINDS[arguments[0]]
    records = running(kind)
    if not records:
        print(f"No {kind} running.")
        return EXIT_FAILED
    told = [_stop(kind, record) for record in records]
    return 0 if all(told) else EXIT_FAILED


def _stop(kind: str, record: PidRecord) -> bool:
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
