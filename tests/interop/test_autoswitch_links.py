"""Our end of an HA connection in controller mode, at a 5.3.3 master that a controller has elected.

The truth is the bytes of the Java broker's commit log, and the offsets that it answered to sends.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ha.member_world import Member
from tests.interop import harness
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(180)]

FILE_SIZE = 1 << 20
SETTINGS = {
    "brokerClusterName": "LinkCluster",
    "brokerRole": "SLAVE",
    "brokerId": "-1",
    "enableControllerMode": "true",
    "mappedFileSizeCommitLog": str(FILE_SIZE),
}
_WAIT_S = 30


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Broker]:
    """The master, alone in its group."""
    root = tmp_path_factory.mktemp("links")
    controller = harness.controller(root / "controller").start()
    conf = {**SETTINGS, "controllerAddr": controller.address}
    try:
        broker = harness.broker("java-5.3", root / "java", None, name="links", conf=conf).start()
        yield broker
        broker.kill()
    finally:
        controller.kill()


def files_of(java: harness.Broker) -> list[Path]:
    return sorted((java.store_dir / "commitlog").iterdir())


def master_bytes(java: harness.Broker, end: int) -> bytes:
    """The log up to there, as far as its files are kept."""
    return b"".join(path.read_bytes() for path in files_of(java))[:end]


def send(java: harness.Broker, count: int, size: int) -> int:
    """Where the last of these messages begins in the Java broker's log."""
    with java.client() as client:
        sent = [client.send("T", 0, b"%d" % number * size) for number in range(count)]
    return sent[-1].phy_offset


def caught_up(slave: Member, last: int) -> None:
    wait_until(lambda: slave.end > last, f"{slave.end}, {last}; {slave.error_text}", _WAIT_S)


def test_the_log_of_a_java_master_to_the_byte(java: harness.Broker, tmp_path: Path) -> None:
    """Several files, links that are cut while it sends, heartbeats, and frames that end anywhere in
    a record."""
    last = send(java, 600, 1_000)
    with Member(
        tmp_path, 7, files=12, file_size=FILE_SIZE, ha_send_heartbeat_interval=500
    ) as slave:
        slave.follow(f"127.0.0.1:{java.port + 1}", 1)
        caught_up(slave, last)
        for _ in range(5):
            last = send(java, 200, 1_500)
            slave.service.stop()
            slave.follow(f"127.0.0.1:{java.port + 1}", 1)
        caught_up(slave, last)
        assert slave.end > 3 * FILE_SIZE
        assert slave.bytes_of(0, slave.end) == master_bytes(java, slave.end)
        (epoch, epochs, _), *_ = slave.hellos
        assert (epoch, epochs.entries) == (1, ((1, 0),))
        wait_until(lambda: slave.confirmed[-1] == slave.end, f"{slave.confirmed[-3:]}", _WAIT_S)
        assert slave.refusals() == {}


def test_a_java_master_waits_for_the_decision(java: harness.Broker, tmp_path: Path) -> None:
    """It sends nothing before the first report, however long that takes."""
    last = send(java, 20, 100)
    with Member(tmp_path, 8, files=12, file_size=FILE_SIZE) as slave:
        slave.decides = "nothing"
        slave.follow(f"127.0.0.1:{java.port + 1}", 1)
        wait_until(lambda: bool(slave.hellos), "the master's answer", _WAIT_S)
        assert slave.end == 0
        slave.service.transfer()
        caught_up(slave, last)
        assert slave.bytes_of(0, slave.end) == master_bytes(java, slave.end)
