"""A disk whose syncs take seconds: who waits for a flush is told in time, nobody else notices."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remoting.response_code import ResponseCode
from tests.faults.ledger import assert_stops_clean
from tests.faults.shim import compile_shim
from tests.support.deadline import wait_until, within
from tests.support.our_broker import FrameClient, OurBroker

SHIM = Path(__file__).parent / "slow_sync.c"
TOPIC = "Slow"
ROUNDS = 100


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_shim(SHIM, tmp_path_factory.mktemp("shim"))


def percentile_s(act: Callable[[], object]) -> float:
    """The 97th of ROUNDS: the machine itself may be busy for a moment."""
    found = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        act()
        found.append(time.monotonic() - began)
    return sorted(found)[ROUNDS * 97 // 100]


def send_and_pull(client: FrameClient) -> None:
    assert client.send(TOPIC, 1, b"x", waits=False).code == ResponseCode.SUCCESS
    assert client.pull(TOPIC, 0, 0).messages[0].body == b"first"


@pytest.mark.fault(30)
@pytest.mark.parametrize(
    ("sync_ms", "timeout_ms"),
    [
        (1_000, 300),
        pytest.param(2_000, 500, marks=pytest.mark.long),
        pytest.param(2_000, 5_000, marks=pytest.mark.long),
        pytest.param(10_000, 5_000, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_who_waits_for_a_slow_flush_is_told_and_nobody_else_waits(
    tmp_path: Path, shim: Path, flush: str, sync_ms: int, timeout_ms: int
) -> None:
    delay = tmp_path / "delay"
    broker = OurBroker(tmp_path, flushDiskType=flush, syncFlushTimeout=timeout_ms)
    broker.env = {"LD_PRELOAD": str(shim), "SLOW_SYNC": str(delay)}
    with broker.start(), broker.client() as client, broker.client() as other:
        assert client.send(TOPIC, 0, b"first").code == ResponseCode.SUCCESS
        wait_until(lambda: client.offset(30, TOPIC, 0) == 1)
        delay.write_text(str(sync_ms))
        began = time.monotonic()
        opaque = client.post_send(TOPIC, 0, b"waits")
        # One that is under way, and the one for this message.
        limit_ms = timeout_ms + 1_500 if sync_ms > timeout_ms else 3 * sync_ms
        answer = within(limit_ms / 1000, lambda: client.take_send(opaque))
        waited_ms = (time.monotonic() - began) * 1000
        if flush == "ASYNC_FLUSH":
            assert answer.code == ResponseCode.SUCCESS
        elif sync_ms > timeout_ms:
            # So it was not flushed yet: the answer did not wait for the disk.
            assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert waited_ms >= timeout_ms
        else:
            assert answer.code == ResponseCode.SUCCESS
            assert waited_ms >= sync_ms
        # One sync follows the other now. Not even one of a hundred waits for them.
        opaque = client.post_send(TOPIC, 0, b"waits")
        assert percentile_s(lambda: send_and_pull(other)) < sync_ms / 1000 / 2
        assert within(60, lambda: client.take_send(opaque)).code == answer.code
        delay.write_text("0")
        wait_until(lambda: client.send(TOPIC, 0, b"after").code == ResponseCode.SUCCESS, 30)
        assert_stops_clean(broker)
