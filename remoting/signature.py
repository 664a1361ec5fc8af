"""Signatures of requests: HmacSHA1 over the values of all extFields and the body. Pure, any thread.

Signed are the values of every extField but Signature, without separators, in the order of their
names as Java compares text (UTF-16 units), in UTF-8, and then the body. Not signed are code,
opaque, version, language, flag and remark. Java: AclSigner, AclUtils.combineRequestContent.
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
    """What a signature of this request covers; Signature itself and the fields in `without` are
    left out."""
    fields = request.ext_fields
    left_out = {SIGNATURE, *without}
    names = [name for name in fields if name not in left_out]
    names.sort()
    if not "".join(names).isascii():  # else both orders are the same
        names.sort(key=_java_order)
    text = "".join([fields[name] for name in names])
    return text.encode("utf-8", "replace") + request.body


def is_signed_with(secret_key: bytes, request: RemotingCommand) -> bool:
    """Whether the request carries the signature of this key; a wrong one is not told apart by the
    time it takes.

    A 4.9.8 broker leaves the mark of a unique key query out, though clients since 4.9.4 sign it:
    both forms are right here.
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
    """Signs requests of ours as an account of the broker that is asked (Java: AclClientRPCHook).
    Any thread."""

    def __init__(self, access_key: str, secret_key: str) -> None:
        self.access_key = access_key
        self._secret_key = secret_key.encode()

    def sign(self, request: RemotingCommand) -> None:
        """Add AccessKey and Signature; every other field must be there by now."""
        request.has_ext_fields = True
        request.ext_fields[ACCESS_KEY] = self.access_key
        request.ext_fields[SIGNATURE] = signature_of(signed_content(request), self._secret_key)


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
