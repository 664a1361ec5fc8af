"""A store with a compaction topic, its log's writer and a reader, in the test's own process.

One `CompactionLife` is one life of a broker: shared memory of its own, the services of process
`store`, and a CommitLog as `remoting` has it. Start another one on the same directory to restart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ipc.bell import Bell
from ipc.clock import SystemClock
from ipc.control_page import ProcessIndex
from ipc.queue_table import QueueTableReader, create_queue_table
from ipc.service_thread import ServiceThread
from store.commit_log import CommitLog, own_record
from store.commit_log_reader import CommitLogReader
from store.compaction.compaction_reader import CompactionReader, ReadLimits
from store.control_slots import ALLOCATED_END, DISPATCHED_OFFSET
from store.default_message_store import DefaultMessageStore
from store.message import Message
from store.message_codec import decode_record, encode_host
from store.message_store_config import MessageStoreConfig
from store.store_progress import StoreBells
from store.topic_queue_table import rebuild_topic_queue_table
from tests.support.deadline import wait_until
from tests.support.shared_memory import fresh_page

TOPIC: Final = "Compacted"
HOST: Final = encode_host("127.0.0.1", 10911)
FILE_SIZE: Final = 1 << 16
NEVER_MS: Final = 1 << 40
QUEUE_SIZE: Final = 46 * 20
_LIMITS: Final = ReadLimits(32, 1 << 18, 8, 1 << 16, 1 << 40)


class CompactionLife:
    """See the module."""

    def __init__(
        self, root: Path, *, topics: frozenset[str] = frozenset({TOPIC}), **settings: Any
    ) -> None:
        defaults: dict[str, Any] = {
            "mapped_file_size_commit_log": FILE_SIZE,
            "mapped_file_size_consume_queue": 6_000,
            "max_hash_slot_num": 100,
            "max_index_num": 4_000,
            "disk_max_used_space_ratio": 95,
            "flush_interval_commit_log": 10,
            "flush_commit_log_thorough_interval": 20,
            "flush_interval_consume_queue": 10,
            "compaction_cq_mapped_file_size": QUEUE_SIZE,
            "compaction_mapped_file_size": QUEUE_SIZE * 6,
            "compaction_schedule_internal": NEVER_MS,
        }
        self.config = MessageStoreConfig(store_path_root_dir=str(root), **(defaults | settings))
        self.page = fresh_page()
        self.counters = self.page.counters
        self._table_fd = create_queue_table()
        self.table = QueueTableReader(self._table_fd)
        self._bell_fd = Bell.create()
        self.failures: list[Exception] = []
        self.rings = 0
        self.clock = SystemClock()
        self._topics = topics
        self.store = self.new_store()

    def new_store(self) -> DefaultMessageStore:
        """Process `store` alone is started again."""
        return DefaultMessageStore(
            self.config,
            self.page,
            self._table_fd,
            StoreBells(Bell(self.page, ProcessIndex.STORE, self._bell_fd), self._ring),
            self.clock,
            self._fail,
            find_compaction_topics=lambda: self._topics,
        )

    def _ring(self) -> None:
        self.rings += 1

    def _fail(self, service: ServiceThread, error: Exception) -> None:
        self.failures.append(error)

    def start(self) -> CompactionLife:
        """Open everything."""
        self.store.open()
        self.store.start()
        bell = Bell(self.page, ProcessIndex.STORE, self._bell_fd)
        size = self.config.mapped_file_size_commit_log
        self.log = CommitLog(self.config.commit_log_path, size, self.page, self.clock, bell.ring)
        reader = CommitLogReader(self.config.commit_log_path, size, self.page)
        rebuild_topic_queue_table(self.log, self.page, self.table, reader)
        self.log.open(HOST)
        wait_until(lambda: self.counters[ALLOCATED_END] > 0)
        self.reader = CompactionReader(self.config, self.table)
        return self

    def put(self, key: str | None, body: bytes, queue_id: int = 0, topic: str = TOPIC) -> int:
        """Store a message; its queue offset."""
        size = self.config.mapped_file_size_commit_log
        wait_until(lambda: self.counters[ALLOCATED_END] > self.log.position + size)
        self.log.now_ms = self.clock.now_ms()
        properties = b"TAGS\x01A" if key is None else f"KEYS\x01{key}\x02TAGS\x01A".encode()
        record = own_record(
            queue_id, body, properties, now_ms=0, store_host=HOST, store_host_flag=0
        )
        _phy_offset, queue_offset = self.log.append(self.log.topic(topic), (record,))[0]
        self.log.commit()
        return queue_offset

    def wait_followed(self, *, topic: str = TOPIC, queue_id: int = 0) -> None:
        """What was put is in the compaction log."""
        wait_until(lambda: self.counters[DISPATCHED_OFFSET] == self.log.position)
        high = self.table.offsets(topic, queue_id)[1]
        wait_until(lambda: self.table.compacted(topic, queue_id)[1] == high)

    def read_all(self, offset: int = 0, *, topic: str = TOPIC, queue_id: int = 0) -> list[Message]:
        """Every message of the compaction log."""
        found: list[Message] = []
        end = self.table.compacted(topic, queue_id)[1]
        while offset < end:
            read = self.reader.read(topic, queue_id, offset, _LIMITS, lambda tags, record: True)
            assert read.looked_at or self.table.compacted(topic, queue_id)[1]
            found += [decode_record(record, 0)[0] for record in read.records]
            offset = read.next_offset
        return found

    def stop(self) -> None:
        """An orderly stop."""
        self.store.shutdown(writer_has_stopped=True)
        self.log.close()
        self.reader.close()
        assert not self.failures, self.failures
