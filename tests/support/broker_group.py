"""Two brokers of one group as real processes: a master, its slave, one embedded name server.

Group starts either broker in either role. `counters_of` reads a running broker's control page from
outside, so that a test sees what was published at the moment of an answer.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ipc.control_page import PAGE_SIZE
from tests.support.our_broker import OurBroker
from tools.chaos.free_ports import free_port

ASYNC_MASTER: Final[dict[str, object]] = {"brokerRole": "ASYNC_MASTER", "brokerId": 0}
SYNC_MASTER: Final[dict[str, object]] = {"brokerRole": "SYNC_MASTER", "brokerId": 0}
SLAVE: Final[dict[str, object]] = {
    "brokerRole": "SLAVE",
    "brokerId": 1,
    "haReconnectInterval": 200,
    "slaveSyncInterval": 1_000,
}
TOPIC: Final = "TBW102"


class Group:
    """Two brokers of one group; the first one's embedded name server serves both."""

    def __init__(self, root: Path) -> None:
        name_server = f"127.0.0.1:{(port := free_port())}"
        common = {
            "brokerName": "broker-a",
            "brokerIP2": "127.0.0.1",
            "registerNameServerPeriod": 10_000,
        }
        self.first = OurBroker(root / "first", embeddedNamesrvPort=port, **common)
        self.second = OurBroker(root / "second", namesrvAddr=name_server, **common)
        for broker in (self.first, self.second):
            broker.settings["listenPort"] = free_port(-2, 1)

    def start(self, broker: OurBroker, role: dict[str, object], **settings: object) -> OurBroker:
        """Start it in a role, with more settings for this time."""
        before = dict(broker.settings)
        broker.settings.update(role, **settings)
        try:
            return broker.start()
        finally:
            broker.settings = before

    @contextlib.contextmanager
    def running(self) -> Iterator[Group]:
        """Both are killed at the end; what they said goes with a failure."""
        try:
            yield self
        except BaseException as error:
            for broker in (self.first, self.second):
                name = f"--- {broker.store_dir}\n{broker.output()[-2000:]}\n{broker.logs()}"
                error.add_note(name)
            raise
        finally:
            for broker in (self.first, self.second):
                broker.crash()


def log_of(broker: OurBroker) -> bytes:
    """All log bytes, without the zeros at the end."""
    files = sorted((broker.store_dir / "commitlog").glob("[0-9]*"))
    return b"".join(path.read_bytes() for path in files).rstrip(b"\0")


@contextlib.contextmanager
def counters_of(broker: OurBroker) -> Iterator[memoryview]:
    """The control page of a running broker, read-only: `counters[slot]`."""
    entries = Path(f"/proc/{broker.pid}/fd").iterdir()
    entry = next(e for e in entries if os.readlink(e).startswith("/memfd:mqbroker-control-page"))
    fd = os.open(entry, os.O_RDONLY)
    try:
        page = mmap.mmap(fd, PAGE_SIZE, access=mmap.ACCESS_READ)
    finally:
        os.close(fd)
    with page, memoryview(page) as view, view.cast("Q") as counters:
        yield counters
