"""RemoteDigests: digests of another broker's commit log, over its remoting port (28911).

Blocks the comparing thread of process `remoting`. A Java broker, and one of ours from before, does
not know the request. It compares nothing. PIECE_SIZE is what both ends cut a chunk into.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.slave.remote_log import MasterRefusesError, MasterSilentError
from remoting.body.log_verification import PieceDigests
from remoting.command_custom_header import encode_header
from remoting.errors import BodyError, RemotingError
from remoting.headers.log_digests import GetLogDigestsRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.remoting_serializable import JsonError, loads_lenient
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from store.log_digests import FileDigests, digests_from_json

if TYPE_CHECKING:
    from remoting.remoting_client import RemotingClient

PIECE_SIZE: Final = 64 << 10
_REQUEST_MS: Final = 10_000


class RemoteDigests:
    """One broker's. Raises MasterSilentError, MasterRefusesError."""

    def __init__(self, client: RemotingClient, address: str, who: str) -> None:
        """who: is used in error texts."""
        self._client = client
        self._address = address
        self._who = f"{who} {address}"

    def of_file(self, start: int) -> FileDigests | None:
        """Those of the file that starts there; None: it has none."""
        body = self._ask(start, pieces=False)
        if not body:
            return None
        try:
            return digests_from_json(start, loads_lenient(body))
        except (ValueError, JsonError) as error:
            raise MasterRefusesError(f"{self._who}: invalid digests: {error}") from error

    def of_pieces(self, start: int) -> list[str] | None:
        """Those of the pieces of the chunk that starts there; None: it has none."""
        body = self._ask(start, pieces=True)
        if not body:
            return None
        try:
            found = PieceDigests.from_json_bytes(body)
        except BodyError as error:
            raise MasterRefusesError(f"{self._who}: invalid digests: {error}") from error
        return found.digests if found.piece_size == PIECE_SIZE else None

    def _ask(self, offset: int, *, pieces: bool) -> bytes:
        header = encode_header(GetLogDigestsRequestHeader(offset=offset, pieces=pieces))
        request = RemotingCommand.request(RequestCode.GET_LOG_DIGESTS, header)
        try:
            response = self._client.invoke_sync(self._address, request, _REQUEST_MS)
        except RemotingError as error:
            raise MasterSilentError(f"{self._who} does not respond: {error}") from error
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise MasterRefusesError(
                f"{self._who} keeps no digests of its log: not a broker of this kind"
            )
        if response.code != ResponseCode.SUCCESS:
            raise MasterRefusesError(
                f"{self._who} did not return digests (28911): code {response.code}, "
                f"{response.remark}"
            )
        return bytes(response.body)
