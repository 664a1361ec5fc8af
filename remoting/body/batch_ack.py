"""Body of BATCH_ACK_MESSAGE (200151). Pure data, any thread."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64

MAX_ENTRIES: Final = 256
"""Of a request: those of 8 pops that took a message from each of 32 queues. Each may have to be
stored, which takes 0.2 ms of one turn."""
MAX_BITS_SET: Final = 32
"""Messages of one pop (MAX_POP_MESSAGES of broker/pop/pop_names.py)."""
MAX_BITS: Final = 16_384
"""Queue offsets from a pop's first message to its last; a pop with a filter looks at 800."""
_MOST_TEXT: Final = -(-MAX_BITS // 24) * 4
"""Characters of such a bit set in base64."""


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
        """The acknowledged queue offsets, ascending. Raises ValueError: it is not base64, or names
        more than one pop can have given. Linear in the bit set's bytes, which are bounded first.
        """
        if len(self.bit_set) > _MOST_TEXT:
            raise ValueError(
                f"bit set of {len(self.bit_set)} characters (limit {_MOST_TEXT}: "
                f"{MAX_BITS} queue offsets)"
            )
        try:
            data = base64.b64decode(self.bit_set, validate=True)
        except binascii.Error as error:
            raise ValueError(f"bit set: {error}") from error
        bits = int.from_bytes(data, "little")
        if bits.bit_count() > MAX_BITS_SET:
            raise ValueError(
                f"bit set of {bits.bit_count()} messages (limit {MAX_BITS_SET}, those of a pop)"
            )
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

    @classmethod
    def from_json(cls, tree: Any) -> Self:
        """See JsonBean; raises ValueError for too many entries, before they are looked at."""
        if isinstance(tree, dict):
            for value in tree.values():
                if isinstance(value, list) and len(value) > MAX_ENTRIES:
                    raise ValueError(f"{len(value)} entries (limit {MAX_ENTRIES})")
        # By name: a class with slots is made twice, and `super()` means the first.
        return super(BatchAckMessageRequestBody, cls).from_json(tree)
