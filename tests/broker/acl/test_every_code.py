"""Every request code against every kind of sender: the guard does what the table of access says.

Walks ACCESS_TABLE, which another test compares with the routes of a broker, so that a new code
cannot be forgotten here. Each code has a request that names rights; one that has none must say so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import pytest

from broker.acl.access_table import ACCESS_TABLE, Who
from broker.acl.acl_table import AclTable
from broker.acl.plain_acl_file import PlainAccessConfig, build_account
from broker.acl.request_guard import RequestGuard
from broker.settings.broker_config import BrokerConfig
from remoting.address_patterns import NOBODY, parse_patterns
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.signature import RequestSigner
from tests.broker.broker_fakes import FakeClock, FakeConnection

pytestmark = [pytest.mark.fault(44), pytest.mark.fault(45)]

HERE, FAR, WHITE = "127.0.0.1:4711", "10.0.0.9:4711", "10.9.9.9:4711"
SETTING: Final = BrokerConfig().admin_allowed_addresses
FIELDS: Final = {
    "topic": "T",
    "b": "T",
    "group": "G",
    "consumerGroup": "G",
}
BODIES: Final = {
    34: {
        "clientID": "c",
        "consumerDataSet": [
            {"groupName": "G", "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}
        ],
        "producerDataSet": [],
    },
    41: {"consumerGroup": "G", "clientId": "c", "mqSet": []},
    42: {"consumerGroup": "G", "clientId": "c", "mqSet": []},
    200151: {"brokerName": "b", "acks": [{"c": "G", "t": "T", "r": "0", "b": "AQ=="}]},
    200071: {
        "subscriptionSet": [
            {"action": "COMPLETE_ADD", "clientId": "c", "group": "G", "topic": "T"},
        ]
    },
    400: {"clientId": "c", "consumerGroup": "G", "topic": "T"},
    46: {"clientId": "c", "group": "G", "subscriptionData": {"topic": "T", "subString": "*"}},
}
ACCOUNTS: Final = {
    "nothing": PlainAccessConfig(access_key="nothing", secret_key="nothing-secret"),
    "righted": PlainAccessConfig(
        access_key="righted",
        secret_key="righted-secret",
        topic_perms=("T=PUB|SUB",),
        group_perms=("G=SUB",),
    ),
    "forbidden": PlainAccessConfig(
        access_key="forbidden",
        secret_key="forbidden-secret",
        default_topic_perm="PUB|SUB",
        default_group_perm="SUB",
        topic_perms=("T=DENY",),
        group_perms=("G=DENY",),
    ),
    "operator": PlainAccessConfig(access_key="operator", secret_key="operator-secret", admin=True),
}
TABLE: Final = AclTable(
    parse_patterns("10.9.9.9"), {name: build_account(one) for name, one in ACCOUNTS.items()}
)
SENDERS: Final = (
    *("nobody", "unknown", "wrong key", "another body", "another value", "white"),
    *("nothing", "forbidden", "righted", "operator"),
)


@dataclass
class Source:
    """AclSource."""

    table: AclTable = TABLE


def request_of(code: int) -> RemotingCommand:
    body = BODIES.get(code)
    return RemotingCommand.request(code, dict(FIELDS), json.dumps(body).encode() if body else b"")


def sent_by(sender: str, code: int) -> tuple[str, RemotingCommand]:
    """The peer's address and its request."""
    request = request_of(code)
    if sender in ACCOUNTS:
        RequestSigner(sender, f"{sender}-secret").sign(request)
    elif sender == "unknown":
        RequestSigner("somebody", "nothing-secret").sign(request)
    elif sender == "wrong key":
        RequestSigner("operator", "righted-secret").sign(request)
    elif sender == "another body":
        RequestSigner("operator", "operator-secret").sign(request)
        request.body += b" "
    elif sender == "another value":
        RequestSigner("operator", "operator-secret").sign(request)
        request.ext_fields["topic"] = "U"
    return (WHITE if sender == "white" else FAR), request


def is_let_in(guard: RequestGuard, remote: str, request: RemotingCommand) -> bool:
    try:
        guard.check(FakeConnection(remote), request)
    except RequestError:
        return False
    return True


def expected(sender: str, who: Who) -> bool:
    """By the table's own words (docs/access.md)."""
    if sender in ("white", "operator") or who is Who.EVERYBODY:
        return True
    if sender not in ACCOUNTS or who is Who.ADMIN:
        return False
    return who is not Who.RESOURCES or sender == "righted"


@pytest.mark.parametrize("sender", SENDERS)
def test_with_acl(sender: str) -> None:
    guard = RequestGuard(NOBODY, "", Source(), FakeClock())
    got = {code: is_let_in(guard, *sent_by(sender, code)) for code in ACCESS_TABLE}
    # An answer to a request may go to a reply topic of anybody; this one goes to T.
    assert got == {code: expected(sender, row.who) for code, row in ACCESS_TABLE.items()}


@pytest.mark.parametrize(("remote", "is_operator"), [(HERE, True), (FAR, False)])
def test_without_acl(remote: str, is_operator: bool) -> None:
    guard = RequestGuard(parse_patterns(SETTING), SETTING, None, FakeClock())
    got = {code: is_let_in(guard, remote, request_of(code)) for code in ACCESS_TABLE}
    wanted = {code: is_operator or row.who is not Who.ADMIN for code, row in ACCESS_TABLE.items()}
    assert got == wanted


@pytest.mark.parametrize("remote", [HERE, FAR, WHITE])
def test_codes_that_nobody_serves_are_denied(remote: str) -> None:
    guard = RequestGuard(parse_patterns("*"), "*", Source(), FakeClock())
    unknown = set(RequestCode) - set(ACCESS_TABLE)
    assert unknown
    for code in (*unknown, -1, 0, 99_999):
        _, request = sent_by("operator", int(code))
        assert not is_let_in(guard, remote, request), code


@pytest.mark.parametrize("claimed", ["10.9.9.9", "127.0.0.1"])
def test_a_white_address_cannot_be_claimed_in_a_field(claimed: str) -> None:
    """Only the connection's own address counts, whatever a proxy's field may say."""
    guard = RequestGuard(parse_patterns(SETTING), SETTING, Source(), FakeClock())
    for code in {code for code, row in ACCESS_TABLE.items() if row.who is not Who.EVERYBODY}:
        request = request_of(code)
        for name in ("X-Forwarded-For", "remoteAddr", "clientHost", "whiteRemoteAddress"):
            request.ext_fields[name] = claimed
        assert not is_let_in(guard, FAR, request)
