"""Queries for single messages: queryMsgById, ByKey, ByUniqueKey, ByOffset, and queryMsgTraceById:
who sent a message and who consumed it, as clients wrote it into the trace topic.

(Java: QueryMsgByIdSubCommand, QueryMsgByKeySubCommand, QueryMsgByUniqueKeySubCommand,
QueryMsgByOffsetSubCommand, QueryMsgTraceByIdSubCommand.)

Tested by tests/tools/test_mqadmin_reading.py.
"""

from __future__ import annotations

import codecs
import secrets
from collections.abc import Iterator
from typing import Annotated, Any, Final

import click

from remoting.body.consumer_running_info import ConsumeMessageDirectlyResult
from remoting.body.message_queue import MessageQueue
from remoting.headers.admin import ConsumeMessageDirectlyRequestHeader
from remoting.request_code import RequestCode
from tools.admin_client import TIMEOUT_MS, AdminClient
from tools.command_line import command, print_error
from tools.errors import AdminError
from tools.message_decoder import MessageExt
from tools.message_finder import (
    END_OF_TIME,
    MAX_BY_KEY,
    KeyQuery,
    find_by_queue_offset,
    query_messages,
    view_message,
)
from tools.message_sender import MessageSender
from tools.message_text import KEYS, TAGS, detail_lines, message_json, save_body, second_text
from tools.message_track import track_message
from tools.options import FLAG, NATURAL, POSITIVE, Topic
from tools.report import Column, Report, columns, safe_text, table
from tools.trace_data import PUB, SUB, TRACE_TOPIC, TraceView, decode_traces

KEY_COLUMNS: Final = columns("#Message ID msgId | #QID queueId > | #Offset queueOffset >")
MAX_BY_UNIQUE_KEY: Final = 32

_Client = Annotated[str | None, "-d --clientId", "Let this client consume it; needs -g."]
_Route = Annotated[str | None, "-c --cluster", "Ask the brokers of this cluster or topic instead."]
_Format = Annotated[str | None, "-f --bodyFormat", "Show the body, too, in this charset."]
_Group = Annotated[str | None, "-g --consumerGroup", "Consumer group name; needs -d."]


def _check_pair(group: str | None, client_id: str | None) -> None:
    if (group is None) != (client_id is None):
        raise click.UsageError("-g GROUP and -d CLIENT must be given together")


@command("queryMsgById")
def query_msg_by_id(
    admin: AdminClient,
    *,
    msg_ids: Annotated[str, "-i --msgId", "Offset ids, separated by commas."],
    group: _Group,
    client_id: _Client,
    resend: Annotated[bool, "-s --sendMessage", "Send it again."] = False,
    unit: Annotated[str | None, "-u --unitName", "Accepted as in RocketMQ; not used."],
    topic: Annotated[str | None, "-t --topic", "Accepted as in 5.x; the id says it."],
    cluster: Annotated[str | None, "-c --cluster", "Accepted as in 5.x; the id says the broker."],
    charset: _Format,
) -> Iterator[Report]:
    """Show messages, or with -g -d have them consumed, or with -s true send them again."""
    _check_pair(group, client_id)
    _check_charset(charset)
    found = [msg_id.strip() for msg_id in msg_ids.split(",") if msg_id.strip()]
    return _by_ids(admin, found, group, client_id, resend, charset)


def _by_ids(
    admin: AdminClient,
    msg_ids: list[str],
    group: str | None,
    client_id: str | None,
    resend: bool,
    charset: str | None,
) -> Iterator[Report]:
    for msg_id in msg_ids:
        message = view_message(admin, msg_id)
        if group is not None and client_id is not None:
            yield consume_directly(admin, message, group, client_id)
        elif resend:
            yield _send_again(admin, message)
        else:
            yield _detail(admin, message, charset=charset)


def _check_charset(charset: str | None) -> None:
    """Python's codecs are more than charsets: hex, idna and others do not take any bytes; since
    Python 3.13 punycode does."""
    try:
        b"\xff0".decode(charset or "utf-8", "replace")
        if codecs.lookup(charset or "utf-8").name == "punycode":
            raise LookupError(charset)
    except (LookupError, ValueError) as error:
        raise click.UsageError(f"-f: there is no charset {charset}") from error


def _detail(
    admin: AdminClient,
    message: MessageExt,
    *,
    with_offset_id: bool = True,
    charset: str | None = None,
) -> Report:
    """A message with its consumers; with a charset its body, too."""
    tracks = track_message(admin, message)
    body_path = _body_path(message)
    lines = detail_lines(message, body_path, with_offset_id=with_offset_id)
    if charset is not None:
        body = safe_text(message.body.decode(charset, "replace"))
        lines.append(f"{'Message Body:':<20} {body}")
    lines += (
        ["", "", *(str(track) for track in tracks)] if tracks else ["", "", "WARN: No Consumer"]
    )
    data = message_json(message) | {"messageTracks": [track.to_json() for track in tracks]}
    return Report("\n".join(lines), data)


def _body_path(message: MessageExt) -> str:
    """Where the body was saved, or why it was not; the message is shown in either case."""
    try:
        return str(save_body(message))
    except AdminError as error:
        return f"not saved: {error}"


def consume_directly(admin: AdminClient, message: MessageExt, group: str, client_id: str) -> Report:
    """Have one client consume one message now, through the broker that holds it."""
    header = ConsumeMessageDirectlyRequestHeader(
        consumer_group=group,
        client_id=client_id,
        msg_id=message.offset_msg_id,
        broker_name=message.broker_name or None,
        topic=message.topic,
    )
    response = admin.call(
        message.store_host,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        header,
        timeout_ms=3 * TIMEOUT_MS,
    )
    result = ConsumeMessageDirectlyResult.from_json_bytes(response.body)
    text = (
        f"ConsumeMessageDirectlyResult [order={str(result.order).lower()}, "
        f"autoCommit={str(result.auto_commit).lower()}, "
        f"consumeResult={result.consume_result or 'null'}, "
        f"remark={'null' if result.remark is None else result.remark}, "
        f"spentTimeMills={result.spent_time_mills}]"
    )
    return Report(safe_text(text), {"msgId": message.msg_id, **result.to_json()})


def _send_again(admin: AdminClient, message: MessageExt) -> Report:
    """The same body, tag and keys as a new message."""
    sender = MessageSender(admin, message.topic)
    result = sender.send(
        message.body,
        secrets.choice(sender.queues),
        tags=message.properties.get(TAGS),
        keys=message.properties.get(KEYS),
    )
    text = f"prepare resend msg. originalMsgId={message.offset_msg_id}\n{result}"
    return Report(text, result.to_json() | {"originalMsgId": message.offset_msg_id})


@command("queryMsgByKey")
def query_msg_by_key(
    admin: AdminClient,
    *,
    topic: Topic,
    key: Annotated[str, "-k --msgKey", "Message key."],
    begin_ms: Annotated[int, "-b --beginTimestamp", "Stored since, ms."] = 0,
    end_ms: Annotated[int, "-e --endTimestamp", "Until, ms."] = END_OF_TIME,
    count: Annotated[int, "-m --maxNum", POSITIVE] = MAX_BY_KEY,
    route_of: _Route,
) -> Report:
    """The messages with a key, oldest first."""
    query = KeyQuery(
        topic=topic,
        key=key,
        max_num=count,
        begin_ms=begin_ms,
        end_ms=end_ms,
        route_of=route_of,
    )
    messages = query_messages(admin, query)
    if not messages:
        raise AdminError(f"topic {topic} has no message with key {key}")
    rows = [(message.msg_id, message.queue_id, message.queue_offset) for message in messages]
    return Report(table(KEY_COLUMNS, rows).text, [message_json(message) for message in messages])


@command("queryMsgByUniqueKey")
def query_msg_by_unique_key(
    admin: AdminClient,
    msg_id: Annotated[str, "-i --msgId", "Unique key of the message."],
    topic: Topic,
    group: _Group,
    client_id: _Client,
    show_all: Annotated[bool, "-a --showAll", "All copies, not only the first.", FLAG],
    route_of: _Route,
) -> Iterator[Report]:
    """Show the message that a client sent with this id, or with -g -d have it consumed."""
    _check_pair(group, client_id)
    query = KeyQuery(
        topic=topic, key=msg_id, is_unique=True, max_num=MAX_BY_UNIQUE_KEY, route_of=route_of
    )
    messages = query_messages(admin, query)
    if not messages:
        raise AdminError(f"topic {topic} has no message with unique key {msg_id}")
    if group is not None and client_id is not None:
        return iter([consume_directly(admin, messages[0], group, client_id)])
    shown = messages if show_all else messages[:1]
    return (_detail(admin, message, with_offset_id=False) for message in shown)


@command("queryMsgByOffset")
def query_msg_by_offset(
    admin: AdminClient,
    topic: Topic,
    broker_name: Annotated[str, "-b --brokerName", "Broker name."],
    queue_id: Annotated[int, "-i --queueId", "Queue id.", NATURAL],
    offset: Annotated[int, "-o --offset", "Queue offset.", NATURAL],
    charset: _Format,
) -> Report:
    """Show the message at one place of a queue."""
    _check_charset(charset)
    queue = MessageQueue(broker_name=broker_name, queue_id=queue_id, topic=topic)
    return _detail(admin, find_by_queue_offset(admin, queue, offset), charset=charset)


def _columns(group: str, time: str) -> tuple[Column, ...]:
    return (
        Column("#Type", "type"),
        Column(group, "group"),
        Column("#ClientHost", "clientHost"),
        Column(time, "time"),
        Column("#CostTimes", "cost"),
        Column("#Status", "status"),
    )


PUB_COLUMNS: Final = _columns("#ProducerGroup", "#SendTime")
SUB_COLUMNS: Final = _columns("#ConsumerGroup", "#ConsumerTime")


@command("queryMsgTraceById")
def query_msg_trace_by_id(
    admin: AdminClient,
    msg_id: Annotated[str, "-i --msgId", "The message's unique key."],
    topic: Annotated[str, "-t --traceTopic", "Topic of the traces."] = TRACE_TOPIC,
    begin_ms: Annotated[int, "-b --beginTimestamp", "Stored since, ms."] = 0,
    end_ms: Annotated[int, "-e --endTimestamp", "Until, ms."] = END_OF_TIME,
    count: Annotated[int, "-c --maxNum", POSITIVE] = MAX_BY_KEY,
) -> Report:
    """A table for each time it was sent, then one for each group that consumed it."""
    views: list[TraceView] = []
    query = KeyQuery(topic=topic, key=msg_id, max_num=count, begin_ms=begin_ms, end_ms=end_ms)
    for message in query_messages(admin, query):
        found, damaged = decode_traces(msg_id, message)
        views += found
        if damaged:
            print_error("queryMsgTraceById", f"{message.msg_id}: {damaged} damaged traces left out")
    if not views:
        raise AdminError(f"topic {topic} has no trace of message {msg_id}")
    sent = [view for view in views if view.kind == PUB]
    tables = [table(PUB_COLUMNS, [_row(view)]).text for view in sent]
    consumed = [view for view in views if view.kind == SUB]
    for group in dict.fromkeys(view.group for view in consumed):
        rows = [_row(view) for view in consumed if view.group == group]
        tables.append(table(SUB_COLUMNS, rows).text)
    return Report("\n\n".join(tables), [_data(view) for view in sent + consumed])


def _row(view: TraceView) -> tuple[str, ...]:
    time = second_text(view.timestamp_ms)
    status = "success" if view.success else "failed"
    return view.kind, view.group, view.client_host, time, f"{view.cost_ms}ms", status


def _data(view: TraceView) -> dict[str, Any]:
    return {
        "type": view.kind,
        "group": view.group,
        "clientHost": view.client_host,
        "timestamp": view.timestamp_ms,
        "costTime": view.cost_ms,
        "success": view.success,
    }
