"""The golden frames between 5.3.3 brokers and their controller (tests/golden/controller-5.3.3)."""

from __future__ import annotations

from typing import NamedTuple

from remoting.remoting_command import RemotingCommand
from tests.remoting.golden_frames import GOLDEN
from tests.support.frame_decoder import FrameDecoder


class GoldenRow(NamedTuple):
    """One captured frame."""

    kind: str
    """Code and side: "1004 resp"."""
    number: str
    frame: bytes


def golden_rows() -> list[GoldenRow]:
    """All of them, in the order of the file."""
    rows = []
    for line in (GOLDEN / "controller-5.3.3" / "wire.txt").read_text().splitlines():
        code, name, frame = line.split()
        number, side = name.split(".")
        rows.append(GoldenRow(f"{code} {side}", number, bytes.fromhex(frame)))
    return rows


def golden_command(kind: str, number: str) -> RemotingCommand:
    """One of them, decoded."""
    (row,) = (row for row in golden_rows() if row[:2] == (kind, number))
    return decoded(row.frame)


def decoded(frame: bytes) -> RemotingCommand:
    """The command of a whole frame."""
    decoder = FrameDecoder()
    decoder.feed(frame)
    command = decoder.next_command()
    assert command is not None
    assert decoder.buffered == 0
    return command
