"""broker.auth.auth_guard behind RequestGuard: who is let in, and with which words one is not."""

from __future__ import annotations

from typing import Any, Final

import pytest

from broker.acl.access_table import ACCESS_TABLE
from broker.acl.permission import Permission
from broker.acl.request_guard import RequestGuard
from broker.auth.acl_conversion import new_acl
from broker.auth.auth_guard import AuthGuard
from broker.auth.policy import Acl
from broker.auth.user import User, UserStatus, UserType
from broker.settings.auth_config import AuthConfig
from remoting.address_patterns import NOBODY, parse_patterns
from remoting.body.auth import AclInfo
from remoting.errors import RequestError
from remoting.operator_addresses import OperatorAddresses
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from tests.broker.broker_fakes import FakeClock, FakeConnection

FAR: Final = "10.0.0.9:4711"
USERS: Final = {
    "root": User(username="root", password="root-1", user_type=UserType.SUPER),
    "app": User(username="app", password="app-1"),
    "bare": User(username="bare", password="bare-1"),
    "wide": User(username="wide", password="wide-1"),
    "gone": User(
        username="gone",
        password="gone-1",
        user_type=UserType.SUPER,
        user_status=UserStatus.DISABLE,
    ),
}


class Tables:
    """UserSource and AclSource."""

    table: Final = object()

    def find_user(self, username: str) -> User | None:
        return USERS.get(username)

    def find_acl(self, username: str) -> Acl | None:
        if username == "bare":
            return None
        entries = [
            {"resource": "Topic:T", "actions": ["Pub", "Get"], "decision": "Allow"},
            {"resource": "Topic:secret", "actions": ["All"], "decision": "Deny"},
            {
                "resource": "Group:*",
                "actions": ["Sub"],
                "decision": "Allow",
                "sourceIps": ["10.0.0.0/8"],
            },
        ]
        if username == "wide":
            entries = [{"resource": "*", "actions": ["All"], "decision": "Allow"}]
        tree = {"subject": f"User:{username}", "policies": [{"entries": entries}]}
        return new_acl(AclInfo.from_json(tree), None)


def guard(*, authentication: bool = True, authorization: bool = True, **more: Any) -> RequestGuard:
    config = AuthConfig(
        authentication_enabled=authentication, authorization_enabled=authorization, **more
    )
    tables = Tables()
    auth = AuthGuard(config, "Cluster1", tables, tables)
    here = OperatorAddresses(parse_patterns("10.0.0.9"), "10.0.0.9")
    return RequestGuard(NOBODY, "", None, FakeClock(), acl_admins=here, auth=auth)


def refusal(
    one: RequestGuard,
    code: int,
    sender: str | None = None,
    secret: str | None = None,
    remote: str = FAR,
    **fields: str,
) -> str | None:
    """The remark of the refusal, None if it is let in; always code 16."""
    request = RemotingCommand.request(code, {"topic": "T", **fields})
    if sender is not None:
        RequestSigner(sender, secret or f"{sender}-1").sign(request)
    try:
        one.check(FakeConnection(remote), request)
    except RequestError as error:
        return error.remark if error.code == ResponseCode.NO_PERMISSION else repr(error)
    return None


@pytest.mark.parametrize(
    ("sender", "secret", "words"),
    [
        (None, None, "username cannot be null."),
        ("", "x", "username cannot be null."),
        ("stranger", "x", "User:stranger is not found."),
        ("s" * 300, "x", f"User:{'s' * 100} is not found."),
        ("app", "root-1", "check signature failed."),
        ("root", "app-1", "check signature failed."),
        ("gone", "gone-1", "User:gone is disabled."),
    ],
)
def test_who_is_not_who_it_says(sender: str | None, secret: str | None, words: str) -> None:
    for one in (guard(), guard(authorization=False)):
        assert refusal(one, 202, sender, secret) == words


def test_a_notice_of_a_controller_needs_no_name() -> None:
    """1008: controllers, RocketMQ's and ours, sign nothing; without it an election is heard of
    only at the next question."""
    for one in (guard(), guard(authorization=False), guard(authentication=False)):
        assert refusal(one, 1008) is None
        assert refusal(one, 1008, "stranger", "x") is None


def test_a_signature_covers_fields_and_body() -> None:
    request = RemotingCommand.request(310, {"b": "T"}, b"body")
    RequestSigner("root", "root-1").sign(request)
    one, far = guard(), FakeConnection(FAR)
    one.check(far, request)
    request.body = b"another"
    with pytest.raises(RequestError, match="check signature failed"):
        one.check(far, request)
    request.body = b"body"
    request.ext_fields["b"] = "secret"
    with pytest.raises(RequestError, match="check signature failed"):
        one.check(far, request)
    request.ext_fields["b"] = "T"
    del request.ext_fields["Signature"]
    with pytest.raises(RequestError, match="check signature failed"):
        one.check(far, request)


def test_a_super_user_may_do_everything() -> None:
    assert [code for code in ACCESS_TABLE if refusal(guard(), code, "root")] == []


def test_without_authorization_every_user_may() -> None:
    one = guard(authorization=False)
    assert [code for code in ACCESS_TABLE if refusal(one, code, "bare")] == []


def test_a_user_without_rights_may_do_little() -> None:
    """That of which the table of rights (test_needed_rights.py) says so; most other requests here
    name a topic, or lack the body that would name something."""
    let_in = {int(code) for code in ACCESS_TABLE if refusal(guard(), code, "bare") is None}
    assert (
        let_in & {10, 11, 17, 25, 29, 200050, 200051, 202, 215, 222, 310, 401, 3001, 3004} == set()
    )
    assert {26, 28, 305} <= let_in


@pytest.mark.parametrize(
    ("code", "fields", "words"),
    [
        (351, {}, None),
        (310, {"b": "T"}, None),
        (36, {"group": "g"}, None),
        (26, {}, None),
        (215, {}, "Topic:T from 10.0.0.9, no matched policies."),
        (310, {"b": "U"}, "Topic:U from 10.0.0.9, no matched policies."),
        (310, {"b": "secret"}, "Topic:secret from 10.0.0.9, the decision is deny."),
        (25, {}, "Cluster:Cluster1 from 10.0.0.9, no matched policies."),
        (3001, {}, "Cluster:Cluster1 from 10.0.0.9, no matched policies."),
    ],
)
def test_what_a_user_may(code: int, fields: dict[str, str], words: str | None) -> None:
    expected = None if words is None else f"User:app has no permission to access {words}"
    assert refusal(guard(), code, "app", **fields) == expected


def test_a_wide_entry_does_not_open_the_brokers_own_topics() -> None:
    fields = {"consumerGroup": "g", "queueId": "0"}
    refused = "User:wide has no permission to access Topic:{} from 10.0.0.9, no matched policies."
    for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"):
        assert refusal(guard(), 11, "wide", topic=topic, **fields) == refused.format(topic)
        assert refusal(guard(), 12, "wide", topic=topic) == refused.format(topic)
        assert refusal(guard(), 11, "root", topic=topic, **fields) is None
    assert refusal(guard(), 11, "wide", topic="RMQ_SYS_TRACE_TOPIC", **fields) is None


def test_a_user_without_a_list() -> None:
    assert refusal(guard(), 351, "bare") == (
        "User:bare has no permission to access Topic:T from 10.0.0.9, no matched policies."
    )


def test_the_address_counts() -> None:
    assert refusal(guard(), 36, "app", group="g") is None
    assert refusal(guard(), 36, "app", group="g", remote="11.0.0.9:1") == (
        "User:app has no permission to access Group:g from 11.0.0.9, no matched policies."
    )


def test_a_signer_is_who_signed_whatever_it_may_do() -> None:
    one = guard()
    for sender, secret, signer in (
        ("root", None, "root"),
        ("bare", None, "bare"),
        ("root", "another", None),
        ("nobody", None, None),
    ):
        request = RemotingCommand.request(17, {"topic": "T"})
        RequestSigner(sender, secret or f"{sender}-1").sign(request)
        assert one.signer_of(request) == signer
    assert one.signer_of(RemotingCommand.request(17, {"topic": "T"})) is None


def test_whitelists() -> None:
    one = guard(authentication_whitelist="26, 351", authorization_whitelist="215")
    assert refusal(one, 26) is None
    assert refusal(one, 351) == (
        "Authorization failed. Please verify your access rights and try again."
    )
    assert refusal(one, 351, "app", "wrong") is None
    assert refusal(one, 351, "stranger", "x") == "User:stranger not found."
    assert refusal(one, 351, "gone", "x") == "User:gone is disabled."
    assert refusal(one, 215, "bare") is None
    assert refusal(one, 215) == "username cannot be null."


def test_operators_who_need_not_sign_have_addresses() -> None:
    """authenticationWhitelist: nobody knows who they are."""
    one = guard(authorization=False, authentication_whitelist="25")
    assert "adminAllowedAddresses" in str(refusal(one, 25))
    assert "adminAllowedAddresses" in str(refusal(one, 25, "root", "wrong"))
    assert refusal(one, 17, "root") is None


def test_authorization_without_lists_is_no_guard() -> None:
    config = AuthConfig(authorization_enabled=True)
    with pytest.raises(ValueError, match="needs a table of ACLs"):
        AuthGuard(config, "Cluster1", Tables(), None)


def test_without_authentication_the_name_is_believed_but_operators_have_addresses() -> None:
    one = guard(authentication=False)
    assert refusal(one, 310, "app", "wrong", b="T") is None
    assert refusal(one, 310, "app", "wrong", b="U") is not None
    assert refusal(one, 310, b="T") is not None
    words = str(refusal(one, 25, "root", "wrong"))
    assert "without authentication it is for operators at adminAllowedAddresses" in words
    assert "aclEnable" not in words  # both together end the start


def test_operators_may_be_bound_to_addresses() -> None:
    assert refusal(guard(), 17, "root") is None
    assert "aclAdminAllowedAddresses" in str(refusal(guard(), 17, "root", remote="10.0.0.8:1"))


def test_codes_that_nobody_serves_are_denied() -> None:
    assert "access table" in str(refusal(guard(), 99_999, "root"))


def test_a_message_that_was_found_by_its_place() -> None:
    one, far = guard(), FakeConnection(FAR)
    request = RemotingCommand.request(33, {"offset": "0"})
    RequestSigner("app", "app-1").sign(request)
    one.check(far, request)
    one.check_resources(far, request, {"T": Permission.SUB})
    with pytest.raises(RequestError, match="Topic:U"):
        one.check_resources(far, request, {"U": Permission.SUB})
    guard(authorization=False).check_resources(far, request, {"U": Permission.SUB})
