"""conf.logging_setup: names, rotation, two processes on one file."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conf.errors import ConfigError
from conf.logging_setup import (
    FORMAT,
    MAX_MESSAGE_CHARACTERS,
    MAX_TRACE_CHARACTERS,
    LoggingConfig,
    OneLineFormatter,
    SharedRotatingFileHandler,
    configure_logging,
    log_directory,
)

_CONFIGURE = """
import logging, sys
from conf.logging_setup import configure_logging
for _ in range(2):
    path = configure_logging(sys.argv[1], sys.argv[2], console=True)
logging.getLogger("broker.x").info("started %s", 1)
logging.getLogger("broker.x").warning("look")
print(path)
"""


@pytest.mark.parametrize(
    ("process", "file"), [("supervisor", "broker.log"), ("store", "store.log")]
)
def test_one_file_for_each_process_set_up_once(tmp_path: Path, process: str, file: str) -> None:
    command = [sys.executable, "-c", _CONFIGURE, process, str(tmp_path / "logs")]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": root}
    )
    lines = (tmp_path / "logs" / file).read_text().splitlines()
    assert [line.partition(" - ")[2] for line in lines] == ["started 1", "look"]
    assert " INFO MainThread broker.x - " in lines[0]
    assert done.stderr.count("look") == 1
    assert "started" not in done.stderr
    assert (tmp_path / "logs" / "otherdays").is_dir()


def test_a_message_stays_one_line_whatever_a_peer_sent() -> None:
    record = logging.LogRecord(
        "x", logging.INFO, "f", 1, "topic %s: made", ("a\n2026 ERROR \x1b[31mfake é",), None
    )
    assert OneLineFormatter("%(message)s").format(record) == (
        "topic a\\n2026 ERROR \\x1b[31mfake é: made"
    )


def test_unwritable_directory_says_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"store\.log: cannot write .*set logDir"):
        configure_logging("store", tmp_path / "file")


def test_directory_of_one_broker() -> None:
    isolated = LoggingConfig(log_dir="/x", isolate_log_enable=True)
    assert log_directory(isolated, "broker-a", 1) == Path("/x/broker-a_1")
    assert log_directory(isolated) == Path("/x")
    assert log_directory(LoggingConfig(log_dir="/x"), "broker-a", 1) == Path("/x")
    assert log_directory(LoggingConfig()) == Path.home() / "logs" / "rocketmqlogs"


def _record(number: int) -> logging.LogRecord:
    text = f"line {number:03}"
    return logging.LogRecord("x", logging.INFO, __file__, 1, text, None, None)


def test_two_writers_lose_no_line_over_rotations(tmp_path: Path) -> None:
    (tmp_path / "otherdays").mkdir()
    path = tmp_path / "broker.log"
    writers = [SharedRotatingFileHandler(path, max_bytes=90, max_old=50) for _ in range(2)]
    for number in range(100):
        writers[number % 2].emit(_record(number))
    for writer in writers:
        writer.close()
    old = list((tmp_path / "otherdays").iterdir())
    assert len(old) > 8
    assert all(file.name.startswith("broker.") and file.name.endswith(".log") for file in old)
    lines = "".join(file.read_text() for file in [path, *old]).split("\n")
    assert sorted(line for line in lines if line) == [f"line {n:03}" for n in range(100)]


def test_a_removed_file_comes_back(tmp_path: Path) -> None:
    (tmp_path / "otherdays").mkdir()
    handler = SharedRotatingFileHandler(tmp_path / "broker.log")
    (tmp_path / "broker.log").unlink()
    handler.emit(_record(1))
    handler.close()
    assert (tmp_path / "broker.log").read_text() == "line 001\n"


def test_a_log_directory_that_is_gone_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "logs" / "otherdays").mkdir(parents=True)
    handler = SharedRotatingFileHandler(tmp_path / "logs" / "x.log")
    record = logging.LogRecord("x", logging.INFO, "f", 1, "still here", (), None)
    handler.emit(record)
    for path in (tmp_path / "logs" / "x.log", tmp_path / "logs" / "otherdays", tmp_path / "logs"):
        path.unlink() if path.is_file() else path.rmdir()
    handler.emit(record)
    handler.close()
    assert (tmp_path / "logs" / "x.log").read_text() == "still here\n"


def test_a_log_that_cannot_be_written_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs" / "otherdays").mkdir(parents=True)
    handler = SharedRotatingFileHandler(tmp_path / "logs" / "x.log")
    shutil.rmtree(tmp_path / "logs")
    (tmp_path / "logs").write_text("a file where the directory was")
    handler.emit(logging.LogRecord("x", logging.INFO, "f", 1, "lost", (), None))
    handler.close()
    assert "Logging error" in capsys.readouterr().err


HOSTILE = "\n1999-12-31 00:00:00,000 INFO Loop broker - all is well\r\u2028\x1b[2J\u202e\x85"


def _format(text: str, error: BaseException | None = None) -> str:
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "said %s", (text,), info)
    return OneLineFormatter(FORMAT).format(record)


@pytest.mark.fault(46)
def test_a_peers_text_is_one_printable_line() -> None:
    line = _format(HOSTILE)
    assert line.isprintable()
    assert line.endswith("all is well\\r\\u2028\\x1b[2J\\u202e\\x85")


@pytest.mark.fault(46)
def test_a_line_is_bounded() -> None:
    line = _format("x" * 1_000_000)
    assert len(line) < MAX_MESSAGE_CHARACTERS + 100
    assert re.search(r"\.\.\. \(\d+ characters more\)$", line)


@pytest.mark.fault(46)
@pytest.mark.parametrize("size", [0, 1_000_000])
def test_a_stack_trace_poses_as_nothing(size: int) -> None:
    """The error's text, its notes and its cause may quote a peer."""
    try:
        try:
            raise ValueError(HOSTILE)
        except ValueError as cause:
            cause.add_note(HOSTILE)
            raise KeyError(HOSTILE + "x" * size) from cause
    except KeyError as error:
        first, *rest = _format("ok", error).split("\n")
    assert first.endswith("said ok")
    assert len(rest) >= 8
    assert [line for line in rest if not line.startswith("  ") or not line.isprintable()] == []
    assert "KeyError" in rest[-1] or size
    assert sum(map(len, rest)) < MAX_TRACE_CHARACTERS + 1_000
