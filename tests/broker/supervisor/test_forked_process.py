"""A forked child: what it keeps of its parent, how its end is seen. In an interpreter with a single
thread, which the test's own is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = """
import logging, os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from conf.logging_setup import configure_logging
from broker.supervisor.forked_process import fork_child, may_fork

assert may_fork()
configure_logging("supervisor", sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: print("the parent's handler", flush=True))
kept, kept_end = os.pipe()
other, other_end = os.pipe()
print("not printed twice", end=" ")

def look():
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    there = [number for number in numbers if os.path.exists(f"/proc/self/fd/{number}")]
    assert there == [0, 1, 2, kept_end], there
    assert os.readlink("/proc/self/fd/0") == "/dev/null"
    assert os.getpgid(0) == os.getpid()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    configure_logging("store", sys.argv[1])
    logging.getLogger().info("of the child")
    os.write(kept_end, b"seen")

def leave_threads():
    ThreadPoolExecutor(1).submit(time.sleep, 0.01)
    threading.Thread(target=lambda: (time.sleep(0.1), os.write(kept_end, b"late"))).start()

def fail():
    raise ValueError("its cause")

child = fork_child(look, (kept_end,))
assert child.wait() == 0 and child.poll() == 0 == child.returncode
assert os.read(kept, 9) == b"seen"
child.kill()
assert fork_child(leave_threads, (kept_end,)).wait() == 0
assert os.read(kept, 9) == b"late"
assert fork_child(lambda: sys.exit(5), ()).wait() == 5
assert fork_child(sys.exit, ()).wait() == 0
assert fork_child(lambda: sys.exit("words"), ()).wait() == 1
assert fork_child(fail, ()).wait() == 1
sleeper = fork_child(lambda: time.sleep(60), ())
assert sleeper.poll() is None
sleeper.send_signal(signal.SIGTERM)
assert sleeper.wait() == -signal.SIGTERM
thread = threading.Thread(target=time.sleep, args=(0.2,))
thread.start()
assert not may_fork()
print("done")
"""

IMPORTS = """
import broker.__main__, broker.processes.contained, broker.processes.container
from broker.supervisor.forked_process import may_fork

assert may_fork(), "the supervisor's own modules start threads"
print("done")
"""


def test_no_module_keeps_the_supervisor_from_forking() -> None:
    """As numpy does, for each further processor, unless it is told not to before."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "done\n", done.stderr


def test_a_child_keeps_what_it_inherits_and_nothing_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "not printed twice done\n", done.stderr
    assert done.returncode == 0
    assert "ValueError: its cause" in done.stderr
    assert "of the child" in (tmp_path / "store.log").read_text()
    assert "of the child" not in (tmp_path / "broker.log").read_text()
