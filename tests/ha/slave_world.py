"""A slave's end in one process: page, files, a stand-in for the `store` process, and HAClient."""

from __future__ import annotations

import dataclasses
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ha.ha_client import HAClient, MasterChecks
from ha.ha_client_info import HAClientInfo, HAClientState
from ha.ha_config import HaAckLevel, HaConfig
from ha.ha_environment import HaEnvironment, LinkIdentity
from ha.handshake import OwnIdentity
from ha.inspection import Inspection, Verdict
from ha.queue_ends import make_queue_ends
from ha.record_validator import RecordValidator, RecordValidators
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalCounters
from ha.trusted_peers import TrustedPeers
from ha.uncompared_end import UncomparedEnd, uncompared_path
from ha.wait_notify_object import WaitNotifyObject
from ipc.bell import Bell
from ipc.clock import SystemClock
from ipc.control_page import ProcessIndex
from ipc.service_thread import ServiceThread
from remoting.selector_seam import new_selector
from store.control_slots import (
    ALLOCATED_END,
    APPEND_END,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
)
from store.errors import StoreError
from store.mapped_file import create_allocated, file_name
from store.replica_log import ReplicaLog
from tests.support.deadline import wait_until
from tests.support.scripted_master import ScriptedLink, ScriptedMaster
from tests.support.shared_memory import fresh_page

MASTER_ADDRESS = "127.0.0.1:10911"
QUICK: dict[str, Any] = {"ha_reconnect_interval": 30}


class _BelievingValidators(RecordValidators):
    """For tests of frames, whose bytes are no records."""

    def begin(self, position: int, *, is_checked: bool = False) -> RecordValidator:
        return _BelievingValidator(
            self._file_size, position, self._expectations, self._doubts, check_crc=False
        )


class _BelievingValidator(RecordValidator):
    def check(self, file: memoryview, received: int) -> None:
        self.position = received


class SlaveWorld:
    """`inspection` is what the master's inspection says next; tests change it as they like."""

    def __init__(
        self,
        directory: Path,
        master: ScriptedMaster | None,
        *,
        file_size: int = 4096,
        files: int = 8,
        start: int = 0,
        tls: ssl.SSLContext | None = None,
        secret: bytes | None = None,
        judges_records: bool = False,
        **settings: Any,
    ) -> None:
        """files: allocated from `start` on, where the empty log is; 0 = the log has no place.
        judges_records: False: any bytes may be a log, unless haAckLevel asks for their check."""
        self.directory = directory / "commitlog"
        self.directory.mkdir(exist_ok=True)
        self.file_size = file_size
        self.page = fresh_page()
        self.counters = self.page.counters
        if "ha_ack_level" in settings:
            settings["ha_ack_level"] = HaAckLevel(settings["ha_ack_level"])
        self.config = HaConfig(**{**QUICK, **settings})
        self.judges_records = judges_records or "ha_ack_level" in settings
        self.bell_fd = Bell.create()
        self.failures: list[Exception] = []
        self.resyncs: list[tuple[str, int, str]] = []
        self.begun: list[int] = []
        self.begin_fails: StoreError | None = None
        self.before_begin: Callable[[], object] = lambda: None
        self.resync_fails: StoreError | None = None
        self.allocates = True
        self.connected: list[tuple[str, str]] = []
        self.inspected: list[tuple[int, int]] = []
        self.inspection: Inspection | StoreError = Inspection(
            verdict=Verdict.GO,
            ha_address=None if master is None else master.address,
            master_address=MASTER_ADDRESS,
        )
        self.before_inspection: Callable[[], object] = lambda: None
        self.queues: dict[tuple[str, int], tuple[int, int]] = {}
        """What the consume queues say: (topic, queueId) to min and max offset."""
        self.tls = tls
        self.own = OwnIdentity("b", 1, "127.0.0.1:20911", secret)
        self.rings = 0
        for slot in (MIN_PHY_OFFSET, MAX_PHY_OFFSET, APPEND_END, FLUSHED_OFFSET):
            self.counters[slot] = start
        for at in range(start, start + files * file_size, file_size):
            self.allocate(at)
        self.client = self._new_client()

    # -- the client ----------------------------------------------------------------------------

    def bell(self) -> Bell:
        return Bell(self.page, ProcessIndex.HA, self.bell_fd)

    def _new_client(self) -> HAClient:
        clock = SystemClock()
        return HAClient(
            HaEnvironment(self.config, clock, new_selector, self._fail),
            ReplicaLog(self.directory, self.file_size, self.page, self._ring),
            LinkIdentity(self.own, TrustedPeers.of(self.config), self.tls),
            RefusalLog(RefusalCounters(self.page), clock),
            WaitNotifyObject(self.bell()),
            self,
            MasterChecks(self.new_validators(), UncomparedEnd(uncompared_path(self.directory))),
            self._note_link,
        )

    def _note_link(self) -> None:
        info = self.client.snapshot()
        if info.local_address is not None and info.state is HAClientState.TRANSFER:
            self.connected.append((info.local_address, info.master_address))

    def new_validators(self) -> RecordValidators:
        kind = RecordValidators if self.judges_records else _BelievingValidators
        return kind(
            self.file_size,
            make_queue_ends(lambda *queue: self.queues.get(queue, (0, 0)), self.page),
            SystemClock(),
            check_crc=self.config.ha_ack_level is not HaAckLevel.received,
        )

    def start(self) -> SlaveWorld:
        self.client.start()
        return self

    def restart(self) -> SlaveWorld:
        """The process' next life: another client over the same page and files."""
        self.client = self._new_client()
        return self.start()

    def stop(self) -> None:
        assert self.client.shutdown(2_000)
        os.close(self.bell_fd)
        assert self.failures == []

    def _ring(self) -> None:
        self.rings += 1

    def _fail(self, service: ServiceThread, error: Exception) -> None:
        self.failures.append(error)

    # -- what it is told -----------------------------------------------------------------------

    def inspect_master(self, max_phy_offset: int, min_phy_offset: int) -> Inspection:
        self.inspected.append((max_phy_offset, min_phy_offset))
        self.before_inspection()
        found = self.inspection
        if isinstance(found, StoreError):
            raise found
        return found

    def request_resync(self, action: str, offset: int, reason: str) -> None:
        self.resyncs.append((action, offset, reason))
        if self.resync_fails is not None:
            raise self.resync_fails

    def say(self, verdict: Verdict, **changes: Any) -> None:
        """The next inspection's answer."""
        assert isinstance(self.inspection, Inspection)
        self.inspection = dataclasses.replace(self.inspection, verdict=verdict, **changes)

    # -- the store process ---------------------------------------------------------------------

    def allocate(self, start: int) -> None:
        create_allocated(self.directory / file_name(start), self.file_size)
        self.counters[ALLOCATED_END] = start + self.file_size

    def begin_log(self, phy_offset: int) -> None:
        self.begun.append(phy_offset)
        self.before_begin()
        if self.begin_fails is not None:
            raise self.begin_fails
        assert self.counters[MAX_PHY_OFFSET] <= phy_offset
        self.counters[FLUSHED_OFFSET] = self.counters[MIN_PHY_OFFSET] = phy_offset
        if self.allocates:
            self.allocate(phy_offset)
            self.bell().ring()

    def flush(self) -> None:
        """Everything that is published comes to disk."""
        self.counters[FLUSHED_OFFSET] = self.counters[MAX_PHY_OFFSET]
        self.bell().ring()

    # -- what became of it ---------------------------------------------------------------------

    @property
    def end(self) -> int:
        return self.counters[MAX_PHY_OFFSET]

    @property
    def info(self) -> HAClientInfo:
        return self.client.snapshot()

    @property
    def error_text(self) -> str:
        error = self.info.last_error
        return "" if error is None else error.text

    def wait_end(self, offset: int) -> None:
        wait_until(lambda: self.end == offset)

    def wait_state(self, state: HAClientState) -> None:
        wait_until(lambda: self.info.state is state)

    def refusals(self) -> dict[str, int]:
        return RefusalCounters(self.page).snapshot()

    def bytes_of(self, start: int, end: int) -> bytes:
        """The log's bytes as they are in the files."""
        found = b""
        for at in range(start - start % self.file_size, end, self.file_size):
            found += (self.directory / file_name(at)).read_bytes()
        first = start % self.file_size
        return found[first : first + end - start]


def connect(world: SlaveWorld, master: ScriptedMaster, offset: int = 0) -> ScriptedLink:
    """Start the client; its link, after the first report."""
    world.start()
    link = master.accept()
    assert link.read_report() == offset
    return link
