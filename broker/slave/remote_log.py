"""RemoteLog: reads another broker's commit log over its remoting port.

Fetches its bounds (28, commitLogMinOffset and commitLogMaxOffset) and its stored records (33); this
broker, Java 4.9 and 5.x answer those alike. Runs in process `remoting` and blocks the comparing
thread. It compares nothing and decides nothing, and does not import numpy, for users that only need
the bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipc.clock import Clock
from remoting.body.kv_table import KVTable
from remoting.command_custom_header import encode_header
from remoting.errors import RemotingError, RequestError
from remoting.headers.query import ViewMessageRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI
    from remoting.remoting_client import RemotingClient

_REQUEST_MS: Final = 3_000
_NO_RECORD: Final = ("can not find message by the offset", "IllegalArgumentException")
"""Remarks of a master without a record at an offset; Java throws if the bytes are not a valid
size."""


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """Bounds of the master's commit log."""

    min_offset: int
    max_offset: int
    ha_protocol: int = 0
    """Which version of our handshake its HA port speaks (ha/handshake.py); 0: RocketMQ's only."""


class MasterSilentError(Exception):
    """The master's remoting port does not respond."""


class MasterRefusesError(Exception):
    """The master responded with an error (access control, an internal error)."""


def runtime_request() -> RemotingCommand:
    """28."""
    return RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)


def fetch_log_end(api: BrokerOuterAPI, address: str, timeout_ms: int) -> int:
    """Where the log of the broker at "ip:port" ends now (28). What it said of itself before rests
    on records below.

    Raises RemotingError, BrokerAnswerError, ValueError."""
    body = api.get_table(address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_ms)
    try:
        return read_bounds(body or b"").max_offset
    except ValueError as error:
        raise ValueError(f"broker {address}: invalid response to 28: {error}") from error


def read_facts(address: str, response: RemotingCommand, *, who: str = "master") -> MasterFacts:
    """The bounds in a response to 28. `who` is used in error texts. Raises MasterRefusesError."""
    if response.code != ResponseCode.SUCCESS:
        raise MasterRefusesError(
            f"{who} {address} did not return its offsets (28): code {response.code}, "
            f"{response.remark}"
        )
    try:
        return read_bounds(response.body)
    except ValueError as error:
        raise MasterRefusesError(f"{who} {address}: invalid response to 28: {error}") from error


def read_bounds(body: bytes) -> MasterFacts:
    """The bounds in the body of a response to 28. A Java broker without files reports min -1.

    Raises ValueError.
    """
    try:
        table = KVTable.from_json_bytes(body).table
        low, high = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        ha_protocol = int(table.get("haProtocol") or 0)
    except (RequestError, KeyError, ValueError) as error:
        raise ValueError(
            f"commitLogMinOffset or commitLogMaxOffset is missing or not a number ({error!r})"
        ) from error
    return MasterFacts(max(0, low), max(0, high), ha_protocol)


class RemoteLog:
    """Another broker's log, read over its remoting port.

    Raises MasterSilentError, MasterRefusesError.
    """

    def __init__(
        self,
        client: RemotingClient,
        address: str,
        clock: Clock,
        budget_ms: int,
        *,
        who: str = "master",
    ) -> None:
        """Fetches the bounds immediately; `budget_ms` limits all requests together. `who` is used
        in error texts."""
        self._client = client
        self._address = address
        self._who = who
        self._clock = clock
        self._deadline_ms = clock.monotonic_ms() + budget_ms
        facts = read_facts(address, self._ask(runtime_request()), who=who)
        self.min_offset, self.max_offset = facts.min_offset, facts.max_offset
        self.ha_protocol = facts.ha_protocol

    def record_at(self, phy_offset: int) -> bytes | None:
        """33."""
        header = encode_header(ViewMessageRequestHeader(offset=phy_offset))
        response = self._ask(RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, header))
        if response.code == ResponseCode.SUCCESS:
            return bytes(response.body) if response.body else None
        remark = response.remark or ""
        if response.code == ResponseCode.SYSTEM_ERROR and any(t in remark for t in _NO_RECORD):
            return None
        raise MasterRefusesError(
            f"{self._who} {self._address} did not return its record at {phy_offset} (33): "
            f"code {response.code}, {remark}"
        )

    def _ask(self, request: RemotingCommand) -> RemotingCommand:
        left_ms = self._deadline_ms - self._clock.monotonic_ms()
        try:
            return self._client.invoke_sync(self._address, request, min(left_ms, _REQUEST_MS))
        except RemotingError as error:
            raise MasterSilentError(
                f"{self._who} {self._address} does not respond: {error}"
            ) from error
