"""Any account may call itself a producer of any group: whom checks (39) and replies (326) reach,
with accounts of 4.9 and users of 5.x."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.acl.acl_table import AclTable
from broker.acl.plain_acl_file import PlainAccessConfig, build_account
from broker.acl.request_guard import RequestGuard
from broker.client.client_manage_processor import ClientManageProcessor
from broker.processor.stored_rights import judge_of_ends
from remoting.address_patterns import NOBODY, parse_patterns
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from store.message import Message
from tests.broker.acl.test_request_guard import Source
from tests.broker.auth.test_auth_guard import guard as users_guard
from tests.broker.broker_fakes import FakeClock, FakeConnection
from tests.broker.processor_world import World
from tests.broker.transaction_world import GROUP, TransactionWorld, asked

FAR = "10.0.0.9:4711"
HALF = Message(
    topic="RMQ_SYS_TRANS_HALF_TOPIC",
    queue_id=0,
    properties=b"REAL_TOPIC\x01T\x02REAL_QID\x010",
)


@dataclass(frozen=True)
class Kind:
    """A kind of access control: one account may publish to T, another to its own topic only."""

    guard: RequestGuard
    owner: RequestSigner
    other: RequestSigner


def accounts(*, white: str = "") -> Kind:
    """Of 4.9."""
    configs = [
        PlainAccessConfig(access_key=name, secret_key="secret-1", topic_perms=(f"{topic}=PUB",))
        for name, topic in (("owner-1", "T"), ("other-1", "Own"))
    ]
    table = AclTable(
        parse_patterns(white) if white else NOBODY,
        {config.access_key: build_account(config) for config in configs},
    )
    guard = RequestGuard(NOBODY, "", Source(table), FakeClock())
    return Kind(guard, *(RequestSigner(config.access_key, "secret-1") for config in configs))


def users(**settings: Any) -> Kind:
    """Of 5.x; those of test_auth_guard.py."""
    return Kind(
        users_guard(**settings), RequestSigner("app", "app-1"), RequestSigner("bare", "bare-1")
    )


@pytest.fixture(params=["4.9", "5.x"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return accounts() if request.param == "4.9" else users()


def heartbeat(
    processor: ClientManageProcessor,
    kind: Kind,
    signer: RequestSigner,
    client_id: str,
    connection: FakeConnection | None = None,
) -> FakeConnection:
    """What a producer of the group sends, by way of the gate."""
    connection = connection or FakeConnection(FAR)
    tree = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": GROUP}],
        "consumerDataSet": [],
    }
    request = RemotingCommand.request(RequestCode.HEART_BEAT, {}, json.dumps(tree).encode())
    signer.sign(request)
    kind.guard.check(connection, request)
    answer = processor.process_request(connection, request)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    return connection


def test_a_half_is_shown_to_who_may_publish_to_its_topic(tmp_path: Path, kind: Kind) -> None:
    clients, world = World(tmp_path / "clients"), TransactionWorld(tmp_path / "halves")
    clients.account_of = kind.guard.account_of
    world.use_producers(clients.producers, judge_of_ends(kind.guard.check_resources))
    processor = clients.client_manage()
    strangers = [heartbeat(processor, kind, kind.other, f"b{number}") for number in range(5)]
    world.prepare(b"secret")
    world.round()
    world.round()
    assert [each.sent for each in strangers] == [[]] * 5
    owner = heartbeat(processor, kind, kind.owner, "a")
    world.round()
    assert len(asked(owner)) == 1
    # The account of the last heartbeat counts.
    heartbeat(processor, kind, kind.other, "a", owner)
    world.round()
    assert owner.sent == []
    assert [each.sent for each in strangers] == [[]] * 5


def test_a_client_id_is_not_taken_over(tmp_path: Path, kind: Kind) -> None:
    world = World(tmp_path)
    world.account_of = kind.guard.account_of
    processor = world.client_manage()
    owner = heartbeat(processor, kind, kind.owner, "10.0.0.9@1")
    assert world.producers.find_connection("10.0.0.9@1") is owner
    other = heartbeat(processor, kind, kind.other, "10.0.0.9@1")
    assert world.producers.find_connection("10.0.0.9@1") is None
    again = heartbeat(processor, kind, kind.owner, "10.0.0.9@1")
    assert world.producers.find_connection("10.0.0.9@1") is None
    world.producers.on_connection_close(other)
    assert world.producers.find_connection("10.0.0.9@1") is again


def test_without_access_control_nobody_is_asked_for_an_account() -> None:
    gate = RequestGuard(NOBODY, "", None, FakeClock())
    request = RemotingCommand.request(34)
    RequestSigner("app", "whatever").sign(request)
    assert gate.account_of(request) == ""


def test_an_address_that_needs_no_account_is_asked() -> None:
    may_end = judge_of_ends(accounts(white="10.0.0.9").guard.check_resources)
    assert may_end(FakeConnection(FAR), "", HALF)
    assert not may_end(FakeConnection("10.0.0.8:1"), "", HALF)


def test_whose_word_was_not_checked_is_nobody() -> None:
    """authenticationWhitelist with heartbeats: any name could be in them."""
    request = RemotingCommand.request(34)
    RequestSigner("app", "forged").sign(request)
    assert users(authentication_whitelist="34").guard.account_of(request) == ""
    assert users().guard.account_of(request) == "app"
    assert users(authentication=False).guard.account_of(request) == "app"
    may_end = judge_of_ends(users().guard.check_resources)
    assert not may_end(FakeConnection(FAR), "", HALF)
