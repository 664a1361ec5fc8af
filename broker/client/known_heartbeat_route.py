"""KnownHeartbeatRoute: request code 34 of a client that says what it said 30 seconds ago.

Runs on the loop thread, as a fast route. Everything else a heartbeat may be is
ClientManageProcessor's, in its pool: there and back takes 200 us of processor time, this 40.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from broker.client.known_heartbeats import KnownHeartbeats
from broker.topic.table_protocols import PutStats
from remoting.connection import Connection
from remoting.frame import JsonAnswer
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.typed_numbers import Int32

HEARTBEAT_PREFIX: Final = b'{"code":34,'


class _Sender(msgspec.Struct, gc=False):
    """What a signed request says of its sender; wire names."""

    AccessKey: str = ""


class _Frame(msgspec.Struct, gc=False):
    """The JSON header of a heartbeat."""

    code: Literal[34]
    opaque: Int32
    flag: Int32 = 0
    extFields: _Sender | None = None  # noqa: N815


_SUCCESS: Final = int(ResponseCode.SUCCESS)
_ANSWER: Final = JsonAnswer(None)
_decode_frame: Final = msgspec.json.Decoder(_Frame).decode


class KnownHeartbeatRoute:
    """Owned by: the loop thread."""

    def __init__(self, heartbeats: KnownHeartbeats, stats: PutStats) -> None:
        self._heartbeats = heartbeats
        self._stats = stats

    def process_fast(self, connection: Connection, header: bytes, body: memoryview) -> bool:
        """FastHandler for JSON frames of code 34; False hands the frame to the general path."""
        try:
            frame = _decode_frame(header)
        except (msgspec.DecodeError, UnicodeError):
            return False
        sender = frame.extFields
        access_key = "" if sender is None else sender.AccessKey
        if frame.flag or not self._heartbeats.renew(connection, access_key, body):
            return False
        self._stats.add_answers(RequestCode.HEART_BEAT, ResponseCode.SUCCESS)
        connection.write(_ANSWER.render((_SUCCESS, frame.opaque)))
        return True
