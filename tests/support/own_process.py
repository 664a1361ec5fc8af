"""`python -m namesrv` and `python -m controller` as a user starts them: each in a process of its
own, with nothing of the tests' environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
Start = Callable[..., "subprocess.Popen[str]"]
"""Starts one with these settings more."""


@contextmanager
def started(module: str, directory: Path, usual: Mapping[str, str]) -> Iterator[Start]:
    """Starts of `module` with `usual` settings, on a port of loopback that is free; its logs and
    pid file are in `directory`. Kills what is left at the end."""
    processes: list[subprocess.Popen[str]] = []

    def start(**changes: str) -> subprocess.Popen[str]:
        values = {
            "bindAddress": "127.0.0.1",
            "listenPort": "0",
            "logDir": f"{directory}/logs",
            **usual,
            **changes,
        }
        settings = directory / f"{module}.conf"
        settings.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "ROCKETMQ_HOME": str(ROOT),
            "ROCKETMQ_RUN_DIR": str(directory / "run"),
            "PYTHONPATH": str(ROOT),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", module, "-c", str(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=directory,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def boot_port(process: subprocess.Popen[str], name: str) -> int:
    """The port of the boot line of "The {name} Server", the last of the lines before serving."""
    assert process.stdout is not None
    assert process.stdout.readline().startswith("load config properties file OK, ")
    line = process.stdout.readline()
    words = f"The {name} Server boot success. serializeType=JSON, address 127.0.0.1:"
    assert line.startswith(words), process.stderr.read() if process.stderr else ""
    return int(line.removeprefix(words))
