"""The official clients as loads: synchronous sends of Java's (4.9.8) and of Go's (2.1.2), and a
push consumer of Java's that waits for what a producer sends at a rate, and one that writes Parquet.

One process for all runs of a session: tests/interop/src/bench/SyncSends.java, PushLatencies.java or
src/parquet/ParquetConsumer.java in a JVM, or src/go/sync_sends.go, which is built when it is not
there yet. Used by the thread of the benchmark.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.measuring import OUT_DIR
from tests.interop.java_peers import (
    INTEROP_DIR,
    QUIET_JVM,
    bench_classpath,
    java_command,
    parquet_classpath,
)

_GO_SOURCES: Final = INTEROP_DIR / "src" / "go"
_JVM: Final = (
    *("-server", "-Xms256m", "-Xmx1g", "-XX:+UseG1GC"),
    *(*QUIET_JVM, "-XX:+DisplayVMOutputToStderr"),  # stdout is for figures
)
_END_S: Final = 10


class ClientProcess:
    """Clients that find their brokers through `namesrv`; their files are under `directory`.

    In a session of their own, as clients on another host: see busy_loops.py.
    """

    def __init__(self, program: str, namesrv: str, directory: Path) -> None:
        """program: "java" or "go", which `send`, "java-push", which does `stream`, "java-parquet",
        which does `to_parquet`."""
        directory.mkdir(parents=True)
        self._log = (directory / "client.log").open("w+")
        commands = {
            "java": _java,
            "java-push": _java_push,
            "java-parquet": _java_parquet,
            "go": _go,
        }
        command, env = commands[program](namesrv, directory)
        self._name = f"the {program} client"
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **env},
            encoding="utf-8",
            start_new_session=True,
        )

    def send(self, topic: str, threads: int, total: int, body: int) -> dict[str, float]:
        """Synchronous sends by `threads` threads; figures as the load generator's.

        Raises RuntimeError when the client ended.
        """
        return self._run(topic, threads, total, body)

    def stream(self, topic: str, queues: int, rate: int, total: int, body: int) -> dict[str, float]:
        """`rate` messages a second to a topic that is new, with a push consumer behind them:
        latencies from due to the listener, publish_… to the answer; missing, duplicates.

        Raises RuntimeError when the client ended.
        """
        return self._run(topic, queues, rate, total, body)

    def to_parquet(self, topic: str, messages: int, file: Path) -> dict[str, float]:
        """So many messages from the topic's beginning, into a file: messages, seconds, cpu_s.

        Raises RuntimeError when the client ended.
        """
        return self._run(topic, messages, file)

    def _run(self, *words: object) -> dict[str, float]:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.write(" ".join(map(str, words)) + "\n")
            self._popen.stdin.flush()
        line = self._popen.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"{self._name} ended:\n{self._log.read()[-3000:]}")
        return {key: float(value) for key, value in (pair.split("=") for pair in line.split())}

    def close(self) -> None:
        """End the process."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        try:
            self._popen.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        self._log.close()


def missing_tool(language: str) -> str | None:
    """What this machine lacks for a client, for instance "go", or None."""
    return "go" if language == "go" and shutil.which("go") is None else None


def _java(
    namesrv: str, directory: Path, main: str = "bench.SyncSends"
) -> tuple[Sequence[str], Mapping[str, str]]:
    return java_command(bench_classpath(), main, directory, jvm=_JVM, args=[namesrv]), {}


def _java_push(namesrv: str, directory: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    return _java(namesrv, directory, "bench.PushLatencies")


def _java_parquet(namesrv: str, directory: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    main = "parquet.ParquetConsumer"
    return java_command(parquet_classpath(), main, directory, jvm=_JVM, args=[namesrv]), {}


def _go(namesrv: str, directory: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    OUT_DIR.mkdir(exist_ok=True)
    program = OUT_DIR / "sync_sends"
    # Builds what has changed; fetches the client's modules the first time.
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=_GO_SOURCES, check=True)
    return [str(program), namesrv], {"HOME": str(directory)}
