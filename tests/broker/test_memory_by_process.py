"""What a process of a broker has imported, and what it must not have: modules are most of the
memory of an idle broker, and whatever the supervisor imports before it forks is in every child.

The modules of each process are looked at in an interpreter of its own; numpy, by far the largest,
in the maps of a running broker, too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.our_broker import OurBroker
from tests.support.program import own_interpreters
from tools.chaos.processes import titled_children

ROOT = Path(__file__).parents[2]
METRICS_SITE = ("http.server", "prometheus_client")
NUMBERS = ("numpy",)
FILTERS = ("lark",)
FORMATS = ("yaml", "importlib.metadata", "zipfile")
"""Of files that most brokers do not have, and of wheels."""

MUST_NOT_IMPORT = {
    "broker.__main__": (
        *METRICS_SITE,
        *NUMBERS,
        *FILTERS,
        *FORMATS,
        "broker.broker_controller",
        "remoting.remoting_server",
        "store.default_message_store",
    ),
    "broker.processes.namesrv": (*METRICS_SITE, *NUMBERS, *FILTERS, *FORMATS),
    "broker.processes.ha": (*METRICS_SITE, *NUMBERS, *FILTERS, "yaml"),
    "broker.processes.store": (*METRICS_SITE, *FILTERS, *FORMATS, "remoting.remoting_server"),
    "broker.processes.remoting": METRICS_SITE,
}
"""By main module: "broker.__main__" is the supervisor when it forks. A package means all of it."""
WITHOUT_NUMPY = {"ha", "namesrv"}


@pytest.mark.parametrize("main", MUST_NOT_IMPORT)
def test_a_process_imports_no_more_than_it_uses(main: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {main}\nprint(*sys.modules)"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = done.stdout.split()
    assert main in imported
    assert [name for name in MUST_NOT_IMPORT[main] if name in imported] == []


def test_a_child_of_a_running_broker_maps_no_numpy_that_it_does_not_use(tmp_path: Path) -> None:
    with own_interpreters():
        broker = OurBroker(tmp_path).start()
    try:
        children = titled_children(broker.pid)
        mapping = {
            name
            for name, pid in children.items()
            if "/numpy/" in Path(f"/proc/{pid}/maps").read_text()
        }
        assert children.keys() - mapping == WITHOUT_NUMPY
    finally:
        broker.terminate()
