"""Delay levels: what messageDelayLevel says. Pure, any thread.

Text as in RocketMQ's MessageStoreConfig: "1s 5s 10s 30s 1m 2h 1d", level 1 first.
"""

from __future__ import annotations

import re
from typing import Final

from store.errors import StoreError

_MS_OF_UNIT: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY: Final = re.compile(r"(\d{1,9})([smhd])", re.ASCII)


def parse_delay_levels(text: str) -> dict[int, int]:
    """Level (from 1) to delay (ms). Raises StoreError."""
    matches = [_DELAY.fullmatch(word) for word in text.split()]
    table = {
        level: int(match[1]) * _MS_OF_UNIT[match[2]]
        for level, match in enumerate(matches, 1)
        if match
    }
    if len(table) != len(matches):
        raise StoreError(
            f"messageDelayLevel = {text}: expected numbers with a unit (s, m, h, d) separated by "
            "blanks, like '1s 5s 1m 2h'"
        )
    return table
