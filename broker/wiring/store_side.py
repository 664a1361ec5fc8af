"""StoreSide: the store as process `remoting` has it: the log, its readers, and process `store`.

Built once on the main thread. `log` has one writer, the loop's thread; `loop_reader` and
`loop_units` belong to the loop, `access` to pool threads.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import Final

from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.settings.memory_limit import memory_limit_bytes
from broker.store_access.batch_queues import BatchQueues
from broker.store_access.checked_units import CheckedUnits
from broker.store_access.confirmed_log_reader import ConfirmedLogReader
from broker.store_access.damaged_queues import DamagedQueues
from broker.store_access.store_access import StoreAccess
from broker.store_access.store_commands import StoreCommands
from broker.topic.system_topics import SCHEDULE_TOPIC
from broker.wiring.process_resources import ProcessResources
from ipc.command_channel import CommandClient
from ipc.queue_table import QueueTableReader
from remoting.body.topic_config import TopicConfig
from store.batch_queue_reader import BatchQueueReader
from store.commit_log import CommitLog
from store.commit_log_reader import CommitLogReader
from store.consume_queue_reader import ConsumeQueueReader
from store.control_slots import DISPATCHED_OFFSET, write_refusal
from store.generation_aware_reader import GenerationAwareReader
from store.index_service import IndexReader
from store.message_codec import encode_host
from store.queue_room import RESERVED_ROWS, QueueRoom
from store.topic_queue_table import claim_queue_offsets, rebuild_topic_queue_table

log = logging.getLogger(__name__)

_DISPATCH_S: Final = 30.0
_LOOK_S: Final = 0.01


class StoreSide:
    """See the module. Owned by: BrokerController."""

    def __init__(
        self,
        resources: ProcessResources,
        find_topic: Callable[[str], TopicConfig | None],
        *,
        on_make: Callable[[str, int], None],
        on_loop: Callable[[Callable[[], int]], int],
        before_delete: Callable[[str], int],
        after_delete: Callable[[str, bool], None],
    ) -> None:
        """find_topic: settings of a topic. on_make: told of a queue (topic, queue id) before a
        record makes it; on the loop. on_loop: runs a function on the loop and returns its result;
        for pool threads, as are the others. before_delete: hold a topic's sends, return the
        log's end. after_delete: release them, with whether the topic's queues were deleted."""
        options, page, clock = resources.options, resources.page, resources.clock
        store = options.store
        self._on_loop = on_loop
        self.is_slave: Final = resources.role.is_slave_now
        """Whether somebody else writes the log now, or nobody."""
        self.before_ring: Callable[[], None] = lambda: None
        """Called when records were published, before the other processes are woken."""
        self._bells = (resources.bells["ha"], resources.bells["store"])
        self.page: Final = page
        self.table: Final = QueueTableReader(resources.queue_table_fd)
        self.commands: Final = CommandClient(resources.channels["remoting->store"], "store", clock)
        directories, size = store.log_directories, store.mapped_file_size_commit_log
        self.log: Final = CommitLog(
            directories,
            size,
            page,
            clock,
            self._ring,
            most_light_queues=store.max_lmq_consume_queue_num if store.dispatches_lmq else None,
            room=QueueRoom(self.table, reserved=RESERVED_ROWS, on_make=on_make),
            writes_v2=store.auto_message_version_on_topic_len,
        )
        self.log.store_host = encode_host(
            socket.gethostbyname(options.broker.broker_ip1), options.server.listen_port
        )
        self.loop_reader: Final = CommitLogReader(directories, size, page)
        self.loop_reader.read_ahead(store.data_read_ahead_enable)
        self.damaged: Final = DamagedQueues(self.commands, clock)
        self.batch_queues: Final = BatchQueues(
            find_topic, BatchQueueReader(store, self.table.generation_of)
        )
        self.loop_units: Final = CheckedUnits(
            GenerationAwareReader(ConsumeQueueReader(store, self.table), self.table).read_units,
            self.loop_reader,
            self.table,
            self._note_damaged,
        )
        self.memory_limit: Final = memory_limit_bytes(store.access_message_in_memory_max_ratio)
        reader = ConfirmedLogReader if resources.role.changes else CommitLogReader
        self.access: Final = StoreAccess(
            self.table,
            reader(directories, size, page),
            GenerationAwareReader(ConsumeQueueReader(store, self.table), self.table),
            IndexReader(store.index_path, store.max_hash_slot_num, store.max_index_num),
            self._note_damaged,
            self.batch_queues,
            memory_limit=self.memory_limit,
        )
        self.store_commands: Final = StoreCommands(
            self.commands, self.table, before_delete=before_delete, after_delete=after_delete
        )

    def _note_damaged(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """A topic with batch consume queues has no simple ones to be rebuilt."""
        if not self.batch_queues.hold(topic):
            self.damaged.report(topic, queue_id, queue_offset)

    def stored_queues(self) -> dict[str, int]:
        """The topics that there are messages of, each with its highest queue id plus one."""
        found: dict[str, int] = {}
        for topic, queue_id, _row in self.table:
            low, high = self.table.offsets(topic, queue_id)
            if low < high:
                found[topic] = max(found.get(topic, 0), queue_id + 1)
        return found

    def open_log(self) -> dict[str, int]:
        """Become the log's writer (on a slave that is process `ha`); `store` is ready. Returns the
        topics of records that were not dispatched yet, as `stored_queues`."""
        found: dict[str, int] = {}
        walked = rebuild_topic_queue_table(self.log, self.page, self.table, self.loop_reader, found)
        self.log.open(self.log.store_host)
        log.info("writing from %s on, %s records after dispatch", self.log.position, walked)
        return found

    def close_log(self) -> None:
        """The log has another writer from now on, or none. `open_log` finds anew where its queues
        end."""
        self.log.close()

    def claim_queue_offsets(self, data: bytes) -> None:
        """The records in `data` come back into the log: no message gets their queue offsets from
        now on, and process `store` knows all that got one before. A pool thread. Raises
        TimeoutError."""
        if self.is_slave():
            return  # The master has given them.
        end = self._on_loop(lambda: claim_queue_offsets(self.log, memoryview(data)))
        pause, left = threading.Event(), _DISPATCH_S / _LOOK_S
        while self.page.counters[DISPATCHED_OFFSET] < end:
            pause.wait(_LOOK_S)
            left -= 1
            if left < 0:
                raise TimeoutError(f"process store has not dispatched the log up to {end}")

    def why_not_writable(self) -> str:
        """Why sends are rejected now, for the answer to them."""
        return f"the broker's store refuses writes, its disk is full: {write_refusal(self.page)}"

    def schedule_progress(self, offsets: ScheduleOffsetManager) -> dict[int, tuple[int, int]]:
        """Delay level to (next message to look at, end of its queue)."""
        return {
            level: (offset, self.table.offsets(SCHEDULE_TOPIC, level - 1)[1])
            for level, offset in offsets.offsets().items()
        }

    def _ring(self) -> None:
        self.before_ring()
        for bell in self._bells:
            bell.ring()
