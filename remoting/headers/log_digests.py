"""Headers of the commit log's digests, requests of ours. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLogDigestsRequestHeader(CommandCustomHeader):
    """GET_LOG_DIGESTS (ours): the digests of the closed file that starts at `offset`; with pieces
    those of the pieces of the chunk that starts there."""

    offset: Int64
    pieces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyLogRequestHeader(CommandCustomHeader):
    """VERIFY_LOG (ours). action: "scrub" reads all closed files again, "compare" compares their
    digests with the group's other brokers', "status" only asks. bytes_per_second: of "scrub"."""

    action: str
    bytes_per_second: Int64 | None = None
