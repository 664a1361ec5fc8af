"""packaging/systemd: the units start what is there, stop it as it wants to be stopped, and systemd
understands them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from broker.broker_startup import load_startup_options
from broker.supervisor.boot_info import EXIT_FLUSH_FAILED
from broker.supervisor.life_stages import ChildTimeouts
from conf.errors import EXIT_BAD_SETTING, EXIT_CANNOT_START, EXIT_NO_HOME
from controller.controller_startup import load_controller_options
from namesrv.namesrv_startup import load_namesrv_options
from tools.mqshutdown import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "packaging" / "systemd"
INSTALLED = "/opt/rocketmq-python-broker"
SETTINGS = "/etc/rocketmq"
ALL = ("mqbroker.service", "mqnamesrv.service", "mqcontroller.service")
MOST_EXPOSED = 20
"""Tenths; systemd calls less than 20 OK, 50 is medium."""


def text_of(name: str) -> str:
    return (UNITS / name).read_text(encoding="utf-8")


def unit(name: str) -> dict[str, list[str]]:
    """Every key of the unit with its values; no key is in two sections."""
    found: dict[str, list[str]] = {}
    for line in text_of(name).splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def one(name: str, key: str) -> str:
    (value,) = unit(name)[key]
    return value


def shipped(path: str) -> str:
    """The file of the checkout that an installed settings file is a copy of."""
    return str(ROOT / Path(path).relative_to(SETTINGS))


def test_the_broker_is_started_as_its_launcher_wants() -> None:
    launcher, flag, file = shlex.split(one("mqbroker.service", "ExecStart"))
    assert os.access(ROOT / Path(launcher).relative_to(INSTALLED), os.X_OK)
    options = load_startup_options([flag, shipped(file)], {"ROCKETMQ_HOME": SETTINGS})
    assert options.server.listen_port == 10911


def test_the_name_server_is_started_as_its_launcher_wants() -> None:
    launcher, flag, file = shlex.split(one("mqnamesrv.service", "ExecStart"))
    assert os.access(ROOT / Path(launcher).relative_to(INSTALLED), os.X_OK)
    options = load_namesrv_options([flag, shipped(file)], {"ROCKETMQ_HOME": SETTINGS})
    assert options.server.listen_port == 9876


def test_the_controller_is_started_as_its_launcher_wants() -> None:
    launcher, flag, file = shlex.split(one("mqcontroller.service", "ExecStart"))
    assert os.access(ROOT / Path(launcher).relative_to(INSTALLED), os.X_OK)
    options = load_controller_options([flag, shipped(file)], {"ROCKETMQ_HOME": SETTINGS})
    assert options.server.listen_port == 9877


@pytest.mark.parametrize("name", ALL)
def test_it_may_write_where_it_does(name: str) -> None:
    """HOME holds store, logs and pid file; ROCKETMQ_HOME what requests change."""
    environment = dict(pair.split("=", 1) for pair in unit(name)["Environment"])
    assert environment == {"HOME": "/var/lib/rocketmq", "ROCKETMQ_HOME": SETTINGS}
    assert Path("/var/lib") / one(name, "StateDirectory") == Path(environment["HOME"])
    assert one(name, "ReadWritePaths") == environment["ROCKETMQ_HOME"]
    assert one(name, "ProtectSystem") == "strict"


@pytest.mark.parametrize("name", ALL)
def test_a_stop_has_the_time_that_it_takes(name: str) -> None:
    own_limit_s = ChildTimeouts(hang_ms=1).stop_ms / 1000
    assert own_limit_s < float(one(name, "TimeoutStopSec")) == WAIT_S
    assert one(name, "KillMode") == "mixed"


def test_what_a_restart_cannot_mend_is_not_restarted() -> None:
    settings = {EXIT_BAD_SETTING, EXIT_NO_HOME, EXIT_CANNOT_START}
    codes = {name: {*map(int, one(name, "RestartPreventExitStatus").split())} for name in ALL}
    assert codes["mqbroker.service"] == {EXIT_FLUSH_FAILED, *settings}
    assert codes["mqnamesrv.service"] == codes["mqcontroller.service"] == settings


def test_all_are_guarded_alike() -> None:
    differing = {"Description", "After", "ExecStart", "RestartPreventExitStatus"}
    ours, *theirs = (
        {key: values for key, values in unit(name).items() if key not in differing} for name in ALL
    )
    assert theirs == [ours, ours]


def test_the_steps_of_an_installation_name_what_is_there() -> None:
    steps = text_of("mqbroker.service").partition("[Unit]")[0]
    (rooms,) = re.findall(r"compileall -q (.*)", steps)
    assert {room for room in rooms.split() if not any((ROOT / room).glob("*.py"))} == set()
    for pattern in ("conf/*.conf", "conf/*.yml", "packaging/systemd/mq*.service"):
        assert f" {pattern} " in steps
        assert list(ROOT.glob(pattern))
    for name in ALL:
        page = one(name, "Documentation").removeprefix(f"file://{INSTALLED}/")
        assert (ROOT / page).is_file()


def test_systemd_understands_the_units(analyze: str, tmp_path: Path) -> None:
    """Paths and user of an installation are put in, for systemd looks whether they are there."""
    units = []
    for name in ALL:
        text = text_of(name).replace(INSTALLED, str(ROOT)).replace("=rocketmq\n", "=root\n")
        units.append(tmp_path / name)
        units[-1].write_text(text, encoding="utf-8")
    result = subprocess.run(
        [analyze, "verify", "--man=no", *units], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


@pytest.mark.parametrize("name", ALL)
def test_systemd_finds_them_well_guarded(analyze: str, name: str) -> None:
    command = [analyze, "security", "--offline=yes", f"--threshold={MOST_EXPOSED}", UNITS / name]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout


def test_the_docs_say_what_the_units_do() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert f"waits up to {one('mqbroker.service', 'TimeoutStopSec')} s" in text
    assert f"starts again after {one('mqbroker.service', 'RestartSec')} s" in text
    assert f"`LimitNOFILE={one('mqbroker.service', 'LimitNOFILE')}`" in text
    assert f"`KillMode={one('mqbroker.service', 'KillMode')}`" in text
    assert f"one still runs after {WAIT_S:.0f} s" in text
    codes = one("mqbroker.service", "RestartPreventExitStatus").split()
    assert f"not after exit codes {codes[0]},\n  {', '.join(codes[1:-1])} and {codes[-1]}," in text
    for code in codes:
        assert f"\n| {code} | " in text
