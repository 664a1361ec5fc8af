"""broker.acl.allowed_requests: what is remembered is what would be found again, and no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from broker.acl.access_table import ACCESS_TABLE
from broker.acl.acl_table import AclTable
from broker.acl.allowed_requests import AllowedRequests
from broker.acl.plain_acl_file import PlainAccessConfig, build_account
from broker.acl.request_guard import RequestGuard
from broker.auth.acl_conversion import new_acl
from broker.auth.auth_guard import AuthGuard
from broker.auth.needed_rights import needed_rights
from broker.auth.policy import Acl
from broker.auth.user import User, UserStatus, UserType
from broker.settings.auth_config import AuthConfig
from remoting.address_patterns import NOBODY
from remoting.body.auth import AclInfo
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.signature import RequestSigner
from tests.broker.broker_fakes import FakeClock, FakeConnection
from tests.support.every_row import every_row

HERE, ELSEWHERE = "10.0.0.9:4711", "10.1.0.9:4711"
REMEMBERED: Final = {code: row for code, row in ACCESS_TABLE.items() if row.named_by}


class Noted(dict[str, str]):
    """Fields that note by which names they were asked."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__(fields)
        self.names: set[str] = set()

    def get(self, name: str, otherwise: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, otherwise)

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all of them")


class WithoutBody(RemotingCommand):
    """A request whose body nobody may look at."""

    __slots__ = ()

    @property
    def body(self) -> bytes:  # type: ignore[override]
        raise AssertionError("the body")

    @body.setter
    def body(self, _body: bytes) -> None: ...


@every_row("code", REMEMBERED)
@every_row("topic", ["T", "%RETRY%g", "%RETRY%other", "%RETRY%g_T", "x_REPLY_TOPIC"])
def test_only_the_named_fields_decide(code: int, topic: str) -> None:
    row = REMEMBERED[code]
    assert row.resources_of is not None
    for left_out in ("", "consumerGroup", "topic"):
        fields = {"topic": topic, "b": topic, "consumerGroup": "g", "AccessKey": "k"}
        fields.pop(left_out, None)
        noted = Noted(fields)
        request = WithoutBody(code)
        request.ext_fields = noted
        row.resources_of(request)
        list(needed_rights(request, row, "C"))
        assert noted.names <= set(row.named_by)


def test_the_hot_codes_are_remembered() -> None:
    assert set(REMEMBERED) >= {10, 310, 320, 11, 361, 200050, 200051}


def test_only_the_judge_that_allowed_it_counts() -> None:
    allowed = AllowedRequests()
    one, equal = ["judge"], ["judge"]
    assert not allowed.includes(("a", 310, "T"), one)
    allowed.add(("a", 310, "T"), one)
    assert allowed.includes(("a", 310, "T"), one)
    assert not allowed.includes(("a", 310, "T"), equal)
    assert not allowed.includes(("a", 310, None), one)


def test_it_does_not_grow_without_end() -> None:
    allowed, judge = AllowedRequests(), object()
    allowed.add(("a", "x" * 2_000), judge)
    assert not allowed.includes(("a", "x" * 2_000), judge)
    for number in range(10_000):
        allowed.add(("a", number), judge)
    assert sum(allowed.includes(("a", number), judge) for number in range(10_000)) <= 4096
    assert allowed.includes(("a", 9_999), judge)


# -- accounts of 4.9 -------------------------------------------------------------------------------

ACCOUNT: Final = PlainAccessConfig(
    access_key="application", secret_key="application-secret", topic_perms=("T=PUB",)
)


class Source:
    """AclSource."""

    def __init__(self) -> None:
        self.table = AclTable(accounts={ACCOUNT.access_key: build_account(ACCOUNT)})


def refusal(guard: RequestGuard, who: str, secret: str, remote: str, **fields: str) -> str | None:
    """The remark of the refusal of a send; None if it is let in."""
    request = RemotingCommand.request(310, {"b": "T", **fields}, b"body")
    RequestSigner(who, secret).sign(request)
    try:
        guard.check(FakeConnection(remote), request)
    except RequestError as error:
        return error.remark
    return None


def test_a_changed_file_counts_from_the_next_request_on() -> None:
    source = Source()
    guard = RequestGuard(NOBODY, "", source, FakeClock())

    def said(**fields: str) -> str | None:
        remark = refusal(guard, "application", "application-secret", HERE, **fields)
        return remark and remark.rpartition(": ")[2]

    for _ in range(3):
        assert said() is None
        assert said(b="Other") == "No default permission for topic:Other"
    less = replace(ACCOUNT, topic_perms=("Other=PUB",))
    source.table = AclTable(accounts={ACCOUNT.access_key: build_account(less)})
    for _ in range(2):
        assert said() == "No default permission for topic:T"
        assert said(b="Other") is None
    source.table = AclTable(accounts={})
    assert said(b="Other") == "No acl config for application"


# -- users of 5.x ----------------------------------------------------------------------------------


def acl(*resources: str, **more: object) -> Acl:
    entries = [
        {"resource": one, "actions": ["Pub"], "decision": "Allow", **more} for one in resources
    ]
    tree = {"subject": "User:app", "policies": [{"entries": entries}]}
    return new_acl(AclInfo.from_json(tree), None)


class Tables:
    """UserSource and AclSource."""

    def __init__(self) -> None:
        self.user: User | None = User(username="app", password="app-1")
        self.acl: Acl | None = acl("Topic:T")
        config = AuthConfig(authentication_enabled=True, authorization_enabled=True)
        auth = AuthGuard(config, "Cluster1", self, self)
        self.guard = RequestGuard(NOBODY, "", None, FakeClock(), auth=auth)

    def find_user(self, _username: str) -> User | None:
        return self.user

    def find_acl(self, _username: str) -> Acl | None:
        return self.acl

    def is_let_in(self, remote: str = HERE, **fields: str) -> bool:
        return refusal(self.guard, "app", "app-1", remote, **fields) is None


def test_a_changed_list_counts_from_the_next_request_on() -> None:
    tables = Tables()
    for _ in range(3):
        assert tables.is_let_in()
        assert not tables.is_let_in(b="Other")
    tables.acl = acl("Topic:Other")
    for _ in range(2):
        assert not tables.is_let_in()
        assert tables.is_let_in(b="Other")
    tables.acl = None
    assert not tables.is_let_in(b="Other")


def test_the_address_decides_with_the_list() -> None:
    tables = Tables()
    tables.acl = acl("Topic:T", sourceIps=["10.0.0.0/16"])
    for _ in range(2):
        assert tables.is_let_in(HERE)
        assert not tables.is_let_in(ELSEWHERE)


def test_what_a_super_user_might_a_normal_one_may_not() -> None:
    tables = Tables()
    tables.user = User(username="app", password="app-1", user_type=UserType.SUPER)
    assert tables.is_let_in(b="Other")
    tables.user = User(username="app", password="app-1")
    assert not tables.is_let_in(b="Other")
    assert tables.is_let_in()


def test_a_user_disabled_deleted_or_with_another_password_is_refused_at_once() -> None:
    tables = Tables()
    assert tables.is_let_in()
    tables.user = User(username="app", password="app-1", user_status=UserStatus.DISABLE)
    assert not tables.is_let_in()
    tables.user = User(username="app", password="app-2")
    assert not tables.is_let_in()
    tables.user = None
    assert not tables.is_let_in()
    tables.user = User(username="app", password="app-1")
    assert tables.is_let_in()
