"""A broker of a group with a controller, as far as its log and its HA connections go.

Its AutoSwitchHAService is the real one, over a page, real files and loopback sockets; process
`store`, the member and its host are this class. What is recorded is what the host would hear.
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

from ha.autoswitch_ha_service import AutoSwitchHAService, MemberLinks
from ha.epochs import EpochList, epoch_list
from ha.ha_config import HaAckLevel, HaConfig
from ha.ha_environment import HaEnvironment
from ha.ha_service import Bells
from ha.handshake import OwnIdentity
from ha.refusals import RefusalCounters
from ha.source_files import LogSource
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
from tests.support.deadline import wait_until
from tests.support.plain_log import PlainLog
from tests.support.shared_memory import close_page, fresh_page

FILE_SIZE = 4096
FIRST_EPOCH = epoch_list([(1, 0)])


class Member:
    """`decides`: what becomes of a master's answer: "transfer", "hang_up", or nothing."""

    def __init__(
        self,
        root: Path,
        broker_id: int,
        *,
        secret: bytes | None = None,
        files: int = 8,
        file_size: int = FILE_SIZE,
        own: OwnIdentity | None = None,
        **settings: Any,
    ) -> None:
        """files: of the empty log; 0: it has no place yet."""
        if "ha_ack_level" in settings:
            settings["ha_ack_level"] = HaAckLevel(settings["ha_ack_level"])
        if secret is not None:
            settings.setdefault("ha_shared_secret_file", "given below")
        self.broker_id = broker_id
        self.file_size = file_size
        self.directory = root / str(broker_id) / "commitlog"
        self.directory.mkdir(parents=True)
        self.page = fresh_page()
        self.counters = self.page.counters
        self.bell_fd = Bell.create()
        self.bell = Bell(self.page, ProcessIndex.HA, self.bell_fd)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.log = PlainLog(self.directory, self.file_size)
        for at in range(0, files * self.file_size, self.file_size):
            self.allocate(at)
        self.failures: list[Exception] = []
        self.begun: list[int] = []
        self.before_begin = self.begin_log
        self.decides = "transfer"
        self.hellos: list[tuple[int, EpochList, int]] = []
        self.confirmed: list[int] = []
        self.grown: list[int] = []
        self.connected: dict[int, int] = {}
        """Connection to broker id."""
        self.reported: list[tuple[int, int]] = []
        self.gone: list[int] = []
        self.service = AutoSwitchHAService(
            HaEnvironment(
                HaConfig(**{"ha_reconnect_interval": 30, **settings}),
                SystemClock(),
                new_selector,
                self._failed,
            ),
            self.listening,
            LogSource(self.directory, self.file_size, self.page),
            Bells(self.bell, lambda: None, self.bell.ring),
            MemberLinks(
                own or OwnIdentity("g", 0, f"127.0.0.1:{broker_id}", secret),
                lambda phy_offset: self.before_begin(phy_offset),
                lambda *_queue: (0, 0),
            ),
            self,
        )
        self.service.start()

    # Orders

    def lead(self, epochs: EpochList = FIRST_EPOCH, *, confirm: int | None = None) -> None:
        """confirm: None: all that is there."""
        self.service.lead(
            epochs, epochs.last_epoch, lambda: self.end if confirm is None else confirm
        )

    def follow(self, master_address: str | None, master_epoch: int = 1) -> None:
        self.service.follow(self.broker_id, master_epoch, master_address)

    # The member, on threads of the service

    def replica_connected(self, connection: int, broker_id: int, async_learner: bool) -> None:
        assert connection not in self.connected
        self.connected[connection] = broker_id

    def replica_reported(self, connection: int, ack_offset: int) -> None:
        assert connection in self.connected
        assert connection not in self.gone
        self.reported.append((connection, ack_offset))

    def replica_gone(self, connection: int) -> None:
        assert connection in self.connected
        assert connection not in self.gone
        self.gone.append(connection)

    def master_hello(self, master_epoch: int, epochs: EpochList, max_offset: int) -> None:
        self.hellos.append((master_epoch, epochs, max_offset))
        if self.decides == "transfer":
            self.service.transfer()
        elif self.decides == "hang_up":
            self.service.hang_up()

    def frame_taken(self, confirm_offset: int) -> None:
        self.confirmed.append(confirm_offset)

    def log_grew(self) -> None:
        self.grown.append(self.end)

    def _failed(self, _service: ServiceThread, error: Exception) -> None:
        self.failures.append(error)

    # Process store

    def allocate(self, start: int) -> None:
        path = self.directory / file_name(start)
        if not path.exists():
            create_allocated(path, self.file_size)
        self.counters[ALLOCATED_END] = start + self.file_size
        self.bell.ring()

    def begin_log(self, phy_offset: int) -> None:
        self.begun.append(phy_offset)
        if self.counters[MAX_PHY_OFFSET] > phy_offset:
            raise StoreError("the log is not empty")
        self.counters[FLUSHED_OFFSET] = self.counters[MIN_PHY_OFFSET] = phy_offset
        for path in self.directory.iterdir():
            path.unlink()
        for at in range(phy_offset, phy_offset + 8 * self.file_size, self.file_size):
            self.allocate(at)

    def flush(self) -> None:
        self.counters[FLUSHED_OFFSET] = self.counters[MAX_PHY_OFFSET]
        self.bell.ring()

    # The log's writer, while it leads

    def append(self, count: int = 1, size: int = 60) -> int:
        """Records; where the log ends then."""
        for number in range(count):
            self.log.append(bytes([number % 251]) * size)
        return self.show()

    def show(self) -> int:
        """Publish what was appended."""
        self.counters[APPEND_END] = self.counters[MAX_PHY_OFFSET] = self.log.end
        self.bell.ring()
        return self.log.end

    def begins_at(self, start: int) -> None:
        """The log begins there."""
        for path in self.directory.iterdir():
            path.unlink()
        self.log = PlainLog(self.directory, self.file_size, start)
        for slot in (MIN_PHY_OFFSET, MAX_PHY_OFFSET, APPEND_END, FLUSHED_OFFSET):
            self.counters[slot] = start

    # What tests look at

    @property
    def end(self) -> int:
        return self.counters[MAX_PHY_OFFSET]

    def bytes_of(self, start: int, end: int) -> bytes:
        """The log's bytes as they are in the files."""
        found = b"".join(
            (self.directory / file_name(at)).read_bytes()
            for at in range(start - start % self.file_size, end, self.file_size)
        )
        return found[start % self.file_size :][: end - start]

    def digest(self, start: int, end: int) -> str:
        return hashlib.sha256(self.bytes_of(start, end)).hexdigest()

    def wait_end(self, offset: int) -> None:
        wait_until(lambda: self.end == offset)

    def acked(self) -> int:
        """The highest offset that any slave has reported."""
        return max((offset for _, offset in self.reported), default=-1)

    def refusals(self) -> dict[str, int]:
        return RefusalCounters(self.page).snapshot()

    def wait_refused(self, reason: str, count: int = 1) -> None:
        wait_until(lambda: self.refusals().get(reason, 0) >= count)

    @property
    def error_text(self) -> str:
        error = self.service._client.snapshot().last_error
        return "" if error is None else error.text

    def close(self) -> None:
        assert self.service.shutdown()
        assert sorted(self.gone) == sorted(self.connected)
        self.listening.close()
        os.close(self.bell_fd)
        close_page(self.page)
        assert self.failures == []

    def __enter__(self) -> Member:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
