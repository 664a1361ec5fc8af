"""What a SYNC_MASTER tells the official clients: its slave is absent, there, stopped, dead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.clients import Client, Cluster, wait_registered
from tests.interop.driver import Driver, Producer
from tests.interop.java_peers import CLIENT_5
from tests.interop.replication import (
    FLUSH_SLAVE_TIMEOUT,
    PAIRS,
    SEND_OK,
    SLAVE_NOT_AVAILABLE,
    Group,
    at_once,
    kinds_id,
    pair_sets,
    send_one,
    start_all,
    wait_status,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

_BATCH = 32
# A link that is silent for 5 s is closed, and a Java slave reports a second after it connected.
_IMPATIENT = {
    "slaveTimeout": "1500",
    "haSendHeartbeatInterval": "1000",
    "haHousekeepingInterval": "5000",
}
_NO_SLAVE = {harness.JAVA_5: FLUSH_SLAVE_TIMEOUT}
"""What a master says that has no slave: a 5.3.3 one does not know that it has none."""


class SyncGroup:
    """A SYNC_MASTER that runs, its slaves that do not yet, a topic, a producer."""

    def __init__(
        self,
        directory: Path,
        namesrv: harness.NameServer,
        driver: Driver,
        kinds: tuple[str, ...],
        **settings: str,
    ) -> None:
        self.group = Group(
            directory,
            namesrv.address,
            kinds,
            role="SYNC_MASTER",
            name=f"sync-{kinds_id(kinds)}",
            conf={**_IMPATIENT, **settings},
        )
        self.group.master.start()
        wait_registered(driver, namesrv.address, self.group.master)
        self.client = Client(driver, Cluster(namesrv, self.group.master))
        self.topic = self.client.topic()
        self.producer: Producer = self.client.producer()

    def says(self, status: str) -> bool:
        """Whether single messages and batches are answered so, and both are asked."""
        batch = self.producer.send(self.topic, "batch", _BATCH)
        assert len(batch) == _BATCH
        return {send_one(self.producer, self.topic), *(entry.note for entry in batch)} == {status}

    def does_not_wait(self) -> bool:
        """Whether a message with WAIT=false is stored and answered, whatever the slaves do."""
        return send_one(self.producer, self.topic, wait=False) == SEND_OK

    def wait_for(self, status: str) -> None:
        """Until the master has noticed."""
        wait_status(self.producer, self.topic, status)

    def end(self) -> None:
        self.client.end()
        self.group.end()


Starter = Callable[..., SyncGroup]


@pytest.fixture
def start_sync_group(
    tmp_path: Path, namesrv: harness.NameServer, drivers: Callable[[str], Driver]
) -> Iterator[Starter]:
    started: list[SyncGroup] = []

    def start(kinds: tuple[str, ...], **settings: str) -> SyncGroup:
        version = CLIENT_5 if set(kinds) & set(harness.KINDS_5) else "4.9.8"
        directory = tmp_path / kinds_id(kinds)
        started.append(SyncGroup(directory, namesrv, drivers(version), kinds, **settings))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.mark.fault(8)
@pytest.mark.parametrize("groups", pair_sets(long=PAIRS, quick=True))
def test_a_slave_comes_stops_goes_on_and_dies(
    start_sync_group: Starter, groups: list[tuple[str, ...]]
) -> None:
    at_once(lambda kinds: comes_stops_goes_on_and_dies(start_sync_group(kinds)), groups)


def comes_stops_goes_on_and_dies(sync: SyncGroup) -> None:
    """The statuses of a group whose slave has not been started yet."""
    absent = _NO_SLAVE.get(sync.group.master.kind, SLAVE_NOT_AVAILABLE)
    assert sync.says(absent)
    assert sync.does_not_wait()
    slave = sync.group.slave.start()
    sync.wait_for(SEND_OK)
    assert sync.says(SEND_OK)
    slave.process.pause()
    assert sync.says(FLUSH_SLAVE_TIMEOUT)
    assert sync.does_not_wait()
    sync.wait_for(absent)
    slave.process.resume()
    sync.wait_for(SEND_OK)
    slave.kill()
    sync.wait_for(absent)
    assert sync.says(absent)
    assert sync.does_not_wait()


def test_three_copies(start_sync_group: Starter) -> None:
    """inSyncReplicas counts the master: both slaves have to have it."""
    sync = start_sync_group(("ours", "ours", "ours"), inSyncReplicas="3")
    first, second = sync.group.slaves
    first.start()
    assert sync.says(SLAVE_NOT_AVAILABLE)
    second.start()
    sync.wait_for(SEND_OK)
    assert sync.says(SEND_OK)
    second.process.pause()
    assert sync.says(FLUSH_SLAVE_TIMEOUT)
    second.process.resume()
    sync.wait_for(SEND_OK)
    first.kill()
    sync.wait_for(SLAVE_NOT_AVAILABLE)
    assert sync.says(SLAVE_NOT_AVAILABLE)
    assert sync.does_not_wait()


@pytest.mark.slow
def test_two_slaves_where_one_copy_is_asked(start_sync_group: Starter) -> None:
    """A stopped slave holds nobody up while the other one acknowledges."""
    sync = start_sync_group(("ours", "ours", "ours"), inSyncReplicas="2")
    start_all(sync.group.slaves)
    sync.wait_for(SEND_OK)
    for slave in sync.group.slaves:
        slave.process.pause()
        assert sync.says(SEND_OK)
        slave.process.resume()
        sync.wait_for(SEND_OK)


@pytest.mark.long
def test_a_5_3_3_master_waits_for_nobody_unless_told(start_sync_group: Starter) -> None:
    """Its inSyncReplicas is 1 by default, ours is 2: a send without any slave tells them apart."""
    assert start_sync_group((harness.JAVA_5, "ours"), inSyncReplicas="1").says(SEND_OK)
    assert start_sync_group(("ours", "ours")).says(SLAVE_NOT_AVAILABLE)
