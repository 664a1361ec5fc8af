"""DivertedSends: delayed and half messages on the fast path of sends.

Used by SendMessageProcessor on the loop thread of `remoting`. Says where a message that is stored
in a system topic first goes, and with which properties, if its own are those that RocketMQ's
clients set; SendRecords does so for all messages, and stores the same bytes
(tests/broker/test_twins.py compares both). Knows no frame and no answer.
"""

from __future__ import annotations

from typing import Final

from broker.append.diverted_messages import HALF_ROOM, TIMER_MARK, is_half
from broker.append.send_properties import PAIR_END
from broker.metrics.hot_path_stats import SendCounts
from broker.topic.system_topics import SCHEDULE_TOPIC
from store.commit_log import CommitLog, TopicLog
from store.errors import QueueTableFullError
from store.message_codec import TRANSACTION_PREPARED
from store.message_properties import PROPERTIES_LIMIT

_DELAY_MARK: Final = "DELAY\x01"
_HALF_MARK: Final = "TRAN_MSG\x01"
_HALF_QUEUE: Final = 0
_HALF_LIMIT: Final = PROPERTIES_LIMIT - HALF_ROOM
_CLUSTER_MARK: Final = "CLUSTER\x01"
_HOME_MARK: Final = "REAL_"
"""Of REAL_TOPIC and REAL_QID. Properties that would have to be taken out, or say more (timers): the
general path does that."""

Place = tuple[TopicLog, int, bytes, dict[str, list[int]], str]
"""Where a message is stored (topic, queue id), its properties there, and where it is counted
(SendCounts): a table and the entry's name."""


class DivertedSends:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self, commit_log: CommitLog, counts: SendCounts, *, cluster_pair: str, max_delay_level: int
    ) -> None:
        self._log = commit_log
        self._counts = counts
        self._cluster_pair = cluster_pair
        self._levels = {str(level): level - 1 for level in range(1, max_delay_level + 1)}
        """Queues of the schedule topic."""
        self.half_topic: TopicLog | None = None
        """The half topic once the general path has stored a half there, so that it exists and the
        name servers know it; the owner clears it when topics change."""

    def find(self, topic: str, queue_id: int, kind: int, text: str) -> Place | None:
        """Where a message for a queue of `topic` with the properties `text` is stored first; None:
        on the general path. kind: its transaction bits and those of an inner batch."""
        if TIMER_MARK in text or _CLUSTER_MARK in text or _HOME_MARK in text:
            return None
        if _HALF_MARK in text:
            if kind not in (0, TRANSACTION_PREPARED) or _DELAY_MARK in text or not is_half(text):
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
