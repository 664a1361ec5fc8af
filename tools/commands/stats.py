"""statsAll: rates and backlog of topics and groups. (Java: StatsAllSubCommand.)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NamedTuple

from tools.admin_client import DLQ_PREFIX, RETRY_PREFIX, AdminClient, addresses, unknown
from tools.broker_numbers import day_sum
from tools.command_line import command
from tools.errors import AdminError
from tools.options import FLAG
from tools.report import Report, columns, table

COLUMNS: Final = columns(
    "#Topic topic | #Consumer Group consumerGroup | #Accumulation accumulation > | "
    "#InTPS inTps > | #OutTPS outTps > | #InMsg24Hour inMsg24Hour > | #OutMsg24Hour outMsg24Hour >"
)


class Flow(NamedTuple):
    """Messages per second now, and in the last day."""

    tps: float
    day: int


class Row(NamedTuple):
    """One topic and one of its groups; group and out are None for a topic without consumers."""

    topic: str
    group: str | None
    accumulation: int
    into: Flow
    out: Flow | None


@command("statsAll")
def stats_all(
    admin: AdminClient,
    active_only: Annotated[bool, "-a --activeTopic", "Only topics with traffic.", FLAG],
    wanted: Annotated[str | None, "-t --topic", "Only this topic."],
) -> Report:
    """A row for each topic and group; a topic without consumers has a row, too."""
    names = admin.topic_names()
    if wanted is not None and wanted not in names:
        raise AdminError(unknown("topic", wanted, names))
    rows = [
        row
        for topic in names
        if topic == wanted or (wanted is None and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))
        for row in _topic_rows(admin, topic)
        if not active_only or row.into.day > 0 or (row.out is not None and row.out.day > 0)
    ]
    data = [
        {
            "topic": row.topic,
            "consumerGroup": row.group,
            "accumulation": row.accumulation,
            "inTps": row.into.tps,
            "outTps": row.out and row.out.tps,
            "inMsg24Hour": row.into.day,
            "outMsg24Hour": row.out and row.out.day,
        }
        for row in rows
    ]
    return Report(table(COLUMNS, [_cells(row) for row in rows]).text, data)


def _cells(row: Row) -> list[object]:
    out_tps, out_day = ("", "") if row.out is None else (f"{row.out.tps:.2f}", str(row.out.day))
    into = f"{row.into.tps:.2f}"
    return [row.topic, row.group or "", row.accumulation, into, out_tps, row.into.day, out_day]


def _topic_rows(admin: AdminClient, topic: str) -> Iterator[Row]:
    route = admin.find_route(topic)
    if route is None:
        return
    brokers = addresses(route)
    into = _flow(admin, brokers, "TOPIC_PUT_NUMS", topic)
    groups = admin.groups_of_topic(topic, route)
    if not groups:
        yield Row(topic, None, 0, into, None)
    for group in groups:
        out = _flow(admin, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
        offsets = admin.consume_stats(group, topic).offset_table.values()
        behind = sum(offset.broker_offset - offset.consumer_offset for offset in offsets)
        yield Row(topic, group, max(behind, 0), into, out)


def _flow(admin: AdminClient, brokers: Sequence[str], name: str, key: str) -> Flow:
    """Sum over the brokers; a broker without this item counts as 0."""
    items = [item for address in brokers if (item := admin.find_stats(address, name, key))]
    return Flow(sum(item.stats_minute.tps for item in items), sum(map(day_sum, items)))
