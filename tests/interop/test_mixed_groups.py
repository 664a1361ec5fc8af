"""Three brokers, Java's 5.3.3 and ours in any mix, under RocketMQ's controllers and ours: whatever
makes them elect another master, their logs are the same byte for byte afterwards, and what a client
was answered SEND_OK is there exactly once, in each log and for a consumer.

A row is a mix (a letter for each broker by its id; number 1 leads when the fault begins, but for
"successor", which kills whoever leads), a kind of controllers, their number, and the cause. "early"
elects each of them before the first message, then kills one. Rows of one group share it, and its
client adds to one list; after a row that failed the group is built anew. The ordinary run has those
that cross both ways between Java and ours under a 5.3.3 controller, the long one has all: not each
of the 200 that there are, but each pair of the four together at least once.
"""

from __future__ import annotations

import difflib
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.interop.driver import Driver
from tests.interop.java_peers import CLIENT_5
from tests.interop.mixed_groups import (
    CLUSTER,
    HEARTBEAT_S,
    MixedGroup,
    Place,
    list_differences,
    log_differences,
)
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

Undo = Callable[[], object]
MIXES: Final = ("JOO", "JJO", "OJJ", "OOJ")
KINDS: Final = ("dledger", "jraft", "ours")
NODES: Final = (1, 3)
CAUSES: Final = ("early", "kill", "successor", "stop", "cut", "orderly", "elect", "leader")
Shape = tuple[str, str, int]
ROWS: Final[dict[Shape, tuple[str, ...]]] = {
    ("JOO", "jraft", 3): ("early", "stop", "orderly", "leader"),
    ("JOO", "ours", 3): ("elect", "leader"),
    ("JJO", "dledger", 3): ("stop", "orderly", "leader"),
    ("JJO", "jraft", 1): ("successor", "elect"),
    ("JJO", "ours", 1): ("early", "kill", "cut"),
    ("OJJ", "dledger", 3): ("early", "stop", "elect"),
    ("OJJ", "jraft", 1): ("kill", "cut"),
    ("OJJ", "ours", 3): ("successor", "cut", "orderly", "leader"),
    ("OOJ", "dledger", 1): ("early", "successor", "cut", "orderly"),
    ("OOJ", "jraft", 3): ("kill", "elect"),
    ("OOJ", "ours", 3): ("stop", "leader"),
    # The last one, as the tests behind the table use its group as well.
    ("JOO", "dledger", 1): ("kill", "successor", "stop", "cut"),
}
IN_EACH_RUN: Final = {("JOO", "dledger", 1, "kill"), ("JOO", "dledger", 1, "successor")}
P10: Final = {("jraft", "stop"), ("jraft", "cut"), ("jraft", "leader")}
"""A jRaft controller of 5.3.3 never replaces a master whose connection it does not see end: one
that is silent while it stays, nor one that died with the controllers' leader (pitfall 10;
apache/rocketmq#9717)."""


def rows() -> list[Any]:
    """(mix, kind, nodes), cause."""
    found = []
    for shape, causes in ROWS.items():
        for cause in causes:
            row = (*shape, cause)
            marks = pytest.mark.slow if row in IN_EACH_RUN else pytest.mark.long
            found.append(pytest.param(shape, cause, id="-".join(map(str, row)), marks=marks))
    return found


def pairs(row: tuple[str, str, int, str]) -> set[frozenset[object]]:
    """What a row shows together. Without an election only that there is none."""
    mix, kind, nodes, cause = row
    unseen = {frozenset({mix, cause}), frozenset({nodes, cause})} if (kind, cause) in P10 else set()
    return {frozenset(pair) for pair in itertools.combinations(row, 2)} - unseen


def test_each_pair_of_the_table_is_in_a_row() -> None:
    every = itertools.product(MIXES, KINDS, NODES, CAUSES)
    possible = [row for row in every if row[2:] != (1, "leader")]
    chosen = [(*shape, cause) for shape, causes in ROWS.items() for cause in causes]
    wanted = set().union(*map(pairs, possible))
    assert wanted - set().union(*map(pairs, chosen)) == set()
    for row in chosen:
        others = set().union(*(pairs(other) for other in chosen if other != row))
        assert wanted - others, f"{row} is one too many"


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., MixedGroup]]:
    """The group for a row; one at a time lives."""
    living: list[tuple[Shape, MixedGroup]] = []

    def end() -> None:
        while living:
            living.pop()[1].end()

    def get(shape: Shape | None) -> MixedGroup | None:
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
    shape: Shape,
    cause: str,
) -> None:
    group = groups(shape)
    try:
        play(group, cause, drivers(CLIENT_5))
    except BaseException:
        print(group.logs())
        groups(None)
        raise


def play(group: MixedGroup, cause: str, driver: Driver) -> None:
    if cause == "early":
        for number in (2, 3):
            group.designate(number)
        assert not any(map(group.log_bytes, group.brokers)), "a message was first"
    if cause == "successor":
        group.wait_for_all()
    else:
        group.designate(1)
    victim, epoch = group.master()
    group.sender.begin()
    group.sender.wait_for_more(30, "before")
    undo = FAULTS[cause](group, victim, driver)
    if (group.controllers.kind, cause) in P10:
        threading.Event().wait(4 * HEARTBEAT_S)
        assert group.master() == (victim, epoch)
        undo()
    else:
        master = group.wait_for_master(other_than=victim)
        assert group.master()[1] > epoch
        if cause in ("stop", "cut"):
            group.free_followers(victim)  # The port of who was stopped stays open.
        group.sender.wait_for_more(30, f"{master} leads after {cause}")
        undo()
    group.wait_for_all(demoted=victim if cause == "elect" else 0)
    group.sender.wait_for_more(30, "all are back")
    group.sender.stop()
    assert group.judge() == []


def kill(group: MixedGroup, victim: int, _driver: Driver) -> Undo:
    group.brokers[victim].kill()
    return lambda: group.start_broker(victim)


def stop(group: MixedGroup, victim: int, _driver: Driver) -> Undo:
    """It believes to lead when it goes on."""
    group.brokers[victim].process.pause()
    return group.brokers[victim].process.resume


def cut(group: MixedGroup, victim: int, _driver: Driver) -> Undo:
    """Its followers reach it, the controllers do not, and it believes to lead."""
    group.cut(victim)
    return group.network.heal


def orderly(group: MixedGroup, victim: int, _driver: Driver) -> Undo:
    group.brokers[victim].process.stop(120)
    return lambda: group.start_broker(victim)


def elect(group: MixedGroup, _victim: int, driver: Driver) -> Undo:
    """By RocketMQ's own mqadmin, of the last one, which is of the other world than the first."""
    words = ("-a", group.controllers.addresses[0], "-b", "3", "-bn", group.name, "-c", CLUSTER)
    printed, errors = driver.mqadmin_texts("electMaster", *words)
    assert f"#BrokerMasterAddr\t{group.brokers[3].address}\n" in printed, errors
    return lambda: None


def leader(group: MixedGroup, victim: int, _driver: Driver) -> Undo:
    """The controllers lose their leader at the moment at which the master is lost."""
    killed = group.controllers.kill_leader()
    group.brokers[victim].kill()

    def undo() -> None:
        killed.start()
        group.know_owners()
        group.start_broker(victim)

    return undo


FAULTS: Final = {
    "early": kill,
    "kill": kill,
    "successor": kill,
    "stop": stop,
    "cut": cut,
    "orderly": orderly,
    "elect": elect,
    "leader": leader,
}


@pytest.mark.slow
def test_the_judges_notice_one_byte_and_one_message(groups: Callable[..., MixedGroup]) -> None:
    """In the logs of real brokers that are the same, and in what they have."""
    group = groups(("JOO", "dledger", 1))
    group.sender.begin()
    group.sender.wait_for_more(10, "to be judged")
    group.sender.stop()
    assert group.judge() == []
    logs = {name: group.log_bytes(number) for number, name in ((1, "one"), (2, "two"))}
    changed = bytearray(logs["two"])
    changed[len(changed) // 2] ^= 1
    at = f"differ from byte {len(changed) // 2} on"
    assert [at in text for text in log_differences({**logs, "two": bytes(changed)})] == [True]
    assert len(log_differences({**logs, "two": logs["two"][:-1]})) == 1

    body, place = group.sender.taken.popitem()
    stored = group.stored(3)
    for wrong in (
        [each for each in stored if each[0] != body],
        [*stored, (body, Place(place.queue_id, place.queue_offset + 1))],
        [(one, Place(9, 9) if one == body else where) for one, where in stored],
    ):
        assert [repr(body[:30]) in text for text in list_differences({body: place}, wrong)] == [
            True
        ]
    group.sender.taken[body] = place
    more = {**group.sender.taken, b"never sent": Place(0, 0)}
    for found in (*map(group.stored, group.brokers), group.read()):
        assert ["never sent" in text for text in list_differences(more, found)] == [True]


# -- RocketMQ's mqadmin ----------------------------------------------------------------------------


@pytest.mark.slow
def test_mqadmin_shows_ours_as_java_brokers(
    groups: Callable[..., MixedGroup], drivers: Callable[[str], Driver]
) -> None:
    """In one group, so that everything but the address and the id has to be the same."""
    group, driver = groups(("JOO", "dledger", 1)), drivers(CLIENT_5)
    group.wait_for_all()
    master, epoch = group.master()
    printed = driver.mqadmin(
        "getSyncStateSet", "-a", group.controllers.addresses[0], "-b", group.name
    )
    shown = [line for line in printed.splitlines() if line]
    assert shown[:4] == [
        f"#brokerName\t{group.name}",
        f"#MasterBrokerId\t{master}",
        f"#MasterAddr\t{group.brokers[master].address}",
        f"#MasterEpoch\t{epoch}",
    ]
    assert shown[5:6] == ["#SyncStateSetNums\t3"]
    assert sorted(shown[6:]) == [
        f"InSyncReplica:\tReplicaIdentity{{brokerName='{group.name}', brokerId={number}, "
        f"brokerAddress='{broker.address}', alive=true}}"
        for number, broker in group.brokers.items()
    ]
    words = ("getBrokerEpoch", "-n", group.namesrv.address, "-b", group.name)
    blocks = printed_blocks(driver.mqadmin(*words))
    assert set(blocks) == {broker.address for broker in group.brokers.values()}
    ours = [blocks[group.brokers[number].address] for number in (2, 3)]
    java = blocks[group.brokers[1].address]
    assert f"#Epoch: EpochEntry{{epoch={epoch}, " in java[-1]
    assert ours == [java, java]


def printed_blocks(text: str) -> dict[str, list[str]]:
    """What getBrokerEpoch prints of each broker, by its address, without its role's id."""
    found: dict[str, list[str]] = {}
    for block in text.split("#clusterName\t")[1:]:
        lines = [line for line in block.splitlines() if line]
        (address,) = (line for line in lines if line.startswith("#brokerAddr\t"))
        apart = ("#brokerAddr\t", "#brokerId\t")
        found[address.partition("\t")[2]] = [each for each in lines if not each.startswith(apart)]
    return found


STEPS: Final = (
    "getSyncStateSet -a {a} -b {name}",
    "getSyncStateSet -a {a} -c InteropCluster -n {namesrv}",
    "getBrokerEpoch -n {namesrv} -b {name}",
    "getBrokerEpoch -n {namesrv} -c InteropCluster",
    "getControllerMetaData -a {a}",
    "updateControllerConfig -a {a} -k scanInactiveMasterInterval -v 1500",
    "updateControllerConfig -a {a} -k configStorePath -v /nowhere",
    "getControllerConfig -a {a}",
    "electMaster -a {a} -b 2 -bn {name} -c InteropCluster",
    "getSyncStateSet -a {a} -b {name}",
    "electMaster -a {a} -b 9 -bn {name} -c InteropCluster",
    "electMaster -a {a} -b 1 -bn unknown -c InteropCluster",
    "getSyncStateSet -a {a} -b unknown",
    "cleanBrokerMetadata -a {a} -bn {name} -c InteropCluster -b 3",
    "cleanBrokerMetadata -a {a} -bn {name} -c InteropCluster",
    "cleanBrokerMetadata -a {a} -bn unknown -c InteropCluster",
    "KILL 3",
    "getSyncStateSet -a {a} -b {name}",
    "cleanBrokerMetadata -a {a} -bn {name} -c InteropCluster -b 3",
    "getSyncStateSet -a {a} -b {name}",
)
"""The six commands of controllers, and getBrokerEpoch; what they are refused, too."""
DIFFERS: Final = {
    "getControllerConfig -a {a}": "the settings that there are",
    "electMaster -a {a} -b 9 -bn {name} -c InteropCluster": (
        "2010, an id that was not given to anyone, where 5.3.3 says 2012 (P13)"
    ),
}
"""Step to why it prints something else against our controller."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_mqadmin_prints_the_same_of_our_controller(
    groups: Callable[..., MixedGroup], drivers: Callable[[str], Driver]
) -> None:
    """Two groups alike, of our brokers, one of them under a 5.3.3 controller; numbers of bytes and
    addresses apart."""
    printed = []
    for kind in ("dledger", "ours"):
        groups(None)
        group = groups(("OOO", kind, 1))
        printed.append([told(group, drivers(CLIENT_5), step) for step in STEPS])
        groups(None)
    different = {
        step: [*difflib.unified_diff(java, ours, "java", "ours", "", "", 1, "")]
        for step, java, ours in zip(STEPS, *printed, strict=True)
        if java != ours
    }
    shown = "\n".join(f"{step}\n" + "\n".join(lines) for step, lines in different.items())
    assert sorted(different) == sorted(DIFFERS), shown


def told(group: MixedGroup, driver: Driver, step: str) -> list[str]:
    """What a step prints, values apart; of the settings those that were asked for."""
    if step == "KILL 3":
        group.brokers[3].kill()
        wait_until(lambda: group.members() == {1, 2}, "3 has left the set", 60)
        return []
    address = group.controllers.addresses[0]
    words = step.format(a=address, name=group.name, namesrv=group.namesrv.address).split()
    if step.startswith("getSyncStateSet") and group.brokers[3].process.is_alive():
        group.wait_for_all()
    out, err = driver.mqadmin_texts(*words)
    text = out + "".join(f"\n! {line}" for line in err.splitlines() if "\tat " not in line)
    signs = {broker.address: f"<broker-{number}>" for number, broker in group.brokers.items()}
    for value, sign in {**signs, address: "<controller>", group.name: "<group>"}.items():
        text = text.replace(value, sign)
    text = re.sub(r"(startOffset|endOffset)=\d+|(?<=#SyncStateSetEpoch\t)\d+", "<number>", text)
    text = re.sub(r"(?<=DESC: ).*", "<words>", text)  # Codes of refusals are the same, not remarks.
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if step.startswith("getControllerConfig"):
        return [line for line in lines if line.startswith(("====", "scan"))]
    if step.startswith("getBrokerEpoch"):
        return _by_broker(lines)
    return lines


def _by_broker(lines: list[str]) -> list[str]:
    """Java asks the brokers in the order of their addresses' hashes."""
    brokers: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("#clusterName"):
            brokers.append([])
        brokers[-1].append(line)
    return [line for one in sorted(brokers) for line in one]
