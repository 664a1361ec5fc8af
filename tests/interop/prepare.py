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
from tests.interop.grpc_drivers import GrpcDriver, node_packages, python_packages
from tests.interop.grpc_drivers import missing_tools as missing_clients
from tests.interop.java_peers import (
    CLIENT_VERSIONS,
    QUICK_JVM,
    QUIET_JVM,
    SERVER_LINES,
    archive_path,
    driver_classpath,
    grpc_classpath,
    missing_tools,
    proxy_lib,
    server_lib,
)
from tests.interop.processes import PeerError

_PROXY_HEAP = ("-Xms64m", "-Xmx256m")


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
    work.append(_archive_proxy)
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


def _archive_proxy(scratch: Path) -> None:
    """A proxy before a broker of ours, and its client, which looks for a topic that has no route;
    the clients in other languages are fetched."""
    python_packages()
    if missing_clients("node") is None:
        node_packages()
    classpaths = (f"{proxy_lib()}/*", grpc_classpath())
    parts = [_part(classpath) for classpath in classpaths]
    if None in parts:
        return
    names = harness.name_server("ours", scratch / "namesrv").start()
    broker = harness.broker("ours", scratch / "broker", names.address).start()
    at_exit = [f"-XX:ArchiveClassesAtExit={part}" for part in parts]
    proxy = harness.proxy(scratch / "proxy", names.address, (*_PROXY_HEAP, at_exit[0])).start()
    client = GrpcDriver("java", proxy.endpoints, scratch / "client", (at_exit[1], *QUIET_JVM))
    try:
        client.producer("nowhere")
    except DriverError as error:
        print(f"archive of the proxy: {error}")
    client.close(timeout_s=60)
    proxy.process.stop(timeout_s=60)
    broker.stop()
    names.stop()
    for part, classpath in zip(parts, classpaths, strict=True):
        assert part is not None
        _put_in_place(part, classpath)


def _part(classpath: str) -> Path | None:
    """Where the archive is written first; None when it is there and newer than what it is made
    of. An older one is deleted: a JVM that has one makes none."""
    path, first = archive_path(classpath), Path(classpath.partition(":")[0].removesuffix("/*"))
    if path.exists() and path.stat().st_mtime > first.stat().st_mtime:
        return None
    path.unlink(missing_ok=True)
    return path.with_suffix(f".{os.getpid()}.part")


def _put_in_place(part: Path, classpath: str) -> None:
    if not part.exists():
        raise PeerError(f"Java wrote no {part}")
    part.rename(archive_path(classpath))


if __name__ == "__main__":
    main()
