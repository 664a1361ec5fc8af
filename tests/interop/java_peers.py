"""The Java side on disk: jars fetched once with Maven, our driver compiled for each client version.

Which releases stand for which line is decided here and nowhere else. Maven Central has the clients
of 4.9.8, but no rocketmq-broker and no rocketmq-namesrv of that version: the newest servers of the
4.9 line there are 4.9.7. So the "java-4.9" servers are 4.9.7, and figures taken with them must say
so (`server_version`). `ROCKETMQ_49_LIB` may name the lib directory of another 4.9 release (for
instance an unpacked 4.9.8 distribution), which is then used, and named, instead.
Used by the test process and by prepare.py; builds run under a file lock, so parallel runs do not
disturb each other. All of it lies beside the tests, or where TESTS_PEERS says: `.ci/run` keeps it
there for the next run of this Java and this pom.xml, which may be of another checkout.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

INTEROP_DIR = Path(__file__).resolve().parent
PEERS_DIR = Path(os.environ.get("TESTS_PEERS") or INTEROP_DIR)
TARGET_DIR = PEERS_DIR / "target"
LINE_5 = os.environ.get("INTEROP_5", "5.5")
"""Which line stands for 5.x in every test: bin/test --long runs them once more with 5.3. Where the
two differ in what a test proves, it names its line."""
CLIENT_5 = {"5.3": "5.3.3", "5.5": "5.5.0"}[LINE_5]
CLIENT_VERSIONS = ("4.9.8", CLIENT_5)
SERVER_LINES = ("4.9", LINE_5)
_GRPC_CLIENT = {"5.3": "5.0.8", "5.5": "5.2.0"}
"""rocketmq-client-java has a count of its own: the one that was new when a proxy was."""
_CENTRAL_SERVER = {"4.9": "4.9.7", "5.3": "5.3.3", "5.5": "5.5.0"}
_FETCH_TIMEOUT_S = 900

# What a 4.9 broker or client reaches into that Java 17 keeps closed.
_MODULE_FLAGS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)
# Start quickly on two cores: a test is not a benchmark.
QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# What Java says of archives of classes would go to stdout, which is the driver's answers.
QUIET_JVM = ("-Xlog:disable", "-Xlog:all=error:stderr")


class JavaPeersError(Exception):
    """The Java side could not be prepared; the text says which command failed and how."""


def missing_tools() -> str | None:
    """Why the Java peers cannot be used on this machine, or None when they can."""
    absent = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"needs {', '.join(absent)} on the PATH" if absent else None


def server_lib(line: str) -> Path:
    """Directory with the name server's and the broker's jars of `line` ("4.9", "5.3" or "5.5")."""
    given = os.environ.get("ROCKETMQ_49_LIB")
    if line == "4.9" and given:
        return Path(given)
    return _jars(_CENTRAL_SERVER[line], "servers")


def server_version(line: str) -> str:
    """The release that runs for `line`, read from its broker jar: what reports must print."""
    lib = server_lib(line)
    for jar in lib.glob("rocketmq-broker-*.jar"):
        found = re.fullmatch(r"rocketmq-broker-(.+)\.jar", jar.name)
        if found:
            return found.group(1)
    raise JavaPeersError(f"{lib}: no rocketmq-broker-<version>.jar; is it the lib of a release?")


def driver_classpath(version: str) -> str:
    """Class path of our driver, compiled against the client `version`."""
    lib = _jars(version, "clients")
    sources = sorted((INTEROP_DIR / "src" / "interop").glob("*.java"))
    return f"{_compiled(f'driver-{version}', sources, lib, 'interop')}:{lib}/*"


def bench_classpath() -> str:
    """Class path of what tests/bench measures with: a 4.9.8 client (src/bench)."""
    lib = _jars("4.9.8", "clients")
    sources = sorted((INTEROP_DIR / "src" / "bench").glob("*.java"))
    return f"{_compiled('bench-4.9.8', sources, lib, 'bench')}:{lib}/*"


def parquet_classpath() -> str:
    """Class path of a client of 5.x that writes Parquet (src/parquet), with the jars for Parquet
    that PySpark brings."""
    lib = _jars(CLIENT_5, "clients")
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise JavaPeersError("Java's Parquet is PySpark's: install the extra [spark]")
    # Behind those of RocketMQ: Spark's logging is not wanted, and would be found first.
    jars = Path(spark.origin).parent / "jars"
    sources = [INTEROP_DIR / "src" / "parquet" / "ParquetConsumer.java"]
    jar = _compiled(f"parquet-{CLIENT_5}", sources, lib, "parquet", f":{jars}/*")
    return f"{jar}:{lib}/*:{jars}/*"


def _compiled(name: str, sources: Sequence[Path], lib: Path, package: str, more: str = "") -> Path:
    """A jar of `sources`, all of `package`, by their content; made when it is not there. more: the
    class path behind `lib`."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    jar = TARGET_DIR / f"{name}-{digest[:8]}.jar"
    with _locked("build"):
        if not jar.exists():
            with tempfile.TemporaryDirectory(dir=TARGET_DIR) as work:
                command = ["javac", "-nowarn", "-d", work, "-cp", f"{lib}/*{more}"]
                _run([*command, *map(str, sources)], timeout_s=120)
                # An archive of classes is made of jars only.
                part = Path(work, jar.name)
                _run(["jar", "--create", "--file", str(part), "-C", work, package], 60)
                part.rename(jar)
    return jar


def proxy_lib(line: str = LINE_5) -> Path:
    """Directory with the jars of the proxy of `line` ("5.3" or "5.5")."""
    return _jars(_CENTRAL_SERVER[line], "proxy")


def grpc_classpath(line: str = LINE_5) -> str:
    """Class path of our class around the Java client that speaks gRPC to a proxy of `line`."""
    version = _GRPC_CLIENT[line]
    lib = _jars(version, "grpc")
    sources = [INTEROP_DIR / "src" / "grpc" / "GrpcClient.java"]
    return f"{_compiled(f'grpc-{version}', sources, lib, 'grpc')}:{lib}/*"


def archive_path(classpath: str) -> Path:
    """Where the archive of the classes of a class path is, once prepare.py has made it."""
    name = re.sub(r"[^\w.-]+", "-", classpath.replace(str(PEERS_DIR), "")).strip("-")
    return TARGET_DIR / f"{name}.jsa"


def _archive_options(classpath: str) -> tuple[str, ...]:
    """A JVM starts in half the processor time with its classes already read and checked. Java does
    without an archive of other jars or of another Java."""
    path = archive_path(classpath)
    return (f"-XX:SharedArchiveFile={path}", *QUIET_JVM) if path.exists() else ()


def java_command(
    classpath: str,
    main_class: str,
    home: Path,
    *,
    jvm: Sequence[str] = (),
    args: Sequence[str] = (),
) -> list[str]:
    """A java command line whose files all stay under `home`."""
    return [
        "java",
        *_MODULE_FLAGS,
        *_archive_options(classpath),
        *jvm,
        f"-Duser.home={home}",
        f"-Djava.io.tmpdir={home}",
        f"-Drocketmq.client.logRoot={home}/client-logs",
        f"-Drocketmq.client.localOffsetStoreDir={home}/offsets",
        "-Dfile.encoding=UTF-8",
        "-cp",
        classpath,
        main_class,
        *args,
    ]


def _jars(version: str, profile: str) -> Path:
    """lib-<version>-<profile>, copied by Maven when it is not there yet.

    `profile` is "clients", "servers", "proxy" or "grpc".
    """

    def fetch(part: Path) -> list[str]:
        flags = [f"-P{profile}", f"-Drocketmq.version={version}", f"-Dlib.directory={part}"]
        return ["mvn", "-q", "-B", "-f", str(INTEROP_DIR / "pom.xml"), *flags, "package"]

    return fetched(f"lib-{version}-{profile}", fetch)


def fetched(name: str, command: Callable[[Path], Sequence[str]]) -> Path:
    """The directory `name` of PEERS_DIR, which `command` fills when it is not there yet."""
    lib = PEERS_DIR / name
    with _locked("build"):
        if not lib.exists():
            part = TARGET_DIR / f"{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            _run(list(command(part)), _FETCH_TIMEOUT_S)
            part.rename(lib)
    return lib


def _run(command: list[str], timeout_s: float) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s, check=False
    )
    if done.returncode != 0:
        text = done.stdout.decode(errors="replace")[-4000:]
        raise JavaPeersError(f"{' '.join(command[:6])} ... exit {done.returncode}:\n{text}")


@contextmanager
def _locked(name: str) -> Iterator[None]:
    TARGET_DIR.mkdir(parents=True, exist_ok=True)
    with (TARGET_DIR / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
