"""How much memory a process that starts now may take: the machine's, or its cgroup's if less.

Reads /proc and /sys only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_AVAILABLE: Final = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_CGROUP: Final = re.compile(r"^0::/(.*)$", re.MULTILINE)
_CACHE: Final = re.compile(r"^(?:in)?active_file (\d+)$", re.MULTILINE)


def free_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """In bytes. Raises OSError."""
    found = _AVAILABLE.search((proc / "meminfo").read_text())
    free = int(found[1]) * 1024 if found else 0
    mine = _CGROUP.search((proc / "self/cgroup").read_text())
    if mine is None:  # cgroups of the first kind only
        return free
    own = cgroups / mine[1]
    limits = (_free_of_group(group) for group in (own, *own.parents) if group != group.parent)
    return min([free, *(limit for limit in limits if limit is not None)])


def _free_of_group(group: Path) -> int | None:
    """What its limit leaves, where it has one: what it has in the page cache can be had back."""
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((group / "memory.current").read_text())
        cache = sum(map(int, _CACHE.findall((group / "memory.stat").read_text())))
    except (OSError, ValueError):  # the root has no files, and a container may see none of it
        return None
    return max(0, int(limit) - used + cache)
