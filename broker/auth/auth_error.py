"""AuthError: users or rights say no. Pure, any thread."""

from __future__ import annotations

from remoting.errors import RequestError
from remoting.response_code import ResponseCode


class AuthError(RequestError):
    """Answered NO_PERMISSION with RocketMQ's words, as it answers its AuthenticationException and
    AuthorizationException, also those about a user or a list that cannot be changed so."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
