"""Rows: a member of a group with a controller: HA frames of that mode, its files, what a controller
answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from broker.failover.controller_messages import answer_of, role_notice_of
from broker.failover.identity import IdentityError, decode_identity, encode_identity
from broker.failover.messages import Ask
from broker.failover.settings import MemberSettings
from ha.autoswitch_frame import (
    AutoSwitchFrameError,
    FramesOfMaster,
    FramesOfSlave,
    MasterFrame,
    MasterHandshakeFrame,
    ReportFrame,
    SlaveFrame,
    SlaveHandshakeFrame,
    encode_master_handshake,
    encode_report,
    encode_slave_handshake,
    encode_transfer_header,
)
from ha.autoswitch_master import AutoSwitchMaster, LogBounds
from ha.autoswitch_slave import AutoSwitchSlave
from ha.epoch_file import EpochFileError, decode_epochs, encode_epochs
from ha.epochs import epoch_list
from remoting.errors import FrameError, RequestError
from remoting.remoting_codec import encode_command
from remoting.request_code import RequestCode
from tests.fuzz.target import Stateless, Target
from tests.remoting.golden_controller import golden_rows
from tests.support.frame_decoder import FrameDecoder

_GOLDEN = Path(__file__).parents[1] / "golden" / "controller-5.3.3"
_SETTINGS = MemberSettings("CtlCluster", "cb", "127.0.0.1:24410")
_LOG = LogBounds(0, 1_386, 1_386)
_EPOCHS = epoch_list([(1, 0), (2, 693)])
_ASKED = (
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
    RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.CONTROLLER_REGISTER_BROKER,
    RequestCode.CONTROLLER_GET_REPLICA_INFO,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
    RequestCode.CONTROLLER_APPLY_BROKER_ID,
)


# -- the HA port -----------------------------------------------------------------------------------


def _hear(data: bytes) -> None:
    """The first byte says which end hears the rest, and how it is cut. Whatever was taken is
    written again as the same bytes, but for the empty epochs that a master has added (P2)."""
    kind, data = (data[0], data[1:]) if data else (0, b"")
    at = len(data) * (kind >> 1) // 128
    pieces = (data[:at], data[at:])
    if kind & 1:
        _master_hears(pieces)
        written = b"".join(_taken(FramesOfSlave(), pieces, _slave_bytes))
    else:
        _slave_hears(pieces)
        written = b"".join(_taken(FramesOfMaster(), pieces, _master_bytes))
        if not data.startswith(written):
            again = b"".join(_taken(FramesOfMaster(), [written], _master_bytes))
            assert again == written, "nothing but empty epochs was left out"
            return
    assert data.startswith(written), "what was taken is what came"


def _taken(frames: Any, pieces: Sequence[bytes], write: Callable[[Any], bytes]) -> Iterator[bytes]:
    with suppress(AutoSwitchFrameError):
        for piece in pieces:
            yield from map(write, frames.receive(piece))


def _slave_hears(pieces: Sequence[bytes]) -> None:
    slave = AutoSwitchSlave(SlaveHandshakeFrame(2), report_interval_ms=5_000)
    end = 0
    with suppress(AutoSwitchFrameError):
        for piece in pieces:
            for frame in slave.receive(piece):
                if isinstance(frame, MasterHandshakeFrame):
                    slave.follow(end, 0)
                elif frame.body:
                    assert not end or frame.offset == end, "no gap, and nothing twice"
                    end = frame.offset + len(frame.body)
                    slave.due_report(end, 0)


def _master_hears(pieces: Sequence[bytes]) -> None:
    master = AutoSwitchMaster(file_size=1_000, max_size=400, heartbeat_interval_ms=5_000)
    with suppress(AutoSwitchFrameError):
        for piece in pieces:
            for frame in master.receive(piece, _LOG):
                if isinstance(frame, SlaveHandshakeFrame):
                    master.greeting(_EPOCHS, _LOG)
                while master.next_transfer(_EPOCHS, _LOG, 0) is not None:
                    continue
                assert (master.ack_offset or 0) <= _LOG.end


def _master_bytes(frame: MasterFrame) -> bytes:
    if isinstance(frame, MasterHandshakeFrame):
        return encode_master_handshake(frame)
    return encode_transfer_header(frame, len(frame.body)) + frame.body


def _slave_bytes(frame: SlaveFrame) -> bytes:
    if isinstance(frame, ReportFrame):
        return encode_report(frame.max_offset)
    return encode_slave_handshake(frame)


def _stream_seeds() -> Sequence[bytes]:
    found = []
    for path in sorted(_GOLDEN.glob("ha-*.bin")):
        side = 1 if ".c2s." in path.name else 0
        found += [bytes((cut << 1 | side,)) + path.read_bytes() for cut in (0, 50)]
    return found


# -- controllers and files -------------------------------------------------------------------------


def _read(data: bytes) -> None:
    """The first byte says what the rest is."""
    kind, data = (data[0], data[1:]) if data else (0, b"")
    match kind % 8:
        case 0:
            identity = decode_identity(data, "CtlCluster", "cb")
            assert decode_identity(encode_identity(identity), "CtlCluster", "cb") == identity
        case 1:
            epochs = decode_epochs(data)
            assert decode_epochs(encode_epochs(epochs)) == epochs
        case number:
            decoder = FrameDecoder()
            decoder.feed(data)
            command = decoder.next_command()
            if command is not None:
                role_notice_of(command.ext_fields, command.body)
                answer_of(Ask(1, _ASKED[number - 2], 1), command, _SETTINGS)
                encode_command(command)


def _read_seeds() -> Sequence[bytes]:
    answers = [bytes((2 + n % 6,)) + row.frame for n, row in enumerate(golden_rows())]
    identities = [b"\0CtlCluster#cb#1", b"\0CtlCluster#cb#2#127.0.0.1:1;1"]
    lists = [b"\1" + path.read_bytes() for path in sorted(_GOLDEN.glob("*epochFileCheckpoint*"))]
    return [*answers, *identities, *lists]


ROWS = (
    Target(
        name="ha-controller-mode",
        what="both ends of an HA connection in controller mode",
        world=lambda _root: Stateless(_hear),
        seeds=_stream_seeds,
        rooms=("ha",),
        tokens=lambda: [
            encode_slave_handshake(SlaveHandshakeFrame(2)),
            *(encode_report(n) for n in (0, 693, 1_386)),
            (1).to_bytes(4, "big"),
            (2).to_bytes(4, "big"),
        ],
    ),
    Target(
        name="member",
        what="a controller's answers and notices, brokerIdentity, epochFileCheckpoint",
        world=lambda _root: Stateless(
            _read, (RequestError, FrameError, IdentityError, EpochFileError)
        ),
        seeds=_read_seeds,
        rooms=("broker", "ha", "remoting"),
        tokens=lambda: [b"masterEpoch", b"syncStateSetEpoch", b"masterBrokerId", b"#", b";", b"-1"],
    ),
)
