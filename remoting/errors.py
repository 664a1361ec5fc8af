"""Errors of the remoting room, sorted by whose fault they are.

The peer asked for something wrong: RequestError (answered, connection kept). The peer's bytes are
no frame: FrameError (connection closed, nothing answered). Our own call to a peer failed:
RemotingError and its children, raised to the caller of RemotingClient. Pure data, any thread.
"""

from __future__ import annotations

from remoting.response_code import ResponseCode


class RequestError(Exception):
    """A processor refuses a request; the server answers `code` and `remark`."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(f"{code.name}: {remark}")
        self.code = code
        self.remark = remark


class HeaderError(RequestError):
    """A header field is missing or cannot be parsed; names the field and its header class."""

    def __init__(self, header: str, field: str, reason: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, f"{header}.{field}: {reason}")
        self.header = header
        self.field = field


class BodyError(RequestError):
    """A body cannot be read as what the request code promises; answered SYSTEM_ERROR."""

    def __init__(self, body: str, reason: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, f"{body}: {reason}")
        self.body = body


class FrameError(Exception):
    """The peer sent bytes that are no frame; its connection must be closed."""


class EncodeError(Exception):
    """We were asked to write a command that the format cannot hold: a bug of the caller."""


class RemotingError(Exception):
    """A call to a peer failed; the message names the peer's address."""

    def __init__(self, address: str, message: str) -> None:
        super().__init__(f"{address}: {message}")
        self.address = address


class RemotingConnectError(RemotingError):
    """No connection to the peer could be made (Java: RemotingConnectException)."""


class RemotingSendRequestError(RemotingError):
    """The connection broke before an answer came (Java: RemotingSendRequestException)."""


class RemotingTimeoutError(RemotingError):
    """No answer within the caller's deadline (Java: RemotingTimeoutException)."""


class RemotingTooMuchRequestError(RemotingError):
    """Too many calls in flight, or no time was given (Java: RemotingTooMuchRequestException)."""
