"""The tables of users and ACLs: what is kept, how it is written, and what damage does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from broker.auth.acl_conversion import acl_info, new_acl
from broker.auth.auth_error import AuthError
from broker.auth.authentication_metadata_manager import AuthenticationMetadataManager
from broker.auth.authorization_metadata_manager import AuthorizationMetadataManager
from broker.auth.policy import Acl, PolicyType
from broker.auth.resource import parse_resource
from broker.auth.user import User, UserStatus, UserType
from broker.json_config_manager import ConfigFileError
from remoting.body.auth import AclInfo, UserInfo
from remoting.errors import RequestError
from remoting.response_code import ResponseCode


def users_at(directory: Path) -> AuthenticationMetadataManager:
    users = AuthenticationMetadataManager(directory / "users.json")
    users.load()
    return users


def acls_at(directory: Path, users: AuthenticationMetadataManager) -> AuthorizationMetadataManager:
    acls = AuthorizationMetadataManager(directory / "acls.json", users)
    acls.load()
    return acls


def acl(*entries: tuple[str, str], name: str = "bob") -> Acl:
    tree = {
        "subject": f"User:{name}",
        "policies": [
            {"entries": [{"resource": r, "actions": ["All"], "decision": d} for r, d in entries]}
        ],
    }
    return new_acl(AclInfo.from_json(tree), None)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_users_survive_a_restart_and_are_for_the_owners_eyes(tmp_path: Path) -> None:
    old_umask = os.umask(0o022)
    try:
        users = users_at(tmp_path)
        users.create_user(User(username="bob", password="bob-1"))
        users.create_user(User(username="ann", password="ann-1", user_type=UserType.SUPER))
        users.update_user(
            UserInfo(username="bob", password=" ", user_status="DISABLE", user_type="super")
        )
    finally:
        os.umask(old_umask)
    assert json.loads((tmp_path / "users.json").read_text()) == {
        "users": {
            "bob": {
                "username": "bob",
                "password": "bob-1",
                "userType": "Super",
                "userStatus": "disable",
            },
            "ann": {
                "username": "ann",
                "password": "ann-1",
                "userType": "Super",
                "userStatus": "enable",
            },
        }
    }
    for name in ("users.json", "users.json.bak"):
        assert mode_of(tmp_path / name) == 0o600
    again = users_at(tmp_path)
    assert again.find_user("bob") == User(
        username="bob",
        password="bob-1",
        user_type=UserType.SUPER,
        user_status=UserStatus.DISABLE,
    )
    assert [user.username for user in again.list_users()] == ["ann", "bob"]
    assert [user.username for user in again.list_users("o")] == ["bob"]
    assert again.is_super_user("ann")


def test_changes_that_are_refused(tmp_path: Path) -> None:
    users = users_at(tmp_path)
    users.create_user(User(username="bob", password="bob-1"))
    with pytest.raises(AuthError, match="The user is existed"):
        users.create_user(User(username="bob", password="x"))
    with pytest.raises(AuthError, match="The user is not exist"):
        users.update_user(UserInfo(username="nobody", password="x"))
    with pytest.raises(AuthError, match="User:nobody is not found"):
        users.is_super_user("nobody")
    users.delete_user("nobody")
    assert [user.password for user in users.list_users()] == ["bob-1"]


def test_a_change_that_cannot_be_saved_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = users_at(tmp_path)
    users.create_user(User(username="bob", password="bob-1"))
    acls = acls_at(tmp_path, users)
    acls.update_acl(acl(("Topic:a", "Allow")))

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("broker.json_config_manager.write_atomic", fail)
    for change in (
        lambda: users.create_user(User(username="new", password="x")),
        lambda: users.delete_user("bob"),
        lambda: users.update_user(UserInfo(username="bob", password="x")),
        lambda: acls.update_acl(acl(("Topic:b", "Deny"))),
        lambda: acls.forget_user("bob"),
    ):
        with pytest.raises(RequestError, match="cannot be written: No space left") as caught:
            change()
        assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert users.find_user("new") is None
    assert users.find_user("bob") == User(username="bob", password="bob-1")
    assert acls.find_acl("bob") == acl(("Topic:a", "Allow"))


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    users = users_at(tmp_path)
    users.create_user(User(username="bob", password="bob-1"))
    acls = acls_at(tmp_path, users)
    acls.update_acl(acl(("Topic:a*", "Allow"), ("*", "Deny")))
    acls.update_acl(acl(("*", "Allow"), ("Group:*", "Deny")))
    assert mode_of(tmp_path / "acls.json") == 0o600
    again = acls_at(tmp_path, users)
    merged = acl(("Topic:a*", "Allow"), ("*", "Allow"), ("Group:*", "Deny"))
    assert again.find_acl("bob") == merged
    stored = json.loads((tmp_path / "acls.json").read_text())
    assert stored == {"acls": {"User:bob": acl_info(merged).to_json()}}


def test_acls_are_of_users(tmp_path: Path) -> None:
    users = users_at(tmp_path)
    acls = acls_at(tmp_path, users)
    with pytest.raises(AuthError, match="The subject of User:bob is not exist"):
        acls.update_acl(acl(("*", "Allow")))
    everything = parse_resource("*")
    for subject, words in ((None, "is null"), ("Team:x", "is null"), ("User:bob", "not exist")):
        with pytest.raises(AuthError, match=f"The subject {words}|The subject is {words}"):
            acls.delete_acl(subject, PolicyType.CUSTOM, everything)
    with pytest.raises(AuthError, match="The subject is not exist"):
        acls.get_acl("User:bob")
    users.create_user(User(username="bob", password="bob-1"))
    assert acls.get_acl("user:bob") is None
    with pytest.raises(AuthError, match="The acl is not exist"):
        acls.delete_acl("User:bob", PolicyType.CUSTOM, None)


def test_a_users_list_ends_with_the_user_and_with_its_last_entry(tmp_path: Path) -> None:
    users = users_at(tmp_path)
    users.create_user(User(username="bob", password="bob-1"))
    acls = acls_at(tmp_path, users)
    acls.update_acl(acl(("Topic:a", "Allow")))
    acls.delete_acl("User:bob", PolicyType.CUSTOM, parse_resource("Topic:a"))
    assert acls.find_acl("bob") is None
    acls.update_acl(acl(("Topic:a", "Allow")))
    acls.forget_user("bob")
    assert acls.find_acl("bob") is None
    assert json.loads((tmp_path / "acls.json").read_text()) == {"acls": {}}


def test_lists_are_filtered(tmp_path: Path) -> None:
    users = users_at(tmp_path)
    acls = acls_at(tmp_path, users)
    for name in ("bob", "ann"):
        users.create_user(User(username=name, password="secret"))
        acls.update_acl(acl(("Topic:a", "Allow"), ("Group:b", "Deny"), name=name))

    def found(subject: str | None, resource: str | None) -> list[tuple[str, int]]:
        shown = acls.list_acls(subject, resource)
        return [(one.username, len(one.policies[0].entries)) for one in shown]

    assert found(None, " ") == [("ann", 2), ("bob", 2)]
    assert found("bo", "Topic") == [("bob", 1)]
    # Also a word that is in the subject's key, which left all entries in up to 5.3.
    assert found(None, "b") == [("ann", 1), ("bob", 1)]
    assert found("nobody", None) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"users":[]}',
        '{"users":{"bob":{"username":"bob"}}}',
        '{"users":{"bob":{"username":"eve","password":"x"}}}',
        '{"users":{"bob":{"username":"bob","password":"x","userType":"King"}}}',
        '{"users":{"bob":7}}',
    ],
)
def test_damage_is_no_empty_table(tmp_path: Path, text: str) -> None:
    """The copy before the last change is taken; without one the broker does not start."""
    users = users_at(tmp_path)
    users.create_user(User(username="bob", password="bob-1"))
    users.create_user(User(username="ann", password="ann-1"))
    (tmp_path / "users.json").write_text(text)
    assert [user.username for user in users_at(tmp_path).list_users()] == ["bob"]
    (tmp_path / "users.json.bak").write_text(text)
    with pytest.raises(ConfigFileError, match=r"users\.json"):
        users_at(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [
        {"resource": "Nothing:a", "actions": ["All"], "decision": "Allow"},
        {"resource": "Topic:a", "actions": [], "decision": "Allow"},
        {"resource": "Topic:a", "actions": ["Fly"], "decision": "Allow"},
        {"resource": "Topic:a", "actions": ["All"], "decision": "Perhaps"},
        {"resource": "Topic:a", "actions": ["All"], "decision": "Deny", "sourceIps": ["10.*"]},
    ],
)
def test_an_entry_that_cannot_be_read_is_not_left_out(tmp_path: Path, entry: Any) -> None:
    tree = {"acls": {"User:bob": {"subject": "User:bob", "policies": [{"entries": [entry]}]}}}
    (tmp_path / "acls.json").write_text(json.dumps(tree))
    with pytest.raises(ConfigFileError, match=r"acls\.json: User:bob: The "):
        acls_at(tmp_path, users_at(tmp_path))


@pytest.mark.parametrize(("key", "kept"), [("Topic:**", "Topic:*"), ("Any:x", "*"), ("any:*", "*")])
def test_an_entry_means_the_same_after_a_restart(tmp_path: Path, key: str, kept: str) -> None:
    users = users_at(tmp_path)
    users.create_user(User(username="bob", password="bob-1"))
    acls = acls_at(tmp_path, users)
    acls.update_acl(acl((key, "Deny")))
    before = acls.find_acl("bob")
    assert before is not None
    assert before.policies[0].entries[0].resource.key == kept
    assert acls_at(tmp_path, users).find_acl("bob") == before
