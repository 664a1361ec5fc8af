"""One member of a consumer group: who it is, and what it says of itself: queues, rates, its stack.

A broker hands the question (307) on to the client; clients in other languages than Java often do
not answer it. The stack is asked for on its own page, by who is signed in: a client stops for it.

Tested by tests/console/test_group_page.py.
"""

from __future__ import annotations

from typing import Final

from conf.secret_names import HIDDEN, without_secret
from console.cells import rate_cell, whole
from console.group_answers import Members, Running, members, running
from console.lanes import Question
from console.page import ConsoleError, Page, Query, Reader, View
from console.tables import Table, link, moment
from console.views.groups import client_url
from console.views.topics import group_url, topic_url
from remoting.body.client_connection import Connection
from remoting.body.consumer_running_info import (
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from remoting.body.message_queue import MessageQueue
from remoting.mq_version import version_name
from tools.commands.consumer_status import running_info_json
from tools.report import columns, safe_text

AGE_MS: Final = 10_000
QUEUES: Final = columns(
    "Topic topic | Broker brokerName | Queue queueId > | Committed commitOffset > | "
    "Held back cachedMsgCount > | MiB cachedMsgSizeInMiB > | From cachedMsgMinOffset > | "
    "To cachedMsgMaxOffset > | State state | Last pull lastPullTimestamp | "
    "Last consumed lastConsumeTimestamp"
)
RATES: Final = columns(
    "Topic topic | Pulled/s pullTPS > | Pull(ms) pullRT > | Consumed/s consumeOKTPS > | "
    "Consume(ms) consumeRT > | Failed/s consumeFailedTPS > | Failed in an hour consumeFailedMsgs >"
)
SUBSCRIPTIONS: Final = columns("Topic topic | Filter subString")
PROPERTIES: Final = columns("Property key | Value value")


def client(reader: Reader, query: Query) -> Page:
    """A member of a group: version, language, address, queues, rates, subscriptions, properties.

    id: the client; group.
    """
    client_id, group = query.needed("id"), query.needed("group")
    online, member = _online(reader, group, client_id)
    told = _running(reader, online, running(group, client_id))
    info = told.info
    return Page(
        title=client_id,
        context={
            "id": client_id,
            "group": group,
            "member": member,
            "version": version_name(member.version),
            "problem": told.problem,
            "cut": told.cut,
            "stack_url": client_url(group, client_id).replace("/client?", "/client/stack?", 1),
            "is_signed_in": reader.account is not None,
            "crumbs": [("Consumer groups", "/groups"), (group, group_url(group))],
        },
        tables=[
            Table(
                "queues",
                "Queues that it has",
                QUEUES,
                [_queue(queue, state) for queue, state in info.mq_table.items()],
                empty_text="It tells of none.",
            ),
            Table(
                "rates",
                "Rates",
                RATES,
                [_rates(topic, status) for topic, status in info.status_table.items()],
                empty_text="It tells of none.",
            ),
            Table(
                "subscriptions",
                "Subscriptions",
                SUBSCRIPTIONS,
                [
                    [link(one.topic, topic_url(one.topic)), one.sub_string]
                    for one in info.subscription_set
                ],
                empty_text="It tells of none.",
            ),
            Table(
                "properties",
                "Properties",
                PROPERTIES,
                [[key, shown_property(key, value)] for key, value in info.properties.items()],
                empty_text="It tells of none.",
            ),
        ],
        data=_data(info),
    )


def stack(reader: Reader, query: Query) -> Page:
    """The stacks of a member's threads, now.

    id: the client; group.
    """
    reader.must_sign_in("the stack of a client")
    client_id, group = query.needed("id"), query.needed("group")
    online, _ = _online(reader, group, client_id)
    question = running(group, client_id, with_jstack=True)
    told = _running(reader, online, question)
    text = told.info.jstack
    return Page(
        title=f"Stack of {client_id}",
        context={
            "id": client_id,
            "problem": told.problem,
            "cut": told.cut,
            "stack": None if text is None else safe_text(text),
            "crumbs": [
                ("Consumer groups", "/groups"),
                (group, group_url(group)),
                (client_id, client_url(group, client_id)),
            ],
        },
        data={"jstack": text},
    )


def _running(reader: Reader, online: Members, question: Question[Running]) -> Running:
    answer = reader.ask(online.address, question, AGE_MS)
    return answer.value or Running(problem=answer.error)


def _online(reader: Reader, group: str, client_id: str) -> tuple[Members, Connection]:
    online = members(reader, group, AGE_MS)
    known = [] if online.connection is None else online.connection.connection_set
    for member in known:
        if member.client_id == client_id:
            return online, member
    if online.problem is not None:
        raise ConsoleError(online.problem, 502)
    raise ConsoleError(f"no client {client_id} of group {group} is online", 404)


def _queue(queue: MessageQueue, state: ProcessQueueInfo) -> list[object]:
    states = {"locked": state.locked, "dropped": state.droped}
    return [
        link(queue.topic, topic_url(queue.topic)),
        queue.broker_name,
        queue.queue_id,
        state.commit_offset,
        state.cached_msg_count,
        state.cached_msg_size_in_mi_b,
        state.cached_msg_min_offset,
        state.cached_msg_max_offset,
        ", ".join(word for word, is_so in states.items() if is_so) or None,
        moment(state.last_pull_timestamp),
        moment(state.last_consume_timestamp),
    ]


def _rates(topic: str, status: ConsumeStatus) -> list[object]:
    return [
        link(topic, topic_url(topic)),
        rate_cell(status.pull_tps),
        rate_cell(status.pull_rt),
        rate_cell(status.consume_oktps),
        rate_cell(status.consume_rt),
        rate_cell(status.consume_failed_tps),
        whole(status.consume_failed_msgs),
    ]


def shown_property(key: str, value: str) -> str:
    """A property; of a secret, and of a proxy that has one in its value, only that it is there."""
    return HIDDEN if "passw" in value.casefold() else without_secret(key, value)


def _data(info: ConsumerRunningInfo) -> object:
    """As consumerStatus -i prints it, without secrets."""
    tree = running_info_json(info)
    tree["properties"] = {key: shown_property(key, value) for key, value in info.properties.items()}
    return tree


VIEWS: Final = [
    View("/client", "Client", "", "client.html.j2", client),
    View("/client/stack", "Stack of a client", "", "client_stack.html.j2", stack),
]
