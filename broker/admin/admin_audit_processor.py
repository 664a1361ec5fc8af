"""AdminAuditProcessor: what operators have changed at this broker (28914).

Runs in the `admin` pool. It only reads; who writes is admin_audit.py.

Tested by tests/broker/admin/test_admin_audit.py.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.admin.admin_audit import AdminAudit
from broker.processor.table_processor import TableProcessor
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.audit import GetAdminAuditRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

MAX_LINES: Final = 1_000


class AdminAuditProcessor(TableProcessor):
    """Code GET_ADMIN_AUDIT."""

    def __init__(self, audit: AdminAudit) -> None:
        super().__init__({RequestCode.GET_ADMIN_AUDIT: self.get_admin_audit})
        self._audit = audit

    def get_admin_audit(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """28914: the newest lines, newest first."""
        header = decode_header(GetAdminAuditRequestHeader, request.ext_fields)
        if not 1 <= header.max_lines <= MAX_LINES:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"maxLines must be between 1 and {MAX_LINES}"
            )
        try:
            answer = self._audit.newest(
                header.max_lines, header.before_number, header.before_timestamp
            )
        except OSError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the audit of changes cannot be read: {error}"
            ) from error
        return request.response(ResponseCode.SUCCESS, body=msgspec.json.encode(answer))
