"""Parses numbers in the texts and tables that brokers send about themselves. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from remoting.body.stats import BrokerStatsData


def number(text: str | None) -> float:
    """A broker's number; 0 if it is missing or malformed."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def first_number(text: str | None) -> float:
    """The first of "10 s, 60 s, 600 s"."""
    return number((text or "").split(" ")[0])


def out_tps_key(info: Mapping[str, str]) -> str:
    """The key of the rate of messages out; 5.x spells it correctly."""
    return "getTransferredTps" if "getTransferredTps" in info else "getTransferedTps"


def day_sum(item: BrokerStatsData) -> int:
    """The longest span with a count: a broker that has just started has no full day yet."""
    return item.stats_day.sum or item.stats_hour.sum or item.stats_minute.sum
