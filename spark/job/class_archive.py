"""A class data sharing archive of the classes that a report's JVM loads, for faster starts.

Runs on the driver. At each start Java loads and verifies some 15,000 classes of Spark, a third of
the time of a small report; from an archive they are mapped. The second run on a machine writes it
at its end: a machine with only one run (a fresh container each night) would only pay for it. An
optimization only: without the archive, or when Java rejects it, the run is the same. Knows Java's
options, nothing of reports.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Final

_UNUSED_S: Final = 60 * 86_400.0
"""An archive that has not been used for so long (its Java or Spark was replaced) is deleted."""
_QUIET: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


class ClassArchive:
    """The archive of one Java and one Spark. Raises nothing: a directory that cannot be written
    means runs without it."""

    def __init__(self, java_home: Path, spark_home: Path, cache: Path) -> None:
        """`cache`: this project's own directory for such files."""
        self._directory = cache / "classes"
        self._path: Path | None = None
        self._new: Path | None = None
        with contextlib.suppress(OSError):  # a Java without an archive of its own cannot add to it
            own = java_home.resolve() / "lib" / "server" / "classes.jsa"
            jars = spark_home.resolve() / "jars"
            # Java refuses an archive that was made of files of another time.
            text = "|".join(f"{path} {path.stat().st_mtime_ns}" for path in (own, jars))
            name = hashlib.sha256(text.encode()).hexdigest()[:16]
            self._path = self._directory / f"{name}.jsa"

    @property
    def is_being_made(self) -> bool:
        """Whether the JVM writes it on exit, which takes a while."""
        return self._new is not None

    def java_options(self) -> str:
        """For the JVM that is about to start; "" without a usable archive."""
        if self._path is None:
            return ""
        seen = self._path.with_suffix(".seen")
        try:
            if self._path.exists():
                os.utime(self._path)
                return f'"-XX:SharedArchiveFile={self._path}" {_QUIET}'
            if seen.exists():
                self._new = self._path.with_suffix(f".{os.getpid()}")
                return f'"-XX:ArchiveClassesAtExit={self._new}" {_QUIET}'
            self._directory.mkdir(parents=True, exist_ok=True)
            seen.touch()
        except OSError:
            self._new = None
        return ""

    def after_exit(self, *, is_whole: bool) -> None:
        """The JVM has exited; `is_whole`: after a report, so that it had loaded what one needs."""
        if self._path is None or self._new is None:
            return
        with contextlib.suppress(OSError):
            if is_whole and self._new.exists():
                os.replace(self._new, self._path)
                self._remove_unused(self._path.stat().st_mtime - _UNUSED_S)
            else:
                self._new.unlink(missing_ok=True)

    def _remove_unused(self, since: float) -> None:
        for other in self._directory.iterdir():
            if other.stat().st_mtime < since:
                other.unlink()
