"""AckMsg and BatchAckMsg: acknowledged messages, as stored in the revive topic.

Pure data, any thread. Bodies are JSON in Java's order:

    ack    {"ao":offset,"bn":broker,"c":group,"pt":ms,"q":queue,"so":start offset,"t":topic}
    bAck   {"ao":-1,"aol":[offsets],"bn":broker,"c":group,"pt":ms,"q":queue,"so":…,"t":topic}

Both name their check point by topic, group, queue, start offset, pop time and broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from broker.pop.check_point import CheckPointKey
from broker.pop.pop_names import ACK_TAG
from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class AckMsg(JsonBean):
    """One acknowledged message (Java: AckMsg)."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "ack_offset": "ao",
        "broker_name": "bn",
        "consumer_group": "c",
        "pop_time": "pt",
        "queue_id": "q",
        "start_offset": "so",
        "topic": "t",
    }

    ack_offset: Int64 = 0
    start_offset: Int64 = 0
    consumer_group: str | None = None
    topic: str | None = None
    queue_id: Int32 = 0
    pop_time: Int64 = 0
    broker_name: str | None = None

    @property
    def key(self) -> CheckPointKey:
        """That of its check point."""
        topic, group = self.topic or "", self.consumer_group or ""
        return topic, group, self.queue_id, self.start_offset, self.pop_time

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY of the record (also of a batch's, which Java writes with this tag)."""
        return (
            f"{self.topic}@{self.queue_id}@{self.ack_offset}@{self.consumer_group}"
            f"@{self.pop_time}@{self.broker_name}@{ACK_TAG}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAckMsg(AckMsg):
    """Several messages of one pop of one queue (Java: BatchAckMsg); ack_offset is -1."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {**AckMsg.WIRE_NAMES, "ack_offset_list": "aol"}

    ack_offset: Int64 = -1
    ack_offset_list: list[Int64] = field(default_factory=list)
