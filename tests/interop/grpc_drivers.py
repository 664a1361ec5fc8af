"""Clients of 5.x that speak gRPC to a proxy, in three languages, with one set of operations.

Each is a process of its own around the client's release (src/grpc/): rocketmq-client-java of Maven
Central, rocketmq-python-client of PyPI, rocketmq-client-nodejs of npm, fetched once like the jars.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.driver import CommandProcess
from tests.interop.java_peers import (
    INTEROP_DIR,
    QUICK_JVM,
    fetched,
    grpc_classpath,
    java_command,
)
from tests.interop.processes import wait_until

LANGUAGES = ("java", "python", "node")
_PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
_NODE_CLIENT = "rocketmq-client-nodejs@1.0.8"
_CALL_TIMEOUT_S = 60.0
_NAMES = itertools.count(1)


def missing_tools(language: str) -> str | None:
    """Why the client of `language` cannot be used on this machine, or None when it can."""
    absent = [tool for tool in ("node", "npm") if language == "node" and not shutil.which(tool)]
    return f"needs {', '.join(absent)} on the PATH" if absent else None


def python_packages() -> Path:
    """The Python client with all that it needs, apart from what the tests have installed: it wants
    releases of its own of packages that others use, too."""

    def fetch(part: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        return [*pip, "--target", str(part), _PYTHON_CLIENT]

    name = f"lib-{_PYTHON_CLIENT.replace('==', '-')}-{sys.implementation.cache_tag}"
    return fetched(name, fetch)


def node_packages() -> Path:
    """The Node client with all that it needs."""

    def fetch(part: Path) -> list[str]:
        part.mkdir(parents=True)
        quiet = ["--no-audit", "--no-fund", "--silent", "--ignore-scripts"]
        return ["npm", "install", *quiet, "--prefix", str(part), _NODE_CLIENT]

    return fetched(f"lib-{_NODE_CLIENT.replace('@', '-')}", fetch) / "node_modules"


def _commands(
    endpoints: str, directory: Path, jvm: Sequence[str]
) -> dict[str, Callable[[], list[str]]]:
    sources = INTEROP_DIR / "src" / "grpc"

    def java() -> list[str]:
        flags = (*QUICK_JVM, "-Xms32m", "-Xmx256m", *jvm)
        main = "grpc.GrpcClient"
        return java_command(grpc_classpath(), main, directory, jvm=flags, args=[endpoints])

    return {
        "java": java,
        "python": lambda: [sys.executable, str(sources / "grpc_client.py"), endpoints],
        "node": lambda: ["node", str(sources / "grpc_client.js"), endpoints],
    }


@dataclass(frozen=True, slots=True)
class Received:
    """A message that a consumer got. key: names this delivery in `ack` and `change`."""

    key: str
    message_id: str
    body: str
    tag: str | None
    group: str | None
    attempt: int
    at_ms: int


class GrpcDriver:
    """The client of one language before one proxy."""

    def __init__(
        self, language: str, endpoints: str, directory: Path, jvm: Sequence[str] = ()
    ) -> None:
        """jvm: more options of Java's."""
        self.language = language
        env = {"HOME": str(directory)}
        if language == "python":
            env["PYTHONPATH"] = str(python_packages())
        if language == "node":
            env["NODE_PATH"] = str(node_packages())
        command = _commands(endpoints, directory, jvm)[language]()
        self._process = CommandProcess(f"grpc-{language}", command, directory, env)

    def submit(self, op: str, **arguments: Any) -> Future[Any]:
        """Start an operation."""
        return self._process.submit(op, **arguments)

    def call(self, op: str, **arguments: Any) -> Any:
        """Run an operation. Raises DriverError with what the client threw."""
        return self.submit(op, **arguments).result(_CALL_TIMEOUT_S)

    def producer(self, topic: str, resolution: str | None = None) -> str:
        """A started producer's name. resolution: what it says when it is asked (39)."""
        name = f"{self.language}-{next(_NAMES)}"
        more = {"resolution": resolution} if resolution else {}
        self.call("producer", name=name, topic=topic, **more)
        return name

    def simple(self, topic: str, group: str, tag: str = "*") -> str:
        """A started SimpleConsumer's name."""
        name = f"{self.language}-{next(_NAMES)}"
        self.call("simple", name=name, topic=topic, group=group, tag=tag, await_ms=5000)
        return name

    def receive(self, name: str, invisible_ms: int = 10_000) -> list[Received]:
        """One ReceiveMessage of a SimpleConsumer."""
        found = self.call("receive", name=name, max=16, invisible_ms=invisible_ms)
        return [Received(**entry) for entry in found]

    def push(self, topic: str, group: str, failures: int = 0) -> str:
        """A started PushConsumer's name, which fails the first deliveries of each message."""
        name = f"{self.language}-{next(_NAMES)}"
        self.call("push", name=name, topic=topic, group=group, tag="*", failures=failures)
        return name

    def pushed(self, name: str, count: int, timeout_s: float = 30.0) -> list[Received]:
        """What a PushConsumer got, once it is `count` deliveries."""
        wait_until(
            lambda: len(self.call("pushed", name=name)) >= count,
            f"{count} deliveries at the {self.language} client",
            timeout_s,
            poll_s=0.1,
        )
        return [Received(**entry) for entry in self.call("pushed", name=name)]

    def close(self, timeout_s: float = 5.0) -> None:
        """End the process (its stdin ends)."""
        self._process.close(timeout_s)
