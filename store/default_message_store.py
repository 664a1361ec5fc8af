"""DefaultMessageStore: the `store` process' side of the store, put together.

Constructs, opens, starts and stops the keeper of the mapped files: opening (store_opening.py),
dispatch, flush, allocation, retention, closing (store_closing.py). It never appends to the commit
log. Only broker/processes/store.py and tests use it. Corresponds to DefaultMessageStore.load /
start / shutdown of RocketMQ.
"""

from __future__ import annotations

import errno
import functools
import logging

from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableReader
from ipc.service_thread import FailureHandler, ServiceThread
from store.allocate_mapped_file_service import AllocateMappedFileService
from store.clean_commit_log_service import CleanCommitLogService
from store.clean_consume_queue_service import CleanConsumeQueueService
from store.clean_exit import machine_went_down
from store.closed_file_scrubber import ClosedFileScrubber
from store.compaction.compaction_store import CompactionStore
from store.compaction.followed_queues import FindTopics, FollowedQueues
from store.control_slots import (
    ALLOCATED_END,
    DISPATCHED_OFFSET,
    EMERGENCY_BYTES,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    REPAIRED_RANGES,
    STORE_STATE,
    StoreState,
    refuse_writes,
)
from store.derived_files import DerivedFiles
from store.dispatch_pace import DispatchPace
from store.emergency_space import EmergencySpace
from store.errors import DiskFullError, FlushFailedError
from store.flush_consume_queue_service import FlushConsumeQueueService
from store.flush_failure import UNKNOWN, note_flush_failure
from store.flush_services import build_flush
from store.known_directories import KnownDirectories
from store.log_cut import FlushedEnd
from store.log_damage import LogDamage
from store.log_dispatch import LogDispatch
from store.log_flusher import LogFlusher
from store.log_repair import LogRepair
from store.log_start import LogStart
from store.mapped_file import NO_SPACE
from store.mapped_file_queue import list_store_files
from store.message_store_config import FlushDiskType, MessageStoreConfig
from store.queue_deletion import QueueDeletion
from store.rebuild_consume_queue_service import RebuildConsumeQueueService
from store.reput_message_service import ReputMessageService
from store.resync_backups import CleanBackupsService
from store.running_flags import RunningFlags
from store.scrub_service import ScrubService
from store.short_file_service import ShortFileService
from store.store_closing import cut_incomplete_record, mark_clean_exit
from store.store_opening import StoreOpening
from store.store_progress import StoreBells, StoreProgress
from store.store_sleeper import StoreSleeper
from store.timer.timer_enqueue import CountEntered
from store.timer.timer_message_store import TimerMessageStore
from store.timer.timer_queue import TimerQueue

log = logging.getLogger(__name__)


class DefaultMessageStore:
    """See the module. Owned by: the main thread of process `store`, which also serves the
    commands: `queue_deletion`, `log_start`, `flushed_end`, `log_repair`, `rebuild`, `scrub`,
    `scrubber` and `clean_commit_log` exist once it is open.
    """

    queue_deletion: QueueDeletion
    log_start: LogStart
    flushed_end: FlushedEnd
    log_repair: LogRepair
    rebuild: RebuildConsumeQueueService
    clean_commit_log: CleanCommitLogService
    scrub: ScrubService
    scrubber: ClosedFileScrubber

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        queue_table_fd: int,
        bells: StoreBells,
        clock: Clock,
        on_failure: FailureHandler,
        *,
        find_compaction_topics: FindTopics | None = None,
        count_timers: CountEntered = lambda topics: None,
    ) -> None:
        """find_compaction_topics: None where there are none. count_timers: told of the timers that
        were entered; thread TimerMessageStore."""
        self._config = config
        self._page = page
        self._counters = page.counters
        self._queue_table_fd = queue_table_fd
        self._bell = bells.own
        self._clock = clock
        self._on_failure = self._noting(on_failure)
        self._count_timers = count_timers
        self._flags = RunningFlags(functools.partial(refuse_writes, page))
        self._emergency = EmergencySpace(
            config,
            self._flags,
            publish=functools.partial(page.counters.__setitem__, EMERGENCY_BYTES),
            on_failure=self._on_failure,
        )
        self._known = KnownDirectories(config.root, config.log_directories)
        self._progress = StoreProgress(config, page, bells)
        self._role = self._progress.role
        self._derived = DerivedFiles(
            config, page, queue_table_fd, clock, self._progress.index_flushed
        )
        self._compaction = (
            None
            if find_compaction_topics is None or not config.enable_compaction
            else self._build_compaction(find_compaction_topics)
        )
        self._services: list[ServiceThread] = []

    def open(self) -> None:
        """Recover, or rejoin a living writer; afterwards the log may be written.

        Raises StoreError, OSError.
        """
        rejoins = self._counters[STORE_STATE] == StoreState.READY
        may_lack_bytes = not rejoins and machine_went_down(self._config.abort_path)
        flush_failed = self._config.fsync_failed_path.exists()
        opening = StoreOpening(self._config, self._page, self._derived, self._progress, self._clock)
        try:
            self._emergency.open()
            self._build_services(flushed_from=opening.open())
            if self._derived.light_files is not None:
                self._derived.light_files.defers = True
            self.clean_commit_log.refuse_if_full()
            if self._compaction is not None:
                self._compaction.open(check_all=may_lack_bytes, rewrite=flush_failed)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            raise DiskFullError(
                f"{error.filename or self._config.root}: {error.strerror}: the start has to write "
                f"some small files; free space on the partition of {self._config.root}"
            ) from error
        except FlushFailedError as error:
            # Up to where the log was flushed is what the next start finds out, or what was noted.
            note_flush_failure(self._config.fsync_failed_path, error, UNKNOWN)
            raise
        self._counters[STORE_STATE] = StoreState.READY
        self._progress.ring_readers()

    def start(self) -> None:
        """Start the services."""
        for service in self._services:
            service.start()

    def shutdown(self, *, writer_has_stopped: bool) -> None:
        """Stop the services in the reverse order; mark the store as whole when it is.

        writer_has_stopped: False keeps the abort file, since the log may still grow, and leaves the
        store open to who reads it: the next process `store` rejoins. Raises FlushFailedError: the
        abort file stays.
        """
        try:
            self._shut_down(writer_has_stopped)
        except (FlushFailedError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EIO:
                raise
            self._note(error)
            raise FlushFailedError(f"closing the store failed: {error}") from error

    def _shut_down(self, writer_has_stopped: bool) -> None:
        """Without room on the disk it ends like a crash: the next start recovers."""
        try:
            self._close(writer_has_stopped)
        except (DiskFullError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in NO_SPACE:
                raise
            log.error("closed without a clean exit; the next start recovers the store: %s", error)
            if writer_has_stopped:
                self._counters[STORE_STATE] = StoreState.STOPPED

    def _close(self, writer_has_stopped: bool) -> None:
        derived = self._derived
        for each in self._services:
            if isinstance(each, FlushConsumeQueueService):
                each.write_in_time()
        results = [service.shutdown() for service in reversed(self._services)]
        units, written = derived.unwritten_units()
        results.append(units == written)
        failed = any(service.failure is not None for service in self._services)
        self._emergency.look_once()
        self._derived.close()
        self._progress.write_checkpoint()
        is_final = writer_has_stopped and all(results) and not failed
        if is_final and self._role.is_slave() and not self._role.is_controlled:
            cut_incomplete_record(self._config, self._page, self._derived)
        if is_final and self._services and self._dispatch.is_through:
            self._allocate.delete_unused_files()
            mark_clean_exit(self._config, self._page, self._derived)
            log.info("the store is closed at %s", self._counters[MAX_PHY_OFFSET])
        else:
            behind = self._counters[MAX_PHY_OFFSET] - self._counters[DISPATCHED_OFFSET]
            log.warning("closed without a clean exit (%s bytes not dispatched)", behind)
        if writer_has_stopped:
            # Who finds it stopped recovers the log: beside a living writer that would cut records.
            self._counters[STORE_STATE] = StoreState.STOPPED
        self._derived.source.close()

    def _noting(self, on_failure: FailureHandler) -> FailureHandler:
        """on_failure, which may not return; a failed flush is written down before."""

        def handle(service: ServiceThread, error: Exception) -> None:
            if isinstance(error, FlushFailedError):
                self._note(error)
            on_failure(service, error)

        return handle

    def _note(self, error: Exception) -> None:
        path = self._config.fsync_failed_path
        self._emergency.look_once()
        note_flush_failure(path, error, self._counters[FLUSHED_OFFSET])

    # -- services ------------------------------------------------------------------------------

    def _build_services(self, flushed_from: int) -> None:
        """In start order; they stop in the reverse order."""
        self._flusher = self._build_flusher(flushed_from)
        self._flush = build_flush(
            self._flusher, self._config, self._page, self._role, self._clock, self._on_failure
        )
        look = (lambda: self.log_start.begin_to_lead()) if self._role.is_controlled else None
        self._sleeper = StoreSleeper(self._page, self._bell, self._flush.wakeup, look)
        is_sync = self._config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        pace = None if is_sync else DispatchPace(self._page, self._clock)
        self._dispatch = self._build_dispatch(pace)
        reput = ReputMessageService(
            self._dispatch,
            self._sleeper,
            pace=pace,
            on_failure=self._on_failure,
            flags=self._flags,
            make_room=self._emergency.release,
        )
        self._allocate = self._build_allocate()
        self.clean_commit_log = CleanCommitLogService(
            self._config,
            self._flags,
            self._clock,
            keep_from=lambda: min(
                [self._progress.keep_from(), *(each.keep_from for each in self._followers())]
            ),
            publish_min_offset=self._progress.publish_min_offset,
            known=self._known,
            on_failure=self._on_failure,
        )
        self.log_repair = LogRepair(
            self._config.log_directories,
            self._config.mapped_file_size_commit_log,
            self._new_damage(),
            self._derived.queues,
            self._derived.new_extractor(),
            self._repaired,
        )
        self.scrubber = ClosedFileScrubber(
            self._config,
            self._page,
            self._derived.new_source(),
            self._new_damage(),
            self.log_repair,
            self._clock,
        )
        self.scrub = ScrubService(
            self._config, self._page, self.scrubber, self._clock, on_failure=self._on_failure
        )
        self.rebuild = RebuildConsumeQueueService(
            self._derived.queues,
            self._derived.new_source(),
            self._derived.new_extractor(),
            self._page,
            self._clock,
            on_failure=self._on_failure,
        )
        self._timers = self._build_timers()
        self._services = [
            self._emergency,
            self._allocate,
            self._flush,
            self._build_queue_flush(),
            self.rebuild,
            self.clean_commit_log,
            self.scrub,
            self._build_queue_clean(),
            CleanBackupsService(self._config, self._clock, on_failure=self._on_failure),
            ShortFileService(
                self._config.log_directories,
                self._config.mapped_file_size_commit_log,
                allocated_end=lambda: self._counters[ALLOCATED_END],
                on_failure=self._on_failure,
            ),
            *self._followers(),
            reput,
        ]
        self.queue_deletion = QueueDeletion(
            self._derived.queues,
            self._derived.batch_queues,
            self._page,
            self._clock,
            self._compaction,
        )
        self.log_start = LogStart(
            self._config,
            self._page,
            self._role,
            self._clock,
            self._allocate,
            self._flusher,
            self._dispatch,
        )
        self.flushed_end = FlushedEnd(self._page, self._role, self._flusher, self._progress)

    def _followers(self) -> list[TimerMessageStore | CompactionStore]:
        """What copies records that are dispatched: the log stays until they have."""
        compaction = [] if self._compaction is None else [self._compaction]
        return [*self._timers, *compaction]

    def _build_compaction(self, find_topics: FindTopics) -> CompactionStore:
        return CompactionStore(
            self._config,
            self._page,
            self._derived.queues,
            FollowedQueues(
                self._config,
                QueueTableReader(self._queue_table_fd),
                self._derived.new_source(),
                find_topics,
                lambda *place: self.rebuild.request(*place),
                self._role,
            ),
            self._flags,
            self._clock,
            self._progress.ring_for_moves,
            on_failure=self._on_failure,
        )

    def _build_timers(self) -> list[TimerMessageStore]:
        if not self._config.timer_wheel_enable:
            return []
        config, page = self._config, self._page
        queue = TimerQueue(config, page, QueueTableReader(self._queue_table_fd), self._role)
        ring = self._progress.ring_readers
        return [
            TimerMessageStore(
                config,
                page,
                queue,
                self._flags,
                self._clock,
                ring,
                count_entered=self._count_timers,
                on_failure=self._on_failure,
            )
        ]

    def _new_damage(self) -> LogDamage:
        """For another thread than that of dispatch."""
        derived = self._derived
        return LogDamage(derived.damage.keeper, derived.queues, derived.new_source())

    def _repaired(self, start: int) -> None:
        self._counters[REPAIRED_RANGES] += 1
        self.scrub.recheck(start)

    def _build_flusher(self, flushed_from: int) -> LogFlusher:
        self._counters[FLUSHED_OFFSET] = flushed_from
        return LogFlusher(
            self._config.log_directories,
            self._config.mapped_file_size_commit_log,
            self._progress.checkpoint,
            flushed_offset=flushed_from,
            max_phy_offset=lambda: self._counters[MAX_PHY_OFFSET],
            store_timestamp=self._progress.flushable_timestamp,
            publish=self._progress.publish_flushed,
        )

    def _build_dispatch(self, pace: DispatchPace | None) -> LogDispatch:
        derived, ring_for_moves = self._derived, self._progress.ring_for_moves
        dispatch = LogDispatch(
            derived.source,
            derived.careful_dispatch(ring_for_moves),
            self._publish_dispatched,
            role=self._role,
            pace=pace,
            dispatch_few=derived.few_records(ring_for_moves).dispatch,
            fence_off=derived.damage.fence_off,
        )
        dispatch.reput_from_offset = self._counters[DISPATCHED_OFFSET]
        return dispatch

    def _publish_dispatched(self, phy_offset: int, store_timestamp: int | None) -> None:
        if store_timestamp is not None:
            self._progress.set_dispatched_timestamp(store_timestamp)
        self._progress.publish_dispatched(phy_offset)
        self._allocate.log_grows()
        for timers in self._timers:
            timers.log_grows()
        if self._compaction is not None and self._compaction.is_active:
            self._compaction.wakeup()
        self._sleeper.look_for_flush()

    def _build_allocate(self) -> AllocateMappedFileService:
        counters = self._counters
        allocate = AllocateMappedFileService(
            self._config,
            self._flags,
            writer_position=lambda: counters[MAX_PHY_OFFSET],
            publish=self._progress.publish_allocated,
            allows=self._emergency.allows_log_file,
            is_full=lambda path: self.clean_commit_log.is_full(path),
            known=self._known,
            on_failure=self._on_failure,
        )
        if self._has_started():
            # A living writer may continue into any file that a dead store had created for it.
            allocate.begin_at(max(counters[MAX_PHY_OFFSET], counters[ALLOCATED_END]))
        return allocate

    def _has_started(self) -> bool:
        """False for a slave without a file: its log starts where its master's does."""
        counters = self._counters
        return (
            not self._role.is_slave()
            or counters[MAX_PHY_OFFSET] > 0
            or counters[ALLOCATED_END] > 0
            or bool(list_store_files(self._config.log_directories))
        )

    def _build_queue_flush(self) -> FlushConsumeQueueService:
        return FlushConsumeQueueService(
            self._config,
            self._derived,
            self._clock,
            dispatched_offset=lambda: self._counters[DISPATCHED_OFFSET],
            dispatched_timestamp=lambda: self._progress.dispatched_timestamp,
            on_flushed=self._progress.queues_flushed,
            begins_with_all=(
                self._progress.checkpoint.logics_physical_offset < self._counters[DISPATCHED_OFFSET]
            ),
            on_failure=self._on_failure,
        )

    def _build_queue_clean(self) -> CleanConsumeQueueService:
        return CleanConsumeQueueService(
            self._derived.clean_queues,
            self._derived.index.delete_expired,
            min_phy_offset=lambda: self._counters[MIN_PHY_OFFSET],
            interval_ms=self._config.clean_resource_interval,
            pause_ms=self._config.delete_consume_queue_files_interval,
            on_failure=self._on_failure,
        )
