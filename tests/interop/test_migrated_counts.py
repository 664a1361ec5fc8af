"""Every way to ours and back, with messages of every kind, counted on both sides.

A Java broker takes so many of each kind, ours goes on with its store and gives all of them, takes
as many again, and the Java broker gives those: each message once. docs/migrating.md shows the
counts of a long run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adopt.command_line import DONE, main
from tests.interop import harness
from tests.interop.kinds_of_messages import (
    KINDS_4_9,
    KINDS_5_3,
    KINDS_5_5,
    Left,
    found,
    leave,
    make_topics,
    waiting,
)
from tests.support.our_broker import FrameClient
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]

NAME, CLUSTER = "migrated", "InteropCluster"
MESSAGES = 5_000
_ROCKS = {"storeType": "defaultRocksDB"}
_POPS = {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
_DLEDGER = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": NAME,
    "dLegerSelfId": "n0",
}


@dataclass(frozen=True)
class Way:
    """How a store comes to ours and goes back. before, after: settings of the Java broker;
    there and back: how bin/mqadopt is called, None where the directory stays."""

    kind: str
    kinds: Sequence[str]
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    there: Sequence[str] | None = None
    back: Sequence[str] | None = None


WAYS = {
    "4.9": Way("java-4.9", KINDS_4_9),
    "5.3": Way("java-5.3", KINDS_5_3),
    "5.5": Way("java-5.5", KINDS_5_5),
    "rocksdb": Way(
        "java-5.5",
        KINDS_5_5,
        before=_ROCKS | _POPS,
        after=_ROCKS,
        there=("--broker-name", NAME, "--cluster", CLUSTER),
        back=("--to-rocksdb",),
    ),
    "rocksdb-5.3": Way(
        "java-5.3",
        KINDS_5_3,
        before=_ROCKS | _POPS,
        after=_ROCKS,
        there=("--broker-name", NAME, "--cluster", CLUSTER),
        back=("--to-rocksdb",),
    ),
    "dledger": Way("java-5.3", KINDS_5_3, before=_DLEDGER, there=("--members", "1")),
}


class Turns:
    """Brokers of one name, one after the other."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self._directory = directory
        self._settings = settings
        self._turn = 0

    @contextmanager
    def open(
        self, kind: str, store: Path, conf: Mapping[str, str], *, is_last: bool = False
    ) -> Iterator[FrameClient]:
        """Until it has stopped in order; the last one is killed."""
        self._turn += 1
        home = self._directory / f"turn-{self._turn}"
        peer = {"dLegerPeers": f"n0-127.0.0.1:{free_port()}"} if "dLegerGroup" in conf else {}
        settings = {**self._settings, **conf, **peer}
        broker = harness.broker(kind, home, None, name=NAME, store_dir=store, conf=settings).start()
        try:
            with broker.client() as client:
                yield client
            if not is_last:
                broker.process.stop(timeout_s=120)
        finally:
            broker.kill()


@pytest.mark.parametrize(
    ("name", "messages"),
    [("rocksdb", 90), *(pytest.param(name, MESSAGES, marks=pytest.mark.long) for name in WAYS)],
)
def test_messages_of_every_kind_come_and_go_back(
    tmp_path: Path, proved: Callable[[str], None], name: str, messages: int
) -> None:
    way = WAYS[name]
    each = -(-messages // len(way.kinds))
    left, ended = Left(way.kinds, 12 if messages < MESSAGES else 40), set[bytes]()
    # Of RocksDB: in more files than the ten from which 5.5 would build its queues.
    files = {"mappedFileSizeCommitLog": "4096" if messages < MESSAGES else "65536"}
    turns = Turns(tmp_path, left.settings() | (files if "--to-rocksdb" in (way.back or ()) else {}))
    store = tmp_path / "store"
    with turns.open(way.kind, store, way.before) as client:
        make_topics(client, way.kinds)
        leave(client, NAME, left, each)
        at_java = waiting(client, way.kinds)
    store = moved(store, tmp_path / "ours", way.there)
    with turns.open("ours", store, {}) as client:
        at_ours = waiting(client, way.kinds)
        if "--broker-name" in (way.there or ()):
            # Check points of popped messages are timers, too.
            assert at_ours.pop("timer") >= at_java.pop("timer")
        assert at_ours == at_java
        given = found(client, left, ended)
        check(left, given)
        proved(f"{name}: {words_of(left, given)} at ours")
        leave(client, NAME, left, each)
    store = moved(store, tmp_path / "back", way.back)
    if "--to-rocksdb" in (way.back or ()):
        assert len(list((store / "commitlog").iterdir())) > 12
    with turns.open(way.kind, store, way.after, is_last=True) as client:
        given = found(client, left, ended)
        check(left, given)
        proved(f"{name}: {words_of(left, given)} at Java's, there and back")


def moved(store: Path, target: Path, words: Sequence[str] | None) -> Path:
    """Where the store is, once mqadopt has been called like this."""
    if words is None:
        return store
    assert main([str(store), "--to", str(target), *words]) == DONE
    return target


def check(left: Left, given: Mapping[str, Counter[bytes]]) -> None:
    """Each once. Popped ones may come twice: Java's broker, when it stops, leaves the group's
    offset below what it popped last."""
    for kind, bodies in given.items():
        expected = left.expected(kind)
        if kind == "popped":
            bodies = Counter(set(bodies) & set(expected))
        assert bodies == expected, kind


def words_of(left: Left, given: Mapping[str, Counter[bytes]]) -> str:
    """So many of so many, of each kind."""
    return ", ".join(
        f"{kind} {sum(body in bodies for body in left.expected(kind))}"
        f"/{left.expected(kind).total()}"
        for kind, bodies in given.items()
    )
