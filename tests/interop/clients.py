"""What a test works with: a client of one version against a cluster, with names nobody else uses.

Apart from conftest.py, which pytest may import under another name: there is one counter of names.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop import harness
from tests.interop.driver import Consumer, Driver, DriverError, Entry, Producer
from tests.interop.java_peers import CLIENT_VERSIONS
from tests.interop.processes import PeerError, wait_until

_NUMBERS = itertools.count(1)


def mostly_with(version: str) -> pytest.MarkDecorator:
    """With a client of this version; with those of the others in a long run only. For what takes
    its time where the version is seldom what makes a difference."""
    params = [
        pytest.param(each, id=f"client-{each}", marks=[] if each == version else pytest.mark.long)
        for each in CLIENT_VERSIONS
    ]
    return pytest.mark.parametrize("client", params, indirect=True)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The servers under test."""

    namesrv: harness.NameServer
    broker: harness.Broker

    @property
    def address(self) -> str:
        """The name server's."""
        return self.namesrv.address


class Client:
    """One client version against the cluster under test; `end` stops what it started."""

    def __init__(self, driver: Driver, cluster: Cluster) -> None:
        self.driver = driver
        self.cluster = cluster
        self._stops: list[tuple[str, str]] = []

    @property
    def namesrv(self) -> str:
        """Address of the name server."""
        return self.cluster.address

    def topic(self, queues: int = 4, broker: harness.Broker | None = None) -> str:
        """A new topic on `broker`, by default the one under test."""
        name = f"topic-{self.driver.version.replace('.', '_')}-{next(_NUMBERS)}"
        where = {
            "namesrv": self.cluster.address,
            "broker": (broker or self.cluster.broker).address,
        }
        self.driver.call("topic.create", topic=name, queues=queues, **where)
        if self.cluster.broker.kind in harness.KINDS_5:
            wait_until(lambda: self._has_route(name), f"route of {name}")
        return name

    def _has_route(self, topic: str) -> bool:
        asked = self.driver.submit("topic.route", namesrv=self.namesrv, topic=topic)
        return asked.exception(30) is None

    def group(self) -> str:
        """A new group name."""
        return f"group-{self.driver.version.replace('.', '_')}-{next(_NUMBERS)}"

    def producer(self, **settings: Any) -> Producer:
        producer = Producer(
            self.driver, self.cluster.address, f"producer-{next(_NUMBERS)}", **settings
        )
        self._stops.append(("producer.stop", producer.name))
        return producer

    def push(self, topic: str, group: str | None = None, **settings: Any) -> Consumer:
        """A started DefaultMQPushConsumer."""
        return self._consumer("push", topic, group, settings)

    def lite(self, topic: str, group: str | None = None, **settings: Any) -> Consumer:
        """A started DefaultLitePullConsumer."""
        if self.driver.version.startswith("5") and self.cluster.broker.kind == "java-4.9":
            pytest.skip("a 5.3.3 lite pull consumer sends request 361, which 4.9 brokers refuse")
        return self._consumer("lite", topic, group, settings)

    def drain(self, topic: str, count: int) -> list[Entry]:
        """The first `count` messages of a topic, in queue order (by an orderly consumer)."""
        return self.push(topic, orderly=True).wait_for(count)

    def end(self) -> None:
        """Stop all; nobody waits for it, some shutdowns of 5.3.3 take seconds."""
        for op, name in reversed(self._stops):
            self.driver.submit(op, name=name)

    def _consumer(
        self, family: str, topic: str, group: str | None, settings: dict[str, Any]
    ) -> Consumer:
        where = self.cluster.address
        consumer = Consumer(self.driver, family, where, group or self.group(), topic, **settings)
        self._stops.append((f"{family}.stop", consumer.name))
        return consumer


def registered(driver: Driver, namesrv: str) -> dict[str, dict[str, str]]:
    """{brokerName: {brokerId: address}} as the name server tells it."""
    table: dict[str, dict[str, str]] = driver.call("cluster.brokers", namesrv=namesrv)
    return table


def wait_registered(driver: Driver, namesrv: str, broker: harness.Broker) -> None:
    """Until the name server knows the master. A JVM's first TLS handshake may time out on a busy
    machine; the last error is in the text."""
    errors: list[DriverError] = []

    def is_known() -> bool:
        try:
            return registered(driver, namesrv).get(broker.name, {}).get("0") == broker.address
        except DriverError as error:
            errors[:] = [error]
            return False

    try:
        wait_until(is_known, f"{broker.name} registered", 40, poll_s=0.1)
    except PeerError as error:
        raise PeerError(f"{error}; last: {errors}") from error


AnotherBroker = Callable[[str, Mapping[str, str]], harness.Broker]
"""Starts `broker-<name>` with settings of its own for the tests of a module."""


@contextlib.contextmanager
def broker_beside(
    cluster: Cluster, driver: Driver, directory: Path, name: str, conf: Mapping[str, str]
) -> Iterator[harness.Broker]:
    """A registered broker of the cluster's kind beside its own; stopped at the end."""
    broker = harness.broker(
        cluster.broker.kind, directory, cluster.address, name=f"broker-{name}", conf=conf
    ).start()
    try:
        wait_registered(driver, cluster.address, broker)
        yield broker
    finally:
        broker.stop()
