"""Rows: HA connections in controller mode, from the socket on: the door of a master, the link of a
slave. What comes behind the door, and the frames by themselves, are in member_rows.py."""

from __future__ import annotations

import functools
import itertools
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ha.autoswitch_connections import FirstHandshake
from ha.autoswitch_frame import (
    MasterHandshakeFrame,
    SlaveHandshakeFrame,
    TransferFrame,
    encode_master_handshake,
    encode_slave_handshake,
    encode_transfer_header,
)
from ha.autoswitch_link import AutoSwitchLink
from ha.checked_carriage import SlaveBytes, head_of
from ha.epochs import epoch_list
from ha.ha_config import HaAckLevel, HaConfig
from ha.handshake import HandshakeError, OwnIdentity
from ha.link_errors import LinkClosedError
from ha.master_connector import Connected
from ha.master_hello import MasterHello
from ha.pending_peer import PendingPeer
from ha.queue_ends import make_queue_ends
from ha.record_validator import RecordValidators
from ipc.clock import SystemClock
from store.control_slots import ALLOCATED_END, MAX_PHY_OFFSET
from store.errors import StoreError
from store.mapped_file import create_allocated, file_name
from store.message_codec import decode_record
from store.replica_log import ReplicaLog
from tests.fuzz.ha_rows import (
    _FILE_SIZE,
    _FILES,
    _GOLDEN,
    _LOG_END,
    _SECRET,
    _assert_records,
    _hello,
    _Transport,
)
from tests.fuzz.member_rows import _GOLDEN as _STREAMS
from tests.fuzz.mutation import LONG_EDGES, mutate_bytes
from tests.fuzz.target import Target
from tests.support.shared_memory import close_page, fresh_page

_KEY = bytes(32)


# -- the door of a master --------------------------------------------------------------------------


class _Door:
    """With and without a secret, strangers and trusted."""

    def __init__(self, _root: Path) -> None:
        """Nothing to prepare."""

    def run(self, data: bytes) -> None:
        """The first byte chooses the master. Nobody is known without a proof or an address."""
        kind, data = (data[0], data[1:]) if data else (0, b"")
        secret = _SECRET if kind & 1 else None
        is_trusted = not kind & 2
        transport: Any = _Transport(data, 1 + kind % 50)
        own = OwnIdentity("broker-a", 0, "127.0.0.1:10911", secret)
        peer = PendingPeer(
            transport,
            transport.remote,
            own,
            lambda: (0, _LOG_END),
            FirstHandshake,
            is_trusted=is_trusted,
            now_ms=0,
        )
        try:
            waits = peer.advance()
        except (HandshakeError, OSError):
            return
        if waits:
            return
        assert peer.is_known
        assert is_trusted or secret is None, "a stranger is known without its proof"
        assert peer.first_report.broker_id > 0
        read = len(data) - len(transport.data)
        shaken = peer.slave is not None
        assert shaken or read == peer.form.size, "a byte of what comes later was taken"

    def check(self) -> None:
        """Each input has a connection of its own."""

    def close(self) -> None:
        """Nothing is open."""


def _door_seeds() -> Sequence[bytes]:
    first = encode_slave_handshake(SlaveHandshakeFrame(2))
    sealed = SlaveBytes(_KEY).pack(first)
    texts = [
        first + b"more",
        _hello(None, 2) + bytes(32) + sealed,
        _hello(_SECRET, 2) + bytes(32) + sealed,
        _hello(None) + bytes(32) + first,
    ]
    return [bytes((kind,)) + text for kind, text in itertools.product((0, 1, 2, 3), texts)]


# -- the link of a slave ---------------------------------------------------------------------------


class _Link:
    """An empty log of three small files; a new one for each input."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names = itertools.count()

    def run(self, data: bytes) -> None:
        """The first byte chooses form and level. What is published is whole records, no more than
        came; what was not confirmed by a frame is not told; the link ends with its own errors."""
        kind, data = (data[0], data[1:]) if data else (0, b"")
        is_checked = bool(kind & 1)
        if is_checked and kind & 2:
            data = _carried(data)
        directory = self._root / str(next(self._names))
        directory.mkdir()
        page = fresh_page()
        try:
            for number in range(_FILES):
                create_allocated(directory / file_name(number * _FILE_SIZE), _FILE_SIZE)
            page.counters[ALLOCATED_END] = _FILES * _FILE_SIZE
            level = (HaAckLevel.received, HaAckLevel.validated)[bool(kind & 4)]
            self._follow(directory, page, _Transport(data, 64 + kind * 13), level, is_checked)
            _assert_records(directory, page.counters[MAX_PHY_OFFSET], data)
        finally:
            close_page(page)
            for path in directory.iterdir():
                path.unlink()
            directory.rmdir()

    def _follow(
        self, directory: Path, page: Any, transport: Any, level: HaAckLevel, is_checked: bool
    ) -> None:
        log = ReplicaLog(directory, _FILE_SIZE, page, lambda: None)
        log.open()
        validators = RecordValidators(
            _FILE_SIZE,
            make_queue_ends(lambda *_: (0, 0), page),
            SystemClock(),
            check_crc=level is not HaAckLevel.received,
        )
        told: list[int] = []
        hello = MasterHello(-1, -1, None, is_proved=False)
        link = AutoSwitchLink(
            Connected(transport, hello, is_checked, _KEY if is_checked else None),
            SlaveHandshakeFrame(2),
            log,
            HaConfig(ha_ack_level=level),
            SystemClock(),
            validators,
            told.append,
        )
        piece, transport.piece = transport.piece, 20  # A master sends nothing behind its greeting.
        try:
            is_more = True
            while is_more:
                left = len(transport.data)
                is_more = bool(left)  # One look more: only then everything is shown.
                more = link.receive()
                if link.hello is not None and transport.piece != piece:
                    link.follow()
                    transport.piece = piece
                if link.start_offset is not None or link.waits_for_file:
                    break
                assert more or not left or len(transport.data) < left
        except (LinkClosedError, StoreError):
            pass
        assert all(offset >= 0 for offset in told)
        log.close()

    def check(self) -> None:
        """Each input has a log of its own."""

    def close(self) -> None:
        """Nothing is open."""


def _carried(data: bytes) -> bytes:
    """Whole frames in the checked form, with right checksums."""
    found, at = b"", 0
    head = struct.Struct(">ii")
    while at + head.size <= len(data):
        state, size = head.unpack_from(data, at)
        end = at + (20 if state == 1 else 36) + max(size, 0)
        frame = data[at:end]
        if not frame:
            break
        found += head_of(frame) + frame
        at = end
    return found + data[at:]


@functools.cache
def _link_seeds() -> Sequence[bytes]:
    raw = (_GOLDEN / f"{0:020d}").read_bytes()
    ends = [0]
    while ends[-1] < 3_500:
        ends.append(ends[-1] + decode_record(raw, ends[-1])[1])
    greeting = encode_master_handshake(
        MasterHandshakeFrame(_FILE_SIZE, 2, epoch_list([(1, 0), (2, ends[2])]))
    )
    cuts = {
        "records": ends,
        "anywhere": [0, 100, ends[2], ends[2] + 5, ends[-1]],
        "file": [0, _FILE_SIZE],
    }
    streams = [
        greeting + b"".join(_frame(raw, *pair) for pair in itertools.pairwise(at))
        for at in cuts.values()
    ]
    streams += [path.read_bytes() for path in sorted(_STREAMS.glob("ha-*.s2c.bin"))]
    return [bytes((kind,)) + text for kind in (0, 3, 4, 7) for text in streams]


def _frame(raw: bytes, low: int, high: int) -> bytes:
    frame = TransferFrame(low, 1, 0, low, b"")
    return encode_transfer_header(frame, high - low) + raw[low:high]


def _mutate(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    """Often a number of a frame's header."""
    if len(data) < 90 or rng.random() < 0.5:
        return mutate_bytes(rng, data, tokens)
    changed = bytearray(data)
    at = 1 + rng.choice((0, 4, 8, 16, 20, 24, 32, 36, 44, 48, 52, 60, 64, 72))
    size = rng.choice((4, 8))
    number = rng.choice(LONG_EDGES) & (1 << 8 * size) - 1
    changed[at : at + size] = number.to_bytes(size, "big")
    return bytes(changed)


ROWS = (
    Target(
        name="ha-controller-door",
        what="a slave's first bytes at a master's HA port in controller mode",
        world=_Door,
        seeds=_door_seeds,
        rooms=("ha",),
        tokens=lambda: [b"\xf1MQHello", b"\0\0\0\1", b"\0\0\0\2"],
        largest=1024,
    ),
    Target(
        name="ha-controller-link",
        what="a master's bytes at a slave's link in controller mode: both forms, both levels",
        world=_Link,
        seeds=_link_seeds,
        rooms=("ha", "store"),
        mutate=_mutate,
        tokens=lambda: [b"\xda\xa3\x20\xa7", b"\xcb\xd4\x31\x94", b"\0\0\0\1", b"\0\0\0\2"],
        largest=17_000,
        lives=100_000,
    ),
)
