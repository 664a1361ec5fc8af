"""namesrv.namesrv_startup: flags, file, words and exit codes of mqnamesrv."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.errors import StartupExitError
from namesrv.namesrv_startup import load_namesrv_options

HOME = {"ROCKETMQ_HOME": "/opt/mq"}


def exit_of(arguments: list[str], environment: dict[str, str]) -> StartupExitError:
    with pytest.raises(StartupExitError) as caught:
        load_namesrv_options(arguments, environment)
    return caught.value


def test_defaults() -> None:
    options = load_namesrv_options([], HOME)
    assert options.server.listen_port == 9876
    assert options.namesrv.rocketmq_home == "/opt/mq"
    assert options.namesrv.kv_config_path == str(Path.home() / "namesrv" / "kvConfig.json")
    assert options.messages == ()


def test_file_is_read_and_becomes_the_store_path(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_text("listenPort=0\norderMessageEnable=true\nserverWorkerThreads=4\n")
    options = load_namesrv_options(["-c", str(path), "-n", "ignored"], HOME)
    assert (options.server.listen_port, options.namesrv.order_message_enable) == (0, True)
    assert options.namesrv.config_store_path == str(path)
    assert options.messages == (f"load config properties file OK, {path}",)
    assert "serverWorkerThreads" in options.warnings[0]


def test_a_wrong_address_ends_the_start(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_text("listenPort=0\nadminAllowedAddresses=127.0.0.1,10.0\n")
    failed = exit_of(["-c", str(path)], HOME)
    assert failed.exit_code == 255
    assert failed.text == (
        f"{path}:2: adminAllowedAddresses: '10.0' has 2 parts instead of 4; use an address "
        "(10.1.2.3, 2001:db8::1), a list (10.1.2.{3,4}), or * and ranges in an address (10.1.*.*, "
        "10.1.2.3-50)"
    )


def test_shipped_file_loads() -> None:
    path = Path(__file__).parents[2] / "conf" / "namesrv.conf"
    assert load_namesrv_options(["-c", str(path)], HOME).warnings == ()


def test_print_needs_no_home() -> None:
    printed = exit_of(["-p"], {})
    assert printed.exit_code == 0
    assert {"listenPort=9876", "orderMessageEnable=false"} <= set(printed.text.splitlines())


def test_exit_codes(tmp_path: Path) -> None:
    assert exit_of([], {}).exit_code == 254
    assert exit_of(["-m"], HOME).exit_code == 1
    assert exit_of(["-h"], {}).exit_code == 0
    assert exit_of(["-c", str(tmp_path / "no")], HOME).exit_code == 255
    bad = tmp_path / "bad.conf"
    bad.write_text("brokerName=x\n")
    assert "unknown key 'brokerName'" in exit_of(["-c", str(bad)], HOME).text
