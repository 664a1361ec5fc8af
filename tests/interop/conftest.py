"""Fixtures: one name server and one broker for the session, one JVM for each client version.

`INTEROP_BROKER` and `INTEROP_NAMESRV` (ours, java-4.9, java-5.5) choose what is under test; Java
against Java is how the scenarios themselves are validated.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.interop import harness
from tests.interop.clients import (
    AnotherBroker,
    Client,
    Cluster,
    broker_beside,
    wait_registered,
)
from tests.interop.driver import Driver
from tests.interop.java_peers import CLIENT_VERSIONS, missing_tools
from tests.interop.replication import Group

collect_ignore_glob = ["lib-*", "target"]
"""What tests.interop.prepare fetches; clients bring tests of their own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing_tools()
    if reason is None:
        return
    for item in items:
        if item.get_closest_marker("interop"):
            item.add_marker(pytest.mark.skip(reason=f"interop tests: {reason}"))


@pytest.fixture(scope="session")
def broker_kind() -> str:
    return os.environ.get("INTEROP_BROKER", "ours")


@pytest.fixture(scope="session")
def namesrv_kind() -> str:
    return os.environ.get("INTEROP_NAMESRV", "ours")


@pytest.fixture(scope="session")
def namesrv(
    tmp_path_factory: pytest.TempPathFactory, namesrv_kind: str
) -> Iterator[harness.NameServer]:
    server = harness.name_server(namesrv_kind, tmp_path_factory.mktemp("namesrv")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
    broker_kind: str,
    namesrv: harness.NameServer,
    drivers: Callable[[str], Driver],
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    broker = harness.broker(broker_kind, directory / "broker", namesrv.address).start()
    wait_registered(drivers("4.9.8"), namesrv.address, broker)
    yield Cluster(namesrv, broker)
    broker.stop()


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Driver]]:
    """The driver of a client version, started at its first use."""
    started: dict[str, Driver] = {}

    def get(version: str) -> Driver:
        if version not in started:
            started[version] = Driver(version, tmp_path_factory.mktemp(f"client-{version}"))
        return started[version]

    yield get
    for driver in started.values():
        driver.close()


@pytest.fixture(scope="module")
def another_broker(
    cluster: Cluster,
    drivers: Callable[[str], Driver],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[AnotherBroker]:
    """Brokers beside the cluster's own, until the module's tests are over."""
    with contextlib.ExitStack() as stack:

        def start(name: str, conf: Mapping[str, str]) -> harness.Broker:
            directory = tmp_path_factory.mktemp(name)
            beside = broker_beside(cluster, drivers("4.9.8"), directory, name, conf)
            return stack.enter_context(beside)

        yield start


@pytest.fixture(params=CLIENT_VERSIONS, ids=lambda version: f"client-{version}")
def client(
    request: pytest.FixtureRequest, cluster: Cluster, drivers: Callable[[str], Driver]
) -> Iterator[Client]:
    made = Client(drivers(request.param), cluster)
    yield made
    made.end()


@pytest.fixture
def clients(
    cluster: Cluster, drivers: Callable[[str], Driver]
) -> Iterator[Callable[[str], Client]]:
    """Clients of several versions in one test."""
    made: dict[str, Client] = {}

    def get(version: str) -> Client:
        if version not in made:
            made[version] = Client(drivers(version), cluster)
        return made[version]

    yield get
    for one in made.values():
        one.end()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure carries the tail of the logs of the servers it talked to."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Cluster):
                report.sections.append(("name server", value.namesrv.log_tail()))
                report.sections.append(("broker", value.broker.log_tail()))
            elif isinstance(value, Group):
                tails = [(member.process.name, member.log_tail()) for member in value.members]
                report.sections.extend(tails)
