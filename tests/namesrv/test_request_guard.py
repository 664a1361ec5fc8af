"""namesrv.request_guard: who may ask the name server for what."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from broker.settings.broker_config import BrokerConfig
from conf.config_loader import build
from namesrv.holder_probe import HolderProbe
from namesrv.namesrv_config import NamesrvConfig
from namesrv.request_guard import BROKER_CODES, OPERATOR_CODES, READING_CODES, RequestGuard
from namesrv.route_info_manager import RouteInfoManager
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from remoting.response_table import ResponseTable

DEFAULT = NamesrvConfig().admin_allowed_addresses
HERE, ALSO_HERE, FAR = "127.0.0.1:4711", "::1:4711", "10.0.0.9:4711"
NewConnection = Callable[..., Any]


def new_guard(setting: str) -> RequestGuard:
    config = NamesrvConfig(admin_allowed_addresses=setting)
    probe = HolderProbe(ResponseTable(), lambda: 0)
    return RequestGuard(config, RouteInfoManager(), lambda: 0, probe, has_certificates=False)


def refusal(
    new_connection: NewConnection, code: int, remote: str, setting: str = DEFAULT
) -> RequestError | None:
    guard = new_guard(setting)
    try:
        guard.check(new_connection(remote_address=remote), RemotingCommand.request(code))
    except RequestError as error:
        return error
    return None


def test_every_code_that_is_served_stands_in_one_set(namesrv: Any) -> None:
    """A new code: say in namesrv/request_guard.py who may ask for it."""
    sets = (OPERATOR_CODES, BROKER_CODES, READING_CODES)
    assert sorted(code for codes in sets for code in codes) == sorted(namesrv.processor.codes)


def test_operators_come_from_allowed_addresses_only(new_connection: NewConnection) -> None:
    served = OPERATOR_CODES | READING_CODES
    far = {code for code in served if refusal(new_connection, code, FAR)}
    assert far == OPERATOR_CODES == {100, 102, 205, 216, 318, 327}
    for remote in (HERE, ALSO_HERE):
        assert not [code for code in served if refusal(new_connection, code, remote)]


@pytest.mark.parametrize("setting", ["10.0.0.0/24", "10.0.0.9", "::1, 10.0.*.1-9"])
def test_the_setting_says_from_where(new_connection: NewConnection, setting: str) -> None:
    assert refusal(new_connection, 318, FAR, setting) is None
    assert refusal(new_connection, 318, HERE, setting) is not None


def test_an_embedded_name_server_has_its_brokers_setting(new_connection: NewConnection) -> None:
    """broker/processes/namesrv.py builds its settings from those of the broker."""
    settings = {
        "brokerName": "a",
        "adminAllowedAddresses": "10.0.0.9",
        "registerAllowedAddresses": "10.0.0.8",
    }
    config = build(NamesrvConfig, settings)
    setting = config.admin_allowed_addresses
    assert config.register_allowed_addresses == "10.0.0.8"
    assert BrokerConfig().register_allowed_addresses == NamesrvConfig().register_allowed_addresses
    assert refusal(new_connection, 318, FAR, setting) is None
    assert refusal(new_connection, 318, HERE, setting) is not None
    assert BrokerConfig().admin_allowed_addresses == DEFAULT


def test_this_machine_by_its_own_name_is_loopback(new_connection: NewConnection) -> None:
    connection = new_connection(remote_address=FAR, is_from_this_machine=True)
    new_guard(DEFAULT).check(connection, RemotingCommand.request(318))


def test_the_refusal_names_the_address_and_the_setting(new_connection: NewConnection) -> None:
    error = refusal(new_connection, 205, FAR)
    assert error is not None
    assert (error.code, error.remark) == (
        ResponseCode.NO_PERMISSION,
        "request 205 (WIPE_WRITE_PERM_OF_BROKER) is not accepted from 10.0.0.9: it is for "
        "operators at adminAllowedAddresses (now 127.0.0.0/8,::1); add the address to that setting "
        "of this name server and restart it",
    )


def test_an_empty_setting_lets_no_operator_in(new_connection: NewConnection) -> None:
    error = refusal(new_connection, 100, HERE, "")
    assert error is not None
    assert "(now nobody)" in error.remark


def test_a_code_in_no_set_is_denied(new_connection: NewConnection) -> None:
    error = refusal(new_connection, 12345, HERE, "*")
    assert error is not None
    assert (error.code, error.remark) == (
        ResponseCode.NO_PERMISSION,
        "request code 12345 is denied: no rule says who may send it (namesrv/request_guard.py)",
    )


def test_a_refusal_is_said_in_the_log(
    new_connection: NewConnection, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        error = refusal(new_connection, 216, FAR)
    assert error is not None
    assert caplog.messages == [f"10.0.0.9:4711: DELETE_TOPIC_IN_NAMESRV rejected: {error.remark}"]
