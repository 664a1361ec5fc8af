"""AuthConfig: the settings of access control as RocketMQ 5 has it, with its names and defaults.

Plain data, read in process `remoting`; what a value must look like is checked before the broker
starts (`problems_of`). Kin: org.apache.rocketmq.auth.config.AuthConfig. Two of the keys are
secrets: they reach the processes, but are never shown (StartupOptions.settings).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from conf.config_fields import setting
from remoting.remoting_serializable import JsonError, loads_lenient

SECRET_KEYS: Final = frozenset({"initAuthenticationUser", "innerClientAuthenticationCredentials"})

_AUTHENTICATION: Final = "org.apache.rocketmq.auth.authentication."
_AUTHORIZATION: Final = "org.apache.rocketmq.auth.authorization."


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """The keys of AuthConfig that this broker honours (docs/users_and_acls.md)."""

    # fmt: off
    authentication_enabled: bool = setting(False,
        "require signatures of users (access control of 5.x)", important=True)
    authentication_provider: str = setting("", "DefaultAuthenticationProvider, or empty for it")
    authentication_metadata_provider: str = setting("",
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider: "
        "keep users in config/users.json; empty: there are no users")
    authentication_strategy: str = setting("",
        "StatelessAuthenticationStrategy or StatefulAuthenticationStrategy; every request is "
        "checked with either")
    authentication_whitelist: str = setting("",
        "request codes that need no signature, separated by commas")
    init_authentication_user: str = setting("",
        'SUPER user to create at the start: {"username":"…","password":"…"}; never shown')
    inner_client_authentication_credentials: str = setting("",
        "account of this broker at name servers and other brokers, instead of conf/tools.yml, and "
        'SUPER user to create at the start: {"accessKey":"…","secretKey":"…"}; never shown')
    authorization_enabled: bool = setting(False,
        "let users do what their ACLs allow (access control of 5.x)", important=True)
    authorization_provider: str = setting("", "DefaultAuthorizationProvider, or empty for it")
    authorization_metadata_provider: str = setting("",
        "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider: keep "
        "ACLs in config/acls.json; empty: there are none")
    authorization_strategy: str = setting("",
        "StatelessAuthorizationStrategy or StatefulAuthorizationStrategy; every request is checked "
        "with either")
    authorization_whitelist: str = setting("",
        "request codes that need no right, separated by commas")
    migrate_auth_from_v1_enabled: bool = setting(False,
        "at the start, make users and ACLs of the accounts in plain_acl.yml that are no users yet")
    # fmt: on

    @property
    def keeps_users(self) -> bool:
        """Whether there is a table of users."""
        return bool(self.authentication_metadata_provider.strip())

    @property
    def keeps_acls(self) -> bool:
        """Whether there is a table of ACLs."""
        return bool(self.authorization_metadata_provider.strip())

    @property
    def is_on(self) -> bool:
        """Whether requests are checked."""
        return self.authentication_enabled or self.authorization_enabled

    def init_user(self) -> tuple[str, str] | None:
        """Name and password of initAuthenticationUser. Raises ValueError without either."""
        return _pair(self.init_authentication_user, "username", "password")

    def inner_credentials(self) -> tuple[str, str] | None:
        """Access key and secret key of innerClientAuthenticationCredentials. Raises ValueError."""
        return _pair(self.inner_client_authentication_credentials, "accessKey", "secretKey")

    def whitelist(self, text: str) -> frozenset[int]:
        """The codes of one of the whitelists. Raises ValueError for what is no number."""
        return frozenset(int(word) for word in text.split(",") if word.strip())

    def problems_of(self, *, acl_enable: bool) -> list[tuple[str, str]]:
        """Key and reason of each setting with which the broker must not start."""
        return [*self._contradictions(acl_enable), *self._bad_values()]

    def _contradictions(self, acl_enable: bool) -> list[tuple[str, str]]:
        found = []
        users_key, acls_key = "authenticationMetadataProvider", "authorizationMetadataProvider"
        for key, is_on in (
            ("authenticationEnabled", self.authentication_enabled),
            ("authorizationEnabled", self.authorization_enabled),
        ):
            if is_on and acl_enable:
                found.append((key, "aclEnable=true: there can be one access control only"))
            if is_on and not self.keeps_users:
                found.append((key, f"needs {users_key}={_CLASSES[users_key][0]}"))
        if self.authorization_enabled and not self.keeps_acls:
            found.append(("authorizationEnabled", f"needs {acls_key}={_CLASSES[acls_key][0]}"))
        if self.keeps_acls and not self.keeps_users:
            found.append((acls_key, f"needs {users_key}={_CLASSES[users_key][0]}"))
        if self.init_authentication_user.strip() and not self.keeps_users:
            found.append(("initAuthenticationUser", f"needs {users_key}"))
        if self.migrate_auth_from_v1_enabled and not (self.keeps_users and self.keeps_acls):
            found.append(("migrateAuthFromV1Enabled", f"needs {users_key} and {acls_key}"))
        return found

    def _bad_values(self) -> list[tuple[str, str]]:
        found = []
        for key, text in self._class_names().items():
            if text.strip() and text.strip() not in _CLASSES[key]:
                found.append((key, f"{text}: only {' and '.join(_CLASSES[key])} is available"))
        for key, whitelist in (
            ("authenticationWhitelist", self.authentication_whitelist),
            ("authorizationWhitelist", self.authorization_whitelist),
        ):
            try:
                self.whitelist(whitelist)
            except ValueError:
                found.append((key, f"{whitelist}: expected request codes, separated by commas"))
        for key, read in (
            ("initAuthenticationUser", self.init_user),
            ("innerClientAuthenticationCredentials", self.inner_credentials),
        ):
            try:
                read()
            except ValueError as error:
                found.append((key, str(error)))
        return found

    def _class_names(self) -> dict[str, str]:
        return {
            "authenticationProvider": self.authentication_provider,
            "authenticationMetadataProvider": self.authentication_metadata_provider,
            "authenticationStrategy": self.authentication_strategy,
            "authorizationProvider": self.authorization_provider,
            "authorizationMetadataProvider": self.authorization_metadata_provider,
            "authorizationStrategy": self.authorization_strategy,
        }


_CLASSES: Final[dict[str, tuple[str, ...]]] = {
    "authenticationProvider": (_AUTHENTICATION + "provider.DefaultAuthenticationProvider",),
    "authenticationMetadataProvider": (
        _AUTHENTICATION + "provider.LocalAuthenticationMetadataProvider",
    ),
    "authenticationStrategy": (
        _AUTHENTICATION + "strategy.StatelessAuthenticationStrategy",
        _AUTHENTICATION + "strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationProvider": (_AUTHORIZATION + "provider.DefaultAuthorizationProvider",),
    "authorizationMetadataProvider": (
        _AUTHORIZATION + "provider.LocalAuthorizationMetadataProvider",
    ),
    "authorizationStrategy": (
        _AUTHORIZATION + "strategy.StatelessAuthorizationStrategy",
        _AUTHORIZATION + "strategy.StatefulAuthorizationStrategy",
    ),
}
"""The classes of RocketMQ whose work is done here, by key."""


def _pair(text: str, *names: str) -> tuple[str, str] | None:
    """Two members of a JSON object, neither blank. The text is a secret: no error quotes it."""
    if not text.strip():
        return None
    shown = ",".join(f'"{name}":"…"' for name in names)
    expected = f"expected the JSON object {{{shown}}}"
    try:
        value: Any = loads_lenient(text)
    except JsonError as error:
        raise ValueError(expected) from error
    if not isinstance(value, dict):
        raise ValueError(expected)
    first, second = (value.get(name) for name in names)
    if not isinstance(first, str) or not isinstance(second, str):
        raise ValueError(expected)
    if not first.strip() or not second.strip():
        raise ValueError(expected)
    return first, second
