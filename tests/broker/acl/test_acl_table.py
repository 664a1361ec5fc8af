"""broker.acl.acl_table: the order of the checks and the original's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from broker.acl.access_table import ACCESS_TABLE
from broker.acl.acl_table import AclError, AclTable
from broker.acl.plain_acl_file import PlainAccessConfig, build_account
from remoting.address_patterns import parse_pattern
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from tests.broker.broker_fakes import request_of

FAR, WHITE, APPLICATION_HOME = "10.0.0.9", "10.9.0.1", "10.7.0.1"
ACCOUNTS = (
    PlainAccessConfig(
        access_key="application",
        secret_key="application-secret",
        white_remote_address="10.7.0.*",
        default_topic_perm="DENY",
        default_group_perm="SUB",
        topic_perms=("pub=PUB", "sub=SUB", "both=PUB|SUB"),
        group_perms=("closed=DENY", "open=PUB|SUB"),
    ),
    PlainAccessConfig(access_key="operator", secret_key="operator-secret", admin=True),
    PlainAccessConfig(
        access_key="half-operator",
        secret_key="half-operator-secret",
        admin=True,
        topic_perms=("pub=PUB",),
    ),
    PlainAccessConfig(access_key="nothing", secret_key="nothing-secret"),
)
TABLE = AclTable(
    parse_pattern("10.9.0.*"), {one.access_key: build_account(one) for one in ACCOUNTS}
)


def signed(code: int, who: str, fields: Mapping[str, Any], body: bytes = b"") -> RemotingCommand:
    request = request_of(code, body, **fields)
    secret = next(one.secret_key for one in ACCOUNTS if one.access_key == who)
    RequestSigner(who, secret).sign(request)
    return request


def problem(request: RemotingCommand, ip: str = FAR) -> str | None:
    """The remark after the exception's name; None: allowed."""
    try:
        TABLE.validate(ip, request, ACCESS_TABLE[request.code])
    except AclError as error:
        refused = error
    else:
        return None
    assert refused.code == ResponseCode.SYSTEM_ERROR
    name, _, text = refused.remark.partition(": ")
    assert name == "org.apache.rocketmq.acl.common.AclException"
    return text


def test_a_white_address_may_do_everything_unsigned() -> None:
    assert problem(RemotingCommand.request(17), WHITE) is None
    assert problem(RemotingCommand.request(34, body=b"{"), WHITE) is None, "not even read"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "No accessKey is configured"),
        ({"AccessKey": "stranger"}, "No acl config for stranger"),
        ({"AccessKey": "application"}, "Check signature failed for accessKey=application"),
        (
            {"AccessKey": "application", "Signature": "AAAA"},
            "Check signature failed for accessKey=application",
        ),
    ],
)
def test_who_is_not_known(fields: dict[str, str], text: str) -> None:
    assert problem(request_of(310, b="pub", **fields)) == text
    assert problem(request_of(28, **fields)) == text, "reading codes, too"
    assert problem(request_of(21, **fields)) == text, "a slave is an account as well"


def test_an_accounts_white_address_needs_no_signature_and_no_right() -> None:
    request = request_of(17, AccessKey="application")
    assert problem(request, APPLICATION_HOME) is None
    assert problem(request) == "Check signature failed for accessKey=application"
    assert problem(request_of(17), APPLICATION_HOME) == "No accessKey is configured"


@pytest.mark.parametrize(
    ("who", "code", "fields", "text"),
    [
        ("application", 310, {"b": "pub"}, None),
        ("application", 310, {"b": "both"}, None),
        ("application", 310, {"b": "sub"}, "No default permission for topic:sub"),
        ("application", 320, {"b": "sub"}, "No default permission for topic:sub"),
        ("application", 310, {"b": "unnamed"}, "No default permission for topic:unnamed"),
        ("application", 310, {"b": "%RETRY%g"}, None),
        ("application", 310, {"b": "%RETRY%closed"}, "No default permission for group:closed"),
        ("application", 310, {"b": "%DLQ%g"}, "No default permission for topic:%DLQ%g"),
        ("application", 11, {"topic": "sub", "consumerGroup": "g"}, None),
        (
            "application",
            11,
            {"topic": "pub", "consumerGroup": "g"},
            "No default permission for topic:pub",
        ),
        (
            "application",
            11,
            {"topic": "sub", "consumerGroup": "closed"},
            "No default permission for group:closed",
        ),
        ("application", 36, {"group": "closed"}, "No default permission for group:closed"),
        ("application", 30, {"topic": "pub"}, None),
        ("application", 30, {"topic": "unnamed"}, "No default permission for topic:unnamed"),
        ("nothing", 310, {"b": "RMQ_SYS_TRACE_TOPIC"}, None),
        (
            "nothing",
            11,
            {"topic": "RMQ_SYS_TRACE_TOPIC", "consumerGroup": "g"},
            "No default permission for group:g",
        ),
        ("nothing", 28, {}, None),
        ("nothing", 201, {}, None),
        (
            "nothing",
            17,
            {"topic": "t"},
            "Need admin permission for request code=17, but accessKey=nothing is not",
        ),
        (
            "application",
            28907,
            {},
            "Need admin permission for request code=28907, but accessKey=application is not",
        ),
        ("operator", 17, {"topic": "t"}, None),
        ("operator", 28907, {}, None),
        ("operator", 310, {"b": "unnamed"}, None),
        ("half-operator", 215, {"topic": "t"}, None),
        ("half-operator", 310, {"b": "pub"}, None),
        ("half-operator", 310, {"b": "unnamed"}, "No default permission for topic:unnamed"),
    ],
)
def test_what_an_account_may(who: str, code: int, fields: dict[str, str], text: str | None) -> None:
    assert problem(signed(code, who, fields)) == text


def test_a_signed_body_that_cannot_be_read() -> None:
    with pytest.raises(RequestError, match="HeartbeatData: invalid JSON in 1 bytes"):
        problem(signed(34, "application", {}, b"{"))


def test_an_empty_table_says_so() -> None:
    assert AclTable().is_empty
    assert not TABLE.is_empty
    assert not AclTable(parse_pattern("*")).is_empty
