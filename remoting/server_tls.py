"""ServerTls: the TLS of one server: mode, context, and reloading when files change.

The loop's thread makes decisions and uses the context. Separate threads read files and create the
certificate of test mode, so that connections do not wait for them. New connections get the new
context; existing ones keep theirs. Knows settings and contexts, but no frames. (Java:
loadSslContext of NettyRemotingServer, and its callers in BrokerController and NamesrvController.)
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from remoting.file_watch_service import INTERVAL_S, FileWatchService
from remoting.selector_loop import SelectorLoop
from remoting.tls_config import CHUNK_SIZE, ClientAuth, TlsConfig, TlsMode
from remoting.tls_connection import HANDSHAKE_BYTE, TlsConnection
from remoting.tls_context import TlsPairError, TlsSettingError, make_server_context

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

_WARN_EVERY_MS: Final = 10_000

Then = Callable[["ssl.SSLContext | None"], None]


class ServerTls:
    """What decides about all connections of one server. Owned by: the loop's thread."""

    def __init__(self, config: TlsConfig, *, watch_interval_s: float = INTERVAL_S) -> None:
        """Invalid files are logged as an error: TLS connections are rejected until the files are
        fixed."""
        self.receive = memoryview(bytearray(CHUNK_SIZE))
        self._config = config
        self._mode = config.mode
        self._loop: SelectorLoop | None = None
        self._context: ssl.SSLContext | None = None
        self._waiting: list[Then] = []
        self._warned_ms = -_WARN_EVERY_MS
        self._unwarned = 0
        self._changed: frozenset[str] = frozenset()
        """Files that changed since the last context. Owned by: the watching thread."""
        self._watch: FileWatchService | None = None
        if self._mode is not TlsMode.disabled and not config.tls_test_mode_enable:
            # Watch first, so that a change during the creation of the context is detected.
            self._watch = FileWatchService(
                _files(config), self._on_changed, interval_s=watch_interval_s
            )
            self._context = self._load()

    @property
    def demands_certificates(self) -> bool:
        """Whether every peer that is served has shown a client certificate that was verified."""
        return (
            self._mode is TlsMode.enforcing
            and not self._config.tls_test_mode_enable
            and self._config.client_auth is ClientAuth.require
        )

    # -- life ----------------------------------------------------------------------------------

    def start(self, loop: SelectorLoop) -> None:
        """Start for the connections of this loop; call before the first of them."""
        self._loop = loop
        log.info("TLS %s: %s", self._mode, _describe(self._config, self._mode))
        if self._watch is not None:
            self._watch.start()

    def shutdown(self) -> None:
        """Stop watching files. Idempotent."""
        if self._watch is not None:
            self._watch.shutdown()

    def connection(self, *arguments: Any, **settings: Any) -> TlsConnection:
        """A connection of this server, with the arguments of Connection."""
        return TlsConnection(*arguments, **settings, policy=self)

    # -- for connections (loop thread) ---------------------------------------------------------

    def why_closed(self, first_byte: bytes) -> str | None:
        """Why a peer whose first byte is this is rejected; None if it is accepted."""
        if first_byte == HANDSHAKE_BYTE:
            is_disabled = self._mode is TlsMode.disabled
            return "the client uses TLS, but tls.server.mode is disabled" if is_disabled else None
        if self._mode is TlsMode.enforcing:
            return "the client does not use TLS, but tls.server.mode is enforcing"
        return None

    def with_context(self, then: Then) -> None:
        """Call `then` with the context; in test mode the first call waits for its creation."""
        if self._context is not None or not self._config.tls_test_mode_enable:
            then(self._context)
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            maker = threading.Thread(
                target=self._make_self_signed, name="TlsSelfSigned", daemon=True
            )
            maker.start()

    def refused(self, address: str, reason: str) -> None:
        """Log one warning every ten seconds, with the number of suppressed ones."""
        assert self._loop is not None
        now_ms = self._loop.now_ms
        if now_ms - self._warned_ms < _WARN_EVERY_MS:
            self._unwarned += 1
            return
        more = f" (and {self._unwarned} more since the last such line)" if self._unwarned else ""
        log.warning("%s: rejected: %s%s", address, reason, more)
        self._warned_ms, self._unwarned = now_ms, 0

    # -- contexts ------------------------------------------------------------------------------

    def _use(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(context)

    def _hand_over(self, context: ssl.SSLContext | None) -> None:
        """Any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(lambda: self._use(context))

    def _make_self_signed(self) -> None:
        """Runs in a thread of its own: the imports take longer than a turn of the loop may."""
        from remoting.tls_keys import load_self_signed

        context = make_server_context(self._config)
        try:
            load_self_signed(context)
        except OSError as error:
            log.error("TLS: cannot create the certificate of test mode: %s", error)
            self._hand_over(None)
            return
        log.info("TLS: created a self-signed certificate, because tls.test.mode.enable is true")
        self._hand_over(context)

    def _load(self) -> ssl.SSLContext | None:
        try:
            return make_server_context(self._config)
        except TlsSettingError as error:
            log.error("TLS: rejecting TLS connections until the files are fixed: %s", error)
            return None

    def _on_changed(self, paths: frozenset[str]) -> None:
        """Runs on the watching thread. A certificate and its key do not change simultaneously:
        after half of a change it waits for the other file, and invalid files are retried with the
        next change."""
        self._changed |= paths
        names = ", ".join(sorted(self._changed))
        try:
            context = make_server_context(self._config)
        except TlsSettingError as error:
            pair = {self._config.tls_server_cert_path, self._config.tls_server_key_path}
            if isinstance(error, TlsPairError) and len(pair & self._changed) == 1:
                log.info("TLS: %s changed; waiting for the other file of the pair", names)
            else:
                log.error("TLS: %s changed, keeping the previous certificate: %s", names, error)
            return
        self._changed = frozenset()
        log.info("TLS: %s changed: new connections use the new files", names)
        self._hand_over(context)


def _files(config: TlsConfig) -> list[str]:
    paths = (
        config.tls_server_cert_path,
        config.tls_server_key_path,
        config.tls_server_trust_cert_path,
    )
    return [path for path in paths if path]


def _describe(config: TlsConfig, mode: TlsMode) -> str:
    if mode is TlsMode.disabled:
        return "connections that use it are closed"
    if config.tls_test_mode_enable:
        return (
            "test mode, with a self-signed certificate created for the first client that needs it"
        )
    return (
        f"certificate {config.tls_server_cert_path}, key {config.tls_server_key_path}, clients' "
        f"certificates: {config.tls_server_need_client_auth} (file {config.tls_config_file})"
    )
