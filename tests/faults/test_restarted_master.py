"""A restarted master, or name server, and the registered slave of before: nobody is a stranger.

Real pairs whose slave proves the secret of the group, and registers once a minute: what happens
sooner does not wait for that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from broker.out.broker_registration import FIRST_DELAY_MS
from ha.control_slots import HA_REFUSALS
from ha.refusals import RefusalReason
from remoting.body.route import ClusterInfo
from store.control_slots import MAX_PHY_OFFSET
from tests.support.broker_group import SLAVE, SYNC_MASTER, TOPIC, Group, counters_of
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

pytestmark = [pytest.mark.slow]

SETTINGS: Final[dict[str, object]] = {
    "registerNameServerPeriod": 60_000,
    "slaveTimeout": 500,
}
STRANGERS: Final = (
    HA_REFUSALS + RefusalReason.UNKNOWN_PEER,
    HA_REFUSALS + RefusalReason.NOT_PROVED,
)
GET_BROKER_CLUSTER_INFO: Final = 106
GET_BROKER_HA_STATUS: Final = 907
RECONNECT_MS: Final = 5_000
"""RocketMQ's, and the default."""
OLD_MS: Final = max(RECONNECT_MS, FIRST_DELAY_MS) + 1_000
SOON_S: Final = 25.0
"""Less than registerNameServerPeriod: no regular registration comes before."""


class Pair:
    """A SYNC_MASTER with its name server, and its slave."""

    def __init__(self, root: Path) -> None:
        self.group = Group(root)
        self.master, self.slave = self.group.first, self.group.second
        secret = root / "secret"
        secret.write_text("the secret of this group")
        secret.chmod(0o600)
        self._settings = {**SETTINGS, "haSharedSecretFile": str(secret)}

    def start_master(self) -> None:
        self.group.start(self.master, SYNC_MASTER, **self._settings)

    def start_slave(self) -> None:
        self.group.start(self.slave, SLAVE, **self._settings, haReconnectInterval=RECONNECT_MS)

    def link_is_old(self) -> bool:
        """Older than haReconnectInterval, so that it is no link that fails again and again, and
        than FIRST_DELAY_MS, so that the slave's next regular registration is a minute away."""
        with self.slave.client() as client:
            body = json.loads(client.call(GET_BROKER_HA_STATUS, {}).body)
        since_ms = body["haClientRuntimeInfo"]["connectedSince"]
        return since_ms is not None and body["timestamp"] - since_ms > OLD_MS

    def registered(self) -> set[int]:
        """The ids that the name server knows."""
        with self.master.client("namesrv") as client:
            body = client.call(GET_BROKER_CLUSTER_INFO, {}).body
        group = ClusterInfo.from_json_bytes(body).broker_addr_table.get("broker-a")
        return set() if group is None else set(group.broker_addrs)

    def first_ok_s(self) -> float:
        """Seconds until a send waits for its slave and succeeds."""
        began = time.monotonic()
        with self.master.client() as client:
            wait_until(lambda: client.send(TOPIC, 0, b"x").code == 0, SOON_S)
        return time.monotonic() - began

    def refused_strangers(self) -> int:
        with counters_of(self.master) as counters:
            return sum(int(counters[slot]) for slot in STRANGERS)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """In sync, the slave is registered, and its next regular registration is a minute away."""
    pair = Pair(tmp_path)
    with pair.group.running():
        pair.start_master()
        pair.start_slave()
        pair.first_ok_s()
        wait_until(pair.link_is_old, 40)
        assert pair.registered() == {0, 1}
        yield pair


def _stop(broker: OurBroker) -> None:
    assert broker.terminate() == 0


def _kill(broker: OurBroker) -> None:
    broker.crash()


@pytest.mark.parametrize("end", [pytest.param(_stop, marks=pytest.mark.long), _kill])
def test_a_restarted_master_serves_its_slave_at_once(
    pair: Pair, end: Callable[[OurBroker], None], record_property: Callable[[str, object], None]
) -> None:
    end(pair.master)
    pair.start_master()
    record_property("first_ok_s", round(pair.first_ok_s(), 2))
    assert pair.refused_strangers() == 0
    wait_until(lambda: pair.registered() == {0, 1}, SOON_S)
    assert pair.refused_strangers() == 0


def test_a_restarted_pair(pair: Pair) -> None:
    _kill(pair.master)
    _kill(pair.slave)
    pair.start_master()
    pair.start_slave()
    pair.first_ok_s()
    assert pair.refused_strangers() == 0


def test_a_restarted_name_server_knows_both_again_soon(pair: Pair) -> None:
    """While it knows nobody the slave is no stranger, though it comes back then."""
    pair.master.restart_by_kill("namesrv")
    pair.slave.restart_by_kill("ha")
    with pair.master.client() as client, counters_of(pair.slave) as slave:
        sent = _send_ok(client)
        wait_until(lambda: slave[MAX_PHY_OFFSET] > sent, SOON_S)
    wait_until(lambda: pair.registered() == {0, 1}, SOON_S)
    assert pair.refused_strangers() == 0


def _send_ok(client: FrameClient) -> int:
    """Sends until one is acknowledged; its offset."""
    found: list[int] = []

    def is_ok() -> bool:
        sent = client.send(TOPIC, 0, b"x")
        found[:] = [sent.phy_offset]
        return sent.code == 0

    wait_until(is_ok, SOON_S)
    return found[0]
