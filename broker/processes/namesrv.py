"""Composition root of process `namesrv`: the embedded name server.

Runs on the child's main thread: the same code as the stand-alone server (namesrv/), over the
listening socket that the supervisor keeps.
"""

from __future__ import annotations

from broker.processes.child import EXIT_CANNOT_BOOT, Child, run_child
from conf.config_loader import build
from ipc.control_page import ProcessIndex
from namesrv.kv_config_manager import KVConfigError
from namesrv.namesrv_config import NamesrvConfig
from namesrv.namesrv_controller import run_embedded
from remoting.server_tls import ServerTls
from remoting.tls_config import TlsConfig


def main(child: Child) -> None:
    """Serve until stopped."""
    try:
        _serve(child)
    except KVConfigError as error:
        child.say(f"mqbroker: embedded name server: {error}")
        raise SystemExit(EXIT_CANNOT_BOOT) from error


def _serve(child: Child) -> None:
    run_embedded(
        child.boot.listen_fds["namesrv"],
        build(NamesrvConfig, child.boot.settings),
        tls=ServerTls(build(TlsConfig, child.boot.settings)),
        on_stop=child.on_stop,
        beat=lambda: child.page.beat(ProcessIndex.NAMESRV),
    )


if __name__ == "__main__":
    run_child(main)
