"""What bytes at the HA port cost, in both directions: a world of complexity.py, and what is grown.

A peer's stream is taken in many turns of the thread that reads it, each of which counts: the
handshake in the lobby, a slave's reports (of RocketMQ's form and sealed), a master's frames (both
forms). As tests/fuzz/ha_rows.py, without threads and sockets. The first byte of a trial says who
reads it (`Kind`).
"""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ha.frame import FRAME_HEADER, REPORT
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
from ha.slave_progress import SlaveProgress
from ipc.clock import SystemClock
from store.control_slots import ALLOCATED_END, MAX_PHY_OFFSET
from store.errors import StoreError
from store.mapped_file import create_allocated, file_name
from store.message_codec import decode_record, encode_blank
from store.replica_log import ReplicaLog
from tests.fuzz.growth import FILLERS, Trial
from tests.fuzz.ha_rows import _GOLDEN, _SECRET, _hello, _Ready, _Transport, with_checksums
from tests.fuzz.turns import Turns
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import close_page, fresh_page

_FILE_SIZE: Final = 2 << 20
_LOG_END: Final = 1 << 40
_OWN: Final = OwnIdentity("broker-a", 0, "127.0.0.1:10911", _SECRET)
_SLAVE: Final = OwnIdentity("broker-a", 1, "127.0.0.1:20911", _SECRET)


class Kind(enum.IntEnum):
    """Who reads a stream."""

    MASTER = 0
    """A master: the bytes as they are."""
    SHAKEN = 1
    """A master, behind a handshake of version 2 that a slave with the secret makes: the bytes are
    offsets, which the slave seals."""
    SLAVE = 2
    """A slave: frames of RocketMQ's form."""
    CHECKED_SLAVE = 3
    """A slave: the same, in the form with checksums."""
    HELLO = 4
    """A slave that waits for a master's hello."""


class _Slave(_Transport):
    """A slave that shakes hands, then reports the offsets in `data`."""

    def __init__(self, data: bytes, turns: Turns) -> None:
        super().__init__(b"")
        self._offsets = data[: len(data) - len(data) % REPORT.size]
        self._turns = turns
        self._shaking = SlaveHandshake(_SLAVE)
        self.data = self._shaking.hello

    def send(self, parts: Any, *, more: bool = False) -> int:
        """What the master says: answered at once, on the slave's account."""
        taken = super().send(parts, more=more)
        with self._turns.apart():
            while self.sent and self._shaking.missing:
                missing = self._shaking.missing
                part, self.sent = self.sent[:missing], self.sent[missing:]
                self.data += self._shaking.receive(part)
            if self._shaking.master is not None and self._offsets:
                reports = Reports(self._shaking.report_key)
                found = REPORT.iter_unpack(self._offsets)
                self.data += b"".join(reports.pack(offset) for (offset,) in found)
                self._offsets = b""
        return taken


class HaCosts:
    """See the module."""

    def __init__(self, root: Path) -> None:
        self.turns = Turns()
        self._root = root
        self._names = itertools.count()
        self._clock = ManualClock(monotonic_ms=10_000)
        self.read = 0
        """Bytes of the last stream that were taken for good: reports, or of the log."""
        self._good = False

    def served(self) -> set[int]:
        """The kinds of streams."""
        return set(Kind)

    def ask(self, data: bytes) -> None:
        """One stream, up to its end or to what closes it."""
        kind, data = Kind(data[0]), data[1:]
        self.read = 0
        if kind in (Kind.MASTER, Kind.SHAKEN):
            transport = _Slave(data, self.turns) if kind is Kind.SHAKEN else _Transport(data)
            self._lead(transport)
        elif kind is Kind.HELLO:
            self._shake(data)
        else:
            self._follow(data, is_checked=kind is Kind.CHECKED_SLAVE)

    def _lead(self, transport: Any) -> None:
        self.turns.begin()
        peer = PendingPeer(
            *(transport, transport.remote, _OWN, lambda: (0, _LOG_END), Reports),
            is_trusted=True,
            now_ms=0,
        )
        try:
            if peer.advance():
                return
        except (HandshakeError, OSError):
            return
        finally:
            self.turns.end_turn()
        progress = SlaveProgress("10.0.0.9:5", 0, 0, now_ms=10_000, wall_ms=10_000)
        progress.sent(_LOG_END, _LOG_END, 10_000)
        pause = ReaderPause()
        reader = ReadSocketService(
            HaEnvironment(HaConfig(), self._clock, _Ready),  # type: ignore[arg-type]
            ServedLink(
                transport, progress, lambda _reason, _text: transport.shutdown(), lambda: None
            ),
            peer.form,
            pause,
            acknowledged=self._note,
            log_end=lambda: _LOG_END,
        )
        while transport.data and not transport.is_shut:
            before = len(transport.data)
            self._good = False
            reader.step()
            self.turns.end_turn()
            self.read += (before - len(transport.data)) * self._good
        pause.close()

    def _note(self, _progress: SlaveProgress, _log_end: int) -> None:
        self._good = True

    def _shake(self, data: bytes) -> None:
        self.turns.begin()
        shaking = SlaveHandshake(_SLAVE)
        try:
            while shaking.missing and data:
                part, data = data[: shaking.missing], data[shaking.missing :]
                shaking.receive(part)
        except HandshakeError:
            pass
        finally:
            self.turns.end_turn()

    def _follow(self, data: bytes, *, is_checked: bool) -> None:
        directory = self._root / str(next(self._names))
        directory.mkdir()
        page = fresh_page()
        create_allocated(directory / file_name(0), _FILE_SIZE)
        page.counters[ALLOCATED_END] = _FILE_SIZE
        log = ReplicaLog(directory, _FILE_SIZE, page, lambda: None)
        log.open()
        transport: Any = _Transport(data)
        ends = make_queue_ends(lambda *_: (0, 0), page)
        validators = RecordValidators(_FILE_SIZE, ends, SystemClock(), check_crc=True)
        config = HaConfig(ha_ack_level=HaAckLevel.validated)
        link = MasterLink(transport, log, config, SystemClock(), validators, is_checked=is_checked)
        self.turns.begin()
        try:
            has_more = True
            while has_more:
                outcome = link.receive()
                self.turns.end_turn()
                is_full = outcome.start_offset is not None or link.waits_for_file
                has_more = not is_full and (outcome.has_more or bool(transport.data))
        except (LinkClosedError, StoreError):
            self.turns.end_turn()
        finally:
            self.read = page.counters[MAX_PHY_OFFSET]
            log.close()
            close_page(page)
            for path in directory.iterdir():
                path.unlink()
            directory.rmdir()

    def close(self) -> None:
        """Each stream has a log of its own."""


def ha_trials() -> Iterator[Trial]:
    """Streams of each kind: of valid reports and frames, and of texts behind a good beginning."""
    hello = _hello(_SECRET)
    for words, start in (
        ("handshake", hello),
        ("report", REPORT.pack(0)),
        ("hello's name", hello[:-8]),
        ("nothing", b""),
    ):
        for filler, pattern in FILLERS.items():
            make = functools.partial(_repeated, Kind.MASTER, start, pattern.encode())
            yield Trial(Kind.MASTER, f"behind {words}: {filler}", make)
    yield Trial(Kind.MASTER, "reports: equal", functools.partial(_reports, Kind.MASTER, 0))
    yield Trial(Kind.MASTER, "reports: rising", functools.partial(_reports, Kind.MASTER, 1))
    yield Trial(Kind.SHAKEN, "sealed reports: equal", functools.partial(_reports, Kind.SHAKEN, 0))
    yield Trial(Kind.SHAKEN, "sealed reports: rising", functools.partial(_reports, Kind.SHAKEN, 1))
    for kind in (Kind.SLAVE, Kind.CHECKED_SLAVE):
        yield Trial(kind, "frames: empty", functools.partial(_frames, kind, 0))
        yield Trial(kind, "frames: a record each", functools.partial(_frames, kind, 1))
        yield Trial(kind, "frames: many records each", functools.partial(_frames, kind, 64))
        yield Trial(kind, "frames: all in one", functools.partial(_frames, kind, 1 << 20))
        yield Trial(kind, "frames: a blank record", functools.partial(_blank, kind))
        for filler, pattern in FILLERS.items():
            start = FRAME_HEADER.pack(0, 900_000) if kind is Kind.SLAVE else b""
            make = functools.partial(_repeated, kind, start, pattern.encode())
            yield Trial(kind, f"frame: {filler}", make)
    for filler, pattern in FILLERS.items():
        start = b"\xf1MQHello\x00\x02\x00\x01"
        make = functools.partial(_repeated, Kind.HELLO, start, pattern.encode())
        yield Trial(Kind.HELLO, f"hello: {filler}", make)


def _repeated(kind: Kind, start: bytes, pattern: bytes, size: int, _salt: int) -> bytes:
    return bytes((kind,)) + start + pattern * (size // len(pattern))


def _reports(kind: Kind, step: int, size: int, _salt: int) -> bytes:
    number = size // REPORT.size
    return bytes((kind,)) + b"".join(REPORT.pack(step * index) for index in range(number))


@functools.cache
def _record() -> bytes:
    raw = (_GOLDEN / f"{0:020d}").read_bytes()
    return raw[: decode_record(raw, 0)[1]]


def _frames(kind: Kind, records: int, size: int, _salt: int) -> bytes:
    """The same record at each place: its offsets are those of the place."""
    if not records:
        data = FRAME_HEADER.pack(0, 0) * (size // FRAME_HEADER.size)
    else:
        record, parts, at = _record(), [], 0
        left = max(1, size // len(record))
        while left > 0:
            taken = min(left, records)
            body = b"".join(_moved(record, at + index * len(record)) for index in range(taken))
            parts.append(FRAME_HEADER.pack(at, len(body)) + body)
            at, left = at + len(body), left - taken
        data = b"".join(parts)
    return bytes((kind,)) + (with_checksums(data) if kind is Kind.CHECKED_SLAVE else data)


def _moved(record: bytes, at: int) -> bytes:
    index = at // len(record)
    return record[:20] + index.to_bytes(8, "big") + at.to_bytes(8, "big") + record[36:]


def _blank(kind: Kind, size: int, _salt: int) -> bytes:
    data = FRAME_HEADER.pack(0, size) + encode_blank(size).ljust(size, b"\0")
    return bytes((kind,)) + (with_checksums(data) if kind is Kind.CHECKED_SLAVE else data)
