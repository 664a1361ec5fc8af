"""TlsConfig: the TLS settings of servers and clients, with RocketMQ's names and defaults.

In RocketMQ these are system properties (TlsSystemConfig); here a settings file may hold them, too.
Filled by `conf.config_loader` at a process's start, frozen afterwards. Opens no file and creates no
context (remoting/tls_context.py), so that processes without TLS do not pay for the import.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

DEFAULT_TLS_CONFIG_FILE: Final = "/etc/rocketmq/tls.properties"


class TlsMode(enum.StrEnum):
    """A server's TLS mode; the first byte of a connection shows whether the client uses TLS."""

    disabled = "disabled"
    """TLS connections are closed."""
    permissive = "permissive"
    """Both kinds of connections are served."""
    enforcing = "enforcing"
    """Plain connections are closed."""


class ClientAuth(enum.StrEnum):
    """Whether a server requests client certificates."""

    none = "none"
    optional = "optional"
    require = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """All TLS keys except useTLS (tls.enable), which is in RemotingClientConfig."""

    tls_server_mode: str = field(
        default="permissive",
        metadata={
            "key": "tls.server.mode",
            "doc": "disabled, permissive or enforcing; any other value means permissive",
        },
    )
    tls_config_file: str = field(
        default=DEFAULT_TLS_CONFIG_FILE,
        metadata={
            "key": "tls.config.file",
            "doc": "properties file with the keys below, which override other sources",
        },
    )
    tls_test_mode_enable: bool = field(
        default=True,
        metadata={
            "key": "tls.test.mode.enable",
            "doc": "no files: servers use a self-signed certificate, clients trust any",
        },
    )
    tls_server_need_client_auth: str = field(
        default="none",
        metadata={
            "key": "tls.server.need.client.auth",
            "doc": "whether clients present a certificate: none, optional or require",
        },
    )
    tls_server_key_path: str | None = field(
        default=None,
        metadata={"key": "tls.server.keyPath", "doc": "PEM file: the servers' private key"},
    )
    tls_server_key_password: str | None = field(
        default=None,
        metadata={"key": "tls.server.keyPassword", "doc": "password of that key"},
    )
    tls_server_cert_path: str | None = field(
        default=None,
        metadata={"key": "tls.server.certPath", "doc": "PEM file: the servers' certificate chain"},
    )
    tls_server_auth_client: bool = field(
        default=False,
        metadata={
            "key": "tls.server.authClient",
            "doc": "whether client certificates are verified",
        },
    )
    tls_server_trust_cert_path: str | None = field(
        default=None,
        metadata={
            "key": "tls.server.trustCertPath",
            "doc": "PEM file: CAs of the clients' certificates; unset: the system's CAs",
        },
    )
    tls_client_key_path: str | None = field(
        default=None,
        metadata={"key": "tls.client.keyPath", "doc": "PEM file: the client's private key"},
    )
    tls_client_key_password: str | None = field(
        default=None,
        metadata={"key": "tls.client.keyPassword", "doc": "password of that key"},
    )
    tls_client_cert_path: str | None = field(
        default=None,
        metadata={"key": "tls.client.certPath", "doc": "PEM file: the client's certificate chain"},
    )
    tls_client_auth_server: bool = field(
        default=False,
        metadata={
            "key": "tls.client.authServer",
            "doc": "whether the server's certificate is verified (its name is not)",
        },
    )
    tls_client_trust_cert_path: str | None = field(
        default=None,
        metadata={
            "key": "tls.client.trustCertPath",
            "doc": "PEM file: CAs of the servers' certificates; unset: the system's CAs",
        },
    )

    @property
    def mode(self) -> TlsMode:
        """The servers' mode; permissive for an unknown value (reported by `warnings`)."""
        word = self.tls_server_mode
        return TlsMode(word) if word in TlsMode.__members__ else TlsMode.permissive

    @property
    def client_auth(self) -> ClientAuth:
        """Whether clients present a certificate; case-insensitive. Raises ValueError."""
        word = self.tls_server_need_client_auth.strip().lower()
        if word not in ClientAuth.__members__ and word:
            raise ValueError(
                f"tls.server.need.client.auth = {self.tls_server_need_client_auth}: expected one "
                f"of {', '.join(ClientAuth)}"
            )
        return ClientAuth(word or "none")

    def warnings(self) -> tuple[str, ...]:
        """Settings that are valid, but possibly not intended."""
        found = []
        if self.tls_server_mode not in TlsMode.__members__:
            found.append(
                f"tls.server.mode = {self.tls_server_mode} is not one of {', '.join(TlsMode)}: "
                "using permissive"
            )
        if self.tls_test_mode_enable and self._names_files():
            found.append(
                "tls.test.mode.enable is true: the key and certificate files of the TLS settings "
                "have no effect; set tls.test.mode.enable=false to use them"
            )
        if self._verifies_nobody():
            found.append(
                "tls.server.need.client.auth = require with tls.server.authClient = false: "
                "client certificates are verified nevertheless, with tls.server.trustCertPath "
                "(RocketMQ would accept any certificate)"
            )
        return tuple(found)

    def _names_files(self) -> bool:
        paths = (
            self.tls_server_key_path,
            self.tls_server_cert_path,
            self.tls_server_trust_cert_path,
            self.tls_client_key_path,
            self.tls_client_cert_path,
            self.tls_client_trust_cert_path,
        )
        return any(paths)

    def _verifies_nobody(self) -> bool:
        return (
            not self.tls_test_mode_enable
            and self.mode is not TlsMode.disabled
            and self.tls_server_need_client_auth.strip().lower() == ClientAuth.require
            and not self.tls_server_auth_client
        )
