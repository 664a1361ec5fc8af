"""A master and a slave that cannot reach each other, or one of them the other; a link that is far.

Real brokers with a relay between them (tools/chaos/relay.py: nothing is read, the sender's window
fills; tests/bench/delay_relay.c: a round trip). Lost packets are not played: that needs netem.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remoting.response_code import ResponseCode
from store.control_slots import MAX_PHY_OFFSET
from tests.bench.catch_up import delay_relay
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
from tools.chaos.relay import Relay
from tools.chaos.schedule import FaultKind

pytestmark = [pytest.mark.slow]

SEND_OK = ResponseCode.SUCCESS
TIMEOUT, NO_SLAVE = ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE
RECONNECT_S = 5.0
QUICK: dict[str, object] = {
    "haHousekeepingInterval": 1_500,
    "haSendHeartbeatInterval": 400,
    "slaveTimeout": 400,
}


@pytest.mark.parametrize("kind", [FaultKind.PARTITION, FaultKind.ONE_WAY])
@pytest.mark.parametrize(
    ("seconds", "settings"),
    [
        pytest.param(2.5, QUICK, id="short"),
        pytest.param(60.0, {"slaveTimeout": 3_000}, id="60 s", marks=pytest.mark.long),
    ],
)
@pytest.mark.fault(14, 15)
def test_a_partition_heals(
    group: Group, relay: Relay, kind: FaultKind, seconds: float, settings: dict[str, object]
) -> None:
    master = group.start(group.first, SYNC_MASTER, **settings)
    address = f"127.0.0.1:{relay.port}"
    slave = group.start(group.second, SLAVE, haMasterAddress=address, **settings)
    with (
        master.client(timeout_s=30) as client,
        counters_of(slave) as counters,
    ):
        wait_until(lambda: client.send(TOPIC, 0, b"before").code == SEND_OK, 20)
        relay.set_mode(kind)
        began = time.monotonic()
        codes: list[int] = []
        # One may have been acknowledged while the relay was told.
        client.send(TOPIC, 0, b"on the brink")
        while time.monotonic() - began < seconds or codes[-1] != NO_SLAVE:
            sent = client.send(TOPIC, 0, b"x" * 100)
            codes.append(sent.code)
            if len(codes) == 1 and kind is FaultKind.ONE_WAY:
                assert counters[MAX_PHY_OFFSET] > sent.phy_offset, "only the report is lost"
            assert time.monotonic() - began < seconds + 30, codes
        first_none = codes.index(NO_SLAVE)
        assert first_none > 0
        assert set(codes[:first_none]) == {TIMEOUT}
        assert set(codes[first_none:]) == {NO_SLAVE}
        relay.set_mode(None)
        wait_until(lambda: client.send(TOPIC, 0, b"after").code == SEND_OK, RECONNECT_S)
        wait_until(lambda: log_of(slave) == log_of(master), 20)
    assert slave.terminate() == 0
    assert slave.check().is_clean


BATCH = 32 * 1024
"""What RocketMQ's master sends before it waits for a report."""


def catch_up_s(group: Group, delay_us: int) -> float:
    """Seconds from the slave's first byte to its last; it is empty before."""
    with (
        delay_relay(int(group.first.ports["ha"]), delay_us) as port,
        counters_of(group.first) as master,
    ):
        slave = group.start(group.second, SLAVE, haMasterAddress=f"127.0.0.1:{port}")
        with counters_of(slave) as counters:
            wait_until(lambda: counters[MAX_PHY_OFFSET] > 0, 30)
            began = time.monotonic()
            wait_until(lambda: counters[MAX_PHY_OFFSET] == master[MAX_PHY_OFFSET], 120)
            took_s = time.monotonic() - began
        assert log_of(slave) == log_of(group.first)
        slave.crash()
    return took_s


def fill(group: Group, size: int) -> None:
    group.start(group.first, ASYNC_MASTER)
    with group.first.client() as client:
        for _ in range(size >> 18):
            assert client.send(TOPIC, 0, bytes(1 << 18)).code == SEND_OK


@pytest.mark.fault(16)
def test_the_log_does_not_wait_for_each_report(group: Group, proved: Callable[[str], None]) -> None:
    """20 ms of round trip: a master that waited for a report after each batch took ten seconds."""
    size = 16 << 20
    for broker in (group.first, group.second):
        broker.settings["mappedFileSizeCommitLog"] = 16 << 20
    fill(group, size)
    took_s = catch_up_s(group, 20_000)
    assert took_s < size / BATCH * 0.02 / 4
    proved(f"16 MiB over a link of 20 ms: {took_s:.2f} s")


@pytest.mark.fault(16)
@pytest.mark.long
def test_two_milliseconds_cost_a_fifth_at_most(
    tmp_path: Path, proved: Callable[[str], None]
) -> None:
    best: dict[int, float] = {}
    for number in range(3):
        for delay_us in (0, 2_000, 20_000):
            with Group(tmp_path / f"{number}-{delay_us}").running() as group:
                for broker in (group.first, group.second):
                    broker.settings["mappedFileSizeCommitLog"] = 1 << 30
                fill(group, 512 << 20)
                took_s = catch_up_s(group, delay_us)
                best[delay_us] = min(took_s, best.get(delay_us, took_s))
    rates = {delay_us: round(512 / took_s) for delay_us, took_s in best.items()}
    assert rates[2_000] >= 0.8 * rates[0], rates
    proved(f"MB/s by the round trip in µs: {rates}")
