"""startMonitoring: rounds over all groups: their backlog, and anomalies.

Prints what RocketMQ writes to its log. (Java: StartMonitoringSubCommand, MonitorService,
DefaultMonitorListener.)

Tested by tests/tools/test_mqadmin_monitoring.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from remoting.body.consumer_running_info import ConsumerRunningInfo
from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import OffsetMovedEvent
from remoting.body.stats import OffsetWrapper
from remoting.errors import RemotingError, RequestError
from remoting.mq_version import V3_1_8_SNAPSHOT
from tools.admin_client import RETRY_PREFIX, AdminClient
from tools.command_line import command, print_error
from tools.errors import AdminError
from tools.message_decoder import MessageExt
from tools.message_puller import MessagePuller
from tools.message_text import queue_text
from tools.report import Report, safe_line
from tools.running_info import queue_problems, same_subscription

NAME: Final = "startMonitoring"
ROUND_S: Final = 60
EVENT_TOPIC: Final = "OFFSET_MOVED_EVENT"
"""Topic to which a broker writes that a group asked for an offset that no longer exists."""

PREFIX: Final = "[MONITOR] "
NOTIFY: Final = PREFIX + " [NOTIFY] "
RULER: Final = "=" * 41
COMMAND_ERRORS: Final = (AdminError, RemotingError, RequestError)
_POSITIONS: Final = "tools.commands.monitoring.positions"


@command(NAME, every_s=ROUND_S)
def start_monitoring(admin: AdminClient) -> Iterator[Report]:
    """One round; what a group's brokers or members refuse is skipped with a line on stderr."""
    positions: dict[MessageQueue, int] = click.get_current_context().meta.setdefault(_POSITIONS, {})
    topics = admin.topic_names()
    retries = [topic for topic in topics if topic.startswith(RETRY_PREFIX)]
    return _round(admin, [topic.removeprefix(RETRY_PREFIX) for topic in retries], positions)


def _round(
    admin: AdminClient, groups: list[str], positions: dict[MessageQueue, int]
) -> Iterator[Report]:
    yield Report(f"{PREFIX}{RULER}beginRound")
    for group in groups:
        try:
            yield from _group_reports(admin, group)
        except COMMAND_ERRORS as error:
            print_error(NAME, f"group {group}: {error}")
    try:
        yield from _moved_offsets(admin, positions)
    except COMMAND_ERRORS as error:
        print_error(NAME, f"topic {EVENT_TOPIC}: {error}")
    yield Report(f"{PREFIX}{RULER}endRound")


# -- one group ---------------------------------------------------------------------------------


def _group_reports(admin: AdminClient, group: str) -> Iterator[Report]:
    """Nothing while no member of the group is online."""
    connection = admin.find_consumer_connection(group)
    if connection is None:
        return
    by_topic: dict[str, dict[MessageQueue, OffsetWrapper]] = {}
    for queue, offset in admin.consume_stats(group).offset_table.items():
        by_topic.setdefault(queue.topic, {})[queue] = offset
    for topic, offsets in sorted(by_topic.items()):
        yield _undone(admin, group, topic, offsets)
    infos = {}
    for client in sorted(connection.connection_set, key=lambda client: client.client_id):
        if client.version >= V3_1_8_SNAPSHOT:
            try:
                infos[client.client_id] = admin.consumer_running_info(group, client.client_id)
            except COMMAND_ERRORS as error:
                print_error(NAME, f"group {group}: {error}")
    yield from _problems(group, infos, admin.now_ms())


def _undone(
    admin: AdminClient, group: str, topic: str, offsets: Mapping[MessageQueue, OffsetWrapper]
) -> Report:
    """What a group has not consumed of one topic (Java: UndoneMsgs)."""
    behind = [offset.broker_offset - offset.consumer_offset for offset in offsets.values()]
    total, most = sum(diff for diff in behind if diff > 0), max([0, *behind])
    delay_ms = _delay_ms(admin, group, topic, offsets)
    text = (
        f"UndoneMsgs [consumerGroup={group}, topic={topic}, undoneMsgsTotal={total}, "
        f"undoneMsgsSingleMQ={most}, undoneMsgsDelayTimeMills={delay_ms}]"
    )
    data = {
        "report": "undoneMsgs",
        "consumerGroup": group,
        "topic": topic,
        "undoneMsgsTotal": total,
        "undoneMsgsSingleMQ": most,
        "undoneMsgsDelayTimeMills": delay_ms,
    }
    return Report(safe_line(f"{PREFIX}reportUndoneMsgs: {text}"), data)


def _delay_ms(
    admin: AdminClient, group: str, topic: str, offsets: Mapping[MessageQueue, OffsetWrapper]
) -> int:
    """How much younger the newest message is than the newest consumed one, in the worst queue."""
    worst = 0
    try:
        puller = MessagePuller(admin, topic)
        for queue, offset in offsets.items():
            if offset.last_timestamp > 0 and (end := puller.max_offset(queue)) > 0:
                for message in puller.pull(queue, end - 1, 1).messages:
                    worst = max(worst, message.store_timestamp - offset.last_timestamp)
    except COMMAND_ERRORS as error:
        print_error(NAME, f"group {group}: cannot determine the delay in {topic}: {error}")
    return worst


def _problems(
    group: str, infos: Mapping[str, ConsumerRunningInfo], now_ms: int
) -> Iterator[Report]:
    heading = f"{NOTIFY}reportConsumerRunningInfo: ConsumerGroup: {group}, "
    if not same_subscription(infos, now_ms):
        data = {"report": "subscriptionDifferent", "consumerGroup": group}
        yield Report(safe_line(f"{heading}Subscription different"), data)
    for client_id, info in infos.items():
        if problems := queue_problems(client_id, info, now_ms):
            text = safe_line(f"{heading}ClientId: {client_id}, ") + "\n".join(problems)
            yield Report(
                text,
                {
                    "report": "processQueue",
                    "consumerGroup": group,
                    "clientId": client_id,
                    "problems": problems,
                },
            )


# -- offsets that were gone --------------------------------------------------------------------


def _moved_offsets(admin: AdminClient, positions: dict[MessageQueue, int]) -> Iterator[Report]:
    """The events since the round before; the first round only finds out where they end."""
    if admin.find_route(EVENT_TOPIC) is None:
        return
    puller = MessagePuller(admin, EVENT_TOPIC)
    for queue in puller.queues():
        end = puller.max_offset(queue)
        start = positions.get(queue, end)
        positions[queue] = end
        for _, result in puller.pull_range(queue, start, end):
            for message in result.messages:
                yield _moved_offset(message)


def _moved_offset(message: MessageExt) -> Report:
    event = OffsetMovedEvent.from_json_bytes(message.body)
    moved = (
        f"OffsetMovedEvent [consumerGroup={event.consumer_group}, "
        f"messageQueue={queue_text(event.message_queue)}, offsetRequest={event.offset_request}, "
        f"offsetNew={event.offset_new}]"
    )
    time_ms = message.store_timestamp
    text = f"DeleteMsgsEvent [offsetMovedEvent={moved}, eventTimestamp={time_ms}]"
    data: dict[str, Any] = {"report": "deleteMsgsEvent", "eventTimestamp": time_ms}
    return Report(safe_line(f"{PREFIX}reportDeleteMsgsEvent: {text}"), data | event.to_json())
