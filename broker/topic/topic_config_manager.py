"""TopicConfigManager: the topics of this broker, their creation and deletion.

Stored in config/topics.json. `find` is on the hot path: a dict lookup without a lock; TopicConfig
and DataVersion are frozen and replaced as a whole. Changes are made under `_lock` by the loop
(automatic creation), pool threads (admin, heartbeats) and the scheduled executor (order topics);
saving and calling listeners is done without the lock. Knows nothing of name servers: listeners
register the changes.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broker.json_config_manager import VersionedConfigManager
from broker.settings.broker_config import BrokerConfig
from broker.topic.built_in_topics import built_in_topics
from broker.topic.system_topics import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    DLQ_GROUP_TOPIC_PREFIX,
    PERM_INHERIT,
    PERM_READ_WRITE,
    PERM_WRITE,
    RETRY_GROUP_TOPIC_PREFIX,
    TOPIC_SYS_FLAG_UNIT,
    TOPIC_SYS_FLAG_UNIT_SUB,
    SystemTopics,
    check_send_allowed,
    is_internal_topic,
)
from broker.topic.topic_attributes import altered, is_compaction, unsupported
from ipc.clock import Clock
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper
from remoting.errors import RequestError
from remoting.resource_names import (
    LEGAL_CHARACTERS,
    RETRY_TOPIC_MAX_LENGTH,
    TOPIC_MAX_LENGTH,
    is_legal_pop_retry_topic,
    is_legal_topic,
    validate_topic,
)
from remoting.response_code import ResponseCode
from store.commit_log import is_storable

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S: Final = 3.0
"""Maximum time that a send waits for the topic table; after that the topic counts as unknown."""

MAX_TOPIC_QUEUES: Final = 65_536
_FAQ: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


class TopicChange(enum.Enum):
    """How a listener should register a change."""

    NEW = "register the new topic; requests that need it wait, the changing thread does not"
    ONE = "register the one topic before responding to the change request"
    NONE = "leave it to the next regular registration"


TopicListener = Callable[[TopicChange, TopicConfig | None], None]
"""(change, the topic if a single one changed and still exists); runs on the changing thread,
without the lock."""


class TopicConfigManager(VersionedConfigManager):
    """Topic table and its DataVersion."""

    def __init__(
        self,
        path: Path,
        config: BrokerConfig,
        clock: Clock,
        system_topics: SystemTopics,
        *,
        writes_v2: bool = True,
    ) -> None:
        """writes_v2: autoMessageVersionOnTopicLen."""
        super().__init__(path, clock)
        self._writes_v2 = writes_v2
        self.config = config
        """Replaced as a whole when a setting changes."""
        self.system_topics: Final = system_topics
        self._table: dict[str, TopicConfig] = {}
        self._listeners: list[TopicListener] = []
        for topic in built_in_topics(config):
            system_topics.add(topic.topic_name)
            self._table[topic.topic_name] = topic

    def add_listener(self, listener: TopicListener) -> None:
        """Call `listener` after each change. To be called before the broker starts."""
        self._listeners.append(listener)

    # -- reads ----------------------------------------------------------------------------------

    def find(self, topic: str) -> TopicConfig | None:
        """The topic's configuration; None if it does not exist."""
        return self._table.get(topic)

    def is_order_topic(self, topic: str) -> bool:
        """Whether the name servers list it as ordered."""
        config = self._table.get(topic)
        return config is not None and config.order

    def is_compaction_topic(self, topic: str) -> bool:
        """Whether it keeps the newest message of each key."""
        config = self._table.get(topic)
        # Pulls ask, of topics that have no attributes mostly.
        return config is not None and bool(config.attributes) and is_compaction(config.attributes)

    def topic_names(self) -> list[str]:
        """Every topic."""
        return list(self._table.copy())

    def wrapper(self) -> TopicConfigSerializeWrapper:
        """A consistent pair of table and data version: the body of 21."""
        with self._lock:
            return TopicConfigSerializeWrapper(
                data_version=self._data_version, topic_config_table=self._table.copy()
            )

    def part_for_registration(self, topics: Iterable[str]) -> TopicConfigSerializeWrapper:
        """Those of `topics` that still exist, with a new data version.

        A name server ignores a registration with a data version that it already has: of two
        registrations with one new topic each, both with the data version after both changes, it
        would only accept the first (as happens in RocketMQ).
        """
        with self._lock:
            self._next_version()
            part = {topic: self._table[topic] for topic in topics if topic in self._table}
            wrapper = TopicConfigSerializeWrapper(
                data_version=self._data_version, topic_config_table=part
            )
        self.mark_changed()
        return wrapper

    # -- creating ----------------------------------------------------------------------

    def prepare_for_send(
        self, topic: str, default_topic: str, queue_nums: int, *, unit_mode: bool, remote: str
    ) -> TopicConfig:
        """Find the topic for a client's send, creating it where that is allowed.

        Raises RequestError with RocketMQ's remarks: NO_PERMISSION, SYSTEM_ERROR for a bad name,
        TOPIC_NOT_EXIST.
        """
        if not self.config.broker_permission & PERM_WRITE and self.is_order_topic(topic):
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.config.broker_ip1}] sending message is forbidden",
            )
        validate_topic(topic, self.retry_limit)
        check_send_allowed(topic)
        found = self._table.get(topic)
        if found is None:
            sys_flag = _unit_flag(topic) if unit_mode else 0
            found = self.create_in_send(topic, default_topic, queue_nums, sys_flag, remote)
        if found is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please!{_FAQ}",
            )
        return found

    def create_in_send(
        self, topic: str, default_topic: str, client_queue_nums: int, sys_flag: int, remote: str
    ) -> TopicConfig | None:
        """Find `topic`, or create it from its template as for a send; None if that is not allowed.

        A %RETRY% topic needs no template: it gets one queue.
        """
        made = self._add(
            topic,
            lambda: self._from_template(topic, default_topic, client_queue_nums, sys_flag, remote),
        )
        if made is None and topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return self.create(topic, 1, PERM_READ_WRITE, sys_flag)
        return made

    def create(
        self, topic: str, queue_nums: int, perm: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Create or find a topic for the broker itself (retry, dead letters, transactions).

        None if the table was locked for LOCK_TIMEOUT_S. Raises RequestError with RocketMQ's remark
        for a name that a topic may not have; one that an older table has already is accepted as
        long as its queues can be stored.
        """
        found = self._table.get(topic)
        if found is not None and self._is_storable(topic):
            return found
        validate_topic(topic, self.retry_limit)
        return self._create(topic, queue_nums, perm, sys_flag)

    def create_pop_retry(self, topic: str, queue_nums: int = 1) -> TopicConfig | None:
        """As `create`, for a retry topic of pops, which gets `queue_nums` queues at least; its name
        may have the "+" of V2."""
        found = self._table.get(topic)
        if found is not None and self._is_storable(topic):
            return self.grow(topic, queue_nums)
        if not is_legal_pop_retry_topic(topic, self.retry_limit):
            validate_topic(topic.replace("+", "_", 1), self.retry_limit)
        if len(topic) > TOPIC_MAX_LENGTH:
            log.info(
                "topic %s: records of its %s characters have version 2, which RocketMQ 4.9 takes "
                "for damage (autoMessageVersionOnTopicLen)",
                topic,
                len(topic),
            )
        return self._create(topic, queue_nums, PERM_READ_WRITE, 0)

    def can_be_pop_retry(self, topic: str) -> bool:
        """Whether `create_pop_retry` finds or creates a topic of this name."""
        known = topic in self._table and self._is_storable(topic)
        return known or is_legal_pop_retry_topic(topic, self.retry_limit)

    @property
    def retry_limit(self) -> int:
        """Most characters of a retry or dead-letter topic's name."""
        return RETRY_TOPIC_MAX_LENGTH if self._writes_v2 else TOPIC_MAX_LENGTH

    def _is_storable(self, topic: str) -> bool:
        return is_storable(topic, writes_v2=self._writes_v2)

    def _create(self, topic: str, queue_nums: int, perm: int, sys_flag: int) -> TopicConfig | None:
        return self._add(
            topic,
            lambda: TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=perm,
                topic_sys_flag=sys_flag,
            ),
        )

    def _add(self, topic: str, make: Callable[[], TopicConfig | None]) -> TopicConfig | None:
        """Add the result of `make` to the table, unless the topic already exists."""
        if not self._lock.acquire(timeout=LOCK_TIMEOUT_S):
            log.error("topic %s: not created, the table was locked for %s s", topic, LOCK_TIMEOUT_S)
            return None
        try:
            found = self._table.get(topic)
            if found is not None:
                return found
            made = make()
            if made is None:
                return None
            self._table[topic] = made
            self._next_version()
        finally:
            self._lock.release()
        log.info("topic %s: created %s", topic, made)
        self.save_soon()
        self._notify(TopicChange.NEW, made)
        return made

    def _from_template(
        self, topic: str, default_topic: str, client_queue_nums: int, sys_flag: int, remote: str
    ) -> TopicConfig | None:
        template = self._template(default_topic)
        if template is None or not template.perm & PERM_INHERIT:
            reason = "does not exist" if template is None else f"has perm {template.perm}"
            log.warning(
                "topic %s: not created for %s, template %s %s", topic, remote, default_topic, reason
            )
            return None
        queue_nums = max(0, min(client_queue_nums, template.write_queue_nums))
        return TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=template.perm & ~PERM_INHERIT,
            topic_filter_type=template.topic_filter_type,
            topic_sys_flag=sys_flag,
        )

    def _template(self, default_topic: str) -> TopicConfig | None:
        """The template; a TBW102 from an old file is not used if autoCreateTopicEnable is off."""
        template = self._table.get(default_topic)
        if (
            template is not None
            and default_topic == AUTO_CREATE_TOPIC_KEY_TOPIC
            and not self.config.auto_create_topic_enable
            and template.perm != PERM_READ_WRITE
        ):
            template = self._table[default_topic] = replace(template, perm=PERM_READ_WRITE)
            self.mark_changed()
        return template

    def grow(self, topic: str, queue_nums: int) -> TopicConfig | None:
        """Let a topic have `queue_nums` queues at least, and return it; None: it does not exist."""
        with self._lock:
            found = self._table.get(topic)
            if found is None or min(found.read_queue_nums, found.write_queue_nums) >= queue_nums:
                return found
            grown = self._table[topic] = replace(
                found,
                read_queue_nums=max(found.read_queue_nums, queue_nums),
                write_queue_nums=max(found.write_queue_nums, queue_nums),
            )
            self._next_version()
        log.info("topic %s: old %s, new %s", topic, found, grown)
        self.save_soon()
        self._notify(TopicChange.NONE, None)
        return grown

    # -- changing and deleting ---------------------------------------------------------------------

    def update(self, *wanted: TopicConfig) -> bool:
        """Create or replace topics (17, 18) and notify the listeners; False if not saved yet.

        Their attributes are signed changes to those of each topic (topic_attributes). Raises
        RequestError, in which case no topic is changed.
        """
        for config in wanted:
            _check_queue_nums(config)
        with self._lock:
            old = [self._table.get(config.topic_name) for config in wanted]
            new = [_altered(*pair) for pair in zip(old, wanted, strict=True)]
            for config in new:
                self._table[config.topic_name] = config
            self._next_version()
        for before, config in zip(old, new, strict=True):
            log.info("topic %s: old %s, new %s", config.topic_name, before, config)
        self.mark_changed()
        saved = self.save_if_changed()
        for config in new:
            self._notify(TopicChange.ONE, config)
        return saved

    def delete(self, topic: str) -> bool:
        """Delete a topic (215); False if that is not saved yet. An unknown topic is only logged."""
        with self._lock:
            old = self._table.pop(topic, None)
            if old is not None:
                self._next_version()
        if old is None:
            log.warning("topic %s: not deleted, it does not exist", topic)
            return True
        log.info("topic %s: deleted %s", topic, old)
        self.mark_changed()
        saved = self.save_if_changed()
        self._notify(TopicChange.NONE, None)
        return saved

    def update_order_topics(self, order_topics: Container[str]) -> bool:
        """Set or clear `order` by the name servers' list in the response to a registration."""
        with self._lock:
            changed = [
                replace(config, order=not config.order)
                for config in self._table.values()
                if config.order != (config.topic_name in order_topics)
            ]
            for config in changed:
                self._table[config.topic_name] = config
            if changed:
                self._next_version()
        if not changed:
            return False
        for config in changed:
            log.info("topic %s: order is %s now", config.topic_name, config.order)
        self.save_soon()
        self._notify(TopicChange.NONE, None)
        return True

    def replace_all(self, wrapper: TopicConfigSerializeWrapper) -> set[str]:
        """Replace table and data version by the master's (21) if they differ; returns the removed
        topics.

        Done in one step: readers see either the old table or the new one. Contents are compared,
        not only data versions, since two brokers can arrive at the same data version. System topics
        of this broker that the master does not have are kept. Marks the change; the caller saves
        (save_if_changed).
        """
        with self._lock:
            old = self._table
            new = dict(wrapper.topic_config_table)
            for name in old.keys() - new.keys():
                if self.system_topics.is_system_topic(name):
                    new[name] = old[name]
            if new == old and wrapper.data_version == self._data_version:
                return set()
            self._table = new
            self._data_version = wrapper.data_version
            vanished = old.keys() - new.keys()
        log.info(
            "topics: %s copied from the master, data version %s; removed: %s",
            len(wrapper.topic_config_table),
            wrapper.data_version.counter,
            sorted(vanished) or "none",
        )
        self.mark_changed()
        self._notify(TopicChange.NONE, None)
        return vanished

    def restore(
        self, queues: Mapping[str, int], batch_topics: Container[str] = ()
    ) -> list[TopicConfig]:
        """Add the topics (name -> number of queues that are in use) that the table lacks,
        read-write, under any name, with defaultTopicQueueNums at least: what waits for a queue
        (a half, a delayed message) is in none. Returns them; no listener is told. batch_topics:
        those with batch consume queues."""
        default = self.config.default_topic_queue_nums
        with self._lock:
            made = [
                TopicConfig(
                    topic_name=name,
                    read_queue_nums=max(count, _least_queues(name, default)),
                    write_queue_nums=max(count, _least_queues(name, default)),
                    perm=PERM_READ_WRITE,
                    attributes={"queue.type": "BatchCQ"} if name in batch_topics else None,
                )
                for name, count in queues.items()
                if name not in self._table
            ]
            self._table.update({config.topic_name: config for config in made})
            self._next_version()
        self.save_soon()
        return made

    def put_back(self, topic: str, queue_id: int) -> TopicConfig:
        """Add a topic that is due a message for this queue; the one that is there, if it is.
        Listeners are told as of a new one."""
        for made in self.restore({topic: queue_id + 1}):
            self._notify(TopicChange.NEW, made)
        return self._table[topic]

    def make_readable(self, topic: str, queue_id: int) -> None:
        """A record is about to make this queue: consumers shall read it, though the topic has fewer
        queues than when the message was taken (a commit, a due message, one that was sent back).
        Sends do not get more queues, and what they fill that an operator lets nobody read
        (writeQueueNums above readQueueNums) stays so. RocketMQ stores it where nobody reads. Never
        raises."""
        found = self._table.get(topic)
        if found is None or queue_id < max(found.read_queue_nums, found.write_queue_nums):
            return
        if self.system_topics.is_system_topic(topic):
            return
        if queue_id >= MAX_TOPIC_QUEUES:
            log.error("topic %s: it cannot have a queue %s: nobody reads it", topic, queue_id)
            return
        with self._lock:
            found = self._table.get(topic)
            if found is None or queue_id < max(found.read_queue_nums, found.write_queue_nums):
                return
            wider = replace(found, read_queue_nums=queue_id + 1)
            self._table[topic] = wider
            self._next_version()
        log.warning(
            "topic %s: readQueueNums is %s now, was %s: a message for queue %s was taken when it "
            "had more",
            topic,
            wider.read_queue_nums,
            found.read_queue_nums,
            queue_id,
        )
        self.save_soon()
        self._notify(TopicChange.NEW, wider)

    def _notify(self, change: TopicChange, config: TopicConfig | None) -> None:
        for listener in self._listeners:
            listener(change, config)

    # -- file -----------------------------------------------------------------------------------

    def decode(self, value: dict[str, Any]) -> None:
        """Merge the file's topics over the built-in ones."""
        if value.get("topicConfigTable") is None:
            raise ValueError("has no topicConfigTable")
        wrapper = TopicConfigSerializeWrapper.from_json(value)
        for name, config in wrapper.topic_config_table.items():
            if lacking := unsupported(config.attributes):
                log.warning("topic %s: %s has no effect here", name, ", ".join(lacking))
        names = wrapper.topic_config_table
        if odd := [
            n
            for n in names
            if not is_legal_topic(n, self.retry_limit) and not self.can_be_pop_retry(n)
        ]:
            log.warning(
                "topics %s: their names violate RocketMQ's rule (%s, at most %s characters): "
                "stored messages can be read, sends are refused",
                ascii(odd),
                LEGAL_CHARACTERS,
                TOPIC_MAX_LENGTH,
            )
        with self._lock:
            self._table.update(wrapper.topic_config_table)
            self._data_version = wrapper.data_version

    def snapshot(self) -> dict[str, Any]:
        """The file's shape."""
        return self.wrapper().to_json()


def _altered(old: TopicConfig | None, wanted: TopicConfig) -> TopicConfig:
    """`wanted` with its changes applied to the topic's attributes."""
    if not wanted.attributes:
        return replace(wanted, attributes=old.attributes if old is not None else None)
    current = None if old is None else old.attributes or {}
    return replace(wanted, attributes=altered(current, wanted.attributes))


def _check_queue_nums(config: TopicConfig) -> None:
    """Raises RequestError (29) for more queues than defaultTopicQueueNums can say: a pop of any
    queue, which looks at each of them, took the loop for minutes."""
    if max(config.read_queue_nums, config.write_queue_nums) > MAX_TOPIC_QUEUES:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"topic {config.topic_name}: readQueueNums {config.read_queue_nums}, writeQueueNums "
            f"{config.write_queue_nums}: at most {MAX_TOPIC_QUEUES}",
        )


def _least_queues(topic: str, default: int) -> int:
    """Of a topic that is put back. The broker's own have one queue mostly, as have those of what
    comes back to a group, and of what is dead."""
    is_of_group = topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX))
    return 1 if is_of_group or is_internal_topic(topic) else default


def _unit_flag(topic: str) -> int:
    is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
    return TOPIC_SYS_FLAG_UNIT_SUB if is_retry else TOPIC_SYS_FLAG_UNIT
