"""How far consumer groups are behind: consumerProgress, brokerConsumeStats.

(Java: ConsumerProgressSubCommand, BrokerConsumeStatsSubCommad.)

Tested by tests/tools/test_mqadmin_offsets.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import click

from remoting.body.client_connection import ConsumerConnection
from remoting.body.heartbeat import ConsumeType
from remoting.body.message_queue import MessageQueue
from remoting.body.stats import ConsumeStats, ConsumeStatsList, OffsetWrapper
from remoting.errors import RemotingError, RequestError
from remoting.headers.admin import GetConsumeStatsInBrokerHeader
from remoting.mq_version import version_name
from remoting.request_code import RequestCode
from tools.admin_client import RETRY_PREFIX, AdminClient
from tools.command_line import command, print_error
from tools.errors import AdminError
from tools.message_text import second_text
from tools.options import POSITIVE
from tools.report import Cell, Column, Report, columns, table

QUEUE_COLUMNS: Final = columns(
    "#Topic topic | #Broker Name brokerName | #QID queueId | #Broker Offset brokerOffset | "
    "#Consumer Offset consumerOffset | #Diff diff | #LastTime lastTimestamp"
)
CLIENT_COLUMN: Final = Column("#Client IP", "clientIP")
CLIENT_POSITION: Final = 5
BROKER_COLUMNS: Final = (QUEUE_COLUMNS[0], Column("#Group", "group"), *QUEUE_COLUMNS[1:])
BROKER_TIMEOUT_MS: Final = 50_000
MAX_NAMED: Final = 10
GROUP_COLUMNS: Final = columns(
    "#Group group | #Count count | #Version version | #Type type | #Model model | #TPS tps | "
    "#Diff Total diffTotal"
)


@command("consumerProgress")
def consumer_progress(
    admin: AdminClient,
    group: Annotated[str | None, "-g --groupName", "Consumer group name; all groups without it."],
    topic: Annotated[str | None, "-t --topicName", "Only this topic; needs -g."],
    with_clients: Annotated[bool, "-s --showClientIP", "Who reads."] = False,
) -> Report:
    """Each queue of one group, or one row for each group."""
    if group is None:
        if topic is not None or with_clients:
            raise click.UsageError("-t and -s need a group: -g GROUP")
        return _all_groups(admin)
    return _one_group(admin, group, topic, with_clients)


def _groups(admin: AdminClient) -> list[str]:
    names = admin.topic_names()
    return [name.removeprefix(RETRY_PREFIX) for name in names if name.startswith(RETRY_PREFIX)]


def _one_group(admin: AdminClient, group: str, topic: str | None, with_clients: bool) -> Report:
    stats = admin.consume_stats(group, topic)
    if not stats.offset_table:
        known = ", ".join(_groups(admin)[:MAX_NAMED]) or "none"
        raise AdminError(f"group {group} has consumed nothing yet; groups with progress: {known}")
    return progress_report(stats, _queue_clients(admin, group) if with_clients else None)


def progress_report(stats: ConsumeStats, clients: Mapping[MessageQueue, str] | None) -> Report:
    """What consumerProgress prints of one group; `clients`: who reads each queue, if asked for."""
    keys = [column.key for column in QUEUE_COLUMNS]
    rows, data = [], []
    for queue in sorted(stats.offset_table, key=lambda q: (q.topic, q.broker_name, q.queue_id)):
        offset = stats.offset_table[queue]
        diff = offset.broker_offset - offset.consumer_offset
        facts: list[object] = [queue.topic, queue.broker_name, queue.queue_id]
        facts += [offset.broker_offset, offset.consumer_offset, diff]
        last = offset.last_timestamp
        row = [*facts, second_text(last) if last > 0 else "N/A"]
        item = dict(zip(keys, [*facts, last], strict=True))
        if clients is not None:
            row.insert(CLIENT_POSITION, clients.get(queue, "N/A"))
            item["clientIP"] = clients.get(queue)
        rows.append(row)
        data.append(item)
    shown = list(QUEUE_COLUMNS)
    if clients is not None:
        shown.insert(CLIENT_POSITION, CLIENT_COLUMN)
    offsets = stats.offset_table.values()
    total = sum(offset.broker_offset - offset.consumer_offset for offset in offsets)
    lines = [table(shown, rows).text, ""]
    lines += [f"Consume TPS: {stats.consume_tps:.2f}", f"Diff Total: {total}"]
    found = {"queues": data, "consumeTps": stats.consume_tps, "diffTotal": total}
    return Report("\n".join(lines), found)


def _queue_clients(admin: AdminClient, group: str) -> dict[MessageQueue, str]:
    """The address of the member that holds each queue, as the members say themselves."""
    connection = admin.find_consumer_connection(group)
    holders: dict[MessageQueue, str] = {}
    for client in connection.connection_set if connection is not None else ():
        try:
            info = admin.consumer_running_info(group, client.client_id)
        except (AdminError, RemotingError, RequestError) as error:
            print_error("consumerProgress", error)
            continue
        holders |= dict.fromkeys(info.mq_table, client_ip(client.client_id))
    return holders


def client_ip(client_id: str) -> str:
    """What a client's id begins with."""
    return client_id.partition("@")[0]


@dataclass(frozen=True, slots=True)
class GroupConsumeInfo:
    """One group in short; version, type and model are empty while no member is online."""

    group: str
    count: int
    version: str
    consume_type: str
    model: str
    consume_tps: float
    diff_total: int


def _all_groups(admin: AdminClient) -> Report:
    infos = [_group_info(admin, group) for group in _groups(admin)]
    infos.sort(key=in_order)
    rows: list[list[Any]] = []
    for info in infos:
        facts = [info.group, info.count, info.version, info.consume_type, info.model]
        rows.append([*facts, int(info.consume_tps), info.diff_total])
    return Report(table(GROUP_COLUMNS, rows).text, [info_data(info) for info in infos])


def in_order(info: GroupConsumeInfo) -> tuple[int, int, str]:
    """Those with most members first, then those most behind."""
    return -info.count, -info.diff_total, info.group


def info_data(info: GroupConsumeInfo) -> dict[str, Any]:
    """The JSON of a group's row."""
    facts = [info.group, info.count, info.version, info.consume_type, info.model]
    full = [*facts, info.consume_tps, info.diff_total]
    return dict(zip((column.key for column in GROUP_COLUMNS), full, strict=True))


def _group_info(admin: AdminClient, group: str) -> GroupConsumeInfo:
    """Progress and members of a group; what brokers refuse stays empty, with a line on stderr."""
    tps, diff, connection = 0.0, 0, None
    try:
        stats = admin.consume_stats(group)
        tps = stats.consume_tps
        offsets = stats.offset_table.values()
        diff = sum(offset.broker_offset - offset.consumer_offset for offset in offsets)
        connection = admin.find_consumer_connection(group)
    except (AdminError, RemotingError, RequestError) as error:
        print_error("consumerProgress", f"group {group}: {error}")
    return group_consume_info(group, (tps, diff), connection)


def group_consume_info(
    group: str, progress: tuple[float, int], connection: ConsumerConnection | None
) -> GroupConsumeInfo:
    """Of its rate and lag, and who is online."""
    tps, diff = progress
    if connection is None:
        return GroupConsumeInfo(group, 0, "OFFLINE", "", "", tps, diff)
    pulls = connection.consume_type == ConsumeType.CONSUME_ACTIVELY
    version = min(client.version for client in connection.connection_set)
    return GroupConsumeInfo(
        group,
        len(connection.connection_set),
        version_name(version),
        "PULL" if pulls else "PUSH",
        "" if pulls else str(connection.message_model or ""),
        tps,
        diff,
    )


@command("brokerConsumeStats")
def broker_consume_stats(
    admin: AdminClient,
    address: Annotated[str, "-b --brokerAddr", "Broker address, host:port."],
    timeout_ms: Annotated[
        int,
        "-t --timeoutMillis",
        f"How long to wait for the answer [{BROKER_TIMEOUT_MS}].",
        POSITIVE,
    ] = BROKER_TIMEOUT_MS,
    level: Annotated[int, "-l --level", "Only queues with at least this lag [0]."] = 0,
    order: Annotated[bool, "-o --order", "Only ordered topics (true|false)."] = False,
) -> Report:
    """Every queue of every group at one broker, except queues without a consumer offset."""
    header = GetConsumeStatsInBrokerHeader(is_order=order)
    response = admin.call(
        address, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout_ms=timeout_ms
    )
    stats = ConsumeStatsList.from_json_bytes(response.body)
    rows = []
    for group, queue, offset in _flat(stats):
        diff = offset.broker_offset - offset.consumer_offset
        if diff >= level and offset.last_timestamp > 0:
            last = Cell(second_text(offset.last_timestamp), offset.last_timestamp)
            place = (queue.topic, group, queue.broker_name, queue.queue_id)
            rows.append((*place, offset.broker_offset, offset.consumer_offset, diff, last))
    found = table(BROKER_COLUMNS, rows)
    text = f"{found.text}\n\nDiff Total: {stats.total_diff}"
    return Report(text, {"queues": found.data, "diffTotal": stats.total_diff})


def _flat(stats: ConsumeStatsList) -> Iterator[tuple[str, MessageQueue, OffsetWrapper]]:
    """Group, queue and progress in the order of the answer, each topic's queues sorted."""
    for groups in stats.consume_stats_list:
        for group, of_topics in groups.items():
            for of_topic in of_topics:
                queues = of_topic.offset_table
                for queue in sorted(queues, key=lambda q: (q.topic, q.broker_name, q.queue_id)):
                    yield group, queue, queues[queue]
