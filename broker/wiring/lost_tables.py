"""What a start does when a table of config/*.json is missing, or lacks topics that have messages.

Runs once on the main thread of process `remoting`, after process `store` has recovered and before
anything is served. A first start has no queues, and nothing happens. Otherwise the file was lost:
what the store still knows is put back (a topic for each directory below consumequeue/, with as many
queues; a group for each one that has offsets), and the log says what was put back and what is
gone. A start as a master does so for single topics, too: a promoted slave has the messages of
topics that it had not yet copied, and a crash may take the last save of topics.json. RocketMQ
starts with what its tables say: nobody can consume what is stored, its slaves follow, and 316 would
delete it. It reads no queue: names of directories, and what process `store` says that queues hold.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from broker.json_config_manager import JsonConfigManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.system_topics import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.body.topic_config import TopicConfig
from store.lmq_places import is_lmq

log = logging.getLogger(__name__)

_NEVER_IN_THE_TABLE: Final = frozenset({TRANS_OP_HALF_TOPIC})
_LONGEST_QUEUE_ID: Final = 9
"""Digits of a directory that is a queue."""


def stored_queues(consume_queue_path: Path) -> dict[str, int]:
    """The number of queues of each topic below consumequeue/: its highest queue id plus one."""
    found: dict[str, int] = {}
    if not consume_queue_path.is_dir():
        return found
    for topic in sorted(path for path in consume_queue_path.iterdir() if path.is_dir()):
        if is_lmq(topic.name):
            continue  # Light queues are in no table.
        ids = [int(path.name) for path in topic.iterdir() if _is_queue(path.name)]
        if ids:
            found[topic.name] = max(ids) + 1
    return found


def _is_queue(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= _LONGEST_QUEUE_ID


def restore_lost_tables(
    consume_queue_path: Path,
    batch_consume_queue_path: Path,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    offsets: ConsumerOffsetManager,
    delay_offsets: ScheduleOffsetManager,
) -> None:
    """Put back what the store knows of tables that `load` did not find, and say what is gone."""
    missing = [table for table in (topics, groups, offsets, delay_offsets) if table.was_missing]
    batch = stored_queues(batch_consume_queue_path) if missing else {}
    queues = batch | stored_queues(consume_queue_path) if missing else {}
    if not queues:
        return
    if topics.was_missing:
        _restore_topics(topics, queues, batch)
    if groups.was_missing:
        _restore_groups(groups, offsets, queues)
    if offsets.was_missing:
        _say_gone(
            offsets,
            "the offsets of all groups: each begins where its clients' consumeFromWhere says, and "
            "may consume messages again or miss some; mqadmin resetOffsetByTime sets them",
        )
    if delay_offsets.was_missing and SCHEDULE_TOPIC in queues:
        _say_gone(
            delay_offsets,
            "how far the delay levels were delivered: what their queues still hold is delivered "
            "again",
        )


def restore_lacking_topics(
    topics: TopicConfigManager, queues: Mapping[str, int], batch_topics: Container[str] = ()
) -> None:
    """Put back single topics that the table lacks, of `queues`: topics that the store has messages
    of, with the number of their queues. batch_topics: those with batch consume queues. For a
    master's start: a slave's table is its master's."""
    known = _NEVER_IN_THE_TABLE | set(topics.topic_names())
    lacking = {
        name: count for name, count in queues.items() if name not in known and not is_lmq(name)
    }
    if not lacking:
        return
    made = topics.restore(lacking, batch_topics)
    log.error(
        "%s: lacks topics that the store has messages of: put back %s topics from their queues, "
        "with permission 6: %s. Lost are their permissions, queue counts above the highest queue "
        "in use, order flags and attributes: set them by mqadmin updateTopic; one whose deletion "
        "was cut short is to be deleted again",
        topics.path,
        *_count_and_names(made),
    )


def _restore_topics(
    topics: TopicConfigManager, queues: Mapping[str, int], batch_topics: Container[str]
) -> None:
    stored = {name: count for name, count in queues.items() if name not in _NEVER_IN_THE_TABLE}
    made = topics.restore(stored, batch_topics)
    log.error(
        "%s: is missing, but the store has messages: put back %s topics from the directories of "
        "its queues, with permission 6: %s. Lost are topics without messages, and permissions, "
        "queue counts above the highest queue in use, order flags and attributes: compare with a "
        "copy, and set them by mqadmin updateTopic",
        topics.path,
        *_count_and_names(made),
    )


def _count_and_names(made: Sequence[TopicConfig]) -> tuple[int, str]:
    names = (f"{config.topic_name} ({config.read_queue_nums})" for config in made)
    return len(made), _listed(names)


def _restore_groups(
    groups: SubscriptionGroupManager, offsets: ConsumerOffsetManager, queues: Mapping[str, int]
) -> None:
    names = {group for _, group in offsets.pairs()}
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        names |= {name.removeprefix(prefix) for name in queues if name.startswith(prefix)}
    made = groups.restore(sorted(names))
    log.error(
        "%s: is missing, but the store has messages: put back %s groups that have offsets or "
        "messages of their own, with default settings: %s. Their own settings (retries, "
        "broadcast, consumeEnable) are lost: set them by mqadmin updateSubGroup",
        groups.path,
        len(made),
        _listed(made),
    )


def _say_gone(table: JsonConfigManager, what: str) -> None:
    log.error("%s: is missing, but the store has messages. Lost are %s", table.path, what)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(ascii(name)[1:-1] for name in names) or "none"
