"""RoleNotifier: tells the brokers of a group of its new master (1008).

Called on the loop, which it never holds up: the client connects and sends on a loop of its own.
A notice only hastens what brokers find out by asking (1004), so that one which is not delivered is
logged and left. Over connections of its own to the brokers' service ports, as RocketMQ does.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from controller.answer_writer import notice_command
from controller.events import Notice
from remoting.errors import RemotingError
from remoting.remoting_client import RemotingClient

log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 3_000
_THREADS: Final = 3
MOST_WAITING: Final = 1_000
"""Notices that wait for a thread; those of brokers that do not answer are given up beyond that."""


class RoleNotifier:
    """See the module."""

    def __init__(self, client: RemotingClient) -> None:
        """client: started and shut down by the owner."""
        self._client = client
        self._pool = ThreadPoolExecutor(_THREADS, "RoleNotifier")
        self._newest: dict[tuple[str, str], int] = {}
        """Group and address to the epoch of the newest notice that waits. Owner: the loop puts,
        the pool's threads take out; single operations."""

    def notify(self, notice: Notice) -> None:
        """Have it sent, in place of an older one that waits."""
        group = notice.group
        key = group.broker_name, notice.address
        if key not in self._newest and len(self._newest) >= MOST_WAITING:
            log.error("%s: not notified of %s: too many wait", notice.address, group.broker_name)
            return
        self._newest[key] = group.master_epoch
        self._pool.submit(self._send, notice)

    def shutdown(self) -> None:
        """What waits is not sent any more."""
        self._pool.shutdown(cancel_futures=True)

    def _send(self, notice: Notice) -> None:
        group = notice.group
        key = group.broker_name, notice.address
        if self._newest.get(key) != group.master_epoch:
            return
        try:
            self._client.invoke_oneway(notice.address, notice_command(group), _TIMEOUT_MS)
        except RemotingError as error:
            log.warning("%s: could not be notified of the new master: %s", notice.address, error)
        finally:
            if self._newest.get(key) == group.master_epoch:
                del self._newest[key]
