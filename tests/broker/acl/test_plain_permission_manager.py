"""broker.acl.plain_permission_manager and acl_files: which files count, how they are followed and
changed, and what a slave takes over."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
import yaml

from broker.acl import plain_permission_manager
from broker.acl.acl_files import check_name, find_files
from broker.acl.plain_permission_manager import (
    PERIOD_MS,
    AccountChange,
    AclChangeError,
    PlainPermissionManager,
)
from conf.errors import ConfigError
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.data_version import DataVersion
from tests.broker.broker_fakes import FakeClock

ONE = "accounts:\n- accessKey: account-1\n  secretKey: secret-1\n"
TWO = "accounts:\n- accessKey: account-2\n  secretKey: secret-2\n"
BROKEN = "accounts:\n- accessKey: short\n"
WATCHED = "broker.acl.plain_permission_manager"


class World:
    """A manager over files below tmp_path/conf."""

    def __init__(self, root: Path) -> None:
        self.conf = root / "conf"
        self.default = self.conf / "plain_acl.yml"
        self.clock = FakeClock()
        self.manager = PlainPermissionManager(root, self.clock)
        self.executor = ScheduledExecutor(self.clock)

    def write(self, name: str, text: str) -> Path:
        path = self.conf / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def load(self) -> World:
        self.manager.load()
        self.manager.schedule_on(self.executor)
        return self

    def look(self, times: int = 2) -> None:
        for _ in range(times):
            self.clock.advance(PERIOD_MS)
            assert self.executor.run_due() == 1

    def accounts(self) -> dict[str, bytes]:
        return {key: one.secret_key for key, one in self.manager.table.accounts.items()}

    def tree(self, path: Path | None = None) -> dict[str, object]:
        tree = yaml.safe_load((path or self.default).read_text())
        assert isinstance(tree, dict)
        return tree


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# -- which files count --------------------------------------------------------------------------


def test_the_folder_comes_first_then_the_file(world: World) -> None:
    for name in ("plain_acl.yml", "acl/b.yml", "acl/a.yaml", "acl/team/c.yml"):
        world.write(name, "")
    for name in ("acl/tools.yml", "acl/notes.txt", "acl/b.yml.bak", "acl/..data/b.yml", "x.yml"):
        world.write(name, BROKEN)
    names = [path.relative_to(world.conf).as_posix() for path in find_files(world.conf)]
    assert names == ["acl/a.yaml", "acl/b.yml", "acl/team/c.yml", "plain_acl.yml"]


def test_files_add_up_and_the_first_account_of_a_name_counts(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first = world.write("acl/a.yml", ONE + "globalWhiteRemoteAddresses:\n- 10.1.1.1\n")
    text = ONE.replace("secret-1", "another") + TWO.removeprefix("accounts:\n")
    second = world.write("plain_acl.yml", text + "globalWhiteRemoteAddresses:\n- 10.2.2.2\n")
    with caplog.at_level(logging.WARNING):
        world.load()
    assert world.accounts() == {"account-1": b"secret-1", "account-2": b"secret-2"}
    white = world.manager.table.white_addresses
    assert [white.matches(ip) for ip in ("10.1.1.1", "10.2.2.2", "10.3.3.3")] == [True, True, False]
    assert caplog.messages == [
        f"{second}:2: account account-1 ignored: already defined at {first}:2; keep one of the two"
    ]


def test_without_files_nobody_is_known_and_the_log_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        world.load()
    assert world.manager.table.is_empty
    assert caplog.messages == [
        "access table: 0 accounts from no file",
        "access table: no account and no whitelisted address, so all requests are denied; create "
        f"{world.default} (docs/access.md shows the format)",
    ]
    assert world.manager.data_versions() == {}
    assert world.manager.default_data_version() == DataVersion()


def test_editions_are_those_of_the_files(world: World) -> None:
    other = world.write("acl/a.yml", ONE)
    os.utime(other, ns=(0, 1_700_000_000_123_000_000))
    world.write("plain_acl.yml", TWO + "dataVersion:\n- counter: 7\n  timestamp: 1700000000000\n")
    world.load()
    default = DataVersion(counter=7, timestamp=1_700_000_000_000)
    assert world.manager.data_versions() == {
        str(other): DataVersion(counter=0, timestamp=1_700_000_000_123),
        str(world.default): default,
    }
    assert world.manager.default_data_version() == default


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            BROKEN.encode(),
            ":2: account short: accessKey and secretKey are required and must be longer",
        ),
        (b"\xff", ": not UTF-8 text (byte 0)"),
    ],
)
def test_a_first_load_fails_with_file_and_line(world: World, data: bytes, problem: str) -> None:
    path = world.write("plain_acl.yml", "")
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        world.manager.load()
    assert str(caught.value).startswith(f"{path}{problem}")


def test_a_file_that_cannot_be_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.write("plain_acl.yml", ONE)

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError) as caught:
        world.manager.load()
    assert str(caught.value) == f"{path}: cannot be read: Permission denied"


# -- following ----------------------------------------------------------------------------------


def test_a_change_counts_once_it_has_rested(world: World) -> None:
    world.write("plain_acl.yml", ONE)
    world.load()
    world.write("plain_acl.yml", TWO)
    world.look(1)
    assert list(world.accounts()) == ["account-1"], "it may still be being written"
    world.look(1)
    assert list(world.accounts()) == ["account-2"]


def test_files_come_and_go(world: World) -> None:
    world.load()
    path = world.write("acl/a.yml", ONE)
    world.look()
    assert list(world.accounts()) == ["account-1"]
    path.unlink()
    world.look()
    assert world.accounts() == {}


def test_a_broken_file_keeps_the_table_and_is_said_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.write("plain_acl.yml", ONE)
    world.load()
    path = world.write("plain_acl.yml", BROKEN)
    with caplog.at_level(logging.INFO):
        world.look(5)
    assert list(world.accounts()) == ["account-1"]
    assert caplog.record_tuples == [
        (
            WATCHED,
            logging.ERROR,
            f"{path}:2: account short: accessKey and secretKey are required and must be longer "
            "than 6 characters; keeping the previous access table",
        )
    ]
    caplog.clear()
    world.write("plain_acl.yml", BROKEN + "# another state\n")
    world.look(5)
    assert len(caplog.record_tuples) == 1
    world.write("plain_acl.yml", TWO)
    world.look()
    assert list(world.accounts()) == ["account-2"]


def test_what_did_not_change_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("plain_acl.yml", ONE)
    world.load()
    monkeypatch.setattr(plain_permission_manager, "read_files", None)
    world.look(5)


# -- changes ------------------------------------------------------------------------------------


def change(**values: object) -> AccountChange:
    base = {"access_key": "account-1", "secret_key": "new-secret"}
    return AccountChange(**{**base, **values})  # type: ignore[arg-type]


def test_a_first_account_makes_the_file(world: World) -> None:
    world.load()
    world.manager.update_account(change(admin=True, topic_perms=["t=PUB"]))
    assert world.accounts() == {"account-1": b"new-secret"}, "at once"
    assert world.tree() == {
        "globalWhiteRemoteAddresses": [],
        "accounts": [
            {
                "accessKey": "account-1",
                "secretKey": "new-secret",
                "whiteRemoteAddress": "",
                "admin": True,
                "defaultTopicPerm": "",
                "defaultGroupPerm": "",
                "topicPerms": ["t=PUB"],
                "groupPerms": [],
            }
        ],
        "dataVersion": [{"counter": 1, "timestamp": world.clock.now}],
    }
    assert world.default.stat().st_mode & 0o777 == 0o600
    assert world.manager.default_data_version() == DataVersion(counter=1, timestamp=world.clock.now)
    world.look(3)
    assert world.accounts() == {"account-1": b"new-secret"}


def test_an_account_is_changed_where_it_is(world: World) -> None:
    account = (
        "  whiteRemoteAddress: 10.1.1.1\n  admin: true\n  defaultTopicPerm: PUB\n"
        "  defaultGroupPerm: SUB\n  topicPerms: [a=PUB]\n  groupPerms: [b=SUB]\n"
    )
    folder = world.write("acl/a.yml", ONE + account)
    folder.chmod(0o640)
    world.write("plain_acl.yml", TWO)
    world.load()
    world.manager.update_account(change(default_topic_perm="", default_group_perm="PUB|SUB"))
    world.manager.update_account(change(group_perms=[], white_remote_address=""))
    tree = world.tree(folder)
    assert tree["accounts"] == [
        {
            "accessKey": "account-1",
            "secretKey": "new-secret",
            "whiteRemoteAddress": "",
            "admin": False,
            "defaultTopicPerm": "PUB",
            "defaultGroupPerm": "PUB|SUB",
            "topicPerms": ["a=PUB"],
            "groupPerms": [],
        }
    ]
    assert tree["dataVersion"] == [{"counter": 2, "timestamp": world.clock.now}]
    assert folder.stat().st_mode & 0o777 == 0o640
    assert world.default.read_text() == TWO
    assert not world.manager.table.accounts["account-1"].admin


def test_a_change_sees_what_nobody_has_taken_over_yet(world: World) -> None:
    world.write("plain_acl.yml", ONE)
    world.load()
    world.write("plain_acl.yml", ONE + TWO.removeprefix("accounts:\n"))
    world.manager.update_account(change())
    assert world.accounts() == {"account-1": b"new-secret", "account-2": b"secret-2"}


def test_another_file_that_changes_meanwhile_is_not_missed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("plain_acl.yml", ONE)
    other = world.write("acl/z.yml", "")
    world.load()
    real = plain_permission_manager.write_atomic

    def and_somebody_writes(path: Path, data: bytes, *, backup: bool, mode: int) -> None:
        real(path, data, backup=backup, mode=mode)
        other.write_text(TWO)

    monkeypatch.setattr(plain_permission_manager, "write_atomic", and_somebody_writes)
    world.manager.update_account(change())
    assert list(world.accounts()) == ["account-1"]
    world.look()
    assert sorted(world.accounts()) == ["account-1", "account-2"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"access_key": "short"},
            "The accessKey=short and secretKey=*** cannot be null and length should longer than 6",
        ),
        (
            {"access_key": None},
            "The accessKey=None and secretKey=*** cannot be null and length should longer than 6",
        ),
        (
            {"secret_key": None},
            "The accessKey=account-1 and secretKey=null cannot be null and length should longer "
            "than 6",
        ),
        (
            {"topic_perms": ["t"]},
            "Parse Resource format error for t.\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB",
        ),
        (
            {"group_perms": ["g=sub"]},
            "Parse resource permission error for g=sub.\n"
            "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'.",
        ),
        (
            {"white_remote_address": "10.0"},
            "{path}:3: account account-1: whiteRemoteAddress: '10.0' has 2 parts instead of 4; "
            "use an address (10.1.2.3, 2001:db8::1), a list (10.1.2.{{3,4}}), or * and ranges in "
            "an address (10.1.*.*, 10.1.2.3-50)",
        ),
    ],
)
def test_a_change_that_cannot_be(world: World, values: dict[str, object], text: str) -> None:
    path = world.write("plain_acl.yml", ONE)
    world.load()
    with pytest.raises(AclChangeError) as caught:
        world.manager.update_account(change(**values))
    assert str(caught.value) == text.format(path=path)
    assert path.read_text() == ONE
    assert world.accounts() == {"account-1": b"secret-1"}


def test_an_account_is_deleted(world: World) -> None:
    world.write("acl/a.yml", TWO)
    world.write("plain_acl.yml", ONE)
    world.load()
    world.manager.delete_account("account-1")
    assert list(world.accounts()) == ["account-2"]
    assert world.tree()["accounts"] == []
    with pytest.raises(AclChangeError) as caught:
        world.manager.delete_account("account-1")
    assert str(caught.value) == f"there is no account account-1 in {world.conf}"


def test_white_addresses_of_the_default_file_or_of_a_named_one(world: World) -> None:
    other = world.write("acl/a.yml", ONE)
    world.load()
    world.manager.update_white_addresses(["10.1.1.*"], None)
    world.manager.update_white_addresses(["10.2.2.*"], str(other))
    world.manager.update_white_addresses(["10.3.3.{1,2}"], f"{world.conf}/../conf/plain_acl.yml")
    white = world.manager.table.white_addresses
    inside = [white.matches(ip) for ip in ("10.1.1.1", "10.2.2.2", "10.3.3.2")]
    assert inside == [False, True, True]
    assert world.tree(other)["globalWhiteRemoteAddresses"] == ["10.2.2.*"]
    assert world.tree(other)["accounts"] != []


def test_white_addresses_that_cannot_be(world: World, tmp_path: Path) -> None:
    path = world.write("plain_acl.yml", ONE)
    outside = tmp_path / "other.yml"
    outside.write_text("")
    world.load()
    with pytest.raises(AclChangeError, match="'nowhere' has 1 parts instead of 4"):
        world.manager.update_white_addresses(["nowhere"], None)
    with pytest.raises(AclChangeError) as caught:
        world.manager.update_white_addresses(["10.0.0.1"], str(outside))
    expected = f"{outside} is not an access file of this broker; expected one of {path}"
    assert str(caught.value) == expected
    assert (path.read_text(), outside.read_text()) == (ONE, "")


def test_nothing_is_changed_while_a_file_is_broken(world: World) -> None:
    world.write("plain_acl.yml", ONE)
    world.load()
    broken = world.write("acl/a.yml", "[")
    with pytest.raises(AclChangeError) as caught:
        world.manager.delete_account("account-1")
    text = "no change is possible while a file is invalid: "
    assert str(caught.value).startswith(f"{text}{broken}:1: not YAML: ")
    assert world.default.read_text() == ONE


def test_a_disk_that_refuses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("plain_acl.yml", ONE)
    world.load()

    def refuse(*_arguments: object, **_keywords: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plain_permission_manager, "write_atomic", refuse)
    with pytest.raises(AclChangeError) as caught:
        world.manager.delete_account("account-1")
    text = f"{world.default} could not be written: [Errno 28] No space left on device"
    assert str(caught.value) == text
    assert list(world.accounts()) == ["account-1"]


# -- on a slave ---------------------------------------------------------------------------------


def test_a_slave_holds_exactly_what_its_master_holds(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    master = World(tmp_path / "master")
    master.write("acl/team/a.yml", ONE)
    master.write("plain_acl.yml", TWO)
    master.load()
    gone = world.write("acl/gone.yml", ONE.replace("account-1", "revoked-1"))
    world.write("plain_acl.yml", "# nobody\n")
    world.load()
    with caplog.at_level(logging.WARNING):
        assert world.manager.replace_files(master.manager.texts())
    assert list(world.accounts()) == ["account-1", "account-2"]
    assert world.manager.texts() == master.manager.texts()
    assert (world.conf / "acl/team/a.yml").read_text() == ONE
    assert (world.conf / "acl/team/a.yml").stat().st_mode & 0o777 == 0o600
    assert caplog.messages == [f"{gone}: not on the master: moved to {gone}.bak"]
    before = world.default.stat().st_mtime_ns
    assert not world.manager.replace_files(master.manager.texts())
    assert world.default.stat().st_mtime_ns == before
    world.look(3)
    assert list(world.accounts()) == ["account-1", "account-2"]


def test_the_first_file_is_first_on_a_slave_too(world: World) -> None:
    texts = {"plain_acl.yml": ONE.replace("secret-1", "other-1"), "acl/a.yml": ONE}
    world.load()
    world.manager.replace_files(texts)
    assert world.accounts() == {"account-1": b"secret-1"}


def test_a_broken_file_of_a_slave_is_replaced(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    path = world.write("plain_acl.yml", ONE)
    world.load()
    path.write_text("[")
    assert world.manager.replace_files({"plain_acl.yml": TWO})
    assert list(world.accounts()) == ["account-2"]
    assert any(message.startswith(f"{path}:1: not YAML: ") for message in caplog.messages)


@pytest.mark.parametrize(
    ("texts", "error", "text"),
    [
        ({}, ValueError, "the master sent no access file; keeping the local ones"),
        ({"plain_acl.yml": BROKEN}, ConfigError, "account short"),
        (
            {"../x.yml": ONE},
            ValueError,
            r"'\.\./x\.yml' is not an access file; use plain_acl\.yml or acl/\*\.yml",
        ),
    ],
)
def test_what_a_slave_does_not_take(
    world: World, texts: dict[str, str], error: type[Exception], text: str
) -> None:
    world.write("plain_acl.yml", TWO)
    world.load()
    with pytest.raises(error, match=text):
        world.manager.replace_files(texts)
    assert world.default.read_text() == TWO
    assert list(world.accounts()) == ["account-2"]


@pytest.mark.parametrize("name", ["plain_acl.yml", "acl/a.yml", "acl/b/c.yaml"])
def test_names_of_access_files(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "broker.conf",
        "tools.yml",
        "acl/tools.yml",
        "acl/a.txt",
        "acl",
        "acl/../plain_acl.yml",
        "acl/../../x.yml",
        "/etc/x.yml",
        "./plain_acl.yml",
        "acl//a.yml",
    ],
)
def test_names_of_other_files(name: str) -> None:
    with pytest.raises(ValueError, match="is not an access file"):
        check_name(name)
