"""Whether a name and a secret are an account of the cluster: brokers are asked, and tested.

Any thread; blocks for up to eight seconds. A broker with access control answers a rightly signed
request (28, which needs an account, but no right of it) and refuses a falsely signed one. A broker
without it, or whose white list has the console's address, answers everything: there every secret
would be "right". So the same request is first signed with the same name and a random secret, and
only who refuses that gets what is signed with the given one:

    a random secret             the given one     the account is
    refused for its signature   answered          proved
    refused for its signature   refused           refused
    refused for its signature   any other error   not decided
    answered                    (not asked)       not checked here: accounts mean nothing
    any other error             (not asked)       not decided: a busy broker must not prove anybody
                                                  (nor a 4.9 broker that has just started)

Each of the two has a connection of its own, which nobody else uses: a 5.3.3 broker may remember
that a name was proved on a connection, and then looks at no further signature there (Java:
StatefulAuthenticationStrategy).

What a false broker can do with it, which has registered itself at the name server and refuses as a
true one does: a signature covers the values of the fields and the body, neither the fields' names
nor the request code, and has no time. So it fits every request whose values make the same text,
those that need no field among them, at every broker that knows the account, until its secret is
changed: with the account's rights. The request carries a random field, so that it fits no request
with other values. Asked are only brokers that have answered the console before, those first that it
has known for longest (docs/console_access.md says what else helps).

Tested by tests/console/access/test_sign_in.py, tests/console/access/test_sign_in_brokers.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from console.access.account import Account, Kind, proved
from console.snapshot import ClusterSnapshot
from remoting.control_characters import holds_control
from remoting.errors import RemotingError, RequestError
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from tools.admin_client import AdminClient
from tools.errors import AdminError, BrokerAnswerError

MAX_NAME: Final = 255
MAX_SECRET: Final = 1_000
MAX_BROKERS: Final = 3
ASK_MS: Final = 2_000
DEADLINE_MS: Final = 8_000
_ACL_REFUSAL: Final = "org.apache.rocketmq.acl.common.AclException: "
"""Begins the remark of a 4.9 broker, whose code is that of any failure."""
WRONG: Final = "The name or the secret is wrong."
"""Brokers say which; a stranger need not know whether a name exists."""
_NONCE: Final = "mqconsoleSignIn"


class Verdict(Enum):
    """What one broker's answers say, the stronger ones first."""

    PROVED = 1
    REFUSED = 2
    UNCHECKED = 3
    UNDECIDED = 4


@dataclass(frozen=True, slots=True)
class Proof:
    """What the brokers say of a name and a secret; `sentence` for the reader, who is nobody yet."""

    verdict: Verdict
    sentence: str
    account: Account | None = None
    detail: str = ""
    """For the log: what a broker said."""


def likely_provers(snapshot: ClusterSnapshot) -> list[str]:
    """Addresses of the brokers that may prove accounts, of those that have ever answered: those
    first that do now, of them masters, which have the users that were made last, of them those that
    are known for longest: a false one comes later than the console."""
    known = [broker for broker in snapshot.registered() if broker.has_answered]
    known.sort(
        key=lambda one: (one.newest_error is not None, not one.is_master, one.since_ms, one.place)
    )
    return [broker.place.address for broker in known]


class ClientOf(Protocol):
    """Makes a client with connections of its own."""

    def new(self, signer: RequestSigner | None) -> AdminClient:
        """Not yet running."""


class Prover:
    """Asks brokers. Owned by: Access."""

    def __init__(self, clients: ClientOf, now_ms: Callable[[], int]) -> None:
        """`now_ms`: monotonic."""
        self._clients = clients
        self._now_ms = now_ms
        self._mark_key = secrets.token_bytes(32)

    def prove(self, name: str, secret: str, brokers: Iterable[str]) -> Proof:
        """Ask up to three brokers, by their addresses, until one proves the account: users of 5.x
        are each broker's own."""
        if (odd := _oddity(name, secret)) is not None:
            return Proof(Verdict.REFUSED, odd)
        best = Proof(Verdict.UNDECIDED, "No broker of the cluster is known yet.")
        end_ms = self._now_ms() + DEADLINE_MS
        for asked, address in enumerate(brokers):
            if asked == MAX_BROKERS or self._now_ms() >= end_ms:
                break
            found = self._prove(name, secret, address)
            if found.verdict is Verdict.PROVED:
                return found
            if asked == 0 or found.verdict.value < best.verdict.value:
                best = found
        return best

    def judges(self, name: str, address: str) -> bool:
        """Whether this very broker would refuse a false secret of this name from this console.
        False for a name server, which has no accounts, and for a broker that does not answer."""
        return _refusal_kind(self._ask(RequestSigner(name, _random_secret()), address)) is not None

    def _prove(self, name: str, secret: str, address: str) -> Proof:
        false = self._ask(RequestSigner(name, _random_secret()), address)
        if false is None:
            return Proof(
                Verdict.UNCHECKED,
                f"The broker {address} accepts any secret from this console: it has no access "
                "control, or a white list with the console's address. Sign in with the link that "
                "bin/mqconsole printed at its start.",
            )
        kind = _refusal_kind(false)
        if kind is None:
            return Proof(Verdict.UNDECIDED, f"The account could not be checked: {false}")
        answer = self._ask(RequestSigner(name, secret), address)
        if _refusal_kind(answer) is not None:
            return Proof(Verdict.REFUSED, WRONG, detail=str(answer))
        if answer is not None:
            return Proof(Verdict.UNDECIDED, f"The account could not be checked: {answer}")
        account = proved(name, secret, kind, self._mark_key)
        return Proof(Verdict.PROVED, f"Accepted by {address}.", account)

    def _ask(self, signer: RequestSigner, address: str) -> Exception | None:
        """None: it was answered; else why not."""
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        nonce = {_NONCE: secrets.token_hex(16)}
        try:
            with self._clients.new(signer) as client:
                client.call(address, code, extra=nonce, timeout_ms=ASK_MS)
        except (AdminError, RemotingError, RequestError) as error:
            return error
        return None


def _random_secret() -> str:
    return secrets.token_urlsafe(32)


def _refusal_kind(error: Exception | None) -> Kind | None:
    """Which access control refused an account; None: it was no refusal of that kind."""
    if not isinstance(error, BrokerAnswerError):
        return None
    if error.code == ResponseCode.NO_PERMISSION:
        return Kind.USER
    if error.code == ResponseCode.SYSTEM_ERROR and error.remark.startswith(_ACL_REFUSAL):
        return Kind.ACL
    return None


def _oddity(name: str, secret: str) -> str | None:
    """Why no broker need be asked."""
    if not name or not secret:
        return "Name and secret are both needed."
    if len(name) > MAX_NAME or len(secret) > MAX_SECRET:
        return f"A name has at most {MAX_NAME} characters, a secret {MAX_SECRET}."
    if holds_control(name) or not _is_utf8(name + secret):
        return "The name has characters that no account has."
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
