"""Power cuts of a real broker under load: its files fall back to what their syncs brought to disk.

The truth is the clients': what was acknowledged, and when. A disk below the page cache
(page_cache.py) plays the cut; unlike tests/faults/test_machine_crash.py no page is written unless
it was synced.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from remoting.response_code import ResponseCode
from tests.faults.ledger import (
    Ledger,
    Senders,
    assert_keys_found,
    assert_nothing_lost,
    assert_stops_clean,
)
from tests.faults.page_cache import PageCache
from tests.support.deadline import wait_until
from tests.support.our_broker import HOME, FrameClient, OurBroker, Sent, drain

pytestmark = [pytest.mark.slow]

TOPIC = "PowerCut"
QUEUES = 4
FLUSH_INTERVAL_S = 0.5
"""RocketMQ's flushIntervalCommitLog, and the default."""

SLACK_S = 1.5
"""A flush takes its time, and so does a thread that is to begin one on a busy machine."""

GET_ROUTE = 105


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system that reuses no inode."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="power-cut-", dir=shared if shared.is_dir() else tmp_path
    ) as directory:
        yield Path(directory)


@pytest.mark.fault(2)
@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.long)])
def test_sync_flush_loses_nothing(memory: Path, rounds: int, proved: Callable[[str], None]) -> None:
    cache = PageCache(memory)
    ledger = Ledger()
    broker = OurBroker(memory, flushDiskType="SYNC_FLUSH", syncFlushTimeout=5_000)
    broker.env = cache.environment("/commitlog/")
    with broker:
        for _ in range(rounds):
            broker.start()
            with Senders(broker, ledger) as senders:
                ledger.wait_for_more(200, timeout_s=30)
                broker.crash()
                senders.stop()
            cache.cut_power(broker.store_dir)
        broker.start()
        assert_nothing_lost(broker, ledger)
        assert_keys_found(broker, ledger)
        assert_stops_clean(broker)
    proved(f"{rounds} power cuts under SYNC_FLUSH: each of {len(ledger)} messages is there")


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A send that was answered with SEND_OK, when, and its body."""

    sent: Sent
    at_s: float
    body: bytes


class TimedSender:
    """One thread that sends until its connection breaks, and notes when each answer came."""

    def __init__(self, broker: OurBroker) -> None:
        self._broker = broker
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: list[Acknowledged] = []
        self._thread.start()

    def join(self) -> None:
        """Until the broker is gone."""
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        number = 0
        try:
            with self._broker.client() as client:
                while True:
                    number = self._send_some(client, number)
        except OSError:
            return

    def _send_some(self, client: FrameClient, first: int) -> int:
        bodies = [b"%08d:" % number + b"x" * 300 for number in range(first, first + 8)]
        opaques = [client.post_send(TOPIC, n % QUEUES, body) for n, body in enumerate(bodies)]
        for opaque, body in zip(opaques, bodies, strict=True):
            sent = client.take_send(opaque)
            if sent.code == ResponseCode.SUCCESS:
                self.acknowledged.append(Acknowledged(sent, time.monotonic(), body))
        return first + 8


@pytest.mark.fault(3)
@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.long)])
def test_async_flush_loses_the_youngest_only(
    memory: Path, rounds: int, proved: Callable[[str], None]
) -> None:
    lost_counts: list[int] = []
    for number in range(rounds):
        root = memory / str(number)
        root.mkdir()
        lost_counts.append(_lost_by_one_cut(root))
    proved(f"{rounds} power cuts under ASYNC_FLUSH: {lost_counts} messages lost, all the youngest")


def _lost_by_one_cut(root: Path) -> int:
    """How many of the acknowledged messages a power cut took."""
    cache = PageCache(root)
    broker = OurBroker(root, flushDiskType="ASYNC_FLUSH")
    broker.env = cache.environment("/commitlog/")
    with broker.start():
        sender = TimedSender(broker)
        began_s = time.monotonic()
        # Old enough that a flush must have taken the first of them.
        wait_until(
            lambda: (
                len(sender.acknowledged) > 300
                and time.monotonic() - began_s > 2 * (FLUSH_INTERVAL_S + SLACK_S)
            ),
            60,
        )
        cut_s = time.monotonic()
        broker.crash()
        sender.join()
        cache.cut_power(broker.store_dir)
        broker.env = {}
        broker.start()
        with broker.client() as client:
            found = {
                (queue_id, offset): body
                for queue_id in range(QUEUES)
                for offset, body in _bodies_of(client, queue_id)
            }
        kept, lost = [], []
        for each in sender.acknowledged:
            body = found.get((each.sent.queue_id, each.sent.queue_offset))
            assert body in (None, each.body)
            (lost if body is None else kept).append(each)
        assert kept
        if lost:
            oldest_s = cut_s - min(each.at_s for each in lost)
            assert oldest_s < FLUSH_INTERVAL_S + SLACK_S, f"{oldest_s:.2f} s old, and lost"
        assert_stops_clean(broker)
    return len(lost)


def _bodies_of(client: FrameClient, queue_id: int) -> Iterator[tuple[int, bytes]]:
    """(queue offset, body) of what a consumer gets that goes where it is told to."""
    at, end = 0, client.offset(30, TOPIC, queue_id)
    while at < end:
        pulled = client.pull(TOPIC, queue_id, at)
        yield from ((message.queue_offset, message.body) for message in pulled.messages)
        assert pulled.next_offset > at
        at = pulled.next_offset


@pytest.mark.fault(7)
def test_an_orderly_stop_leaves_nothing_to_the_page_cache(memory: Path) -> None:
    cache = PageCache(memory)
    ledger = Ledger()
    names = OurBroker(memory / "names", brokerName="other")
    with names.start():
        broker = OurBroker(memory / "broker", namesrvAddr=f"127.0.0.1:{names.ports['namesrv']}")
        run_directory = {"ROCKETMQ_RUN_DIR": str(memory / "run")}
        broker.env = cache.environment("/commitlog/") | run_directory
        with broker.start(), names.client("namesrv") as routes, broker.client() as client:
            with Senders(broker, ledger, count=3) as senders:
                ledger.wait_for_more(300)
                assert routes.call(GET_ROUTE, {"topic": "Ledger"}).code == 0
                opaques = [client.post_send(TOPIC, 0, b"%d" % n) for n in range(200)]
                stopping = subprocess.Popen(
                    [sys.executable, "-m", "tools.mqshutdown", "broker"],
                    cwd=HOME,
                    env=os.environ | run_directory,
                    stdout=subprocess.DEVNULL,
                )
                assert broker.wait_ended(10.0) == 0
                assert stopping.wait(30) == 0
                senders.stop()
            assert routes.call(GET_ROUTE, {"topic": "Ledger"}).code == 17
            answered = _answers(client, opaques)
            assert not broker.has_abort
            cache.cut_power(broker.store_dir)
            broker.env = {}
            broker.start()
            assert_nothing_lost(broker, ledger)
            with broker.client() as again:
                found = {m.queue_offset: m.body for m in drain(again, TOPIC, 0)}
            assert found == answered, "what was stored was answered"
            assert_stops_clean(broker)


def _answers(client: FrameClient, opaques: list[int]) -> dict[int, bytes]:
    """Queue offset to body of all that was answered with SEND_OK before the connection ended."""
    found: dict[int, bytes] = {}
    for number, opaque in enumerate(opaques):
        try:
            sent = client.take_send(opaque)
        except OSError:
            break
        if sent.code == ResponseCode.SUCCESS:
            found[sent.queue_offset] = b"%d" % number
    return found
