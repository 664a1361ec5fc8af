"""statsAll: rates and backlog of topics and groups. (Java: StatsAllSubCommand.)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NamedTuple

from tools.admin_client import DLQ_PREFIX, RETRY_PREFIX, AdminClient, addresses, unknown
from tools.broker_numbers import day_sum
from tools.command_line import command
from tools.errors import AdminError
from tools.options import FLAG
from tools.report import Cell, Report, columns, table

COLUMNS: Final = columns(
    "#Topic topic | #Consumer Group consumerGroup | #Accumulation accumulation > | "
    "#InTPS inTps > | #OutTPS outTps > | #InMsg24Hour inMsg24Hour > | #OutMsg24Hour outMsg24Hour >"
)
TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"


class Flow(NamedTuple):
    """Messages per second now, and in the last day."""

    tps: float
    day: int


Row = tuple[Flow, Flow | None, tuple[object, ...]]
"""In, out (None for a topic without consumers), and the cells of one topic and group."""


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
        cells
        for topic in names
        if topic == wanted or (wanted is None and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))
        for into, out, cells in _topic_rows(admin, topic)
        if not active_only or into.day > 0 or (out is not None and out.day > 0)
    ]
    return table(COLUMNS, rows)


def _row(topic: str, group: str | None, behind: int, into: Flow, out: Flow | None) -> Row:
    out_tps, out_day = ("", "") if out is None else (f"{out.tps:.2f}", str(out.day))
    cells = (
        topic,
        Cell(group or "", group),
        behind,
        Cell(f"{into.tps:.2f}", into.tps),
        Cell(out_tps, out and out.tps),
        into.day,
        Cell(out_day, out and out.day),
    )
    return into, out, cells


def _topic_rows(admin: AdminClient, topic: str) -> Iterator[Row]:
    route = admin.find_route(topic)
    if route is None:
        return
    brokers = addresses(route)
    into = flow(admin, brokers, TOPIC_PUT_NUMS, topic)
    groups = admin.groups_of_topic(topic, route)
    if not groups:
        yield _row(topic, None, 0, into, None)
    for group in groups:
        out = flow(admin, brokers, GROUP_GET_NUMS, f"{topic}@{group}")
        offsets = admin.consume_stats(group, topic).offset_table.values()
        behind = sum(offset.broker_offset - offset.consumer_offset for offset in offsets)
        yield _row(topic, group, max(behind, 0), into, out)


def flow(admin: AdminClient, brokers: Sequence[str], name: str, key: str) -> Flow:
    """Sum over the brokers; a broker without this item counts as 0."""
    items = [item for address in brokers if (item := admin.find_stats(address, name, key))]
    return Flow(sum(item.stats_minute.tps for item in items), sum(map(day_sum, items)))
