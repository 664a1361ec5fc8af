"""TlsConfig: the TLS settings of servers and clients, with the original's names and defaults.

In the original these are system properties (TlsSystemConfig); here a settings file may hold them,
too. Filled by `conf.config_loader` at a process's start, frozen afterwards. Opens no file and makes
no context (remoting/tls_context.py), so that whoever needs no TLS does not pay for its import.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

DEFAULT_TLS_CONFIG_FILE: Final = "/etc/rocketmq/tls.properties"


class TlsMode(enum.StrEnum):
    """What a server does with TLS; a connection's first byte says whether its peer wants it."""

    disabled = "disabled"
    """TLS: closed."""
    permissive = "permissive"
    """Both are served."""
    enforcing = "enforcing"
    """Plain: closed."""


class ClientAuth(enum.StrEnum):
    """Whether a server asks its clients for a certificate."""

    none = "none"
    optional = "optional"
    require = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """All keys of TLS but useTLS (tls.enable), which is RemotingClientConfig's."""

    tls_server_mode: str = field(
        default="permissive",
        metadata={
            "key": "tls.server.mode",
            "doc": "disabled, permissive or enforcing; any other word is permissive",
        },
    )
    tls_config_file: str = field(
        default=DEFAULT_TLS_CONFIG_FILE,
        metadata={
            "key": "tls.config.file",
            "doc": "properties file with the keys below, which win over other places",
        },
    )
    tls_test_mode_enable: bool = field(
        default=True,
        metadata={
            "key": "tls.test.mode.enable",
            "doc": "no files: servers make themselves a certificate, clients trust anybody",
        },
    )
    tls_server_need_client_auth: str = field(
        default="none",
        metadata={
            "key": "tls.server.need.client.auth",
            "doc": "whether clients show a certificate: none, optional or require",
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
            "doc": "whether a certificate that a client shows is verified",
        },
    )
    tls_server_trust_cert_path: str | None = field(
        default=None,
        metadata={
            "key": "tls.server.trustCertPath",
            "doc": "PEM file: who signs the clients' certificates; unset: the system's authorities",
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
            "doc": "PEM file: who signs the servers' certificates; unset: the system's authorities",
        },
    )

    @property
    def mode(self) -> TlsMode:
        """The servers' mode; permissive for a word that is none (`warnings` tells)."""
        word = self.tls_server_mode
        return TlsMode(word) if word in TlsMode.__members__ else TlsMode.permissive

    @property
    def client_auth(self) -> ClientAuth:
        """Whether clients show a certificate, in any case of letters. Raises ValueError."""
        word = self.tls_server_need_client_auth.strip().lower()
        if word not in ClientAuth.__members__ and word:
            raise ValueError(
                f"tls.server.need.client.auth = {self.tls_server_need_client_auth}: expected one "
                f"of {', '.join(ClientAuth)}"
            )
        return ClientAuth(word or "none")

    def warnings(self) -> tuple[str, ...]:
        """What works, but perhaps not as meant."""
        found = []
        if self.tls_server_mode not in TlsMode.__members__:
            found.append(
                f"tls.server.mode = {self.tls_server_mode} is none of {', '.join(TlsMode)}: "
                "permissive it is"
            )
        if self.tls_test_mode_enable and self._names_files():
            found.append(
                "tls.test.mode.enable is true: the key and certificate files of the TLS settings "
                "have no effect; set tls.test.mode.enable=false to use them"
            )
        if self._verifies_nobody():
            found.append(
                "tls.server.need.client.auth = require with tls.server.authClient = false: "
                "certificates of clients are verified all the same, with tls.server.trustCertPath "
                "(the original would take any certificate)"
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
