"""StoreOpening: what a start costs where there are more queues than files may be open."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from store import derived_files
from store.consume_queue_files import ConsumeQueueFiles
from store.descriptor_cache import FileKey
from tests.faults.store_world import StoreDesk, World, Writer, assert_whole

COUNT = 120
QUEUES = 6


def test_after_a_kill_each_queue_file_is_opened_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path).boot()
    desk = StoreDesk(world).open()
    writer = Writer(world).open()
    writer.write(range(COUNT))
    writer.close()
    desk.dispatch()
    desk.abandon()

    opened: Counter[FileKey] = Counter()
    open_file = ConsumeQueueFiles._open

    def counted(files: ConsumeQueueFiles, key: FileKey) -> int:
        opened[key] += 1
        return open_file(files, key)

    monkeypatch.setattr(ConsumeQueueFiles, "_open", counted)
    monkeypatch.setattr(derived_files, "writers_open_files", lambda: 1)
    desk = StoreDesk(world.boot())
    desk.store.open()
    assert sorted(opened.values()) == [1] * QUEUES
    assert_whole(world, desk, list(range(COUNT)))
    desk.abandon()
