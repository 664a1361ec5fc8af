"""The official Java client (4.9.8) as a load: src/bench/SyncSends.java in a JVM of its own.

One JVM for all runs of a session. Used by the thread of the benchmark.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Final

from tests.interop.java_peers import bench_classpath, java_command

_JVM: Final = ("-server", "-Xms256m", "-Xmx1g", "-XX:+UseG1GC")
_END_S: Final = 10


class JavaClient:
    """A producer that finds its brokers through `namesrv`; its files are under `directory`."""

    def __init__(self, namesrv: str, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._log = (directory / "client.log").open("w+")
        command = java_command(
            bench_classpath(), "bench.SyncSends", directory, jvm=_JVM, args=[namesrv]
        )
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="utf-8",
        )

    def send(self, topic: str, threads: int, total: int, body: int) -> dict[str, float]:
        """Synchronous sends by `threads` threads; figures as the load generator's.

        Raises RuntimeError when the client ended.
        """
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.write(f"{topic} {threads} {total} {body}\n")
            self._popen.stdin.flush()
        line = self._popen.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the Java client ended:\n{self._log.read()[-3000:]}")
        return {key: float(value) for key, value in (pair.split("=") for pair in line.split())}

    def close(self) -> None:
        """End the JVM."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        self._log.close()
