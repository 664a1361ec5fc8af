"""What a master calls exact after a kill is true: judged by the bytes in its slave's own log.

Real pairs under load. However the master ended (killed whole, its process `ha` killed, an orderly
stop), the slave's log file then says what it holds. Whatever the master tells of it (metrics dump,
/metrics, HA status) is this or is marked as a bound.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import struct
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.broker_group import ASYNC_MASTER, SLAVE, TOPIC, Group
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

pytestmark = [pytest.mark.slow]

SLAVE_ID: Final = "broker-a:1"
HA_STATUS: Final = 907
_HEAD: Final = struct.Struct(">ii")
"""Size and magic code of a record."""


class Exposure:
    """A pair with load on its master, and what the master says of its slave."""

    def __init__(self, root: Path) -> None:
        self.group = Group(root)
        self.dumps = root / "dumps"
        self._stop = threading.Event()
        self._load: threading.Thread | None = None

    @property
    def master(self) -> OurBroker:
        return self.group.first

    def start_master(self) -> None:
        self.group.start(
            self.master,
            ASYNC_MASTER,
            metricsDumpPath=self.dumps,
            metricsDumpIntervalSeconds=1,
        )

    def start_slave(self) -> None:
        self.group.start(self.group.second, SLAVE)

    @contextlib.contextmanager
    def load(self) -> Iterator[None]:
        """One message after the other, until the master is gone or the block ends."""
        self._stop.clear()

        def send() -> None:
            with contextlib.suppress(OSError), self.master.client() as client:
                while not self._stop.is_set():
                    client.send(TOPIC, 0, b"x" * 500)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def send(self, count: int) -> None:
        with self.master.client() as client:
            for _ in range(count):
                assert client.send(TOPIC, 0, b"y" * 500).code == 0

    # -- the truth -----------------------------------------------------------------------------

    def possible_lags(self) -> set[int]:
        """Bytes that the slave lacks of each whole number of records, by both logs' files."""
        ends = _record_ends(_log(self.master))
        slave = _log(self.group.second)
        held = next(end for end in ends if not any(slave[end : end + _HEAD.size]))
        return {max(end - held, 0) for end in ends}

    # -- what is said --------------------------------------------------------------------------

    def lines(self) -> list[dict[str, Any]]:
        """The dump's lines, by time."""
        found = []
        for path in self.dumps.rglob("*.jsonl*"):
            if not path.name.startswith("."):
                data = path.read_bytes()
                data = gzip.decompress(data) if path.suffix == ".gz" else data
                texts = data[: data.rfind(b"\n") + 1].splitlines()
                found += [json.loads(text) for text in texts]
        return sorted({(line["ts"], line["seq"]): line for line in found}.values(), key=_time)

    def status(self) -> dict[str, Any]:
        with self.master.client() as client:
            [row] = json.loads(client.call(HA_STATUS, {}).body)["haConnectionInfo"]
        return dict(row)

    def metrics(self) -> dict[str, float]:
        """Those of one series each."""
        address = f"http://127.0.0.1:{self.master.ports['metrics']}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            texts = answer.read().decode().splitlines()
        rows = (text.rpartition(" ") for text in texts if not text.startswith("#"))
        return {name.partition("{")[0]: float(value) for name, _, value in rows}


def _time(line: dict[str, Any]) -> int:
    return int(line["ts"])


def _log(broker: OurBroker) -> bytes:
    files = sorted((broker.store_dir / "commitlog").glob("[0-9]*"))
    return b"".join(path.read_bytes() for path in files)


def _record_ends(data: bytes) -> list[int]:
    """0 and the end of each record, by their own sizes; a blank counts as one."""
    ends = [0]
    while ends[-1] + _HEAD.size <= len(data):
        size, magic = _HEAD.unpack_from(data, ends[-1])
        if not magic:
            break
        ends.append(ends[-1] + size)
    return ends


def _kill_all(pair: Exposure) -> None:
    pair.master.crash()
    pair.group.second.crash()
    pair.start_master()


def _kill_ha(pair: Exposure) -> None:
    pair.group.second.crash()
    pair.master.restart_by_kill("ha")


def _kill_master_stop_slave(pair: Exposure) -> None:
    pair.master.crash()
    assert pair.group.second.terminate() == 0
    pair.start_master()


def _stop(pair: Exposure) -> None:
    assert pair.master.terminate() == 0
    assert pair.group.second.terminate() == 0
    pair.start_master()


@pytest.mark.parametrize(
    "part",
    [
        _kill_all,
        *(
            pytest.param(p, marks=pytest.mark.long)
            for p in (_kill_master_stop_slave, _kill_ha, _stop)
        ),
    ],
)
def test_what_is_called_exact_is_true(tmp_path: Path, part: Callable[[Exposure], None]) -> None:
    pair = Exposure(tmp_path)
    with pair.group.running():
        pair.start_master()
        pair.start_slave()
        wait_until(lambda: pair.lines()[-1]["replicas"], 20)
        with pair.load():
            wait_until(lambda: pair.lines()[-1]["max_offset"] > 200_000, 30)
            part(pair)
        parted = len(pair.lines())
        pair.send(10)
        wait_until(lambda: len(pair.lines()) > parted + 2, 20)
        true_lags = pair.possible_lags()

        row, metrics = pair.status(), pair.metrics()
        if row.get("lagBytesExact", True):
            assert row["lagBytes"] in true_lags
        if metrics.get("rocketmq_ha_unreplicated_exact", 1):
            assert metrics["rocketmq_ha_unreplicated_bytes"] in true_lags
        for line in pair.lines()[parted:]:
            [replica] = line["replicas"]
            assert replica["state"] == "disconnected"
            assert not replica["lag_exact"] or replica["lag_bytes"] in true_lags
            assert line["unreplicated_bytes"] in {None, *true_lags}
        assert replica["lag_bytes"] >= max(true_lags), "a bound is never too small"
        if part is _stop:
            assert replica["lag_exact"], "nothing can have come after the stop"
            assert line["unreplicated_bytes"] == max(true_lags)

        pair.start_slave()
        wait_until(lambda: pair.lines()[-1]["unreplicated_bytes"] == 0, 30)
        [replica] = pair.lines()[-1]["replicas"]
        assert (replica["lag_bytes"], replica["lag_exact"]) == (0, True)
