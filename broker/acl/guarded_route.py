"""GuardedRoute: a fast route of the server, with the gate in front of it.

On the loop thread. A fast route reads its frame straight from the receive buffer and does not come
to the gate; with ACL it may be used all the same, if the gate has seen the same request first.
What is not let in here, and what is not plain, goes the general way, where the gate is asked again
and the refusal is answered. Both readers of a header are msgspec's: of a name that stands there
twice, escaped or not, both take the last, so what is checked is what is done.
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


class _Header(msgspec.Struct, gc=False):
    """What the gate looks at."""

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
