"""broker.acl.request_guard: who is let in, with ACL and without, and what the log says."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from broker.acl.access_table import ACCESS_TABLE, Who
from broker.acl.acl_table import AclTable
from broker.acl.plain_acl_file import PlainAccessConfig, build_account
from broker.acl.request_guard import RequestGuard
from broker.settings.broker_config import BrokerConfig
from remoting.address_patterns import NOBODY, parse_patterns
from remoting.errors import RequestError
from remoting.operator_addresses import OperatorAddresses
from remoting.refusal_log import QUIET_MS
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from tests.broker.broker_fakes import FakeClock, FakeConnection

DEFAULT = BrokerConfig().admin_allowed_addresses
HERE, ALSO_HERE, FAR = "127.0.0.1:4711", "::1:4711", "10.0.0.9:4711"
OPERATORS_CODES = {
    *(
        17,
        18,
        25,
        50,
        51,
        53,
        54,
        200,
        207,
        215,
        222,
        225,
        306,
        309,
        314,
        316,
        908,
        200056,
        323,
        329,
        353,
        401,
        *range(3001, 3011),
        513,
        28907,
        *(2001, 2002, 2004),
        *(5001, 5002, 5003),
        28910,
        200079,
    )
}


@dataclass
class Source:
    """AclSource."""

    table: AclTable


def guard(
    setting: str = DEFAULT, acl: AclTable | None = None, clock: FakeClock | None = None
) -> RequestGuard:
    source = None if acl is None else Source(acl)
    return RequestGuard(parse_patterns(setting), setting, source, clock or FakeClock())


def refusal(guard: RequestGuard, code: int, remote: str) -> RequestError | None:
    try:
        guard.check(FakeConnection(remote), RemotingCommand.request(code))
    except RequestError as error:
        return error
    return None


def test_without_acl_operators_come_from_allowed_addresses_only() -> None:
    far = {code for code in ACCESS_TABLE if refusal(guard(), code, FAR)}
    assert far == OPERATORS_CODES
    assert [code for code in ACCESS_TABLE if refusal(guard(), code, HERE)] == []
    assert [code for code in ACCESS_TABLE if refusal(guard(), code, ALSO_HERE)] == []


def test_without_acl_slaves_and_readers_come_from_anywhere() -> None:
    reading = (21, 43, 45, 201, 26, 28, 52, 202, 208, 906, 907, 28906, 28911)
    assert [code for code in reading if refusal(guard(), code, FAR)] == []


def test_the_refusal_names_the_address_and_the_setting() -> None:
    error = refusal(guard(), 17, FAR)
    assert error is not None
    assert error.code == ResponseCode.NO_PERMISSION
    assert error.remark == (
        "request 17 (UPDATE_AND_CREATE_TOPIC) is not accepted from 10.0.0.9: without ACL it is for "
        "operators at adminAllowedAddresses (now 127.0.0.0/8,::1); add the address to that setting "
        "of this broker and restart it, or set aclEnable=true and sign as an admin"
    )


@pytest.mark.parametrize("setting", ["10.0.0.0/24", "10.0.0.9", "::1, 10.0.*.1-9"])
def test_the_setting_says_from_where(setting: str) -> None:
    assert refusal(guard(setting), 17, FAR) is None
    assert refusal(guard(setting), 17, HERE) is not None


@pytest.mark.parametrize(
    ("setting", "taken"),
    [
        (DEFAULT, True),
        ("::1", True),
        ("127.0.0.1", True),
        ("*", True),
        ("10.0.0.8", False),
        ("", False),
    ],
)
def test_this_machine_by_its_own_name_is_loopback(setting: str, taken: bool) -> None:
    connection = FakeConnection(FAR)
    connection.is_from_this_machine = True
    request = RemotingCommand.request(17)
    if taken:
        guard(setting).check(connection, request)
        return
    with pytest.raises(RequestError):
        guard(setting).check(connection, request)


def test_an_empty_setting_lets_no_operator_in() -> None:
    error = refusal(guard(""), 17, HERE)
    assert error is not None
    assert "(now nobody)" in error.remark


@pytest.mark.parametrize("acl", [None, AclTable(parse_patterns("0.0.0.0/0"))])
def test_a_code_without_a_row_is_denied(acl: AclTable | None) -> None:
    error = refusal(guard("*", acl), 12345, HERE)
    assert error is not None
    assert error.code == ResponseCode.NO_PERMISSION
    assert error.remark == (
        "request code 12345 is denied: it has no row in the access table "
        "(broker/acl/access_table.py)"
    )


def test_with_acl_the_account_decides_and_the_operators_address_does_not() -> None:
    config = PlainAccessConfig(access_key="operator", secret_key="secret-1", admin=True)
    with_acl = guard("*", AclTable(NOBODY, {"operator": build_account(config)}))
    for code, row in ACCESS_TABLE.items():
        if row.who is Who.EVERYBODY:
            continue
        error = refusal(with_acl, code, HERE)
        assert error is not None
        assert error.remark.endswith("AclException: No accessKey is configured")
    request = RemotingCommand.request(17, {"topic": "t"})
    RequestSigner("operator", "secret-1").sign(request)
    with_acl.check(FakeConnection(FAR), request)


def test_the_table_is_read_for_every_request() -> None:
    source = Source(AclTable())
    gate = RequestGuard(NOBODY, "", source, FakeClock())
    assert refusal(gate, 28, FAR) is not None
    source.table = AclTable(parse_patterns("10.0.0.9"))
    assert refusal(gate, 28, FAR) is None


def test_a_refusal_is_said_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    gate = guard("", clock=clock)
    with caplog.at_level(logging.WARNING):
        for remote in (FAR, "10.0.0.9:4712", FAR):
            refusal(gate, 17, remote)
        assert len(caplog.messages) == 1
        assert caplog.messages[0].startswith(
            "10.0.0.9:4711: UPDATE_AND_CREATE_TOPIC rejected: request 17 (UPDATE_AND_CREATE_TOPIC) "
            "is not accepted from 10.0.0.9: "
        )
        refusal(gate, 17, HERE)
        refusal(gate, 215, FAR)
        assert len(caplog.messages) == 3
        clock.advance(QUIET_MS - 1)
        refusal(gate, 17, FAR)
        assert len(caplog.messages) == 3
        clock.advance(1)
        refusal(gate, 17, FAR)
        assert len(caplog.messages) == 4


def test_a_peers_words_stay_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    gate = guard(acl=AclTable())
    name = "\n2026 operator: all is well\n" + "x" * 10_000
    request = RemotingCommand.request(28, {"AccessKey": name})
    with pytest.raises(RequestError) as caught:
        gate.check(FakeConnection(FAR), request)
    assert caught.value.remark.endswith(f"No acl config for {name[:100]}")
    assert caplog.messages == [
        "10.0.0.9:4711: GET_BROKER_RUNTIME_INFO rejected: org.apache.rocketmq.acl.common."
        f"AclException: No acl config for  2026 operator: all is well {name[28:100]}"
    ]


def test_operators_codes_change_something_or_hold_secrets() -> None:
    rows = {code for code, row in ACCESS_TABLE.items() if row.who is Who.ADMIN}
    assert rows == OPERATORS_CODES
    assert {code for code in rows if not ACCESS_TABLE[code].changes_state} == {
        *(54, 3004, 3005, 3009, 3010, 28907)
    }


def test_with_acl_an_operators_requests_may_be_bound_to_addresses() -> None:
    """A sniffed signature of an admin is worth nothing from elsewhere."""
    config = PlainAccessConfig(access_key="operator", secret_key="secret-1", admin=True)
    table = AclTable(parse_patterns("10.0.0.7"), {"operator": build_account(config)})
    operators = OperatorAddresses(parse_patterns("10.0.0.9"), "10.0.0.9")
    bound = RequestGuard(NOBODY, "", Source(table), FakeClock(), acl_admins=operators)
    for code in ACCESS_TABLE:
        body = b'{"clientID":"c","clientId":"c","consumerGroup":"g","group":"g","mqSet":[]}'
        request = RemotingCommand.request(code, {"topic": "t"}, body)
        RequestSigner("operator", "secret-1").sign(request)
        bound.check(FakeConnection(FAR), request)
        if code not in OPERATORS_CODES:
            bound.check(FakeConnection(HERE), request)
            continue
        for elsewhere in (HERE, "10.0.0.7:1"):
            with pytest.raises(
                RequestError, match=r"aclAdminAllowedAddresses \(now 10\.0\.0\.9\)"
            ) as caught:
                bound.check(FakeConnection(elsewhere), request)
            assert caught.value.code == ResponseCode.NO_PERMISSION
