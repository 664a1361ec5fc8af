"""What a process of a broker has imported, and what it must not have: modules are most of the
memory of an idle broker, and whatever the supervisor imports before it forks is in every child.

The modules are those of an interpreter that forks as the supervisor does; numpy, by far the
largest, is looked for in the maps of a running broker, too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.our_broker import OurBroker
from tests.support.program import own_interpreters
from tools.chaos.processes import titled_children

ROOT = Path(__file__).parents[2]
METRICS_SITE = ("http.server", "prometheus_client")
NUMBERS = ("numpy",)
FILTERS = ("lark",)
FORMATS = ("yaml", "importlib.metadata", "zipfile")
"""Of files that most brokers do not have, and of wheels, which crc32c imports: it comes with the
first replica."""
TLS = ("ssl",)
PROGRAMS = ("subprocess", "argparse")

OF_LINES = ("javaproperties", "urllib.request")
"""The library of settings files with escapes, and what it brings along."""
NOBODY = (*METRICS_SITE, *FILTERS, *FORMATS, *TLS, *PROGRAMS, *OF_LINES)
MUST_NOT_IMPORT = {
    "broker.__main__": (
        *(*NOBODY, *NUMBERS, "remoting.remoting_server", "store.put_aside"),
        *("broker.broker_controller", "store.default_message_store", "remoting.body.heartbeat"),
    ),
    "broker.processes.namesrv": (*NOBODY, *NUMBERS),
    "broker.processes.ha": (*NOBODY, *NUMBERS),
    "broker.processes.store": (*NOBODY, "remoting.remoting_server"),
    "broker.processes.remoting": NOBODY,
}
"""By main module: "broker.__main__" is the supervisor, which forks the others."""
WITHOUT_NUMPY = {"ha", "namesrv"}
PROGRAM = """
import importlib, os, sys

for number, main in enumerate(sys.argv[1:]):
    if not number or not os.fork():
        importlib.import_module(main)
        print(main, *sys.modules, flush=True)
        if number:
            os._exit(0)
    else:
        os.wait()
"""


def test_a_process_imports_no_more_than_it_uses() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *MUST_NOT_IMPORT],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = {line.split()[0]: set(line.split()[1:]) for line in done.stdout.splitlines()}
    assert imported.keys() == MUST_NOT_IMPORT.keys()
    superfluous = {main: imported[main] & set(names) for main, names in MUST_NOT_IMPORT.items()}
    assert superfluous == {main: set() for main in MUST_NOT_IMPORT}


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
