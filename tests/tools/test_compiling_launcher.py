"""bin/mqbroker in a checkout: compiles beside the broker that serves; the next start uses it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conf.compiled_modules import compiled_directory
from tests.support.broker_copy import copy_broker
from tests.support.deadline import wait_until
from tests.support.our_broker import SMALL_FILES
from tools.chaos.processes import children_of, is_running

ROOT = Path(__file__).resolve().parents[2]
LIST = """COMPILED_MODULES = ("remoting.java_text", "remoting.receive_buffer")\n"""
NO_COMPILER = """
from pathlib import Path
from conf.compiled_modules import LIBRARY, LIBRARY_SUFFIX
from tools.compiled_module_list import COMPILED_MODULES
from tools.mqcompile import BUILT
for name in (LIBRARY, *COMPILED_MODULES):
    path = Path(BUILT, *name.split(".")[:-1], name.split(".")[-1] + LIBRARY_SUFFIX)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
"""
"""In the place of what calls mypyc and the C compiler."""
# What runs only when nobody else wants to waits for the other tests.
PATIENCE_S = 240.0

pytestmark = pytest.mark.timeout(600)


@dataclass
class Launched:
    """bin/mqbroker of a checkout of its own."""

    root: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def checkout(self) -> Path:
        return self.root / "checkout"

    def start(self) -> None:
        """Until it serves. Its virtual environment is that of the tests."""
        settings = {
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": 0,
            "metricsPort": 0,
            "embeddedNamesrvPort": 0,
            "diskMaxUsedSpaceRatio": 95,
            "storePathRootDir": self.root / "store",
            "logDir": self.root / "logs",
            **SMALL_FILES,
        }
        conf = self.root / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        shutil.rmtree(self.root / "logs", ignore_errors=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ROCKETMQ", "PYTHO"))}
        with (self.root / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [self.checkout / "bin/mqbroker", "-c", conf],
                env={
                    **inherited,
                    "BROKER_VENV": sys.prefix,
                    "ROCKETMQ_RUN_DIR": str(self.root / "run"),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = self.process
        wait_until(lambda: "boot success" in self.output() or process.poll() is not None, 60)
        assert process.poll() is None, self.output()

    def output(self) -> str:
        return (self.root / "output").read_text()

    def log(self) -> str:
        return (self.root / "logs/broker.log").read_text()

    def wait_compiling(self) -> list[int]:
        """The processes that compile, the first of which leads them."""
        wait_until(lambda: "mqcompile: compiling" in self.output(), PATIENCE_S)
        assert self.process is not None
        (first,) = (pid for pid in children_of(self.process.pid) if _policy(pid) == os.SCHED_IDLE)
        wait_until(lambda: children_of(first))
        return [first, *children_of(first)]

    def wait_compiled(self) -> None:
        """Until its one line is in the log."""
        wait_until(lambda: "compiling in the background: " in self.log(), PATIENCE_S)

    def terminate(self) -> None:
        """In order."""
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(60) == 0

    def crash(self) -> None:
        """The end of a test."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _policy(pid: int) -> int:
    try:
        return os.sched_getscheduler(pid)
    except ProcessLookupError:
        return -1


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    launched = Launched(tmp_path)
    copy_broker(launched.checkout)
    shutil.copytree(ROOT / "bin", launched.checkout / "bin")
    shutil.copytree(ROOT / "tools", launched.checkout / "tools")
    (launched.checkout / "tools/compiled_module_list.py").write_text(LIST)
    yield launched
    launched.crash()


@pytest.mark.slow
def test_the_launcher_has_it_compiled_once(launched: Launched) -> None:
    """All but mypyc and the C compiler."""
    (launched.checkout / "tools/mypyc_build.py").write_text(NO_COMPILER)
    launched.start()
    launched.wait_compiled()
    said = re.findall(r"compiling in the background: (.*)", launched.log())
    directory = compiled_directory(launched.checkout)
    assert len(said) == 1
    assert re.fullmatch(f"compiled in [0-9]+ s: {directory}; the next start uses them", said[0])
    assert launched.output().count("mqcompile: ") == 1
    assert directory.exists()
    launched.terminate()


@pytest.mark.long
def test_the_next_start_uses_what_was_compiled(launched: Launched) -> None:
    """With the real compilers; the first time the broker ends before they are done."""
    launched.start()
    compiling = launched.wait_compiling()
    launched.terminate()
    wait_until(lambda: not any(map(is_running, compiling)))
    assert not compiled_directory(launched.checkout).exists()
    launched.start()
    launched.wait_compiled()
    assert compiled_directory(launched.checkout).exists(), launched.log()
    launched.terminate()
    launched.start()
    assert "2 modules are compiled ones" in launched.log()
    launched.terminate()
    assert "mqcompile: " not in launched.output()
    left = {path.suffix for path in compiled_directory(launched.checkout).parent.iterdir()}
    assert left == {"", ".lock"}, "nothing half made"
