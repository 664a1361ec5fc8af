"""Frames of controller mode with checksums: cut anywhere, damaged anywhere."""

from __future__ import annotations

import hashlib
import hmac
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ha.autoswitch_frame import AutoSwitchFrameError
from ha.checked_carriage import MasterBytes, SlaveBytes, head_of
from ha.refusals import RefusalReason

KEY = bytes(range(32))
REPORT = struct.pack(">iq", 2, 4_711)
HANDSHAKE = struct.pack(">ihhq", 1, 0, 1, 3)

master_frames = st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=6)
slave_frames = st.lists(st.sampled_from([REPORT, HANDSHAKE]), min_size=1, max_size=6)


def carried(frame: bytes) -> bytes:
    """Truth from outside: the layout, packed here."""
    head = struct.pack(">iI", len(frame), crc32c(frame))
    return head + struct.pack(">I", crc32c(head)) + frame


def sealed(frame: bytes) -> bytes:
    return frame + hmac.new(KEY, frame, hashlib.sha256).digest()[:16]


def heard_of_master(data: bytes, piece: int) -> list[bytes]:
    incoming, found = MasterBytes(is_checked=True), []
    for at in range(0, len(data), piece):
        found += map(bytes, incoming.receive(memoryview(data[at : at + piece])))
    return found


def heard_of_slave(data: bytes, piece: int) -> bytes:
    incoming = SlaveBytes(KEY)
    return b"".join(incoming.receive(data[at : at + piece]) for at in range(0, len(data), piece))


@given(master_frames, st.integers(1, 300))
def test_a_masters_frames_cut_anywhere(frames: list[bytes], piece: int) -> None:
    data = b"".join(map(carried, frames))
    assert data == b"".join(head_of(frame[:5], frame[5:]) + frame for frame in frames)
    assert heard_of_master(data, piece) == frames


@given(slave_frames, st.integers(1, 60))
def test_a_slaves_frames_cut_anywhere(frames: list[bytes], piece: int) -> None:
    data = b"".join(map(sealed, frames))
    assert data == b"".join(map(SlaveBytes(KEY).pack, frames))
    assert heard_of_slave(data, piece) == b"".join(frames)


@given(master_frames, st.integers(1, 300), st.data())
def test_a_flipped_bit_of_a_master_is_seen(
    frames: list[bytes], piece: int, draw: st.DataObject
) -> None:
    """Nothing of the frame that it is in is taken."""
    whole = b"".join(map(carried, frames))
    at = draw.draw(st.integers(0, len(whole) * 8 - 1))
    data = bytearray(whole)
    data[at // 8] ^= 1 << at % 8
    ends = [len(b"".join(map(carried, frames[:count]))) for count in range(len(frames) + 1)]
    good = sum(end <= at // 8 for end in ends) - 1
    found: list[bytes] = []
    incoming = MasterBytes(is_checked=True)

    def hear() -> None:
        for begin in range(0, len(data), piece):
            for frame in incoming.receive(memoryview(bytes(data[begin : begin + piece]))):
                found.append(bytes(frame))

    with pytest.raises(AutoSwitchFrameError) as raised:
        hear()
    assert raised.value.reason is RefusalReason.BAD_CHECKSUM
    assert found == frames[:good]


@given(slave_frames, st.data())
def test_a_flipped_bit_of_a_slave_is_seen(frames: list[bytes], draw: st.DataObject) -> None:
    whole = b"".join(map(sealed, frames))
    at = draw.draw(st.integers(0, len(whole) * 8 - 1))
    data = bytearray(whole)
    data[at // 8] ^= 1 << at % 8
    try:
        found = heard_of_slave(bytes(data), 7)
    except AutoSwitchFrameError:
        return
    # A report's state that became a handshake's: its end has not come.
    assert b"".join(frames).startswith(found)
    assert len(found) < len(b"".join(frames))


def test_a_key_of_another_connection() -> None:
    with pytest.raises(AutoSwitchFrameError, match="wrong checksum"):
        SlaveBytes(bytes(32)).receive(sealed(REPORT))


@pytest.mark.parametrize("size", [0, -1, 5 << 20, 2**31 - 1])
def test_a_frame_that_no_master_sends_is_not_waited_for(size: int) -> None:
    """With a good checksum, so that the slave kept what came up to that size."""
    head = struct.pack(">iI", size, 0)
    with pytest.raises(AutoSwitchFrameError, match=f"a frame of {size} bytes"):
        heard_of_master(head + struct.pack(">I", crc32c(head)), 12)
