"""The compiler beside a broker: who gets one, what is said of it, that it ends with the broker."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from broker.settings.supervisor_config import SupervisorConfig
from broker.supervisor import compile_program as module
from broker.supervisor.compile_program import COMMAND, OUTPUT, CompileProgram, compile_program
from conf.compiled_modules import OFF, REQUIRED, VARIABLE, ModulesInUse
from tests.broker.container.container_world import broker_file, our_container
from tests.support.broker_copy import copy_broker, environment_of
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tools.chaos.processes import is_running

LAUNCHER = {COMMAND: "/checkout/bin/mqcompile"}


@pytest.fixture(autouse=True)
def on_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "modules_in_use", ModulesInUse)


def command_of(*, is_wanted: bool = True, **environment: str) -> list[str]:
    return list(compile_program(environment, Path(), is_wanted=is_wanted)._command)


def test_a_launcher_of_a_checkout_gets_one() -> None:
    assert SupervisorConfig().compile_modules is True
    assert command_of(**LAUNCHER) == ["/checkout/bin/mqcompile", "--background"]
    assert command_of(**LAUNCHER, **{VARIABLE: ""}) == command_of(**LAUNCHER)


def test_others_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command_of() == [], "an installed wheel, a broker that a test starts"
    assert command_of(is_wanted=False, **LAUNCHER) == []
    assert command_of(**LAUNCHER, **{VARIABLE: OFF}) == []
    assert command_of(**LAUNCHER, **{VARIABLE: REQUIRED}) == []
    monkeypatch.setattr(module, "modules_in_use", lambda: ModulesInUse(compiled=39))
    assert command_of(**LAUNCHER) == [], "it runs them already"


@pytest.mark.parametrize(
    ("code", "level"), [(0, logging.INFO), (1, logging.WARNING)], ids=["done", "failed"]
)
def test_its_end_is_one_line_of_the_log(
    code: int, level: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    says = f"print('much'); print('its last words'); raise SystemExit({code})"
    compiling = CompileProgram([sys.executable, "-c", says], tmp_path)
    with caplog.at_level(logging.INFO):
        compiling.tick()
        assert caplog.records == []
        compiling.start()

        def is_told() -> bool:
            compiling.tick()
            return bool(caplog.records)

        wait_until(is_told)
        compiling.tick()
        compiling.stop()
    (record,) = caplog.records
    assert record.levelno == level
    assert record.getMessage() == "compiling in the background: its last words"


def test_one_that_cannot_be_started_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiling = CompileProgram([sys.executable], tmp_path / "gone")
    with caplog.at_level(logging.INFO):
        compiling.start()
        compiling.tick()
        compiling.stop()
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def compiler(directory: Path) -> Path:
    """A program in the place of bin/mqcompile that says its pid and its arguments, and stays."""
    path = directory / "mqcompile"
    path.write_text('#!/bin/sh\necho $$ "$@"\necho one line >&2\nexec sleep 900\n')
    path.chmod(0o755)
    return path


def pid_of(output: Path) -> int:
    wait_until(lambda: output.exists() and output.read_text().endswith("\n"))
    pid, *arguments = output.read_text().split()
    assert arguments == ["--background"]
    return int(pid)


def test_a_broker_starts_one_once_it_serves_and_ends_it(tmp_path: Path) -> None:
    broker = OurBroker(tmp_path)
    broker.env = {**environment_of(copy_broker(tmp_path)), COMMAND: str(compiler(tmp_path))}
    with broker.start():
        pid = pid_of(broker.log_dir / OUTPUT)
        wait_until(lambda: "one line\n" in broker.output())
        assert broker.output().index("boot success") < broker.output().index("one line\n")
        assert os.getsid(pid) == os.getsid(broker.pid), "else it shares the processors as an equal"
        assert os.getpgid(pid) == pid, "Ctrl-C is for the broker"
        assert broker.terminate() == 0
        assert not is_running(pid)
    broker.settings["compileModules"] = "false"
    (broker.log_dir / OUTPUT).unlink()
    with broker.start():
        assert broker.terminate() == 0
    assert not (broker.log_dir / OUTPUT).exists()


def test_so_does_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The container says itself where its settings are.
    for name, text in environment_of(copy_broker(tmp_path)).items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv(COMMAND, str(compiler(tmp_path)))
    with our_container(tmp_path) as container:
        container.start(broker_file(tmp_path, "a"))
        pid = pid_of(container.log_dir / OUTPUT)
        assert container.terminate() == 0
        assert not is_running(pid)
