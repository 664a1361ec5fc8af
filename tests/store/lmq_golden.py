"""What Java brokers with light message queues stored and answered (tests/golden/lmq-*.json)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from store.message import Message
from store.message_codec import decode_record

_GOLDEN: Final = Path(__file__).parents[1] / "golden"
VERSIONS: Final = ("4.9.7", "5.3.3")
FILE_SIZE: Final = 65_536
"""Of the commit log files there."""


@dataclass(frozen=True)
class LmqGolden:
    """One run: the used bytes of its commit log, the units of each "topic/queue"."""

    log: bytes
    queues: dict[str, bytes]
    offsets_file: str
    exchanges: list[dict[str, Any]]

    def messages(self) -> list[Message]:
        """Every record."""
        found, at = [], 0
        while at < len(self.log):
            message, size = decode_record(self.log, at)
            found.append(message)
            at += size
        return found

    def answers(self, code: int) -> list[dict[str, Any]]:
        """The exchanges of one request code, in order."""
        return [found for found in self.exchanges if found.get("call") == code]


def load(version: str) -> LmqGolden:
    """The run of a Java release."""
    value = json.loads((_GOLDEN / f"lmq-{version}.json").read_text())
    return LmqGolden(
        bytes.fromhex(value["log"]),
        {name: bytes.fromhex(units) for name, units in value["queues"].items()},
        value["lmqConsumerOffset.json"],
        value["exchanges"],
    )
