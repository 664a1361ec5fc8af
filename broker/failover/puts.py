"""Puts: whether a member takes messages. Pure; any thread."""

from __future__ import annotations

from typing import Final, NamedTuple

from remoting.response_code import ResponseCode


class Refusal(NamedTuple):
    """Why a put is not taken now."""

    code: ResponseCode
    remark: str


class Puts(NamedTuple):
    """What a member says of puts until the next event."""

    refusal: Refusal | None
    """Why they are refused, whatever the time; None: for no such reason."""
    until_ms: int | None
    """They are refused from this time of the own monotonic clock on (self-fence); None: without
    end."""

    def find_refusal(self, now_ms: int) -> Refusal | None:
        """Why a put is not taken now; None: it is."""
        if self.refusal is None and self.until_ms is not None and now_ms >= self.until_ms:
            return NOT_CONFIRMED
        return self.refusal


NOT_MASTER: Final = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is not the master")
NOT_CONFIRMED: Final = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE, "no controller has confirmed this master"
)
HANDING_OVER: Final = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE, "another member of the group takes over"
)
TOO_FEW_MEMBERS: Final = Refusal(ResponseCode.SYSTEM_ERROR, "the in-sync replicas are not enough")
