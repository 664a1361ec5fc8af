"""What docs/failover.md tells an operator to do with a group, done step by step with its commands:
a pair becomes a group with a controller and a pair again; a controller without its file; a member
with a new disk; a group in which nobody is elected."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.request_code import RequestCode
from tests.interop import harness
from tests.interop.processes import PeerError, wait_until
from tests.interop.test_controller_mode import (
    CLUSTER,
    MEMBER,
    SAFE,
    Group,
    Places,
    read_all,
    send_all,
    takes,
)
from tests.support.archives import unpack
from tests.support.our_broker import drain

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(600),
]

_WAIT_S = 60
DLEDGER = Path(__file__).parents[1] / "golden" / "dledger-5.3.3"
_LEAVES = ("epochFileCheckpoint", "epochFileCheckpoint.bak", "brokerIdentity", "brokerIdentity.bak")


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    places = Places(tmp_path / "places", "ours")
    yield places
    places.end()


def send(broker: harness.Broker, prefix: str, count: int = 40) -> list[bytes]:
    """Bodies that were all answered SEND_OK."""
    bodies = [f"{prefix} {number}".encode() for number in range(count)]
    with broker.client() as client:
        assert {each.code for each in send_all(client, bodies)} == {0}
    return bodies


def wait_for_all(broker: harness.Broker, bodies: list[bytes]) -> None:
    """Until a consumer can read exactly these there."""

    def has_all() -> bool:
        with contextlib.suppress(AssertionError):  # A slave gets its topics a moment later.
            return sorted(each for each in read_all(broker) if each != b"p") == sorted(bodies)
        return False

    wait_until(has_all, f"{len(bodies)} messages\n{broker.log_tail()}", _WAIT_S, poll_s=0.2)


def edit(broker: harness.Broker, settings: dict[str, str]) -> None:
    """Set keys of its broker.conf, as an editor does; an empty value takes the line out."""
    conf = broker.process.log_path.parent / "broker.conf"
    lines = dict(line.split("=", 1) for line in conf.read_text().splitlines())
    kept = {key: value for key, value in {**lines, **settings}.items() if value}
    conf.write_text("".join(f"{key}={value}\n" for key, value in kept.items()))


def adopt_log(broker: harness.Broker) -> str:
    """The command of the document."""
    conf = broker.process.log_path.parent / "broker.conf"
    done = subprocess.run(
        [sys.executable, "-m", "broker.failover.adopt_log", "-c", str(conf)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def admin(places: Places, tmp_path: Path, *words: str) -> str:
    """`mqadmin` towards the controller."""
    return harness.our_admin(tmp_path, *words, "-a", places.controller.address)


@contextlib.contextmanager
def group_of_three(places: Places, tmp_path: Path, name: str) -> Iterator[Group]:
    """In the safe mode, all of them in the set."""
    group = Group(places, tmp_path, name, **SAFE)
    try:
        for _ in range(3):
            group.add()
        group.wait_for_set(1, 2, 3)
        yield group
    finally:
        group.end()


def set_unclean(places: Places, tmp_path: Path, text: str) -> None:
    """enableElectUncleanMaster of the controller."""
    words = ("-k", "enableElectUncleanMaster", "-v", text)
    admin(places, tmp_path, "updateControllerConfig", *words)


def test_a_pair_becomes_a_group_and_a_pair_again(places: Places, tmp_path: Path) -> None:
    size = {"mappedFileSizeCommitLog": MEMBER["mappedFileSizeCommitLog"]}
    roles = ({"brokerRole": "SYNC_MASTER"}, {"brokerRole": "SLAVE", "brokerId": "1"})
    first, second = (
        harness.broker(
            "ours", tmp_path / str(n), places.namesrv.address, name="pair", conf={**size, **role}
        ).start()
        for n, role in enumerate(roles, 1)
    )
    group = Group(places, tmp_path, "pair", **SAFE)
    group.brokers = {1: first, 2: second}
    try:
        wait_until(lambda: takes(first), "the slave is there", _WAIT_S, poll_s=0.2)
        bodies = send(first, "pair")
        wait_for_all(second, bodies)

        # The slave first, then the master: it is behind in nothing.
        second.stop()
        first.stop()
        for broker in (first, second):
            edit(broker, group.conf)
        assert "written" in adopt_log(first)
        first.start()
        wait_until(lambda: group.master_id == 1, "it leads", _WAIT_S, poll_s=0.2)
        second.store_dir.rename(second.store_dir.with_name("store.before"))
        second.start()
        wait_until(lambda: takes(first), "two are in the set", _WAIT_S, poll_s=0.2)
        group.add()
        group.wait_for_set(1, 2, 3)
        bodies += send(first, "group")

        first.kill()
        master = group.wait_for_master(other_than=1)
        bodies += send(group.brokers[master], "elected")
        first.start()
        group.wait_for_set(1, 2, 3)
        wait_for_all(group.brokers[master], bodies)

        # Back: the followers first, so that nothing is taken that they lack; then the master.
        shown = admin(places, tmp_path, "getSyncStateSet", "-b", "pair")
        assert f"#MasterBrokerId\t{master}\n" in shown
        slave = next(number for number in (1, 2, 3) if number != master)
        for number in sorted((1, 2, 3), key=lambda number: number == master):
            group.brokers[number].stop()
        admin(places, tmp_path, "cleanBrokerMetadata", "-bn", "pair", "-c", CLUSTER, "-l", "--yes")
        for number, role in ((master, roles[0]), (slave, roles[1])):
            broker = group.brokers[number]
            for name in _LEAVES:
                (broker.store_dir / name).unlink(missing_ok=True)
            edit(broker, {**dict.fromkeys(group.conf, ""), **size, "brokerId": "0", **role})
            broker.start()
        wait_until(lambda: takes(group.brokers[master]), "a pair again", _WAIT_S, poll_s=0.2)
        bodies += send(group.brokers[master], "pair again")
        wait_for_all(group.brokers[slave], bodies)
        wait_for_all(group.brokers[master], bodies)
        assert group.log_bytes(slave) == group.log_bytes(master)
        assert not list(group.brokers[slave].store_dir.glob("backup-*")), "nothing was cut"

        # Without its list it does not lead a group by accident.
        group.brokers[master].stop()
        edit(group.brokers[master], group.conf)
        with pytest.raises(PeerError, match="adopt_log"):
            group.brokers[master].start()
    finally:
        group.end()


def test_a_member_with_a_new_disk(places: Places, tmp_path: Path) -> None:
    with group_of_three(places, tmp_path, "new-disk") as group:
        bodies = send(group.brokers[group.wait_for_master()], "before")
        broken = group.brokers[next(n for n in (2, 3) if n != group.master_id)]
        number = next(n for n, each in group.brokers.items() if each is broken)
        broken.kill()
        broken.store_dir.rename(broken.store_dir.with_name("broken"))
        admin(
            places,
            tmp_path,
            *("cleanBrokerMetadata", "-bn", "new-disk", "-c", CLUSTER),
            *("-b", str(number), "-l", "--yes"),
        )
        assert number not in group.known()
        broken.start()
        wait_until(lambda: 4 in group.members(), "in the set with a new id", _WAIT_S, poll_s=0.2)
        admin(places, tmp_path, "electMaster", "-b", "4", "-bn", "new-disk", "-c", CLUSTER)
        wait_until(lambda: takes(broken), "it leads", _WAIT_S, poll_s=0.2)
        bodies += send(broken, "after")
        wait_for_all(broken, bodies)


def test_a_controller_without_its_file(places: Places, tmp_path: Path) -> None:
    """It does not start without the file, goes on with it once it is back; where it is gone for
    good, people choose the log that the group goes on with."""
    with group_of_three(places, tmp_path, "forgotten") as group:
        master = group.wait_for_master()
        bodies = send(group.brokers[master], "before")
        places.controller.stop()
        store = tmp_path / "places" / "controller" / "store"
        groups = store / "groups.json"
        assert groups.exists()
        backup = groups.with_name("groups.json.bak")
        # One of the two is there: put back by name, and nothing is lost.
        kept = groups.read_bytes()
        groups.unlink()
        if backup.exists():
            with pytest.raises(PeerError, match=r"groups\.json"):
                places.controller.start()
        groups.write_bytes(kept)
        places.controller.start()
        group.wait_for_set(1, 2, 3)
        bodies += send(group.brokers[master], "put back")
        wait_for_all(group.brokers[master], bodies)

        # Nothing is there: the group is made anew, from its master's log.
        places.controller.stop()
        store.rename(store.with_name("gone"))
        for number in sorted((1, 2, 3), key=lambda number: number == master):
            group.brokers[number].stop()
        places.controller.start()
        for name in _LEAVES:
            (group.brokers[master].store_dir / name).unlink(missing_ok=True)
        assert "written" in adopt_log(group.brokers[master])
        group.brokers[master].start()
        wait_until(lambda: group.master_id == 1, "it leads", _WAIT_S, poll_s=0.2)
        for number in {1, 2, 3} - {master}:
            lost = group.brokers[number].store_dir
            lost.rename(lost.with_name("before"))
            group.brokers[number].start()
        group.wait_for_set(1, 2, 3)
        bodies += send(group.brokers[master], "anew")
        for broker in group.brokers.values():
            wait_for_all(broker, bodies)


def test_nobody_of_the_set_comes_back(places: Places, tmp_path: Path) -> None:
    """The set shrank to two, and both are lost: the third is elected only when people say that what
    it lacks may be lost."""
    with group_of_three(places, tmp_path, "nobody") as group:
        master = group.wait_for_master()
        bodies = send(group.brokers[master], "all")
        left = next(n for n in (1, 2, 3) if n != master)
        others = {1, 2, 3} - {left}
        wait_for_all(group.brokers[left], bodies)
        group.brokers[left].kill()
        group.wait_for_set(*others)
        send(group.brokers[master], "lost")
        for number in others:
            group.brokers[number].kill()
        group.brokers[left].start()
        wait_until(lambda: left in group.known(), "it is known", _WAIT_S)
        with pytest.raises(AssertionError):
            group.elect(left)
        assert not takes(group.brokers[left])
        set_unclean(places, tmp_path, "true")
        admin(places, tmp_path, "electMaster", "-b", str(left), "-bn", "nobody", "-c", CLUSTER)
        set_unclean(places, tmp_path, "false")
        wait_until(lambda: group.master_id == left, "elected", _WAIT_S, poll_s=0.2)
        assert group.ask(RequestCode.GET_CONTROLLER_CONFIG).body.count(
            b"enableElectUncleanMaster=false"
        )
        # minInSyncReplicas=2 wants a second one: an empty store gets all of it.
        for number in others:
            store = group.brokers[number].store_dir
            store.rename(store.with_name("lost"))
            group.brokers[number].start()
        wait_until(lambda: takes(group.brokers[left]), "takes", _WAIT_S, poll_s=0.2)
        wait_for_all(group.brokers[left], bodies)


def test_the_safe_mode_comes_later(places: Places, tmp_path: Path) -> None:
    """Where sends must not wait for the first copy: minInSyncReplicas=1, and 2 member by member."""
    group = Group(places, tmp_path, "later", **{**SAFE, "minInSyncReplicas": "1"})
    try:
        first = group.add()
        wait_until(lambda: takes(first), "alone", _WAIT_S, poll_s=0.2)
        bodies = send(first, "alone")
        group.add()
        group.add()
        group.wait_for_set(1, 2, 3)
        for number in (2, 3, 1):
            if number == group.master_id:
                admin(places, tmp_path, "electMaster", "-b", "2", "-bn", "later", "-c", CLUSTER)
                wait_until(lambda: group.master_id == 2, "elected", _WAIT_S, poll_s=0.2)
                group.wait_for_set(1, 2, 3)
            group.brokers[number].stop()
            edit(group.brokers[number], {"minInSyncReplicas": "2"})
            group.brokers[number].start()
            group.wait_for_set(1, 2, 3)
        master = group.wait_for_master()
        bodies += send(group.brokers[master], "safe")
        for number in {1, 2, 3} - {master}:
            group.brokers[number].kill()
        group.wait_for_set(master)
        assert not takes(group.brokers[master])
        wait_for_all(group.brokers[master], bodies)
    finally:
        group.end()


def test_a_dledger_store_becomes_a_group(places: Places, tmp_path: Path) -> None:
    """Import, list of epochs, the first member, a second one."""
    unpack(DLEDGER / "store-3-nodes.tar.xz", tmp_path)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "store.dledger_import",
            str(tmp_path / "dl1"),
            str(tmp_path / "new"),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "21 messages are the same" in done.stdout
    group = Group(places, tmp_path, "dlb", **SAFE, mappedFileSizeCommitLog=str(16 << 20))
    first = harness.broker(
        "ours",
        tmp_path / "1",
        places.namesrv.address,
        name="dlb",
        store_dir=tmp_path / "new",
        conf=group.conf,
    )
    group.brokers[1] = first
    try:
        assert "written" in adopt_log(first)
        first.start()
        second = group.add()
        wait_until(lambda: takes(first), "two are in the set", _WAIT_S, poll_s=0.2)
        with first.client() as client:
            assert client.send("TDl", 0, b"new").code == 0
            wait_until(lambda: client.offset(30, "TDl", 0) == 12, "dispatched", _WAIT_S)
        with second.client() as client:
            wait_until(lambda: client.offset(30, "TDl", 0) == 12, "copied", _WAIT_S)
            read = [each.body for each in drain(client, "TDl", 0)]
        assert read == [*(b"D%03d" % n for n in range(0, 20, 2)), b"after", b"new"]
    finally:
        group.end()
