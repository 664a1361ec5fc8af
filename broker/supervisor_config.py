"""SupervisorConfig: the settings of the parent process, unknown to the original.

Read by the supervisor only. Where pid files go is the environment's business
(`conf.pid_file.run_directory`), because `bin/mqshutdown` reads no settings file.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """What the supervisor binds besides the remoting ports. A taken port stops the start."""

    metrics_port: int = field(
        default=5557,
        metadata={
            "key": "metricsPort",
            "doc": "port of /metrics, /healthz and /readyz; 0 = a free one",
            "min": 0,
            "max": 65535,
        },
    )
    metrics_address: str = field(
        default="0.0.0.0", metadata={"key": "metricsAddress", "doc": "address that port listens on"}
    )
    embedded_namesrv_enable: bool = field(
        default=True,
        metadata={
            "key": "embeddedNamesrvEnable",
            "doc": "start a name server when none is configured",
        },
    )
    embedded_namesrv_port: int = field(
        default=9876,
        metadata={
            "key": "embeddedNamesrvPort",
            "doc": "its port; 0 = a free one",
            "min": 0,
            "max": 65535,
        },
    )
    process_hang_timeout_millis: int = field(
        default=30_000,
        metadata={
            "key": "processHangTimeoutMillis",
            "doc": "a process whose beat stands still this long is dumped and restarted",
            "unit": "ms",
            "min": 1000,
        },
    )
