"""TlsConfig: the TLS settings of servers and clients, with RocketMQ's names and defaults.

In RocketMQ these are system properties (TlsSystemConfig); here a settings file may hold them, too.
Filled by `conf.config_loader` at a process's start, frozen afterwards. Opens no file and creates no
context (remoting/tls_context.py does), so that a process without TLS does not pay for its import.

Tested by tests/remoting/test_tls_context.py.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conf.config_fields import setting

DEFAULT_TLS_CONFIG_FILE: Final = "/etc/rocketmq/tls.properties"
CHUNK_SIZE: Final = 64 << 10
"""Bytes that one call encrypts at most: four full records, so that a large response needs few
calls. Limits the size of a copy; a busy connection keeps buffers of about this size in each
direction."""


SPOKEN: Final = ("TLSv1.2", "TLSv1.3")
"""The protocols that tls.protocols may leave in."""
KNOWN_PROTOCOLS: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1", *SPOKEN)
"""As Java calls them."""


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

    # fmt: off
    tls_server_mode: str = setting("permissive",
        "disabled, permissive or enforcing; others mean permissive", key="tls.server.mode")
    tls_config_file: str = setting(DEFAULT_TLS_CONFIG_FILE,
        "properties file with the keys below; takes precedence", key="tls.config.file")
    tls_test_mode_enable: bool = setting(True,
        "no files: servers make a certificate, clients trust anyone", key="tls.test.mode.enable")
    tls_server_need_client_auth: str = setting("none",
        "client certificates: none, optional or require", key="tls.server.need.client.auth")
    tls_server_key_path: str | None = setting(None,
        "PEM file: the server's private key", key="tls.server.keyPath")
    tls_server_key_password: str | None = setting(None,
        "password of the server's private key", key="tls.server.keyPassword")
    tls_server_cert_path: str | None = setting(None,
        "PEM file: the server's certificate chain", key="tls.server.certPath")
    tls_server_auth_client: bool = setting(False,
        "verify the certificate that a client presents", key="tls.server.authClient")
    tls_server_trust_cert_path: str | None = setting(None,
        "PEM file: authorities of clients; unset: the system's", key="tls.server.trustCertPath")
    tls_client_key_path: str | None = setting(None,
        "PEM file: the client's private key", key="tls.client.keyPath")
    tls_client_key_password: str | None = setting(None,
        "password of the client's private key", key="tls.client.keyPassword")
    tls_client_cert_path: str | None = setting(None,
        "PEM file: the client's certificate chain", key="tls.client.certPath")
    tls_client_auth_server: bool = setting(False,
        "verify the server's certificate (not its host name)", key="tls.client.authServer")
    tls_client_trust_cert_path: str | None = setting(None,
        "PEM file: authorities of servers; unset: the system's", key="tls.client.trustCertPath")
    tls_protocols: str | None = setting(None,
        "of TLSv1.2 and TLSv1.3, with commas; unset: both", key="tls.protocols")
    tls_ciphers: str | None = setting(None,
        "cipher suites, with commas; unset: OpenSSL's default", key="tls.ciphers")
    # fmt: on

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
        unspoken = [word for word in words_of(self.tls_protocols) if word in KNOWN_PROTOCOLS[:-2]]
        if unspoken:
            found.append(
                f"tls.protocols = {self.tls_protocols}: {', '.join(unspoken)} not spoken here, "
                f"only {' and '.join(SPOKEN)}"
            )
        return tuple(found)

    def chooses(self) -> bool:
        """Whether protocols or cipher suites are chosen."""
        return bool(words_of(self.tls_protocols) or words_of(self.tls_ciphers))

    def private_keys(self) -> tuple[Path, ...]:
        """The files of the keys that are used."""
        if self.tls_test_mode_enable:
            return ()
        return tuple(
            Path(path) for path in (self.tls_server_key_path, self.tls_client_key_path) if path
        )

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


def words_of(value: str | None) -> list[str]:
    """The words of a list with commas, each once."""
    words = (word.strip() for word in (value or "").split(","))
    return list(dict.fromkeys(word for word in words if word))
