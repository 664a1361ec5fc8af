"""broker.acl.acl_synchronize: a slave takes its master's access files, or keeps its own."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker.acl.acl_synchronize import TIMEOUT_MS, AclSynchronize
from broker.acl.plain_permission_manager import PlainPermissionManager
from broker.out.broker_outer_api import BrokerAnswerError
from remoting.body.acl_files import AclFiles, AclFileText
from remoting.errors import RemotingConnectError
from remoting.request_code import RequestCode
from tests.broker.broker_fakes import FakeClock
from tests.broker.slave.test_slave_synchronize import DELAYS, MASTER, World

ACCOUNT = "accounts:\n- accessKey: account-1\n  secretKey: secret-1\n"
FILES = AclFiles(files=[AclFileText(name="plain_acl.yml", text=ACCOUNT)]).to_json_bytes()


class Api:
    """FileSource."""

    def __init__(self) -> None:
        self.answer: bytes | Exception | None = FILES

    def get_table(self, broker: str, code: RequestCode, timeout_ms: int) -> bytes | None:
        assert (broker, code, timeout_ms) == (MASTER, RequestCode.GET_ACL_FILES, TIMEOUT_MS)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Slave:
    def __init__(self, root: Path) -> None:
        self.path = root / "conf" / "plain_acl.yml"
        self.manager = PlainPermissionManager(root, FakeClock())
        self.manager.load()
        self.api = Api()
        self.sync = AclSynchronize(self.api, self.manager)


@pytest.fixture
def slave(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Slave:
    made = Slave(tmp_path)
    caplog.set_level(logging.INFO, "broker.acl.acl_synchronize")
    caplog.clear()
    return made


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    name = "broker.acl.acl_synchronize"
    return [(r.levelno, r.getMessage()) for r in caplog.records if r.name == name]


def test_the_files_of_the_master(slave: Slave, caplog: pytest.LogCaptureFixture) -> None:
    slave.sync.sync(MASTER)
    slave.sync.sync(MASTER)
    assert slave.path.read_text() == ACCOUNT
    assert list(slave.manager.table.accounts) == ["account-1"]
    assert said(caplog) == [(logging.INFO, f"master {MASTER}: adopted 1 access files")]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (RemotingConnectError(MASTER, "refused"), f"RemotingConnectError: {MASTER}: refused"),
        (BrokerAnswerError("code 3"), "BrokerAnswerError: code 3"),
        (None, "ValueError: the master sent no access file; keeping the local ones"),
        (b"{", "BodyError: SYSTEM_ERROR: AclFiles: invalid JSON in 1 bytes: "),
        (
            AclFiles(files=[AclFileText(name="x", text="")]).to_json_bytes(),
            "ValueError: 'x' is not an access file; use plain_acl.yml or acl/*.yml",
        ),
        (
            AclFiles(files=[AclFileText(name="plain_acl.yml", text="[")]).to_json_bytes(),
            "ConfigError: ",
        ),
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
    ],
)
def test_trouble_is_said_once_and_tried_again(
    slave: Slave,
    caplog: pytest.LogCaptureFixture,
    answer: bytes | Exception | None,
    problem: str,
) -> None:
    slave.api.answer = answer
    for _ in range(3):
        slave.sync.sync(MASTER)
    assert not slave.path.exists()
    ((level, text),) = said(caplog)
    assert level == logging.WARNING
    assert text.startswith(
        f"master {MASTER}: access files not copied, keeping the local ones: {problem}"
    )
    slave.api.answer = FILES
    slave.sync.sync(MASTER)
    slave.api.answer = answer
    slave.sync.sync(MASTER)
    assert [level for level, _ in said(caplog)] == [logging.WARNING, logging.INFO, logging.WARNING]


# -- at the end of a round of the tables --------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def rounds(world: World) -> list[str]:
    """Masters for which the end of a round was told, from now on."""
    told: list[str] = []
    world.sync.also_copied.append(told.append)
    return told


def test_after_each_round_even_when_a_table_fails(world: World) -> None:
    told = rounds(world)
    world.api.fail(DELAYS)
    world.sync.sync_all()
    world.sync.sync_all()
    assert told == [MASTER, MASTER]


def test_not_from_a_master_whose_log_is_another(world: World) -> None:
    told = rounds(world)
    world.sync.logs_compared(MASTER, "diverged")
    world.sync.sync_all()
    assert told == []


def test_not_from_a_master_that_nobody_compared(world: World) -> None:
    told = rounds(world)
    world.sync._compare_logs = lambda: None
    world.sync.sync_all()
    assert told == []


def test_not_from_a_master_that_was_replaced_meanwhile(world: World) -> None:
    told = rounds(world)
    world.api.on_call = lambda _broker, _code: world.sync.set_master_address("10.0.0.9:10911")
    world.sync.sync_all()
    assert told == ["10.0.0.9:10911"], "the one that is followed now, in the round that follows"
