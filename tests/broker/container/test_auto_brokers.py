"""--auto: which brokers it makes for how many cores, where, and what it leaves alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.container.auto_brokers import NAMES, prepare_auto_brokers
from broker.container.contained_options import claims_of, load_contained_options
from broker.container.container_startup import load_container_options
from broker.container.core_pairs import cores_of_slot, count_pairs
from conf.errors import StartupExitError

HOME = {"ROCKETMQ_HOME": str(Path(__file__).parents[3])}


def container_conf(root: Path, *more: str) -> str:
    """Of a container whose --auto keeps its brokers in `root`."""
    conf = root / "container.conf"
    conf.write_text("\n".join([f"autoBrokerDirectory={root / 'brokers'}", *more]))
    return str(conf)


def test_names_go_on_after_z() -> None:
    assert NAMES[:2] == ("broker-a", "broker-b")
    assert NAMES[25:28] == ("broker-z", "broker-aa", "broker-ab")
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(("cores", "pairs"), [(1, 1), (2, 1), (3, 1), (4, 2), (15, 7), (64, 32)])
def test_a_pair_for_each_broker(cores: int, pairs: int) -> None:
    numbers = list(range(10, 10 + cores))
    assert count_pairs(numbers) == pairs
    given = [cores_of_slot(numbers, slot) for slot in range(pairs)]
    assert sorted(core for each in given for core in each) == numbers, "each core once"
    assert all(len(each) >= min(cores, 2) for each in given)
    assert cores_of_slot(numbers, pairs) == given[0], "more brokers than pairs share"


def test_missing_files_are_written_and_others_kept(tmp_path: Path) -> None:
    written = prepare_auto_brokers(tmp_path, 2)
    assert [path.name for path in written] == ["broker-a.conf", "broker-b.conf"]
    changed = written[0].read_text() + "flushDiskType=SYNC_FLUSH\n"
    written[0].write_text(changed)
    assert prepare_auto_brokers(tmp_path, 1) == written, "one that has messages is started, too"
    assert written[0].read_text() == changed
    assert len(prepare_auto_brokers(tmp_path, 40)) == 40


def test_a_link_to_a_disk_that_is_not_mounted_is_not_written_over(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    directory = tmp_path / "brokers"
    directory.mkdir()
    link = directory / "broker-a.conf"
    link.symlink_to(disk / "broker-a.conf")
    assert prepare_auto_brokers(directory, 1) == [link]
    assert link.is_symlink()
    assert not disk.exists()


def test_the_brokers_of_a_large_host_share_nothing(tmp_path: Path) -> None:
    files = prepare_auto_brokers(tmp_path, 32)
    container = load_container_options(["-n", "127.0.0.1:9876"], HOME)
    brokers = [load_contained_options(path, container, "127.0.0.1:9876", HOME) for path in files]
    first, second = (each.options for each in brokers[:2])
    assert (first.server.listen_port, first.ha.ha_listen_port) == (10911, 10912)
    assert (second.server.listen_port, second.supervisor.metrics_port) == (10921, 5567)
    assert first.supervisor.metrics_port == 5557
    assert first.store.root == tmp_path / "broker-a"
    assert {each.identity.cluster_name for each in brokers} == {"DefaultCluster"}
    claims = [claim for each in brokers for claim in claims_of(each)]
    conflicts = [
        (str(one), str(other))
        for number, one in enumerate(claims)
        for other in claims[:number]
        if one.owner != other.owner and one.conflicts_with(other)
    ]
    assert conflicts == []


def test_the_command_line_makes_one_for_every_two_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(6)))
    options = load_container_options(["--auto", "-c", container_conf(tmp_path)], HOME)
    assert options.broker_files == tuple(
        tmp_path / "brokers" / f"broker-{letter}.conf" for letter in "abc"
    )
    assert options.embeds_namesrv


@pytest.mark.parametrize("count", [1, 4, 8])
def test_a_setting_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(6)))
    conf = container_conf(tmp_path, f"autoBrokerCount={count}")
    options = load_container_options(["--auto", "-c", conf], HOME)
    assert [path.stem for path in options.broker_files] == list(NAMES[:count])


def test_more_than_there_are_names_is_refused(tmp_path: Path) -> None:
    conf = container_conf(tmp_path, f"autoBrokerCount={len(NAMES) + 1}")
    with pytest.raises(StartupExitError, match=rf"{conf}:2: autoBrokerCount"):
        load_container_options(["--auto", "-c", conf], HOME)
    assert not (tmp_path / "brokers").exists()
