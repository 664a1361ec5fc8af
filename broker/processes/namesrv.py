"""Composition root of process `namesrv`: the embedded name server.

Runs on the child's main thread: the same code as the stand-alone server (namesrv/), over the
listening socket that the supervisor keeps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from broker.processes.child import Child, run_child
from broker.settings.supervisor_config import SupervisorConfig
from broker.supervisor.boot_info import EXIT_CANNOT_BOOT
from conf.config_loader import build
from ipc.control_page import BEAT_MS, ProcessIndex
from namesrv.kv_config_manager import KVConfigError
from namesrv.namesrv_config import NamesrvConfig
from namesrv.namesrv_controller import run_embedded
from remoting.remoting_config import RemotingServerConfig
from remoting.server_tls import ServerTls
from remoting.tls_config import TlsConfig

_LEAST_IDLE_S: Final = 120


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
        server_config(child.boot.settings),
        tls=ServerTls(build(TlsConfig, child.boot.settings)),
        on_stop=child.on_stop,
        beat=lambda: child.page.beat(ProcessIndex.NAMESRV),
        beat_ms=BEAT_MS,
    )


def server_config(settings: Mapping[str, str]) -> RemotingServerConfig:
    """The broker's own limits, on its own port. Connections may be idle for RocketMQ's 120 s even
    where those to the broker may not: one that ends takes its broker off the routes, and brokers
    register every 30 s."""
    own = build(RemotingServerConfig, settings)
    idle_s = max(own.server_channel_max_idle_time_seconds, _LEAST_IDLE_S)
    port = build(SupervisorConfig, settings).embedded_namesrv_port
    return dataclasses.replace(own, listen_port=port, server_channel_max_idle_time_seconds=idle_s)


if __name__ == "__main__":
    run_child(main)
