"""MinBrokerIdNotifier: tells brokers that the smallest id of their group has changed (905).

Called by the threads that change the route tables (the write pool, the loop), which it never holds
up: it sends from a thread of its own, started by the first change. Over connections of its own to
the brokers' ports, without TLS, as RocketMQ's name server does. A broker that is not reached learns
it by its own polling (901). Follows RouteInfoManager.notifyMinBrokerIdChanged of 5.3.3.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from namesrv.registrations import MinBrokerIdChange
from remoting.command_custom_header import encode_header
from remoting.errors import RemotingError
from remoting.headers.broker import NotifyMinBrokerIdChangeRequestHeader
from remoting.remoting_client import RemotingClient
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig
from remoting.request_code import RequestCode

log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 300


class MinBrokerIdNotifier:
    """See the module. Client and pool are guarded by `_lock`."""

    def __init__(self, is_enabled: Callable[[], bool]) -> None:
        """is_enabled: notifyMinBrokerIdChanged, as it is now."""
        self._is_enabled = is_enabled
        self._lock = threading.Lock()
        self._client: RemotingClient | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._stopped = False

    def notify(self, change: MinBrokerIdChange) -> None:
        """Have 905 sent to whom it concerns."""
        if not self._is_enabled():
            return
        log.info(
            "broker %s: its smallest id is now %s, notifying %s",
            change.broker_name,
            change.min_broker_id,
            change.to_notify,
        )
        with self._lock:
            if self._stopped:
                return
            if self._client is None or self._pool is None:
                self._client = RemotingClient(RemotingClientConfig(), name="MinBrokerIdClient")
                self._client.start()
                self._pool = ThreadPoolExecutor(1, "MinBrokerIdNotifier")
            self._pool.submit(_send, self._client, change)

    def shutdown(self) -> None:
        """Close the connections; idempotent."""
        with self._lock:
            self._stopped = True
            client, pool = self._client, self._pool
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        if client is not None:
            client.shutdown()


def _send(client: RemotingClient, change: MinBrokerIdChange) -> None:
    ext_fields = encode_header(
        NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.min_broker_id,
            broker_name=change.broker_name,
            min_broker_addr=change.broker_addrs[change.min_broker_id],
            offline_broker_addr=change.offline_broker_addr,
            ha_broker_addr=change.ha_broker_addr,
        )
    )
    for address in change.to_notify:
        command = RemotingCommand.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext_fields)
        try:
            client.invoke_oneway(address, command, _TIMEOUT_MS)
        except RemotingError as error:
            log.warning("%s: could not be notified of the change: %s", address, error)
