"""child_entry: how a child that the supervisor forks begins.

Runs on the supervisor's main thread before it forks; the supervisor of a broker and that of a
container use it. Its use as it is: tests/broker/supervisor/test_forked_process.py.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable

from broker.processes.child import run_child
from broker.supervisor.child_state import ChildEntry
from broker.supervisor.supervisor import NUMPY_ENVIRONMENT
from store.disk_fault_hooks import are_installed


def child_entry(module: str) -> ChildEntry | None:
    """How a forked child begins. None where each process has to put disk faults in place itself."""
    return None if are_installed() else functools.partial(_import_main, module)


def _import_main(module: str) -> Callable[[int], None]:
    os.environ.update(NUMPY_ENVIRONMENT)
    return functools.partial(run_child, importlib.import_module(module).main)
