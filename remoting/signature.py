"""Signatures of requests: HmacSHA1 over the values of all extFields and the body. Pure, any thread.

The signature covers the values of all extFields except Signature, in UTF-8 without separators, in
Java's order of their names (by UTF-16 units), followed by the body. It does not cover code, opaque,
version, language, flag and remark. Java: AclSigner, AclUtils.combineRequestContent.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from typing import Final

from remoting.headers.query import UNIQUE_KEY_QUERY
from remoting.remoting_command import RemotingCommand

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"


def signature_of(content: bytes, secret_key: bytes) -> str:
    """The signature of `content`: 20 bytes in Base64."""
    return base64.b64encode(hmac.digest(secret_key, content, "sha1")).decode("ascii")


def signed_content(request: RemotingCommand, without: Iterable[str] = ()) -> bytes:
    """The content that a signature of this request covers, without Signature itself and the fields
    in `without`."""
    fields = request.ext_fields
    left_out = {SIGNATURE, *without}
    names = [name for name in fields if name not in left_out]
    names.sort()
    if not "".join(names).isascii():  # otherwise both orders are the same
        names.sort(key=_java_order)
    text = "".join([fields[name] for name in names])
    return text.encode("utf-8", "replace") + request.body


def is_signed_with(secret_key: bytes, request: RemotingCommand) -> bool:
    """Whether the request is signed with this key; compares in constant time.

    A 4.9.8 broker omits the mark of a unique key query, though clients since 4.9.4 sign it; both
    forms are accepted here.
    """
    given = request.ext_fields.get(SIGNATURE, "").encode("utf-8", "replace")
    if _is_signature(given, signed_content(request), secret_key):
        return True
    if UNIQUE_KEY_QUERY not in request.ext_fields:
        return False
    return _is_signature(given, signed_content(request, (UNIQUE_KEY_QUERY,)), secret_key)


def _is_signature(given: bytes, content: bytes, secret_key: bytes) -> bool:
    return hmac.compare_digest(signature_of(content, secret_key).encode(), given)


class RequestSigner:
    """Signs outgoing requests with an account of the receiving broker (Java: AclClientRPCHook). Any
    thread."""

    def __init__(self, access_key: str, secret_key: str) -> None:
        self.access_key = access_key
        self._secret_key = secret_key.encode()

    def sign(self, request: RemotingCommand) -> None:
        """Add AccessKey and Signature; all other fields must be set before."""
        request.has_ext_fields = True
        request.ext_fields[ACCESS_KEY] = self.access_key
        request.ext_fields[SIGNATURE] = signature_of(signed_content(request), self._secret_key)


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
