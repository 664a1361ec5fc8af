"""SupervisorConfig: the settings of the parent process, unknown to the original.

Read by the supervisor only. Where pid files go is the environment's business
(`conf.pid_file.run_directory`), because `bin/mqshutdown` reads no settings file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_STORE_ROOT: Final = "$storePathRootDir"
_OFF: Final = ("", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """What the supervisor binds besides the remoting ports (a taken port stops the start), shows
    and writes down."""

    metrics_port: int = field(
        default=5557,
        metadata={
            "key": "metricsPort",
            "doc": "port of /metrics, /healthz and /readyz; 0 = a free one"
            " (metricsPromExporterPort of 5.x)",
            "min": 0,
            "max": 65535,
        },
    )
    metrics_address: str = field(
        default="0.0.0.0",
        metadata={
            "key": "metricsAddress",
            "doc": "address that port listens on (metricsPromExporterHost of 5.x)",
        },
    )
    metrics_max_series: int = field(
        default=10_000,
        metadata={
            "key": "metricsMaxSeries",
            "doc": "series of one metric; what comes on top counts under __overflow__",
            "min": 1,
            "max": 100_000,
        },
    )
    ready_needs_replicas: bool = field(
        default=False,
        metadata={
            "key": "readyNeedsReplicas",
            "doc": "/readyz of a master says no without inSyncReplicas - 1 (at least 1) slaves"
            " in sync",
        },
    )
    metrics_dump_path: str = field(
        default=f"{_STORE_ROOT}/metrics",
        metadata={
            "key": "metricsDumpPath",
            "doc": "directory of the metrics dumps; empty or none: no dumps",
        },
    )
    metrics_dump_interval_seconds: int = field(
        default=5,
        metadata={
            "key": "metricsDumpIntervalSeconds",
            "doc": "time from line to line of a dump",
            "unit": "s",
            "min": 1,
            "max": 3600,
        },
    )
    metrics_dump_max_megabytes: int = field(
        default=512,
        metadata={
            "key": "metricsDumpMaxMegabytes",
            "doc": "space of this broker's dumps; the oldest files go first",
            "unit": "MiB",
            "min": 1,
        },
    )
    metrics_dump_keep_days: int = field(
        default=40,
        metadata={
            "key": "metricsDumpKeepDays",
            "doc": "age at which a file of the dumps is deleted",
            "unit": "days",
            "min": 1,
        },
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
            "doc": "a process whose beat stands still this long is dumped and restarted; "
            "until it serves: one that does nothing this long, at least 30 s",
            "unit": "ms",
            "min": 1000,
        },
    )

    def dump_directory(self, store_root: Path) -> Path | None:
        """Where metrics dumps go; None: nowhere. store_root: that of the store."""
        if self.metrics_dump_path.strip().lower() in _OFF:
            return None
        text = self.metrics_dump_path
        if text.startswith(_STORE_ROOT):
            text = f"{store_root}{text.removeprefix(_STORE_ROOT)}"
        return Path(text).expanduser()
