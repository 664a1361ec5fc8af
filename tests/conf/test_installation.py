"""conf.installation: the version of a checkout or wheel, and how a console script starts."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from conf.installation import (
    DISTRIBUTION,
    INSTALL_DIRECTORY,
    UNKNOWN_VERSION,
    enter_program,
    software_version,
)


def test_the_version_of_this_checkout() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", software_version())


def test_the_version_of_a_wheel(tmp_path: Path) -> None:
    metadata = tmp_path / "rocketmq_python_broker-7.8.9.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 7.8.9\n")
    assert software_version(tmp_path) == "7.8.9"
    (tmp_path / "setup.cfg").write_text("[metadata]\nname = another\nversion = 1.0.0\n")
    assert software_version(tmp_path) == "7.8.9"
    (tmp_path / "setup.cfg").write_text(f"[metadata]\nname = {DISTRIBUTION}\nversion = 1.2.3\n")
    assert software_version(tmp_path) == "1.2.3"


def test_a_version_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert software_version(tmp_path) == UNKNOWN_VERSION
        (tmp_path / "setup.cfg").write_text("no section\n")
        assert software_version(tmp_path) == UNKNOWN_VERSION
    assert len(caplog.messages) == 3
    assert str(tmp_path / "setup.cfg") in caplog.messages[1]


def test_a_program_gets_its_home_unless_it_has_one() -> None:
    environment: dict[str, str] = {}
    enter_program("mqbroker", ["-p"], environment)
    assert environment == {"ROCKETMQ_HOME": str(INSTALL_DIRECTORY), "PYTHONSAFEPATH": "1"}
    environment["ROCKETMQ_HOME"] = "/etc/rocketmq"
    enter_program("mqbroker", [], environment)
    assert environment["ROCKETMQ_HOME"] == "/etc/rocketmq"


def test_the_version_ends_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        enter_program("mqadmin", ["--version"], {})
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"mqadmin {software_version()}\n"
