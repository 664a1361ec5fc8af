"""Access: access control of one broker, put together; for the composition root of `remoting`.

Gives the gate of the server, the manager of the accounts (None without ACL), and who we are for
other brokers. No policy of its own.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from broker.acl.guarded_route import GuardedRoute
from broker.acl.plain_permission_manager import PlainPermissionManager
from broker.acl.request_guard import RequestGuard
from broker.settings.broker_config import BrokerConfig
from conf.credentials import find_credentials
from conf.errors import ConfigError
from ipc.clock import Clock
from ipc.scheduled_executor import ScheduledExecutor
from remoting.address_patterns import parse_patterns
from remoting.remoting_server import FastHandler
from remoting.signature import RequestSigner

log = logging.getLogger(__name__)


class Access:
    """See the module. Owned by: the main thread of process `remoting`."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        """Raises ConfigError for conf/tools.yml, ValueError for adminAllowedAddresses (both are
        checked by broker_startup)."""
        home = Path(config.rocketmq_home or ".")
        self.manager: Final = PlainPermissionManager(home, clock) if config.acl_enable else None
        self.gate: Final = RequestGuard(
            parse_patterns(config.admin_allowed_addresses),
            config.admin_allowed_addresses,
            self.manager,
            clock,
        )
        credentials = find_credentials(home / "conf")
        self.signer: Final = (
            None
            if credentials is None
            else RequestSigner(credentials.access_key, credentials.secret_key)
        )

    def fast_routes(
        self, *routes: tuple[bytes, FastHandler]
    ) -> tuple[tuple[bytes, FastHandler], ...]:
        """Those that the server may have; with ACL each has the gate in front of it. Without, they
        are for everybody."""
        if self.manager is None:
            return routes
        return tuple(
            (prefix, GuardedRoute(prefix, handler, self.gate)) for prefix, handler in routes
        )

    def open(self, executor: ScheduledExecutor) -> None:
        """Read the accounts and follow their files. Raises OSError.

        A file that broke after the broker's start, when this process is started again, lets nobody
        in until it is mended: the broker goes on replicating.
        """
        if self.manager is None:
            return
        try:
            self.manager.load()
        except ConfigError as error:
            log.error("%s; nobody is let in until this is mended", error)
        self.manager.schedule_on(executor)
        if self.signer is None:
            log.info("conf/tools.yml is not there: requests to other brokers are not signed")
