"""MessageStoreConfig: the settings of the store, with RocketMQ's names and defaults.

Filled by `conf.config_loader`; replaced whole when an admin request changes a key. Plain values and
what is derived from them (paths: store/store_paths.py, parsed lists); `validate` finds
contradictions. Kin: org.apache.rocketmq.store.config.MessageStoreConfig.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conf.config_fields import AFTER_RESTART, NOW, computed, setting
from store.compaction.compaction_config import CompactionConfig
from store.delay_levels import parse_delay_levels
from store.errors import StoreError
from store.log_directories import LogDirectories
from store.store_paths import StorePaths

CQ_ENTRY_SIZE: Final = 20
BATCH_UNIT_SIZE: Final = 46
_HOUR: Final = re.compile(r"\d{1,2}", re.ASCII)
_RECORD_MARGIN: Final = 65_536
_READ_ONLY: Final = "readOnlyCommitLogStorePaths"


class BrokerRole(enum.StrEnum):
    """What the broker is in its group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDiskType(enum.StrEnum):
    """Whether a send is answered before or after its bytes are on disk."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


def _default_root() -> str:
    return str(Path.home() / "store")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStoreConfig(StorePaths, CompactionConfig):
    """Keys of MessageStoreConfig that this store honours."""

    # fmt: off
    # Where things are.
    store_path_root_dir: str = setting(computed(_default_root, "~/store"),
        "root directory of the store", important=True)
    store_path_commit_log: str | None = setting(None,
        "commit log directory, or several separated by ',' (docs/log_directories.md); unset: "
        "<storePathRootDir>/commitlog", important=True)
    read_only_commit_log_store_paths: str | None = setting(None,
        "read-only commit log directories (same separator)")
    rocketmq_broker_multi_path_splitter: str = setting(",",
        "what separates several directories; RocketMQ's system property",
        key="rocketmq.broker.multiPathSplitter")
    # Sizes of files. They belong to the store's data: never change them under existing files.
    mapped_file_size_commit_log: int = setting(1 << 30,
        "size of a commit log file, the same on all replicas", unit="bytes", ge=1024, le=2147483647)
    mapped_file_size_consume_queue: int = setting(6_000_000,
        "size of a consumequeue file, rounded up to whole entries of 20 bytes",
        unit="bytes", ge=20, le=2147483647)
    mapper_file_size_batch_consume_queue: int = setting(13_800_000,
        "size of a batchconsumequeue file", unit="bytes", ge=46, le=2147483647)
    max_hash_slot_num: int = setting(5_000_000, "hash slots of an index file", ge=1, le=50000000)
    max_index_num: int = setting(20_000_000, "entries of an index file", ge=2, le=100000000)
    # Messages.
    max_message_size: int = setting(4 << 20,
        "largest message body", unit="bytes", ge=10, le=67108864, changeable=AFTER_RESTART)
    message_delay_level: str = setting("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "delay of each level (s, m, h, d), the same on master and slaves")
    flush_delay_offset_interval: int = setting(10_000,
        "pause between saves of delayOffset.json", unit="ms", ge=1, changeable=AFTER_RESTART)
    auto_message_version_on_topic_len: bool = setting(True,
        "allow retry topics of pop with 128 to 255 bytes, as V2 records, which no 4.9 broker reads")
    # Light message queues: of the store's data, the same on all replicas.
    enable_lmq: bool = setting(False,
        "light message queues: topics and groups named %LMQ%… exist without being created")
    enable_multi_dispatch: bool = setting(False,
        "messages that name light queues (INNER_MULTI_DISPATCH) are dispatched to them; needs "
        "enableLmq; the same on all replicas")
    max_lmq_consume_queue_num: int = setting(20_000,
        "most light queues; messages that would need one more are refused", ge=0)
    enable_lmq_quota: bool = setting(False,
        "they are refused as by 5.5 (2017, of which proxies make an error of their own), instead "
        "of as by 5.3 (1)")
    # Role and durability.
    broker_role: BrokerRole = setting(BrokerRole.ASYNC_MASTER,
        "role; run-time changes only between the two master roles",
        important=True, changeable=AFTER_RESTART)
    flush_disk_type: FlushDiskType = setting(FlushDiskType.ASYNC_FLUSH,
        "whether a send waits until its message is on disk",
        important=True, changeable=AFTER_RESTART)
    sync_flush_timeout: int = setting(5000,
        "longest wait of a SYNC_FLUSH send", unit="ms", ge=1, changeable=AFTER_RESTART)
    slave_timeout: int = setting(3000,
        "longest wait of a SYNC_MASTER send", unit="ms", ge=1, changeable=AFTER_RESTART)
    ha_slave_fallbehind_max: int = setting(256 << 20,
        "lag from which a slave no longer counts as in sync", unit="bytes", ge=0)
    offset_check_in_slave: bool = setting(False,
        "slaves also correct pull offsets", changeable=AFTER_RESTART)
    sync_master_flush_offset_when_startup: bool = setting(False,
        "a slave that has no masterFlushedOffset takes it from its master (906)")
    flush_interval_commit_log: int = setting(500,
        "ASYNC_FLUSH: pause between flushes",
        unit="ms", ge=1, important=True, changeable=AFTER_RESTART)
    flush_commit_log_least_pages: int = setting(4,
        "ASYNC_FLUSH skips a flush of fewer unflushed pages",
        unit="4 KiB pages", ge=0, changeable=AFTER_RESTART)
    flush_commit_log_thorough_interval: int = setting(10_000,
        "ASYNC_FLUSH flushes however few pages after this time",
        unit="ms", ge=0, changeable=AFTER_RESTART)
    flush_interval_consume_queue: int = setting(1000,
        "pause between flushes of consumequeues", unit="ms", ge=1, changeable=AFTER_RESTART)
    flush_consume_queue_least_pages: int = setting(2,
        "a consumequeue with fewer unflushed pages is skipped",
        unit="4 KiB pages", ge=0, changeable=AFTER_RESTART)
    flush_consume_queue_thorough_interval: int = setting(60_000,
        "all consumequeues and the checkpoint are flushed after this time",
        unit="ms", ge=0, changeable=AFTER_RESTART)
    check_crc_on_recover: bool = setting(True,
        "verify the CRC of message bodies during recovery",
        key="checkCRCOnRecover", changeable=AFTER_RESTART)
    # Index and queries.
    message_index_enable: bool = setting(True,
        "maintain the key index", important=True, changeable=AFTER_RESTART)
    index_file_write_enable: bool = setting(True,
        "the index files are written; false: as without messageIndexEnable",
        changeable=AFTER_RESTART)
    index_file_read_enable: bool = setting(True,
        "messages are looked for in the index files (12); false: none is found",
        changeable=AFTER_RESTART)
    message_index_safe: bool = setting(False,
        "start recovery at the index's checkpoint at the latest",
        important=True, changeable=AFTER_RESTART)
    max_msgs_num_batch: int = setting(64,
        "most messages returned by a key query", ge=1, changeable=AFTER_RESTART)
    default_query_max_num: int = setting(32,
        "most messages returned by a unique-key query", ge=1, changeable=AFTER_RESTART)
    # Pulls.
    max_transfer_bytes_on_message_in_memory: int = setting(262_144,
        "size of a pull from memory", unit="bytes", ge=1, important=True, changeable=NOW)
    max_transfer_count_on_message_in_memory: int = setting(32,
        "messages of a pull from memory", ge=1, important=True, changeable=NOW)
    max_transfer_bytes_on_message_in_disk: int = setting(65_536,
        "size of a pull from disk", unit="bytes", ge=1, important=True, changeable=NOW)
    max_transfer_count_on_message_in_disk: int = setting(8,
        "messages of a pull from disk", ge=1, important=True, changeable=NOW)
    os_page_cache_busy_time_out_mills: int = setting(1000,
        "reject waiting sends at once if the log has stalled for longer",
        unit="ms", ge=0, changeable=AFTER_RESTART)
    access_message_in_memory_max_ratio: int = setting(40,
        "share of RAM whose newest messages count as in memory",
        unit="percent", ge=0, le=100, important=True, changeable=AFTER_RESTART)
    # Cold data (docs/cold_data.md).
    cold_data_flow_control_enable: bool = setting(False,
        "slow groups that read many old messages from the disk", changeable=NOW)
    access_message_in_memory_hot_ratio: int = setting(26,
        "share of RAM whose newest messages never count as cold", unit="percent", ge=0, le=100)
    cold_data_scan_enable: bool = setting(False,
        "with coldDataFlowControlEnable: older ones are cold only if the page cache lacks them",
        changeable=NOW)
    timer_cold_data_check_interval_ms: int = setting(60_000,
        "pause between two checks of the page cache", unit="ms", ge=100, changeable=NOW)
    sample_steps: int = setting(32, "sample every n-th page; values below 1 mean 32")
    data_read_ahead_enable: bool = setting(True,
        "let the kernel read ahead where consumers read the commit log; mqadmin "
        "setCommitLogReadAheadMode sets it, too", changeable=NOW)
    # Retention.
    delete_when: str = setting("04",
        "hours of the day, separated by ';', in which expired files are deleted",
        important=True, changeable=NOW)
    ha_backup_reserved_hours: int = setting(72,
        "age at which backups that a slave's re-sync has made are deleted; 0: never",
        unit="hours", ge=0)
    file_reserved_time: int = setting(72,
        "age at which commit log files expire", unit="hours", ge=0, important=True, changeable=NOW)
    disk_max_used_space_ratio: int = setting(75,
        "disk usage from which expired files are deleted at any hour; limited to 10..95",
        unit="percent", ge=0, le=100, changeable=NOW)
    disk_space_warning_level_ratio: int = setting(90,
        "disk usage from which sends are rejected; limited to 35..90",
        unit="percent", ge=0, le=100, changeable=NOW)
    disk_space_clean_forcibly_ratio: int = setting(85,
        "disk usage from which unexpired files are deleted; limited to 30..85",
        unit="percent", ge=0, le=100, changeable=NOW)
    emergency_reserved_bytes: int = setting(64 << 20,
        "space on the disk that is kept for consume queues and offsets when it is full; at most a "
        "twentieth of the partition and one commit log file; 0: none", unit="bytes", ge=0)
    clean_file_forcibly_enable: bool = setting(True,
        "delete unexpired files when the disk is almost full", important=True, changeable=NOW)
    clean_resource_interval: int = setting(10_000,
        "interval between retention checks", unit="ms", ge=1, changeable=AFTER_RESTART)
    delete_commit_log_files_interval: int = setting(100,
        "pause between deleted commit log files", unit="ms", ge=0, changeable=AFTER_RESTART)
    delete_consume_queue_files_interval: int = setting(100,
        "pause between deleted consumequeue files", unit="ms", ge=0, changeable=AFTER_RESTART)
    delete_file_batch_max: int = setting(10,
        "most commit log files deleted in one pass", ge=1, changeable=NOW)

    # Scrub.
    scrub_bytes_per_second: int = setting(2 << 20,
        "rate at which closed commit log files are read again in search of damage; 0: never",
        unit="bytes", ge=0, changeable=AFTER_RESTART)
    scrub_interval_hours: int = setting(168,
        "time between the starts of two scrubs of the whole commit log",
        unit="hours", ge=1, changeable=AFTER_RESTART)

    # Timers.
    timer_wheel_enable: bool = setting(True,
        "messages may name the time of their delivery", changeable=AFTER_RESTART)
    timer_precision_ms: int = setting(1000,
        "times of delivery are rounded to this; it belongs to the store's data",
        unit="ms", ge=100, le=60_000)
    timer_roll_window_slot: int = setting(172_800,
        "a longer delay passes the timer topic again after this time; outside of 2 to 604740: "
        "604740", unit="times timerPrecisionMs", changeable=AFTER_RESTART)
    mapped_file_size_timer_log: int = setting(104_857_600,
        "size of a timer log file", unit="bytes", ge=1024, le=2147483647)
    timer_flush_interval_ms: int = setting(1000,
        "pause between flushes of the timer files, if they have changed",
        unit="ms", ge=1, changeable=AFTER_RESTART)

    timer_max_delay_sec: int = setting(259_200,
        "longest delay of a message that names a time", unit="s", ge=1, changeable=NOW)
    timer_congest_num_each_slot: int = setting(2_147_483_647,
        "messages due within one timerPrecisionMs from which some are refused; all from twice as "
        "many", ge=1, changeable=NOW)
    timer_stop_enqueue: bool = setting(False,
        "timer messages are stored, but not entered into the wheel", changeable=NOW)
    timer_stop_dequeue: bool = setting(False, "timer messages are not delivered", changeable=NOW)
    append_topic_for_timer_delete_key: bool = setting(True,
        "a recall is stored as RocketMQ 5.3.3 reads it; false: as 5.5 does (its own default). Here "
        "both are read: it matters to a Java slave, or broker that takes the store over",
        changeable=NOW)
    # fmt: on

    def __post_init__(self) -> None:
        entries = -(-self.mapped_file_size_consume_queue // CQ_ENTRY_SIZE)
        object.__setattr__(self, "mapped_file_size_consume_queue", entries * CQ_ENTRY_SIZE)
        units = -(-self.mapper_file_size_batch_consume_queue // BATCH_UNIT_SIZE)
        object.__setattr__(self, "mapper_file_size_batch_consume_queue", units * BATCH_UNIT_SIZE)

    # -- paths ---------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The root directory, with ~ expanded."""
        return Path(self.store_path_root_dir).expanduser()

    @property
    def commit_log_path(self) -> Path:
        """Directory of the commit log, of several the first: our own files about it lie beside."""
        return self.log_directories.first

    @property
    def log_directories(self) -> LogDirectories:
        """All directories of the commit log."""
        named = self._paths(self.store_path_commit_log) or [self.root / "commitlog"]
        read_only = self._paths(self.read_only_commit_log_store_paths)
        return LogDirectories(tuple(named), tuple(read_only))

    def _paths(self, text: str | None) -> list[Path]:
        words = (text or "").split(self.rocketmq_broker_multi_path_splitter or ",")
        return list(
            dict.fromkeys(Path(word.strip()).expanduser() for word in words if word.strip())
        )

    # -- derived values ------------------------------------------------------------------------

    @property
    def delete_hours(self) -> frozenset[int]:
        """Local hours of deleteWhen. Raises StoreError."""
        words = [word.strip() for word in self.delete_when.split(";") if word.strip()]
        if not all(_HOUR.fullmatch(word) and int(word) < 24 for word in words):
            raise StoreError(
                f"deleteWhen = {self.delete_when}: expected hours 00..23 separated by ';'"
            )
        return frozenset(map(int, words))

    @property
    def delay_level_ms(self) -> dict[int, int]:
        """Level (from 1) to delay. Raises StoreError."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def writes_index(self) -> bool:
        """Whether keys of messages are written to the index files."""
        return self.message_index_enable and self.index_file_write_enable

    @property
    def timer_max_delay_ms(self) -> int:
        """The longest delay of a timer, and of what pops keep invisible."""
        return self.timer_max_delay_sec * 1000

    @property
    def is_slave(self) -> bool:
        """Whether the log comes from a master."""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def dispatches_lmq(self) -> bool:
        """Whether records get places in light queues."""
        return self.enable_lmq and self.enable_multi_dispatch

    @property
    def max_record_size(self) -> int:
        """Most bytes of one record."""
        return self.max_message_size + _RECORD_MARGIN

    def validate(self) -> None:
        """Find contradictions. Raises StoreError that names the key and the way out."""
        self._check_log_directories()
        _ = self.delete_hours, self.delay_level_ms
        if self.enable_multi_dispatch and not self.enable_lmq:
            raise StoreError(
                "enableMultiDispatch = true without enableLmq = true: set both, or neither (%LMQ%…)"
            )
        if self.disk_space_clean_forcibly_ratio > self.disk_space_warning_level_ratio:
            raise StoreError(
                f"diskSpaceCleanForciblyRatio = {self.disk_space_clean_forcibly_ratio} is above "
                f"diskSpaceWarningLevelRatio = {self.disk_space_warning_level_ratio}: sends would "
                "be refused before space is made; lower the first"
            )

    def _check_log_directories(self) -> None:
        directories = self.log_directories
        if not directories.writable:
            raise StoreError(
                f"readOnlyCommitLogStorePaths = {self.read_only_commit_log_store_paths}: "
                "storePathCommitLog names no other directory, so none could get new files"
            )
        others = (
            *(self.consume_queue_path, self.batch_consume_queue_path, self.compaction_path),
            *(self.index_path, self.config_path, self.root),
        )
        for path in directories:
            if path.absolute() in map(Path.absolute, others):
                key = "storePathCommitLog" if path in directories.named else _READ_ONLY
                raise StoreError(
                    f"{key} = {path} is used for other files; give the log a directory of its own"
                )
