"""Directories and small files wherever Spark can reach them: local, hdfs://, s3a://.

Called on the driver. Goes through Hadoop's FileSystem in Spark's JVM, so that a path means here
what it means to Spark. Knows nothing of reports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark.dumps.durable_files import replace_file

_REMEDIES: Final = {
    "S3AFileSystem not found": "Spark needs an S3 client: docs/nightly.md, spark.jars.packages",
    "No FileSystem for scheme": "give a local path, hdfs://... or s3a://...",
    "UnknownHostException": "there is no such host: check the name, and HADOOP_CONF_DIR",
    "No space left on device": "make room there",
    "Disk quota exceeded": "make room there",
}


class FilesError(Exception):
    """A directory or file that cannot be read or written: says which, and why."""


class HadoopFiles:
    """File operations of one Spark session. Every method raises FilesError."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        java_context: Any = spark.sparkContext._jsc
        self._path = jvm.org.apache.hadoop.fs.Path
        self._configuration = java_context.hadoopConfiguration()
        self._charset = jvm.java.nio.charset.StandardCharsets.UTF_8
        self._streams = jvm.org.apache.commons.io.IOUtils
        self._digests = jvm.org.apache.commons.codec.digest.DigestUtils

    def local_directory(self, path: str) -> Path | None:
        """The absolute path when it is on this machine's file system; None elsewhere."""
        uri = self._do(path, lambda system, place: system.makeQualified(place).toUri())
        return Path(uri.getPath()) if uri.getScheme() == "file" else None

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return bool(self._do(path, lambda system, place: system.exists(place)))

    def names(self, path: str) -> list[str]:
        """Names of what a directory holds, sorted; none when it does not exist."""
        if not self.exists(path):
            return []
        statuses = self._do(path, lambda system, place: system.listStatus(place))
        return sorted(str(status.getPath().getName()) for status in statuses)

    def delete(self, path: str) -> None:
        """Removes a file or a directory with all that it holds; nothing when it is not there."""
        self._do(path, lambda system, place: system.delete(place, True))
        if self.exists(path):
            raise FilesError(f"{path}: could not be removed")

    def make_directories(self, path: str) -> None:
        """Makes a directory and those above it."""
        self._do(path, lambda system, place: system.mkdirs(place))

    def rename(self, source: str, target: str) -> None:
        """Moves a directory or file to a name that is free."""
        if self.exists(target):
            raise FilesError(f"{target}: already exists; {source} cannot be renamed to it")
        moved = self._do(source, lambda system, place: system.rename(place, self._path(target)))
        if not moved:
            raise FilesError(f"{source}: could not be renamed to {target}")

    def write(self, path: str, content: bytes) -> None:
        """Writes a small file that is there whole or not at all, as far as rename is atomic."""
        hidden = f"{path}._new"

        def write(system: Any, place: Any) -> None:
            stream = system.create(place, True)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()

        self._do(hidden, write)
        self.delete(path)
        self.rename(hidden, path)

    def replace(self, path: str, content: bytes) -> None:
        """Writes a small file in the place of another one. On this machine's file system the old
        or the new one is there at each moment; elsewhere as far as `write` can."""
        local = self.local_directory(path)
        if local is None:
            self.write(path, content)
            return
        try:
            local.parent.mkdir(parents=True, exist_ok=True)
            # What Hadoop would take for the new file's checksum.
            local.with_name(f".{local.name}.crc").unlink(missing_ok=True)
            replace_file(local, content)
        except OSError as error:
            raise FilesError(f"{path}: cannot be written: {error.strerror}") from error

    def read_text(self, path: str) -> str:
        """The text of a small UTF-8 file."""

        def read(system: Any, place: Any) -> str:
            stream = system.open(place)
            try:
                return str(self._streams.toString(stream, self._charset))
            finally:
                stream.close()

        return str(self._do(path, read))

    def sha256(self, path: str) -> str:
        """Of a file's bytes, hex; computed in the JVM."""

        def digest(system: Any, place: Any) -> str:
            stream = system.open(place)
            try:
                return str(self._digests.sha256Hex(stream))
            finally:
                stream.close()

        return str(self._do(path, digest))

    def _do(self, path: str, action: Any) -> Any:
        try:
            return self._act(path, action)
        except (Py4JError, ConnectionError) as error:
            raise FilesError(
                f"{path}: Spark's JVM does not answer; see its log: {error}"
            ) from error

    def _act(self, path: str, action: Any) -> Any:
        try:
            place = self._path(path)
            return action(place.getFileSystem(self._configuration), place)
        except Py4JJavaError as error:
            cause = error.java_exception
            reason = f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
        except PySparkException as error:  # what PySpark makes of some of Java's
            reason = str(error).partition("\n")[0]
        way_out = next((f"; {_REMEDIES[sign]}" for sign in _REMEDIES if sign in reason), "")
        raise FilesError(f"{path}: {reason}{way_out}")
