"""A sync that fails: what was acknowledged after the restart outlives a power cut."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.supervisor.boot_info import EXIT_FLUSH_FAILED
from store.log_fences import fences_path, load_fences
from store.store_checkpoint import StoreCheckpoint
from tests.faults.ledger import (
    Ledger,
    Senders,
    assert_keys_found,
    assert_nothing_lost,
    assert_stops_clean,
)
from tests.faults.page_cache import PageCache
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="page-cache-", dir=shared if shared.is_dir() else tmp_path
    ) as directory:
        yield Path(directory)


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    ("fails_for", "remembered"),
    [
        ("/commitlog/", True),
        pytest.param("/commitlog/", False, marks=pytest.mark.slow),
        pytest.param("/consumequeue/", True, marks=pytest.mark.long),
    ],
    ids=["log", "log-not-written-down", "queue"],
)
def test_nothing_acknowledged_is_lost_after_a_failed_sync(
    memory: Path, fails_for: str, remembered: bool
) -> None:
    """The kernel calls the pages clean that it could not write: a restart reads them from its cache
    and must write them again before it promises anything that lies behind them. remembered=False:
    the failure could not be written down."""
    cache = PageCache(memory)
    ledger = Ledger()
    broker = flushing_broker(memory, flushDiskType="SYNC_FLUSH", syncFlushTimeout=5_000)
    broker.env = cache.environment(fails_for)
    failure = broker.store_dir / "fsync_failed.json"
    with broker.start():
        with Senders(broker, ledger) as senders:
            ledger.wait_for_more(200)
            cache.fail_once()
            assert broker.wait_ended() == EXIT_FLUSH_FAILED
            senders.stop()
        assert cache.has_failed
        assert failure.exists()
        if not remembered:
            failure.unlink()
        broker.start()
        assert not failure.exists()
        assert "wrote the cached pages again" in broker.log("store")
        with Senders(broker, ledger):
            ledger.wait_for_more(200)
        assert_outlives_a_power_cut(broker, ledger, cache)


def flushing_broker(memory: Path, **settings: object) -> OurBroker:
    """Its checkpoint follows closely."""
    return OurBroker(
        memory,
        flushIntervalConsumeQueue=100,
        flushConsumeQueueThoroughInterval=200,
        **settings,
    )


def assert_outlives_a_power_cut(broker: OurBroker, ledger: Ledger, cache: PageCache) -> None:
    """What was acknowledged, and no hole is left by what was not."""
    broker.crash()
    cache.cut_power(broker.store_dir)
    broker.env = {}
    broker.start()
    assert not load_fences(fences_path(broker.store_dir / "commitlog"))
    assert_nothing_lost(broker, ledger)
    assert_keys_found(broker, ledger)
    assert_stops_clean(broker)


@pytest.mark.long
@pytest.mark.fault(29)
def test_what_the_checkpoint_says_to_be_on_disk_is_not_written_again(memory: Path) -> None:
    """Nobody noted the failure, so the checkpoint decides: it is of the last good flush. All that
    was sent since then, and acknowledged without a flush, is on disk after the start."""
    cache = PageCache(memory)
    ledger = Ledger()
    broker = flushing_broker(memory, flushDiskType="ASYNC_FLUSH", flushIntervalCommitLog=1_000)
    broker.env = cache.environment("/commitlog/")
    checkpoint = broker.store_dir / "checkpoint"
    with broker.start():
        with Senders(broker, ledger):
            ledger.wait_for_more(200)
        stored_ms = time.time_ns() // 1_000_000
        with Senders(broker, ledger) as senders:
            # Of what was sent before all is older than the checkpoint by three seconds.
            wait_until(lambda: StoreCheckpoint.load(checkpoint).min_timestamp() > stored_ms, 30)
            ledger.wait_for_more(500)
            cache.fail_once()
            assert broker.wait_ended() == EXIT_FLUSH_FAILED
            senders.stop()
        (broker.store_dir / "fsync_failed.json").unlink()
        broker.start()
        written = re.search(r"of the log, \[(\d+), (\d+)\), are on disk", broker.log("store"))
        assert written is not None
        assert 0 < int(written[1]) < int(written[2])
        assert_outlives_a_power_cut(broker, ledger, cache)
