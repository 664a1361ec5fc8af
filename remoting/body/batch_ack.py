"""Body of BATCH_ACK_MESSAGE (200151). Pure data, any thread."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAck(JsonBean):
    """The acknowledged messages of one pop of one queue (Java: BatchAck).

    bit_set: base64 of a bit set's bytes, low bit first; bit i stands for start_offset + i.
    """

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "consumer_group": "c",
        "topic": "t",
        "retry": "r",
        "start_offset": "so",
        "queue_id": "q",
        "revive_queue_id": "rq",
        "pop_time": "pt",
        "invisible_time": "it",
        "bit_set": "b",
    }

    consumer_group: str
    topic: str
    retry: str
    start_offset: Int64 = 0
    queue_id: Int32 = 0
    revive_queue_id: Int32 = 0
    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    bit_set: str

    def offsets(self) -> list[int]:
        """The acknowledged queue offsets, ascending. Raises ValueError: it is not base64."""
        try:
            bits = int.from_bytes(base64.b64decode(self.bit_set, validate=True), "little")
        except binascii.Error as error:
            raise ValueError(f"bit set: {error}") from error
        offsets = []
        while bits:
            low = bits & -bits
            offsets.append(self.start_offset + low.bit_length() - 1)
            bits ^= low
        return offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAckMessageRequestBody(JsonBean):
    """Body of the request."""

    broker_name: str | None = None
    acks: list[BatchAck] = field(default_factory=list)
