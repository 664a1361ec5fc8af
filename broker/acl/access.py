"""Access: the access control of one broker, assembled for the composition root of `remoting`.

Provides the server's request guard, the account manager (None without ACL), and the credentials
that this broker presents to other brokers. It has no policy of its own.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from broker.acl.guarded_route import GuardedBinaryRoute, GuardedRoute
from broker.acl.plain_permission_manager import PlainPermissionManager
from broker.acl.request_guard import AuthChecks, RequestGuard
from broker.settings.broker_config import BrokerConfig
from conf.credentials import find_credentials
from conf.errors import ConfigError
from ipc.clock import Clock
from ipc.scheduled_executor import ScheduledExecutor
from remoting.address_patterns import parse_patterns
from remoting.operator_addresses import OperatorAddresses
from remoting.remoting_server import FastHandler
from remoting.signature import RequestSigner

log = logging.getLogger(__name__)


class Access:
    """See the module. Owned by: the main thread of process `remoting`."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        auth: AuthChecks | None = None,
        signer: RequestSigner | None = None,
    ) -> None:
        """`auth`: access control of 5.x, None if it is off. `signer`: instead of conf/tools.yml.

        Raises ConfigError for conf/tools.yml, ValueError for the two settings of addresses (all
        of them are checked by broker_startup)."""
        home = Path(config.rocketmq_home or ".")
        self.manager: Final = PlainPermissionManager(home, clock) if config.acl_enable else None
        self.gate: Final = RequestGuard(
            parse_patterns(config.admin_allowed_addresses),
            config.admin_allowed_addresses,
            self.manager,
            clock,
            acl_admins=OperatorAddresses(
                parse_patterns(config.acl_admin_allowed_addresses),
                config.acl_admin_allowed_addresses,
            ),
            auth=auth,
        )
        self.guards_fast_routes: Final = auth is not None or self.manager is not None
        """Whether every request is checked, so that none can be taken without that."""
        credentials = find_credentials(home / "conf")
        self.signer: Final = signer or (
            None
            if credentials is None
            else RequestSigner(credentials.access_key, credentials.secret_key)
        )

    def fast_routes(
        self, *routes: tuple[bytes, FastHandler]
    ) -> tuple[tuple[bytes, FastHandler], ...]:
        """The fast routes for the server. With access control each one is guarded; without it they
        are open to everyone."""
        if not self.guards_fast_routes:
            return routes
        return tuple(
            (prefix, GuardedRoute(prefix, handler, self.gate.check)) for prefix, handler in routes
        )

    def binary_routes(
        self, *routes: tuple[int, FastHandler]
    ) -> tuple[tuple[int, FastHandler], ...]:
        """Those for binary headers, by their codes."""
        if not self.guards_fast_routes:
            return routes
        return tuple(
            (code, GuardedBinaryRoute(code, handler, self.gate.check)) for code, handler in routes
        )

    def unchecked_routes(
        self, *routes: tuple[bytes, FastHandler]
    ) -> tuple[tuple[bytes, FastHandler], ...]:
        """Fast routes for what needs rights on a message that is named by its place, which they do
        not ask for: none with access control."""
        return () if self.guards_fast_routes else routes

    def open(self, executor: ScheduledExecutor) -> None:
        """Load the accounts and watch their files. Raises OSError.

        If a file became invalid after the broker started and this process is restarted, all
        requests are denied until the file is fixed; replication continues.
        """
        if self.manager is None:
            return
        try:
            self.manager.load()
        except ConfigError as error:
            log.error("%s; all requests are denied until this is fixed", error)
        self.manager.schedule_on(executor)
        if self.signer is None:
            log.info("conf/tools.yml not found: requests to other brokers are not signed")
