"""What the processes of a broker hold and use, read from /proc: memory, descriptors, wake-ups.

Shared by the benchmarks of scale (topics.py, idle.py). Runs in the process of the benchmark. It
knows processes by their title, nothing of what they do.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.processes import process_tree

_PSS_ANON = re.compile(r"^Pss_Anon:\s+(\d+) kB", re.MULTILINE)
_ANONYMOUS = re.compile(r"^Anonymous:\s+(\d+) kB", re.MULTILINE)
_SWITCHES = re.compile(r"^voluntary_ctxt_switches:\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of a broker, at one moment."""

    name: str
    pid: int
    cpu_s: float
    anonymous: int
    """Bytes; what processes share is divided among them where the kernel tells (Pss_Anon)."""
    descriptors: int
    maps: int
    switches: int
    """Voluntary context switches of all its threads: how often it went to sleep."""


def look_at(root_pid: int) -> list[Process]:
    """The broker's processes: the supervisor first."""
    found = []
    for figures in process_tree(root_pid):
        proc = Path(f"/proc/{figures.pid}")
        try:
            found.append(
                Process(
                    name=short_name(figures.title),
                    pid=figures.pid,
                    cpu_s=figures.cpu_s,
                    anonymous=anonymous_bytes((proc / "smaps_rollup").read_text()),
                    descriptors=len(os.listdir(proc / "fd")),
                    maps=(proc / "maps").read_text().count("\n"),
                    switches=_switches(proc),
                )
            )
        except OSError:
            continue  # It ended in this moment.
    return sorted(found, key=lambda each: each.pid)


def short_name(title: str) -> str:
    """ "mqbroker: store" is "store"; what has not named itself is the supervisor."""
    return title.removeprefix("mqbroker: ").strip() if title.startswith("mqbroker: ") else "broker"


def anonymous_bytes(smaps_rollup: str) -> int:
    """Pss_Anon (Linux 5.13 and newer), else Anonymous. Raises ValueError when there is neither."""
    found = _PSS_ANON.search(smaps_rollup) or _ANONYMOUS.search(smaps_rollup)
    if found is None:
        raise ValueError(f"smaps_rollup without Pss_Anon and Anonymous: {smaps_rollup!r:.200}")
    return int(found[1]) * 1024


def _switches(proc: Path) -> int:
    texts = [(task / "status").read_text() for task in (proc / "task").iterdir()]
    return sum(int(found[1]) for text in texts if (found := _SWITCHES.search(text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one process used from one moment to another, for each second between them."""

    name: str
    cpu: float
    """Cores: 0.01 is one hundredth of one."""
    switches: float


def usage(before: Sequence[Process], after: Sequence[Process], seconds: float) -> list[Usage]:
    """For the processes that lived all the time. Raises ValueError when they are not the same."""
    if [each.pid for each in before] != [each.pid for each in after]:
        raise ValueError(f"processes came or went: {_names(before)} before, {_names(after)} after")
    return [
        Usage(
            name=then.name,
            cpu=(now.cpu_s - then.cpu_s) / seconds,
            switches=(now.switches - then.switches) / seconds,
        )
        for then, now in zip(before, after, strict=True)
    ]


def _names(processes: Sequence[Process]) -> list[str]:
    return [f"{each.name} ({each.pid})" for each in processes]


def verdict(figure: float, goal: float) -> str:
    """Every goal here is a most."""
    return "held" if figure <= goal else "MISSED"


def allow_descriptors(count: int) -> None:
    """Let this process, and what it starts, have `count` descriptors.

    Raises SystemExit in words when the machine does not permit as many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise SystemExit(
                f"{count} file descriptors are needed, this shell permits {hard}: raise the hard "
                "limit (ulimit -Hn, or nofile in /etc/security/limits.conf), or measure less"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
