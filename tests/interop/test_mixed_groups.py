"""Three brokers, Java's 5.3.3 and ours in any mix, under RocketMQ's controllers and ours: whatever
makes them elect another master, their logs are the same byte for byte afterwards, and what a client
was answered SEND_OK is there exactly once, in each log and for a consumer.

A row is a mix (a letter for each broker by its id; number 1 leads when the fault begins), a kind of
controllers, their number, and the cause of the election. Rows of one group share it, and its client
adds to one list; after a row that failed the group is built anew. The ordinary run has those that
cross both ways between Java and ours under a 5.3.3 controller, the long one has all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.interop.driver import Driver
from tests.interop.mixed_groups import (
    CLUSTER,
    HEARTBEAT_S,
    MixedGroup,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

Undo = Callable[[], object]
MIXES: Final = ("JOO", "JJO", "OJJ", "OOJ")
CONTROLLERS: Final = (
    ("dledger", 1),
    ("dledger", 3),
    ("jraft", 1),
    ("jraft", 3),
    ("ours", 1),
    ("ours", 3),
)
CAUSES: Final = ("kill", "stop", "cut", "orderly", "elect", "leader")
IN_EACH_RUN: Final = {("JOO", "dledger", 1, "kill"), ("JOO", "dledger", 1, "elect")}
P10: Final = {("jraft", "stop"), ("jraft", "cut")}
"""A jRaft controller of 5.3.3 never replaces a master that is silent while its connection stays
(pitfall 10; apache/rocketmq#9717)."""


def rows() -> list[Any]:
    """(mix, kind, nodes), cause."""
    found = []
    for mix in MIXES:
        for kind, nodes in CONTROLLERS:
            for cause in CAUSES:
                if cause == "leader" and nodes == 1:
                    continue
                row = (mix, kind, nodes, cause)
                marks = pytest.mark.slow if row in IN_EACH_RUN else pytest.mark.long
                found.append(pytest.param(row[:3], cause, id="-".join(map(str, row)), marks=marks))
    return found


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., MixedGroup]]:
    """The group for a row; one at a time lives."""
    living: list[tuple[tuple[str, str, int], MixedGroup]] = []

    def end() -> None:
        while living:
            living.pop()[1].end()

    def get(shape: tuple[str, str, int] | None) -> MixedGroup | None:
        if living and living[0][0] == shape:
            return living[0][1]
        end()
        if shape is None:
            return None
        group = MixedGroup(tmp_path_factory.mktemp("-".join(map(str, shape))), *shape)
        living.append((shape, group))
        return group.start()

    yield get  # type: ignore[misc]
    end()


@pytest.mark.parametrize(("shape", "cause"), rows())
def test_an_election(
    groups: Callable[..., MixedGroup],
    drivers: Callable[[str], Driver],
    shape: tuple[str, str, int],
    cause: str,
) -> None:
    group = groups(shape)
    try:
        play(group, cause, drivers("5.3.3"))
    except BaseException:
        print(group.logs())
        groups(None)
        raise


def play(group: MixedGroup, cause: str, driver: Driver) -> None:
    group.designate(1)
    _, epoch = group.master()
    group.sender.begin()
    group.sender.wait_for_more(30, "before")
    undo = FAULTS[cause](group, driver)
    if (group.controllers.kind, cause) in P10:
        threading.Event().wait(4 * HEARTBEAT_S)
        assert group.master() == (1, epoch)
        undo()
    else:
        master = group.wait_for_master(other_than=1)
        assert group.master()[1] > epoch
        group.sender.wait_for_more(30, f"{master} leads after {cause}")
        undo()
    group.wait_for_all()
    group.sender.wait_for_more(30, "all are back")
    group.sender.stop()
    assert group.judge() == []


def kill(group: MixedGroup, _driver: Driver) -> Undo:
    group.brokers[1].kill()
    return lambda: group.start_broker(1)


def stop(group: MixedGroup, _driver: Driver) -> Undo:
    """It believes to lead when it goes on."""
    group.brokers[1].process.pause()
    return group.brokers[1].process.resume


def cut(group: MixedGroup, _driver: Driver) -> Undo:
    """Its followers reach it, the controllers do not, and it believes to lead."""
    group.cut(1)
    return group.network.heal


def orderly(group: MixedGroup, _driver: Driver) -> Undo:
    group.brokers[1].process.stop(120)
    return lambda: group.start_broker(1)


def elect(group: MixedGroup, driver: Driver) -> Undo:
    """By RocketMQ's own mqadmin, of the last one, which is of the other world than the first."""
    words = ("-a", group.controllers.addresses[0], "-b", "3", "-bn", group.name, "-c", CLUSTER)
    printed = driver.mqadmin("electMaster", *words)
    assert f"#BrokerMasterAddr\t{group.brokers[3].address}\n" in printed
    return lambda: None


def leader(group: MixedGroup, _driver: Driver) -> Undo:
    """The controllers lose their leader at the moment at which the master is lost."""
    killed = group.controllers.kill_leader()
    group.brokers[1].kill()

    def undo() -> None:
        killed.start()
        group.know_owners()
        group.start_broker(1)

    return undo


FAULTS: Final = {
    "kill": kill,
    "stop": stop,
    "cut": cut,
    "orderly": orderly,
    "elect": elect,
    "leader": leader,
}
