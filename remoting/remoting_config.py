"""Settings of the remoting server and client (RocketMQ's NettyServerConfig, NettyClientConfig).

Filled by `conf.config_loader` at a process's start; frozen afterwards. Socket buffer sizes are left
to the kernel on purpose: fixed ones reduce throughput on links with high latency.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingServerConfig:
    """Settings of the server."""

    listen_port: int = field(
        default=8888,
        metadata={
            "key": "listenPort",
            "doc": "port of the server; 10911 (broker), 9876 (name server), 0 = a free one",
            "min": 0,
            "max": 65535,
        },
    )
    bind_address: str = field(
        default="0.0.0.0",
        metadata={"key": "bindAddress", "doc": "address the server listens on (key of 5.x)"},
    )
    server_socket_backlog: int = field(
        default=1024,
        metadata={
            "key": "serverSocketBacklog",
            "doc": "connections that may wait to be accepted",
            "min": 1,
        },
    )
    server_channel_max_idle_time_seconds: int = field(
        default=120,
        metadata={
            "key": "serverChannelMaxIdleTimeSeconds",
            "doc": "an idle connection is closed after this time",
            "unit": "s",
            "min": 1,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingClientConfig:
    """Settings of outgoing connections, to name servers and to the master."""

    connect_timeout_millis: int = field(
        default=3000,
        metadata={
            "key": "connectTimeoutMillis",
            "doc": "time-out of a connect",
            "unit": "ms",
            "min": 1,
        },
    )
    client_channel_max_idle_time_seconds: int = field(
        default=120,
        metadata={
            "key": "clientChannelMaxIdleTimeSeconds",
            "doc": "an idle connection is closed after this time",
            "unit": "s",
            "min": 1,
        },
    )
    client_close_socket_if_timeout: bool = field(
        default=True,
        metadata={
            "key": "clientCloseSocketIfTimeout",
            "doc": "close the connection when a synchronous call times out",
        },
    )
    use_tls: bool = field(
        default=False,
        metadata={
            "key": "useTLS",
            "doc": "encrypt them (also: tls.enable); unset a broker does with enforcing servers",
        },
    )
    client_async_semaphore_value: int = field(
        default=65535,
        metadata={
            "key": "clientAsyncSemaphoreValue",
            "doc": "asynchronous requests in flight",
            "min": 1,
        },
    )
    client_oneway_semaphore_value: int = field(
        default=65535,
        metadata={
            "key": "clientOnewaySemaphoreValue",
            "doc": "one-way requests in flight",
            "min": 1,
        },
    )
