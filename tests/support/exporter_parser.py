"""What rocketmq-exporter makes of an answer to 28, for tests that it can read ours.

After its class BrokerRuntimeStats: one key that is missing, or one text that it cannot parse, and
it shows nothing of the broker at all. Java's parsing where Python's is more lenient.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_LONGS: Final = (
    "bootTimestamp",
    "brokerVersion",
    "commitLogMaxOffset",
    "commitLogMinOffset",
    "dispatchBehindBytes",
    "dispatchMaxBuffer",
    "earliestMessageTimeStamp",
    "getMessageEntireTimeMax",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgPutTotalYesterdayMorning",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "putMessageEntireTimeMax",
    "putMessageSizeTotal",
    "putMessageTimesTotal",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "remainTransientStoreBufferNumbs",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
    "startAcceptSendRequestTimeStamp",
)
_DOUBLES: Final = (
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "putMessageAverageSize",
)
_LATENCIES: Final = ("putLatency99", "putLatency999")
"""Younger than it is: -1 when they are missing."""
_RATES: Final = ("getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps", "putTps")
_TEXTS: Final = ("brokerVersionDesc", "runtime")
KEYS: Final = frozenset(
    (
        *(*_LONGS, *_DOUBLES, *_RATES, *_TEXTS),
        *("commitLogDirCapacity", "putMessageDistributeTime", "remainHowManyDataToFlush"),
    )
)
"""Every key that it cannot do without."""
_SPANS: Final = ("ten", "sixty", "sixHundred")


def broker_runtime_stats(table: Mapping[str, str]) -> dict[str, float]:
    """All numbers by name. Raises KeyError, ValueError, TypeError or IndexError where the exporter
    fails."""
    if not all(table[key] for key in _TEXTS):
        raise ValueError("an empty text")
    stats: dict[str, float] = {key: _long(table[key]) for key in _LONGS}
    stats |= {key: _double(table[key]) for key in _DOUBLES}
    stats |= {key: _double(table.get(key, "-1")) for key in _LATENCIES}
    for key in _RATES:
        for span, text in zip(_SPANS, _split(table[key]), strict=False):
            stats[f"{key}.{span}"] = _double(text)
    for pair in _split(table["putMessageDistributeTime"]):
        name, count = pair.split(":")
        stats[f"putMessageDistributeTime.{name.strip('[]')}"] = _long(count)
    words = _split(table["commitLogDirCapacity"])
    stats["commitLogDirCapacityTotal"] = _size(words[2], words[3])
    stats["commitLogDirCapacityFree"] = _size(words[6], words[7])
    stats["remainHowManyDataToFlush"] = _size(*_split(table["remainHowManyDataToFlush"]))
    for key, text in table.items():
        if key.startswith("scheduleMessageOffset"):
            delivered, newest = text.split(",")
            stats[f"{key}.delayOffset"] = _long(delivered)
            stats[f"{key}.maxOffset"] = _long(newest)
    return stats


def _split(text: str) -> list[str]:
    """String.split(" "): without the empty ones at the end, but an empty text is one word."""
    words = text.split(" ")
    while len(words) > 1 and not words[-1]:
        words.pop()
    return words if words[0] or text == "" or len(words) > 1 else []


def _long(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,19}", text):
        raise ValueError(f"{text!r} is no long")
    return int(text)


def _double(text: str) -> float:
    if "_" in text:
        raise ValueError(f"{text!r} is no double")
    return float(text)


def _size(number: str, unit: str) -> float:
    """Bytes of `1.5 KiB` and its like."""
    return _double(number) * 1024.0 ** ("KMGTPE".find(unit[0]) + 1)
