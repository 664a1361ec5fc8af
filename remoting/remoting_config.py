"""Settings of the remoting server and client (Java: NettyServerConfig, NettyClientConfig).

Filled by `conf.config_loader` at a process's start; frozen afterwards. Socket buffer sizes are
left to the kernel on purpose: fixed ones cost throughput on long-distance links.
"""

from __future__ import annotations

from dataclasses import dataclass

from conf.config_fields import setting
from remoting.frame import MAX_FRAME
from remoting.receive_buffer import INCOMPLETE_FRAMES_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingServerConfig:
    """Settings of the server."""

    # fmt: off
    listen_port: int = setting(8888, "port of the server; 0: any free port", ge=0, le=65535)
    bind_address: str = setting("0.0.0.0", "address on which the server listens")
    server_socket_backlog: int = setting(1024, "most connections waiting to be accepted", ge=1)
    server_channel_max_idle_time_seconds: int = setting(120,
        "close an incoming connection that is idle, or has an incomplete frame, for this long",
        unit="s", ge=1)
    server_max_incomplete_frame_bytes: int = setting(INCOMPLETE_FRAMES_LIMIT,
        "most bytes of incomplete frames that all incoming connections hold together; beyond it "
        "the connection whose frame has been incomplete for longest is closed",
        unit="bytes", ge=MAX_FRAME)
    # fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingClientConfig:
    """Settings of outgoing connections, to name servers and to the master."""

    # fmt: off
    connect_timeout_millis: int = setting(3000, "timeout of an outgoing connect", unit="ms", ge=1)
    client_channel_max_idle_time_seconds: int = setting(120,
        "close an outgoing connection that is idle for this long", unit="s", ge=1)
    client_close_socket_if_timeout: bool = setting(True,
        "close the connection when a synchronous call times out")
    use_tls: bool = setting(False,
        "use TLS for outgoing connections; unset: only if tls.server.mode=enforcing", key="useTLS")
    client_async_semaphore_value: int = setting(65535, "most asynchronous requests in flight", ge=1)
    client_oneway_semaphore_value: int = setting(65535, "most one-way requests in flight", ge=1)
    # fmt: on
