"""The only place that sets up log handlers: one file per process, rotated into otherdays/.

Runs once at a process's start. Files below $HOME/logs/rocketmqlogs/[brokerLogDir/], with
RocketMQ's names where it has them:

    supervisor -> broker.log      remoting -> remoting.log (with all broker logic)
    store      -> store.log       ha -> ha.log       namesrv -> namesrv.log

Two brokers on one host may share the directory (isolateLogEnable separates them): a line is one
O_APPEND write, and the rotation holds a file lock and checks whether another process was faster.
RocketMQ's other files (stats.log, watermark.log, ...) do not exist: their lines are in these.
"""

from __future__ import annotations

import enum
import fcntl
import logging
import logging.handlers
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from conf.config_fields import setting
from conf.errors import ConfigError

MAX_FILE_BYTES: Final = 128 << 20
MAX_OLD_FILES: Final = 10
MAX_MESSAGE_CHARACTERS: Final = 8_000
"""Of one line; what is longer is cut off: a peer's names may have any length."""
MAX_TRACE_CHARACTERS: Final = 32_000
FORMAT: Final = "%(asctime)s %(levelname)s %(threadName)s %(name)s - %(message)s"
_ExceptionInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)
_FILE_NAMES: Final = {"supervisor": "broker"}


class LogLevel(enum.IntEnum):
    """The levels that a settings file may name."""

    DEBUG = logging.DEBUG
    INFO = logging.INFO
    WARN = logging.WARNING
    ERROR = logging.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingConfig:
    """Settings of the log files, for every program."""

    log_dir: str = setting("~/logs/rocketmqlogs", "directory of the log files")
    log_level: LogLevel = setting(LogLevel.INFO, "lowest level that is logged")
    isolate_log_enable: bool = setting(False, "log into <brokerName>_<brokerId>/ below logDir")


def log_directory(config: LoggingConfig, broker_name: str = "", broker_id: int = 0) -> Path:
    """The directory of the log files; a name server has no broker name."""
    base = Path(config.log_dir).expanduser()
    if config.isolate_log_enable and broker_name:
        return base / f"{broker_name}_{broker_id}"
    return base


def configure_logging(
    process_name: str,
    log_dir: str | Path,
    *,
    level: int = logging.INFO,
    console: bool = False,
    console_prefix: str = "",
) -> Path:
    """Attaches the process's file to the root logger; with `console` also stderr, for warnings.

    console_prefix: begins every line on stderr, where several programs share it. Returns the file's
    path. A second call in a process has no effect. Raises ConfigError if the file cannot be
    written.
    """
    root = logging.getLogger()
    for handler in root.handlers:
        if isinstance(handler, SharedRotatingFileHandler):
            return Path(handler.baseFilename)
    path = Path(log_dir) / f"{_FILE_NAMES.get(process_name, process_name)}.log"
    formatter = OneLineFormatter(FORMAT)
    file_handler = _open_handler(path)
    file_handler.setFormatter(formatter)
    root.addHandler(file_handler)
    if console:
        stream = logging.StreamHandler(sys.stderr)
        stream.setLevel(logging.WARNING)
        stream.setFormatter(OneLineFormatter(console_prefix.replace("%", "%%") + FORMAT))
        root.addHandler(stream)
    root.setLevel(level)
    logging.captureWarnings(True)
    return path


def remove_logging() -> None:
    """Takes back configure_logging, in a forked process that shall have a file of its own."""
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
        handler.close()


def _open_handler(path: Path) -> SharedRotatingFileHandler:
    try:
        (path.parent / "otherdays").mkdir(parents=True, exist_ok=True)
        return SharedRotatingFileHandler(path)
    except OSError as error:
        way_out = "make the directory writable, or set logDir to another one"
        raise ConfigError(
            [f"{path}: cannot write the log file: {error.strerror}; {way_out}"]
        ) from (error)


class OneLineFormatter(logging.Formatter):
    """Keeps a message on one line of bounded length: text of a peer cannot pose as another log
    line, move a terminal's cursor, or fill the disk. The lines of a stack trace are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """The line with control characters escaped."""
        return one_line(super().formatMessage(record))

    def formatException(self, ei: _ExceptionInfo) -> str:  # noqa: N802 - the library's name
        """The stack trace: its last lines may quote a peer."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - the library's name
        """As formatException."""
        return _indented(stack_info)


def one_line(text: str, limit: int = MAX_MESSAGE_CHARACTERS) -> str:
    """`text` as one printable line: what is not printable is escaped, what is beyond `limit`
    characters is cut off and counted."""
    cut = len(text) - limit
    if cut > 0:
        text = f"{text[:limit]}... ({cut} characters more)"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _indented(trace: str) -> str:
    """No line begins as a log line does. Only "\\n" ends a line; the others are escaped."""
    cut = len(trace) - MAX_TRACE_CHARACTERS
    if cut > 0:
        # The error itself is at the end.
        half = MAX_TRACE_CHARACTERS // 2
        trace = f"{trace[:half]}\n... ({cut} characters less)\n{trace[-half:]}"
    return "\n".join(f"  {one_line(line, MAX_TRACE_CHARACTERS)}" for line in trace.split("\n"))


class SharedRotatingFileHandler(logging.handlers.RotatingFileHandler):
    """A rotating file to which several processes may append.

    Old files are otherdays/<name>.1.log (newest) and up. Guarded by the handler's own lock
    between threads, by flock on the log file between processes.
    """

    def __init__(
        self, path: Path, max_bytes: int = MAX_FILE_BYTES, max_old: int = MAX_OLD_FILES
    ) -> None:
        self._old = path.parent / "otherdays"
        self._stem = path.name.removesuffix(".log")
        super().__init__(path, maxBytes=max_bytes, backupCount=max_old, encoding="utf-8")

    def rotation_filename(self, default_name: str) -> str:
        """otherdays/<name>.<n>.log instead of the library's <name>.log.<n>."""
        number = default_name.rpartition(".")[2]
        return str(self._old / f"{self._stem}.{number}.log")

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line; first reopens the file if another process has rotated it.

        Never raises: a missing log directory is created again, and what cannot be written is
        reported on stderr. A broker does not stop because its log fails.
        """
        try:
            if not self._is_current():
                self._reopen()
        except OSError:
            self.handleError(record)
            return
        super().emit(record)

    def doRollover(self) -> None:  # noqa: N802 - the library's name
        """Rotates, unless another process did so while this one waited for the lock."""
        with open(self.baseFilename, "a", encoding="utf-8") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            if self._is_current():
                super().doRollover()
            else:
                self._reopen()

    def _reopen(self) -> None:
        self._old.mkdir(parents=True, exist_ok=True)
        if self.stream is not None:
            self.stream.close()
        self.stream = self._open()

    def _is_current(self) -> bool:
        if self.stream is None:
            return False
        try:
            there = os.stat(self.baseFilename)
        except FileNotFoundError:
            return False
        here = os.fstat(self.stream.fileno())
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
