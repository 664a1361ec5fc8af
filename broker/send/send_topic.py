"""What sends ask of their topic and their peer, kept in the form in which it is stored.

Owned by the loop thread of `remoting`; TopicNature is pure. Knows no message.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from broker.topic.topic_attributes import is_compaction
from remoting.body.topic_config import TopicConfig
from remoting.connection import Connection
from store.commit_log import TopicLog
from store.message_codec import BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG, encode_host

HOST_BITS: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
"""The bits of sysFlag that only the broker sets."""
_MULTI_TAGS: Final = 0x2
_QUEUE_ID_DIGITS: Final = 10


class TopicNature(NamedTuple):
    """What the rules ask of a topic."""

    batch_queues: bool
    """queue.type BatchCQ."""
    needs_keys: bool
    """cleanup.policy COMPACTION."""

    @classmethod
    def of(cls, config: TopicConfig) -> Self:
        """That of a topic's configuration."""
        return cls(config.has_batch_queues, is_compaction(config.attributes))


class PeerHost:
    """A connection's address in stored form; cached on the connection."""

    __slots__ = ("host", "sys_flag")

    def __init__(self, host: str, port: int) -> None:
        self.host = encode_host(host, port)
        self.sys_flag = BORN_HOST_V6_FLAG if ":" in host else 0

    @classmethod
    def of(cls, connection: Connection) -> PeerHost:
        """The connection's address, determined at its first send."""
        peer = connection.state
        if not isinstance(peer, cls):
            peer = connection.state = cls(connection.host, connection.port)
        return peer


class SendTopic:
    """A topic's data for the hot path; dropped when the topic's configuration changes."""

    __slots__ = (*("entry", "multi_tags", "nature", "queue_ids", "queues", "write_queues"),)

    def __init__(self, config: TopicConfig, entry: TopicLog) -> None:
        self.entry = entry
        self.queues = max(config.read_queue_nums, config.write_queue_nums)
        self.write_queues = max(config.write_queue_nums, 1)
        self.multi_tags = _MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0
        self.nature = TopicNature.of(config)
        self.queue_ids: dict[str, int] = {}
        """Texts that `find_queue_id` has read: 0.02 us a send instead of 0.12."""

    def find_queue_id(self, text: str) -> int | None:
        """The queue that a header names; None: the topic has no such queue, or it is no number of
        a few decimal digits."""
        if len(text) > _QUEUE_ID_DIGITS or not (text.isascii() and text.isdecimal()):
            return None
        queue_id = int(text)
        if queue_id >= self.queues:
            return None
        self.queue_ids[text] = queue_id
        return queue_id
