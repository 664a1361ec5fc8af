"""A sync that fails: what was acknowledged after the restart outlives a power cut."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.supervisor.boot_info import EXIT_FLUSH_FAILED
from tests.faults.ledger import (
    Ledger,
    Senders,
    assert_keys_found,
    assert_nothing_lost,
    assert_stops_clean,
)
from tests.faults.page_cache import PageCache
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
    broker = OurBroker(
        memory,
        flushDiskType="SYNC_FLUSH",
        syncFlushTimeout=5_000,
        flushIntervalConsumeQueue=100,
        flushConsumeQueueThoroughInterval=200,
    )
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
        broker.crash()
        cache.cut_power(broker.store_dir)
        broker.env = {}
        broker.start()
        assert_nothing_lost(broker, ledger)
        assert_keys_found(broker, ledger)
        assert_stops_clean(broker)
