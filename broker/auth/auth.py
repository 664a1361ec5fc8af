"""Auth: users and ACLs of one broker, assembled for the composition root of `remoting`.

Provides the checks for the request guard, the two tables for their processor (None where their
provider is not configured), and the account that this broker signs with. No policy of its own.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from broker.acl.acl_files import read_files
from broker.auth.auth_guard import AuthGuard
from broker.auth.auth_migrator import migrate
from broker.auth.authentication_metadata_manager import AuthenticationMetadataManager
from broker.auth.authorization_metadata_manager import AuthorizationMetadataManager
from broker.auth.user import User, UserType
from broker.json_config_manager import ConfigFileError
from broker.settings.startup_options import StartupOptions
from conf.errors import ConfigError
from remoting.errors import RequestError
from remoting.signature import RequestSigner

log = logging.getLogger(__name__)


class Auth:
    """See the module. Owned by: the main thread of process `remoting`."""

    def __init__(self, options: StartupOptions) -> None:
        """The settings were checked by broker_startup."""
        self._config = config = options.auth
        self._home = Path(options.broker.rocketmq_home or ".")
        directory = options.store.config_path
        self.users: Final = (
            AuthenticationMetadataManager(directory / "users.json") if config.keeps_users else None
        )
        self.acls: Final = (
            AuthorizationMetadataManager(directory / "acls.json", self.users)
            if config.keeps_acls and self.users is not None
            else None
        )
        self.guard: Final = self._new_guard(options) if config.is_on else None
        credentials = config.inner_credentials()
        self.signer: Final = None if credentials is None else RequestSigner(*credentials)

    def _new_guard(self, options: StartupOptions) -> AuthGuard:
        if self.users is None:
            # Never without checks what was meant to have some.
            raise ValueError("authenticationEnabled and authorizationEnabled need a table of users")
        return AuthGuard(self._config, options.broker.broker_cluster_name, self.users, self.acls)

    def load(self) -> None:
        """Read the tables, and create the users that the settings name. Raises ConfigFileError: a
        start again would not help."""
        for manager in (self.users, self.acls):
            if manager is not None:
                manager.load()
        try:
            self._create_first()
            self._migrate()
        except (RequestError, ConfigError) as error:
            raise ConfigFileError(str(error)) from error
        if self.guard is not None and self.users is not None and not self.users.list_users():
            log.warning(
                "users: there is none, so all requests are denied; set initAuthenticationUser "
                "(docs/users_and_acls.md)"
            )

    def _create_first(self) -> None:
        """initAuthenticationUser, and the account of innerClientAuthenticationCredentials."""
        if self.users is None:
            return
        for pair in (self._config.init_user(), self._config.inner_credentials()):
            if pair is None or self.users.find_user(pair[0]) is not None:
                continue
            name, password = pair
            self.users.create_user(User(username=name, password=password, user_type=UserType.SUPER))
            log.info("user %s: created as the settings say", name)

    def _migrate(self) -> None:
        if not self._config.migrate_auth_from_v1_enabled:
            return
        if self.users is not None and self.acls is not None:
            files = read_files(self._home / "conf")
            accounts = (account for file in files for account in file.values.accounts)
            migrate(accounts, self.users, self.acls)
