"""Which host a connection comes from, and which addresses are its own."""

from __future__ import annotations

import pytest

from remoting.peer_origin import is_own_address, origin_of
from tests.namesrv.conftest import FakeConnection


def peer(remote: str, *, here: bool = False) -> FakeConnection:
    return FakeConnection(remote_address=remote, is_from_this_machine=here)


@pytest.mark.parametrize(
    ("remote", "address", "own"),
    [
        ("10.1.1.1:5", "10.1.1.1:7", True),
        ("[::ffff:10.1.1.1]:5", "10.1.1.1:7", True),
        ("[fd00::1]:5", "[fd00:0:0::1]:7", True),
        ("10.1.1.1:5", "10.1.1.10:7", False),
        ("10.1.1.1:5", "localhost:7", False),
        ("10.1.1.1:5", "127.0.0.1:7", False),
        ("127.0.0.1:5", "127.0.0.5:7", True),
        ("127.0.0.1:5", "192.0.2.1:7", False),
        ("127.0.0.1:5", "0.0.0.0:7", False),
        ("127.0.0.1:5", "224.0.0.1:7", False),
        ("127.0.0.1:5", "", False),
    ],
)
def test_whose_address_it_is(remote: str, address: str, own: bool) -> None:
    """192.0.2.0/24 is nobody's."""
    assert is_own_address(peer(remote), address) is own


def test_a_peer_on_this_machine_is_one_host_whatever_it_asked() -> None:
    assert origin_of(peer("10.1.1.1:5", here=True)) == origin_of(peer("127.0.0.9:1"))
    assert origin_of(peer("10.1.1.1:5", here=True)) == origin_of(peer("[::1]:1"))
    assert origin_of(peer("10.1.1.1:5")) == "10.1.1.1"
    assert is_own_address(peer("10.1.1.1:5", here=True), "127.0.0.1:7")
