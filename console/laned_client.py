"""LanedClient: an AdminClient whose every request goes through the lanes.

So that what several pages and commands have in common (tools' functions) costs a broker no more
than the console's own questions: one request a second in the long run, answers shared by readers,
an answer that is young enough not asked for again. Owned by: the thread of one request.

Tested by tests/console/test_lanes.py.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass

from console.lanes import ANSWER_ERRORS, PATIENCE_MS, Lanes, Question
from remoting.command_custom_header import CommandCustomHeader, encode_header
from remoting.language_code import LanguageCode
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import TIMEOUT_MS, AdminClient
from tools.errors import AdminError


@dataclass(frozen=True, slots=True)
class Reading:
    """For whom, and how old an answer may be. `is_later`: what is not known yet is asked behind all
    that pages wait for, and is an error until then."""

    account: Hashable
    max_age_ms: int
    is_later: bool = False


class LanedClient(AdminClient):
    """Reads only: a change would be answered from what an earlier one was answered."""

    def __init__(self, client: AdminClient, lanes: Lanes, reading: Reading) -> None:
        """`client`: names the name servers; it asks nothing itself."""
        self.name_servers = client.name_servers
        self.now_ms = client.now_ms
        self._lanes = lanes
        self._reading = reading

    def call(
        self,
        address: str,
        code: RequestCode,
        header: CommandCustomHeader | None = None,
        body: bytes = b"",
        *,
        accept: Collection[int] = (ResponseCode.SUCCESS,),
        extra: dict[str, str] | None = None,
        language: LanguageCode = LanguageCode.PYTHON,
        timeout_ms: int = TIMEOUT_MS,
    ) -> RemotingCommand:
        """Ask one peer, or take what it has answered. Raises as AdminClient's."""
        named = ({} if header is None else encode_header(header)) | (extra or {})
        fields = tuple(sorted(named.items()))

        def run(client: AdminClient, peer: str) -> RemotingCommand | Exception:
            try:
                return client.call(
                    peer,
                    code,
                    header,
                    body,
                    accept=accept,
                    extra=extra,
                    language=language,
                    timeout_ms=timeout_ms,
                )
            except ANSWER_ERRORS as error:  # with its type, which callers tell apart
                return error

        question = Question((int(code), fields, body, tuple(accept)), run)
        reading = self._reading
        answer = self._lanes.ask(
            address,
            question,
            reading.max_age_ms,
            reading.account,
            0 if reading.is_later else PATIENCE_MS,
            is_later=reading.is_later,
        )
        if answer.value is None:
            raise AdminError(answer.error or f"{address} has not answered")
        if isinstance(answer.value, Exception):
            raise answer.value
        return answer.value
