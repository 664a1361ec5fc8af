"""Which protocols and cipher suites of TLS a context speaks: tls.protocols and tls.ciphers.

Used by remoting/tls_context.py for every context that it makes, of servers and clients. Suites are
named as in Java, or as in OpenSSL. Python (before 3.15) cannot choose among the suites of TLS 1.3:
naming none of them leaves TLS 1.3 out, naming one leaves all of them in, of which `choose` tells.
Knows no file, no certificate and no socket.

Tested by tests/remoting/test_tls_choice.py.
"""

from __future__ import annotations

import difflib
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remoting.tls_config import KNOWN_PROTOCOLS, SPOKEN, TlsConfig, words_of

if TYPE_CHECKING:
    import ssl

_ANY_SUITES: Final = "ALL:!aNULL:!eNULL:!PSK:!SRP"
"""Those with encryption and with certificates: others cannot be chosen."""
_BLOCK_CIPHERS: Final = re.compile(r"(AES|ARIA|CAMELLIA)_(\d+)_")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsChoice:
    """What a context is to speak."""

    protocols: tuple[str, ...]
    """Of SPOKEN."""
    ciphers: tuple[str, ...]
    """OpenSSL's names of the suites of TLS 1.2; empty: those of the default."""
    beyond: tuple[str, ...]
    """Suites of TLS 1.3 that were not named, and are offered nevertheless."""


def restrict(context: ssl.SSLContext, config: TlsConfig) -> None:
    """Apply the settings to a new context. Raises ValueError: the text names the setting, the value
    and the way out."""
    chosen = choose(context, config)
    if chosen is None:
        return
    if chosen.ciphers:
        context.set_ciphers(":".join(chosen.ciphers))
    if len(chosen.protocols) == 1:
        import ssl

        only = ssl.TLSVersion[chosen.protocols[0].replace(".", "_")]
        context.minimum_version = context.maximum_version = only


def choose(context: ssl.SSLContext, config: TlsConfig) -> TlsChoice | None:
    """What the settings say, for a context that was not restricted yet; None: nothing. Raises
    ValueError."""
    protocols, names = words_of(config.tls_protocols), words_of(config.tls_ciphers)
    if not protocols and not names:
        return None
    spoken = _spoken(config.tls_protocols, protocols)
    if not names:
        return TlsChoice(protocols=spoken, ciphers=(), beyond=())
    newest = [suite["name"] for suite in context.get_ciphers() if suite["protocol"] == "TLSv1.3"]
    of_13 = [name for name in names if name in newest]
    of_12 = _openssl_names(config.tls_ciphers, [name for name in names if name not in newest])
    has_suites = {"TLSv1.2": bool(of_12), "TLSv1.3": bool(of_13)}
    left = tuple(protocol for protocol in spoken if has_suites[protocol])
    if not left:
        raise ValueError(
            f"tls.ciphers = {config.tls_ciphers}: none of them belongs to tls.protocols = "
            f"{config.tls_protocols}; name a suite of that protocol, or remove one of the keys"
        )
    beyond = [name for name in newest if name not in of_13] if "TLSv1.3" in left else []
    return TlsChoice(protocols=left, ciphers=tuple(of_12), beyond=tuple(beyond))


def check_served(server: ssl.SSLContext, client: ssl.SSLContext, config: TlsConfig) -> None:
    """Whether a server with its certificate can speak with a client, both restricted. Raises
    ValueError."""
    import ssl

    told, answered = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(ssl.MemoryBIO(), told)
    far = server.wrap_bio(told, answered, server_side=True)
    for side in (near, far):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            raise ValueError(
                f"tls.ciphers = {config.tls_ciphers}: a server cannot use any of them with its "
                f"certificate ({error.reason}): suites of RSA need an RSA key, of ECDSA one with "
                "an elliptic curve, and those that begin with DHE are for our own calls only; name "
                "one that fits, or remove the key"
            ) from error


def choice_warnings(context: ssl.SSLContext, config: TlsConfig) -> tuple[str, ...]:
    """What of the settings cannot be had, for a context that was not restricted yet. Raises
    ValueError."""
    chosen = choose(context, config)
    if chosen is None or not chosen.beyond:
        return ()
    return (
        f"tls.ciphers = {config.tls_ciphers}: Python {platform.python_version()} cannot choose "
        f"among the suites of TLS 1.3: {', '.join(chosen.beyond)} may be used, too; to prevent "
        "that, set tls.protocols=TLSv1.2, or Ciphersuites in OpenSSL's own settings (openssl.cnf)",
    )


def openssl_name(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2 that has Java's (TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:
    ECDHE-RSA-AES128-GCM-SHA256); any other word as it is."""
    exchange, found, cipher = name.partition("_WITH_")
    if not found or not exchange.startswith(("TLS_", "SSL_")):
        return name
    cipher = _BLOCK_CIPHERS.sub(r"\1\2_", cipher).replace("_CBC_", "_").replace("CCM_8", "CCM8")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    parts = [part for part in exchange.split("_")[1:] if exchange[4:] != "RSA"]
    return "-".join([*parts, *cipher.split("_")])


def _spoken(value: str | None, words: Sequence[str]) -> tuple[str, ...]:
    unknown = [word for word in words if word not in KNOWN_PROTOCOLS]
    if unknown:
        raise ValueError(
            f"tls.protocols = {value}: unknown protocol {unknown[0]!r}: name one or both of "
            f"{', '.join(SPOKEN)}, or remove the key"
        )
    left = tuple(protocol for protocol in SPOKEN if not words or protocol in words)
    if not left:
        raise ValueError(
            f"tls.protocols = {value}: none of them is spoken here: name one or both of "
            f"{', '.join(SPOKEN)}, or remove the key"
        )
    return left


def _openssl_names(value: str | None, names: Sequence[str]) -> list[str]:
    import ssl

    scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    scratch.set_ciphers(_ANY_SUITES)
    known = [suite["name"] for suite in scratch.get_ciphers() if suite["protocol"] != "TLSv1.3"]
    found = {}
    for name in names:
        ours = openssl_name(name)
        if ours not in known:
            close = difflib.get_close_matches(ours, known, 1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise ValueError(
                f"tls.ciphers = {value}: {ssl.OPENSSL_VERSION} has no cipher suite {name!r} with "
                f"certificates and encryption{hint}; names are Java's or OpenSSL's, separated by "
                "commas (openssl ciphers -stdname shows both); remove it, or the key"
            )
        found[ours] = name
    return list(found)
