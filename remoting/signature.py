"""Signatures of requests: HmacSHA1 over the values of all extFields and the body. Pure, any thread.

The signature covers the values of all extFields except Signature, in UTF-8 without separators, in
Java's order of their names (by UTF-16 units), followed by the body. It does not cover code, opaque,
version, language, flag and remark. Java: AclSigner, AclUtils.combineRequestContent.

With access control every send and pull is checked, so two things are remembered: the state of a
key's HMAC (0.9 us a signature, hmac.digest takes 2.0), and the order of names that clients send
again and again (0.7 us a request, sorting them 1.8).
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import hmac
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Final

from remoting.headers.query import UNIQUE_KEY_QUERY
from remoting.remoting_command import RemotingCommand

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"


_BLOCK_SIZE: Final = 64
"""Of SHA-1, in bytes."""
_INNER_PAD: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD: Final = bytes(byte ^ 0x5C for byte in range(256))
"""The constants of RFC 2104, for bytes.translate."""
_KEYS: Final = 1024
"""How many keys are remembered."""

_ValuesOf = Callable[[Mapping[str, str]], tuple[str, ...]]
_orders: Final[dict[tuple[str, ...], _ValuesOf]] = {}
"""By the names of a request as they came: its signed values in Java's order."""
_ORDERS: Final = 256
_ORDER_NAMES: Final = range(2, 33)
_ORDER_SIZE: Final = 512
"""Orders of so many names with so many characters are remembered; a client has one for each kind of
request."""


class SigningKey:
    """HmacSHA1 with one key (RFC 2104). Immutable."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_key: bytes) -> None:
        if len(secret_key) > _BLOCK_SIZE:
            secret_key = hashlib.sha1(secret_key).digest()
        padded = secret_key.ljust(_BLOCK_SIZE, b"\0")
        self._inner = hashlib.sha1(padded.translate(_INNER_PAD))
        self._outer = hashlib.sha1(padded.translate(_OUTER_PAD))

    def signature(self, text: bytes, body: bytes) -> bytes:
        """The signature of `text` and `body` together: 20 bytes in Base64."""
        inner = self._inner.copy()
        inner.update(text)
        inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return binascii.b2a_base64(outer.digest(), newline=False)


@functools.lru_cache(_KEYS)
def _signing_key(secret_key: bytes) -> SigningKey:
    return SigningKey(secret_key)


def signed_text(fields: Mapping[str, str]) -> bytes:
    """The values that a signature covers, before the body."""
    values_of = _orders.get(tuple(fields))
    if values_of is None:
        values_of = _learn_order(tuple(fields))
    return "".join(values_of(fields)).encode("utf-8", "replace")


def _learn_order(came: tuple[str, ...]) -> _ValuesOf:
    names = [name for name in came if name != SIGNATURE]
    names.sort()
    all_names = "".join(names)
    if not all_names.isascii():  # otherwise both orders are the same
        names.sort(key=_java_order)
    if len(names) not in _ORDER_NAMES or len(all_names) > _ORDER_SIZE:
        return lambda fields: tuple([fields[name] for name in names])
    if len(_orders) >= _ORDERS:
        _orders.clear()
    values_of: _ValuesOf = itemgetter(*names)
    _orders[came] = values_of
    return values_of


def is_signed_with(secret_key: bytes, request: RemotingCommand) -> bool:
    """Whether the request is signed with this key; compares in constant time.

    A 4.9.8 broker omits the mark of a unique key query, though clients since 4.9.4 sign it; both
    forms are accepted here.
    """
    fields = request.ext_fields
    given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    key = _signing_key(secret_key)
    if hmac.compare_digest(key.signature(signed_text(fields), request.body), given):
        return True
    if UNIQUE_KEY_QUERY not in fields:
        return False
    unmarked = {name: value for name, value in fields.items() if name != UNIQUE_KEY_QUERY}
    return hmac.compare_digest(key.signature(signed_text(unmarked), request.body), given)


class RequestSigner:
    """Signs outgoing requests with an account of the receiving broker (Java: AclClientRPCHook). Any
    thread."""

    def __init__(self, access_key: str, secret_key: str) -> None:
        self.access_key = access_key
        self._key = SigningKey(secret_key.encode())

    def sign(self, request: RemotingCommand) -> None:
        """Add AccessKey and Signature; all other fields must be set before."""
        request.has_ext_fields = True
        request.ext_fields[ACCESS_KEY] = self.access_key
        signature = self._key.signature(signed_text(request.ext_fields), request.body)
        request.ext_fields[SIGNATURE] = signature.decode("ascii")


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
