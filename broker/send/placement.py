"""Placement: where a delayed, timer or half message is stored first, and as what.

Used on the loop thread of `remoting` by the hot loop of sends and by the general path. A message
that consumers must not see yet is stored in a system topic, with its real topic and queue in its
properties. `divert` is the rule for all messages; `find_quick` knows the forms that RocketMQ's
clients set, at a fifth of the cost, and leaves every other to the first
(tests/broker/test_twins.py compares both, byte for byte). Knows no frame and no answer.
"""

from __future__ import annotations

from typing import Final

from broker.append.diverted_messages import (
    HALF_ROOM,
    Diversion,
    asks_for_timer,
    delay_level,
    divert_delayed,
    divert_half,
    is_half,
)
from broker.append.send_properties import PAIR_END, append_pairs, without_property
from broker.metrics.hot_path_stats import SendCounts
from broker.send.marks import DELAY, HALF, TIMER
from broker.send.send_topic import SendTopic
from broker.timer.timer_hook import TimerHook
from broker.topic.system_topics import PERM_READ_WRITE, SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.commit_log import CommitLog, TopicLog
from store.errors import QueueTableFullError
from store.message_codec import TRANSACTION_PREPARED
from store.message_properties import PROPERTIES_LIMIT

_DELAY_MARK: Final = "DELAY\x01"
_HALF_QUEUE: Final = 0
_HALF_QUEUES: Final = 1
_HALF_LIMIT: Final = PROPERTIES_LIMIT - HALF_ROOM
_CLUSTER_MARK: Final = "CLUSTER\x01"
"""To be taken out, like REAL_TOPIC and REAL_QID, which are reserved: the general path does that."""

Place = tuple[TopicLog, int, bytes, dict[str, list[int]], str]
"""Where a message is stored (topic, queue id), its properties there, and where it is counted
(SendCounts): a table and the entry's name."""


class Placement:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        topics: TopicConfigManager,
        timers: TimerHook,
        counts: SendCounts,
        *,
        cluster_pair: str,
        max_delay_level: int,
        reject_transactions: str,
        left_flags_of_halves: int,
    ) -> None:
        """cluster_pair: the property CLUSTER with its value. reject_transactions: why transactional
        messages are rejected; empty if they are accepted. left_flags_of_halves: SendRules'."""
        self._log = commit_log
        self._topics = topics
        self._timers = timers
        self._counts = counts
        self._cluster_pair = cluster_pair
        self._max_delay_level = max_delay_level
        self._reject_transactions = reject_transactions
        self._left_flags = left_flags_of_halves
        self._levels = {str(level): level - 1 for level in range(1, max_delay_level + 1)}
        """Queues of the schedule topic."""
        self.half_topic: TopicLog | None = None
        """The half topic once the general path has stored a half there, so that it exists and the
        name servers know it; the owner clears it when topics change."""

    def find_quick(
        self, topic: str, queue_id: int, kind: int, marks: int, text: str
    ) -> Place | None:
        """Where a message for a queue of `topic` with the properties `text` is stored first; None:
        on the general path. kind: the bits of its sysFlag that rules look at. marks: of `text`,
        RESERVED not among them."""
        if marks & TIMER or _CLUSTER_MARK in text:
            return None
        if marks & HALF:
            if kind not in (0, TRANSACTION_PREPARED) or kind & self._left_flags:
                return None
            if marks & DELAY or not is_half(text):
                return None
            return self._find_half(topic, queue_id, text)
        return None if kind else self._find_delayed(topic, queue_id, text)

    def _find_half(self, topic: str, queue_id: int, text: str) -> Place | None:
        half_topic = self.half_topic
        if half_topic is None:
            return None
        between = "" if text.endswith(PAIR_END) else PAIR_END
        home = f"REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}"
        stored = f"{text}{between}{self._cluster_pair}\x02{home}".encode()
        if len(stored) > _HALF_LIMIT:
            return None
        return half_topic, _HALF_QUEUE, stored, self._counts.transactions, half_topic.name

    def _find_delayed(self, topic: str, queue_id: int, text: str) -> Place | None:
        if not text.endswith(PAIR_END):
            text += PAIR_END
        at = text.find(_DELAY_MARK)
        if at and text[at - 1] != PAIR_END:
            return None
        value = at + len(_DELAY_MARK)
        end = text.find(PAIR_END, value)
        level = text[value:end]
        queue = self._levels.get(level)
        if queue is None or text.find(_DELAY_MARK, value) >= 0:
            return None
        stored = (
            f"{text[:at]}{text[end + 1 :]}{self._cluster_pair}\x02DELAY\x01{level}"
            f"\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}"
        )
        try:
            self._log.check_room(self._log.topic(topic), queue_id)
        except QueueTableFullError:
            return None
        schedule_topic = self._log.topic(SCHEDULE_TOPIC)
        return schedule_topic, queue, stored.encode(), self._counts.delayed, level

    def divert(self, text: str, place: Diversion) -> Diversion | None:
        """Where a message with the properties `text` is stored first; None: at `place`, where it is
        sent (properties are not looked at). WAIT stays in its properties. Raises RequestError."""
        half = is_half(text)
        level = 0 if half else delay_level(text, place.sys_flag, self._max_delay_level)
        if not half and not level and not asks_for_timer(text):
            return None
        stored = append_pairs(without_property(text, "CLUSTER"), self._cluster_pair)
        if half:
            return self._divert_half(text, stored, place)
        try:
            self._log.check_room(self._log.topic(place.topic), place.queue_id)
        except QueueTableFullError as error:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
        if level:
            return divert_delayed(place.topic, place.queue_id, place.sys_flag, stored, level)
        return self._timers.divert(place.topic, place.queue_id, place.sys_flag, stored)

    def _divert_half(self, text: str, stored: str, place: Diversion) -> Diversion:
        if self._reject_transactions:
            raise RequestError(ResponseCode.NO_PERMISSION, self._reject_transactions)
        self._timers.check(text)
        self.own_topic(TRANS_HALF_TOPIC, _HALF_QUEUES)
        return divert_half(place.topic, place.queue_id, place.sys_flag, stored)

    def own_topic(self, name: str, queue_nums: int) -> SendTopic:
        """A topic that the broker itself makes, and that a message goes to. Raises RequestError."""
        config = self._topics.create(name, queue_nums, PERM_READ_WRITE)
        if config is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
        return SendTopic(config, self._log.topic(name))
