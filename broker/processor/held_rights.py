"""The rights of a request that waits: they are judged again when it is answered.

A pull, pop or notification may wait for an hour, and what is found then would otherwise be given to
an account that was deleted meanwhile, or has lost the right, the address or the key that it asked
with. Loop thread. Knows no account; without access control nothing is judged.
"""

from __future__ import annotations

from collections.abc import Callable

from remoting.request_processor import ConnectionLike

CheckRights = Callable[[], None]
"""Raises RequestError if the account may not be answered any more. It judges only
what has changed; where nothing has, that costs the comparison of two references."""

HoldRights = Callable[[ConnectionLike, int, str | None, str, str], CheckRights | None]
"""(connection, request code, access key, group, topic) of a request that begins to wait in the turn
in which the request guard has let it pass (RequestGuard.hold). None without access control. Raises
RequestError."""


def no_rights(
    _connection: ConnectionLike, _code: int, _access_key: str | None, _group: str, _topic: str
) -> None:
    """HoldRights of a broker that has no accounts."""
