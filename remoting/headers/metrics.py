"""Headers of the requests that tell a broker's metrics and their history, requests of ours. Pure
data, any thread."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetricsRequestHeader(CommandCustomHeader):
    """GET_METRICS (ours). names: beginnings of metrics' names, separated by commas."""

    names: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetricsDumpRequestHeader(CommandCustomHeader):
    """GET_METRICS_DUMP (ours): [begin_timestamp, end_timestamp), wall clock ms, cut into at most
    max_points intervals of equal length."""

    begin_timestamp: Int64
    end_timestamp: Int64
    max_points: Int32 = 500
