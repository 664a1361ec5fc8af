"""A store whose timers are entered by hand, by a clock that stands still."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ipc.bell import Bell
from ipc.clock import SystemClock
from ipc.control_page import ControlPage, ProcessIndex
from ipc.queue_table import QueueTableReader, create_queue_table
from ipc.service_thread import ServiceThread
from store.commit_log import CommitLog, own_record
from store.commit_log_reader import CommitLogReader
from store.control_slots import ALLOCATED_END, DISPATCHED_OFFSET, MAX_PHY_OFFSET
from store.controller_mode import FixedRole, RoleNow
from store.default_message_store import DefaultMessageStore
from store.message_codec import encode_host
from store.message_store_config import MessageStoreConfig
from store.running_flags import RunningFlags
from store.store_progress import StoreBells
from store.timer.timer_log import TimerLogReader, TimerUnit
from store.timer.timer_message_store import TimerMessageStore
from store.timer.timer_queue import TIMER_TOPIC, TimerQueue
from store.timer.timer_slots import TIMER_READ_TIME_MS
from store.timer.timer_wheel import TimerWheelReader
from store.topic_queue_table import rebuild_topic_queue_table
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import close_page, close_table, fresh_page

HOST = encode_host("127.0.0.1", 10911)
START_MS = 1_700_000_000_000


class TimerLife:
    """One life of a broker; `timers` is stepped by hand, the rest of the store runs."""

    def __init__(
        self,
        root: Path,
        *,
        clock: ManualClock | None = None,
        page: ControlPage | None = None,
        is_slave: bool = False,
        role: RoleNow | None = None,
        **settings: Any,
    ) -> None:
        """is_slave: the timers believe so; the log is written here all the same. role: or this."""
        defaults: dict[str, Any] = {
            "mapped_file_size_commit_log": 65_536,
            "mapped_file_size_consume_queue": 20_000,
            "mapped_file_size_timer_log": 2_048,
            "max_hash_slot_num": 100,
            "max_index_num": 400,
            "disk_max_used_space_ratio": 95,
            "flush_interval_commit_log": 10,
            "flush_commit_log_thorough_interval": 20,
        }
        self.config = MessageStoreConfig(
            store_path_root_dir=str(root), **{**defaults, **settings}, timer_wheel_enable=False
        )
        self.clock = clock or ManualClock(START_MS)
        self.page = page or fresh_page()
        self.counters = self.page.counters
        self.role = role or FixedRole(self.page, is_slave=is_slave)
        self.table_fd = create_queue_table()
        self.table = QueueTableReader(self.table_fd)
        self.bell_fd = Bell.create()
        self.failures: list[Exception] = []
        self.rings = 0
        bell = Bell(self.page, ProcessIndex.STORE, self.bell_fd)
        self.store = DefaultMessageStore(
            self.config,
            self.page,
            self.table_fd,
            StoreBells(bell, lambda: None),
            SystemClock(),
            self._fail,
        )
        self.store.open()
        self.store.start()
        size = self.config.mapped_file_size_commit_log
        self.log = CommitLog(self.config.commit_log_path, size, self.page, self.clock, bell.ring)
        self.reader = CommitLogReader(self.config.commit_log_path, size, self.page)
        rebuild_topic_queue_table(self.log, self.page, self.table, self.reader)
        self.log.open(HOST)
        self.timers = self.new_timers()

    def new_timers(self) -> TimerMessageStore:
        """As a restarted process `store` makes it."""
        return TimerMessageStore(
            self.config,
            self.page,
            self._queue(),
            RunningFlags(lambda flags, reason: None),
            self.clock,
            ring_delivery=self._ring,
        )

    def _queue(self) -> TimerQueue:
        return TimerQueue(self.config, self.page, self.table, self.role)

    def _ring(self) -> None:
        self.rings += 1

    def _fail(self, service: ServiceThread, error: Exception) -> None:
        self.failures.append(error)

    def put(self, *outs_ms: int, topic: str = "T", more: str = "") -> None:
        """Timer records with these TIMER_OUT_MS."""
        for out_ms in outs_ms:
            wait_until(lambda: self.counters[ALLOCATED_END] > self.log.position + 10_000)
            self.log.now_ms = self.clock.now_ms()
            text = f"TIMER_OUT_MS\x01{out_ms}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010{more}"
            record = own_record(
                0,
                b"x" * 100,
                text.encode(),
                now_ms=self.clock.now_ms(),
                store_host=HOST,
                store_host_flag=0,
            )
            self.log.append(self.log.topic(TIMER_TOPIC), (record,))
            self.log.commit()
        wait_until(lambda: self.counters[DISPATCHED_OFFSET] == self.counters[MAX_PHY_OFFSET])

    def run(self) -> None:
        """Until there is nothing to do."""
        while self.timers.run_once():
            pass

    def deliver(self, read_ms: int) -> None:
        """The delivery has left all slots before."""
        self.counters[TIMER_READ_TIME_MS] = read_ms

    def waiting(self, start_ms: int = 0) -> dict[int, list[TimerUnit]]:
        """By slot time: the units, oldest first."""
        wheel = TimerWheelReader(self.config.timer_wheel_path, self.config.timer_precision_ms)
        log = TimerLogReader(self.config.timer_log_path, self.config.mapped_file_size_timer_log)
        found = {}
        for time_ms in wheel.used_slots(start_ms or START_MS - 86_400_000):
            slot = wheel.slot(time_ms)
            assert slot is not None
            found[time_ms] = list(log.chain(slot.last_pos))[::-1]
        wheel.close()
        log.close()
        return found

    def offsets(self, start_ms: int = 0) -> dict[int, list[int]]:
        """By slot time: which records, by their number."""
        reader = self._queue()
        found = {
            time_ms: [reader.offset_behind(unit.phy_offset) - 1 for unit in units]
            for time_ms, units in self.waiting(start_ms).items()
        }
        reader.close()
        return found

    def stop(self) -> None:
        """An orderly stop of all."""
        self.timers.finish()
        self.kill()

    def kill(self) -> None:
        """The processes are gone; what was written to files stays."""
        self.log.close()
        self.store.shutdown(writer_has_stopped=True)
        self.reader.close()
        close_table(self.table)
        os.close(self.table_fd)
        os.close(self.bell_fd)
        assert self.failures == []
        close_page(self.page)
