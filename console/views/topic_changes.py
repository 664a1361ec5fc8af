"""What changes topics: created, altered, deleted.

Each says first what will happen; run with the reader's own account.

Tested by tests/console/test_topics_view.py.
"""

from __future__ import annotations

from typing import Final

from console.lanes import ANSWER_ERRORS
from console.page import Action, Done, Field, Query, Reader
from console.views.topics import PERMISSIONS, topic_url
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper
from remoting.headers.topic import CreateTopicRequestHeader
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.message_sender import TEMPLATE_TOPIC
from tools.removal import delete_topic

MAX_QUEUES: Final = 65_536


def _header(query: Query, old: TopicConfig | None) -> CreateTopicRequestHeader:
    """The request for one broker: what the form leaves empty stays as it is there."""
    topic = query.needed("topic")
    before = old or TopicConfig(topic_name=topic, read_queue_nums=8, write_queue_nums=8)
    return CreateTopicRequestHeader(
        topic=topic,
        default_topic=TEMPLATE_TOPIC,
        read_queue_nums=query.number("readQueues", before.read_queue_nums, 1, MAX_QUEUES),
        write_queue_nums=query.number("writeQueues", before.write_queue_nums, 1, MAX_QUEUES),
        perm=int(query.choice("perm", (str(before.perm), "6", "4", "2"))),
        topic_filter_type=before.topic_filter_type.value,
        topic_sys_flag=before.topic_sys_flag,
        order=before.order,
        attributes=query.text("attributes") or None,
    )


def _config(client: AdminClient, address: str, topic: str) -> TopicConfig | None:
    """How a broker has a topic; None when it does not have it."""
    body = client.call(address, RequestCode.GET_ALL_TOPIC_CONFIG).body
    return TopicConfigSerializeWrapper.from_json_bytes(body).topic_config_table.get(topic)


def _words(reads: int, writes: int, perm: int) -> str:
    return f"{reads} read and {writes} write queues, {PERMISSIONS.get(perm, perm)}"


def _plan_update(reader: Reader, query: Query) -> list[str]:
    client, topic, sentences = reader.client(), query.needed("topic"), []
    for master in client.masters(query.needed("cluster")):
        old = _config(client, master.address, topic)
        header = _header(query, old)
        new = _words(header.read_queue_nums, header.write_queue_nums, header.perm)
        if old is None:
            sentences.append(f"{master.broker_name}: topic {topic} is created with {new}.")
        else:
            was = _words(old.read_queue_nums, old.write_queue_nums, old.perm)
            sentences.append(f"{master.broker_name}: {was} become {new}.")
        if header.attributes:
            sentences.append(f"{master.broker_name}: attributes {header.attributes}.")
    return sentences


def _update(reader: Reader, query: Query) -> Done:
    client, topic = reader.client(), query.needed("topic")
    done, failed = [], []
    for master in client.masters(query.needed("cluster")):
        try:
            header = _header(query, _config(client, master.address, topic))
            client.call(master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            done.append(master.broker_name)
        except ANSWER_ERRORS as error:
            failed.append(str(error))
    sentences = [f"Topic {topic}: done at {', '.join(done) or 'no broker'}.", *failed]
    return Done(sentences, topic_url(topic), ok=not failed)


def _plan_delete(reader: Reader, query: Query) -> list[str]:
    topic, cluster, client = query.needed("topic"), query.needed("cluster"), reader.client()
    masters = client.masters(cluster)
    client.route(topic)
    stats = client.topic_stats(topic).offset_table.values()
    count = sum(max(offset.max_offset - offset.min_offset, 0) for offset in stats)
    names = ", ".join(master.broker_name for master in masters)
    return [
        f"Topic {topic} is deleted at {names}, then at the name servers.",
        f"Its {count} messages can no longer be consumed.",
    ]


def _delete(reader: Reader, query: Query) -> Done:
    topic = query.needed("topic")
    targets = delete_topic(reader.client(), topic, query.needed("cluster"))
    return Done([f"Topic {topic} was deleted at {', '.join(targets)}."], "/topics")


_AS_IT_IS: Final = "Empty: as it is; 8 for a new topic."
_CLUSTER: Final = Field("cluster", "Cluster", default="DefaultCluster")
ACTIONS: Final = [
    Action(
        "updateTopic",
        "Create or change the topic",
        [
            Field("topic", "Topic"),
            _CLUSTER,
            Field("readQueues", "Read queues", kind="number", needed=False, help=_AS_IT_IS),
            Field("writeQueues", "Write queues", kind="number", needed=False, help=_AS_IT_IS),
            Field(
                "perm",
                "Permission (6 both, 4 read, 2 write)",
                "select",
                ("", "6", "4", "2"),
                needed=False,
            ),
            Field("attributes", "Attributes of 5.x", needed=False, help="+message.type=FIFO"),
        ],
        _plan_update,
        _update,
    ),
    Action(
        "deleteTopic",
        "Delete the topic",
        [Field("topic", "Topic"), _CLUSTER],
        _plan_delete,
        _delete,
        is_destructive=True,
    ),
]
