"""What supervisor and children agree on: what a child inherits, and what its exit code asks for.

The supervisor writes a BootInfo as JSON into a memfd whose number is the child's only argument.
Values only; any process.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ipc.metric_slots import MAX_SERIES

EXIT_CANNOT_BOOT: Final = 3
"""Starting again will not help: the supervisor stops the whole broker."""
EXIT_FLUSH_FAILED: Final = 4
"""fdatasync failed: what the page cache holds is unknown, only a recovery from disk helps."""
EXIT_REOPEN: Final = 5
"""The store's files shall change as only a closed store's may (store/replica_resync.py): the
supervisor stops every child and starts the broker again."""


class BootInfo(msgspec.Struct, kw_only=True):
    """Everything a child inherits; descriptors are numbers valid in the child."""

    name: str
    index: int
    parent_pid: int
    broker_started_ms: int
    """Monotonic: when the supervisor was started."""
    settings: dict[str, str]
    log_dir: str
    control_page_fd: int
    queue_table_fd: int
    metrics_fd: int
    metrics_max_series: int = MAX_SERIES
    life_fd: int
    bell_fds: dict[str, int]
    channel_fds: dict[str, int] = {}
    listen_fds: dict[str, int] = {}
    config_file: str = ""
    """The -c file, absolute; empty when the broker was started without one."""
    changes_fd: int
    """ChangedSettings: what requests have changed since the start."""
    lock_fd: int = -1
    """Kept open only: the store's lock holds until the last process is gone."""
