"""The golden frames of the Java reference (tests/golden/wire-*), as pytest parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remoting.remoting_command import RemotingCommand
from tests.support.every_row import check_every_row
from tests.support.frame_decoder import FrameDecoder

GOLDEN = Path(__file__).parent.parent / "golden"


@dataclass(frozen=True)
class GoldenFrame:
    """One captured frame and what the capture says about it."""

    path: Path
    side: str
    """"request" or "response"."""

    @property
    def name(self) -> str:
        """Its file below tests/golden."""
        return str(self.path.relative_to(GOLDEN))

    @property
    def code(self) -> int:
        """The request code of the exchange."""
        return int(self.path.parent.name.split("-")[0])

    @property
    def frame(self) -> bytes:
        return self.path.read_bytes()

    @property
    def described(self) -> dict[str, Any]:
        """The description of this side in NN.json."""
        text = (self.path.parent / f"{self.path.name[:2]}.json").read_text()
        described: dict[str, Any] = json.loads(text)[self.side]
        return described

    def command(self) -> RemotingCommand:
        """The frame, decoded whole."""
        decoder = FrameDecoder()
        decoder.feed(self.frame)
        command = decoder.next_command()
        assert command is not None
        assert decoder.buffered == 0
        return command


def check_every_frame(frames: list[GoldenFrame], check: Callable[[GoldenFrame], object]) -> None:
    """`check_every_row`, named after the files."""
    check_every_row(frames, check, lambda frame: frame.name)


def golden_frames(*, side: str | None = None, kind: str = "wire-*") -> list[GoldenFrame]:
    """All captured frames, or those of one side or one kind of header."""
    sides = {"req": "request", "resp": "response"}
    return [
        GoldenFrame(path, sides[path.name.split(".")[1]])
        for path in sorted(GOLDEN.glob(f"{kind}/[0-9]*/[0-9]*.bin"))
        if side in (None, sides[path.name.split(".")[1]])
    ]


def as_parameters(frames: list[GoldenFrame]) -> list[Any]:
    """One pytest parameter for each frame, named after its file."""
    assert frames, f"no golden frames under {GOLDEN}"
    return [pytest.param(g, id=g.name) for g in frames]
