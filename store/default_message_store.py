"""DefaultMessageStore: the `store` process' side of the store, put together.

Constructs, opens, starts and stops the keeper of the mapped files: recovery, dispatch, flush,
allocation, retention. It never appends to the commit log. Only broker/processes/store.py and tests
use it. Two ways to open: a *fresh* start recovers the log before any writer exists; a *rejoin*
(this process alone was restarted) leaves the log to its living writer and goes on where the
control page says. Follows DefaultMessageStore.load / start / shutdown of the original.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Final

from ipc.bell import Bell

from ipc.clock import Clock
from ipc.control_page import ControlPage, ProcessIndex
from ipc.queue_table import QueueTableWriter
from ipc.service_thread import FailureHandler, ServiceThread
from store.allocate_mapped_file_service import AllocateMappedFileService
from store.clean_commit_log_service import CleanCommitLogService, RetentionRules
from store.clean_consume_queue_service import CleanConsumeQueueService
from store.clean_exit import (
    boot_id,
    create_abort,
    delete_abort,
    describe_exit,
    machine_went_down,
    read_clean_exit,
    remove_clean_exit,
    write_clean_exit,
)
from store.commit_log_reader import CommitLogReader
from store.consume_queue import CQ_UNIT_SIZE
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_table import ConsumeQueueTable
from store.control_slots import (
    ALLOCATED_END,
    APPEND_END,
    DISPATCHED_OFFSET,
    FLUSHED_OFFSET,
    LOG_OPENED,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    STORE_STATE,
    STORE_TIMESTAMP,
    SYNC_FLUSH_WANTED,
    StoreState,
)
from store.errors import StoreError
from store.flush_consume_queue_service import FlushConsumeQueueService
from store.flush_real_time_service import FlushRealTimeService
from store.group_commit_service import GroupCommitService
from store.index_service import IndexService
from store.log_flusher import LogFlusher
from store.mapped_file import file_name, zero_range
from store.mapped_file_queue import MappedFileQueue, list_store_files
from store.message_store_config import FlushDiskType, MessageStoreConfig
from store.queue_states import load_queue_states, save_queue_states
from store.record_arrays import ScanEnd
from store.record_properties import PropertyExtractor
from store.recovery import RecoveryMode, RecoveryResult, recover_commit_log
from store.replica_resync import perform_request
from store.reput_message_service import (
    ReputMessageService,
    dispatch_range,
    read_chunk,
)
from store.running_flags import RunningFlags
from store.store_checkpoint import StoreCheckpoint
from store.store_sleeper import StoreSleeper

log = logging.getLogger(__name__)

_SPARED_TOPICS: Final = frozenset({"SCHEDULE_TOPIC_XXXX"})
_BARRIER_STEP_MS: Final = 2.0
_PAGE_SIZE: Final = 4096
_REPLICA_POPULATES_FOR: Final = 100e6
"""Bytes a second. A slave that catches up takes the pages' faults in the kernel's copy out of the
socket; a second process that touches them just before it costs both of them twice as much."""


class DefaultMessageStore:
    """See the module. Owned by: the main thread of process `store`."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        queue_table_fd: int,
        bell: Bell,
        ring_readers: Callable[[], None],
        clock: Clock,
        on_failure: FailureHandler,
        *,
        ring_for_moves: Callable[[], None] | None = None,
        ring_replicator: Callable[[], None] = lambda: None,
        flush_for_replica: bool = False,
    ) -> None:
        """bell: ours. ring_readers: wakes who follows flushed offsets and state; ring_for_moves:
        who waits for queues to move (without it the same).

        On a slave, whose log is written by the replicator (process `ha`): ring_replicator wakes
        it when something was flushed or allocated; flush_for_replica: it acknowledges what is on
        disk, so that the log is flushed as with SYNC_FLUSH, whatever flushDiskType says.
        """
        self._config = config
        self._page = page
        self._counters = page.counters
        self._bell = bell
        self._ring_readers = ring_readers
        self._clock = clock
        self._on_failure = on_failure
        self._ring_for_moves = ring_for_moves or ring_readers
        self._ring_replicator = ring_replicator
        self._flushes_at_once = (
            config.flush_disk_type is FlushDiskType.SYNC_FLUSH or flush_for_replica
        )
        self._dispatched_timestamp = 0
        self._flags = RunningFlags(page.refuse_writes)
        self._checkpoint = StoreCheckpoint(config.checkpoint_path)
        size = config.mapped_file_size_commit_log
        self._source = CommitLogReader(config.commit_log_path, size, page)
        self._extractor = PropertyExtractor(config.delay_level_ms)
        self._publisher = QueueTableWriter(queue_table_fd)
        self._queues = ConsumeQueueTable(
            ConsumeQueueFiles(
                config.consume_queue_path, config.mapped_file_size_consume_queue, writable=True
            ),
            self._publisher,
        )
        self._index = IndexService(
            config.index_path,
            config.max_hash_slot_num,
            config.max_index_num,
            clock,
            self._index_flushed,
        )
        self._flushed_from = 0
        self._index_lacks_some = False
        self._pause = threading.Event()
        """Never set: for short waits of the main thread."""
        self._services: list[ServiceThread] = []

    # -- opening -------------------------------------------------------------------------------

    def open(self) -> None:
        """Recover, or rejoin a living writer; afterwards the log may be written.

        Raises StoreError, OSError.
        """
        rejoins = self._counters[STORE_STATE] == StoreState.READY
        if not rejoins:
            perform_request(self._config, lambda: self._page.beat_starting(ProcessIndex.STORE))
        for path in (self._config.commit_log_path, self._config.consume_queue_path):
            path.mkdir(parents=True, exist_ok=True)
        self._checkpoint = StoreCheckpoint.load(self._config.checkpoint_path)
        if rejoins:
            self._rejoin()
        else:
            self._recover()
        self._build_services()
        self._counters[STORE_STATE] = StoreState.READY
        self._ring_readers()

    def _recover(self) -> None:
        config = self._config
        self._counters[STORE_STATE] = StoreState.RECOVERING
        crashed = config.abort_path.exists()
        lost_pages = machine_went_down(config.abort_path)
        word = None if crashed else read_clean_exit(config.clean_exit_path)
        files = MappedFileQueue(config.commit_log_path, config.mapped_file_size_commit_log)
        files.load()
        found = recover_commit_log(
            files,
            self._checkpoint,
            RecoveryMode.ABNORMAL if crashed else RecoveryMode.NORMAL,
            check_crc=config.check_crc_on_recover,
            index_safe=config.message_index_enable and config.message_index_safe,
            clean_exit=word,
            progress=self._progress("commit log"),
        )
        files.close()
        self._mark_open()
        self._publish_log(found)
        self._flushed_from = found.max_phy_offset
        if not found.trusted and found.start_scanned_at is not None:
            self._flushed_from = found.start_scanned_at
        self._load_queues(as_left=found.trusted or (crashed and not lost_pages))
        self._queues.truncate(found.max_phy_offset)
        self._load_index(found.max_phy_offset, exited_ok=not lost_pages)
        start = self._dispatch_start(found, crashed=crashed)
        if word is not None and found.trusted and len(self._queues) < word.queue_count:
            log.warning("%s consume queues are missing", word.queue_count - len(self._queues))
            start = found.min_phy_offset
        if crashed:
            self._drop_torn_units(start)
        self._dispatch_rest(start, found.max_phy_offset)

    def _mark_open(self) -> None:
        """From now on the files change: clean.exit is taken back, abort is there."""
        config = self._config
        remove_clean_exit(config.clean_exit_path)
        create_abort(config.abort_path)
        config.abort_path.write_text(boot_id(), encoding="ascii")

    def _publish_log(self, found: RecoveryResult) -> None:
        counters = self._counters
        counters[MIN_PHY_OFFSET] = found.min_phy_offset
        counters[MAX_PHY_OFFSET] = counters[APPEND_END] = found.max_phy_offset
        counters[LOG_OPENED] = found.max_phy_offset + 1
        counters[STORE_TIMESTAMP] = self._checkpoint.physic_msg_timestamp

    def _rejoin(self) -> None:
        """The log has its writer, the queues their readers: only what this process derives is
        taken up again, and what the queue table says stays true and readable all the time. What
        is not dispatched yet, half a record perhaps on a slave, is ReputMessageService's."""
        log.warning("rejoining: the log's writer lives, dispatch goes on from the control page")
        counters = self._counters
        self._load_queues()
        self._drop_unpublished_units()
        self._load_index(counters[MAX_PHY_OFFSET], exited_ok=True, rejoins=True)
        self._flushed_from = counters[FLUSHED_OFFSET]
        start = max(self._rejoin_start(), counters[MIN_PHY_OFFSET])
        if start < counters[DISPATCHED_OFFSET]:
            log.warning("a part of consumequeue or index is missing: built again from %s", start)
            self._dispatch_rest(start, counters[DISPATCHED_OFFSET])
        else:
            self._queues.publish_all(min_phy_offset=counters[MIN_PHY_OFFSET])

    def _load_queues(self, *, as_left: bool = False) -> None:
        """as_left: what nobody has touched since the last clean stop is as that has left it."""
        states = load_queue_states(self._config.queue_states_path) if as_left else None
        low = self._counters[MIN_PHY_OFFSET]
        self._queues.load()
        self._queues.recover(self._progress("consume queues"), min_phy_offset=low, states=states)

    def _rejoin_start(self) -> int:
        """The dispatched offset, or where something that was there has been taken away."""
        starts = [self._counters[DISPATCHED_OFFSET]]
        for topic, queue_id, _row in self._publisher:
            queue = self._queues.find(topic, queue_id)
            if (queue.max_offset if queue else 0) < self._publisher.offsets(topic, queue_id)[1]:
                starts.append(queue.max_phy_offset if queue else 0)
        if self._index_lacks_some:
            starts.append(self._index.rebuild_from)
        return min(starts)

    def _drop_unpublished_units(self) -> None:
        """Units that no reader was told of go: the last may be torn, all are built again."""
        for queue in self._queues:
            shown = self._publisher.offsets(queue.topic, queue.queue_id)[1]
            if shown < queue.max_offset:
                visible = shown > queue.min_offset
                queue.truncate(queue.record_end(shown - 1) if visible else 0)

    def _drop_torn_units(self, start: int) -> None:
        """A write that SIGKILL cut short ends at a page's end, within a unit perhaps: a last unit
        over such an end goes if the dispatch from `start` on builds it again."""
        for queue in self._queues:
            end = queue.end
            if not end or end % _PAGE_SIZE >= CQ_UNIT_SIZE or end % _PAGE_SIZE == 0:
                continue
            units = queue.read_units(queue.max_offset - 1, 1)
            if len(units) and int(units[0]["phy_offset"]) >= start:
                queue.truncate(int(units[0]["phy_offset"]))

    def _load_index(self, end: int, *, exited_ok: bool, rejoins: bool = False) -> None:
        if self._config.message_index_enable:
            safe = self._checkpoint.index_msg_timestamp
            self._index.load(exited_ok=exited_ok, safe_timestamp=safe)
            dropped = self._index.drop_beyond(end)
            # Only hands delete an index in use; without a key there never was one.
            lost = not self._index.has_files and (not rejoins or safe > 0)
            self._index_lacks_some = dropped > 0 or not exited_ok or lost

    def _dispatch_start(self, found: RecoveryResult, *, crashed: bool) -> int:
        """Where the derived files may begin to lack something; dispatching twice is harmless."""
        starts = [found.max_phy_offset, self._queues.max_phy_offset()]
        if crashed and found.start_scanned_at is not None:
            starts.append(found.start_scanned_at)
        if self._index_lacks_some:
            starts.append(self._index.rebuild_from)
        return max(min(starts), found.min_phy_offset)

    def _dispatch_rest(self, start: int, end: int) -> None:
        report = self._progress("dispatch")
        count = dispatch_range(
            self._source,
            start,
            end,
            self._extractor,
            self._dispatchers(),
            lambda at: report(at - start, end - start),
        )
        if count:
            log.info("dispatched %s records from %s to %s again", count, start, end)
        self._queues.publish_all(min_phy_offset=self._counters[MIN_PHY_OFFSET])
        self._counters[DISPATCHED_OFFSET] = end

    def _dispatchers(
        self,
    ) -> tuple[ConsumeQueueTable, ...] | tuple[ConsumeQueueTable, IndexService]:
        if self._config.message_index_enable:
            return self._queues, self._index
        return (self._queues,)

    def _progress(self, what: str) -> Callable[[int, int], None]:
        """A progress callback: beats, and a log line now and then."""
        last_ms = self._clock.monotonic_ms()

        def report(done: int, total: int) -> None:
            nonlocal last_ms
            self._page.beat_starting(ProcessIndex.STORE)
            now_ms = self._clock.monotonic_ms()
            if now_ms - last_ms >= 1_000:
                last_ms = now_ms
                log.info("recovery: %s: %s of %s", what, done, total)

        return report

    # -- services ------------------------------------------------------------------------------

    def _build_services(self) -> None:
        """In start order; they stop in the reverse order."""
        config, counters = self._config, self._counters
        self._flush = self._build_flush()
        self._sleeper = StoreSleeper(self._page, self._bell, self._clock, self._flush.wakeup)
        self._reput = ReputMessageService(
            self._source,
            self._extractor,
            self._dispatchers(),
            is_slave=lambda: config.is_slave,
            publish=self._publish_dispatched,
            on_dispatched=self._set_dispatched_timestamp,
            sleeper=self._sleeper,
            pace_ms=(lambda: 0.0) if self._flushes_at_once else self._sleeper.pace_ms,
            on_failure=self._on_failure,
            flags=self._flags,
        )
        self._reput.reput_from_offset = counters[DISPATCHED_OFFSET]
        self._allocate = AllocateMappedFileService(
            config.commit_log_path,
            config.mapped_file_size_commit_log,
            self._flags,
            writer_position=lambda: counters[MAX_PHY_OFFSET],
            publish=self._publish_allocated,
            populates_for=_REPLICA_POPULATES_FOR if config.is_slave else math.inf,
            on_failure=self._on_failure,
        )
        if self._has_begun():
            # A writer that lives may go on into any file that a dead store had made for it.
            self._allocate.begin_at(max(counters[MAX_PHY_OFFSET], counters[ALLOCATED_END]))
        self._clean_log = CleanCommitLogService(
            config,
            self._flags,
            self._clock,
            keep_from=self._keep_from,
            publish_min_offset=self._publish_min_offset,
            on_failure=self._on_failure,
        )
        self._services = [
            self._allocate,
            self._flush,
            self._build_queue_flush(),
            self._clean_log,
            self._build_queue_clean(),
            self._reput,
        ]

    def _has_begun(self) -> bool:
        """False for a slave without a file: its log begins where its master's does."""
        counters = self._counters
        return (
            not self._config.is_slave
            or counters[MAX_PHY_OFFSET] > 0
            or counters[ALLOCATED_END] > 0
            or bool(list_store_files(self._config.commit_log_path))
        )

    def _build_flush(self) -> FlushRealTimeService | GroupCommitService:
        config, counters = self._config, self._counters
        self._flusher = LogFlusher(
            config.commit_log_path,
            config.mapped_file_size_commit_log,
            self._checkpoint,
            flushed_offset=self._flushed_from,
            max_phy_offset=lambda: counters[MAX_PHY_OFFSET],
            store_timestamp=self._flushable_timestamp,
            publish=self._publish_flushed,
        )
        counters[FLUSHED_OFFSET] = self._flushed_from
        if self._flushes_at_once:
            return GroupCommitService(
                self._flusher, lambda: counters[SYNC_FLUSH_WANTED], on_failure=self._on_failure
            )
        return FlushRealTimeService(self._flusher, config, self._clock, on_failure=self._on_failure)

    def _flushable_timestamp(self) -> int:
        """Store timestamp (ms) of the newest record that the next flush brings to disk. A slave's
        writer knows no records: there it is the newest dispatched one, or what was on disk before.
        """
        if self._config.is_slave:
            return max(self._dispatched_timestamp, self._checkpoint.physic_msg_timestamp)
        return self._counters[STORE_TIMESTAMP]

    def _build_queue_flush(self) -> FlushConsumeQueueService:
        config = self._config
        return FlushConsumeQueueService(
            self._queues,
            self._clock,
            interval_ms=config.flush_interval_consume_queue,
            least_pages=config.flush_consume_queue_least_pages,
            thorough_interval_ms=config.flush_consume_queue_thorough_interval,
            dispatched_timestamp=lambda: self._dispatched_timestamp,
            on_flushed=self._queues_flushed,
            on_failure=self._on_failure,
        )

    def _build_queue_clean(self) -> CleanConsumeQueueService:
        self._clean_queues = CleanConsumeQueueService(
            self._queues,
            self._index,
            min_phy_offset=lambda: self._counters[MIN_PHY_OFFSET],
            interval_ms=self._config.clean_resource_interval,
            pause_ms=self._config.delete_consume_queue_files_interval,
            on_failure=self._on_failure,
        )
        return self._clean_queues

    def start(self) -> None:
        """Start the services."""
        for service in self._services:
            service.start()

    # -- what the services publish -------------------------------------------------------------

    def _publish_dispatched(self, phy_offset: int) -> None:
        self._page.beat(ProcessIndex.STORE)
        self._counters[DISPATCHED_OFFSET] = phy_offset
        self._ring_for_moves()
        self._allocate.log_grows()
        self._sleeper.look_for_flush()

    def _set_dispatched_timestamp(self, timestamp_ms: int) -> None:
        self._dispatched_timestamp = timestamp_ms

    def _publish_flushed(self, phy_offset: int) -> None:
        self._counters[FLUSHED_OFFSET] = phy_offset
        self._ring_readers()
        self._ring_replicator()

    def _publish_allocated(self, end: int) -> None:
        self._counters[ALLOCATED_END] = end
        self._ring_readers()
        self._ring_replicator()

    def _publish_min_offset(self, phy_offset: int) -> None:
        self._counters[MIN_PHY_OFFSET] = phy_offset

    def _keep_from(self) -> int:
        """The file of the last byte stays; so does what is not dispatched or not flushed yet."""
        counters, size = self._counters, self._config.mapped_file_size_commit_log
        end = min(counters[MAX_PHY_OFFSET], counters[DISPATCHED_OFFSET], counters[FLUSHED_OFFSET])
        last = max(end - 1, 0)
        return last - last % size

    def _queues_flushed(self, timestamp_ms: int) -> None:
        if timestamp_ms:
            self._checkpoint.logics_msg_timestamp = timestamp_ms
        self._checkpoint.flush()

    def _index_flushed(self, timestamp_ms: int) -> None:
        self._checkpoint.index_msg_timestamp = timestamp_ms
        self._checkpoint.flush()

    # -- commands (main thread) ----------------------------------------------------------------

    def delete_topic(self, topic: str, barrier: int, deadline_ms: int) -> int:
        """Delete the queues of `topic` once the log is dispatched up to `barrier`.

        Returns how many queues. Raises TimeoutError: dispatch is too far behind.
        """
        while self._counters[DISPATCHED_OFFSET] < barrier:
            if self._clock.monotonic_ms() >= deadline_ms:
                behind = barrier - self._counters[DISPATCHED_OFFSET]
                raise TimeoutError(f"dispatch is {behind} bytes behind; try again")
            self._pause.wait(_BARRIER_STEP_MS / 1000)
        return self._queues.delete_topic(topic)

    def begin_log(self, phy_offset: int, deadline_ms: int) -> None:
        """A slave's log, which has no byte yet, begins at `phy_offset`, a file's start. Its
        writer waits meanwhile (ReplicaLog.unbegin) and goes there afterwards (begin); said again,
        it changes nothing.

        Raises StoreError: it holds bytes already, is no slave's, or the offset is no file's start;
        TimeoutError.
        """
        counters, size = self._counters, self._config.mapped_file_size_commit_log
        if not self._config.is_slave:
            raise StoreError(f"begin at {phy_offset}: the log is a master's")
        if phy_offset % size:
            raise StoreError(f"begin at {phy_offset}: no start of a file of {size} bytes")
        if counters[MAX_PHY_OFFSET] > counters[MIN_PHY_OFFSET]:
            raise StoreError(
                f"begin at {phy_offset}: the log holds "
                f"[{counters[MIN_PHY_OFFSET]}, {counters[MAX_PHY_OFFSET]})"
            )
        self._allocate.begin_at(phy_offset)
        while self._allocate.is_beginning:
            if self._clock.monotonic_ms() >= deadline_ms:
                raise TimeoutError(f"begin at {phy_offset}: the allocation is busy; try again")
            self._pause.wait(_BARRIER_STEP_MS / 1000)
        if not self._allocate.begins_at(phy_offset):
            raise StoreError(f"begin at {phy_offset}: there are files with bytes; see store.log")
        # Nobody looks below min, and nothing is there to flush or to dispatch.
        self._flusher.begin_at(phy_offset)
        self._reput.reput_from_offset = phy_offset
        counters[FLUSHED_OFFSET] = counters[DISPATCHED_OFFSET] = phy_offset
        counters[MIN_PHY_OFFSET] = phy_offset
        log.info("the log begins at %s", phy_offset)

    def clean_consume_queue(self) -> int:
        """306: delete queues whose records are all gone; returns how many."""
        return self._queues.delete_expired_queues(self._counters[MIN_PHY_OFFSET], _SPARED_TOPICS)

    def clean_commit_log(self) -> None:
        """329: delete expired files now, whatever the hour."""
        self._clean_log.execute_delete_files_manually()

    def change_retention(self, config: MessageStoreConfig) -> None:
        """Files go by the retention settings of `config` from now on. Raises StoreError."""
        self._clean_log.use_rules(RetentionRules.of(config))

    # -- stopping ------------------------------------------------------------------------------

    def shutdown(self, *, writer_has_stopped: bool) -> None:
        """Stop the services in the reverse order; say that the store is whole when it is.

        writer_has_stopped: False keeps the abort file, since the log may still grow.
        """
        results = [service.shutdown() for service in reversed(self._services)]
        stopped = all(results)
        failed = any(service.failure is not None for service in self._services)
        if self._config.message_index_enable:
            self._index.shutdown()
        self._queues.close()
        self._checkpoint.flush()
        if writer_has_stopped and stopped and not failed and self._config.is_slave:
            self._cut_unfinished_record()
        behind = self._counters[MAX_PHY_OFFSET] - self._counters[DISPATCHED_OFFSET]
        if writer_has_stopped and stopped and not failed and behind == 0:
            self._allocate.delete_unused_files()
            self._write_clean_exit()
            delete_abort(self._config.abort_path)
            log.info("the store is closed at %s", self._counters[MAX_PHY_OFFSET])
        else:
            log.warning("closed without a clean exit (%s bytes not dispatched)", behind)
        self._counters[STORE_STATE] = StoreState.STOPPED
        self._source.close()

    def _cut_unfinished_record(self) -> None:
        """What a slave has received may end within a record: the next start asks for it again."""
        counters = self._counters
        start, end = counters[DISPATCHED_OFFSET], counters[MAX_PHY_OFFSET]
        if start >= end:
            return
        records, following = read_chunk(self._source, start, end, end - start, self._extractor)
        if following != start or records.end is ScanEnd.INVALID:
            return
        config = self._config
        position = start % config.mapped_file_size_commit_log
        path = config.commit_log_path / file_name(start - position)
        zero_range(path, position, position + end - start)
        counters[MAX_PHY_OFFSET] = counters[APPEND_END] = counters[FLUSHED_OFFSET] = start
        log.info("the log ended within a record: cut from %s to %s", end, start)

    def _write_clean_exit(self) -> None:
        config, low = self._config, self._counters[MIN_PHY_OFFSET]
        save_queue_states(config.queue_states_path, self._queues, low)
        files = MappedFileQueue(config.commit_log_path, config.mapped_file_size_commit_log)
        files.refresh()
        word = describe_exit(
            files,
            max_phy_offset=self._counters[MAX_PHY_OFFSET],
            dispatched_offset=self._counters[DISPATCHED_OFFSET],
            queue_count=len(self._queues),
        )
        files.close()
        if word is not None:
            write_clean_exit(config.clean_exit_path, word)
