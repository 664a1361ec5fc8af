"""A master's side of replication in one process: a log, a page, its services, and fake slaves."""

from __future__ import annotations

import os
import random
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from types import TracebackType

import pytest
from crc32c import crc32c

from ha.accept_socket_service import LOBBY_SIZE, AcceptSocketService
from ha.frame import CHECKED_HEADER, FRAME_HEADER
from ha.ha_config import HaConfig
from ha.ha_connection import HAConnections
from ha.ha_environment import HaEnvironment, LinkIdentity
from ha.handshake import VERSION, OwnIdentity, SlaveHandshake, SlaveHello
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalCounters, RefusalReason
from ha.replica_verifier import ReplicaVerifier, VerifyReplica
from ha.reports import Reports
from ha.slave_progress import SlaveProgress
from ha.source_files import LogSource
from ha.trusted_peers import TrustedPeers
from ha.wait_notify_object import WaitNotifyObject
from ipc.bell import Bell
from ipc.clock import Clock, SystemClock
from ipc.control_page import ControlPage, ProcessIndex
from ipc.service_thread import ServiceThread
from remoting.selector_seam import new_selector
from store.control_slots import LOG_OPENED, MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.mapped_file import file_name
from tests.support.deadline import wait_until
from tests.support.shared_memory import close_page, fresh_page

FILE_SIZE = 256 << 10
EVERYTHING = 1 << 62
MASTER = OwnIdentity("b", 0, "127.0.0.1:10911")


class RecordingGroupTransfer:
    """Notes what GroupTransferService would be told."""

    def __init__(self) -> None:
        self.added: list[SlaveProgress] = []
        self.removed: list[tuple[SlaveProgress, RefusalReason | None, str]] = []
        self.acknowledged: list[int] = []

    def add(self, progress: SlaveProgress) -> None:
        self.added.append(progress)

    def remove(self, progress: SlaveProgress, reason: RefusalReason | None, text: str) -> None:
        assert progress in self.added
        self.removed.append((progress, reason, text))

    def notify_transfer_some(self, progress: SlaveProgress, _log_end: int) -> None:
        self.acknowledged.append(progress.ack_offset)


class GrowingLog:
    """Random bytes as a commit log; the page says how far they go. Records do not matter here."""

    def __init__(
        self, directory: Path, page: ControlPage, bell: Bell, *, file_size: int, start: int
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.start = start
        self.content = bytearray()
        self._counters = page.counters
        self._bell = bell
        self._random = random.Random(7)
        directory.mkdir()
        self._counters[MIN_PHY_OFFSET] = self._counters[MAX_PHY_OFFSET] = start

    @property
    def end(self) -> int:
        return self.start + len(self.content)

    def append(self, size: int) -> int:
        """Write random bytes, publish, ring; the new end."""
        return self.append_bytes(self._random.randbytes(size))

    def append_bytes(self, data: bytes) -> int:
        """Write, publish, ring; the new end."""
        at = self.end
        self.content += data
        while data:
            path = self.directory / file_name(at - at % self.file_size)
            if not path.exists():
                path.write_bytes(bytes(self.file_size))
            position = at % self.file_size
            part = data[: self.file_size - position]
            with path.open("r+b") as file:
                file.seek(position)
                file.write(part)
            at += len(part)
            data = data[len(part) :]
        self._counters[MAX_PHY_OFFSET] = at
        self._bell.ring()
        return at

    def bytes_from(self, offset: int) -> bytes:
        return bytes(self.content[offset - self.start :])

    def delete_below(self, offset: int) -> None:
        """Retention: whole files go, then the page says so."""
        for start in range(self.start, offset, self.file_size):
            (self.directory / file_name(start)).unlink(missing_ok=True)
        self._counters[MIN_PHY_OFFSET] = offset


class MasterWorld:
    """Everything but the GroupTransferService, which is a recording."""

    def __init__(
        self,
        root: Path,
        config: HaConfig | None = None,
        *,
        start: int = 0,
        file_size: int = FILE_SIZE,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        lobby_size: int = LOBBY_SIZE,
        opened_at: int = EVERYTHING,
        verify: VerifyReplica = lambda _ip, _offset: None,
        own: OwnIdentity = MASTER,
    ) -> None:
        """`opened_at`: the log's end when the store was opened; any report is honest as a rule."""
        config = config or HaConfig()
        clock = clock or SystemClock()
        self.page = fresh_page()
        self.page.counters[LOG_OPENED] = opened_at + 1
        self.counters = RefusalCounters(self.page)
        self.refusal_log = refusals = RefusalLog(self.counters, clock)
        self.verifier = ReplicaVerifier(verify, clock, on_failure=self._failed)
        self.bell_fd = Bell.create()
        self.bell = Bell(self.page, ProcessIndex.HA, self.bell_fd)
        self.log = GrowingLog(
            root / "commitlog", self.page, self.bell, file_size=file_size, start=start
        )
        self.group_transfer = RecordingGroupTransfer()
        self.trusted = TrustedPeers.of(config)
        self.failures: list[Exception] = []
        self.named: list[tuple[str, SlaveHello]] = []
        environment = HaEnvironment(config, clock, new_selector, self._failed)
        self.connections = HAConnections(
            environment,
            LogSource(self.log.directory, file_size, self.page),
            self.group_transfer,
            WaitNotifyObject(self.bell),
            refusals,
            self.verifier,
            name_link=lambda *link: self.named.append(link),
        )
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.address: tuple[str, int] = self.listening.getsockname()
        self.accept = AcceptSocketService(
            environment,
            self.listening,
            LinkIdentity(own, self.trusted, tls),
            refusals,
            self.connections.admit,
            Reports,
            lambda: (self.page.counters[MIN_PHY_OFFSET], self.page.counters[MAX_PHY_OFFSET]),
            lobby_size=lobby_size,
        )
        self.verifier.start()
        self.accept.start()

    def _failed(self, _service: ServiceThread, error: Exception) -> None:
        self.failures.append(error)

    def refusals(self) -> dict[str, int]:
        return self.counters.snapshot()

    def wait_for_refusal(self, reason: RefusalReason, count: int = 1) -> None:
        name = reason.name.lower()
        wait_until(lambda: self.refusals().get(name, 0) >= count)

    def close(self) -> None:
        assert self.accept.shutdown()
        assert self.verifier.shutdown()
        assert self.connections.close_all()
        assert self.connections._connections == []
        self.listening.close()
        assert self.failures == []
        os.close(self.bell_fd)
        close_page(self.page)

    def __enter__(self) -> MasterWorld:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class FakeSlave:
    """Reads frames with blocking calls and checks what holds for every frame."""

    def __init__(
        self,
        address: tuple[str, int],
        first_report: int | None = None,
        *,
        source: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        file_size: int = FILE_SIZE,
        receive_buffer: int = 0,
    ) -> None:
        raw = socket.socket()
        if receive_buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        raw.settimeout(10)
        raw.bind((source, 0))
        raw.connect(address)
        self.sock = raw if tls is None else tls.wrap_socket(raw)
        self.file_size = file_size
        self.reports = Reports(None)
        self.offset = first_report or 0
        self.received = bytearray()
        self.sizes: list[int] = []
        """Of all frames, heartbeats (0) too."""
        if first_report is not None:
            self.report(first_report)

    def report(self, offset: int) -> None:
        self.sock.sendall(self.reports.pack(offset))

    def read_frame(self) -> int:
        """Its size; 0 for a heartbeat."""
        offset: int
        size: int
        offset, size = FRAME_HEADER.unpack(self._read(FRAME_HEADER.size))
        if self.offset == 0 and not self.sizes:
            self.offset = offset
        assert offset == self.offset
        if size:
            assert offset // self.file_size == (offset + size - 1) // self.file_size
        self.received += self._read(size)
        self.offset += size
        self.sizes.append(size)
        return size

    def read_up_to(self, offset: int, *, report: bool = False) -> None:
        while self.offset < offset:
            self.read_frame()
            if report:
                self.report(self.offset)
        assert self.offset == offset

    def is_closed_by_master(self) -> bool:
        """Reads the rest; True at the end of the stream, AssertionError on a log byte."""
        try:
            data = self.sock.recv(1)
        except ConnectionError:
            return True
        return not data

    def report_until_refused(self) -> None:
        """Report for as long as the master takes it; AssertionError on a log byte."""
        try:
            while True:
                self.report(0)
                assert self.sock.recv(1) == b""
        except OSError:
            return

    def skip_to_end(self) -> None:
        """Read whatever comes until the master closes."""
        try:
            while self.sock.recv(1 << 20):
                pass
        except ConnectionError:
            return

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self.sock.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
        return bytes(data)

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> FakeSlave:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class OwnSlave(FakeSlave):
    """A slave of our own: it shakes hands and checks every frame's checksums."""

    def __init__(
        self,
        address: tuple[str, int],
        first_report: int | None,
        secret: bytes | None = None,
        *,
        source: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        file_size: int = FILE_SIZE,
        version: int = VERSION,
    ) -> None:
        super().__init__(address, source=source, tls=tls, file_size=file_size)
        shaking = SlaveHandshake(OwnIdentity("b", 5, "127.0.0.1:5", secret), version=version)
        self.sock.sendall(shaking.hello)
        while shaking.missing:
            self.sock.sendall(shaking.receive(self._read(shaking.missing)))
        self.hello = shaking.master
        self.reports = Reports(shaking.report_key)
        if first_report is not None:
            self.offset = first_report
            self.report(first_report)

    def read_frame(self) -> int:
        offset: int
        size: int
        head = self._read(CHECKED_HEADER.size)
        offset, size, body_crc, head_crc = CHECKED_HEADER.unpack(head)
        assert crc32c(head[:16]) == head_crc
        if self.offset == 0 and not self.sizes:
            self.offset = offset
        assert offset == self.offset
        body = self._read(size)
        assert crc32c(body) == body_crc
        self.received += body
        self.offset += size
        self.sizes.append(size)
        return size


class Certificates:
    """Two authorities; the first has signed `certificate`, the other `stranger`."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl here to make certificates with")
        self._directory = directory
        self.authority = self._make_authority("authority")
        self.other_authority = self._make_authority("other")
        self.certificate, self.key = self._sign("broker", "authority")
        self.stranger, self.stranger_key = self._sign("stranger", "other")

    def config(self, **changes: object) -> HaConfig:
        values: dict[str, object] = {
            "ha_tls_enable": True,
            "ha_tls_certificate": self.certificate,
            "ha_tls_private_key": self.key,
            "ha_tls_trusted_certificates": self.authority,
        }
        return HaConfig(**(values | changes))  # type: ignore[arg-type]

    def _make_authority(self, name: str) -> str:
        self._openssl(
            *("req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
        )
        return str(self._directory / f"{name}.pem")

    def _sign(self, name: str, authority: str) -> tuple[str, str]:
        self._openssl(
            *("req", "-nodes", "-subj", f"/CN={name}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-days", "2", "-out", f"{name}.pem"),
            *("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial"),
        )
        return str(self._directory / f"{name}.pem"), str(self._directory / f"{name}.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments], cwd=self._directory, check=True, capture_output=True
        )
