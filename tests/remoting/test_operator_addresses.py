"""remoting.operator_addresses: whose address is an operator's."""

from __future__ import annotations

import pytest

from remoting.address_patterns import parse_patterns
from remoting.operator_addresses import OperatorAddresses
from tests.broker.broker_fakes import FakeConnection

DEFAULT = "127.0.0.0/8,::1"


def operators(setting: str) -> OperatorAddresses:
    return OperatorAddresses(parse_patterns(setting), setting)


@pytest.mark.parametrize(
    ("setting", "remote", "is_operator"),
    [
        (DEFAULT, "127.0.0.1:1", True),
        (DEFAULT, "127.3.2.1:1", True),
        (DEFAULT, "::1:1", True),
        (DEFAULT, "10.0.0.9:1", False),
        ("10.0.0.0/24", "10.0.0.9:1", True),
        ("10.0.0.0/24", "127.0.0.1:1", False),
        ("*", "10.0.0.9:1", True),
        ("", "127.0.0.1:1", False),
    ],
)
def test_an_address_decides(setting: str, remote: str, is_operator: bool) -> None:
    assert operators(setting).include(FakeConnection(remote)) is is_operator


@pytest.mark.parametrize(
    ("setting", "is_operator"),
    [
        (DEFAULT, True),
        ("::1", True),
        ("127.0.0.1", True),
        ("*", True),
        ("10.0.0.8", False),
        ("", False),
    ],
)
def test_this_machine_by_its_own_name_is_loopback(setting: str, is_operator: bool) -> None:
    connection = FakeConnection("10.0.0.9:1")
    connection.is_from_this_machine = True
    assert operators(setting).include(connection) is is_operator


def test_its_text_is_the_setting() -> None:
    assert (str(operators(DEFAULT)), str(operators(""))) == (DEFAULT, "nobody")
