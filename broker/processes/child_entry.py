"""child_entry: how a child that the supervisor forks begins.

Runs on the main thread of the forked child; the supervisor of a broker and that of a container pass
it on. The child imports its own modules: those that the supervisor imported before it forks would
stay in the supervisor, and in every other child, and each process gets its own copy of a page as
soon as it counts a reference to one object in it.

Its use as it is: tests/broker/supervisor/test_forked_process.py.
"""

from __future__ import annotations

import functools
import importlib
import os

from broker.processes.child import run_child
from broker.supervisor.child_state import ChildEntry
from broker.supervisor.supervisor import NUMPY_ENVIRONMENT
from store.disk_fault_hooks import are_installed


def child_entry(module: str) -> ChildEntry | None:
    """How a forked child begins. None where each process has to put disk faults in place itself."""
    return None if are_installed() else functools.partial(_run, module)


def _run(module: str, boot_fd: int) -> None:
    os.environ.update(NUMPY_ENVIRONMENT)
    run_child(importlib.import_module(module).main, boot_fd)
