"""The audit of changes that a broker of ours keeps (request 28914), for mqadmin and the console.

Runs on the caller's thread. What a broker says is checked here once: an answer that is none is an
AdminError with a sentence. It must not know who shows it.

Tested by tests/tools/test_mqadmin_admin_audit.py.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from remoting.body.admin_audit import AdminAuditAnswer, AdminAuditEntry
from remoting.headers.audit import GetAdminAuditRequestHeader
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode, response_code_name
from tools.admin_client import AdminClient
from tools.errors import AdminError, BrokerAnswerError

_decode: Final = msgspec.json.Decoder(AdminAuditAnswer).decode


class NoAdminAuditError(AdminError):
    """A broker that keeps no audit, as Java's do."""


def newest_changes(
    admin: AdminClient,
    address: str,
    most: int,
    before_number: int | None = None,
    before_ms: int | None = None,
) -> AdminAuditAnswer:
    """The newest lines of a broker, newest first. Raises AdminError and RemotingError."""
    header = GetAdminAuditRequestHeader(
        max_lines=most, before_number=before_number, before_timestamp=before_ms
    )
    try:
        body = admin.call(address, RequestCode.GET_ADMIN_AUDIT, header).body
    except BrokerAnswerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        raise NoAdminAuditError(
            f"broker {address} keeps no audit of changes (request 28914), as Java's brokers do "
            "not: see its log"
        ) from error
    try:
        answer = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AdminError(f"broker {address}: its audit cannot be read: {error}") from error
    return answer


def what_text(entry: AdminAuditEntry) -> str:
    """What was asked, in one line: a field after the other, a body as JSON."""
    return ", ".join(f"{name}={_text(value)}" for name, value in entry.what.items())


def result_text(entry: AdminAuditEntry) -> str:
    """SUCCESS, or the code's name with the remark."""
    if entry.result is None:
        return entry.remark or "unknown"
    name = response_code_name(entry.result)
    refused = entry.result != ResponseCode.SUCCESS and entry.remark
    return f"{name}: {entry.remark}" if refused else name


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
