"""What tests of compaction topics do as clients: create one, send messages with keys, read it all.

`Ledger` is the truth that they are held to: what was sent and acknowledged, in order.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field

from remoting.remoting_command import RemotingCommand
from store.message import Message
from tests.support.our_broker import FrameClient


def create_topic(
    client: FrameClient, topic: str, queues: int = 1, *, policy: str = "COMPACTION"
) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        "attributes": f"+cleanup.policy={policy}",
    }
    answer = client.call(17, fields)
    assert answer.code == 0, answer.remark


def post_keyed(
    client: FrameClient,
    topic: str,
    queue_id: int,
    key: str | None,
    body: bytes,
    tag: str = "",
    *,
    batch: bool = False,
) -> int:
    """Send without waiting. batch: as a batch of one; RocketMQ's broker takes an empty body so."""
    pairs = {"KEYS": key, "TAGS": tag or None, "UNIQ_KEY": f"id{time.monotonic_ns()}"}
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items() if value is not None)
    fields: dict[str, object] = {
        "a": "P",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": time.time_ns() // 1_000_000,
        "h": 0,
        "i": text,
        "j": 0,
        "k": "false",
        "l": 16,
        "m": "true" if batch else "false",
    }
    if batch:
        item = struct.pack(">iiii", 0, 0, 0, len(body)) + body
        properties = text.encode()
        item += struct.pack(">h", len(properties)) + properties
        return client.post(320, {**fields, "i": ""}, struct.pack(">i", len(item) + 4) + item)
    return client.post(310, fields, body)


def send_keyed(
    client: FrameClient,
    topic: str,
    queue_id: int,
    key: str | None,
    body: bytes,
    tag: str = "",
    *,
    batch: bool = False,
) -> RemotingCommand:
    """Send a message; the answer."""
    return client.take(post_keyed(client, topic, queue_id, key, body, tag, batch=batch))


def read_all(client: FrameClient, topic: str, queue_id: int, offset: int = 0) -> list[Message]:
    """Every message that pulls give, from `offset` on until there is no more."""
    found: list[Message] = []
    while True:
        pulled = client.pull(topic, queue_id, offset)
        if pulled.code == 19 and offset >= pulled.max_offset:
            return found
        if pulled.code == 19:
            continue  # Files are just being replaced.
        assert pulled.code in (0, 20), pulled
        assert pulled.next_offset > offset
        found += pulled.messages
        offset = pulled.next_offset


@dataclass
class Ledger:
    """What was acknowledged of one queue: offset, key and body, in order."""

    events: list[tuple[int, str, bytes]] = field(default_factory=list)

    def send(self, client: FrameClient, topic: str, queue_id: int, key: str, body: bytes) -> None:
        """A message without a body deletes its key."""
        answer = send_keyed(client, topic, queue_id, key, body, batch=not body)
        assert answer.code == 0, answer.remark
        self.events.append((int(answer.ext_fields["queueOffset"]), key, body))

    @property
    def newest(self) -> dict[str, tuple[int, bytes]]:
        """Key to offset and body of its newest message."""
        return {key: (offset, body) for offset, key, body in self.events}

    def check(self, found: list[Message], *, compacted_below: int | None = None) -> None:
        """`found` are messages that were sent, in order, and the newest of each key is there. Those
        before `compacted_below` are the newest of each key there, without the deleted ones."""
        sent = {offset: (key, body) for offset, key, body in self.events}
        offsets = [message.queue_offset for message in found]
        assert offsets == sorted(set(offsets))
        for message in found:
            assert (message.find_property("KEYS"), message.body) == sent[message.queue_offset]
        newest = self.newest
        there = {message.queue_offset for message in found}
        missing = [key for key, (at, body) in newest.items() if body and at not in there]
        assert not missing, missing
        if compacted_below is not None:
            before = {key: (at, body) for at, key, body in self.events if at < compacted_below}
            kept = {at for at, body in before.values() if body}
            left = {at for at in there if at < compacted_below}
            assert left == kept, (sorted(left - kept), sorted(kept - left))
