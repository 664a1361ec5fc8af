"""What supervisor and children agree on: what a child inherits, and what its exit code asks for.

The supervisor writes a BootInfo as JSON into a memfd whose number is the child's only argument.
Values only; any process.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ipc.metric_slots import MAX_SERIES

EXIT_CANNOT_BOOT: Final = 3
"""Exit code: a restart would not help; the supervisor stops the whole broker."""
EXIT_FLUSH_FAILED: Final = 4
"""Exit code: fdatasync failed. The state of the page cache is unknown; only a recovery from disk
helps."""
EXIT_REOPEN: Final = 5
"""Exit code: a change of the store's files requires a closed store (store/replica_resync.py). The
supervisor stops every child and starts them again."""


class BootInfo(msgspec.Struct, kw_only=True):
    """Everything a child inherits; descriptors are numbers valid in the child."""

    name: str
    index: int
    parent_pid: int
    broker_started_ms: int
    """Monotonic time at which the supervisor was started."""
    settings: dict[str, str]
    log_dir: str
    control_page_fd: int
    queue_table_fd: int
    metrics_fd: int
    kept_sends_fd: int = -1
    """Of broker/metrics/kept_sends.py; -1: there is none."""
    metrics_max_series: int = MAX_SERIES
    life_fd: int
    bell_fds: dict[str, int]
    channel_fds: dict[str, int] = {}
    listen_fds: dict[str, int] = {}
    config_file: str = ""
    """The -c file, absolute; empty when the broker was started without one."""
    changes_fd: int
    """Descriptor of ChangedSettings: the settings changed at run time."""
    lock_fd: int = -1
    """Only kept open, so that the store's lock is held until the last process has ended."""
