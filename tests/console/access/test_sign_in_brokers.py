"""Prover against real brokers of ours: one with accounts of 4.9, one with users of 5.x."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from console.access.account import Kind
from console.access.clients import AdminClients, ClientMaker
from console.access.sign_in import Proof, Prover, Verdict
from console.cluster_watch import monotonic_ms, wall_ms
from remoting.request_code import RequestCode
from tests.broker.auth.test_auth_config import USERS
from tests.support.our_broker import OurBroker
from tools.admin_client import NameServers
from tools.errors import BrokerAnswerError

ACCOUNTS = """
accounts:
- accessKey: powerless
  secretKey: powerless-secret
- accessKey: from-here
  secretKey: from-here-secret
  whiteRemoteAddress: 127.0.0.1
"""
ACL = {"aclEnable": "true"}
AUTH = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": USERS,
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
}
MAKER = ClientMaker(NameServers.parse("127.0.0.1:1"), wall_ms, monotonic_ms)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, OurBroker]]:
    root = tmp_path_factory.mktemp("sign-in")
    conf = root / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    found = {
        "acl": OurBroker(root / "acl", rocketmqHome=conf.parent, **ACL),
        "users": OurBroker(root / "users", **AUTH),
    }
    try:
        with ThreadPoolExecutor() as threads:
            list(threads.map(OurBroker.start, found.values()))
        yield found
    finally:
        for broker in found.values():
            broker.crash()


def address(broker: OurBroker, port: str = "main") -> str:
    return f"127.0.0.1:{broker.ports[port]}"


def prove(broker: OurBroker, name: str, secret: str) -> Proof:
    return Prover(MAKER, monotonic_ms).prove(name, secret, [address(broker)])


@pytest.mark.parametrize(
    ("kind", "name", "secret", "verdict"),
    [
        ("acl", "powerless", "powerless-secret", Verdict.PROVED),
        ("acl", "powerless", "another-secret", Verdict.REFUSED),
        ("acl", "stranger", "powerless-secret", Verdict.REFUSED),
        ("acl", "from-here", "from-here-secret", Verdict.UNCHECKED),
        ("acl", "from-here", "another-secret", Verdict.UNCHECKED),
        ("users", "root", "root-secret", Verdict.PROVED),
        ("users", "root", "another-secret", Verdict.REFUSED),
        ("users", "stranger", "root-secret", Verdict.REFUSED),
    ],
)
def test_an_account_is_what_its_broker_says(
    brokers: dict[str, OurBroker], kind: str, name: str, secret: str, verdict: Verdict
) -> None:
    proof = prove(brokers[kind], name, secret)
    assert proof.verdict is verdict, proof
    if proof.account is not None:
        assert proof.account.kind is (Kind.ACL if kind == "acl" else Kind.USER)


def test_who_judges(brokers: dict[str, OurBroker]) -> None:
    prover = Prover(MAKER, monotonic_ms)
    acl, users = brokers["acl"], brokers["users"]
    assert prover.judges("powerless", address(acl))
    assert prover.judges("anybody", address(users))
    assert not prover.judges("from-here", address(acl))
    for broker in (acl, users):
        assert not prover.judges("root", address(broker, "namesrv"))


def test_a_proved_account_asks_with_its_own_rights(brokers: dict[str, OurBroker]) -> None:
    account = prove(brokers["acl"], "powerless", "powerless-secret").account
    assert account is not None
    clients = AdminClients(MAKER)
    try:
        client = clients.of(account.key)
        assert client.runtime_info(address(brokers["acl"]))["brokerVersionDesc"]
        with pytest.raises(BrokerAnswerError, match="powerless"):
            client.call(
                address(brokers["acl"]),
                RequestCode.UPDATE_BROKER_CONFIG,
                body=b"brokerPermission=4",
            )
        with pytest.raises(BrokerAnswerError, match="No accessKey is configured"):
            clients.of(None).runtime_info(address(brokers["acl"]))
    finally:
        clients.close()
