"""Creates ssl contexts from a TlsConfig, and checks its files.

Runs at a program's start (to abort it on errors), and on the threads that reload changed files.
Knows no socket. Host names are not checked, as in RocketMQ: only the signing authority matters.
(Java: TlsHelper.)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from remoting.tls_config import ClientAuth, TlsConfig, TlsMode

if TYPE_CHECKING:
    import ssl

_TEST_MODE: Final = "set tls.test.mode.enable=true to work without files"


class TlsSettingError(Exception):
    """A TLS setting is unusable: the text names the key, the file and the fix."""


class TlsPairError(TlsSettingError):
    """Certificate and key are valid but do not match: perhaps only one was replaced so far."""


def check_tls(config: TlsConfig, *, use_tls: bool) -> tuple[str, ...]:
    """Check the settings for servers and, with `use_tls`, clients; returns warnings. Raises
    TlsSettingError."""
    serves = config.mode is not TlsMode.disabled
    if serves and (config.chooses() or not config.tls_test_mode_enable):
        context = make_server_context(config)
        if config.tls_test_mode_enable and config.tls_ciphers:
            from remoting.tls_keys import load_self_signed

            load_self_signed(context)
            _check_served(context, config)
    if use_tls:
        make_client_context(config)
    if not config.chooses() or not (serves or use_tls):
        return config.warnings()
    from remoting.tls_choice import choice_warnings

    found = choice_warnings(_unrestricted_context(server_side=True), config)
    return (*config.warnings(), *found)


def make_server_context(config: TlsConfig) -> ssl.SSLContext:
    """Create the context of a server; in test mode it has no certificate yet.

    Raises TlsSettingError.
    """
    context = _new_context(config, server_side=True)
    context.num_tickets = 0  # Java's clients do not resume sessions
    if config.tls_test_mode_enable:
        return context
    certificate, key = config.tls_server_cert_path, config.tls_server_key_path
    if not certificate or not key:
        missing = "tls.server.keyPath" if certificate else "tls.server.certPath"
        raise TlsSettingError(
            f"tls.test.mode.enable is false and {missing} is not set: set it to a PEM file, "
            f"{_TEST_MODE}, or set tls.server.mode=disabled"
        )
    _load_chain(context, "server", certificate, key, config.tls_server_key_password)
    _ask_clients(context, config)
    if config.tls_ciphers:
        _check_served(context, config)
    return context


def make_client_context(config: TlsConfig) -> ssl.SSLContext:
    """Create the context of a client. Raises TlsSettingError."""
    import ssl

    context = _new_context(config, server_side=False)
    if config.tls_test_mode_enable:
        return context
    certificate, key = config.tls_client_cert_path, config.tls_client_key_path
    if certificate and key:
        _load_chain(context, "client", certificate, key, config.tls_client_key_password)
    elif certificate or key:
        given, missing = ("certPath", "keyPath") if certificate else ("keyPath", "certPath")
        raise TlsSettingError(
            f"tls.client.{given} is set but tls.client.{missing} is not: a certificate needs its "
            "key; set both or neither"
        )
    if config.tls_client_auth_server:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_trust(context, "client", config.tls_client_trust_cert_path)
    return context


def _new_context(config: TlsConfig, *, server_side: bool) -> ssl.SSLContext:
    context = _unrestricted_context(server_side=server_side)
    if config.chooses():
        from remoting.tls_choice import restrict

        try:
            restrict(context, config)
        except ValueError as error:
            raise TlsSettingError(str(error)) from error
    return context


def _check_served(context: ssl.SSLContext, config: TlsConfig) -> None:
    """Or every connection would be refused, with a line in the log."""
    from remoting.tls_choice import check_served

    try:
        check_served(context, _new_context(config, server_side=False), config)
    except ValueError as error:
        raise TlsSettingError(str(error)) from error


def _unrestricted_context(*, server_side: bool) -> ssl.SSLContext:
    """Where `ssl` is loaded: a process that never speaks TLS is 0.6 MiB smaller without."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _ask_clients(context: ssl.SSLContext, config: TlsConfig) -> None:
    """Configure client authentication.

    Without authClient RocketMQ accepts any certificate. ssl cannot do that: `optional` is then the
    same as none, and `require` verifies, which needs trusted authorities.
    """
    try:
        wanted = config.client_auth
    except ValueError as error:
        raise TlsSettingError(str(error)) from error
    trusted = config.tls_server_trust_cert_path
    if wanted is ClientAuth.none:
        return
    if not config.tls_server_auth_client:
        if wanted is ClientAuth.optional:
            return
        if not trusted:
            raise TlsSettingError(
                "tls.server.need.client.auth = require with tls.server.authClient = false would "
                "accept any certificate: set tls.server.trustCertPath to a PEM file with the "
                "authorities of the clients, or tls.server.need.client.auth=none"
            )
    import ssl

    is_required = wanted is ClientAuth.require
    context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    _load_trust(context, "server", trusted)


def _load_chain(
    context: ssl.SSLContext, side: str, certificate: str, key: str, password: str | None
) -> None:
    cert_name, key_name = f"tls.{side}.certPath", f"tls.{side}.keyPath"
    _check_pem(cert_name, certificate, "CERTIFICATE")
    text = _check_pem(key_name, key, "PRIVATE KEY")
    try:
        if "ENCRYPTED" in text:
            _load_encrypted(context, side, certificate, key, text, password)
        else:
            context.load_cert_chain(certificate, key)
    except OSError as error:  # includes ssl.SSLError
        reason = getattr(error, "reason", None) or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            raise TlsPairError(
                f"{key_name} = {key} is not the key of {cert_name} = {certificate}: both must come "
                "from the same request"
            ) from error
        raise TlsSettingError(
            f"{cert_name} = {certificate} and {key_name} = {key} cannot be used: {reason}"
        ) from error


def _load_encrypted(
    context: ssl.SSLContext,
    side: str,
    certificate: str,
    key: str,
    text: str,
    password: str | None,
) -> None:
    """Load an encrypted key; its slow imports are only needed here. Raises OSError."""
    key_name, password_name = f"tls.{side}.keyPath", f"tls.{side}.keyPassword"
    if not password:
        raise TlsSettingError(
            f"{key_name} = {key}: the key is encrypted: set {password_name}, or store it without"
        )
    from remoting.tls_keys import load_encrypted

    try:
        load_encrypted(context, certificate, text.encode("latin-1"), password)
    except ValueError as error:
        raise TlsSettingError(
            f"{key_name} = {key} cannot be decrypted: {error}; is {password_name} its password?"
        ) from error


def _load_trust(context: ssl.SSLContext, side: str, path: str | None) -> None:
    """The authorities of the peers of this side; without a path the machine's."""
    import ssl

    if not path:
        is_client = side == "client"
        context.load_default_certs(
            ssl.Purpose.SERVER_AUTH if is_client else ssl.Purpose.CLIENT_AUTH
        )
        return
    name = f"tls.{side}.trustCertPath"
    _check_pem(name, path, "CERTIFICATE")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise TlsSettingError(
            f"{name} = {path} cannot be used: {error.reason or error}; it must hold the "
            "certificates of the authorities in PEM form"
        ) from error


def _check_pem(name: str, path: str, kind: str) -> str:
    """Read a PEM file that contains an item of this kind. Raises TlsSettingError."""
    try:
        text = Path(path).read_text(encoding="latin-1")
    except OSError as error:
        raise TlsSettingError(
            f"{name} = {path} cannot be read: {error.strerror or error}; set {name} to a file that "
            "this user may read"
        ) from error
    if f"{kind}-----" not in text:
        raise TlsSettingError(
            f"{name} = {path} is not a PEM file with a {kind.lower()}: expected a line "
            f"-----BEGIN {kind}-----"
        )
    return text
