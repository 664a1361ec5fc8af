"""Errors of the remoting package, by who caused them.

An invalid request of a peer: RequestError (answered, connection kept). Invalid bytes from a peer:
FrameError (connection closed without a response). A failed call to a peer: RemotingError and its
subclasses, raised to the caller of RemotingClient. Pure data, any thread.
"""

from __future__ import annotations

from remoting.response_code import ResponseCode


class RequestError(Exception):
    """A processor rejects a request; the server responds with `code` and `remark`."""

    def __init__(
        self, code: ResponseCode, remark: str, ext_fields: dict[str, str] | None = None
    ) -> None:
        """ext_fields: of the answer's header."""
        super().__init__(f"{code.name}: {remark}")
        self.code = code
        self.remark = remark
        self.ext_fields = ext_fields


class HeaderError(RequestError):
    """A header field is missing or invalid; names the field and its header class."""

    def __init__(self, header: str, field: str, reason: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, f"{header}.{field}: {reason}")
        self.header = header
        self.field = field


class BodyError(RequestError):
    """A body is invalid for its request code; answered SYSTEM_ERROR."""

    def __init__(self, body: str, reason: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, f"{body}: {reason}")
        self.body = body


class FrameError(Exception):
    """The peer sent an invalid frame; its connection must be closed."""


class EncodeError(Exception):
    """A command does not fit the wire format: a bug of the caller."""


class RemotingError(Exception):
    """A call to a peer failed; the message names the peer's address."""

    def __init__(self, address: str, message: str) -> None:
        super().__init__(f"{address}: {message}")
        self.address = address


class RemotingConnectError(RemotingError):
    """Could not connect to the peer (Java: RemotingConnectException)."""


class RemotingSendRequestError(RemotingError):
    """The connection was lost before a response arrived (Java: RemotingSendRequestException)."""


class RemotingTimeoutError(RemotingError):
    """No response within the caller's deadline (Java: RemotingTimeoutException)."""


class RemotingTooMuchRequestError(RemotingError):
    """Too many calls in flight, or a timeout of 0 (Java: RemotingTooMuchRequestException)."""
