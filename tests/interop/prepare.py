"""Makes the Java peers ready before tests want them: jars, our driver, archives of their classes.

Run by bin/test beside the other steps (python -m tests.interop.prepare). Nothing needs it: a test
fetches and compiles what is not there, and a JVM without an archive starts more slowly. An archive
is made by a JVM that runs for a moment and has then loaded what most tests need.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.interop import harness
from tests.interop.driver import Driver, DriverError
from tests.interop.java_peers import (
    CLIENT_VERSIONS,
    QUICK_JVM,
    QUIET_JVM,
    SERVER_LINES,
    archive_path,
    driver_classpath,
    missing_tools,
    server_lib,
)
from tests.interop.processes import PeerError


def main() -> None:
    """Everything that is not there yet."""
    if missing_tools() is not None:
        return
    work: list[Callable[[Path], None]] = []
    for version in CLIENT_VERSIONS:
        classpath = driver_classpath(version)
        work.append(lambda scratch, v=version, c=classpath: _archive_client(scratch, v, c))  # type: ignore[misc]
    for line in SERVER_LINES:
        classpath = f"{server_lib(line)}/*"
        work.append(lambda scratch, n=line, c=classpath: _archive_server(scratch, n, c))  # type: ignore[misc]
    with ThreadPoolExecutor() as pool, tempfile.TemporaryDirectory() as scratch:
        begun = [pool.submit(one, Path(scratch, str(n))) for n, one in enumerate(work)]
        for done in begun:
            done.result()


def _archive_server(scratch: Path, line: str, classpath: str) -> None:
    """A broker boots, and writes the archive at its orderly end."""
    part = _part(classpath)
    if part is None:
        return
    flags = (*QUICK_JVM, "-Xms256m", "-Xmx512m", f"-XX:ArchiveClassesAtExit={part}")
    harness.broker(f"java-{line}", scratch, None, jvm=flags).start().stop()
    _put_in_place(part, classpath)


def _archive_client(scratch: Path, version: str, classpath: str) -> None:
    """A producer starts and finds nobody; so does an mqadmin."""
    part = _part(classpath)
    if part is None:
        return
    driver = Driver(version, scratch, (f"-XX:ArchiveClassesAtExit={part}", *QUIET_JVM))
    nowhere = {"namesrv": "127.0.0.1:1", "group": "archive"}
    for op in ("producer.start", "transaction.start"):
        try:
            driver.call(op, name=op, answer="UNKNOW", poll_ms=30_000, **nowhere)
        except DriverError as error:
            print(f"{op}: {error}")
    driver.close(timeout_s=60)
    _put_in_place(part, classpath)


def _part(classpath: str) -> Path | None:
    """Where the archive is written first; None when it is there and newer than what it is made
    of, the driver's jar, which the tests compile anew."""
    path, first = archive_path(classpath), Path(classpath.partition(":")[0].removesuffix("/*"))
    if path.exists() and path.stat().st_mtime > first.stat().st_mtime:
        return None
    return path.with_suffix(f".{os.getpid()}.part")


def _put_in_place(part: Path, classpath: str) -> None:
    if not part.exists():
        raise PeerError(f"Java wrote no {part}")
    part.rename(archive_path(classpath))


if __name__ == "__main__":
    main()
