"""Rows: the HA port in both directions: what a slave says to a master, and a master to a slave."""

from __future__ import annotations

import functools
import itertools
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from selectors import EVENT_READ, SelectorKey
from typing import Any

from crc32c import crc32c

from ha.frame import FRAME_HEADER, REPORT, pack_checked_header
from ha.ha_config import HaAckLevel, HaConfig
from ha.ha_environment import HaEnvironment
from ha.handshake import HandshakeError, OwnIdentity, SlaveHandshake
from ha.link_errors import LinkClosedError
from ha.master_link import MasterLink
from ha.pending_peer import PendingPeer
from ha.queue_ends import make_queue_ends
from ha.read_socket_service import ReadSocketService
from ha.reader_pause import ReaderPause
from ha.record_validator import RecordValidators
from ha.reports import Reports
from ha.served_link import ServedLink
from ha.slave_progress import SlaveProgress, first_report_objection, start_offset_for
from ipc.clock import SystemClock
from store.control_slots import ALLOCATED_END, MAX_PHY_OFFSET
from store.errors import StoreError
from store.mapped_file import create_allocated, file_name
from store.message_codec import decode_record, is_blank_at
from store.replica_log import ReplicaLog
from tests.fuzz.mutation import LONG_EDGES, mutate_bytes
from tests.fuzz.target import Target
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import close_page, fresh_page

_GOLDEN = Path(__file__).parents[1] / "golden" / "store-G" / "master" / "commitlog"
_WIRE = Path(__file__).parents[1] / "golden" / "wire-json" / "ha"
_FILE_SIZE = 16_384
_FILES = 3
_LOG_END = 1 << 20
_SENT = 4096
_SECRET = b"a secret of the group"


class _Transport:
    """Gives `data` in pieces and keeps what is sent; then it is silent, then it has ended."""

    remote, local = "10.0.0.9:5", "127.0.0.1:10912"
    has_pending = False

    def __init__(self, data: bytes, piece: int = 1 << 20) -> None:
        self.data, self.piece = data, piece
        self.sent = b""
        self.is_shut = False

    def fileno(self) -> int:
        return -1

    def handshake(self) -> int:
        return 0

    def send(self, parts: Sequence[Any], *, more: bool = False) -> int:
        self.sent += b"".join(map(bytes, parts))
        return sum(map(len, parts))

    def recv(self, size: int) -> bytes | None:
        part, self.data = self.data[: min(size, self.piece)], self.data[min(size, self.piece) :]
        return part or None

    def recv_into(self, view: memoryview) -> int | None:
        part = self.recv(len(view))
        view[: len(part or b"")] = part or b""
        return None if part is None else len(part)

    def shutdown(self) -> None:
        self.is_shut = True

    close = shutdown


class _Ready:
    """A selector whose one socket is always ready."""

    def register(self, *_: Any) -> None: ...

    def select(self, _timeout: float) -> list[tuple[SelectorKey, int]]:
        return [(SelectorKey(None, -1, EVENT_READ, None), EVENT_READ)]

    def close(self) -> None: ...


# -- a slave's words at a master -------------------------------------------------------------------


class _Master:
    """The lobby, then the reader of reports; with and without a secret, strangers and trusted."""

    def __init__(self, _root: Path) -> None:
        self._clock = ManualClock(monotonic_ms=10_000)

    def run(self, data: bytes) -> None:
        """The first byte chooses the master. Nothing of the log is confirmed that was not sent."""
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
            Reports,
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
        if first_report_objection(peer.first_report, 0, _LOG_END) is None:
            self._read_reports(transport, peer.first_report, peer.form)

    def _read_reports(self, transport: Any, first: int, reports: Reports) -> None:
        start = start_offset_for(first, 0)
        progress = SlaveProgress("10.0.0.9:5", first, start, now_ms=10_000, wall_ms=10_000)
        progress.sent(start + _SENT, _SENT, 10_000)
        pause = ReaderPause()
        reader = ReadSocketService(
            HaEnvironment(HaConfig(), self._clock, _Ready),  # type: ignore[arg-type]
            ServedLink(
                transport, progress, lambda _reason, _text: transport.shutdown(), lambda: None
            ),
            reports,
            pause,
            acknowledged=lambda _progress, _log_end: None,
            log_end=lambda: 0,
        )
        while transport.data and not transport.is_shut:
            reader.step()
        pause.close()
        assert first <= progress.ack_offset <= progress.sent_offset

    def check(self) -> None:
        """Each input has a connection of its own."""

    def close(self) -> None:
        """Nothing is open."""


def _hello(secret: bytes | None, version: int = 1) -> bytes:
    own = OwnIdentity("broker-a", 1, "127.0.0.1:20911", secret)
    return SlaveHandshake(own, nonce=bytes(32), version=version).hello


def _report_seeds() -> Sequence[bytes]:
    reports = b"".join(map(REPORT.pack, (0, 100, 4096)))
    shaken = _hello(None) + bytes(32) + reports
    proving = _hello(_SECRET) + bytes(32) + reports
    golden = [path.read_bytes()[:400] for path in sorted(_WIRE.glob("*.c2s.bin"))]
    sealed = _hello(None, 2) + bytes(32) + b"".join(map(Reports(bytes(32)).pack, (0, 100)))
    texts = [reports, shaken, proving, sealed, *golden]
    return [bytes((kind,)) + text for kind, text in itertools.product((0, 1, 2, 3), texts)]


# -- a master's frames at a slave ------------------------------------------------------------------


class _Slave:
    """A link over an empty log of three small files; a new one for each input."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names = itertools.count()

    def run(self, data: bytes) -> None:
        """The first byte chooses form and level. What is published is what was sent, and whole
        records; the link ends with its own errors only."""
        kind, data = (data[0], data[1:]) if data else (0, b"")
        is_checked = bool(kind & 1)
        if is_checked and kind & 2:
            data = with_checksums(data)
        level = (HaAckLevel.received, HaAckLevel.validated)[bool(kind & 4)]
        directory = self._root / str(next(self._names))
        directory.mkdir()
        page = fresh_page()
        try:
            for number in range(_FILES):
                create_allocated(directory / file_name(number * _FILE_SIZE), _FILE_SIZE)
            page.counters[ALLOCATED_END] = _FILES * _FILE_SIZE
            self._follow(directory, page, data, level, is_checked=is_checked, piece=64 + kind * 13)
        finally:
            close_page(page)
            for path in directory.iterdir():
                path.unlink()
            directory.rmdir()

    def _follow(
        self,
        directory: Path,
        page: Any,
        data: bytes,
        level: HaAckLevel,
        *,
        is_checked: bool,
        piece: int,
    ) -> None:
        log = ReplicaLog(directory, _FILE_SIZE, page, lambda: None)
        log.open()
        transport: Any = _Transport(data, piece)
        validators = RecordValidators(
            _FILE_SIZE,
            make_queue_ends(lambda *_: (0, 0), page),
            SystemClock(),
            check_crc=level is not HaAckLevel.received,
        )
        config = HaConfig(ha_ack_level=level)
        link = MasterLink(transport, log, config, SystemClock(), validators, is_checked=is_checked)
        try:
            is_more = True
            while is_more:
                left = len(transport.data)
                is_more = bool(left)  # One look more: only then everything is shown.
                outcome = link.receive()
                if outcome.start_offset is not None or (link.waits_for_file and not outcome[0]):
                    break
                assert outcome.has_more or len(transport.data) < left or not transport.data
        except (LinkClosedError, StoreError):
            pass
        end = page.counters[MAX_PHY_OFFSET]
        log.close()
        _assert_records(directory, end, data)

    def check(self) -> None:
        """Each input has a log of its own."""

    def close(self) -> None:
        """Nothing is open."""


def _assert_records(directory: Path, end: int, data: bytes) -> None:
    at = 0
    while at < end:
        start = at - at % _FILE_SIZE
        view = (directory / file_name(start)).read_bytes()
        if is_blank_at(view, at - start):
            at = start + _FILE_SIZE
            continue
        message, size = decode_record(view, at - start)
        assert message.phy_offset == at
        at += size
    assert end <= max(len(data), 0), f"{end} bytes of log out of {len(data)}"
    assert at == end, f"published up to {end}, within a record that ends at {at}"


def with_checksums(data: bytes) -> bytes:
    """Frames of RocketMQ's form in the checked one, with right checksums."""

    parts, at = [], 0
    while at + FRAME_HEADER.size <= len(data):
        offset, size = FRAME_HEADER.unpack_from(data, at)
        at += FRAME_HEADER.size
        body = data[at : at + max(size, 0)]
        head = bytearray(20)
        try:
            pack_checked_header(head, offset, size, crc32c(body))
        except struct.error:
            break
        parts += [bytes(head), body]
        at += len(body)
    return b"".join(parts) + data[at:]


@functools.cache
def _frame_seeds() -> Sequence[bytes]:
    raw = (_GOLDEN / f"{0:020d}").read_bytes()
    ends = [0]
    while ends[-1] < 3500:
        ends.append(ends[-1] + decode_record(raw, ends[-1])[1])
    one = FRAME_HEADER.pack(0, ends[3]) + raw[: ends[3]]
    two = one + FRAME_HEADER.pack(ends[3], 0) + FRAME_HEADER.pack(ends[3], ends[5] - ends[3])
    two += raw[ends[3] : ends[5]]
    many = b"".join(
        FRAME_HEADER.pack(low, high - low) + raw[low:high] for low, high in itertools.pairwise(ends)
    )
    whole = FRAME_HEADER.pack(0, _FILE_SIZE) + raw
    return [bytes((kind,)) + text for kind in (0, 3, 4, 7) for text in (one, two, many, whole)]


def _mutate_frames(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    """Often a number of a frame's header, or of a record."""
    if len(data) < 20 or rng.random() < 0.5:
        return mutate_bytes(rng, data, tokens)
    changed = bytearray(data)
    at = rng.choice((1, 9, 13, 17, 21, 25, 29, 33, 37, 41, 49, 57, rng.randrange(len(data))))
    size = rng.choice((4, 8))
    number = rng.choice(LONG_EDGES) & (1 << 8 * size) - 1
    changed[at : at + size] = number.to_bytes(size, "big")
    return bytes(changed)


# -- a master's hello at a slave -------------------------------------------------------------------


class _Hello:
    """Our side of the handshake, with and without a secret."""

    def __init__(self, _root: Path) -> None:
        """Nothing to prepare."""

    def run(self, data: bytes) -> None:
        """A master without the secret is never believed."""
        kind, data = (data[0], data[1:]) if data else (0, b"")
        secret = _SECRET if kind & 1 else None
        shaking = SlaveHandshake(OwnIdentity("broker-a", 1, "127.0.0.1:1", secret))
        try:
            while shaking.missing and data:
                part, data = data[: shaking.missing], data[shaking.missing :]
                shaking.receive(part)
        except HandshakeError:
            return
        assert secret is None or shaking.master is None

    def check(self) -> None:
        """Each input has a handshake of its own."""

    def close(self) -> None:
        """Nothing is open."""


def _hello_seeds() -> Sequence[bytes]:
    head = struct.Struct(">8sHH32sqqH")
    hellos = [
        head.pack(b"\xf1MQHello", version, flags, bytes(32), 0, 4096, 15)
        + b"127.0.0.1:10911"
        + bytes(32)
        for version in (1, 2)
        for flags in (0, 1)
    ]
    return [bytes((kind,)) + hello for kind in (0, 1) for hello in hellos]


ROWS = (
    Target(
        name="ha-reports",
        what="a slave's bytes at a master's HA port: handshake, proof, reports",
        world=_Master,
        seeds=_report_seeds,
        rooms=("ha",),
        tokens=lambda: [b"\xf1MQHello", *(REPORT.pack(n) for n in (0, 1, 4096, _LOG_END, -1))],
        largest=2048,
    ),
    Target(
        name="ha-frames",
        what="a master's frames at a slave: both forms, both levels of checks",
        world=_Slave,
        seeds=_frame_seeds,
        rooms=("ha", "store"),
        mutate=_mutate_frames,
        tokens=lambda: [b"\xda\xa3\x20\xa7", b"\xcb\xd4\x31\x94", bytes(8)],
        largest=17_000,
        lives=100_000,
    ),
    Target(
        name="ha-hello",
        what="a master's hello at a slave",
        world=_Hello,
        seeds=_hello_seeds,
        rooms=("ha",),
        tokens=lambda: [b"\xf1MQHello"],
        largest=1024,
    ),
)
