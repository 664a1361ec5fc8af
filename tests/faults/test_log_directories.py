"""A log in several directories under real brokers: kills, power cuts, replication, what is told."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.body.kv_table import KVTable
from tests.faults.ledger import Ledger, Senders, assert_nothing_lost, assert_stops_clean
from tests.faults.page_cache import PageCache
from tests.support.broker_group import ASYNC_MASTER, SLAVE, TOPIC, Group
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker, drain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

BODY = b"x" * 30_000
FILE_SIZE = 1 << 18


def spread(broker: OurBroker) -> list[Path]:
    """Its log lies in two directories from now on; they and its read-only one."""
    paths = [broker.store_dir / name / "commitlog" for name in ("disk-1", "disk-2", "old")]
    paths[2].mkdir(parents=True)
    broker.settings["mappedFileSizeCommitLog"] = FILE_SIZE
    broker.settings["storePathCommitLog"] = f"{paths[0]},{paths[1]}"
    broker.settings["readOnlyCommitLogStorePaths"] = paths[2]
    return paths


def numbers(path: Path) -> list[int]:
    return [int(file.name) // FILE_SIZE for file in sorted(path.iterdir())]


def joined(paths: list[Path]) -> bytes:
    files = sorted((file for path in paths for file in path.iterdir()), key=lambda f: f.name)
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="directories-", dir=shared if shared.is_dir() else tmp_path
    ) as directory:
        yield Path(directory)


def test_a_power_cut_loses_nothing_under_sync_flush(memory: Path) -> None:
    cache = PageCache(memory)
    ledger = Ledger()
    broker = OurBroker(memory, flushDiskType="SYNC_FLUSH", syncFlushTimeout=5_000)
    paths = spread(broker)
    broker.settings["mappedFileSizeCommitLog"] = 1 << 16
    broker.env = cache.environment("/commitlog/")
    with broker.start():
        with Senders(broker, ledger) as senders:
            ledger.wait_for_more(300, timeout_s=60)
            broker.crash()
            senders.stop()
        cache.cut_power(broker.store_dir)
        assert all(len(list(path.iterdir())) >= 2 for path in paths[:2])
        broker.start()
        assert_nothing_lost(broker, ledger)
        assert_stops_clean(broker)


def test_a_replica_with_other_directories(tmp_path: Path) -> None:
    group = Group(tmp_path)
    with group.running():
        master, slave = group.first, group.second
        here = spread(master)
        group.start(master, ASYNC_MASTER)
        with master.client() as client:
            for _ in range(20):
                client.send(TOPIC, 0, BODY)
        assert numbers(here[0])[:2] == [0, 2]
        assert numbers(here[1])[:1] == [1]
        assert master.terminate() == 0
        # The oldest files stay where they are when their disk becomes read-only.
        here[2].rmdir()
        here[0].rename(here[2])
        master.settings["storePathCommitLog"] = f"{here[0]},{here[1]}"
        there = spread(slave)
        shutil.rmtree(there[2])
        del slave.settings["readOnlyCommitLogStorePaths"]
        group.start(master, ASYNC_MASTER)
        group.start(slave, SLAVE, haMasterAddress=f"127.0.0.1:{master.ports['ha']}")
        with master.client() as client, slave.client() as follower:
            for _ in range(20):
                client.send(TOPIC, 0, BODY)
            wait_until(lambda: follower.offset(30, TOPIC, 0) == 40, 60)
            assert [message.body for message in drain(client, TOPIC, 0)] == [BODY] * 40
            told = KVTable.from_json_bytes(client.call(28, {}).body).table
        shown = {key for key in told if key.startswith("commitLogDiskRatio_")}
        assert shown == {f"commitLogDiskRatio_{path}" for path in here[:2]}
        assert numbers(here[2]) == [0, 2]
        assert set(numbers(here[0])) >= {4}
        for broker in (master, slave):
            assert broker.terminate() == 0
            report = broker.check()
            assert report.is_clean, report.lines()
        assert joined(here) == joined(there[:2])
