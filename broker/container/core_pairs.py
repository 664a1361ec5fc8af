"""The pairs of cores of this host: how many brokers --auto makes, and where pinned ones run.

A broker under load keeps about two cores busy: process `remoting` one, `store` and `ha` the other.
Pure, but for the question which cores this process may use. Any thread.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

CORES_OF_A_BROKER: Final = 2


def usable_cores() -> list[int]:
    """The numbers of the cores that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def count_pairs(cores: Sequence[int]) -> int:
    """How many pairs these cores make; a single core counts as one."""
    return max(1, len(cores) // CORES_OF_A_BROKER)


def cores_of_slot(cores: Sequence[int], slot: int) -> tuple[int, ...]:
    """The cores of the broker in `slot` (0, 1, …); with more brokers than pairs they share."""
    pairs = count_pairs(cores)
    at = slot % pairs
    return tuple(cores[at * len(cores) // pairs : (at + 1) * len(cores) // pairs])
