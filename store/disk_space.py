"""Disk space: how full the partition of a store directory is.

Any thread. The clean service takes a `DiskUsage` callable, so that tests fake fullness. Corresponds
to RocketMQ's UtilAll.getDiskPartitionSpaceUsedPercent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

DiskUsage = Callable[[Path], float]
"""Path to the used share of its partition, 0.0 to 1.0; -1.0 when the path is missing."""


def used_ratio(path: Path) -> float:
    """Used share of the partition that holds `path`, rounded up to whole percent.

    Space reserved for root counts as neither used nor usable, as `df` shows it.
    """
    try:
        found = os.statvfs(path)
    except OSError:
        return -1.0
    used = found.f_blocks - found.f_bfree
    usable = used + found.f_bavail
    if usable <= 0:
        return -1.0
    return -(-used * 100 // usable) / 100


def least_used_ratio(paths: Iterable[Path], usage: DiskUsage = used_ratio) -> float:
    """The smallest ratio of several paths; -1.0 when none exists."""
    ratios = [ratio for ratio in map(usage, paths) if ratio >= 0]
    return min(ratios, default=-1.0)
