"""A store whose commit log lies in two directories and a read-only one goes between Java and ours.

Java is 5.3.3; the rest is as in test_store_exchange.py. Both have to find each file where the other
has put it, and put new ones where the other would have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.clients import Client, Cluster
from tests.interop.driver import Driver, Entry
from tests.interop.test_store_exchange import Exchange, check_serves

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(240)]

_FILE_SIZE = 1 << 17
_FIRST = 900
_SECOND = 600


class Directories:
    """b is named before a: files take turns by name."""

    def __init__(self, root: Path) -> None:
        self.b, self.a, self.old = (root / name for name in ("b", "a", "old"))
        self.old.mkdir(parents=True)

    def conf(self) -> dict[str, str]:
        return {
            "storePathCommitLog": f"{self.b},{self.a}",
            "readOnlyCommitLogStorePaths": str(self.old),
            "mappedFileSizeCommitLog": str(_FILE_SIZE),
            # A machine that is busy with other tests is no reason to refuse sends.
            "brokerFastFailureEnable": "false",
        }

    def numbers(self, path: Path) -> list[int]:
        """Of its files that hold something."""
        files = sorted(path.glob("[0-9]*"))
        return [int(file.name) // _FILE_SIZE for file in files if any(file.read_bytes()[:8])]

    def assert_in_turn(self) -> None:
        even, odd = self.numbers(self.a), self.numbers(self.b)
        assert even, "there are files in both"
        assert odd, "there are files in both"
        assert {number % 2 for number in even} == {0}
        assert {number % 2 for number in odd} == {1}


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    return Directories(tmp_path / "log")


@pytest.fixture
def exchange(
    tmp_path: Path,
    cluster: Cluster,
    drivers: Callable[[str], Driver],
    directories: Directories,
) -> Iterator[Exchange]:
    made = Exchange(tmp_path, cluster, drivers("4.9.8"), directories.conf())
    yield made
    made.end_turn(clean=False)


def send(client: Client, topic: str, first: int, count: int) -> list[Entry]:
    """Over some files of 128 KiB."""
    producer = client.producer()
    sent = producer.send(topic, "ordered", count, first=first, profile="small")
    producer.stop()
    return sent


@pytest.mark.parametrize(
    "java_first",
    [False, True],
    ids=["ours-writes-first", "java-writes-first"],
)
def test_a_store_changes_hands(
    exchange: Exchange, directories: Directories, broker_kind: str, java_first: bool
) -> None:
    kinds = [harness.JAVA_5, broker_kind]
    if not java_first:
        kinds.reverse()
    first = exchange.open(kinds[0])
    topic = first.topic()
    sent = send(first, topic, 0, _FIRST)
    exchange.end_turn(clean=False)
    directories.assert_in_turn()
    # The oldest file's disk becomes read-only.
    oldest = min(directories.a.iterdir())
    oldest.rename(directories.old / oldest.name)

    second = exchange.open(kinds[1])
    check_serves(second, topic, sent)
    later = send(second, topic, _FIRST, _SECOND)
    exchange.end_turn(clean=False)
    directories.assert_in_turn()
    assert directories.numbers(directories.old) == [0]

    check_serves(exchange.open(kinds[0]), topic, sent + later)
