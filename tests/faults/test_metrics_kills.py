"""kill -9 of each process while a scraper looks: what is down is a value, no counter goes back."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.broker.metrics_world import families_of, samples_of
from tests.faults.ledger import Ledger, Senders
from tests.support.broker_group import SLAVE, SYNC_MASTER, Group
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

Labels = tuple[str, ...]
Samples = dict[str, dict[Labels, float]]
MESSAGES_IN = "rocketmq_messages_in_total"


def scrape(broker: OurBroker) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", broker.ports["metrics"], timeout=10)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read().decode()
        assert response.status == 200, text
        return text
    finally:
        connection.close()


def base_of(broker: OurBroker) -> dict[str, str]:
    settings = broker.settings
    cluster = str(settings.get("brokerClusterName", "DefaultCluster"))
    return {"cluster": cluster, "node_type": "broker", "node_id": str(settings["brokerName"])}


class Scraper:
    """Scrapes again and again, on a thread; notes every counter that went back or vanished."""

    def __init__(self, broker: OurBroker) -> None:
        self._broker = broker
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._before: Samples = {}
        self.wrong: list[str] = []
        self.scrapes = 0
        self.last: Samples = {}

    def _run(self) -> None:
        while not self._end.wait(0.02):
            try:
                text = scrape(self._broker)
            except (OSError, AssertionError) as error:
                self.wrong.append(f"scrape {self.scrapes}: {error!r}")
                continue
            self.last = samples_of(text, base=base_of(self._broker))
            counters = {
                sample.name
                for family in families_of(text)
                if family.type in ("counter", "histogram")
                for sample in family.samples
            }
            self._compare({name: self.last[name] for name in counters})
            self.scrapes += 1

    def _compare(self, now: Samples) -> None:
        for name, series in self._before.items():
            for labels, value in series.items():
                found = now.get(name, {}).get(labels)
                if found is None or found < value:
                    self.wrong.append(f"{name}{labels}: {value} -> {found}")
        self._before = now

    def one(self, name: str, *labels: str) -> float | None:
        return self.last.get(name, {}).get(labels)

    def wait_for(self, name: str, value: float, *labels: str) -> None:
        wait_until(lambda: self.one(name, *labels) == value)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(15)


@contextlib.contextmanager
def pair(root: Path) -> Iterator[OurBroker]:
    """The SYNC_MASTER of a pair; its slave has the id 1."""
    with Group(root).running() as group:
        master = group.start(group.first, SYNC_MASTER)
        group.start(group.second, SLAVE)
        yield master


@pytest.mark.fault(4)
@pytest.mark.slow
def test_counters_go_on_over_the_death_of_each_process(tmp_path: Path) -> None:
    ledger = Ledger()
    with pair(tmp_path) as master, Scraper(master) as scraper:
        with Senders(master, ledger, count=1):
            for round_, name in enumerate(["remoting", "store", "ha", "namesrv", "remoting"], 1):
                ledger.wait_for_more()
                restarts = scraper.one("rocketmq_process_restarts_total", name) or 0
                master.restart_by_kill(name)
                scraper.wait_for("rocketmq_process_restarts_total", restarts + 1, name)
                scraper.wait_for("rocketmq_process_up", 1, name)
                ledger.wait_for_more()
                assert scraper.wrong == [], f"kill {round_}, {name}"
        wait_until(lambda: scraper.one("rocketmq_ready") == 1)
        seen = scraper.scrapes
        wait_until(lambda: scraper.scrapes > seen + 2)
    assert scraper.wrong == []
    assert scraper.scrapes > 20
    # What was killed between an answer and its count may be missing, never more than was sent.
    counted = sum(scraper.last[MESSAGES_IN].values())
    assert len(ledger) * 0.8 < counted


@pytest.mark.slow
def test_a_stopped_ha_has_no_replicas(tmp_path: Path) -> None:
    """SIGSTOP: nobody writes that the replica is not served; the supervisor says it."""
    with pair(tmp_path) as master, Scraper(master) as scraper:
        replica = (f"{master.settings['brokerName']}:1", "SYNC_MASTER")
        name = "rocketmq_ha_replica_connected"
        scraper.wait_for(name, 1, *replica)
        pid = master.stop("ha")
        scraper.wait_for(name, 0, *replica)
        assert scraper.one("rocketmq_process_up", "ha") == 1
        disconnected = ("rocketmq_ha_state_seconds_total", replica[0], "disconnected")
        before = scraper.one(*disconnected) or 0
        wait_until(lambda: (scraper.one(*disconnected) or 0) > before + 1)
        os.kill(pid, signal.SIGCONT)
        scraper.wait_for(name, 1, *replica)
    assert scraper.wrong == []
