"""ReplicaAnnouncer: a slave tells its master which HA connection is its own.

Runs in process `remoting`; told of links by process `ha`, ticked by the scheduled executor. The HA
protocol carries no identity, so the slave says over the master's remoting port "the HA connection
from ip:port is broker N of this group" (request 28906, ours). A master that refuses is not asked
again for that link. Nothing waits for an answer; replication works without it.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, NamedTuple, Protocol

from remoting.command_custom_header import encode_header
from remoting.headers.ha import AnnounceHALinkRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode, response_code_name
from remoting.response_table import ResponseCallback

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000
_NOT_KNOWN: Final = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class AsyncClient(Protocol):
    """What is needed of RemotingClient."""

    def invoke_async(
        self, address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        """Call a peer; the callback runs once."""
        ...


class _Link(NamedTuple):
    """Our end of the HA connection, and the remoting address of the master it leads to."""

    local: str
    master: str


class ReplicaAnnouncer:
    """Announces each link once. Any thread; its lock guards all of it."""

    def __init__(self, client: AsyncClient, broker_name: str, broker_id: int) -> None:
        self._client = client
        self._broker_name = broker_name
        self._broker_id = broker_id
        self._lock: Final = threading.Lock()
        self._local: str | None = None
        self._master: str | None = None
        self._settled: _Link | None = None
        self._under_way: _Link | None = None
        self._complained = ""

    def link_opened(self, local: str) -> None:
        """The HA client is connected; `local`: "ip:port" of our end."""
        with self._lock:
            self._local = local
        self.tick()

    def link_closed(self) -> None:
        """The HA client is not connected any more."""
        with self._lock:
            self._local = None

    def master_changed(self, master: str | None) -> None:
        """The master's remoting address, None while it is unknown; again and again is fine."""
        with self._lock:
            self._master = master
        self.tick()

    def tick(self) -> None:
        """Announce the link unless that is done, under way, or not possible yet."""
        with self._lock:
            if self._local is None or self._master is None:
                return
            link = _Link(self._local, self._master)
            if link in (self._settled, self._under_way):
                return
            self._under_way = link
        header = AnnounceHALinkRequestHeader(
            link=link.local, broker_name=self._broker_name, broker_id=self._broker_id
        )
        command = RemotingCommand.request(RequestCode.ANNOUNCE_HA_LINK, encode_header(header))
        self._client.invoke_async(
            link.master,
            command,
            TIMEOUT_MS,
            lambda response, error: self._answered(link, response, error),
        )

    def _answered(
        self, link: _Link, response: RemotingCommand | None, error: Exception | None
    ) -> None:
        """The master's word, or why there is none; on the client's loop thread."""
        settled = response is not None and response.code in (
            ResponseCode.SUCCESS,
            _NOT_KNOWN,
            ResponseCode.NO_PERMISSION,
        )
        text = _complaint(response, error)
        with self._lock:
            if self._under_way == link:
                self._under_way = None
            if settled:
                self._settled = link
            is_new = text != self._complained
            self._complained = text
        if settled and not text:
            log.info("HA link %s: announced to master %s", link.local, link.master)
        elif is_new:
            unknown = response is not None and response.code == _NOT_KNOWN
            level = logging.INFO if unknown else logging.WARNING
            log.log(level, "HA link %s: master %s: %s", link.local, link.master, text)


def _complaint(response: RemotingCommand | None, error: Exception | None) -> str:
    """What there is to say about an announcement that was not taken; "" when it was."""
    if response is None:
        return f"not announced yet: {error}"
    if response.code == ResponseCode.SUCCESS:
        return ""
    if response.code == _NOT_KNOWN:
        return "does not know announcements (a Java broker); it knows this slave by its ip"
    return f"refuses the announcement: {response_code_name(response.code)} {response.remark}"
