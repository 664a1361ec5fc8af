"""What a record costs the `store` process: us/record of dispatch, the best of several rounds.

Usage: python -m tests.bench.dispatch [--records N] [--rounds N] [--dir DIR]
Records like a Java producer's: 128 B or 1 KiB body, UNIQ_KEY of 32 digits, one KEYS word, TAGS; 8
queues; fresh files each round, the whole path of ReputMessageService with the real queue table. The
rows: everything; records parsed only; consume queues only; index only; KEYS and TAGS of many
lengths; chunks of a few records (a quiet broker), as arrays and one by one.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ipc.clock import SystemClock
from ipc.queue_table import QueueTableWriter, create_queue_table
from store.careful_dispatch import Dispatcher
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_table import ConsumeQueueTable
from store.few_records import MOST_RECORDS, FewRecordsDispatch
from store.index_service import IndexService
from store.log_dispatch import DEFAULT_CHUNK_SIZE, dispatch_range
from store.log_fences import NO_FENCES
from store.message_codec import MAGIC_V1, record_head
from store.message_store_config import MessageStoreConfig
from store.record_properties import PropertyExtractor

CONFIG = MessageStoreConfig()
HOST = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)


class MemoryLog:
    """A commit log of one file in memory."""

    def __init__(self, data: bytearray, records: int) -> None:
        self.data = data
        self.records = records
        self.file_size = 1 << 40
        self.min_phy_offset = 0
        self.max_phy_offset = len(data)
        self.fences = NO_FENCES

    def view_of_file(self, phy_offset: int) -> memoryview | None:
        """All of it."""
        return memoryview(self.data)


def build_log(count: int, body_size: int, *, varied: bool, queues: int = 8) -> MemoryLog:
    """`count` records; `varied` = TAGS and KEYS of different lengths."""
    topic, body, data = b"\x09benchtopi", b"b" * body_size, bytearray()
    head = record_head(0)
    for n in range(count):
        tags = b"Tag" + b"ABCDEFGH"[: n * 7 % 8 + 1] if varied else b"TagA"
        key = b"order-%d" % (n * 2_654_435_761 % (10 ** (n % 9 + 1))) if varied else b"key-%08d" % n
        properties = (
            b"KEYS\x01%s\x02UNIQ_KEY\x017F000001%08X18B4AAC2%08X\x02CLUSTER\x01DefaultCluster"
            b"\x02TAGS\x01%s" % (key, n * 7919 & 0xFFFFFFFF, n, tags)
        )
        size = head.size + body_size + len(topic) + 2 + len(properties)
        data += head.pack(
            *(size, MAGIC_V1, 0, n % queues, 0, n // queues, len(data), 0, 1_795_177_732_000 + n),
            *(HOST, 1_795_177_732_448 + n // 100, HOST, 0, 0, body_size),
        )
        data += body + topic + struct.pack(">h", len(properties)) + properties
    return MemoryLog(data, count)


class _Round:
    """Fresh consume queues and index in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.table_fd = create_queue_table()
        files = ConsumeQueueFiles(directory / "consumequeue", 6_000_000, writable=True)
        self.queues = ConsumeQueueTable(files, QueueTableWriter(self.table_fd))
        slots, units = CONFIG.max_hash_slot_num, CONFIG.max_index_num
        self.index = IndexService(
            directory / "index", slots, units, SystemClock(), lambda timestamp: None
        )

    def close(self) -> None:
        """Let go of everything without flushing."""
        self.queues.close()
        os.close(self.table_fd)
        shutil.rmtree(self.directory)


def measure_few(source: MemoryLog, directory: Path, *, chunk_size: int) -> float:
    """Seconds to dispatch all of `source` in chunks of a few records, one by one."""
    fresh = _Round(directory)
    extractor = PropertyExtractor(CONFIG.delay_level_ms)
    few = FewRecordsDispatch(
        source, extractor, fresh.queues, lambda topics: False, fresh.index, lambda: None
    )
    gc.collect()
    begin = time.perf_counter()
    for start in range(0, source.max_phy_offset, chunk_size):
        assert few.dispatch(start, min(start + chunk_size, source.max_phy_offset)) is not None
    seconds = time.perf_counter() - begin
    fresh.close()
    return seconds


def measure(
    source: MemoryLog, parts: str, directory: Path, *, chunk_size: int, with_keys: bool
) -> float:
    """Seconds to dispatch all of `source` to `parts`: q = consume queues, i = index."""
    fresh = _Round(directory)
    extractor = PropertyExtractor(CONFIG.delay_level_ms, with_keys=with_keys)
    dispatchers: Sequence[Dispatcher] = [
        part.dispatch for name, part in (("q", fresh.queues), ("i", fresh.index)) if name in parts
    ]
    gc.collect()
    begin = time.perf_counter()
    end = source.max_phy_offset
    dispatch_range(source, 0, end, extractor, dispatchers, chunk_size=chunk_size)
    seconds = time.perf_counter() - begin
    fresh.close()
    return seconds


def main() -> None:
    """Prints one row for each case."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=200_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--dir", default=None)
    options = arguments.parse_args()
    count = options.records
    small, size = (
        build_log(count, 128, varied=False),
        build_log(1, 128, varied=False).max_phy_offset,
    )
    few = build_log(count // 20, 128, varied=False)
    chunk = DEFAULT_CHUNK_SIZE
    cases = [
        ("128 B, all", small, "qi", chunk, True),
        ("128 B, parsed only", small, "", chunk, True),
        ("128 B, consume queues (no keys)", small, "q", chunk, False),
        ("128 B, index", small, "i", chunk, True),
        ("128 B, all, chunks of 1 MiB", small, "qi", chunk // 4, True),
        ("128 B, all, chunks of 64 KiB", small, "qi", chunk // 64, True),
        ("128 B, varied TAGS and KEYS, all", build_log(count, 128, varied=True), "qi", chunk, True),
        ("1 KiB, all", build_log(count, 1024, varied=False), "qi", chunk, True),
        ("128 B, all, 12 records a chunk", few, "qi", 12 * size, True),
        ("128 B, all, 1 record a chunk", few, "qi", size, True),
    ]
    for name, source, parts, chunk_size, with_keys in cases:
        rounds = [
            measure(
                source,
                parts,
                Path(tempfile.mkdtemp(dir=options.dir)),
                chunk_size=chunk_size,
                with_keys=with_keys,
            )
            for _ in range(options.rounds)
        ]
        print_best(name, rounds, source.records)
    for number in (MOST_RECORDS, 1):
        rounds = [
            measure_few(few, Path(tempfile.mkdtemp(dir=options.dir)), chunk_size=number * size)
            for _ in range(options.rounds)
        ]
        print_best(f"128 B, all, {number} a chunk, one by one", rounds, few.records)


def print_best(name: str, rounds: Sequence[float], records: int) -> None:
    """Of seconds, each for all records."""
    print(f"{name:36} {min(rounds) / records * 1e6:7.3f} us/record", flush=True)


if __name__ == "__main__":
    main()
