"""Prover: what the answers of brokers prove; brokers are played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from console.access.account import Kind
from console.access.sign_in import (
    ASK_MS,
    DEADLINE_MS,
    MAX_BROKERS,
    MAX_NAME,
    MAX_SECRET,
    WRONG,
    Proof,
    Prover,
    Verdict,
    likely_provers,
)
from console.snapshot import BrokerSeen, ClusterSnapshot, Told
from remoting.errors import RemotingConnectError, RemotingTimeoutError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.signature import RequestSigner, is_signed_with
from tests.console.access.test_sessions import Clock
from tools.admin_client import AdminClient, BrokerAddress
from tools.errors import BrokerAnswerError

SECRET = "right-secret"
ACL_REMARK = (
    "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=alice, "
    "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:1)"
)
Broker = Callable[[RemotingCommand], Exception | None]


def refuses(code: int, remark: str) -> Broker:
    """Whoever signs falsely gets this."""

    def answer(request: RemotingCommand) -> Exception | None:
        right = is_signed_with(SECRET.encode(), request)
        return None if right else BrokerAnswerError("b:1", code, remark)

    return answer


USERS = refuses(16, "check signature failed.")
ACL = refuses(1, ACL_REMARK)


def always(error: Exception | None) -> Broker:
    return lambda _request: error


class Peers:
    """Makes clients of the played brokers, and counts connections and requests."""

    def __init__(self, **brokers: Broker) -> None:
        self.brokers = brokers
        self.requests: list[tuple[str, RemotingCommand, int]] = []
        self.signers: list[RequestSigner | None] = []
        self.connections = self.closed = 0
        self.clock = Clock()
        self.takes_ms = 0

    def new(self, signer: RequestSigner | None) -> AdminClient:
        self.connections += 1
        self.signers.append(signer)
        return cast(AdminClient, _Client(self, signer))

    def prove(self, name: str = "alice", secret: str = SECRET) -> Proof:
        return Prover(self, self.clock).prove(name, secret, self.brokers)


class _Client:
    def __init__(self, peers: Peers, signer: RequestSigner | None) -> None:
        self._peers = peers
        self._signer = signer

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._peers.closed += 1

    def call(self, address: str, code: RequestCode, **more: Any) -> None:
        assert self._signer is not None
        request = RemotingCommand.request(code, dict(more["extra"]), b"")
        self._signer.sign(request)
        self._peers.requests.append((address, request, more["timeout_ms"]))
        self._peers.clock.ms += self._peers.takes_ms
        error = self._peers.brokers[address](request)
        if error is not None:
            raise error


@pytest.mark.parametrize(("broker", "kind"), [(ACL, Kind.ACL), (USERS, Kind.USER)])
def test_a_right_secret_is_proved_and_a_false_one_refused(broker: Broker, kind: Kind) -> None:
    proof = Peers(a=broker).prove()
    assert proof.verdict is Verdict.PROVED
    assert proof.account is not None
    assert (proof.account.name, proof.account.kind) == ("alice", kind)
    request = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG, {}, b"")
    assert proof.account.signer is not None
    proof.account.signer.sign(request)
    assert is_signed_with(SECRET.encode(), request)
    refused = Peers(a=broker).prove(secret="another-secret")
    assert (refused.verdict, refused.sentence, refused.account) == (Verdict.REFUSED, WRONG, None)
    assert refused.detail


def test_where_every_secret_is_right_none_is() -> None:
    """No access control, or a white list."""
    proof = Peers(a=always(None)).prove()
    assert (proof.verdict, proof.account) == (Verdict.UNCHECKED, None)
    assert "accepts any secret" in proof.sentence


BUSY = BrokerAnswerError("b:1", 2, "[REJECTREQUEST]system busy")
ODD_FAILURES = [
    BUSY,
    BrokerAnswerError("b:1", 1, "java.lang.NullPointerException"),
    BrokerAnswerError("b:1", 1, f"no topic {ACL_REMARK}"),
    BrokerAnswerError("b:1", 3, "request type 28 not supported"),
    RemotingTimeoutError("b:1", "no answer"),
    RemotingConnectError("b:1", "refused"),
]


@pytest.mark.parametrize("error", ODD_FAILURES, ids=lambda error: str(error)[:40])
def test_a_failure_of_the_second_question_proves_nobody(error: Exception) -> None:
    """Whoever can make a broker busy, or cut its connections, must not get in by it."""
    answers = iter([BrokerAnswerError("b:1", 16, "check signature failed."), error])
    proof = Peers(a=lambda _request: next(answers)).prove()
    assert (proof.verdict, proof.account) == (Verdict.UNDECIDED, None)


@pytest.mark.parametrize("error", [None, *ODD_FAILURES], ids=lambda error: str(error)[:40])
def test_the_secret_signs_nothing_for_who_does_not_refuse_a_false_one(
    error: Exception | None,
) -> None:
    peers = Peers(a=always(error))
    peers.prove()
    (first,) = peers.requests
    assert not is_signed_with(SECRET.encode(), first[1])


@pytest.mark.parametrize("error", ODD_FAILURES, ids=lambda error: str(error)[:40])
def test_a_failure_of_the_first_is_no_refusal(error: Exception) -> None:
    peers = Peers(a=always(error))
    proof = peers.prove()
    assert proof.verdict is Verdict.UNDECIDED
    assert "could not be checked" in proof.sentence
    assert len(peers.requests) == 1


def test_each_question_has_a_connection_of_its_own_and_a_new_secret() -> None:
    """A 5.3.3 broker may look at the first signature of a name on a connection only."""
    peers = Peers(a=USERS)
    peers.prove()
    peers.prove()
    assert peers.connections == peers.closed == len(peers.requests) == 4
    signatures = [request.ext_fields["Signature"] for _, request, _ in peers.requests]
    assert len(set(signatures)) == 4
    assert {request.ext_fields["AccessKey"] for _, request, _ in peers.requests} == {"alice"}


def test_the_false_secret_is_never_the_same() -> None:
    """Nor can it be anybody's."""
    peers = Peers(a=USERS)
    peers.prove()
    peers.prove()
    signatures = []
    for signer in peers.signers:
        request = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG, {}, b"")
        assert signer is not None
        signer.sign(request)
        signatures.append(request.ext_fields["Signature"])
    false, right, false_again, right_again = signatures
    assert right == right_again
    assert len({right, false, false_again}) == 3


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        (("AccessKey", "mqconsoleSignIn", "Signature"), True),
        (("AccessKey", "Signature"), False),
    ],
)
def test_what_a_false_broker_can_send_with_a_signature_that_it_got(
    fields: tuple[str, ...], fits: bool
) -> None:
    """RocketMQ's signature covers values: with them it fits any request code (the document says
    so), without them none."""
    peers = Peers(a=USERS)
    peers.prove()
    _, request, _ = peers.requests[1]
    stolen = RemotingCommand.request(
        RequestCode.CLEAN_UNUSED_TOPIC, {name: request.ext_fields[name] for name in fields}, b""
    )
    assert is_signed_with(SECRET.encode(), stolen) is fits


def test_one_broker_that_knows_the_user_is_enough() -> None:
    unknown = always(BrokerAnswerError("b:1", 16, "User:alice is not found."))
    for brokers in (
        {"a": unknown, "b": USERS},
        {"a": always(BUSY), "b": USERS},
        {"a": always(None), "b": USERS},
    ):
        assert Peers(**brokers).prove().verdict is Verdict.PROVED
    peers = Peers(a=USERS, b=always(BUSY))
    assert peers.prove().verdict is Verdict.PROVED
    assert {address for address, *_ in peers.requests} == {"a"}


def test_of_several_brokers_the_strongest_word_counts() -> None:
    no, open_, busy = USERS, always(None), always(BUSY)
    for brokers, verdict in (
        ((busy, no), Verdict.REFUSED),
        ((no, busy), Verdict.REFUSED),
        ((open_, no), Verdict.REFUSED),
        ((busy, open_), Verdict.UNCHECKED),
        ((open_, busy), Verdict.UNCHECKED),
        ((busy, busy), Verdict.UNDECIDED),
    ):
        peers = Peers(**dict(zip("ab", brokers, strict=True)))
        assert peers.prove(secret="another-secret").verdict is verdict


def test_few_brokers_are_asked_and_not_for_long() -> None:
    many = {f"b{i}": always(RemotingTimeoutError("b:1", "no answer")) for i in range(200)}
    peers = Peers(**many)
    peers.prove()
    assert len(peers.requests) == MAX_BROKERS
    assert {timeout_ms for *_, timeout_ms in peers.requests} == {ASK_MS}
    slow = Peers(**many)
    slow.takes_ms = DEADLINE_MS
    slow.prove()
    assert len(slow.requests) == 1


def test_without_brokers_there_is_a_sentence() -> None:
    proof = Peers().prove()
    assert proof.verdict is Verdict.UNDECIDED
    assert "No broker" in proof.sentence


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("", SECRET),
        ("alice", ""),
        ("a" * (MAX_NAME + 1), SECRET),
        ("alice", "s" * (MAX_SECRET + 1)),
        ("al\nice", SECRET),
        ("al\x00ice", SECRET),
        ("al\u2028ice", SECRET),
        ("\udcff", SECRET),
        ("alice", "\udcff"),
    ],
)
def test_odd_names_reach_no_broker(name: str, secret: str) -> None:
    peers = Peers(a=always(None))
    assert peers.prove(name, secret).verdict is Verdict.REFUSED
    assert peers.requests == []


def test_living_masters_are_asked_first_and_none_that_never_answered() -> None:
    def seen(
        name: str,
        broker_id: int,
        error: str | None,
        *,
        registered: bool = True,
        answered_ms: int = 5,
        refused_ms: int = 0,
        since_ms: int = 1,
    ) -> BrokerSeen:
        runtime: Told[Any] = Told({}, answered_ms, error, 9 if error else 0, refused_ms)
        place = BrokerAddress("c", name, broker_id, f"{name}:{broker_id}")
        return BrokerSeen(place, runtime, registered=registered, since_ms=since_ms)

    brokers = (
        seen("a", 0, "no answer"),
        seen("a", 1, None),
        seen("b", 1, "no answer"),
        seen("b", 2, None, registered=False),
        seen("b", 0, None, since_ms=2),
        seen("c", 0, None),
        seen("d", 0, "silent", answered_ms=0),
        seen("e", 0, "no account", answered_ms=0, refused_ms=9),
        BrokerSeen(BrokerAddress("c", "f", 0, "f:0")),
    )
    found = likely_provers(ClusterSnapshot(brokers=brokers))
    assert found == ["c:0", "b:0", "a:1", "a:0", "e:0", "b:1"]


@pytest.mark.parametrize(
    ("broker", "judges"),
    [
        (USERS, True),
        (ACL, True),
        (always(None), False),
        *((always(error), False) for error in ODD_FAILURES),
    ],
)
def test_whether_a_broker_judges(broker: Broker, judges: bool) -> None:
    peers = Peers(a=broker)
    assert Prover(peers, peers.clock).judges("alice", "a") is judges
