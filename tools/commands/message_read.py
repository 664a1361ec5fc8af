"""consumeMessage, printMsg and printMsgByQueue: messages of a topic in the order of its queues.

They read without moving any group's offset. (Java: ConsumeMessageCommand,
PrintMessageSubCommand, PrintMessageByQueueCommand.)
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

import click

from remoting.body.message_queue import MessageQueue
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.errors import AdminError
from tools.message_decoder import MessageExt
from tools.message_puller import TOOLS_GROUP, MessagePuller, PullResult
from tools.message_text import TAGS, message_json, message_line, parse_time, queue_text
from tools.options import NATURAL, POSITIVE, SHOW_DEFAULT, Topic
from tools.report import Report, safe_line

DEFAULT_COUNT: Final = 128
TIME_HELP: Final = "milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"
RULER: Final = "-" * 56


@command("consumeMessage")
def consume_message(
    admin: AdminClient,
    *,
    topic: Topic,
    broker_name: Annotated[str | None, "-b --brokerName", "Broker name."],
    queue_id: Annotated[int | None, "-i --queueId", "Queue id; needs -b.", NATURAL],
    offset: Annotated[int | None, "-o --offset", "Queue offset; needs -i.", NATURAL],
    group: Annotated[str, "-g --consumerGroup", "Consumer group name."] = TOOLS_GROUP,
    begin: Annotated[str | None, "-s --beginTimestamp", f"Not before: {TIME_HELP}."],
    end: Annotated[str | None, "-e --endTimestamp", f"Before: {TIME_HELP}."],
    count: Annotated[
        int, "-c --MessageNumber", "Number of messages.", POSITIVE, SHOW_DEFAULT
    ] = DEFAULT_COUNT,
) -> Iterator[Report]:
    """Messages of the whole topic, of one broker, of one queue, or from one offset on."""
    _check(broker_name, queue_id, offset)
    begin_ms, end_ms = _times(admin, begin, end)
    puller = MessagePuller(admin, topic, group)
    if queue_id is not None and broker_name is not None:
        queues = [puller.queue(broker_name, queue_id)]
    else:
        queues = [q for q in puller.queues() if broker_name in (None, q.broker_name)]
    if not queues:
        raise AdminError(f"topic {topic} has no readable queue at broker {broker_name}")
    return _consume(puller, queues, offset, (begin_ms, end_ms), count)


def _check(broker_name: str | None, queue_id: int | None, offset: int | None) -> None:
    if queue_id is not None and broker_name is None:
        raise click.UsageError("-i QUEUE needs the broker's name too: -b NAME")
    if offset is not None and queue_id is None:
        raise click.UsageError("-o OFFSET needs the queue too: -i QUEUE")


def _times(admin: AdminClient, begin: str | None, end: str | None) -> tuple[int | None, int | None]:
    begin_ms = None if begin is None else parse_time(begin)
    end_ms = None if end is None else parse_time(end)
    now_ms = admin.now_ms()
    if begin_ms is not None and begin_ms > now_ms:
        raise click.UsageError("-s: the begin time is in the future")
    if end_ms is not None and end_ms > now_ms:
        raise click.UsageError("-e: the end time is in the future")
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise click.UsageError("-s, -e: the begin time is after the end time")
    return begin_ms, end_ms


def _consume(
    puller: MessagePuller,
    queues: list[MessageQueue],
    offset: int | None,
    times: tuple[int | None, int | None],
    count: int,
) -> Iterator[Report]:
    left = count
    for queue in queues:
        if left == 0:
            return
        first, last = puller.bounds(queue, *times)
        if offset is not None:
            if offset >= last:
                yield Report(f"{queue_text(queue)} no matched msg, offset={offset}")
                return
            first = max(first, offset)
        if last - first > left:
            yield Report(f"The older {left} message of the {queue.queue_id} queue will be provided")
            last = first + left
        for start, result in puller.pull_range(queue, first, last):
            yield from _result_reports(queue, start, result)
            left -= len(result.messages)


def _result_reports(queue: MessageQueue, start: int, result: PullResult) -> Iterator[Report]:
    if result.status == "FOUND":
        yield Report("Consume ok")
        for message in result.messages:
            line = message_line(message, charset="utf-8", with_body=True)
            yield Report(line, message_json(message))
    else:
        yield _nothing(queue, start, result)


def _nothing(queue: MessageQueue, start: int, result: PullResult) -> Report:
    """Why a pull brought no message."""
    what = "no matched msg." if result.status == "NO_MATCHED_MSG" else "print msg finished."
    return Report(f"{queue_text(queue)} {what} status={result.status}, offset={start}")


_Charset = Annotated[str, "-c --charsetName", "Charset (UTF-8, GBK)."]
_Expression = Annotated[str, "-s --subExpression", "Tags: TagA || TagB."]
_Begin = Annotated[str | None, "-b --beginTimestamp", f"Not before: {TIME_HELP}."]
_End = Annotated[str | None, "-e --endTimestamp", f"Before: {TIME_HELP}."]


@command("printMsg")
def print_msg(
    admin: AdminClient,
    *,
    topic: Topic,
    charset: _Charset = "UTF-8",
    expression: _Expression = "*",
    begin: _Begin,
    end: _End,
    with_body: Annotated[bool, "-d --printBody", "Print bodies."] = True,
) -> Iterator[Report]:
    """Every message of a topic, queue after queue."""
    _check_charset(charset)
    begin_ms = None if begin is None else parse_time(begin)
    end_ms = None if end is None else parse_time(end)
    puller = MessagePuller(admin, topic)
    return _print(puller, expression, (begin_ms, end_ms), charset if with_body else None)


def _check_charset(charset: str) -> None:
    try:
        codecs.lookup(charset)
    except LookupError as error:
        raise click.UsageError(f"-c: unknown charset {charset}") from error


def _print(
    puller: MessagePuller,
    expression: str,
    times: tuple[int | None, int | None],
    charset: str | None,
) -> Iterator[Report]:
    """`charset` None leaves the bodies out."""
    for queue in puller.queues():
        first, last = puller.bounds(queue, *times)
        yield Report(f"minOffset={first}, maxOffset={last}, {queue_text(queue)}")
        for start, result in puller.pull_range(queue, first, last, expression):
            if result.status != "FOUND":
                yield _nothing(queue, start, result)
            for message in result.messages:
                yield _message_report(message, charset)
        yield Report(RULER)


def _message_report(message: MessageExt, charset: str | None) -> Report:
    """`charset` None leaves the body out."""
    data = message_json(message)
    if charset is None:
        data = {key: value for key, value in data.items() if key[:4] != "body"}
    line = message_line(message, charset=charset or "utf-8", with_body=charset is not None)
    return Report(line, data)


@command("printMsgByQueue")
def print_msg_by_queue(
    admin: AdminClient,
    *,
    topic: Topic,
    broker_name: Annotated[str, "-a --brokerName", "Broker name."],
    queue_id: Annotated[int, "-i --queueId", "Queue id.", NATURAL],
    charset: _Charset = "UTF-8",
    expression: _Expression = "*",
    begin: _Begin,
    end: _End,
    with_messages: Annotated[bool, "-p --print", "Print messages."] = False,
    with_body: Annotated[bool, "-d --printBody", "Print bodies."] = False,
    with_tags: Annotated[bool, "-f --calculate", "Count by tag."] = False,
) -> Iterator[Report]:
    """The messages of one queue, how many have which tag, or both."""
    if not with_messages and not with_tags:
        raise click.UsageError("one of -p true (print) and -f true (count by tag) is needed")
    _check_charset(charset)
    begin_ms = None if begin is None else parse_time(begin)
    end_ms = None if end is None else parse_time(end)
    puller = MessagePuller(admin, topic)
    queue = puller.queue(broker_name, queue_id)
    first, last = puller.bounds(queue, begin_ms, end_ms)
    messages = (
        message
        for _, result in puller.pull_range(queue, first, last, expression)
        for message in result.messages
    )
    shown_charset = charset if with_body else None
    return _print_queue(messages, shown_charset, with_messages=with_messages, with_tags=with_tags)


def _print_queue(
    messages: Iterable[MessageExt], charset: str | None, *, with_messages: bool, with_tags: bool
) -> Iterator[Report]:
    tags: Counter[str] = Counter()
    for message in messages:
        tag = message.properties.get(TAGS, "")
        if tag.strip():
            tags[tag] += 1
        if with_messages:
            yield _message_report(message, charset)
    for tag, count in tags.most_common() if with_tags else ():
        yield Report(f"Tag: {safe_line(tag):<30} Count: {count}", {"tag": tag, "count": count})
