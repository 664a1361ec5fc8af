"""The last line of a broker's dump, or the first of its next life, counts every answer to the end.

Real brokers, stopped and killed while clients send. The truth is the clients' own count: of the
answers that they received, and of the requests that they sent.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.support.broker_group import TOPIC
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

pytestmark = [pytest.mark.slow]

CLIENTS: Final = 3
ANSWERS: Final = (
    *("ok", "flush_slave_timeout", "slave_not_available", "flush_disk_timeout", "refused"),
)


class Client:
    """A thread that sends one message after the other until its connection ends."""

    def __init__(self, broker: OurBroker) -> None:
        self.posted = self.good = self.others = 0
        self._broker = broker
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError), self._broker.client() as client:
            while True:
                self.posted += 1
                is_good = client.send(TOPIC, 0, b"x" * 300).code == 0
                self.good, self.others = self.good + is_good, self.others + (not is_good)

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def loaded(
    broker: OurBroker, goes_on: Callable[[Client], bool] = lambda client: client.good > 200
) -> Iterator[list[Client]]:
    """Three clients, each of which has been answered some hundred times."""
    clients = [Client(broker) for _ in range(CLIENTS)]
    wait_until(lambda: all(map(goes_on, clients)), 30)
    yield clients
    for client in clients:
        client.join()


def lines_of(root: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for path in root.rglob("*.jsonl*"):
        if not path.name.startswith("."):
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            lines += [json.loads(text) for text in data[: data.rfind(b"\n") + 1].splitlines()]
    return sorted(lines, key=lambda line: (int(line["boot_ts"]), int(line["seq"])))


class Killed(NamedTuple):
    """A broker that was killed under load and started again: its last line, the first one of its
    next life, and what the clients had posted and were told."""

    before: dict[str, Any]
    after: dict[str, Any]
    posted: int
    good: int
    others: int


def killed(
    root: Path,
    goes_on: Callable[[Client], bool] = lambda client: client.good > 200,
    **settings: str,
) -> Killed:
    dumps = root / "dumps"
    with OurBroker(root, metricsDumpPath=dumps, **settings).start() as broker:
        with loaded(broker, goes_on) as clients:
            broker.crash()
        before = lines_of(dumps)[-1]
        broker.start()
        wait_until(lambda: lines_of(dumps)[-1]["boot"] != before["boot"])
        after = next(line for line in lines_of(dumps) if line["prev_boot"] == before["boot"])
    counts = (sum(getattr(each, name) for each in clients) for name in ("posted", "good", "others"))
    return Killed(before, after, *counts)


def test_an_orderly_stop_under_load(tmp_path: Path) -> None:
    """What was answered while the broker stopped is in its last line: in all sends, and in those
    that are said to have been stored."""
    with OurBroker(tmp_path, metricsDumpPath=tmp_path / "dumps").start() as broker:
        with loaded(broker) as clients:
            assert broker.terminate() == 0
        line = lines_of(tmp_path / "dumps")[-1]
        assert line["final"]
        told = sum(line["sends"][name] for name in ANSWERS)
        assert sum(each.good for each in clients) <= line["sends"]["ok"]
        assert sum(each.good + each.others for each in clients) <= told
        assert told <= sum(each.posted for each in clients)
        assert line["msgs_in"] == line["sends"]["ok"]


def test_a_kill_under_load(tmp_path: Path) -> None:
    """The next life tells what the killed one had counted: all answers that clients got, but for
    those of its last quick turns, which are not counted yet: one of each client at most."""
    found = killed(tmp_path)
    ended = found.after["ended"]
    assert ended["boot"] == found.before["boot"]
    assert found.after["machine_boot"] == found.before["machine_boot"]
    told = ended["sends"]["ok"]
    assert found.before["sends"]["ok"] < told <= found.posted
    assert found.good - told <= 64 * CLIENTS
    assert sum(ended["sends"]["latency"]["counts"]) == told


def test_refused_sends_are_counted_before_they_are_answered(tmp_path: Path) -> None:
    """To a topic that does not exist: not one of them is missing after a kill."""
    found = killed(tmp_path, lambda client: client.others > 200, autoCreateTopicEnable="false")
    assert found.others <= found.after["ended"]["sends"]["refused"] <= found.posted


def test_sends_that_waited_for_the_disk_are_counted_before_they_are_answered(
    tmp_path: Path,
) -> None:
    found = killed(tmp_path, flushDiskType="SYNC_FLUSH")
    for name in ("sync", "sends"):
        assert found.good <= found.after["ended"][name]["ok"] <= found.posted
