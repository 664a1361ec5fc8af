"""Where a due delayed message waits for room in the queue table: in another level. Pure.

Its own level may have a second only, in which it would be written again and again. Used by
ScheduleMessageService on the loop thread; broker/append/room_waits.py says why it waits.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.append.diverted_messages import divert_delayed
from broker.append.room_waits import FIRST_ROOM_WAIT_MS, LONGEST_ROOM_WAIT_MS


def put_off_levels(level: int, delay_level_ms: Mapping[int, int]) -> list[int]:
    """The levels for a message of `level`, best first: the shortest that is long enough, a minute
    or twice as long as it has waited, then the longer ones, then the shorter ones."""
    wanted_ms = min(max(FIRST_ROOM_WAIT_MS, 2 * delay_level_ms[level]), LONGEST_ROOM_WAIT_MS)
    levels = sorted(delay_level_ms, key=lambda each: (delay_level_ms[each], each))
    shorter = [each for each in levels if delay_level_ms[each] < wanted_ms]
    return [*levels[len(shorter) :], *reversed(shorter)]


def put_off_properties(properties: bytes, home: tuple[str, int], level: int) -> bytes:
    """The message's properties in `level`. home: its real topic and queue."""
    text = str(properties, "utf-8", "surrogateescape")
    return divert_delayed(*home, 0, text, level).properties.encode("utf-8", "surrogateescape")
