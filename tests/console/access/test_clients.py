"""AdminClients: who shares a client, when it closes, how many there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from console.access import clients as module
from console.access.account import OPERATOR, Account, Kind, proved
from console.access.clients import (
    IDLE_MS,
    IN_USE_MS,
    MAX_CLIENTS,
    AccountClient,
    AdminClients,
    ClientMaker,
)
from remoting.errors import RemotingError
from remoting.request_code import RequestCode
from remoting.signature import RequestSigner
from tests.console.access.test_sessions import Clock
from tools.admin_client import NameServers
from tools.errors import AdminError

KEY = b"k" * 32
OWN = RequestSigner("console", "its-secret")


class Life:
    """Which clients were started and closed, without threads and sockets."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.open: list[AccountClient] = []
        self.signers: dict[int, RequestSigner | None] = {}

        def made(maker: ClientMaker, signer: RequestSigner | None) -> AccountClient:
            client = AccountClient(maker, signer, maker.clock_ms)
            self.signers[id(client)] = signer
            return client

        patch.setattr(ClientMaker, "new", made)
        patch.setattr(AccountClient, "__enter__", lambda client: self.open.append(client))
        patch.setattr(AccountClient, "__exit__", lambda client, *_: self.open.remove(client))


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> Life:
    return Life(monkeypatch)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def clients(life: Life, clock: Clock) -> Iterator[AdminClients]:
    maker = ClientMaker(NameServers.parse("127.0.0.1:1"), lambda: 1, clock, OWN)
    found = AdminClients(maker)
    yield found
    found.close()
    assert life.open == []


def account(name: str, secret: str = "secret-1") -> Account:
    return proved(name, secret, Kind.USER, KEY)


def test_an_account_is_its_name_and_secret() -> None:
    assert account("alice") == account("alice")
    assert account("alice") != account("alice", "secret-2")
    assert account("alice") != account("bob")
    assert proved("a", "b\0c", Kind.USER, KEY) != account("a\0b", "c")
    assert account("alice") != proved("alice", "secret-1", Kind.USER, b"another")
    assert account("alice").key == account("alice")
    assert OPERATOR.key is None
    assert "secret" not in repr(account("alice"))


def test_readers_of_one_account_share_its_client(clients: AdminClients, life: Life) -> None:
    first = clients.of(account("alice").key)
    assert clients.of(account("alice").key) is first
    assert clients.of(account("alice", "secret-2").key) is not first
    own = clients.of(None)
    assert clients.of(OPERATOR.key) is own
    assert own is not first
    assert life.signers[id(own)] is OWN
    signer = life.signers[id(first)]
    assert signer is not None
    assert signer.access_key == "alice"
    assert len(life.open) == 3


def test_idle_ones_close_but_the_consoles_own(
    clients: AdminClients, life: Life, clock: Clock
) -> None:
    own, alice, bob = (clients.of(key) for key in (None, account("alice"), account("bob")))
    clock.ms += IDLE_MS - 1
    clients.of(account("bob"))
    assert len(life.open) == 3
    clock.ms += 1
    clients.of(None)
    assert life.open == [own, bob]
    assert clients.of(account("alice")) is not alice


def test_what_a_job_holds_is_in_use(
    clients: AdminClients, life: Life, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = clients.of(account("alice"))
    clock.ms += IDLE_MS - 1

    def gone(*_arguments: object, **_names: object) -> None:
        raise RemotingError("x:1", "gone")

    monkeypatch.setattr(module.AdminClient, "call", gone)
    with pytest.raises(RemotingError):
        held.call("x:1", RequestCode.GET_BROKER_RUNTIME_INFO)
    clock.ms += IDLE_MS - 1
    clients.of(None)
    assert held in life.open


def test_the_idlest_makes_room_unless_all_are_in_use(
    clients: AdminClients, life: Life, clock: Clock
) -> None:
    clients.of(None)
    found = [clients.of(account(f"a{i}")) for i in range(MAX_CLIENTS)]
    with pytest.raises(AdminError, match="50 accounts"):
        clients.of(account("one more"))
    clock.ms += 1
    clients.of(account("a0"))
    clock.ms += IN_USE_MS
    for i in range(3, MAX_CLIENTS):
        clients.of(account(f"a{i}"))
    clients.of(account("one more"))
    assert [i for i, client in enumerate(found) if client not in life.open] == [1]
    assert len(clients) == MAX_CLIENTS
    assert len(life.open) == MAX_CLIENTS + 1


def test_nothing_opens_once_it_is_closed(clients: AdminClients) -> None:
    clients.of(None)
    clients.close()
    for key in (None, account("alice")):
        with pytest.raises(AdminError, match="being stopped"):
            clients.of(key)


def test_a_readers_account_signs_nothing_for_an_address_where_no_broker_answered(
    life: Life, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(module.AdminClient, "call", lambda _self, at, *_, **__: asked.append(at))
    maker = ClientMaker(NameServers.parse("127.0.0.1:1"), lambda: 1, clock, OWN)
    known = {"b:1"}
    clients = AdminClients(maker, known.__contains__)
    alice, code = clients.of(account("alice")), RequestCode.GET_BROKER_RUNTIME_INFO
    for address in ("b:1", "127.0.0.1:1"):
        alice.call(address, code)
    with pytest.raises(AdminError, match="has not answered this console yet"):
        alice.call("false:1", code)
    known.add("false:1")
    alice.call("false:1", code)
    known.clear()
    clients.of(None).call("listed:1", code)
    assert asked == ["b:1", "127.0.0.1:1", "false:1", "listed:1"]
    clients.close()
