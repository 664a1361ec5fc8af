"""GuardedRoute: a fast route of the server behind the request guard.

Runs on the loop thread. A fast route decodes its frame straight from the receive buffer and
bypasses the guard. With ACL it can still be used if the guard checks the same request first.
Anything denied or unusual here takes the general path, where the guard is asked again and the error
is sent. Both decoders of a JSON header are msgspec's: if a name occurs twice, escaped or not, both
use the last one, so the request that is checked is the request that is served. A binary header is
read by the same function twice.
"""

from __future__ import annotations

from typing import Final

import msgspec

from remoting.connection import Connection
from remoting.errors import RequestError
from remoting.remoting_codec import MAX_EXT_FIELDS
from remoting.remoting_command import RemotingCommand
from remoting.remoting_server import FastHandler
from remoting.request_dispatcher import RequestGate
from remoting.rocketmq_serializable import find_plain_header


class _Header(msgspec.Struct, gc=False):
    """The fields that the guard checks."""

    code: int
    extFields: dict[str, str]  # noqa: N815


_decode: Final = msgspec.json.Decoder(_Header).decode


class GuardedRoute:
    """FastHandler for the frames of one request code that begin with `prefix`."""

    __slots__ = ("_check", "_code", "_handler")

    def __init__(self, prefix: bytes, handler: FastHandler, gate: RequestGate) -> None:
        """`prefix`: of the JSON header, up to the comma behind its code."""
        self._code = int(prefix.removeprefix(b'{"code":').removesuffix(b","))
        self._handler = handler
        self._check = gate

    def __call__(self, connection: Connection, header: bytes, body: memoryview) -> bool:
        """Whether the frame was taken."""
        try:
            read = _decode(header)
        except (msgspec.DecodeError, UnicodeError):
            return False
        if read.code != self._code or len(read.extFields) > MAX_EXT_FIELDS:
            return False
        request = RemotingCommand(read.code, ext_fields=read.extFields, body=bytes(body))
        try:
            self._check(connection, request)
        except RequestError:
            return False
        return self._handler(connection, header, body)


class GuardedBinaryRoute:
    """FastHandler for the frames with a binary header and one request code."""

    __slots__ = ("_check", "_code", "_handler")

    def __init__(self, code: int, handler: FastHandler, gate: RequestGate) -> None:
        self._code = code
        self._handler = handler
        self._check = gate

    def __call__(self, connection: Connection, header: bytes, body: memoryview) -> bool:
        """Whether the frame was taken."""
        read = find_plain_header(header)
        if read is None or read.code != self._code:
            return False
        request = RemotingCommand(read.code, ext_fields=read.ext_fields, body=bytes(body))
        try:
            self._check(connection, request)
        except RequestError:
            return False
        return self._handler(connection, header, body)
