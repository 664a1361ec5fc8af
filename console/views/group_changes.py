"""What changes consumer groups: created, altered, deleted, their offsets reset.

Each says first what will happen; run with the reader's own account.

Tested by tests/console/test_topics_view.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from console.known_groups import GROUPS_OF
from console.lanes import ANSWER_ERRORS
from console.page import Action, ConsoleError, Done, Field, Query, Reader
from console.views.groups import lag_of
from console.views.topics import group_url
from remoting.body.client_connection import ConsumerConnection
from remoting.body.message_queue import MessageQueue
from remoting.body.subscription_group_config import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from remoting.request_code import RequestCode
from tools.admin_client import DLQ_PREFIX, RETRY_PREFIX, AdminClient
from tools.commands.group_admin import delete_group
from tools.commands.offset import reset_by_time
from tools.message_puller import MessagePuller


def _config(client: AdminClient, address: str, query: Query) -> SubscriptionGroupConfig:
    """For one broker: what the form leaves empty, and what it does not show, stays as it is."""
    group = query.needed("group")
    old = _old_config(client, address, group) or SubscriptionGroupConfig(group_name=group)
    can = {True: "true", False: "false"}[old.consume_enable]
    return replace(
        old,
        consume_enable=query.choice("consume", (can, "true", "false")) == "true",
        retry_queue_nums=query.number("retryQueues", old.retry_queue_nums, 0, 1_000),
        retry_max_times=query.number("retries", old.retry_max_times, -1, 1_000),
    )


def _old_config(client: AdminClient, address: str, group: str) -> SubscriptionGroupConfig | None:
    body = client.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    table = SubscriptionGroupWrapper.from_json_bytes(body).subscription_group_table
    return table.get(group)


def _group_words(config: SubscriptionGroupConfig) -> str:
    may = "may consume" if config.consume_enable else "may not consume"
    return f"{may}, {config.retry_max_times} retries, {config.retry_queue_nums} retry queues"


def _plan_group(reader: Reader, query: Query) -> list[str]:
    client, group, sentences = reader.client(), query.needed("group"), []
    for master in client.masters(query.needed("cluster")):
        old = _old_config(client, master.address, group)
        new = _group_words(_config(client, master.address, query))
        was = f"is created: {new}" if old is None else f"{_group_words(old)} become {new}"
        sentences.append(f"{master.broker_name}: group {group}: {was}.")
    return sentences


def _update_group(reader: Reader, query: Query) -> Done:
    client, group = reader.client(), query.needed("group")
    code, done, failed = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, [], []
    for master in client.masters(query.needed("cluster")):
        try:
            config = _config(client, master.address, query)
            client.call(master.address, code, body=config.to_json_bytes())
            done.append(master.broker_name)
        except ANSWER_ERRORS as error:
            failed.append(str(error))
    reader.lanes.forget(GROUPS_OF)
    sentences = [f"Group {group}: done at {', '.join(done) or 'no broker'}.", *failed]
    return Done(sentences, group_url(group), ok=not failed)


def _new_offsets(client: AdminClient, query: Query) -> list[tuple[MessageQueue, int | None, int]]:
    """Each queue of the topic with what the group has consumed, and where it would go on."""
    group, topic = query.needed("group"), query.needed("topic")
    when_ms = query.time_ms("time")
    if when_ms is None:
        raise ConsoleError("time is missing")
    known = client.consume_stats(group, topic).offset_table
    if not any(queue.topic == topic for queue in known):
        raise ConsoleError(f"group {group} has consumed nothing of topic {topic} yet")
    puller = MessagePuller(client, topic)
    return [
        (
            queue,
            known[queue].consumer_offset if queue in known else None,
            puller.search_offset(queue, when_ms),
        )
        for queue in puller.queues()
    ]


def _plan_reset(reader: Reader, query: Query) -> list[str]:
    found = _new_offsets(reader.client(), query)
    moved = sum(old - new for _, old, new in found if old is not None)
    words = f"{moved} messages are consumed again" if moved >= 0 else f"{-moved} are skipped"
    group, topic = query.needed("group"), query.needed("topic")
    sentences = [f"Group {group} goes on from there in topic {topic}: {words}."]
    for queue, old, new in found:
        was = "nothing consumed, goes on at" if old is None else f"{old} becomes"
        sentences.append(f"{queue.broker_name} queue {queue.queue_id}: {was} {new}.")
    return sentences


def _reset(reader: Reader, query: Query) -> Done:
    group, topic = query.needed("group"), query.needed("topic")
    when_ms = query.time_ms("time")
    if when_ms is None:
        raise ConsoleError("time is missing")
    data = reset_by_time(reader.client(), group, topic, when_ms).data
    who = "its members were told" if data["online"] else "nobody is online: set at the brokers"
    lines = [
        f"{row['brokerName']} queue {row['queueId']}: "
        f"{row.get('offset', row.get('rollbackOffset'))}."
        for row in data["queues"]
    ]
    return Done([f"Group {group}, topic {topic}: {who}.", *lines], group_url(group))


MOST_NAMED: Final = 10
"""Members that a plan names."""


def _plan_delete(reader: Reader, query: Query) -> list[str]:
    client, group = reader.client(), query.needed("group")
    names = ", ".join(master.broker_name for master in client.masters(query.needed("cluster")))
    offsets = (
        "Its offsets are removed: who consumes under its name again begins anew."
        if _removes_offsets(query)
        else "Its offsets stay: who consumes under its name again goes on from there."
    )
    retry, dead = (_count(client, prefix + group) for prefix in (RETRY_PREFIX, DLQ_PREFIX))
    return [
        f"Group {group} is deleted at {names}.",
        offsets,
        _online(client.find_consumer_connection(group)),
        f"It is {lag_of(client.consume_stats(group))} messages behind.",
        f"Its retry topic (messages: {retry}) and its dead-letter topic (messages: {dead}) are "
        "deleted with it, as mqadmin deleteSubGroup does.",
    ]


def _removes_offsets(query: Query) -> bool:
    return query.choice("removeOffset", ("false", "true")) == "true"


def _count(client: AdminClient, topic: str) -> int:
    """Messages of a topic; a group may have none of its own."""
    if client.find_route(topic) is None:
        return 0
    offsets = client.topic_stats(topic).offset_table.values()
    return sum(max(offset.max_offset - offset.min_offset, 0) for offset in offsets)


def _online(connection: ConsumerConnection | None) -> str:
    members = [] if connection is None else connection.connection_set
    if not members:
        return "Nobody is online."
    names = [member.client_id for member in members]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"{len(names)} online: {', '.join(names[:MOST_NAMED])}{more}. Stop them first: their next "
        "heartbeat makes the group anew where autoCreateSubscriptionGroup is true."
    )


def _delete(reader: Reader, query: Query) -> Done:
    group, cluster = query.needed("group"), query.needed("cluster")
    removes = _removes_offsets(query)
    try:
        data = delete_group(reader.client(), group, None, cluster, remove_offset=removes).data
    except ANSWER_ERRORS as error:
        raise ConsoleError(
            f"{error}. What was asked before that is done; delete it again"
        ) from error
    finally:
        reader.lanes.forget(GROUPS_OF)
    sentences = [
        f"Group {group} was deleted at {', '.join(data['brokerAddrs'])}"
        + (", with its offsets." if removes else "; its offsets stay."),
        f"Topics {' and '.join(data['topics'])} were deleted in cluster {cluster}.",
    ]
    return Done(sentences, "/groups")


_AS_IT_IS: Final = "Empty: as it is."
ACTIONS: Final = [
    Action(
        "updateGroup",
        "Create or change the group",
        [
            Field("group", "Group"),
            Field("cluster", "Cluster", default="DefaultCluster"),
            Field("consume", "May consume", "select", ("", "true", "false"), needed=False),
            Field("retries", "Retries", kind="number", needed=False, help=_AS_IT_IS),
            Field("retryQueues", "Retry queues", kind="number", needed=False, help=_AS_IT_IS),
        ],
        _plan_group,
        _update_group,
    ),
    Action(
        "resetOffset",
        "Reset the group's offsets",
        [
            Field("group", "Group"),
            Field("topic", "Topic"),
            Field("time", "To the time (UTC)", kind="datetime-local"),
        ],
        _plan_reset,
        _reset,
        is_destructive=True,
    ),
    Action(
        "deleteGroup",
        "Delete the group",
        [
            Field("group", "Group"),
            Field("cluster", "Cluster", default="DefaultCluster"),
            Field("removeOffset", "With its offsets", kind="checkbox", needed=False),
        ],
        _plan_delete,
        _delete,
        is_destructive=True,
    ),
]
