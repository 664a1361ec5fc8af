"""haMasterAddress and no namesrvAddr: nobody will ever say who the master is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ha.uncompared_end import uncompared_path
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

pytestmark = [pytest.mark.long]


def log_end(broker: OurBroker) -> int:
    log = broker.store_dir / "commitlog" / f"{0:020d}"
    return len(log.read_bytes().rstrip(b"\0")) if log.exists() else 0


def test_a_slave_without_name_servers_goes_on_after_a_restart(tmp_path: Path) -> None:
    """The name server that it embeds itself was waited for, for ever."""
    with OurBroker(tmp_path / "m", brokerName="p", brokerRole="ASYNC_MASTER").start() as master:
        port = re.search(r"ha (\d+)", master.output())
        assert port is not None
        address = f"127.0.0.1:{port[1]}"
        settings = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": address}
        with OurBroker(tmp_path / "s", brokerName="p", **settings).start() as slave:
            for body in (b"one", b"two"):
                with master.client() as client:
                    assert client.send("T", 0, body).code in (0, 11)
                wait_until(lambda: log_end(slave) == log_end(master) > 0, 40)
                slave.terminate()
                # As if another broker had written its log.
                uncompared_path(slave.store_dir / "commitlog").unlink(missing_ok=True)
                slave.start()
