"""Stores that 5.3.3 brokers wrote (golden/rocksdb-5.3.3), copied for a test, and what they hold.

1,000 messages: TRocksA 4 queues × 125, TRocksB 2 × 150, TRocksC 1 × 200; offsets of GRocks1 in
TRocksA 10, 20, 30, 40, of GRocks2 in TRocksC 77. `killed` has 100 more in TRocksA, of which RocksDB
knew nothing; `pop` has 24 popped messages of TRocksB.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from store.consume_queue_reader import ConsumeQueueReader
from store.message_store_config import MessageStoreConfig
from store.store_checker import check_store
from store.stored_units import CQ_UNIT
from tests.faults.store_world import StoreDesk, World
from tests.support.archives import unpack

GOLDEN: Final = Path(__file__).parents[1] / "golden"
KINDS: Final = ("clean", "killed", "v2", "pop", "double")
QUEUES: Final = {
    **{("TRocksA", queue): 125 for queue in range(4)},
    **{("TRocksB", queue): 150 for queue in range(2)},
    ("TRocksC", 0): 200,
}
OFFSETS: Final = {
    "TRocksA@GRocks1": {0: 10, 1: 20, 2: 30, 3: 40},
    "TRocksC@GRocks2": {0: 77},
}
NAMES: Final = ("--broker-name", "rb", "--cluster", "RocksCluster")


def unpack_all(directory: Path) -> None:
    """Each below its name."""
    for kind in KINDS:
        unpack(GOLDEN / "rocksdb-5.3.3" / f"store-{kind}.tar.xz", directory)


def copied(source: Path, target: Path) -> Path:
    """A copy for a test that changes it."""
    return Path(shutil.copytree(source, target))


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file and directory below."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        found[str(path.relative_to(root))] = (status.st_size, status.st_mtime_ns)
    return found


def contents(root: Path, *, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    """What each file holds, without the zeros at its end."""
    return {
        str(path.relative_to(root)): path.read_bytes().rstrip(b"\0")
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in without
    }


class JavaWorld(World):
    """With files as these brokers had them."""

    @property
    def config(self) -> MessageStoreConfig:
        return MessageStoreConfig(
            store_path_root_dir=str(self.root),
            mapped_file_size_commit_log=16 << 20,
            mapped_file_size_consume_queue=60_000,
            max_hash_slot_num=5_000,
            max_index_num=20_000,
        )


def opened(root: Path) -> tuple[dict[tuple[str, int], int], list[str], dict[tuple[str, int], list]]:
    """What a store of ours makes of a copy of it: where queues end, what a check finds, and the
    units (position, size, tags code) of each queue."""
    place = copied(root, root.with_name(root.name + "-opened"))
    world = JavaWorld(place).boot()
    desk = StoreDesk(world)
    desk.store.open()
    desk.dispatch()
    maxima = world.queue_maxima()
    reader = ConsumeQueueReader(world.config)
    units = {
        (topic, queue): list(CQ_UNIT.iter_unpack(reader.read_units(topic, queue, 0, most)))
        for (topic, queue), most in maxima.items()
    }
    reader.close()
    desk.abandon()
    report = check_store(place)
    world.close()
    os.unlink(place / "lock") if (place / "lock").exists() else None
    return maxima, report.errors, units
