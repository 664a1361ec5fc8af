"""A stream under load while masters of a pair with a controller are killed and slaves take over.

One sink is of files; the other is a topic of the same pair, so that the stream writes through the
failovers, too: there each message may be twice, and is there exactly once for a reader that
keeps each SPARK_ROW_ID once. The driver and executors are killed in between. SPARK_KILLS_SEEDS and
SPARK_KILLS as in test_stream_kills.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.test_controller_mode import Group, Places
from tests.spark.sources.killed_streams import KILLS, SEEDS, Diary, Stream, kill, wait_for_moment
from tests.spark.sources.stream_ledger import (
    COPIES,
    assert_in_order,
    judge,
    load,
    make_copies,
    rows_of_copies,
    rows_of_files,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

ACTIONS = ("master", "master", "restart", "driver", "driver", "executor")
ALL_ACK = {"allAckInSyncStateSet": "true"}
"""What a client was told is in the log of whoever may be elected."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Group]:
    """Two members, under a controller of ours."""
    places = Places(tmp_path / "places", "ours")
    group = Group(places, tmp_path, "pair", **ALL_ACK)
    try:
        group.add()
        group.add()
        group.wait_for_set(1, 2)
        yield group
    finally:
        group.end()
        places.end()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sink", ["files", "topic"])
def test_failovers(
    pair: Group, tmp_path: Path, sink: str, seed: int, proved: Callable[[str], None]
) -> None:
    moments = random.Random(seed)
    with ExitStack() as stack:
        copies = [COPIES] if sink == "topic" else []
        with pair.brokers[pair.master_id].client() as client:
            make_copies(client)
        stream = Stream(pair.places.namesrv.address, tmp_path, *copies)
        with load([broker.port for broker in pair.brokers.values()]) as ledger:
            stream.start()
            stack.callback(stream.kill)
            diary = Diary(stream, ledger)
            for _ in range(KILLS):
                wait_for_moment(moments, stream)
                strike(moments, stream, pair, diary)
        stream.settle(ledger.ends())
        if sink == "files":
            rows = rows_of_files(tmp_path / "out")
            count = len(rows)
        else:
            with pair.brokers[pair.wait_for_master()].client() as client:
                rows, count = rows_of_copies(client)
        judge(rows, ledger)
        assert_in_order(rows)
        proved(diary.row(seed, sink, count))


def strike(moments: random.Random, stream: Stream, pair: Group, diary: Diary) -> None:
    """Something is killed. A master comes back when the other one leads and takes messages; or at
    once, while routes may still name it as the master that it is no more."""
    what = moments.choice(ACTIONS)
    if what == "executor" and (executors := stream.executors()):
        diary.note(what)
        kill(moments.choice(executors))
    elif what in ("master", "restart"):
        pair.wait_for_set(1, 2)
        diary.note(what)
        killed = pair.master_id
        pair.brokers[killed].kill()
        if what == "master":
            pair.wait_for_master(other_than=killed)
            stream.wait_for_batch()
        pair.brokers[killed].start()
    else:
        diary.note("driver")
        stream.kill_driver()
    diary.after()
