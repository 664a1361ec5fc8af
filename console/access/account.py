"""Account: who is signed in, and as whom the brokers are asked for them.

Immutable; any thread. An account is itself the key of its answers (console/lanes.py) and of its
client (clients.py): two people who proved the same name and secret share them, and nobody else.

Tested by tests/console/access/test_sign_in.py, tests/console/access/test_clients.py.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum

from remoting.signature import RequestSigner


class Kind(StrEnum):
    """How an account was proved."""

    ACL = "acl"
    """An access key of 4.9."""
    USER = "user"
    """A user of 5.x."""
    OPERATOR = "operator"
    """The holder of the token that the console printed at its start."""


@dataclass(frozen=True, slots=True)
class Account:
    """Equal to another one only with the same secret."""

    name: str
    kind: Kind
    signer: RequestSigner | None = field(default=None, compare=False, repr=False)
    """None: requests leave as the console's own."""
    proof: bytes = field(default=b"", repr=False)
    """Tells two secrets of one name apart without being one; see `proved`."""

    @property
    def key(self) -> Hashable:
        """Names the account's answers and client; None: those of the console itself."""
        return None if self.kind is Kind.OPERATOR else self


OPERATOR = Account("operator", Kind.OPERATOR)
"""The token's holder, who acts as the console's own account (tools.yml), or unsigned."""


def proved(name: str, secret: str, kind: Kind, mark_key: bytes) -> Account:
    """An account whose secret a broker has accepted. `mark_key` is random and of this start."""
    mark = hmac.digest(mark_key, f"{name}\0{secret}".encode(), hashlib.sha256)
    return Account(name, kind, RequestSigner(name, secret), mark)
