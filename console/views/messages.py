"""Messages: the newest of a topic, by key, by id, by place; one message with its body and its life.

A peek never moves an offset: nothing here joins a group or commits. Bodies are for signed-in
readers only.

Tested by tests/console/test_server.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

from console.lanes import ANSWER_ERRORS, Question
from console.page import Action, ConsoleError, Done, Field, Page, Query, Reader, View
from console.tables import Table, TableCell, badge, link, moment
from remoting.body.message_queue import MessageQueue
from tools.admin_client import AdminClient
from tools.commands.ha_status import size_text
from tools.message_body import decode_body
from tools.message_decoder import MessageExt
from tools.message_finder import (
    Found,
    KeyQuery,
    find_by_key,
    find_by_offset_id,
    find_by_queue_offset,
    find_newest,
)
from tools.message_puller import TimeSpan
from tools.message_sender import MessageSender
from tools.message_text import KEYS, TAGS, message_json
from tools.message_track import track_message
from tools.report import columns
from tools.trace_timeline import Timeline, timeline

MESSAGES: Final = columns(
    "Message id msgId | Stored storeTimestamp | Broker brokerName | Queue queueId > | "
    "Offset queueOffset > | Keys keys | Tags tags | Size bodySize > | Body body"
)
PROPERTIES: Final = columns("Property name | Value value")
TRACKS: Final = columns("Group consumerGroup | Consumed trackType | Why exceptionDesc")
STEPS: Final = columns(
    "When timestamp | What what | Who who | Where where | Took(ms) durationMs > | "
    "Success success | Detail detail"
)
MOST: Final = 100
WIDEST: Final = 1_000
PREVIEW_CHARS: Final = 120
MAX_BODY: Final = 1 << 20
"""A page shows 64 KiB; so much is read, to tell what kind of body it is."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_HEX_ID: Final = frozenset("0123456789abcdefABCDEF")


def messages(reader: Reader, query: Query) -> Page:
    """The newest messages of a topic, within a time if one is given, or those under a key.

    topic; key: instead of the newest; from, to: when they were stored; count.
    """
    reader.must_sign_in("messages")
    topic, key = query.text("topic"), query.text("key")
    times = TimeSpan(query.time_ms("from"), query.time_ms("to"))
    count = query.number("count", 32, 1, WIDEST)
    found = Found()
    if topic and key:
        found = reader.look(_by_key(topic, key, times))
    elif topic:
        found = reader.look(_newest(topic, count, times))
    rows = [_row(message) for message in found.messages]
    return Page(
        context={
            "topic": topic,
            "key": key,
            "count": count,
            "from_text": query.text("from"),
            "to_text": query.text("to"),
            "problems": found.problems,
        },
        tables=[
            Table(
                "messages",
                f"Messages of {topic}" if topic else "Messages",
                MESSAGES,
                rows,
                empty_text="Name a topic." if not topic else "There is none.",
            )
        ],
    )


def _newest(topic: str, count: int, times: TimeSpan) -> Question[Found]:
    key = ("newest", topic, count, times)
    return Question(key, lambda client, _: find_newest(client, topic, count, times=times))


def _by_key(topic: str, key: str, times: TimeSpan) -> Question[Found]:
    asked = KeyQuery(topic=topic, key=key, begin_ms=times.begin_ms or 0)
    if times.end_ms is not None:
        asked = replace(asked, end_ms=times.end_ms)
    return Question(("key", asked), lambda client, _: find_by_key(client, asked, max_body=4096))


def _row(message: MessageExt) -> list[object]:
    preview = decode_body(message.body, is_whole=False, shown_chars=PREVIEW_CHARS).text
    return [
        link(message.msg_id, place_url(message)),
        moment(message.store_timestamp),
        message.broker_name,
        message.queue_id,
        message.queue_offset,
        message.properties.get(KEYS),
        message.properties.get(TAGS),
        TableCell(size_text(message.stored_body_size), message.stored_body_size),
        " ".join(preview.split()),
    ]


def place_url(message: MessageExt) -> str:
    """The page of a message, by the place that it has in its queue."""
    place = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
    }
    return "/message?" + urlencode(place, errors="replace")


# -- one message -----------------------------------------------------------------------------------


def message_page(reader: Reader, query: Query) -> Page:
    """One message: properties, decoded body, who consumed it, and its life by its traces.

    id: an offset id, or a unique key with topic; or topic, broker, queue, offset.
    """
    reader.must_sign_in("messages")
    message = reader.look(_one(query))
    body = decode_body(message.body, is_whole=message.body_note is None)
    life, problem = _life(reader, message)
    tracks = reader.look(
        Question(
            ("tracks", message.topic, message.msg_id, message.queue_offset),
            lambda client, _: track_message(client, message),
        )
    )
    return Page(
        title=message.msg_id,
        context={
            "message": message,
            "body": body,
            "problem": problem,
            "damaged": life.damaged,
            "crumbs": [(message.topic, "/messages?" + urlencode({"topic": message.topic}))],
        },
        tables=[
            Table(
                "properties",
                "Properties",
                PROPERTIES,
                [[name, value] for name, value in message.properties.items()],
                empty_text="It has none.",
            ),
            Table(
                "tracks",
                "Who consumed it",
                TRACKS,
                [
                    [track.consumer_group, badge(track.track_type), track.exception_desc]
                    for track in tracks
                ],
                empty_text="No group consumes its topic.",
            ),
            Table("life", "Its life", STEPS, _steps(life), empty_text="No trace tells of it."),
        ],
        data={
            **message_json(message),
            "tracks": [track.to_json() for track in tracks],
            "timeline": [step.to_json() for step in life.steps],
        },
    )


def _one(query: Query) -> Question[MessageExt]:
    """How the message that a URL names is found."""
    one, topic = query.text("id"), query.text("topic")
    if one and len(one) in (32, 56) and set(one) <= _HEX_ID and not topic:
        return Question(
            ("id", one), lambda client, _: find_by_offset_id(client, one, max_body=MAX_BODY)
        )
    if one:
        if not topic:
            raise ConsoleError("A unique key is found within a topic: name it, too.")
        return Question(("unique", topic, one), lambda client, _: _unique(client, topic, one))
    queue = MessageQueue(
        topic=query.needed("topic"),
        broker_name=query.needed("broker"),
        queue_id=query.number("queue", 0, 0, (1 << 31) - 1),
    )
    offset = query.number("offset", 0, 0, (1 << 63) - 1)
    return Question(
        ("place", queue.topic, queue.broker_name, queue.queue_id, offset),
        lambda client, _: find_by_queue_offset(client, queue, offset, max_body=MAX_BODY),
    )


def _unique(client: AdminClient, topic: str, one: str) -> MessageExt:
    found = find_by_key(client, KeyQuery(topic=topic, key=one, is_unique=True), max_body=MAX_BODY)
    if not found.messages:
        why = "; ".join(found.problems)
        raise ConsoleError(f"Topic {topic} has no message {one}. {why}".strip(), 404)
    return found.messages[-1]


def _life(reader: Reader, message: MessageExt) -> tuple[Timeline, str]:
    """Its steps, and why there are no traces: without them its storing alone is known."""
    asked = KeyQuery(topic=TRACE_TOPIC, key=message.msg_id)
    question: Question[Found] = Question(
        ("traces", message.msg_id), lambda client, _: find_by_key(client, asked)
    )
    try:
        traces = reader.look(question)
    except (ConsoleError, *ANSWER_ERRORS) as error:
        return timeline(message.msg_id, (), message), f"Traces cannot be read: {error}"
    return timeline(message.msg_id, traces.messages, message), "; ".join(traces.problems)


def _steps(life: Timeline) -> list[list[object]]:
    return [
        [
            moment(step.time_ms),
            step.what,
            step.who,
            step.where,
            step.duration_ms,
            None if step.success is None else badge("done" if step.success else "failed"),
            step.detail,
        ]
        for step in life.steps
    ]


# -- sending ---------------------------------------------------------------------------------------


def _plan_send(reader: Reader, query: Query) -> list[str]:
    topic, body = query.needed("topic"), query.fields.get("body", "")
    client = reader.client()
    known = client.find_route(topic) is not None
    size = len(body.encode("utf-8", "replace"))
    sentences = [f"One message of {size_text(size)} is sent to topic {topic}."]
    if not known:
        sentences.append("The topic does not exist: a broker creates it, if it may.")
    return sentences


def _send(reader: Reader, query: Query) -> Done:
    topic = query.needed("topic")
    sender = MessageSender(reader.client(), topic)
    queue = sender.queues[reader.now_ms % len(sender.queues)]
    result = sender.send(
        query.fields.get("body", "").encode("utf-8", "replace"),
        queue,
        tags=query.text("tags") or None,
        keys=query.text("keys") or None,
    )
    place: dict[str, Any] = {
        "topic": topic,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
    }
    return Done(
        [f"{result.send_status}: message {result.msg_id}."],
        "/message?" + urlencode(place),
        ok=result.send_status == "SEND_OK",
    )


VIEWS: Final = [
    View("/messages", "Messages", "Messages", "messages.html.j2", messages),
    View("/message", "Message", "", "message.html.j2", message_page),
]
ACTIONS: Final = [
    Action(
        "sendMessage",
        "Send the message",
        [
            Field("topic", "Topic"),
            Field("tags", "Tags", needed=False),
            Field("keys", "Keys", needed=False, help="Between blanks."),
            Field("body", "Body", kind="textarea", needed=False),
        ],
        _plan_send,
        _send,
    )
]
