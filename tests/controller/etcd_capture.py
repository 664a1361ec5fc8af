"""What a real etcd answered, for the tests that play it back (tests/golden/etcd-3.4.23).

`.venv/bin/python -m tests.controller.etcd_capture` records anew, with Debian's etcd-server:

- session.json: what two controllers' stores asked in turn, and each answer
- answers.json: one answer for each way in which etcd refuses, or cannot answer
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from controller.etcd_client import EtcdClient
from controller.etcd_config import EtcdConfig
from controller.etcd_connection import EtcdConnection, HttpAnswer
from controller.etcd_login import EtcdLogin
from controller.etcd_store import PAGE, EtcdStore
from controller.events import Swap
from controller.group_state import GroupState, Replica
from controller.group_store import UnreadableGroupError
from controller.leader import Leader
from tests.support.etcd import Etcd, b64, post

GOLDEN = Path(__file__).parents[1] / "golden" / "etcd-3.4.23"
PREFIX = "/rocketmq/controllers/group1"
ONE, TWO = Leader("n0", "127.0.0.1:9877"), Leader("n1", "127.0.0.1:9878")
LEASE_S = 5


def group(name: str, members: int = 1) -> GroupState:
    """A group with so many brokers."""
    state = GroupState("C", name)
    for number in range(1, members + 1):
        address = f"127.0.0.1:{number}"
        state = state.with_replica(number, Replica(address, f"{address};1"))
    return state


def play(a: EtcdStore, b: EtcdStore, spoil: Callable[[], None]) -> list[Any]:
    """The session: what each step gave. spoil: puts a value under the key of group "x" that no
    controller writes."""
    gave: list[Any] = [a.look()]
    first = a.make_lease(LEASE_S)
    fence = a.acquire(ONE, first.id)
    assert fence is not None
    gave += [first.id, fence, a.load_all()]
    gave.append(a.swap(Swap("b", 1, 0, fence, group("b"))))
    stored = a.load("b")
    gave += [stored, a.load("none")]
    gave.append(a.swap(Swap("b", 2, 0, fence, group("b", 2))))
    gave.append(a.swap(Swap("b", 3, stored.version, fence, group("b", 2))))
    gave.append(a.renew(first.id, fence, LEASE_S) is not None)
    gave.append(b.look())
    second = b.make_lease(LEASE_S)
    gave += [second.id, b.acquire(TWO, second.id), b.load_all(stored.version)]
    a.revoke(first.id)
    a.revoke(first.id)
    gave.append(a.renew(first.id, fence, LEASE_S))
    gave.append(a.swap(Swap("b", 4, a.load("b").version, fence, group("b"))))
    newer = b.acquire(TWO, second.id)
    assert newer is not None
    gave += [newer, a.look()]
    gave.append(a.swap(Swap("b", 5, a.load("b").version, fence, group("b"))))
    gave.append(a.renew(first.id, fence, LEASE_S))
    spoil()
    gave.append(b.load_all())
    try:
        b.load("x")
    except UnreadableGroupError as error:
        gave.append(str(error))
    for number in range(2 * PAGE + 3):
        name = f"many{number:02}"
        b.swap(Swap(name, 6 + number, 0, newer, group(name)))
    gave.append(sorted(b.load_all().readable))
    return gave


@contextmanager
def recorded(into: list[dict[str, Any]]) -> Iterator[None]:
    """Every exchange of a store, as it is."""
    real = EtcdConnection.exchange

    def exchange(
        self: EtcdConnection, path: str, body: bytes, headers: dict[str, str], deadline: float
    ) -> HttpAnswer:
        found = real(self, path, body, headers, deadline)
        into.append(
            {
                "path": path,
                "asked": json.loads(body),
                "status": found.status,
                "type": found.content_type,
                "answer": found.body.decode(),
            }
        )
        return found

    with mock.patch.object(EtcdConnection, "exchange", exchange):
        yield


def store(text: str) -> EtcdStore:
    """Over a connection of its own."""
    config = EtcdConfig(etcd_endpoints=text)
    return EtcdStore(EtcdClient(config.endpoints(), None, EtcdLogin, 5_000), PREFIX, lambda: 0)


def _session(root: Path) -> list[dict[str, Any]]:
    etcd, found = Etcd(root / "one", 1).start(), []

    def spoil() -> None:
        etcd.call("kv/put", {"key": b64(f"{PREFIX}/set/x"), "value": b64("{}")})

    try:
        with recorded(found):
            play(store(etcd.text), store(etcd.text), spoil)
        return found
    finally:
        etcd.stop()


def _answers(root: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}

    def take(name: str, port: int, path: str, body: dict[str, Any], token: str = "") -> None:
        status, text = post(port, path, body, token, 20)
        found[name] = {"path": path, "status": status, "answer": text}

    key = {"key": b64(PREFIX)}
    etcd = Etcd(root / "auth", 1).start()
    port = etcd.members[0].port
    try:
        login = {"name": "mq", "password": "secret"}
        take("no accounts", port, "auth/authenticate", login)
        take("no such path", port, "kv/rage", key)
        take("too large", port, "kv/put", {**key, "value": b64(b"x" * 2_000_000)})
        take("not base64", port, "kv/range", {"key": "*"})
        make_accounts(etcd)
        take("no login", port, "kv/range", key)
        take("login", port, "auth/authenticate", login)
        take("wrong password", port, "auth/authenticate", {**login, "password": "x"})
        take("wrong token", port, "kv/range", key, "abc.1")
        token = json.loads(found["login"]["answer"])["token"]
        take("no rights", port, "kv/range", {"key": b64("/other")}, token)
        take("lease gone", port, "lease/keepalive", {"ID": 7}, token)
        take("revoked twice", port, "lease/revoke", {"ID": 7}, token)
    finally:
        etcd.stop()
    etcd = Etcd(root / "three").start()
    try:
        for member in etcd.members[1:]:
            member.kill()
        port = etcd.members[0].port
        take("no quorum, range", port, "kv/range", key)
        take("no quorum, put", port, "kv/put", {**key, "value": ""})
        take("no quorum, grant", port, "lease/grant", {"TTL": 5})
        take("no quorum, keepalive", port, "lease/keepalive", {"ID": 7})
    finally:
        etcd.stop()
    return found


def make_accounts(etcd: Etcd) -> None:
    """An administrator, and an account that may use the prefix only; logins are needed then."""
    for name, password in (("root", "rootsecret"), ("mq", "secret")):
        etcd.call("auth/user/add", {"name": name, "password": password})
        etcd.call("auth/role/add", {"name": name})
        etcd.call("auth/user/grant", {"user": name, "role": name})
    prefix = {"key": b64("/rocketmq/"), "range_end": b64("/rocketmq0")}
    etcd.call("auth/role/grant", {"name": "mq", "perm": {"permType": "READWRITE", **prefix}})
    etcd.call("auth/enable", {})


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as root:
        written = {"session": _session(Path(root)), "answers": _answers(Path(root))}
    for name, found in written.items():
        (GOLDEN / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
