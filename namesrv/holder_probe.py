"""HolderProbe: asks a broker that holds an id or an address whether it still lives.

The host of a master can vanish without a word: its connection stays open, and for two minutes
nobody but that host could register what it held. So when another host wants it, the holder is
asked over its own connection, with a request (28) that every broker answers there, be it with "not
supported". Who has answered nothing within SILENCE_MS counts as dead, until it registers again.
Nobody can answer for it, and nobody gets its place while it answers.

Called by RegistrationRules on the threads of requests; answers come on the server's loop. Opens no
connection and changes no table.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from namesrv.registrations import BrokerLiveInfo
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_table import ResponseFuture, ResponseTable

log = logging.getLogger(__name__)

SILENCE_MS: Final = 5_000


@dataclass(slots=True)
class _Question:
    """One request to a holder."""

    sent_ms: int
    opaque: int
    is_answered: bool = False


class HolderProbe:
    """See the module. Guarded by: its lock; at most one question a connection."""

    def __init__(self, responses: ResponseTable, now_ms: Callable[[], int]) -> None:
        """responses: of the server that the brokers are connected to. now_ms: monotonic."""
        self._responses = responses
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._questions: dict[int, _Question] = {}
        """By connection id."""

    def is_silent(self, live: BrokerLiveInfo) -> bool:
        """Whether the holder was asked SILENCE_MS ago and has said nothing since; asks it if it has
        not been asked, or has answered."""
        connection, now_ms = live.connection, self._now_ms()
        with self._lock:
            asked = self._questions.get(connection.connection_id)
            if asked is None or asked.is_answered or live.last_update_ms > asked.sent_ms:
                self._ask(connection, now_ms)
                return False
            silent_ms = now_ms - asked.sent_ms
        if silent_ms < SILENCE_MS:
            return False
        log.warning(
            "broker %s: no answer for %s ms, another host may now register its id",
            live.broker_addr,
            silent_ms,
        )
        return True

    def forget(self, connection_id: int) -> None:
        """The connection is closed."""
        with self._lock:
            asked = self._questions.pop(connection_id, None)
        if asked is not None:
            self._responses.take(asked.opaque)

    def _ask(self, connection: ConnectionLike, now_ms: int) -> None:
        before = self._questions.pop(connection.connection_id, None)
        if before is not None:
            self._responses.take(before.opaque)
        request = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        question = _Question(now_ms, request.opaque)

        def on_answer(_response: RemotingCommand | None, _error: Exception | None) -> None:
            question.is_answered = True

        self._questions[connection.connection_id] = question
        self._responses.add(
            ResponseFuture(
                request.opaque, connection.remote_address, now_ms + SILENCE_MS, on_answer
            )
        )
        connection.send_command(request)
