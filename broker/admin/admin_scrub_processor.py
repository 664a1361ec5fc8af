"""AdminScrubProcessor: how whole the commit log is, for operators (28910) and the group's brokers
(28911).

Runs in the `admin` pool. Digests come from the files that process `store` keeps; those of pieces
are made here, of the mapped log, one request at a time. Pieces have places and a size of our own,
so that nobody can have single bytes of messages digested, and guess them.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from broker.processor.table_processor import TableProcessor
from broker.slave.chunk_repair import piece_digests
from broker.slave.remote_digests import PIECE_SIZE
from ipc.command_channel import CommandError
from ipc.control_page import ControlPage
from remoting.body.log_verification import LogVerification, PieceDigests
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.log_digests import GetLogDigestsRequestHeader, VerifyLogRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.commit_log_reader import CommitLogReader
from store.control_slots import (
    CHANGED_CHUNKS,
    FENCE_COUNT,
    MIN_PHY_OFFSET,
    REPAIRED_RANGES,
    SCRUB_DAMAGED_RANGES,
    SCRUB_PASS_ENDED_MS,
)
from store.errors import StoreError
from store.log_digests import FileDigests, LogDigests

if TYPE_CHECKING:
    from broker.slave.damage_repair_service import DamageRepairService
    from broker.slave.repair_commands import RepairCommands

log = logging.getLogger(__name__)

DEFAULT_BYTES_PER_SECOND: Final = 256 << 20
"""Of a scrub that an operator asks for."""


class AdminScrubProcessor(TableProcessor):
    """Codes VERIFY_LOG and GET_LOG_DIGESTS."""

    def __init__(
        self,
        comparing: DamageRepairService,
        scrub: RepairCommands,
        digests: LogDigests,
        reader: CommitLogReader,
        page: ControlPage,
    ) -> None:
        """reader: used under a lock of this object only."""
        super().__init__(
            {
                RequestCode.VERIFY_LOG: self.verify_log,
                RequestCode.GET_LOG_DIGESTS: self.get_log_digests,
            }
        )
        self._comparing = comparing
        self._scrub = scrub
        self._digests = digests
        self._reader = reader
        self._counters = page.counters
        self._lock = threading.Lock()

    def verify_log(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """28910: begin to read or to compare, or only say how far that is."""
        header = decode_header(VerifyLogRequestHeader, request.ext_fields)
        if header.action not in ("scrub", "compare", "status"):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"action {header.action!r} is not one of scrub, compare, status",
            )
        if header.action != "status":
            log.info("commit log: %s requested by %s", header.action, connection.remote_address)
        try:
            if header.action == "scrub":
                rate = header.bytes_per_second
                self._scrub.request_scrub(rate if rate and rate > 0 else DEFAULT_BYTES_PER_SECOND)
            elif header.action == "compare":
                self._comparing.request_comparison()
            status = self._scrub.scrub_status()
        except CommandError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"process store is not available: {error}"
            ) from error
        return request.response(ResponseCode.SUCCESS, body=self._body(status).to_json_bytes())

    def get_log_digests(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """28911: of a file, or of the pieces of a chunk; no body where there are none."""
        header = decode_header(GetLogDigestsRequestHeader, request.ext_fields)
        size = self._reader.file_size
        start = header.offset - header.offset % size
        try:
            found = self._digests.load(start) if header.offset >= 0 else None
            if found is None:
                body = b""
            elif header.pieces:
                body = self._pieces(found, header.offset - start)
            else:
                body = json.dumps(found.to_json()).encode()
        except (StoreError, OSError) as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no digests: {error}") from error
        return request.response(ResponseCode.SUCCESS, body=body)

    def _pieces(self, found: FileDigests, position: int) -> bytes:
        chunk, rest = divmod(position, found.chunk_size)
        if rest or chunk >= len(found.digests):
            return b""
        low, high = found.range_of(chunk)
        with self._lock:
            view = self._reader.view_of_file(found.start)
            if view is None:
                return b""
            with view:
                digests = piece_digests(view, low - found.start, high - found.start)
        return PieceDigests(piece_size=PIECE_SIZE, digests=digests).to_json_bytes()

    def _body(self, status: dict[str, Any]) -> LogVerification:
        counters, state = self._counters, self._comparing.state
        return LogVerification(
            begin_offset=counters[MIN_PHY_OFFSET],
            closed_end=status["closed_end"],
            position=status["position"],
            pass_number=status["pass"],
            passes_ended=status["ended"],
            pass_ended_timestamp=counters[SCRUB_PASS_ENDED_MS],
            unread_repairs=status["unread_repairs"],
            damaged_ranges=counters[SCRUB_DAMAGED_RANGES],
            repaired_ranges=counters[REPAIRED_RANGES],
            fenced_ranges=counters[FENCE_COUNT],
            changed_chunks=counters[CHANGED_CHUNKS],
            comparison_number=state.number,
            comparisons_ended=state.ended,
            comparison_seconds=state.seconds,
            comparison_error=state.error,
            replicas=list(state.replicas),
        )
