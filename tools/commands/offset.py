"""Moving the offsets of groups: resetOffsetByTime, skipAccumulatedMessage, cloneGroupOffset.

(Java: ResetOffsetByTimeCommand, ResetOffsetByTimeOldCommand, SkipAccumulationSubCommand,
CloneGroupOffsetCommand.)

Tested by tests/tools/test_mqadmin_offsets.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import ResetOffsetBody
from remoting.body.route import TopicRouteData
from remoting.body.stats import ConsumeStats, OffsetWrapper, TopicStatsTable
from remoting.headers.admin import GetConsumeStatsRequestHeader, ResetOffsetRequestHeader
from remoting.headers.consumer import UpdateConsumerOffsetRequestHeader
from remoting.headers.topic import GetTopicStatsInfoRequestHeader
from remoting.language_code import LanguageCode
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import AdminClient, addresses, broker_address
from tools.command_line import command
from tools.errors import AdminError, BrokerAnswerError
from tools.message_puller import MessagePuller, readable_queues
from tools.message_text import parse_time
from tools.options import FLAG, Topic
from tools.report import Report, columns, table

END: Final = -1
"""The timestamp that stands for the end of the queue."""

RESET_COLUMNS: Final = columns("#brokerName brokerName | #queueId queueId | #offset offset")
ROLLBACK_COLUMNS: Final = columns(
    "#brokerName brokerName | #queueId queueId | #brokerOffset brokerOffset | "
    "#consumerOffset consumerOffset | #timestampOffset timestampOffset | "
    "#rollbackOffset rollbackOffset"
)

_Group = Annotated[str, "-g --group", "Consumer group name."]
_Force = Annotated[bool, "-f --force", "false: move offsets back only [true]."]


@dataclass(frozen=True, slots=True)
class _Reset:
    """The requested reset of a group's offsets; timestamp in milliseconds or END."""

    group: str
    topic: str
    timestamp_ms: int
    force: bool
    for_cpp: bool = False


# -- resetOffsetByTime and skipAccumulatedMessage ----------------------------------------------


@command(
    "resetOffsetByTime",
    asks="Set the offsets of group {group} in topic {topic} to time {timestamp}?",
)
def reset_offset_by_time(
    admin: AdminClient,
    *,
    group: _Group,
    topic: Topic,
    timestamp: Annotated[str, "-s --timestamp", "now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS."],
    force: _Force = True,
    cplus: Annotated[bool, "-c --cplus", "The consumers are C++ clients.", FLAG],
) -> Report:
    """Reset through the consumers while they are online, else in the broker's table."""
    time_ms = END if timestamp == "now" else parse_time(timestamp)
    reset = _Reset(group, topic, time_ms, force, for_cpp=cplus)
    name, report = _reset_offsets(admin, reset)
    heading = (
        f"rollback consumer offset by specified {name}[{group}], topic[{topic}], "
        f"force[{str(force).lower()}], timestamp(string)[{timestamp}], timestamp(long)[{time_ms}]"
    )
    return Report(f"{heading}\n{report.text}", report.data)


@command(
    "skipAccumulatedMessage",
    asks="Skip everything in topic {topic} that group {group} has not consumed?",
)
def skip_accumulated_message(
    admin: AdminClient, group: _Group, topic: Topic, force: _Force = True
) -> Report:
    """As a reset to the end of every queue."""
    return _reset_offsets(admin, _Reset(group, topic, END, force))[1]


def reset_by_time(admin: AdminClient, group: str, topic: str, timestamp_ms: int) -> Report:
    """As resetOffsetByTime, forwards and back; for other users than the command."""
    return _reset_offsets(admin, _Reset(group, topic, timestamp_ms, force=True))[1]


def _reset_offsets(admin: AdminClient, reset: _Reset) -> tuple[str, Report]:
    """RocketMQ's name for the group in its heading, and the queues with their offsets."""
    route = admin.route(reset.topic)
    try:
        return "group", _reset_online(admin, reset, route)
    except BrokerAnswerError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
    return "consumerGroup", _reset_offline(admin, reset, route)


def _reset_online(admin: AdminClient, reset: _Reset, route: TopicRouteData) -> Report:
    """Each broker notifies the live members of the group, which then continue from there."""
    header = ResetOffsetRequestHeader(
        topic=reset.topic,
        group=reset.group,
        timestamp=reset.timestamp_ms,
        is_force=reset.force,
    )
    language = LanguageCode.CPP if reset.for_cpp else LanguageCode.PYTHON
    offsets: dict[MessageQueue, int] = {}
    for address in addresses(route):
        response = admin.call(
            address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, language=language
        )
        if response.body:
            offsets |= ResetOffsetBody.from_json_bytes(response.body).offset_table
    rows = [(queue.broker_name, queue.queue_id, offset) for queue, offset in offsets.items()]
    report = table(RESET_COLUMNS, sorted(rows))
    return Report(report.text, _data(reset, report.data, online=True))


def _data(reset: _Reset, queues: Any, *, online: bool) -> dict[str, Any]:
    return {
        "group": reset.group,
        "topic": reset.topic,
        "force": reset.force,
        "timestamp": reset.timestamp_ms,
        "online": online,
        "queues": queues,
    }


def _reset_offline(admin: AdminClient, reset: _Reset, route: TopicRouteData) -> Report:
    """No member is online: set the offsets in the broker, where consumers find them at start."""
    puller = MessagePuller(admin, reset.topic)
    rows = [
        _roll_back(admin, puller, reset, address, queue, offset)
        for data in route.broker_datas
        if (address := broker_address(data)) is not None
        for queue, offset in _known_offsets(admin, reset, route, address, data.broker_name)
    ]
    report = table(ROLLBACK_COLUMNS, sorted(rows))
    return Report(report.text, _data(reset, report.data, online=False))


def _known_offsets(
    admin: AdminClient, reset: _Reset, route: TopicRouteData, address: str, broker_name: str
) -> list[tuple[MessageQueue, OffsetWrapper]]:
    """The group's progress at one broker; without progress, the start of every queue.

    AdminError when the broker's answer lacks a queue of the route.
    """
    stats_header = GetConsumeStatsRequestHeader(consumer_group=reset.group)
    body = admin.call(address, RequestCode.GET_CONSUME_STATS, stats_header).body
    stats = ConsumeStats.from_json_bytes(body).offset_table
    found = [(queue, offset) for queue, offset in stats.items() if queue.topic == reset.topic]
    if found:
        return found
    topic_header = GetTopicStatsInfoRequestHeader(topic=reset.topic)
    body = admin.call(address, RequestCode.GET_TOPIC_STATS_INFO, topic_header).body
    offsets = TopicStatsTable.from_json_bytes(body).offset_table
    queues = [q for q in readable_queues(route, reset.topic) if q.broker_name == broker_name]
    missing = [queue.queue_id for queue in queues if queue not in offsets]
    if missing:
        raise AdminError(f"{address} has no statistics of {reset.topic}, queues {missing}")
    return [
        (
            queue,
            OffsetWrapper(
                broker_offset=offsets[queue].max_offset, consumer_offset=offsets[queue].min_offset
            ),
        )
        for queue in queues
    ]


def _roll_back(
    admin: AdminClient,
    puller: MessagePuller,
    reset: _Reset,
    address: str,
    queue: MessageQueue,
    offset: OffsetWrapper,
) -> tuple[Any, ...]:
    """Set one queue's offset, but forward only with `force`; the row of the table."""
    if reset.timestamp_ms == END:
        target = puller.max_offset(queue)
    else:
        target = puller.search_offset(queue, reset.timestamp_ms)
    reached = offset.consumer_offset
    if reset.force or target <= offset.consumer_offset:
        set_offset(admin, address, reset.group, queue, target)
        reached = target
    facts = (queue.broker_name, queue.queue_id, offset.broker_offset, offset.consumer_offset)
    return (*facts, target, reached)


def set_offset(
    admin: AdminClient, address: str, group: str, queue: MessageQueue, offset: int
) -> None:
    """Put a group's offset into the broker's table."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        bname=queue.broker_name,
    )
    admin.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


# -- cloneGroupOffset --------------------------------------------------------------------------


@command(
    "cloneGroupOffset",
    asks="Overwrite the offsets of group {destination} in topic {topic} with {source}'s?",
)
def clone_group_offset(
    admin: AdminClient,
    source: Annotated[str, "-s --srcGroup", "Group to copy from."],
    destination: Annotated[str, "-d --destGroup", "Group to copy to."],
    topic: Topic,
    offline: Annotated[bool, "-o --offline", "Accepted as in RocketMQ; not used."] = False,
) -> Report:
    """Copy a group's offsets in one topic; RocketMQ copies its other topics along."""
    route = admin.route(topic)
    found = {
        queue: stats.consumer_offset
        for queue, stats in admin.consume_stats(source).offset_table.items()
        if queue.topic == topic and stats.consumer_offset >= 0
    }
    if not found:
        raise AdminError(f"group {source} has no offsets in topic {topic}")
    rows = []
    for queue in sorted(found, key=lambda queue: (queue.broker_name, queue.queue_id)):
        address = admin.broker_of(route, queue.broker_name)
        set_offset(admin, address, destination, queue, found[queue])
        rows.append((queue.broker_name, queue.queue_id, found[queue]))
    text = (
        f"clone group offset success. srcGroup[{source}], destGroup=[{destination}], topic[{topic}]"
    )
    names = {"srcGroup": source, "destGroup": destination, "topic": topic}
    return Report(text, names | {"queues": table(RESET_COLUMNS, rows).data})
