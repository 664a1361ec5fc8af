"""AdminAudit: writes a line for each operator's request that changes something, also a refused one.

Requests are seen at two places: processors of audited codes are wrapped (`over`), and the request
guard tells what it refuses (`refused`); other codes pass neither. A line is written before the
answer is sent, on the thread of the request; for what runs on the loop a pool writes it. A line
that cannot be written is counted and logged, and the request is answered as if nothing had
happened. Refusals are limited to 100 a minute and 1,000 a day, and have short lines: who may do
nothing needs weeks to push out what others did.

What has a line and what is in it: admin_audit_what.py. Any thread.

Tested by tests/broker/admin/test_admin_audit.py.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from broker.admin.admin_audit_files import LINE_LIMIT, AdminAuditFiles
from broker.admin.admin_audit_what import AUDITED, cut_texts, is_audited, short_line, told_of
from ipc.clock import Clock
from remoting.body.admin_audit import AdminAuditAnswer, AdminAuditEntry
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import request_code_name
from remoting.request_processor import ConnectionLike, RequestProcessor
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

REFUSALS_A_MINUTE: Final = 100
REFUSALS_A_DAY: Final = 1_000
REFUSAL_LIMIT: Final = 1_024
"""Bytes of a refusal's line, unless its signer and remark are longer."""
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS

FindSigner = Callable[[RemotingCommand], str | None]
"""Who proves by its signature to have sent a request."""
InPool = Callable[[Callable[[], None]], bool]
"""Runs a function on another thread, later; False: it does not."""


class AdminAudit:
    """See the module. Owned by: BrokerController."""

    def __init__(
        self,
        files: AdminAuditFiles,
        clock: Clock,
        find_signer: FindSigner,
        is_on_loop: Callable[[int], bool],
        in_pool: InPool,
    ) -> None:
        """is_on_loop: whether requests of a code run on the loop, which writes no file."""
        self._files = files
        self._clock = clock
        self._find_signer = find_signer
        self._is_on_loop = is_on_loop
        self._in_pool = in_pool
        self._lock = threading.Lock()
        self._left_out = 0
        self._refusals = 0
        self._minute = 0
        self._refusals_today = 0
        self._day = 0
        self._said_ms: int | None = None

    def over(self, processors: Mapping[int, RequestProcessor]) -> dict[int, RequestProcessor]:
        """`processors`, with those of audited codes wrapped."""
        return {
            code: _Audited(self, processor) if code in AUDITED else processor
            for code, processor in processors.items()
        }

    def refused(
        self, connection: ConnectionLike, request: RemotingCommand, error: RequestError
    ) -> None:
        """The request guard did not let this request pass."""
        if not is_audited(request):
            return
        if self._may_tell_refusal():
            write = self.entry_of(connection, request, REFUSAL_LIMIT)
            write(int(error.code), error.remark)
        else:
            self._count_left_out()

    def newest(
        self, most: int, before_number: int | None, before_ms: int | None
    ) -> AdminAuditAnswer:
        """See AdminAuditFiles. Raises OSError."""
        return self._files.newest(most, before_number, before_ms)

    def close(self) -> None:
        """The last thing of a stop."""
        self._files.close()

    def entry_of(
        self, connection: ConnectionLike, request: RemotingCommand, limit: int = LINE_LIMIT
    ) -> Callable[[int | None, str | None], None]:
        """What writes the line once the result is known: a processor may change its request."""
        fields: dict[str, Any] = {
            "who": cut_texts(self._find_signer(request)),
            "address": connection.remote_address,
            "code": request.code,
            "name": request_code_name(request.code),
        }
        what = told_of(request)

        def write(result: int | None, remark: str | None) -> None:
            fields.update(result=result, remark=cut_texts(remark or ""), time=self._clock.now_ms())
            line = functools.partial(self._write, fields, what, limit)
            if not self._is_on_loop(request.code):
                line()
            elif not self._in_pool(line):
                self._count_left_out()

        return write

    def _write(self, fields: dict[str, Any], what: dict[str, Any], limit: int) -> None:
        with self._lock:
            left_out, self._left_out = self._left_out, 0

        def line_of(number: int) -> bytes:
            def line(shown: dict[str, Any]) -> bytes:
                entry = AdminAuditEntry(number=number, what=shown, left_out=left_out, **fields)
                return msgspec.json.encode(entry)

            return short_line(line, what, limit)

        try:
            self._files.append(line_of)
        except OSError as error:
            with self._lock:
                self._left_out += left_out
            self._count_left_out()
            self._say(error)

    def _count_left_out(self) -> None:
        with self._lock:
            self._left_out += 1

    def _say(self, error: OSError) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            count, said_ms = self._left_out, self._said_ms
            if said_ms is not None and now_ms - said_ms < _MINUTE_MS:
                return
            self._said_ms = now_ms
        log.error("the audit of changes cannot be written, %s lines are lost: %s", count, error)

    def _may_tell_refusal(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        minute, day = now_ms // _MINUTE_MS, now_ms // _DAY_MS
        with self._lock:
            if minute != self._minute:
                self._minute, self._refusals = minute, 0
            if day != self._day:
                self._day, self._refusals_today = day, 0
            if self._refusals == REFUSALS_A_MINUTE or self._refusals_today == REFUSALS_A_DAY:
                return False
            self._refusals += 1
            self._refusals_today += 1
            return True


class _Audited:
    """A processor of audited codes."""

    def __init__(self, audit: AdminAudit, processor: RequestProcessor) -> None:
        self._audit = audit
        self._processor = processor

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """See RequestProcessor."""
        if not is_audited(request):
            return self._processor.process_request(connection, request)
        write = self._audit.entry_of(connection, request)
        try:
            response = self._processor.process_request(connection, request)
        except RequestError as error:
            write(int(error.code), error.remark)
            raise
        except Exception as error:
            write(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
            raise
        if response is None:
            write(None, "answered later")
        else:
            write(response.code, response.remark)
        return response
