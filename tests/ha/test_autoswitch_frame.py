"""AutoSwitch HA frames, against what 5.3.3 brokers sent each other, in pieces of every size."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from ha.autoswitch_frame import (
    MAX_TRANSFER_BODY,
    AutoSwitchFrameError,
    FramesOfMaster,
    FramesOfSlave,
    MasterFrame,
    MasterHandshakeFrame,
    ReportFrame,
    SlaveFrame,
    SlaveHandshakeFrame,
    TransferFrame,
    encode_master_handshake,
    encode_report,
    encode_slave_handshake,
    encode_transfer_header,
)
from ha.epochs import MAX_ENTRIES, EpochList, epoch_list

GOLDEN = Path(__file__).parents[1] / "golden" / "controller-5.3.3"
STREAMS = sorted(GOLDEN.glob("ha-*2*.c2s.bin")) + sorted(GOLDEN.glob("ha-newslave.c2s.bin"))
LEARNER, NEW_SLAVE = "ha-24422-2", "ha-newslave"


def slave_bytes(frame: SlaveFrame) -> bytes:
    if isinstance(frame, SlaveHandshakeFrame):
        return encode_slave_handshake(frame)
    return encode_report(frame.max_offset)


def master_bytes(frame: MasterFrame) -> bytes:
    if isinstance(frame, MasterHandshakeFrame):
        return encode_master_handshake(frame)
    return encode_transfer_header(frame, len(frame.body)) + frame.body


def heard_by_master(*pieces: bytes) -> list[SlaveFrame]:
    frames = FramesOfSlave()
    return [frame for piece in pieces for frame in frames.receive(piece)]


def heard_by_slave(*pieces: bytes) -> list[MasterFrame]:
    frames = FramesOfMaster()
    return [frame for piece in pieces for frame in frames.receive(piece)]


def stream(name: str, side: str) -> bytes:
    return (GOLDEN / f"{name}.{side}.bin").read_bytes()


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_what_java_brokers_sent_comes_back_byte_for_byte(path: Path) -> None:
    sent = path.read_bytes()
    assert b"".join(map(slave_bytes, heard_by_master(sent))) == sent
    answered = path.with_name(path.name.replace("c2s", "s2c")).read_bytes()
    assert b"".join(map(master_bytes, heard_by_slave(answered))) == answered


def test_there_are_streams_of_both_masters_and_of_new_slaves() -> None:
    assert len(STREAMS) == 6


def test_the_learner_of_two_epochs() -> None:
    """The exchange as written down beside the capture, field by field."""
    first, *reports = heard_by_master(stream(LEARNER, "c2s"))
    assert first == SlaveHandshakeFrame(99, sync_from_last_file=False, async_learner=True)
    assert reports[:3] == [ReportFrame(0), ReportFrame(693), ReportFrame(1386)]
    hello, one, two, heartbeat = heard_by_slave(stream(LEARNER, "s2c"))
    assert hello == MasterHandshakeFrame(1386, 2, epoch_list([(1, 0), (2, 693)]))
    assert [frame[:4] for frame in (one, two, heartbeat)] == [
        (0, 2, 693, 1386),
        (693, 2, 693, 1386),
        (1386, 2, 693, 1386),
    ]
    bodies = [frame.body for frame in (one, two, heartbeat) if isinstance(frame, TransferFrame)]
    assert [len(body) for body in bodies] == [693, 693, 0]


def test_a_heartbeat_before_anything_was_sent() -> None:
    _, heartbeat, *_ = heard_by_slave(stream("ha-24412-1", "s2c"))
    assert heartbeat == TransferFrame(-1, 1, 0, 0, b"")


@pytest.mark.parametrize("name", [LEARNER, NEW_SLAVE])
def test_two_pieces_at_every_byte(name: str) -> None:
    sent, answered = stream(name, "c2s"), stream(name, "s2c")
    slave_frames, master_frames = heard_by_master(sent), heard_by_slave(answered)
    for at in range(len(sent) + 1):
        assert heard_by_master(sent[:at], sent[at:]) == slave_frames
    for at in range(len(answered) + 1):
        assert heard_by_slave(answered[:at], answered[at:]) == master_frames


def test_one_byte_after_the_other_and_nothing_too_early() -> None:
    answered = stream(NEW_SLAVE, "s2c")
    frames, found = FramesOfMaster(), []
    for at in range(len(answered)):
        for frame in frames.receive(answered[at : at + 1]):
            found.append(frame)
            written = sum(len(master_bytes(one)) for one in found)
            assert written == at + 1
    assert found == heard_by_slave(answered)


def test_the_longest_list_of_epochs() -> None:
    epochs = epoch_list((n + 1, n * 10) for n in range(MAX_ENTRIES))
    frame = MasterHandshakeFrame(10**6, MAX_ENTRIES, epochs)
    assert heard_by_slave(encode_master_handshake(frame)) == [frame]
    too_long = epoch_list((n + 1, n * 10) for n in range(MAX_ENTRIES + 1))
    with pytest.raises(AutoSwitchFrameError, match="1001 epochs"):
        encode_master_handshake(MasterHandshakeFrame(10**6, MAX_ENTRIES + 1, too_long))


def test_a_master_without_epochs() -> None:
    frame = MasterHandshakeFrame(0, -1, EpochList())
    assert heard_by_slave(encode_master_handshake(frame)) == [frame]


def test_a_last_epoch_that_is_newer_than_the_list() -> None:
    """Java reads the list first, then the last epoch: an election may come between."""
    frame = MasterHandshakeFrame(9, 2, epoch_list([(1, 0)]))
    assert heard_by_slave(encode_master_handshake(frame)) == [frame]


def _master_hello(size: int, end: int, last: int, *entries: tuple[int, int]) -> bytes:
    body = b"".join(struct.pack(">iq", *entry) for entry in entries)
    return struct.pack(">iiqi", 1, size, end, last) + body


def _transfer(size: int, offset: int, confirm: int = 0) -> bytes:
    return struct.pack(">iiqiqq", 2, size, offset, 1, 0, confirm)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        pytest.param(struct.pack(">i", 0), "state 0", id="READY"),
        pytest.param(struct.pack(">i", 3), "state 3", id="SUSPEND"),
        pytest.param(struct.pack(">i", -1), "state -1", id="a negative state"),
        pytest.param(struct.pack(">i", 5), "state 5", id="no state"),
        pytest.param(_master_hello(13, 9, 1), "13 bytes", id="half an entry"),
        pytest.param(_master_hello(-12, 9, 1), "-12 bytes", id="a negative list"),
        pytest.param(_master_hello(12_012, 9, 1), "12012 bytes", id="a list that is too long"),
        pytest.param(_master_hello(0, -1, -1), "ends at -1", id="a negative end"),
        pytest.param(_master_hello(24, 9, 1, (2, 0), (1, 5)), "epoch 1", id="epochs that fall"),
        pytest.param(_master_hello(24, 9, 2, (1, 5), (2, 5)), "epoch 2", id="starts that stay"),
        pytest.param(_master_hello(12, 9, 2, (2, -5)), "-5", id="a negative start"),
        pytest.param(_master_hello(12, 9, 1, (2, 0)), "last epoch 1", id="a list beyond its last"),
        pytest.param(_transfer(-1, 0), "-1 bytes", id="a negative size"),
        pytest.param(_transfer(MAX_TRANSFER_BODY + 1, 0), "bytes", id="a frame that is too large"),
        pytest.param(_transfer(10, -1), "offset -1", id="bytes for no offset"),
        pytest.param(_transfer(10, 2**63 - 10), "for offset", id="bytes behind the last offset"),
        pytest.param(_transfer(0, -2), "offset -2", id="a heartbeat for no offset"),
        pytest.param(_transfer(0, 0, -2), "confirm offset -2", id="a negative confirm offset"),
    ],
)
def test_bytes_of_no_master(data: bytes, named: str) -> None:
    with pytest.raises(AutoSwitchFrameError, match=named):
        heard_by_slave(data)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        pytest.param(stream("ha-default-protocol", "c2s"), "state 0", id="another protocol"),
        pytest.param(struct.pack(">ihhq", 1, 0, 0, 0), "broker id 0", id="a master's id"),
        pytest.param(struct.pack(">ihhq", 1, 0, 0, -9), "broker id -9", id="a negative id"),
        pytest.param(struct.pack(">ihhq", 1, 2, 0, 5), "flags 2 and 0", id="a flag that is none"),
        pytest.param(struct.pack(">ihhq", 1, 0, -1, 5), "flags 0 and -1", id="another one"),
        pytest.param(struct.pack(">iq", 2, -1), "report of -1", id="a negative report"),
        pytest.param(struct.pack(">iq", 4, 0), "state 4", id="SHUTDOWN"),
    ],
)
def test_bytes_of_no_slave(data: bytes, named: str) -> None:
    with pytest.raises(AutoSwitchFrameError, match=named):
        heard_by_master(data)


def test_a_repeated_handshake_is_read_as_one() -> None:
    """A Java slave sends it again after five seconds without an answer."""
    frame = SlaveHandshakeFrame(2, sync_from_last_file=True)
    twice: Any = [frame, frame]
    assert heard_by_master(encode_slave_handshake(frame) * 2) == twice


def test_frames_before_a_wrong_one_are_given() -> None:
    frames = FramesOfSlave().receive(encode_report(5) + bytes(4))
    assert next(frames) == ReportFrame(5)
    with pytest.raises(AutoSwitchFrameError):
        next(frames)
