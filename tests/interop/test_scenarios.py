"""The same scenarios (scenarios.yaml) against a Java broker and ours: what comes of them is equal.

What may differ stands in the file with its reason, value by value; a difference that is no longer
there fails as well. Every run begins when the first test asks for one, some at a time, and a test
waits for its own two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.interop import harness
from tests.interop.accounts import ACCOUNTS
from tests.interop.clients import wait_registered
from tests.interop.driver import Driver
from tests.interop.java_peers import CLIENT_VERSIONS
from tests.interop.processes import PeerError
from tests.interop.replication import start_all
from tests.interop.scenarios import CLUSTER, Scenario, Side, Stage, differences, load

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

KINDS = ("java-4.9", "ours")
_AT_A_TIME = 4
_PAIRS, _SCENARIOS = load()


def _cases() -> Iterator[Any]:
    """A scenario that both releases of the client can run has one of them in every run, in turn,
    and the other in a long one, unless what comes of it differs between the two."""
    releases = itertools.cycle(CLIENT_VERSIONS)
    for scenario in _SCENARIOS:
        clients = CLIENT_VERSIONS if scenario.both else CLIENT_VERSIONS[:1]
        often = next(releases) if scenario.both else clients[0]
        for client in clients:
            is_seldom = client != often and not scenario.tells_clients_apart
            marks = pytest.mark.long if is_seldom else ()
            yield pytest.param(scenario, client, id=f"{scenario.name}-{client}", marks=marks)


def is_guarded(pair: str) -> bool:
    """Whether its brokers want to know who asks."""
    return bool(_PAIRS[pair]["settings"].get("aclEnable") == "true")


Wanted = list[tuple[Scenario, str]]


class Brokers:
    """The brokers of one side, one for each pair, behind a name server of their own world."""

    def __init__(self, kind: str, directory: Path, pairs: set[str]) -> None:
        self.kind = kind
        self.namesrv = harness.name_server(kind, directory / "namesrv")
        self._directory = directory
        self.brokers = {pair: self._broker(pair) for pair in sorted(pairs)}
        self.slaves = {
            pair: self._broker(pair, "-slave", brokerRole="SLAVE", brokerId="1")
            for pair in sorted(pairs)
            if _PAIRS[pair].get("slave")
        }

    def _broker(self, pair: str, suffix: str = "", **more: str) -> harness.Broker:
        directory = self._directory / f"{pair}{suffix}"
        settings = {**_PAIRS[pair]["settings"], "brokerClusterName": CLUSTER, **more}
        if is_guarded(pair):
            settings |= self._access(directory)
        where = self.namesrv.address
        return harness.broker(self.kind, directory, where, name=f"broker-{pair}", conf=settings)

    def _access(self, directory: Path) -> dict[str, str]:
        conf = directory / "java-home" / "conf"
        conf.mkdir(parents=True)
        (conf / "plain_acl.yml").write_text(ACCOUNTS)
        return {"rocketmqHome": str(conf.parent)} if self.kind == "ours" else {}

    def start(self) -> None:
        self.namesrv.start()
        start_all(self.brokers.values())
        start_all(self.slaves.values())

    def stop(self) -> None:
        for broker in [*self.slaves.values(), *self.brokers.values()]:
            broker.end()
        self.namesrv.stop()


class Runs:
    """Every wanted scenario on both sides, started at once in pools of a few threads."""

    def __init__(self, sides: dict[str, Brokers], drivers: Callable[[str], Driver]) -> None:
        self._sides = sides
        self._drivers = drivers
        self._numbers = itertools.count(1)
        pairs = next(iter(sides.values())).brokers
        self._pools = {
            pair: ThreadPoolExecutor(1 if is_guarded(pair) else _AT_A_TIME) for pair in pairs
        }
        self._begun: dict[tuple[str, str], dict[str, Future[list[Any]]]] = {}

    def begin(self, wanted: Wanted) -> None:
        for scenario, client in wanted:
            # A run has names of its own: that of a failed test may be the second.
            name = f"{scenario.name}-{client.replace('.', '')}-{next(self._numbers)}"
            pool = self._pools[scenario.pair]
            self._begun[scenario.name, client] = {
                kind: pool.submit(self._stage(kind, scenario, client, name).run, scenario)
                for kind in KINDS
            }

    def _stage(self, kind: str, scenario: Scenario, client: str, name: str) -> Stage:
        side = self._sides[kind]
        broker = side.brokers[scenario.pair]
        slave = side.slaves.get(scenario.pair)
        where = (side.namesrv.address, broker, is_guarded(scenario.pair), slave)
        return Stage(Side(kind, self._drivers(client), *where), name)

    def take(self, scenario: Scenario, client: str) -> dict[str, list[Any]]:
        """{kind: what its steps came to}."""
        if (scenario.name, client) not in self._begun:
            self.begin([(scenario, client)])
        told = {}
        for kind, future in self._begun.pop((scenario.name, client)).items():
            try:
                told[kind] = future.result()
            except PeerError as error:
                error.add_note(self._sides[kind].brokers[scenario.pair].log_tail())
                raise
        return told

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    drivers: Callable[[str], Driver],
) -> Iterator[Runs]:
    """All that the selected tests of this module want, under way."""
    wanted = [
        (item.callspec.params["scenario"], item.callspec.params["client_version"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
    ]
    pairs = {scenario.pair for scenario, _client in wanted}
    sides = {kind: Brokers(kind, tmp_path_factory.mktemp(kind), pairs) for kind in KINDS}
    try:
        with ThreadPoolExecutor() as pool:
            for started in [pool.submit(side.start) for side in sides.values()]:
                started.result()
        for version in sorted({client for _scenario, client in wanted}):
            drivers(version)
        for side in sides.values():
            for broker in side.brokers.values():
                wait_registered(drivers(CLIENT_VERSIONS[0]), side.namesrv.address, broker)
        made = Runs(sides, drivers)
        made.begin(wanted)
        yield made
        made.close()
    finally:
        with ThreadPoolExecutor() as pool:
            for stopped in [pool.submit(side.stop) for side in sides.values()]:
                stopped.result()


@pytest.mark.parametrize(("scenario", "client_version"), list(_cases()))
def test_ours_does_what_java_does(runs: Runs, scenario: Scenario, client_version: str) -> None:
    told = runs.take(scenario, client_version)
    found = differences(told["java-4.9"], told["ours"])
    assert found == scenario.accepted(client_version), told


def test_every_accepted_difference_has_its_reason() -> None:
    without = [each for s in _SCENARIOS for each in s.differences if not each.get("why")]
    assert without == []
