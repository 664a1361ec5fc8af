"""broker.acl.access: the parts together, and what the start refuses."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest

from broker.acl.access import Access
from broker.broker_startup import load_startup_options
from broker.settings.broker_config import BrokerConfig
from conf.errors import EXIT_CANNOT_START, StartupExitError
from ipc.scheduled_executor import ScheduledExecutor
from remoting.connection import Connection
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from tests.broker.broker_fakes import CONFIG, FakeClock, FakeConnection

ACCOUNT = "accounts:\n- accessKey: account-1\n  secretKey: secret-1\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    return tmp_path


def config(home: Path, **values: object) -> BrokerConfig:
    return dataclasses.replace(CONFIG, rocketmq_home=str(home), **values)  # type: ignore[arg-type]


def is_open(access: Access, code: int, remote: str) -> bool:
    try:
        access.gate.check(FakeConnection(remote), RemotingCommand.request(code))
    except RequestError:
        return False
    return True


def test_without_acl_no_file_is_read(home: Path) -> None:
    (home / "conf" / "plain_acl.yml").write_text("[")
    clock = FakeClock()
    access = Access(config(home, admin_allowed_addresses="10.0.0.9"), clock)
    executor = ScheduledExecutor(clock)
    access.open(executor)
    clock.advance(60_000)
    assert executor.run_due() == 0
    assert (access.manager, access.signer) == (None, None)
    assert is_open(access, 17, "10.0.0.9:1")
    assert not is_open(access, 17, "127.0.0.1:1")


def test_with_acl_the_files_are_followed(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = home / "conf" / "plain_acl.yml"
    path.write_text(ACCOUNT)
    clock = FakeClock()
    access = Access(config(home, acl_enable=True), clock)
    executor = ScheduledExecutor(clock)
    with caplog.at_level(logging.INFO):
        access.open(executor)
    assert caplog.messages == [
        f"access table: 1 accounts from {path}",
        "conf/tools.yml not found: requests to other brokers are not signed",
    ]
    assert not is_open(access, 28, "127.0.0.1:1")
    path.write_text(ACCOUNT + "globalWhiteRemoteAddresses: ['127.0.0.1']\n")
    for _ in range(2):
        clock.advance(1_000)
        executor.run_due()
    assert is_open(access, 28, "127.0.0.1:1")


def test_a_file_that_breaks_between_two_lives_of_the_process(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = home / "conf" / "plain_acl.yml"
    path.write_text("[")
    clock = FakeClock()
    access = Access(config(home, acl_enable=True), clock)
    executor = ScheduledExecutor(clock)
    access.open(executor)
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 1
    assert errors[0].startswith(f"{path}:1: not YAML: ")
    assert errors[0].endswith("; all requests are denied until this is fixed")
    path.write_text("globalWhiteRemoteAddresses: ['*']\n")
    for _ in range(2):
        clock.advance(1_000)
        executor.run_due()
    assert is_open(access, 28, "10.0.0.1:1")


def test_with_acl_no_request_goes_around_the_gate(home: Path) -> None:
    def fast(_connection: Connection, _header: bytes, _body: memoryview) -> bool:
        raise AssertionError("not called here")

    prefix = b'{"code":310,'
    assert Access(config(home), FakeClock()).fast_routes((prefix, fast)) == ((prefix, fast),)
    access = Access(config(home, acl_enable=True), FakeClock())
    ((begins, route),) = access.fast_routes((prefix, fast))
    assert begins == prefix
    connection: Connection = FakeConnection("127.0.0.1:1")  # type: ignore[assignment]
    header = b'{"code":310,"extFields":{"b":"T"},"opaque":1}'
    assert not route(connection, header, memoryview(b"body"))


def test_who_we_are_for_other_brokers(home: Path) -> None:
    (home / "conf" / "tools.yml").write_text("accessKey: operator-1\nsecretKey: secret-1\n")
    access = Access(config(home), FakeClock())
    assert access.signer is not None
    assert access.signer.access_key == "operator-1"


# -- at the start -------------------------------------------------------------------------------


def refused(home: Path, text: str) -> str:
    path = home / "b.conf"
    path.write_text(text)
    with pytest.raises(StartupExitError) as caught:
        load_startup_options(["-c", str(path)], {"ROCKETMQ_HOME": str(home)})
    assert caught.value.exit_code == EXIT_CANNOT_START
    return caught.value.text


def test_a_wrong_address_stops_the_start(home: Path) -> None:
    text = refused(home, "\nadminAllowedAddresses=127.0.0.1,10.0\n")
    assert f"{home}/b.conf:2: adminAllowedAddresses: '10.0' has 2 parts instead of 4; " in text


def test_a_broken_access_file_stops_the_start_with_acl_only(home: Path) -> None:
    path = home / "conf" / "plain_acl.yml"
    path.write_text("accounts:\n- accessKey: short\n")
    assert f"{path}:2: account short: " in refused(home, "aclEnable=true\n")
    (home / "b.conf").write_text("")
    options = load_startup_options(["-c", str(home / "b.conf")], {"ROCKETMQ_HOME": str(home)})
    assert not options.broker.acl_enable


def test_a_broken_tools_file_stops_the_start(home: Path) -> None:
    path = home / "conf" / "tools.yml"
    path.write_text("accessKey: [a]\n")
    assert f"{path}:1: accessKey: expected one plain value, not a list or mapping" in refused(
        home, ""
    )


def test_good_files_start(home: Path) -> None:
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNT)
    (home / "b.conf").write_text("aclEnable=true\nadminAllowedAddresses=10.0.0.0/8\n")
    options = load_startup_options(["-c", str(home / "b.conf")], {"ROCKETMQ_HOME": str(home)})
    assert options.broker.acl_enable
    assert options.broker.admin_allowed_addresses == "10.0.0.0/8"
