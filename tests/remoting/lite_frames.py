"""The frames of lite topics that RocketMQ 5.5.0 exchanged (tests/golden/lite-5.5.0)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from remoting.remoting_codec import decode_command
from remoting.remoting_command import RemotingCommand

FRAMES: Final = Path(__file__).parents[1] / "golden" / "lite-5.5.0" / "frames.json"


def lite_frame(name: str, side: str) -> bytes:
    """A frame, with its length. side: "request" or "response"."""
    for row in json.loads(FRAMES.read_text()):
        if row["name"] == name:
            return bytes.fromhex(row[side])
    raise KeyError(name)


def lite_command(name: str, side: str = "request") -> RemotingCommand:
    """The same, decoded whole."""
    frame = lite_frame(name, side)
    size = int.from_bytes(frame[5:8])
    return decode_command(frame[8 : 8 + size], frame[4], frame[8 + size :])


def lite_names(prefix: str) -> list[str]:
    """The exchanges whose name begins so."""
    rows = json.loads(FRAMES.read_text())
    return [row["name"] for row in rows if row["name"].startswith(prefix)]
