"""The side of a metrics dump that dies: `python -m tests.faults.dump_child`.

Reads one request a line (JSON), forks, and lets the child write a dump over the turn of an hour
to its orderly stop; it kills itself with SIGKILL at the step it was told (tests/faults/
step_child.py has the steps and the way they are found). Every system call is a step, before and
after it, and a write tears in its middle. The answer is one line: how the child ended.

    request  {"root": metricsDumpPath, "kill_at": step or -1, "steps": file that gets their names,
              "told": file that gets the boot id and then each seq whose line was written}
"""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

from broker.metrics.metrics_dump import MetricsDump
from broker.metrics.metrics_dump_files import DumpSettings
from tests.faults.fork_server import serve
from tests.faults.step_child import Steps
from tests.support.manual_clock import ManualClock

INTERVAL_MS = 5_000
TURN_OF_HOUR_MS = 1_767_222_000_000
START_MS = TURN_OF_HOUR_MS - 2 * INTERVAL_MS
TURNS = 4
"""Two lines before the turn of the hour, two behind it, and the last one."""
_CALLS = ("open", "close", "fdatasync", "fsync", "rename", "unlink", "ftruncate", "mkdir", "rmdir")


def dump_in(root: Path, clock: ManualClock) -> MetricsDump:
    """The dump of one broker, bounded to a day."""
    settings = DumpSettings(
        directory=root,
        cluster="C1",
        broker="broker-a",
        broker_id=0,
        interval_ms=INTERVAL_MS,
        max_bytes=1 << 20,
        keep_days=1,
    )
    return MetricsDump(settings, lambda _: {"cluster": "C1", "text": "x" * 100}, clock)


def _patch(steps: Steps) -> None:
    for name in _CALLS:
        setattr(os, name, steps.around(name, getattr(os, name)))
    write = os.write

    def torn_write(fd: int, data: Any) -> int:
        half = len(data) // 2
        steps.hit(f"before write of {len(data)}")
        done = write(fd, data[:half]) if half else 0
        steps.hit(f"write of {len(data)} torn at {half}")
        done += write(fd, data[half:])
        steps.hit(f"after write of {len(data)}")
        return done

    os.write = torn_write


def play(request: dict[str, Any]) -> None:
    """A life of a dump, if it comes to its end."""
    logging.disable(logging.CRITICAL)
    signal.alarm(60)
    write = os.write
    told = os.open(request["told"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    steps = Steps(request["kill_at"])
    clock = ManualClock(now_ms=START_MS)
    dump = dump_in(Path(request["root"]), clock)
    write(told, f"{dump.boot}\n".encode())
    append = dump._files.append

    def append_and_tell(ts_ms: int, seq: int, line: bytes) -> None:
        append(ts_ms, seq, line)
        write(told, f"{seq}\n".encode())

    dump._files.append = append_and_tell  # type: ignore[method-assign]
    _patch(steps)
    for _ in range(TURNS):
        dump.turn()
        clock.advance(INTERVAL_MS)
    dump.finish()
    write(told, f"failures {dump.failures}\n".encode())
    Path(request["steps"]).write_text("\n".join(steps.names))


if __name__ == "__main__":
    serve(play)
