"""StoreOpening: brings the store from files on disk to a state that services can continue from.

Runs on the main thread of process `store` before its services. Two ways: a *fresh* start recovers
the log before any writer exists (recovery.py finds its end), truncates the derived files to it and
dispatches what they lack; a *rejoin* (this process alone was restarted) leaves the log to its
living writer and continues where the control page says. Corresponds to
DefaultMessageStore.load / recover of RocketMQ. It knows no services.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ipc.clock import Clock
from ipc.control_page import ControlPage, ProcessIndex
from ipc.queue_table import QueueTableWriter
from store.cache_repair import CacheRepair
from store.clean_exit import (
    CleanExit,
    create_abort,
    machine_went_down,
    read_clean_exit,
    remove_clean_exit,
)
from store.consume_queue import ConsumeQueue
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
    StoreState,
)
from store.controller_mode import RoleNow
from store.derived_files import DerivedFiles
from store.dledger.unfinished_import import refuse_unfinished, take_over_queue_ends
from store.known_directories import KnownDirectories
from store.log_dispatch import dispatch_range
from store.log_fences import NO_FENCES, LogFences, check_fences_place
from store.mapped_file import make_directory
from store.mapped_file_queue import MappedFileQueue
from store.message_store_config import MessageStoreConfig
from store.queue_states import QueueStates, StatesCount, load_queue_states
from store.queue_tails import known_end
from store.recovery import LogClues, RecoveryMode, RecoveryResult, recover_commit_log
from store.replica_resync import perform_request
from store.resync_request import REQUEST_NAME
from store.short_file_service import complete_short_files
from store.store_checkpoint import StoreCheckpoint
from store.store_progress import StoreProgress
from store.stored_units import CQ_UNIT_SIZE
from store.truncated_files import find_holes
from store.unit_check import is_right

log = logging.getLogger(__name__)

_PAGE_SIZE: Final = 4096
_ALL: Final = 1 << 62
_MOST_WRONG: Final = 100
"""With so many wrong units at its end a queue is built anew."""


class StoreOpening:
    """See the module. Used once, by the main thread of process `store`."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        derived: DerivedFiles,
        progress: StoreProgress,
        clock: Clock,
    ) -> None:
        self._config = config
        self._page = page
        self._counters = page.counters
        self._derived = derived
        self._queues = derived.queues
        self._batch_queues = derived.batch_queues
        self._progress = progress
        self._role = progress.role
        self._clock = clock
        self._states = QueueStates()
        """Of the last clean stop."""
        self._index_incomplete = False
        """Keys may be missing from the index: dispatch starts where it must be built again."""

    @property
    def _checkpoint(self) -> StoreCheckpoint:
        return self._progress.checkpoint

    def open(self) -> int:
        """Recover, or rejoin a living writer; returns up to where the log is flushed.

        The control page then describes the log and the queue table the queues. Raises StoreError,
        OSError.
        """
        rejoins = self._counters[STORE_STATE] == StoreState.READY
        repair = CacheRepair(self._config, self._beat)
        known = KnownDirectories(self._config.root, self._config.log_directories)
        if not rejoins:
            if (self._config.root / REQUEST_NAME).exists():
                repair.rewrite_files()
            perform_request(self._config, self._beat)
            known.check()
            refuse_unfinished(self._config.root)
            check_fences_place(self._config.log_directories)
        self._config.log_directories.make()
        make_directory(self._config.consume_queue_path)
        self._progress.load_checkpoint(rejoins=rejoins)
        flushed = self._rejoin(repair) if rejoins else self._recover(repair)
        repair.finish()
        known.remember()
        return flushed

    def _beat(self) -> None:
        self._page.beat_starting(ProcessIndex.STORE)

    # -- a fresh start -------------------------------------------------------------------------

    def _recover(self, repair: CacheRepair) -> int:
        config = self._config
        self._counters[STORE_STATE] = StoreState.RECOVERING
        if self._derived.light_files is not None:
            self._derived.light_files.forget_unwritten()
        crashed = config.abort_path.exists()
        lost_pages = machine_went_down(config.abort_path)
        crashed_here = crashed and config.abort_path.stat().st_size > 0
        clean_exit = None if crashed else read_clean_exit(config.clean_exit_path)
        files = MappedFileQueue(config.log_directories, config.mapped_file_size_commit_log)
        files.load()
        keeper = self._derived.damage.keeper
        fences = keeper.fences if keeper.load() else None
        found = recover_commit_log(
            files,
            self._checkpoint,
            RecoveryMode.ABNORMAL if crashed else RecoveryMode.NORMAL,
            LogClues(
                now_ms=self._clock.now_ms(),
                clean_exit=clean_exit,
                fences=fences,
                is_replica=_counts_as_replica(self._role, clean_exit),
                known_end=known_end(config, files, clean_exit),
            ),
            check_crc=config.check_crc_on_recover,
            index_safe=config.writes_index and config.message_index_safe,
            progress=self._report_progress("commit log"),
        )
        files.close()
        self._mark_open()
        self._publish_log(found)
        with_units = self._checkpoint.logics_physical_offset
        keeper.replace_all(found.fences)
        count = StatesCount.FOR_OFFSETS if found.trusted else StatesCount.AT_LEAST
        if crashed and not lost_pages:
            count = StatesCount.IF_UNTOUCHED
        units_from = None
        if repair.is_due:
            # Their units the disk perhaps lacks, too: the first flush of the queues brings them.
            units_from = max(_flushed_with_units(repair, found) or 0, found.min_phy_offset)

        def finish(queue: ConsumeQueue, was_read: bool) -> None:
            queue.truncate(found.max_phy_offset)
            if was_read:
                self._drop_wrong_end(queue)
            if units_from is not None:
                queue.write_again(units_from)

        self._load_queues(count, finish, add_missing=found.trusted or crashed_here)
        self._batch_queues.recover(found.max_phy_offset, self._derived.source)
        if not found.trusted:
            self._derived.damage.blank_out()
        if units_from is not None:
            self._write_log_again(repair, found)
            self._batch_queues.write_again(units_from)
        index_is_whole = not lost_pages and repair.failure is None
        self._load_index(found.max_phy_offset, exited_ok=index_is_whole)
        end = _begin_role(self._role, self._progress, self._derived)
        start = self._dispatch_start(found, crashed=crashed)
        if clean_exit is not None and found.trusted and _lacks_some(clean_exit, self._derived):
            start = found.min_phy_offset
        if crashed:
            self._drop_torn_units(start)
        self._dispatch_again(self._queues.take_doubtful(), start)
        self._batch_queues.dispatch_doubtful(start, found.min_phy_offset)
        self._batch_queues.convert(start)
        dispatched = self._dispatch_rest(start, end)
        if self._checkpoint.logics_physical_offset < with_units:
            # On disk, too: a crash could leave it to RocketMQ, which would believe it.
            self._progress.write_checkpoint()
        self._derived.damage.reserve(dispatched)
        take_over_queue_ends(config.root, self._queues.reserve, self._derived.flush_queues)
        if found.fences:
            self._queues.reserve_ends(self._states, dispatched)
        self._fill_blanks(fences, found)
        if not found.trusted and found.start_scanned_at is not None and not repair.is_due:
            return found.start_scanned_at
        return found.max_phy_offset

    def _write_log_again(self, repair: CacheRepair, found: RecoveryResult) -> None:
        """What the cache has and the disk perhaps lacks: the log above its last good flush."""
        start = repair.flushed_offset
        if start is None:
            start = _flushed_with_units(repair, found)
        if start is not None:
            repair.rewrite_log(start, found.max_phy_offset)

    def _fill_blanks(self, before: LogFences | None, found: RecoveryResult) -> None:
        """The units of records that can be read again, since damage is no longer where it was."""
        still = {fence.start for fence in found.fences}
        for fence in before or ():
            low, high = max(fence.start, found.min_phy_offset), fence.end
            if fence.start not in still and low < high <= found.max_phy_offset:
                log.warning("commit log: readable again: %s", fence)
                dispatch_range(
                    self._derived.source,
                    low,
                    high,
                    self._derived.extractor,
                    (self._queues.fill_blanks,),
                    fence_off=self._derived.damage.fence_off,
                )

    def _mark_open(self) -> None:
        """From now on the files change: clean.exit is removed, abort exists."""
        config = self._config
        remove_clean_exit(config.clean_exit_path)
        create_abort(config.abort_path, light_queues=self._derived.light_files is not None)

    def _publish_log(self, found: RecoveryResult) -> None:
        counters = self._counters
        counters[MIN_PHY_OFFSET] = found.min_phy_offset
        counters[MAX_PHY_OFFSET] = counters[APPEND_END] = found.max_phy_offset
        counters[LOG_OPENED] = found.max_phy_offset + 1
        counters[STORE_TIMESTAMP] = self._checkpoint.physic_msg_timestamp

    def _dispatch_start(self, found: RecoveryResult, *, crashed: bool) -> int:
        """From where the derived files may be incomplete; dispatching twice is harmless."""
        starts = [found.max_phy_offset, self._derived.max_phy_offset()]
        if self._batch_queues.lacks_all and not found.trusted:
            starts.append(found.min_phy_offset)
        if crashed and found.start_scanned_at is not None:
            starts.append(found.start_scanned_at)
        if self._index_incomplete:
            starts.append(self._derived.index.rebuild_from)
        return max(min(starts), found.min_phy_offset)

    def _drop_wrong_end(self, queue: ConsumeQueue, holes: LogFences = NO_FENCES) -> None:
        """The last unit says where a queue continues: it must name its record, but for one inside
        of a fence, or of `holes`, which will be made blank. Wrong ones are dropped, and the log is
        dispatched again from there."""
        source = self._derived.source
        topic, dropped = queue.topic.encode(), 0
        while queue.bounds.end and dropped < _MOST_WRONG:
            units = queue.read_units(queue.max_offset - 1, 1)
            if not len(units):
                break
            phy_offset, size = int(units[0]["phy_offset"]), int(units[0]["size"])
            place = (topic, queue.queue_id, queue.max_offset - 1)
            fence = source.fences.find(phy_offset) or holes.find(phy_offset)
            if fence is not None or is_right(source, phy_offset, size, *place):
                break
            queue.drop_last()
            dropped += 1
        if dropped == _MOST_WRONG:
            queue.empty()
        if dropped:
            log.error("%r: wrong units at the end were dropped: %s", queue, dropped)
            queue.doubt_end()

    def _drop_torn_units(self, start: int) -> None:
        """A write cut short by SIGKILL ends at a page boundary, perhaps within a unit: a last unit
        across such a boundary is dropped if the dispatch from `start` on builds it again."""
        for queue in self._queues:
            end = queue.bounds.end
            if not end or end % _PAGE_SIZE >= CQ_UNIT_SIZE or end % _PAGE_SIZE == 0:
                continue
            units = queue.read_units(queue.max_offset - 1, 1)
            if len(units) and int(units[0]["phy_offset"]) >= start:
                queue.truncate(int(units[0]["phy_offset"]))
        self._batch_queues.drop_torn_units(start, self._derived.source.fences)

    # -- a rejoin ------------------------------------------------------------------------------

    def _rejoin(self, repair: CacheRepair) -> int:
        """The log has its writer, the queues their readers: only what this process derives is
        loaded again, and the queue table stays correct and readable throughout. What is not
        dispatched yet, perhaps half a record on a slave, is left to ReputMessageService."""
        log.warning("rejoining a running log writer: dispatch continues from the control page")
        counters = self._counters
        # Its predecessor may have died of a file that somebody has truncated, which nobody opens.
        truncated = complete_short_files(
            self._config.log_directories,
            self._config.mapped_file_size_commit_log,
            counters[ALLOCATED_END],
        )
        # The store that died may have seen a flush fail.
        repair.rewrite_log(counters[FLUSHED_OFFSET], counters[MAX_PHY_OFFSET])
        damage = self._derived.damage
        damage.keeper.refresh()
        holes = LogFences(find_holes(self._derived.source, truncated))

        def finish(queue: ConsumeQueue, _was_read: bool) -> None:
            self._drop_wrong_end(queue, holes)
            queue.doubt_disk()

        if self._derived.light_files is not None:
            self._derived.light_files.take_over()
        self._load_queues(StatesCount.AT_LEAST, finish, add_missing=False)
        self._batch_queues.recover(counters[MAX_PHY_OFFSET], self._derived.source, doubts_disk=True)
        self._drop_unpublished_units()
        for hole in holes:
            damage.fence_off(hole.start, hole.end, hole.reason, counters[DISPATCHED_OFFSET])
        self._load_index(counters[MAX_PHY_OFFSET], exited_ok=True, rejoins=True)
        start = max(self._rejoin_start(), counters[MIN_PHY_OFFSET])
        self._dispatch_again(self._queues.take_doubtful(), start)
        self._batch_queues.dispatch_doubtful(start, counters[MIN_PHY_OFFSET])
        self._batch_queues.convert(start)
        if start < counters[DISPATCHED_OFFSET]:
            log.warning("consumequeue or index is incomplete: rebuilding from %s", start)
            self._dispatch_rest(start, counters[DISPATCHED_OFFSET])
        else:
            self._derived.publish_queues()
        return counters[FLUSHED_OFFSET]

    def _rejoin_start(self) -> int:
        """The dispatched offset, or an earlier one from which something was deleted."""
        starts = [self._counters[DISPATCHED_OFFSET]]
        publisher = self._derived.publisher
        for topic, queue_id, _row in publisher:
            max_offset, max_phy_offset = self._derived.queue_end(topic, queue_id)
            if max_offset < publisher.offsets(topic, queue_id)[1]:
                starts.append(max_phy_offset)
        if self._index_incomplete:
            starts.append(self._derived.index.rebuild_from)
        return min(starts)

    def _drop_unpublished_units(self) -> None:
        """Drop the units that were not published: the last may be torn, all are built again."""
        published_of = partial(_published, self._derived.publisher)
        for queue in self._queues:
            published = published_of(queue.topic, queue.queue_id)[1]
            if published < queue.max_offset:
                visible = published > queue.min_offset
                queue.truncate(queue.record_end(published - 1) if visible else 0)
        self._batch_queues.drop_unpublished(published_of)

    # -- both ----------------------------------------------------------------------------------

    def _load_queues(
        self,
        count: StatesCount,
        finish: Callable[[ConsumeQueue, bool], None],
        *,
        add_missing: bool,
    ) -> None:
        """finish: see ConsumeQueueTable.recover."""
        self._states = load_queue_states(self._config.queue_states_path)
        self._queues.load()
        self._queues.recover(
            self._report_progress("consume queues"),
            finish,
            min_phy_offset=self._counters[MIN_PHY_OFFSET],
            states=self._states,
            count=count,
            add_missing=add_missing,
            complete_until_ms=self._checkpoint.logics_msg_timestamp,
        )

    def _load_index(self, end: int, *, exited_ok: bool, rejoins: bool = False) -> None:
        if not self._config.writes_index:
            return
        index, safe = self._derived.index, self._checkpoint.index_msg_timestamp
        index.load(exited_ok=exited_ok, safe_timestamp=safe)
        dropped = index.drop_beyond(end)
        # An index in use is only ever deleted by hand; without a key there never was one.
        lost = not index.has_files and (not rejoins or safe > 0)
        self._index_incomplete = dropped > 0 or not exited_ok or lost

    def _dispatch_again(self, queues: Mapping[ConsumeQueue, int], end: int) -> None:
        """Have the units of `queues`, each from a log position on, made again up to `end`. Other
        queues stay as they are: a deleted topic's must not come back."""
        low = self._counters[MIN_PHY_OFFSET]
        start = max(min(queues.values(), default=end), low)
        if start >= end:
            return
        self._checkpoint.units_end_at(start)
        log.warning(
            "units may be missing in %s consume queues: looking for them in the log from %s to %s",
            len(queues),
            start,
            end,
        )
        report = self._report_progress("consume queues")
        dispatch_range(
            self._derived.source,
            start,
            end,
            self._derived.extractor,
            (lambda records: self._queues.dispatch(records, queues),),
            lambda at: report(at - start, end - start),
            fence_off=self._derived.damage.fence_off,
        )

    def _dispatch_rest(self, start: int, end: int) -> int:
        """Up to where all is dispatched: `end`, or the start of the record that it lies within."""
        report = self._report_progress("dispatch")
        self._checkpoint.units_end_at(start)
        reached = start

        def note(at: int) -> None:
            nonlocal reached
            reached = at
            report(at - start, end - start)

        count = dispatch_range(
            self._derived.source,
            start,
            end,
            self._derived.extractor,
            self._derived.dispatchers(),
            note,
            fence_off=self._derived.damage.fence_off,
        )
        if count:
            log.info("dispatched %s records from %s to %s again", count, start, end)
        if start > self._counters[MIN_PHY_OFFSET]:
            self._dispatch_again(self._queues.empty_late_starters(), reached)
            if self._counters[STORE_STATE] != StoreState.READY:
                low = self._counters[MIN_PHY_OFFSET]
                self._batch_queues.mend_gaps(reached, low, self._derived.source.fences)
        self._derived.publish_queues()
        self._counters[DISPATCHED_OFFSET] = reached
        return reached

    def _report_progress(self, what: str) -> Callable[[int, int], None]:
        """A progress callback: beats, and a log line at most every second."""
        last_ms = self._clock.monotonic_ms()

        def report(done: int, total: int) -> None:
            nonlocal last_ms
            self._beat()
            now_ms = self._clock.monotonic_ms()
            if now_ms - last_ms >= 1_000:
                last_ms = now_ms
                log.info("recovery: %s: %s of %s", what, done, total)

        return report


def _counts_as_replica(role: RoleNow, clean_exit: CleanExit | None) -> bool:
    """Whether what is missing at the log's end comes from a master. In controller mode nobody knows
    yet who will be one, but a log that was closed was whole: what it lacks is damage, and others
    have nothing to put in its place."""
    return role.is_slave() and not (role.is_controlled and clean_exit is not None)


def _begin_role(role: RoleNow, progress: StoreProgress, derived: DerivedFiles) -> int:
    """Up to where the log is dispatched now. What the check point says of a log that has lost its
    end would hold for other records soon. Raises DiskFullError, FlushFailedError."""
    stored = progress.checkpoint.confirm_offset
    end = role.begin(stored, derived.source.min_phy_offset, derived.max_phy_offset())
    if role.is_controlled and end < stored:
        progress.write_checkpoint()
    return end


def _flushed_with_units(repair: CacheRepair, found: RecoveryResult) -> int | None:
    """Up to where log and units are on disk, by the checkpoint: after a flush that failed somewhere
    it says nothing about the queues."""
    return found.flushed_offset if repair.failure is None else found.start_scanned_at


def _lacks_some(clean_exit: CleanExit, derived: DerivedFiles) -> bool:
    """Whether queues, or units of batch queues, were deleted since the last stop."""
    missing = clean_exit.queue_count - len(derived.queues)
    missing_units = clean_exit.batch_unit_count - derived.batch_queues.unit_count
    if missing > 0:
        log.warning("%s consume queues are missing", missing)
    if missing_units > 0:
        log.warning("%s units of batch consume queues are missing", missing_units)
        derived.batch_queues.empty_late_starters(derived.source.min_phy_offset)
    return missing > 0 or missing_units > 0


def _published(publisher: QueueTableWriter, topic: str, queue_id: int) -> tuple[int, int]:
    """Min and max offset; of a queue that the full table has no row for, anything: what is not
    dispatched again must not be dropped."""
    if publisher.find_row(topic, queue_id) is None and not publisher.has_room(
        1, len(topic.encode())
    ):
        return 0, _ALL
    return publisher.offsets(topic, queue_id)
