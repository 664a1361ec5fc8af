"""A compaction log that is filled by hand, without a store around it, and its process' death."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from ipc.queue_table import QueueTableReader, QueueTableWriter, create_queue_table
from store.compaction.compaction_files import CompactionDirectories, FileSizes
from store.compaction.compaction_log import CompactionLog
from store.compaction.compaction_reader import CompactionReader, ReadLimits
from store.compaction.position_checkpoint import PositionCheckpoint
from store.message import Message
from store.message_codec import decode_record, encode_host, encode_record
from store.message_store_config import MessageStoreConfig
from tests.support.compaction_client import Ledger

TOPIC = "Compacted"
QUEUE_SIZE = 46 * 16
HOST = encode_host("127.0.0.1", 10911)
LIMITS = ReadLimits(32, 1 << 18, 8, 1 << 16, 1 << 40)


class World:
    """A compaction log that is filled by hand, and a reader of it."""

    def __init__(self, root: Path) -> None:
        self.config = MessageStoreConfig(
            store_path_root_dir=str(root),
            compaction_cq_mapped_file_size=QUEUE_SIZE,
            compaction_mapped_file_size=QUEUE_SIZE * 6,
        )
        self.sizes = FileSizes.of(QUEUE_SIZE * 6, QUEUE_SIZE)
        self.directories = CompactionDirectories.of(self.config.compaction_path, TOPIC, 0)
        fd = create_queue_table()
        self._writer, self.table = QueueTableWriter(fd), QueueTableReader(fd)
        os.close(fd)
        self.ledger = Ledger()
        self.reader = CompactionReader(self.config, self.table)
        self.log = self.open()

    def open(self, *, check_all: bool = False) -> CompactionLog:
        """As a start does."""
        self.positions = PositionCheckpoint(self.config.compaction_path / "position-checkpoint")
        self.positions.load()
        generation = self.table.compacted(TOPIC, 0)[0] + 1
        self.log = CompactionLog(
            self.directories,
            self.sizes,
            TOPIC,
            0,
            self.positions,
            self._publish,
            generation=generation,
        )
        self.log.open(check_all=check_all)
        self.log.publish()
        return self.log

    def _publish(self, topic: str, queue_id: int, generation: int, max_offset: int) -> None:
        self._writer.set_compacted(self._writer.row(topic, queue_id), generation, max_offset)

    def put(self, key: str, body: bytes) -> None:
        offset = self.log.next_offset
        message = Message(
            topic=TOPIC,
            queue_id=0,
            flag=0,
            queue_offset=offset,
            phy_offset=offset * 1_000,
            sys_flag=0,
            born_timestamp=1,
            born_host=HOST,
            store_timestamp=1_000 + offset,
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=body,
            properties=f"KEYS\x01{key}".encode(),
        )
        assert self.log.take(encode_record(message), offset * 1_000, 0)
        self.ledger.events.append((offset, key, body))

    def fill(self, count: int, seed: int = 0) -> None:
        chooser = random.Random(seed)
        for _ in range(count):
            body = b"" if chooser.random() < 0.1 else chooser.randbytes(chooser.randrange(1, 150))
            self.put(f"k{chooser.randrange(20)}", body)
        self.log.publish()
        self.log.flush()

    def read_all(self) -> list[Message]:
        found: list[Message] = []
        offset, end = 0, self.table.compacted(TOPIC, 0)[1]
        while offset < end:
            read = self.reader.read(TOPIC, 0, offset, LIMITS, lambda tags, record: True)
            found += [decode_record(record, 0)[0] for record in read.records]
            assert read.looked_at
            offset = read.next_offset
        return found

    def compact(self, memory_size: int = 1 << 20) -> bool:
        run = self.log.find_run(memory_size, 1 << 60)
        if run is None:
            return False
        for _ in run.steps():
            pass
        run.decide()
        self.log.finish_run(run)
        return True


class CrashError(BaseException):
    """The process ends here."""


def crash_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """The process ends instead of its next change of a directory, after `steps` of them."""
    left = [steps]

    def guard(name: str) -> None:
        real: Any = getattr(os, name)

        def changed(*arguments: Any, **keywords: Any) -> Any:
            if not left[0]:
                raise CrashError
            left[0] -= 1
            return real(*arguments, **keywords)

        monkeypatch.setattr(os, name, changed)

    for name in ("replace", "unlink", "rmdir", "fsync"):
        guard(name)
