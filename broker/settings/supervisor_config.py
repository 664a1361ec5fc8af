"""SupervisorConfig: the settings of the parent process, unknown to RocketMQ.

Read by the supervisor only. The directory of pid files is set by the environment
(`conf.pid_file.run_directory`), because `bin/mqshutdown` reads no settings file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conf.config_fields import setting

_STORE_ROOT: Final = "$storePathRootDir"
_OFF: Final = ("", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """The supervisor's own ports (one that is in use stops the start), metrics and dumps."""

    # fmt: off
    metrics_port: int = setting(5557,
        "port of /metrics, /healthz and /readyz; 0: any free port", ge=0, le=65535)
    metrics_address: str | None = setting(None,
        "address on which metricsPort listens; unset: bindAddress")
    metrics_max_series: int = setting(10_000,
        "most series of one metric; the rest is counted as __overflow__", ge=1, le=100_000)
    ready_needs_replicas: bool = setting(False,
        "/readyz of a master fails without inSyncReplicas - 1 (at least 1) slaves in sync")
    metrics_dump_path: str = setting(f"{_STORE_ROOT}/metrics",
        "directory of the metrics dumps; empty or none: no dumps")
    metrics_dump_interval_seconds: int = setting(5,
        "interval between the lines of a dump", unit="s", ge=1, le=3600)
    metrics_dump_max_megabytes: int = setting(512,
        "disk space for this broker's dumps; the oldest files go first", unit="MiB", ge=1)
    metrics_dump_keep_days: int = setting(40,
        "age at which a dump file is deleted", unit="days", ge=1)
    metrics_dump_groups: str = setting("",
        "consumer groups whose lag the dumps tell, with commas between; * and ? stand for any text "
        "and any character")
    embedded_namesrv_enable: bool = setting(True, "start a name server if none is configured")
    embedded_namesrv_port: int = setting(9876,
        "port of the embedded name server; 0: any free port", ge=0, le=65535)
    console_enable: bool = setting(False,
        "start the console in the browser beside the broker, on 127.0.0.1; it may fail alone")
    console_port: int = setting(8088, "port of that console; 0: any free port", ge=0, le=65535)
    compile_modules: bool = setting(True,
        "in a checkout with a C compiler: compile modules for the next start, beside the broker")
    process_hang_timeout_millis: int = setting(30_000,
        "a process without a heartbeat for this long has its stacks dumped and is restarted; while "
        "it starts, at least 30 s apply", unit="ms", ge=1000)
    # fmt: on

    def dump_directory(self, store_root: Path) -> Path | None:
        """The directory of the metrics dumps, None without dumps. store_root: the store's."""
        if self.metrics_dump_path.strip().lower() in _OFF:
            return None
        text = self.metrics_dump_path
        if text.startswith(_STORE_ROOT):
            text = f"{store_root}{text.removeprefix(_STORE_ROOT)}"
        return Path(text).expanduser()
