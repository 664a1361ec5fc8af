"""A broker's audit of changes: its lines, in the file as in the answer to GET_ADMIN_AUDIT, a
request of ours. Pure data, any thread.

Whoever asks decodes with `msgspec.json.decode(body, type=AdminAuditAnswer)`; members that one does
not know are ignored.

Tested by tests/broker/admin/test_admin_audit.py.
"""

from __future__ import annotations

from typing import Any

import msgspec


class AdminAuditEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One request that changes something, or would have if it had been allowed."""

    number: int
    """One more than that of the line before it, also across restarts."""
    time: int
    """Wall clock ms, when it was answered."""
    who: str | None
    """The account or user that signed it, proved by its signature; None without access control, and
    of a request that is not signed, or not by whom it says."""
    address: str
    """The peer, as ip:port."""
    code: int
    name: str
    """Of the code."""
    what: dict[str, Any] = {}
    """Fields of the request, and `body`: no secrets; long ones are cut."""
    result: int | None
    """ResponseCode of the answer."""
    remark: str = ""
    left_out: int = 0
    """Requests before this one that have no line: it could not be written, or there were too many
    refusals."""


class AdminAuditAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer to GET_ADMIN_AUDIT."""

    entries: list[AdminAuditEntry] = []
    """Newest first."""
    before_number: int | None = None
    """What to ask for next; None: there are no older ones."""
