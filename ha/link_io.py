"""Bytes of a slave's link, in and out, with every failure as a LinkClosedError.

Never blocks; called by the thread that follows the master. Knows no frames.
"""

from __future__ import annotations

from ha.link_errors import LinkClosedError, tls_failure
from ha.refusals import RefusalReason
from ha.transport import Transport, is_tls_error


def receive_into(transport: Transport, view: memoryview, at_end: str) -> int:
    """How many bytes came; 0: none now. at_end: what to say of a master that has closed the
    connection, after that it has. Raises LinkClosedError."""
    try:
        count = transport.recv_into(view)
    except OSError as error:
        raise _broken(error, "receiving") from error
    if count == 0:
        raise LinkClosedError(RefusalReason.NETWORK, f"the master closed the connection{at_end}")
    return count or 0


def send(transport: Transport, data: bytes) -> int:
    """How many bytes of a report were taken. Raises LinkClosedError."""
    try:
        return transport.send((data,))
    except OSError as error:
        raise _broken(error, "reporting") from error


def _broken(error: OSError, what: str) -> LinkClosedError:
    if is_tls_error(error):
        return tls_failure(error)
    return LinkClosedError(RefusalReason.NETWORK, f"{what} failed: {error}")


def silence_left_ms(silent_ms: int, limit_ms: int) -> int:
    """How much longer the master may be silent, who was for `silent_ms`. limit_ms:
    haHousekeepingInterval. Raises LinkClosedError: not at all."""
    if silent_ms >= limit_ms:
        raise LinkClosedError(
            RefusalReason.SILENT,
            f"nothing received for {limit_ms} ms (haHousekeepingInterval); "
            "a master sends a heartbeat every haSendHeartbeatInterval",
        )
    return limit_ms - silent_ms
