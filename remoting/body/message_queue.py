"""MessageQueue: one queue of one topic at one broker. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueue(JsonBean):
    """Names a queue; usable as a key of a map (Java: MessageQueue)."""

    broker_name: str
    queue_id: Int32 = 0
    topic: str
