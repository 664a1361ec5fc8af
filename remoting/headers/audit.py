"""The header of the request that tells a broker's audit of changes, a request of ours. Pure data,
any thread."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAdminAuditRequestHeader(CommandCustomHeader):
    """GET_ADMIN_AUDIT (ours): the newest max_lines; before_number: of those before that line,
    before_timestamp (wall clock ms): of those before that time."""

    max_lines: Int32 = 100
    before_number: Int64 | None = None
    before_timestamp: Int64 | None = None
