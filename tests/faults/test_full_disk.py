"""A disk that is full to the last page: what is acknowledged stays readable, offsets are kept,
sends are refused, and space alone brings them back."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ha.control_slots import REPLICA_COUNT
from remoting.response_code import ResponseCode
from store.control_slots import MAX_PHY_OFFSET
from tests.broker.container.container_world import CLUSTER, broker_file, our_container
from tests.faults.ledger import (
    QUEUES,
    TOPIC,
    Ledger,
    Senders,
    assert_keys_found,
    assert_nothing_lost,
    assert_stops_clean,
)
from tests.support.broker_group import SLAVE, SYNC_MASTER, Group, counters_of, log_of
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tests.support.small_disk import SmallDisk, small_disk

pytestmark = [pytest.mark.slow, pytest.mark.fault(28)]

SEND_OK = 0
REFUSED = int(ResponseCode.SERVICE_NOT_AVAILABLE)
UPDATE_OFFSET = 15
RESERVED = 1 << 20
NOT_REPLICATED = {ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE}


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    """A tmpfs, or what a test names."""
    with small_disk(tmp_path / "small", 40, getattr(request, "param", "tmpfs")) as found:
        yield found


def broker_on(disk: SmallDisk, root: Path, **settings: object) -> OurBroker:
    """Its store is on `disk`, and what else it writes under `root`."""
    broker = OurBroker(
        root,
        storePathRootDir=disk.path / "store",
        flushConsumerOffsetInterval=200,
        cleanResourceInterval=200,
        **settings,
    )
    broker.store_dir = disk.path / "store"
    return broker


def readyz(broker: OurBroker) -> tuple[int, str]:
    """Status and text."""
    try:
        return 200, get(broker, "readyz")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def get(broker: OurBroker, path: str) -> str:
    url = f"http://127.0.0.1:{broker.ports['metrics']}/{path}"
    with urllib.request.urlopen(url, timeout=30) as found:
        return str(found.read().decode())


def metric(broker: OurBroker, name: str) -> float:
    [line] = [line for line in get(broker, "metrics").splitlines() if line.startswith(f"{name}{{")]
    return float(line.split()[-1])


def commit_offset(broker: OurBroker, offset: int) -> None:
    """A consumer's commit, until it is in the file on disk."""
    group = "readers"
    fields = {"consumerGroup": group, "topic": TOPIC, "queueId": 0, "commitOffset": offset}
    with broker.client() as client:
        assert client.call(UPDATE_OFFSET, fields).code == 0
    wait_until(lambda: stored_offset(broker, f"{TOPIC}@{group}") == offset)


def stored_offset(broker: OurBroker, key: str) -> int | None:
    path = broker.store_dir / "config" / "consumerOffset.json"
    if not path.exists():
        return None
    found = re.search(rf'"{key}":\{{\s*0:(\d+)', path.read_text())
    return None if found is None else int(found[1])


def fill_under_load(broker: OurBroker, disk: SmallDisk, ledger: Ledger) -> None:
    """Sends until they are refused, on a disk that has been filled meanwhile."""
    with Senders(broker, ledger):
        ledger.wait_for_more(200)
        wait_until(lambda: (broker.store_dir / "emergency.space").exists())
        disk.fill()
        wait_until(lambda: ledger.codes[REFUSED] >= 10)


@pytest.mark.parametrize(
    ("disk", "everything"),
    [("ext4", False), pytest.param("tmpfs", True, marks=pytest.mark.long)],
    indirect=["disk"],
    ids=["store", "store-and-logs"],
)
def test_acknowledged_messages_are_served_and_space_brings_the_sends_back(
    disk: SmallDisk, tmp_path: Path, everything: bool
) -> None:
    """everything: the log files and what the broker prints are on the full disk, too."""
    ledger = Ledger()
    broker = broker_on(disk, disk.path if everything else tmp_path)
    reserve = broker.store_dir / "emergency.space"
    with broker.start():
        before = broker.children()
        fill_under_load(broker, disk, ledger)
        assert set(ledger.codes) == {SEND_OK, REFUSED}
        wait_until(lambda: not reserve.exists())
        assert_nothing_lost(broker, ledger)
        assert_keys_found(broker, ledger)
        commit_offset(broker, 7)
        status, text = readyz(broker)
        assert status == 503
        assert "no space left" in text.lower()
        assert metric(broker, "rocketmq_store_disk_full") == 1
        assert metric(broker, "rocketmq_store_emergency_space_bytes") == 0
        assert metric(broker, "rocketmq_store_refused_sends_total") == ledger.codes[REFUSED]
        disk.make_room()
        with broker.client() as client:
            wait_until(lambda: client.send(TOPIC, 0, b"9:99999999:").code == SEND_OK)
        # At least: ext4 may have needed a block of its own for a scattered file's extents.
        assert reserve.stat().st_blocks * 512 >= RESERVED
        assert readyz(broker) == (200, "ready\n")
        assert metric(broker, "rocketmq_store_disk_full") == 0
        assert broker.children() == before
        if not everything:
            assert broker.log("store").count("set by EmergencySpace") == 1
            assert broker.log("store").count("DISK_FULL cleared by EmergencySpace") == 1
        assert_nothing_lost(broker, ledger)
        assert_stops_clean(broker)


def test_a_start_on_a_full_disk_serves_what_is_there(disk: SmallDisk, tmp_path: Path) -> None:
    ledger = Ledger()
    broker = broker_on(disk, tmp_path)
    with broker.start():
        with Senders(broker, ledger):
            ledger.wait_for_more(200)
            disk.fill()
            broker.crash()
        disk.fill()
        broker.start()
        # Whoever reads the last line of what it prints is not told that all is well.
        wait_until(lambda: "boot success" not in broker.output().splitlines()[-1])
        assert "the store rejects writes: " in broker.output().splitlines()[-1]
        assert_nothing_lost(broker, ledger)
        commit_offset(broker, 5)
        with broker.client() as client:
            refused = client.send(TOPIC, 0, b"x")
            assert refused.code == REFUSED
            assert "no space left" in refused.remark.lower()
            disk.make_room()
            wait_until(lambda: client.send(TOPIC, 0, b"9:99999999:").code == SEND_OK)
        assert_stops_clean(broker)


def test_an_orderly_stop_on_a_full_disk_is_one(disk: SmallDisk, tmp_path: Path) -> None:
    """Its last words fit, and the next start, still without space, is a clean one."""
    ledger = Ledger()
    broker = broker_on(disk, tmp_path)
    with broker.start():
        fill_under_load(broker, disk, ledger)
        assert_stops_clean(broker)
        broker.start()
        assert "recovery: scanned" not in broker.log("store")
        assert_nothing_lost(broker, ledger)


def test_without_any_space_the_start_says_what_to_do(disk: SmallDisk, tmp_path: Path) -> None:
    """The emergency space is used up, too, and there is no file that makes room by going."""
    ledger = Ledger()
    broker = broker_on(disk, tmp_path)
    with broker.start():
        with Senders(broker, ledger):
            ledger.wait_for_more()
        assert_stops_clean(broker)
        for name in ("emergency.space", "clean.exit"):
            (broker.store_dir / name).unlink()
        disk.fill()
        broker.start(wait=False)
        assert broker.wait_ended() == 255
        assert "No space left on device" in broker.output()
        assert f"free space on the partition of {broker.store_dir}" in broker.output()
        assert "Traceback" not in broker.output()
        disk.make_room()
        broker.start()
        assert_nothing_lost(broker, ledger)


@pytest.mark.parametrize("disk", ["ext4"], indirect=True)
def test_a_log_file_with_holes_is_not_written_before_it_has_its_space(
    disk: SmallDisk, tmp_path: Path
) -> None:
    """Java's files have holes, and those of many copies: a write into one on a full disk is
    SIGBUS. The store has no reserve here, which would refuse sends from the start."""
    broker = broker_on(disk, tmp_path, emergencyReservedBytes=0)
    with broker.start():
        with broker.client() as client:
            assert client.send(TOPIC, 0, b"first").code == SEND_OK
        assert_stops_clean(broker)
        [file] = (broker.store_dir / "commitlog").iterdir()
        end = len(log_of(broker))
        status = file.stat()
        os.truncate(file, end)
        os.truncate(file, status.st_size)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        for number in (1, 2):
            ahead = file.with_name(f"{number * status.st_size:020d}")
            ahead.touch()
            os.truncate(ahead, status.st_size)
        disk.fill()
        # For the small files that a start writes; the log file needs 1 MiB.
        disk.make_room(128 << 10)
        broker.start()
        before = broker.children()
        with broker.client() as client:
            for _ in range(20):
                assert client.send(TOPIC, 0, bytes(4_000)).code == REFUSED
            assert broker.children() == before
            disk.make_room()
            wait_until(lambda: client.send(TOPIC, 0, bytes(4_000)).code == SEND_OK)
        assert broker.children() == before
        assert "ended with" not in broker.output()


def test_a_full_slave_acknowledges_nothing_that_it_lacks(disk: SmallDisk, tmp_path: Path) -> None:
    """The master's answers say so, and space at the slave brings SEND_OK back."""
    with Group(tmp_path).running() as group:
        slave_store = disk.path / "store"
        group.second.settings["storePathRootDir"] = slave_store
        group.second.store_dir = slave_store
        group.start(group.first, SYNC_MASTER, slaveTimeout=500)
        group.start(group.second, SLAVE)
        with (
            group.first.client() as client,
            counters_of(group.first) as master,
            counters_of(group.second) as slave,
        ):
            wait_until(lambda: master[REPLICA_COUNT] == 1, 20)
            assert client.send(TOPIC, 0, b"x").code == SEND_OK
            disk.fill()
            codes: list[int] = []
            while not codes or codes[-1] == SEND_OK:
                sent = client.send(TOPIC, len(codes) % QUEUES, bytes(50_000))
                codes.append(sent.code)
                assert sent.code != SEND_OK or slave[MAX_PHY_OFFSET] > sent.phy_offset
            assert codes[-1] in NOT_REPLICATED
            assert client.send(TOPIC, 0, bytes(50_000)).code in NOT_REPLICATED
            disk.make_room()
            wait_until(lambda: client.send(TOPIC, 0, b"y").code == SEND_OK, 30)
            wait_until(lambda: log_of(group.first) == log_of(group.second))


def test_a_start_on_a_nearly_full_disk_does_not_say_only_that_it_serves(
    disk: SmallDisk, tmp_path: Path
) -> None:
    """There is room for the store, but too little: not a minute later, at the first pass."""
    disk.fill()
    disk.make_room(disk.size * 9 // 100)
    broker = broker_on(disk, tmp_path)
    broker.settings["cleanResourceInterval"] = 60_000
    with broker.start():
        wait_until(lambda: "boot success" not in broker.output().splitlines()[-1])
        said = broker.output().splitlines()[-1]
        assert "the store rejects writes: over 90% of the partition of " in said, said
        assert f"{broker.store_dir / 'commitlog'}" in said
        with broker.client() as client:
            assert client.send(TOPIC, 0, b"x").code == REFUSED


def test_a_broker_of_a_container_says_last_that_it_takes_nothing(
    disk: SmallDisk, tmp_path: Path
) -> None:
    """Its container's "boot success" is not the last line, either."""
    disk.fill()
    disk.make_room(8 << 20)
    file = broker_file(
        tmp_path, "full", storePathRootDir=disk.path, mappedFileSizeCommitLog=32 << 20
    )
    with our_container(tmp_path) as container:
        container.start(file)
        wait_until(lambda: "boot success" not in container.output().splitlines()[-1])
        said = container.output().splitlines()[-1]
        assert f"{CLUSTER}_full_0: the store rejects writes: " in said, said
        assert "No space left on device" in said
