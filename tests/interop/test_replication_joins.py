"""Slaves of ours with another past than their master: empty, late, ahead, diverged.

For each kind of master three stores are made once and copied for every test: `early` has the begin
of a log, `full` the whole of it in several files, `short` the same without its oldest file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.processes import wait_until
from tests.interop.replication import (
    Group,
    assert_same_log,
    assert_stores_whole,
    fill,
    ha_status,
    kinds_id,
    log_end,
    log_files,
    pairs,
    tables,
    wait_caught_up,
)
from tests.support.our_broker import drain

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

_FILE = 1 << 20
# A Java slave reports a second after it connected instead of five.
_CONF = {"mappedFileSizeCommitLog": str(_FILE), "haSendHeartbeatInterval": "1000"}
_TOPIC = "History"
_QUEUES = range(4)
_JAVA_SLAVES = (("ours", "java-4.9"), ("ours", "java-5.3"))
_OUR_SLAVES = (("ours", "ours"), ("java-4.9", "ours"), ("java-5.3", "ours"))


def _params(quick: bool, kinds: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> list[object]:
    """Only pairs of ours may be quick."""
    return [
        pytest.param(
            pair,
            id=kinds_id(pair),
            marks=[] if quick and set(pair) == {"ours"} else pytest.mark.slow,
        )
        for pair in kinds
    ]


def of_our_slaves(*, quick: bool = False) -> pytest.MarkDecorator:
    """Every pair whose slave is ours; quick where the master is, too."""
    return pytest.mark.parametrize("kinds", _params(quick, pairs(_OUR_SLAVES)))


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


@pytest.fixture(scope="module")
def histories(
    tmp_path_factory: pytest.TempPathFactory, namesrv: harness.NameServer
) -> Callable[[str], History]:
    made: dict[str, History] = {}

    def get(kind: str) -> History:
        if kind not in made:
            directory = tmp_path_factory.mktemp(f"history-{kind}")
            made[kind] = History(kind, directory, namesrv.address)
        return made[kind]

    return get


@pytest.fixture
def history(histories: Callable[[str], History], kinds: tuple[str, ...]) -> History:
    return histories(kinds[0])


class Joining:
    """Makes the group of a test, with copies of the stores that its members begin with."""

    def __init__(self, directory: Path, namesrv: str, kinds: tuple[str, ...]) -> None:
        self._directory = directory
        self._namesrv = namesrv
        self._kinds = kinds
        self.group: Group | None = None

    def start(self, master: Path, slave: Path | None, **slave_conf: str) -> Group:
        """`slave` None: an empty directory."""
        self.group = group = Group(
            self._directory,
            self._namesrv,
            self._kinds,
            name=f"join-{kinds_id(self._kinds)}",
            conf=_CONF,
            slave_conf=slave_conf,
        )
        shutil.copytree(master, group.master.store_dir)
        if slave is not None:
            shutil.copytree(slave, group.slave.store_dir)
        return group.start()


@pytest.fixture
def joining(
    tmp_path: Path, namesrv: harness.NameServer, kinds: tuple[str, ...]
) -> Iterator[Joining]:
    made = Joining(tmp_path, namesrv.address, kinds)
    yield made
    if made.group is not None:
        made.group.end()


def assert_joined(group: Group, *, more: bool = True) -> None:
    """The same log from the master's first byte on, the same queues, nothing wrong in the files."""
    end = wait_caught_up(group)
    if more:
        fill(group.master, _TOPIC, _FILE // 4)
        end = wait_caught_up(group)
    assert assert_same_log(group.master, group.slave, end) == expected_start(group, end)
    if group.slave.kind == "ours":
        assert_same_queues(group)
    assert_stores_whole(group)


def expected_start(group: Group, end: int) -> int:
    """Java gives an empty Java slave only the newest file (of when it came: of its last MiB)."""
    if "ours" in (group.master.kind, group.slave.kind):
        return min(log_files(group.master))
    return min(log_files(group.slave))


def assert_same_queues(group: Group) -> None:
    """The slave serves all that the master does, once it has heard of the topic."""
    wait_until(lambda: _TOPIC in tables(group.slave).topics, "the topic at the slave")
    with group.master.client() as master, group.slave.client() as slave:
        for queue in _QUEUES:
            wait_until(
                lambda q=queue: slave.offset(30, _TOPIC, q) == master.offset(30, _TOPIC, q),  # type: ignore[misc]
                f"queue {queue} of the slave dispatched",
            )
            assert slave.offset(31, _TOPIC, queue) == master.offset(31, _TOPIC, queue)
            assert drain(slave, _TOPIC, queue) == drain(master, _TOPIC, queue)


def backups(slave: harness.Broker) -> list[Path]:
    """Where files of it were moved aside."""
    return sorted(slave.store_dir.glob("backup-*"))


@of_our_slaves(quick=True)
def test_an_empty_slave_gets_the_whole_history(
    joining: Joining, history: History, kinds: tuple[str, ...]
) -> None:
    group = joining.start(history.full, None)
    assert_joined(group)
    assert min(log_files(group.slave)) == 0


@of_our_slaves()
def test_an_empty_slave_gets_what_is_left_of_the_history(
    joining: Joining, history: History, kinds: tuple[str, ...]
) -> None:
    group = joining.start(history.short, None)
    assert_joined(group)
    assert min(log_files(group.slave)) == _FILE


@pytest.mark.slow
@pytest.mark.parametrize("store", ["full", "short"])
@pytest.mark.parametrize("kinds", pairs(_JAVA_SLAVES), ids=kinds_id)
def test_an_empty_java_slave_gets_all_of_ours(
    joining: Joining, history: History, kinds: tuple[str, ...], store: str
) -> None:
    assert_joined(joining.start(getattr(history, store), None))


@of_our_slaves()
def test_a_slave_that_was_away_goes_on(
    joining: Joining, history: History, kinds: tuple[str, ...]
) -> None:
    group = joining.start(history.full, history.early)
    assert_joined(group)
    assert not backups(group.slave)


@of_our_slaves(quick=True)
def test_a_slave_behind_the_history_starts_over(
    joining: Joining, history: History, kinds: tuple[str, ...]
) -> None:
    group = joining.start(history.short, history.early)
    wait_caught_up(group)
    assert ha_status(group.slave)["refusals"]["behind_master_min"] >= 1
    (backup,) = backups(group.slave)
    assert (backup / "commitlog").is_dir()
    assert_joined(group)
    assert min(log_files(group.slave)) == _FILE


@pytest.fixture
def other_past(history: History, tmp_path: Path, kinds: tuple[str, ...]) -> Path:
    """`early`, continued by a broker of ours that was nobody's slave."""
    store = tmp_path / "other-past"
    shutil.copytree(history.early, store)
    broker = harness.broker("ours", tmp_path / "other", None, store_dir=store, conf=_CONF).start()
    fill(broker, _TOPIC, _FILE // 4, text="other")
    broker.stop()
    return store


def assert_refused(group: Group, verdict: str, slave_end: int) -> None:
    """The slave says why it does not follow, and keeps what it has."""

    def is_refused() -> bool:
        return ha_status(group.slave)["haClientRuntimeInfo"].get("state") == "refused"

    wait_until(is_refused, "a refused link")
    status = ha_status(group.slave)
    assert status["refusals"][verdict] >= 1
    assert "haTruncateDiverged" in status["haClientRuntimeInfo"]["lastError"]
    fill(group.master, _TOPIC, _FILE // 4)
    assert log_end(group.slave) == slave_end
    assert not backups(group.slave)


@of_our_slaves(quick=True)
def test_a_diverged_slave_is_refused(
    joining: Joining, history: History, other_past: Path, kinds: tuple[str, ...]
) -> None:
    group = joining.start(history.full, other_past)
    assert_refused(group, "diverged", log_end(group.slave))


@of_our_slaves()
def test_a_slave_ahead_is_refused(
    joining: Joining, history: History, kinds: tuple[str, ...]
) -> None:
    group = joining.start(history.early, history.full)
    assert_refused(group, "ahead", log_end(group.slave))


@of_our_slaves(quick=True)
def test_a_diverged_slave_goes_back_when_told(
    joining: Joining, history: History, other_past: Path, kinds: tuple[str, ...]
) -> None:
    group = joining.start(history.full, other_past, haTruncateDiverged="true")
    wait_caught_up(group)
    (backup,) = backups(group.slave)
    assert any(path.is_file() and path.stat().st_size for path in backup.rglob("*"))
    assert_joined(group)


@of_our_slaves()
def test_a_slave_ahead_goes_back_when_told(
    joining: Joining, history: History, kinds: tuple[str, ...]
) -> None:
    group = joining.start(history.early, history.full, haTruncateDiverged="true")
    wait_caught_up(group)
    assert len(backups(group.slave)) == 1
    assert_joined(group)
