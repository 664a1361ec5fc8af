"""A stream under load whose driver, executors and master broker are killed at seeded moments.

Spark's local-cluster mode: a driver and two executor processes. The sink is Spark's of files, which
keeps each batch once. In the end it holds each message that was acknowledged exactly once, in its
order; meanwhile a slave served the reads. SPARK_KILLS_SEEDS are the seeds (1,2,3,4), SPARK_KILLS is
how many moments each has; the rows that it prints are docs/spark_sources.md's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop import harness
from tests.spark.sources.killed_streams import KILLS, SEEDS, Diary, Stream, kill, wait_for_moment
from tests.spark.sources.stream_ledger import assert_in_order, judge, load, rows_of_files
from tests.support.broker_group import SLAVE, SYNC_MASTER
from tests.support.our_broker import OurBroker
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

ACTIONS = ("driver", "driver", "executor", "executor", "executor", "master")


class Pair:
    """A master and its slave behind a name server of its own."""

    def __init__(self, root: Path, name_server: str) -> None:
        common = {"brokerName": "broker-a", "brokerIP2": "127.0.0.1", "namesrvAddr": name_server}
        port = free_port(-2, 1)
        self.master = OurBroker(root / "master", listenPort=port, **common, **SYNC_MASTER)
        others = {"listenPort": free_port(-2, 1), "haMasterAddress": f"127.0.0.1:{port + 1}"}
        self.slave = OurBroker(root / "slave", **common, **SLAVE, **others)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_once(tmp_path: Path, seed: int, proved: Callable[[str], None]) -> None:
    moments = random.Random(seed)
    with ExitStack() as stack:
        names = harness.name_server("ours", tmp_path / "names").start()
        stack.callback(names.stop)
        pair = Pair(tmp_path, names.address)
        stack.enter_context(pair.master.start())
        stack.enter_context(pair.slave.start())
        stream = Stream(names.address, tmp_path)
        with load([pair.master.ports["main"]]) as ledger:
            stream.start()
            stack.callback(stream.kill)
            diary = Diary(stream, ledger)
            for _ in range(KILLS):
                wait_for_moment(moments, stream)
                strike(moments, stream, pair, diary)
        stream.settle(ledger.ends())
        rows = rows_of_files(tmp_path / "out")
        judge(rows, ledger)
        assert_in_order(rows)
        proved(diary.row(seed, "files", len(rows)))


def strike(moments: random.Random, stream: Stream, pair: Pair, diary: Diary) -> None:
    """Something is killed, and comes back."""
    what = moments.choice(ACTIONS)
    if what == "executor" and (executors := stream.executors()):
        diary.note(what)
        kill(moments.choice(executors))
    elif what == "master":
        diary.note(what)
        pair.master.crash()
        stream.wait_for_batch()
        pair.master.start()
    else:
        diary.note("driver")
        stream.kill_driver()
    diary.after()
