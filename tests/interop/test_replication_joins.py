"""Slaves of ours with another past than their master: empty, late, ahead, diverged.

For each kind of master three stores are made once and copied for every test: `early` has the begin
of a log, `full` the whole of it in several files, `short` the same without its oldest file.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.processes import wait_until
from tests.interop.replication import (
    Group,
    assert_same_log,
    assert_stores_whole,
    at_once,
    fill,
    ha_status,
    kinds_id,
    log_end,
    log_files,
    pair_sets,
    tables,
    wait_caught_up,
)
from tests.support.our_broker import drain

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

_FILE = 1 << 20
# A Java slave reports a second after it connected instead of five.
_CONF = {"mappedFileSizeCommitLog": str(_FILE), "haSendHeartbeatInterval": "1000"}
_TOPIC = "History"
_QUEUES = range(4)


class History:
    """The three stores of one kind of master."""

    def __init__(self, kind: str, directory: Path, namesrv: str) -> None:
        conf = {**_CONF, "brokerRole": "ASYNC_MASTER"}
        broker = harness.broker(kind, directory, namesrv, name=f"history-{kind}", conf=conf)
        self.early = directory / "early"
        self.full = directory / "full"
        self.short = directory / "short"
        self._write(broker, _FILE // 3, self.early)
        self._write(broker, 4 * _FILE, self.full)
        shutil.copytree(self.full, self.short)
        min((self.short / "commitlog").iterdir()).unlink()

    @staticmethod
    def _write(broker: harness.Broker, size: int, copy: Path) -> None:
        broker.start()
        fill(broker, _TOPIC, size)
        broker.stop()
        shutil.copytree(broker.store_dir, copy)


Histories = Callable[[str], History]


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory, namesrv: harness.NameServer) -> Histories:
    made: dict[str, History] = {}
    locks = {kind: threading.Lock() for kind in harness.KINDS}

    def get(kind: str) -> History:
        with locks[kind]:
            if kind not in made:
                directory = tmp_path_factory.mktemp(f"history-{kind}")
                made[kind] = History(kind, directory, namesrv.address)
            return made[kind]

    return get


class Joining:
    """A group of a test, with copies of the stores that its members begin with."""

    def __init__(
        self,
        directory: Path,
        namesrv: str,
        kinds: tuple[str, ...],
        master: Path,
        *slaves: Path | None,
    ) -> None:
        """slaves: `None` is an empty directory."""
        name = f"{kinds_id(kinds)}-{master.name}"
        self.group = Group(
            directory / name,
            namesrv,
            (kinds[0], *(kinds[1] for _ in slaves)),
            name=name,
            conf=_CONF,
        )
        for member, store in zip(self.group.members, (master, *slaves), strict=True):
            if store is not None:
                shutil.copytree(store, member.store_dir)

    def __enter__(self) -> Group:
        return self.group.start()

    def __exit__(self, *_: object) -> None:
        self.group.end()


class World:
    """What the scenarios share."""

    def __init__(self, directory: Path, namesrv: str, histories: Histories) -> None:
        self.directory = directory
        self.history = histories
        self._namesrv = namesrv

    def join(self, kinds: tuple[str, ...], master: Path, *slaves: Path | None) -> Joining:
        """A group that starts as a context begins."""
        return Joining(self.directory, self._namesrv, kinds, master, *slaves)


@pytest.fixture
def world(tmp_path: Path, namesrv: harness.NameServer, histories: Histories) -> World:
    return World(tmp_path, namesrv.address, histories)


OUR_SLAVES = (("ours", "ours"), ("java-4.9", "ours"), (harness.JAVA_5, "ours"))
JAVA_SLAVES = (("ours", "java-4.9"), ("ours", harness.JAVA_5))
of_our_slaves = pytest.mark.parametrize("groups", pair_sets(OUR_SLAVES, quick=True))
Groups = list[tuple[str, ...]]


# -- the judges ------------------------------------------------------------------------------------


def assert_followed(group: Group, slave: harness.Broker, start: int) -> None:
    """The slave goes on with its master; the same log from `start` on, and the same queues."""
    fill(group.master, _TOPIC, _FILE // 8)
    wait_until(lambda: log_end(group.master) > 0, "the end of the master's log")
    end = log_end(group.master)
    wait_until(lambda: log_end(slave) == end, f"{slave.process.name} at {end}")
    assert assert_same_log(group.master, slave, end) == start
    if slave.kind == "ours":
        assert_same_queues(group.master, slave)


def assert_same_queues(master: harness.Broker, slave: harness.Broker) -> None:
    """The slave serves all that the master does, once it has heard of the topic."""
    wait_until(lambda: _TOPIC in tables(slave).topics, "the topic at the slave")
    with master.client() as expected, slave.client() as found:
        for queue in _QUEUES:
            wait_until(
                lambda q=queue: found.offset(30, _TOPIC, q) == expected.offset(30, _TOPIC, q),  # type: ignore[misc]
                f"queue {queue} of the slave dispatched",
            )
            assert found.offset(31, _TOPIC, queue) == expected.offset(31, _TOPIC, queue)
            assert drain(found, _TOPIC, queue) == drain(expected, _TOPIC, queue)


def backups(slave: harness.Broker) -> list[Path]:
    """Where files of it were moved aside."""
    return sorted(slave.store_dir.glob("backup-*"))


def assert_refused(group: Group, slave: harness.Broker, verdict: str) -> None:
    """The slave says why it does not follow, and keeps what it has."""

    def is_refused() -> bool:
        return bool(ha_status(slave)["haClientRuntimeInfo"].get("state") == "refused")

    end = log_end(slave)
    wait_until(is_refused, f"a refused link of {slave.process.name}")
    status = ha_status(slave)
    assert status["refusals"][verdict] >= 1
    assert "haTruncateDiverged" in status["haClientRuntimeInfo"]["lastError"]
    fill(group.master, _TOPIC, _FILE // 8)
    assert log_end(slave) == end
    assert not backups(slave)


def assert_goes_back(group: Group, slave: harness.Broker) -> None:
    """With the operator's word it keeps what it holds in common, and what it cuts in a backup."""
    slave.stop()
    slave.configure(haTruncateDiverged="true")
    slave.start()
    assert_followed(group, slave, 0)
    (backup,) = backups(slave)
    assert any(path.is_file() and path.stat().st_size for path in backup.rglob("*"))


# -- slaves of ours --------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", pair_sets(OUR_SLAVES[:1], long=OUR_SLAVES, quick=True))
def test_slaves_of_a_whole_history(world: World, groups: Groups) -> None:
    """An empty one gets all, one that was away goes on, a diverged one is refused."""

    def play(kinds: tuple[str, ...]) -> None:
        history = world.history(kinds[0])
        other = other_past(history, world.directory / f"other-{kinds[0]}")
        with world.join(kinds, history.full, None, history.early, other) as group:
            empty, away, diverged = group.slaves
            assert_followed(group, empty, 0)
            assert_followed(group, away, 0)
            assert_refused(group, diverged, "diverged")
            assert_goes_back(group, diverged)
            assert not backups(away)
            assert_stores_whole(group)

    at_once(play, groups)


def other_past(history: History, directory: Path) -> Path:
    """`early`, continued by a broker of ours that was nobody's slave."""
    store = directory / "store"
    shutil.copytree(history.early, store)
    broker = harness.broker("ours", directory, None, store_dir=store, conf=_CONF).start()
    fill(broker, _TOPIC, _FILE // 4, text="other")
    broker.stop()
    return store


@of_our_slaves
def test_slaves_of_a_shortened_history(world: World, groups: Groups) -> None:
    """An empty one gets what is left; one that is behind it starts over."""

    def play(kinds: tuple[str, ...]) -> None:
        history = world.history(kinds[0])
        with world.join(kinds, history.short, None, history.early) as group:
            empty, behind = group.slaves
            assert_followed(group, empty, _FILE)
            assert_followed(group, behind, _FILE)
            assert ha_status(behind)["refusals"]["behind_master_min"] >= 1
            (backup,) = backups(behind)
            assert (backup / "commitlog").is_dir()
            assert_stores_whole(group)

    at_once(play, groups)


@pytest.mark.parametrize("groups", pair_sets(OUR_SLAVES[:1], long=OUR_SLAVES, quick=True))
def test_a_slave_ahead_of_its_master(world: World, groups: Groups) -> None:
    """It is refused; told so, it goes back."""

    def play(kinds: tuple[str, ...]) -> None:
        history = world.history(kinds[0])
        with world.join(kinds, history.early, history.full) as group:
            assert_refused(group, group.slave, "ahead")
            assert_goes_back(group, group.slave)
            assert_stores_whole(group)

    at_once(play, groups)


# -- Java slaves -----------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [pytest.param("full", marks=pytest.mark.long), "short"])
@pytest.mark.parametrize("groups", pair_sets(JAVA_SLAVES))
def test_an_empty_java_slave_gets_all_of_ours(world: World, groups: Groups, store: str) -> None:
    """A Java master gives only its newest file."""

    def play(kinds: tuple[str, ...]) -> None:
        with world.join(kinds, getattr(world.history(kinds[0]), store), None) as group:
            wait_caught_up(group)
            if kinds[0] == "ours":
                assert_followed(group, group.slave, min(log_files(group.master)))
            else:
                assert min(log_files(group.slave)) > min(log_files(group.master))
            assert_stores_whole(group)

    at_once(play, groups)
