"""What the comparisons share: which brokers, CPU and memory of their processes, the load generator.

Runs in the process of the benchmark. Which Java releases are compared with, tests/interop/
java_peers.py decides.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from conf import compiled_modules
from tests.interop import harness
from tests.interop.java_peers import server_version
from tests.interop.processes import ServerProcess, process_tree
from tools.chaos.free_ports import free_port

BENCH_DIR: Final = Path(__file__).resolve().parent
OUT_DIR: Final = BENCH_DIR / "out"
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Side:
    """One of those that are compared. kind: as harness.broker takes it."""

    kind: str
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        return self.kind == "ours"

    @property
    def version(self) -> str:
        """The release of a Java broker; nothing for ours."""
        return "" if self.is_ours else server_version(self.kind.removeprefix("java-"))


COMPILED: Final = "compiled"
SOURCES: Final = "sources"
JAVA: Final = "java"
JAVA_5: Final = "java-5.5"
BROKERS: Final = {
    COMPILED: Side("ours", {compiled_modules.VARIABLE: compiled_modules.REQUIRED}),
    SOURCES: Side("ours", {compiled_modules.VARIABLE: compiled_modules.OFF}),
    "ours": Side("ours"),
    JAVA: Side("java-4.9"),
    JAVA_5: Side("java-5.5"),
}
"""By the name of the side. "ours" is whatever of the first two a start of ours gives."""
SIDES: Final = ("ours", JAVA)
"""The pair of those commands that compare two."""
KINDS: Final = (COMPILED, SOURCES)
JAVAS: Final = (JAVA, JAVA_5)
LIMIT: Final = "limit"
LIMIT_C: Final = "limit-c"
LIMITS: Final = (LIMIT, LIMIT_C)
"""Not brokers, but stripped_broker.py and stripped_broker.c, where a side may be named."""
JAVA_JVM: Final = ("-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:+AlwaysPreTouch")
RECORD_OVERHEAD: Final = 190  # bytes of loadgen's records besides the body

_OPENSSL: Final = ("-DWITH_OPENSSL", "-lssl", "-lcrypto")
_STRIPPED_READY: Final = r"The broker\[(stripped), ([0-9.]+):(\d+)\] boot success"
_QUIET_SHARE: Final = 0.15
"""Of a core: Java 5.5.0 uses 0.07 with nothing to do."""
_QUIET_STEP_S: Final = 0.3


def side_broker(
    side: str,
    directory: Path,
    namesrv: str | None = None,
    *,
    jvm: Sequence[str] = (),
    **more: Any,
) -> harness.Broker:
    """The broker of a side at a free port, not started; Java's with the heap of a server. namesrv,
    more: as harness.broker takes them. jvm: more options of a Java broker."""
    if side in LIMITS:
        return _stripped_broker(side, directory)
    known = BROKERS[side]
    return harness.broker(
        known.kind,
        directory,
        namesrv,
        port=free_port(-2, 1),
        jvm=() if known.is_ours else (*JAVA_JVM, *jvm),
        **{**more, "env": {**known.env, **more.get("env", {})}},
    )


def _stripped_broker(side: str, directory: Path) -> harness.Broker:
    port = free_port()
    command = [sys.executable, "-m", "tests.bench.stripped_broker", str(port)]
    if side == LIMIT_C:
        directory.mkdir(parents=True, exist_ok=True)
        command = [str(build("stripped_broker")), str(port), str(directory / "log-file")]
    env = {"PYTHONPATH": str(harness.REPO_DIR)}
    process = ServerProcess("stripped broker", command, directory / "log", _STRIPPED_READY, env)
    return harness.Broker(side, process, "stripped", port, directory, None)


class MemoryWatch:
    """Highest sum of RssAnon over a broker's processes; samples in a thread of its own."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="MemoryWatch", daemon=True)
        self.highest = 0

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.highest = max(self.highest, rss_anon(self._pid))
            if self._done.wait(0.25):
                self.highest = max(self.highest, rss_anon(self._pid))
                return


def rss_anon(pid: int) -> int:
    """Anonymous memory of a process and its descendants, bytes."""
    return sum(figures.rss_anon for figures in process_tree(pid))


def cpu_s(pid: int) -> float:
    """CPU seconds so far of a process and its living descendants."""
    return sum(figures.cpu_s for figures in process_tree(pid))


def quiet_cpu_s(pid: int, timeout_s: float = 10) -> float:
    """`cpu_s` once the broker has worked off what it still had to do: under 15 % of a core."""
    deadline = time.monotonic() + timeout_s
    before = cpu_s(pid)
    while time.monotonic() < deadline:
        time.sleep(_QUIET_STEP_S)
        now = cpu_s(pid)
        if now - before <= _QUIET_SHARE * _QUIET_STEP_S:
            return now
        before = now
    return before


def first_touch_gb_s(size: int = 256 * MIB) -> float:
    """GB/s at which fresh anonymous memory can be written."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as fresh:
        view = (ctypes.c_char * size).from_buffer(fresh)
        begin = time.perf_counter()
        ctypes.memset(view, 1, size)
        seconds = time.perf_counter() - begin
        del view
    return size / seconds / 1e9


def build(name: str) -> Path:
    """out/<name>, compiled from <name>.c when that is newer."""
    return _compiled(name, name)


def build_loadgen() -> Path:
    """out/loadgen, with OpenSSL where this machine has its headers."""
    try:
        return _compiled("loadgen", "loadgen", *_OPENSSL, is_attempt=True)
    except subprocess.CalledProcessError:
        return build("loadgen")


def loadgen_has_openssl() -> bool:
    """Whether the load generator can speak TLS and sign requests."""
    done = subprocess.run([build_loadgen(), "openssl"], capture_output=True, text=True, check=True)
    return done.stdout == "openssl=1\n"


def build_library(name: str) -> Path:
    """out/<name>.so, to be loaded before a program's own libraries."""
    return _compiled(name, f"{name}.so", "-shared", "-fPIC", "-ldl")


def _compiled(name: str, output: str, *flags: str, is_attempt: bool = False) -> Path:
    """Put in place when it is whole: tests build at the same time. is_attempt: the compiler's words
    are for nobody. Raises CalledProcessError."""
    OUT_DIR.mkdir(exist_ok=True)
    target, source = OUT_DIR / output, BENCH_DIR / f"{name}.c"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        part = target.with_suffix(f".{os.getpid()}.part")
        command = ["cc", "-O2", "-o", str(part), str(source), *flags]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL if is_attempt else None)
        part.rename(target)
    return target


class Target(Protocol):
    """A broker that is loaded."""

    @property
    def port(self) -> int: ...
    def log_tail(self) -> str: ...


def run_load(
    mode: str,
    broker: Target,
    topic: str,
    *args: object,
    timeout_s: float = 600,
    before: Sequence[str] = (),
) -> dict[str, float]:
    """Run the load generator, in a session of its own (busy_loops.py); gives its figures, refused
    sends among them (`not_success`). before: what its command is an argument of.

    Raises RuntimeError when an answer was missing or a pull failed.
    """
    arguments = ("127.0.0.1", broker.port, topic, *args)
    command = [*before, str(build_loadgen()), mode, *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        start_new_session=True,
    )
    pairs = (pair.split("=") for pair in done.stdout.split() if "=" in pair)
    figures = {key: float(value) for key, value in pairs if key != "mode"}
    if done.returncode != 0 and not figures.get("not_success"):
        output = f"{done.stdout}{done.stderr}{broker.log_tail()}"
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{output}")
    return figures
