"""examples/: what its README tells a reader to type is done, against a broker of ours.

Python's is in test_proxy.py, where a proxy runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from conf.compiled_modules import OFF, VARIABLE
from tests.interop import harness
from tests.interop.java_peers import CLIENT_5, driver_classpath
from tests.interop.processes import wait_until
from tests.support.our_broker import OurBroker
from tests.support.program import own_interpreters

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = ROOT / "examples"
TEXTS: Final = ("a first message", "and a second")
LIMIT_S: Final = 120
ROOMS: Final = ("conf", "ipc", "remoting", "store", "ha", "namesrv", "broker")


def run(command: Sequence[str], directory: Path, env: Mapping[str, str] | None = None) -> list[str]:
    """The lines that a program prints; raises CalledProcessError when it fails."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    """Where a broker of ours has registered; both end with the test."""
    with contextlib.ExitStack() as ends:
        names = harness.name_server("ours", tmp_path / "namesrv").start()
        ends.callback(names.stop)
        broker = harness.broker("ours", tmp_path / "broker", names.address)
        ends.callback(broker.kill)
        broker.start()
        yield names.address


@pytest.mark.long
def test_java(name_server: str, tmp_path: Path) -> None:
    java = ["java", f"-Duser.home={tmp_path}", "-cp", driver_classpath(CLIENT_5)]
    sent = run([*java, "Producer.java", name_server, "Hello", *TEXTS], EXAMPLES / "java")
    assert [line.split()[0] for line in sent] == ["SEND_OK"] * 2
    taken = run([*java, "Consumer.java", name_server, "Hello", "2"], EXAMPLES / "java")
    assert sorted(taken) == sorted(TEXTS)


@pytest.mark.long
def test_go(name_server: str) -> None:
    if shutil.which("go") is None:
        pytest.skip("needs go on the PATH")
    go = ["go", "run"]
    sent = run([*go, "./producer", name_server, "Hello", *TEXTS], EXAMPLES / "go")
    assert sum("sendStatus=0" in line for line in sent) == 2
    taken = run([*go, "./consumer", name_server, "Hello", "2"], EXAMPLES / "go")
    assert sorted(taken) == sorted(TEXTS)


def test_a_request_code_of_ones_own(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for room in ROOMS:
        shutil.copytree(ROOT / room, checkout / room, ignore=shutil.ignore_patterns("__pycache__"))
    example = EXAMPLES / "processor"
    shutil.copy(example / "topic_size_processor.py", checkout / "broker" / "admin")
    run(["git", "apply", str(example / "add.patch")], checkout)
    broker = OurBroker(tmp_path / "broker")
    # What was compiled is of other sources.
    env = {"PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1", VARIABLE: OFF}
    broker.env.update(env)
    with own_interpreters(), broker.start():
        with broker.client() as client:
            for _ in range(3):
                client.send("Hello", 0, b"body")
            wait_until(lambda: client.offset(30, "Hello", 0) == 3, "three messages")
        ask = [sys.executable, str(example / "ask.py"), f"127.0.0.1:{broker.ports['main']}"]
        assert run([*ask, "Hello"], tmp_path, env) == ["3"]
        with pytest.raises(subprocess.CalledProcessError):
            run([*ask, "Unknown"], tmp_path, env)
