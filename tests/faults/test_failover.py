"""The master is gone for good, or comes back as it was some time ago: what the slave still has.

Real brokers. The truth is the clients': SEND_OK, and the offsets that a consumer has committed.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from ha.control_slots import HA_REFUSALS
from ha.refusals import RefusalReason
from remoting.response_code import ResponseCode
from tests.faults.ledger import Ledger, Senders, assert_nothing_lost, assert_stops_clean
from tests.support.broker_group import (
    ASYNC_MASTER,
    SLAVE,
    SYNC_MASTER,
    TOPIC,
    Group,
    counters_of,
    log_of,
)
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tests.support.stolen_time import OwnTime

pytestmark = [pytest.mark.slow]

SEND_OK = ResponseCode.SUCCESS
QUERY_OFFSET, COMMIT_OFFSET = 14, 15
SYNC_INTERVAL_S = 1.0
"""slaveSyncInterval of SLAVE; ten seconds is the default."""


class Promises(Ledger):
    """Only what was answered with SEND_OK."""

    def note(self, place: tuple[str, int, int], body: bytes, code: int) -> None:
        if code == SEND_OK:
            super().note(place, body, code)


class Committer:
    """A consumer that commits a higher offset every few ms, on a thread, and notes when, on the
    machine's own clock."""

    def __init__(self, broker: OurBroker) -> None:
        self._broker = broker
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.committed: list[tuple[float, int]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(30)

    def _run(self) -> None:
        fields = {"consumerGroup": "G", "topic": TOPIC, "queueId": 0}
        clock = OwnTime()
        try:
            with self._broker.client() as client:
                for offset in range(1, 1_000_000):
                    if self._end.wait(0.02):
                        return
                    client.call(COMMIT_OFFSET, fields | {"commitOffset": offset})
                    self.committed.append((clock.s(), offset))
        except OSError:
            return


@pytest.mark.fault(11)
@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.long)])
def test_a_promoted_slave_has_every_promise(
    tmp_path: Path, rounds: int, proved: Callable[[str], None]
) -> None:
    away_s = []
    for number in range(rounds):
        with Group(tmp_path / str(number)).running() as group:
            away_s.append(_master_dies_and_the_slave_takes_over(group))
    proved(f"{rounds} promotions: no SEND_OK for {', '.join(f'{s:.1f}' for s in away_s)} s")


def _master_dies_and_the_slave_takes_over(group: Group) -> float:
    """Seconds from the death to the first SEND_OK of the new master."""
    first, second = group.first, group.second
    promises = Promises()
    group.start(first, SYNC_MASTER, slaveTimeout=1_000)
    group.start(second, SLAVE)
    with first.client() as client:
        wait_until(lambda: client.send(TOPIC, 0, b"x").code == SEND_OK, 20)
    with Committer(first) as committer, Senders(first, promises) as senders:
        began = time.monotonic()
        promises.wait_for_more(300, timeout_s=30)
        wait_until(lambda: time.monotonic() - began > 3 * SYNC_INTERVAL_S)
        died = time.monotonic()
        first.crash()
        senders.stop()
    # The operator's procedure: docs/operations.md, promotion.
    assert second.terminate() == 0
    group.start(second, ASYNC_MASTER)
    with second.client() as client:
        wait_until(lambda: client.send(TOPIC, 0, b"y").code == SEND_OK, 20)
        away_s = time.monotonic() - died
        fields = {"consumerGroup": "G", "topic": TOPIC, "queueId": 0}
        offset = int(client.call(QUERY_OFFSET, fields).ext_fields["offset"])
    known = [at for at, committed in committer.committed if committed <= offset]
    # A second more than the interval: the question and its answer take their time, too.
    assert committer.committed[-1][0] - max(known) < SYNC_INTERVAL_S + 1.0
    assert_nothing_lost(second, promises)
    assert_stops_clean(second)
    return away_s


@pytest.mark.fault(12)
def test_a_master_that_comes_back_shorter_has_no_replica(group: Group, tmp_path: Path) -> None:
    first, second = group.first, group.second
    settings: dict[str, object] = {"slaveTimeout": 500}
    group.start(first, SYNC_MASTER, **settings)
    group.start(second, SLAVE, **settings)
    with first.client() as client:
        wait_until(lambda: client.send(TOPIC, 0, b"in the image").code == SEND_OK, 20)
    wait_until(lambda: log_of(second) == log_of(first), 20)
    assert first.terminate() == 0
    image = tmp_path / "image"
    shutil.copytree(first.store_dir, image)
    group.start(first, SYNC_MASTER, **settings)
    with first.client() as client:
        wait_until(lambda: client.send(TOPIC, 0, b"later").code == SEND_OK, 20)
        for _ in range(20):
            assert client.send(TOPIC, 0, b"later").code == SEND_OK
    first.crash()
    full = log_of(second)
    shutil.rmtree(first.store_dir)
    shutil.copytree(image, first.store_dir)
    group.start(first, SYNC_MASTER, **settings)
    assert len(log_of(first)) < len(full)
    with first.client() as client, counters_of(second) as counters:
        wait_until(
            lambda: (
                counters[HA_REFUSALS + RefusalReason.AHEAD]
                or counters[HA_REFUSALS + RefusalReason.DIVERGED]
            ),
            30,
        )
        for _ in range(5):
            assert client.send(TOPIC, 0, b"nobody else has it").code != SEND_OK
    assert "nothing is replicated" in second.log("ha")
    assert log_of(second) == full
    assert second.terminate() == 0
    assert log_of(second) == full
    assert not list(second.store_dir.glob("backup-*"))
