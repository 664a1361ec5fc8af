"""RequestGuard.hold: what a request that waits is judged by when it is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from broker.acl.acl_table import AclTable
from broker.acl.plain_acl_file import PlainAccessConfig, build_account
from broker.acl.request_guard import RequestGuard
from broker.auth.acl_conversion import new_acl
from broker.auth.auth_guard import AuthGuard
from broker.auth.authentication_metadata_manager import AuthenticationMetadataManager
from broker.auth.authorization_metadata_manager import AuthorizationMetadataManager
from broker.auth.policy import PolicyType
from broker.auth.user import User
from broker.settings.auth_config import AuthConfig
from remoting.address_patterns import NOBODY, parse_pattern
from remoting.body.auth import AclInfo, UserInfo
from remoting.errors import RequestError
from tests.broker.broker_fakes import FakeClock, FakeConnection

FAR: Final = "10.0.0.9:4711"
WAITING: Final = (11, 361, 200050, 200054)
APP: Final = PlainAccessConfig(
    access_key="application",
    secret_key="application-secret",
    topic_perms=("orders=SUB",),
    group_perms=("g=SUB",),
)


@dataclass
class Source:
    """AclSource."""

    table: AclTable


def table_of(*accounts: PlainAccessConfig, white: str | None = None) -> AclTable:
    addresses = NOBODY if white is None else parse_pattern(white)
    return AclTable(addresses, {one.access_key: build_account(one) for one in accounts})


def problem(check: Callable[[], None] | None) -> str | None:
    assert check is not None
    try:
        check()
    except RequestError as error:
        return error.remark
    return None


def changed(**values: Any) -> PlainAccessConfig:
    plain = {name: getattr(APP, name) for name in ("access_key", "secret_key", "topic_perms")}
    return PlainAccessConfig(**{**plain, "group_perms": APP.group_perms, **values})


@pytest.mark.parametrize("code", WAITING)
@pytest.mark.parametrize(
    ("after", "words"),
    [
        ((), "No acl config for application"),
        ((changed(topic_perms=("orders=PUB",)),), "No default permission for topic:orders"),
        ((changed(group_perms=()),), "No default permission for group:g"),
        ((changed(secret_key="another-secret"),), "Check signature failed"),
        ((changed(topic_perms=("orders=PUB|SUB",)),), None),
    ],
)
def test_a_changed_account_of_4_9(
    code: int, after: tuple[PlainAccessConfig, ...], words: str | None
) -> None:
    source = Source(table_of(APP))
    guard = RequestGuard(NOBODY, "", source, FakeClock())
    check = guard.hold(FakeConnection(FAR), code, "application", "g", "orders")
    assert problem(check) is None
    source.table = table_of(*after)
    remark = problem(check)
    assert remark is None if words is None else words in (remark or "")
    # A second change is seen as well, and so is one that gives the right back.
    source.table = table_of(APP)
    assert problem(check) is None
    source.table = table_of()
    assert problem(check) is not None


def test_an_address_that_is_white_no_more() -> None:
    """What it let pass unsigned was never signed: the account that it named does not help it."""
    for key, words in ((None, "No accessKey"), ("application", "Check signature failed")):
        source = Source(table_of(APP, white="10.0.0.*"))
        guard = RequestGuard(NOBODY, "", source, FakeClock())
        check = guard.hold(FakeConnection(FAR), 11, key, "g", "orders")
        source.table = table_of(APP, white="10.0.0.9")
        assert problem(check) is None
        source.table = table_of(APP)
        assert words in (problem(check) or "")


def test_a_right_that_went_before_the_request_waits() -> None:
    guard = RequestGuard(NOBODY, "", Source(table_of()), FakeClock())
    with pytest.raises(RequestError, match="No acl config"):
        guard.hold(FakeConnection(FAR), 11, "application", "g", "orders")


def test_without_access_control_nothing_is_asked() -> None:
    guard = RequestGuard(NOBODY, "", None, FakeClock())
    assert guard.hold(FakeConnection(FAR), 11, "application", "g", "orders") is None


def test_unchanged_tables_are_not_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(table_of(APP))
    guard = RequestGuard(NOBODY, "", source, FakeClock())
    check = guard.hold(FakeConnection(FAR), 11, "application", "g", "orders")
    judged: list[object] = []
    judge = AclTable.validate_held
    monkeypatch.setattr(
        AclTable, "validate_held", lambda *args: (judged.append(args), judge(*args))[1]
    )
    for _ in range(3):
        assert problem(check) is None
    source.table = table_of(APP)
    for _ in range(3):
        assert problem(check) is None
    assert len(judged) == 1


class Users:
    """The tables of 5.x with one user, app, and a guard over them."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.users = AuthenticationMetadataManager(root / "users.json")
        self.acls = AuthorizationMetadataManager(root / "acls.json", self.users)
        self.users.load()
        self.acls.load()
        self.users.create_user(User(username="app", password="app-1"))
        self.allow("Topic:orders", "Group:g")
        on = {"authentication_enabled": True, "authorization_enabled": True, **settings}
        auth = AuthGuard(AuthConfig(**on), "Cluster1", self.users, self.acls)
        self.guard = RequestGuard(NOBODY, "", None, FakeClock(), auth=auth)

    def allow(self, *resources: str) -> None:
        entries = [{"resource": one, "actions": ["Sub"], "decision": "Allow"} for one in resources]
        tree = {"subject": "User:app", "policies": [{"entries": entries}]}
        self.acls.update_acl(new_acl(AclInfo.from_json(tree), None))


@pytest.mark.parametrize("code", WAITING)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda world: world.users.delete_user("app"), "is not found"),
        (
            lambda world: world.users.update_user(UserInfo(username="app", user_status="disable")),
            "is disabled",
        ),
        (
            lambda world: world.users.update_user(UserInfo(username="app", password="app-2")),
            "check signature failed",
        ),
        (
            lambda world: world.acls.delete_acl("User:app", PolicyType.CUSTOM, None),
            "no matched policies",
        ),
        (lambda world: world.allow("Topic:more"), None),
    ],
)
def test_a_changed_user_of_5_x(
    tmp_path: Path, code: int, change: Callable[[Users], None], words: str | None
) -> None:
    world = Users(tmp_path)
    check = world.guard.hold(FakeConnection(FAR), code, "app", "g", "orders")
    assert problem(check) is None
    change(world)
    remark = problem(check)
    assert remark is None if words is None else words in (remark or "")


def test_where_the_name_is_believed_the_password_is_not_looked_at(tmp_path: Path) -> None:
    world = Users(tmp_path, authentication_enabled=False)
    check = world.guard.hold(FakeConnection(FAR), 11, "app", "g", "orders")
    world.users.update_user(UserInfo(username="app", password="app-2"))
    assert problem(check) is None
    world.users.delete_user("app")
    assert problem(check) is not None
