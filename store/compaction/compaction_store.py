"""CompactionStore: copies what is sent to compaction topics into their logs, and compacts these.

A thread of process `store`, the only writer of what is under compaction/. It follows the consume
queues of the topics as dispatch builds them, so that everything can be derived again from where a
log ends, as long as the commit log has it; which is kept until the copy is on disk (`keep_from`). A
compaction runs in slices between two looks at the queues. On a slave it does the same with the
slave's own files. Corresponds to RocketMQ's CompactionStore and CompactionService.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.service_thread import FailureHandler, ServiceThread
from store.compaction.compaction_files import CompactionDirectories, FileSizes, list_logs
from store.compaction.compaction_log import CompactionLog
from store.compaction.compaction_run import CompactionRun
from store.compaction.compaction_slots import (
    COMPACTION_BEHIND,
    COMPACTION_BYTES_AFTER,
    COMPACTION_BYTES_BEFORE,
    COMPACTION_ENDED_MS,
    COMPACTION_KEYLESS,
    COMPACTION_LOGS,
    COMPACTION_RECORDS,
    COMPACTIONS,
    COMPACTIONS_FAILED,
)
from store.compaction.followed_queues import FollowedQueues
from store.compaction.position_checkpoint import PositionCheckpoint
from store.compaction.sparse_units import NO_UNIT
from store.consume_queue_files import is_safe_topic
from store.consume_queue_table import ConsumeQueueTable
from store.control_slots import DISPATCHED_OFFSET, FLUSHED_OFFSET
from store.errors import DiskFullError, FlushFailedError, StoreError
from store.message_store_config import MessageStoreConfig
from store.put_aside import ReadBy, RecordGuard
from store.running_flags import RunningFlag, RunningFlags

log = logging.getLogger(__name__)

_IDLE_MS: Final = 500
_PACE_MS: Final = 2
_DISK_FULL_RETRY_MS: Final = 1_000
_FINISH_MS: Final = 2_000

_Key = tuple[str, int]


class CompactionStore(ServiceThread):
    """See the module. Guarded by: `_lock`, held for a round; `keep_from` is read by any thread."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        queues: ConsumeQueueTable,
        followed: FollowedQueues,
        flags: RunningFlags,
        clock: Clock,
        ring: Callable[[], None],
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """queues: where it publishes. ring: wakes who waits for queues to move."""
        super().__init__("CompactionStore", on_failure=on_failure)
        self._config = config
        self._root: Path = config.compaction_path
        self._sizes = FileSizes.of(
            config.compaction_mapped_file_size, config.compaction_cq_mapped_file_size
        )
        self._counters = page.counters
        self._queues = queues
        self._followed = followed
        self._flags = flags
        self._clock = clock
        self._ring = ring
        self._lock = threading.Lock()
        self._positions = PositionCheckpoint(self._root / "position-checkpoint")
        self._logs: dict[_Key, CompactionLog] = {}
        self._current: tuple[CompactionLog, CompactionRun, Iterator[None]] | None = None
        self._flushed_at_ms = clock.monotonic_ms()
        self._keep_from = 0
        self._record_guard = RecordGuard(ReadBy.COMPACTION)

    @property
    def keep_from(self) -> int:
        """Commit log files that end behind this offset hold records that are not on disk in their
        compaction log. Any thread."""
        return self._keep_from

    @property
    def topics(self) -> frozenset[str]:
        """The compaction topics, as they were found last. Any thread."""
        return self._followed.topics

    @property
    def is_active(self) -> bool:
        """Whether there is anything to follow. Any thread."""
        return bool(self._followed.topics)

    # -- the start -----------------------------------------------------------------------------

    def open(self, *, check_all: bool, rewrite: bool = False) -> None:
        """Open the logs that there are; main thread, before the start, the consume queues are
        published. check_all: what was not flushed may be lost; rewrite: a flush has failed. Raises
        StoreError, OSError."""
        self._positions.load()
        self._followed.find_topics()
        for topic, queue_id in list_logs(self._root):
            if self._is_deleted(topic, queue_id):
                log.warning(
                    "compaction log %s/%s: ignored, there is no such topic", topic, queue_id
                )
            else:
                self._open_log(topic, queue_id, check_all=check_all, rewrite=rewrite)
        self._followed.note_all()

    def _is_deleted(self, topic: str, queue_id: int) -> bool:
        """Java deletes a topic without its logs. When there is a message of a new one of the name,
        such a log is found to be of another queue."""
        is_known = topic in self._followed.topics or self._followed.role.is_slave()
        return not is_known and self._followed.bounds(topic, queue_id)[1] == 0

    def _open_log(
        self, topic: str, queue_id: int, *, check_all: bool = False, rewrite: bool = False
    ) -> CompactionLog:
        found = CompactionLog(
            CompactionDirectories.of(self._root, topic, queue_id),
            self._sizes,
            topic,
            queue_id,
            self._positions,
            self._queues.publish_compacted,
            generation=self._followed.compacted_generation(topic, queue_id) + 1,
        )
        low, high = self._followed.bounds(topic, queue_id)
        found.open(check_all=check_all, copied_again_from=low if high else NO_UNIT, rewrite=rewrite)
        self._agree_with_queue(found)
        found.publish()
        found.put_off(self._clock, self._config.compaction_schedule_internal)
        self._logs[topic, queue_id] = found
        self._counters[COMPACTION_LOGS] = len(self._logs)
        return found

    def _agree_with_queue(self, found: CompactionLog) -> None:
        """A log that ends behind its queue: the commit log has lost the last records, or the queue
        was deleted. One that is of a deleted queue begins anew."""
        topic, queue_id = found.topic, found.queue_id
        _low, high = self._followed.bounds(topic, queue_id)

        def stored_ms(queue_offset: int) -> int:
            return self._followed.stored_ms(topic, queue_id, queue_offset)

        if found.max_offset <= high:
            if not found.belongs_to(stored_ms):
                log.warning("%r: belongs to a deleted queue; starting over", found)
                found.cut(0, stored_ms)
        elif high:
            found.cut(high, stored_ms)
        elif topic in self._followed.topics and self._followed.role.may_lead:
            log.warning("%r: consume queue lost; it will continue at %s", found, found.max_offset)
            self._queues.reserve(topic, queue_id, found.max_offset)

    # -- the loop ------------------------------------------------------------------------------

    def step(self) -> None:
        """One round, then a rest."""
        try:
            taken, is_busy = self._round()
        except DiskFullError as error:
            self._flags.set(RunningFlag.DISK_FULL, str(error), by=self.name)
            self.wait_for_running(_DISK_FULL_RETRY_MS)
            return
        self._flags.clear(RunningFlag.DISK_FULL, "compaction logs grow again", by=self.name)
        if not is_busy:
            self.wait_for_running(_PACE_MS if taken else _IDLE_MS)

    def _round(self) -> tuple[int, bool]:
        """How many records were taken, and whether a compaction goes on."""
        with self._lock:
            try:
                taken = self._follow()
                self._flush_sometimes()
                return taken, self._compact_some()
            except DiskFullError:
                self._give_up_run()
                raise

    def finish(self) -> None:
        """At an orderly stop: what is dispatched is taken, everything flushed. Where that would
        take long, the next start goes on."""
        deadline_ms = self._clock.monotonic_ms() + _FINISH_MS
        try:
            with self._lock:
                self._followed.note_all()
                while self._follow() and self._clock.monotonic_ms() < deadline_ms:
                    pass
                self._flush()
        except DiskFullError as error:
            log.error("compaction logs could not be flushed; the next start recovers: %s", error)
        self._give_up_run()
        for each in self._logs.values():
            each.close()
        self._followed.close()

    def delete_topic(self, topic: str, delete_queues: Callable[[], int]) -> int:
        """Delete the logs of a topic, then its queues; returns what delete_queues does. In this
        order a crash leaves queues that are followed again, not a log without its queue, which a
        new topic of that name would go on with. Any thread. Raises StoreError, OSError."""
        with self._lock:
            if self._current is not None and self._current[0].topic == topic:
                self._give_up_run()
            keys = [key for key in self._logs if key[0] == topic]
            for key in keys:
                self._logs.pop(key).remove()
                self._followed.moved.pop(key, None)
            self._counters[COMPACTION_LOGS] = len(self._logs)
            return delete_queues()

    # -- following -----------------------------------------------------------------------------

    def _follow(self) -> int:
        """Take what the queues have got; returns how many records."""
        dispatched = self._counters[DISPATCHED_OFFSET]
        self._followed.look(self._clock.monotonic_ms())
        taken = 0
        for key in list(self._followed.moved):
            count, is_done = self._take_some(*key)
            taken += count
            if is_done:
                self._followed.moved.pop(key, None)
        if taken:
            self._ring()
        self._publish_progress(dispatched)
        return taken

    def _take_some(self, topic: str, queue_id: int) -> tuple[int, bool]:
        """Take a batch; how many records, and whether nothing more can be had now."""
        low, high = self._followed.bounds(topic, queue_id)
        found = self._logs.get((topic, queue_id))
        if found is not None:
            # What a full disk has kept back; no more is taken before.
            found.publish()
        if high <= (found.next_offset if found is not None else 0) or not is_safe_topic(topic):
            return 0, True
        if found is None:
            found = self._open_log(topic, queue_id)
        if low > found.next_offset:
            log.warning(
                "%r: resuming at %s; earlier records are no longer in the commit log", found, low
            )
            found.skip_to(low)
        start = found.next_offset
        without_key = self._take(found, self._followed.read(topic, queue_id, start, high))
        if without_key:
            log.warning("%r: skipped %s records without a key", found, without_key)
        found.publish()
        taken = found.next_offset - start
        if not taken:
            self._followed.request_rebuild(topic, queue_id, start)
        return taken, found.next_offset >= high

    def _take(self, found: CompactionLog, records: Iterator[tuple[int, int, bytes | None]]) -> int:
        """Returns how many have no key."""
        without_key = taken = 0
        for phy_offset, tags_code, record in records:
            if record is None:
                log.error("%r: skipped %s: damaged or missing", found, found.next_offset)
                found.skip_to(found.next_offset + 1)
            else:
                following = found.next_offset + 1
                with self._record_guard.of(phy_offset):
                    if found.take(record, phy_offset, tags_code):
                        taken += 1
                    else:
                        without_key += 1
                found.skip_to(following)
        self._counters[COMPACTION_RECORDS] += taken
        self._counters[COMPACTION_KEYLESS] += without_key
        return without_key

    def _publish_progress(self, dispatched: int) -> None:
        """dispatched: of before the look at the queues: what came since is behind it."""
        keep_from = dispatched
        behind = 0
        for each in self._logs.values():
            keep_from = min(keep_from, each.pending_phy_offset)
        for topic, queue_id in self._followed.moved:
            found = self._logs.get((topic, queue_id))
            at = 0 if found is None else found.next_offset
            low, high = self._followed.bounds(topic, queue_id)
            if (at := max(at, low)) < high:
                behind += high - at
                phy_offset = self._followed.phy_offset_at(topic, queue_id, at)
                keep_from = min(keep_from, max(phy_offset, 0))
        self._keep_from = keep_from
        self._counters[COMPACTION_BEHIND] = behind

    def _flush_sometimes(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._flushed_at_ms >= self._config.flush_interval_consume_queue:
            self._flushed_at_ms = now_ms
            self._flush()

    def _flush(self) -> None:
        for each in self._logs.values():
            if not each.is_flushed:
                each.flush()

    # -- compaction ----------------------------------------------------------------------------

    def _compact_some(self) -> bool:
        """A slice of the compaction that runs, or the beginning of one that is due; False: none
        is."""
        if self._current is None:
            due = self._find_due()
            if due is not None:
                due.put_off(self._clock, self._config.compaction_schedule_internal)
                self._guard(due, lambda: self._begin(due))
            return self._current is not None
        found, run, steps = self._current
        is_decided = self._guard(found, lambda: self._advance(run, steps))
        if is_decided:
            # What fails now ends the process: the next one does the rest.
            self._put_in_place(found, run)
        return True

    def _guard(self, found: CompactionLog, act: Callable[[], bool]) -> bool:
        """What fails is given up, and tried again when it is due again."""
        try:
            return act()
        except FlushFailedError:
            raise
        except (StoreError, OSError) as error:
            log.error("%r: compaction failed: %s", found, error)
            self._counters[COMPACTIONS_FAILED] += 1
            self._give_up_run()
            return False

    def _find_due(self) -> CompactionLog | None:
        now_ms = self._clock.monotonic_ms()
        found = min(self._logs.values(), key=lambda each: each.due_ms, default=None)
        return found if found is not None and found.due_ms <= now_ms else None

    def _begin(self, found: CompactionLog) -> bool:
        run = found.find_run(self._config.max_offset_map_size, self._counters[FLUSHED_OFFSET])
        if run is not None:
            self._current = found, run, run.steps()
        return False

    def _advance(self, run: CompactionRun, steps: Iterator[None]) -> bool:
        """Whether the result is to be put in place, which is decided then."""
        for _ in steps:
            return False
        run.decide()
        return True

    def _put_in_place(self, found: CompactionLog, run: CompactionRun) -> None:
        found.finish_run(run)
        self._current = None
        self._ring()
        counters = self._counters
        counters[COMPACTION_BYTES_BEFORE] += run.bytes_before
        counters[COMPACTION_BYTES_AFTER] += run.bytes_after
        counters[COMPACTION_ENDED_MS] = self._clock.now_ms()
        counters[COMPACTIONS] += 1

    def _give_up_run(self) -> None:
        if self._current is None:
            return
        found, run, _steps = self._current
        self._current = None
        try:
            run.close()
            found.give_up_run()
        except OSError as error:
            log.warning(
                "%r: cannot remove what a compaction wrote, the next one will: %s", found, error
            )
