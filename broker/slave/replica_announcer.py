"""ReplicaAnnouncer: a slave tells its master which HA connection belongs to it.

Runs in process `remoting`; process `ha` reports links, and the scheduled executor calls `tick`. The
HA protocol carries no identity, so the slave announces over the master's remoting port that the HA
connection from ip:port is broker N of this group (request 28906, an extension of this broker). If
the master rejects it, it is not repeated for that link. Nothing waits for the response; replication
works without it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from remoting.command_custom_header import encode_header
from remoting.headers.ha import AnnounceHALinkRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode, response_code_name

if TYPE_CHECKING:
    from remoting.remoting_client import RemotingClient

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000
_NOT_KNOWN: Final = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class _Link(NamedTuple):
    """The local address of the HA connection, and the remoting address of its master."""

    local: str
    master: str


class ReplicaAnnouncer:
    """Announces each link once. Any thread; its lock guards all of it."""

    def __init__(self, client: RemotingClient, broker_name: str, broker_id: int) -> None:
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
        """The HA client is connected; `local`: the local "ip:port"."""
        with self._lock:
            self._local = local
        self.tick()

    def link_closed(self) -> None:
        """The HA client is no longer connected."""
        with self._lock:
            self._local = None

    def master_changed(self, master: str | None) -> None:
        """The master's remoting address, None while unknown. May be called repeatedly."""
        with self._lock:
            self._master = master
        self.tick()

    def tick(self) -> None:
        """Announce the link unless that is done, in progress, or not possible yet."""
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
        """Handle the master's response or the error; on the client's loop thread."""
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
    """Why an announcement was not accepted; "" if it was."""
    if response is None:
        return f"not announced yet: {error}"
    if response.code == ResponseCode.SUCCESS:
        return ""
    if response.code == _NOT_KNOWN:
        return "does not support announcements (a Java broker); it identifies this slave by IP"
    return f"rejected the announcement: {response_code_name(response.code)} {response.remark}"
