"""broker.auth.auth_migrator, and what a start makes of the settings (broker.auth.auth)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.acl.plain_acl_file import PlainAccessConfig
from broker.auth.auth import Auth
from broker.auth.auth_migrator import acl_policies
from broker.auth.user import UserType
from broker.json_config_manager import ConfigFileError
from broker.settings.auth_config import AuthConfig
from broker.settings.startup_options import StartupOptions
from tests.broker.auth.test_auth_config import ACLS, USERS

ACCOUNTS = """
globalWhiteRemoteAddresses: [10.0.0.1]
accounts:
- accessKey: application
  secretKey: application-secret
  whiteRemoteAddress: 10.1.1.1
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [orders=PUB|SUB, closed=DENY, sent= PUB, odd=Read, broken, "*=PUB|SUB", "or*=SUB"]
  groupPerms: [g=SUB]
- accessKey: operator
  secretKey: operator-secret
  admin: true
- accessKey: plainly
  secretKey: plainly-secret
"""


def auth(tmp_path: Path, **config: Any) -> Auth:
    settings = {"rocketmqHome": str(tmp_path), "storePathRootDir": str(tmp_path / "store")}
    options = StartupOptions.from_settings({**settings, "listenPort": "10911"})
    keeping: Any = {
        "authentication_metadata_provider": USERS,
        "authorization_metadata_provider": ACLS,
    }
    return Auth(replace(options, auth=AuthConfig(**{**keeping, **config})))


def entries(account: PlainAccessConfig) -> list[str]:
    return [
        f"{policy.type} {one.resource.key} {','.join(one.actions)} {one.decision}"
        for policy in acl_policies(account)
        for one in policy.entries
    ]


def test_accounts_become_users_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    first = auth(tmp_path, migrate_auth_from_v1_enabled=True)
    first.load()
    assert first.users is not None
    assert first.acls is not None
    assert {user.username: user.user_type for user in first.users.list_users()} == {
        "application": UserType.NORMAL,
        "operator": UserType.SUPER,
        "plainly": UserType.NORMAL,
    }
    acl = first.acls.find_acl("application")
    assert acl is not None
    assert [
        f"{policy.type} {one.resource.key} {','.join(one.actions)} {one.decision}"
        for policy in acl.policies
        for one in policy.entries
    ] == [
        "Custom Topic:orders Pub,Sub Allow",
        "Custom Topic:closed All Deny",
        "Custom Topic:sent Pub Allow",
        "Custom Topic:odd All Deny",
        "Custom Group:g Sub Allow",
        "Default Topic:* All Deny",
        "Default Group:* Sub Allow",
    ]
    assert [text for text in caplog.messages if "skipped" in text] == [
        f"account application: skipped {text}, which is not a right on one name"
        for text in ("broken", "*=PUB|SUB", "or*=SUB")
    ]
    assert first.acls.find_acl("operator") is None
    # What changed since is not undone by the next start.
    first.acls.forget_user("application")
    first.users.delete_user("plainly")
    again = auth(tmp_path, migrate_auth_from_v1_enabled=True)
    again.load()
    assert again.acls is not None
    assert again.users is not None
    assert again.acls.find_acl("application") is None
    assert again.users.find_user("plainly") is not None


def test_not_unless_it_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    one = auth(tmp_path)
    one.load()
    assert one.users is not None
    assert one.users.list_users() == []
    assert not (tmp_path / "store" / "config" / "users.json").exists()


def test_what_an_account_without_rights_becomes() -> None:
    assert entries(PlainAccessConfig(access_key="x", secret_key="y")) == []


def test_the_first_users(tmp_path: Path) -> None:
    config = {
        "init_authentication_user": '{"username":"root","password":"root-1"}',
        "inner_client_authentication_credentials": '{accessKey:"inner",secretKey:"inner-1"}',
        "authentication_enabled": True,
    }
    one = auth(tmp_path, **config)
    one.load()
    assert one.users is not None
    assert one.guard is not None
    assert one.signer is not None
    assert one.signer.access_key == "inner"
    for name in ("root", "inner"):
        user = one.users.find_user(name)
        assert user is not None
        assert user.is_super
    # A password that was changed since stays.
    config["init_authentication_user"] = '{"username":"root","password":"other"}'
    again = auth(tmp_path, **config)
    again.load()
    assert again.users is not None
    root = again.users.find_user("root")
    assert root is not None
    assert root.password == "root-1"


def test_off_there_is_nothing(tmp_path: Path) -> None:
    nothing: Any = {"authentication_metadata_provider": "", "authorization_metadata_provider": ""}
    one = auth(tmp_path, **nothing)
    one.load()
    assert (one.users, one.acls, one.guard, one.signer) == (None, None, None, None)


def test_without_any_user_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    auth(tmp_path, authentication_enabled=True).load()
    assert "all requests are denied; set initAuthenticationUser" in caplog.text


def test_files_that_cannot_be_read_end_the_start(tmp_path: Path) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / "users.json").write_text("{")
    with pytest.raises(ConfigFileError, match=r"users\.json"):
        auth(tmp_path).load()
