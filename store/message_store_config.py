"""MessageStoreConfig: the settings of the store, with the original's names and defaults.

Filled by `conf.config_loader`, which reads the fields' metadata ("key": Java's name); replaced
whole when an admin request changes a key. Plain values and what follows from them (paths, parsed
lists); `validate` finds contradictions. Kin: org.apache.rocketmq.store.config.MessageStoreConfig.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from store.errors import StoreError

CQ_ENTRY_SIZE: Final = 20
_MS_OF_UNIT: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY: Final = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_HOUR: Final = re.compile(r"\d{1,2}", re.ASCII)
_RECORD_MARGIN: Final = 65_536


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
class MessageStoreConfig:
    """Keys of MessageStoreConfig that this store honours."""

    # Where things are.
    store_path_root_dir: str = field(
        default_factory=_default_root,
        metadata={
            "key": "storePathRootDir",
            "doc": "root directory of the store",
            "important": True,
        },
    )
    store_path_commit_log: str | None = field(
        default=None,
        metadata={
            "key": "storePathCommitLog",
            "doc": "commit log directory, one; unset: <storePathRootDir>/commitlog",
            "important": True,
        },
    )
    # Sizes of files. They belong to the store's data: never change them under existing files.
    mapped_file_size_commit_log: int = field(
        default=1 << 30,
        metadata={
            "key": "mappedFileSizeCommitLog",
            "doc": "size of a commit log file, the same on master and slaves",
            "unit": "bytes",
            "min": 1024,
            "max": 2147483647,
        },
    )
    mapped_file_size_consume_queue: int = field(
        default=6_000_000,
        metadata={
            "key": "mappedFileSizeConsumeQueue",
            "doc": "size of a consumequeue file, rounded up to whole entries of 20",
            "unit": "bytes",
            "min": 20,
            "max": 2147483647,
        },
    )
    max_hash_slot_num: int = field(
        default=5_000_000,
        metadata={
            "key": "maxHashSlotNum",
            "doc": "hash slots of an index file",
            "min": 1,
            "max": 50000000,
        },
    )
    max_index_num: int = field(
        default=20_000_000,
        metadata={
            "key": "maxIndexNum",
            "doc": "entries of an index file",
            "min": 2,
            "max": 100000000,
        },
    )
    # Messages.
    max_message_size: int = field(
        default=4 << 20,
        metadata={
            "key": "maxMessageSize",
            "doc": "largest message body",
            "unit": "bytes",
            "min": 10,
            "max": 67108864,
        },
    )
    message_delay_level: str = field(
        default="1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        metadata={
            "key": "messageDelayLevel",
            "doc": "delay of each level, the same on master and slaves (s, m, h, d)",
        },
    )
    flush_delay_offset_interval: int = field(
        default=10_000,
        metadata={
            "key": "flushDelayOffsetInterval",
            "doc": "how often config/delayOffset.json is saved",
            "unit": "ms",
            "min": 1,
        },
    )
    # Role and durability.
    broker_role: BrokerRole = field(
        default=BrokerRole.ASYNC_MASTER,
        metadata={
            "key": "brokerRole",
            "doc": "role of this broker",
            "important": True,
        },
    )
    flush_disk_type: FlushDiskType = field(
        default=FlushDiskType.ASYNC_FLUSH,
        metadata={
            "key": "flushDiskType",
            "doc": "whether a send waits for the disk",
            "important": True,
        },
    )
    sync_flush_timeout: int = field(
        default=5000,
        metadata={
            "key": "syncFlushTimeout",
            "doc": "longest wait of a SYNC_FLUSH send for the disk",
            "unit": "ms",
            "min": 1,
        },
    )
    slave_timeout: int = field(
        default=3000,
        metadata={
            "key": "slaveTimeout",
            "doc": "longest wait of a SYNC_MASTER send for the slaves",
            "unit": "ms",
            "min": 1,
        },
    )
    ha_slave_fallbehind_max: int = field(
        default=256 << 20,
        metadata={
            "key": "haSlaveFallbehindMax",
            "doc": "lag from which a slave no longer counts",
            "unit": "bytes",
            "min": 0,
        },
    )
    offset_check_in_slave: bool = field(
        default=False,
        metadata={
            "key": "offsetCheckInSlave",
            "doc": "a slave corrects pull offsets, too",
        },
    )
    flush_interval_commit_log: int = field(
        default=500,
        metadata={
            "key": "flushIntervalCommitLog",
            "doc": "how often ASYNC_FLUSH flushes",
            "unit": "ms",
            "min": 1,
            "important": True,
        },
    )
    flush_commit_log_least_pages: int = field(
        default=4,
        metadata={
            "key": "flushCommitLogLeastPages",
            "doc": "unflushed pages from which ASYNC_FLUSH flushes",
            "unit": "4 KiB pages",
            "min": 0,
        },
    )
    flush_commit_log_thorough_interval: int = field(
        default=10_000,
        metadata={
            "key": "flushCommitLogThoroughInterval",
            "doc": "how often ASYNC_FLUSH flushes whatever there is",
            "unit": "ms",
            "min": 0,
        },
    )
    flush_interval_consume_queue: int = field(
        default=1000,
        metadata={
            "key": "flushIntervalConsumeQueue",
            "doc": "how often consumequeue files are flushed",
            "unit": "ms",
            "min": 1,
        },
    )
    flush_consume_queue_least_pages: int = field(
        default=2,
        metadata={
            "key": "flushConsumeQueueLeastPages",
            "doc": "unflushed pages from which a consumequeue file is flushed",
            "unit": "4 KiB pages",
            "min": 0,
        },
    )
    flush_consume_queue_thorough_interval: int = field(
        default=60_000,
        metadata={
            "key": "flushConsumeQueueThoroughInterval",
            "doc": "how often all consumequeue files and the checkpoint are flushed",
            "unit": "ms",
            "min": 0,
        },
    )
    check_crc_on_recover: bool = field(
        default=True,
        metadata={
            "key": "checkCRCOnRecover",
            "doc": "recovery checks the bodies' CRC",
        },
    )
    # Index and queries.
    message_index_enable: bool = field(
        default=True,
        metadata={
            "key": "messageIndexEnable",
            "doc": "keep the key index",
            "important": True,
        },
    )
    message_index_safe: bool = field(
        default=False,
        metadata={
            "key": "messageIndexSafe",
            "doc": "recovery starts no later than the index' checkpoint",
            "important": True,
        },
    )
    max_msgs_num_batch: int = field(
        default=64,
        metadata={
            "key": "maxMsgsNumBatch",
            "doc": "most messages of a key query",
            "min": 1,
        },
    )
    default_query_max_num: int = field(
        default=32,
        metadata={
            "key": "defaultQueryMaxNum",
            "doc": "most messages of a unique key query",
            "min": 1,
        },
    )
    # Pulls.
    max_transfer_bytes_on_message_in_memory: int = field(
        default=262_144,
        metadata={
            "key": "maxTransferBytesOnMessageInMemory",
            "doc": "most bytes of a pull from memory",
            "unit": "bytes",
            "min": 1,
            "important": True,
        },
    )
    max_transfer_count_on_message_in_memory: int = field(
        default=32,
        metadata={
            "key": "maxTransferCountOnMessageInMemory",
            "doc": "most messages of a pull from memory",
            "min": 1,
            "important": True,
        },
    )
    max_transfer_bytes_on_message_in_disk: int = field(
        default=65_536,
        metadata={
            "key": "maxTransferBytesOnMessageInDisk",
            "doc": "most bytes of a pull from disk",
            "unit": "bytes",
            "min": 1,
            "important": True,
        },
    )
    max_transfer_count_on_message_in_disk: int = field(
        default=8,
        metadata={
            "key": "maxTransferCountOnMessageInDisk",
            "doc": "most messages of a pull from disk",
            "min": 1,
            "important": True,
        },
    )
    os_page_cache_busy_time_out_mills: int = field(
        default=1000,
        metadata={
            "key": "osPageCacheBusyTimeOutMills",
            "doc": "no send waits for a log that has stood still for longer",
            "unit": "ms",
            "min": 0,
        },
    )
    access_message_in_memory_max_ratio: int = field(
        default=40,
        metadata={
            "key": "accessMessageInMemoryMaxRatio",
            "doc": "share of RAM whose newest messages count as in memory",
            "unit": "percent",
            "min": 0,
            "max": 100,
            "important": True,
        },
    )
    # Retention.
    delete_when: str = field(
        default="04",
        metadata={
            "key": "deleteWhen",
            "doc": "hours of the day, ';' between them, in which expired files go",
            "important": True,
        },
    )
    file_reserved_time: int = field(
        default=72,
        metadata={
            "key": "fileReservedTime",
            "doc": "age from which a commit log file is expired",
            "unit": "hours",
            "min": 0,
            "important": True,
        },
    )
    disk_max_used_space_ratio: int = field(
        default=75,
        metadata={
            "key": "diskMaxUsedSpaceRatio",
            "doc": "disk usage from which expired files go at any hour; taken as 10..95",
            "unit": "percent",
            "min": 0,
            "max": 100,
        },
    )
    disk_space_warning_level_ratio: int = field(
        default=90,
        metadata={
            "key": "diskSpaceWarningLevelRatio",
            "doc": "disk usage from which sends are refused (key of 5.x); taken as 35..90",
            "unit": "percent",
            "min": 0,
            "max": 100,
        },
    )
    disk_space_clean_forcibly_ratio: int = field(
        default=85,
        metadata={
            "key": "diskSpaceCleanForciblyRatio",
            "doc": "disk usage from which files go unexpired (key of 5.x); taken as 30..85",
            "unit": "percent",
            "min": 0,
            "max": 100,
        },
    )
    clean_file_forcibly_enable: bool = field(
        default=True,
        metadata={
            "key": "cleanFileForciblyEnable",
            "doc": "files that have not expired may go when the disk is very full",
            "important": True,
        },
    )
    clean_resource_interval: int = field(
        default=10_000,
        metadata={
            "key": "cleanResourceInterval",
            "doc": "how often retention is looked after",
            "unit": "ms",
            "min": 1,
        },
    )
    delete_commit_log_files_interval: int = field(
        default=100,
        metadata={
            "key": "deleteCommitLogFilesInterval",
            "doc": "pause between two deleted commit log files",
            "unit": "ms",
            "min": 0,
        },
    )
    delete_consume_queue_files_interval: int = field(
        default=100,
        metadata={
            "key": "deleteConsumeQueueFilesInterval",
            "doc": "pause between two deleted consumequeue files",
            "unit": "ms",
            "min": 0,
        },
    )
    delete_file_batch_max: int = field(
        default=10,
        metadata={
            "key": "deleteFileBatchMax",
            "doc": "most commit log files deleted in one pass (key of 5.x)",
            "min": 1,
        },
    )

    def __post_init__(self) -> None:
        entries = -(-self.mapped_file_size_consume_queue // CQ_ENTRY_SIZE)
        object.__setattr__(self, "mapped_file_size_consume_queue", entries * CQ_ENTRY_SIZE)

    # -- paths ---------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The root directory, with ~ expanded."""
        return Path(self.store_path_root_dir).expanduser()

    @property
    def commit_log_path(self) -> Path:
        """Directory of the commit log."""
        if self.store_path_commit_log:
            return Path(self.store_path_commit_log).expanduser()
        return self.root / "commitlog"

    @property
    def consume_queue_path(self) -> Path:
        """Directory of the consumequeue: <topic>/<queueId>/<file> below it."""
        return self.root / "consumequeue"

    @property
    def index_path(self) -> Path:
        """Directory of the index files."""
        return self.root / "index"

    @property
    def config_path(self) -> Path:
        """Directory of the broker's JSON files."""
        return self.root / "config"

    @property
    def checkpoint_path(self) -> Path:
        """The checkpoint file."""
        return self.root / "checkpoint"

    @property
    def abort_path(self) -> Path:
        """There while the store is open or was not closed orderly."""
        return self.root / "abort"

    @property
    def lock_path(self) -> Path:
        """The file whose lock says that the store is in use."""
        return self.root / "lock"

    @property
    def clean_exit_path(self) -> Path:
        """Our own word that the last stop left nothing to recover."""
        return self.root / "clean.exit"

    @property
    def queue_states_path(self) -> Path:
        """Our own: what the last clean stop remembers of each consume queue."""
        return self.root / "queues.exit"

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
        matches = [_DELAY.fullmatch(word) for word in self.message_delay_level.split()]
        table = {
            level: int(match[1]) * _MS_OF_UNIT[match[2]]
            for level, match in enumerate(matches, 1)
            if match
        }
        if len(table) != len(matches):
            raise StoreError(
                f"messageDelayLevel = {self.message_delay_level}: expected numbers with a unit "
                "(s, m, h, d) separated by blanks, like '1s 5s 1m 2h'"
            )
        return table

    @property
    def is_slave(self) -> bool:
        """Whether the log comes from a master."""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def max_record_size(self) -> int:
        """Most bytes of one record."""
        return self.max_message_size + _RECORD_MARGIN

    def validate(self) -> None:
        """Find contradictions. Raises StoreError that names the key and the way out."""
        self._check_commit_log_path()
        _ = self.delete_hours, self.delay_level_ms
        if self.disk_space_clean_forcibly_ratio > self.disk_space_warning_level_ratio:
            raise StoreError(
                f"diskSpaceCleanForciblyRatio = {self.disk_space_clean_forcibly_ratio} is above "
                f"diskSpaceWarningLevelRatio = {self.disk_space_warning_level_ratio}: sends would "
                "be refused before space is made; lower the first"
            )

    def _check_commit_log_path(self) -> None:
        if "," in (self.store_path_commit_log or ""):
            raise StoreError(
                f"storePathCommitLog = {self.store_path_commit_log}: several paths are not "
                "supported; name one, and move the files of the others into it"
            )
        for path in (self.consume_queue_path, self.index_path, self.config_path, self.root):
            if self.commit_log_path.absolute() == path.absolute():
                raise StoreError(
                    f"storePathCommitLog = {self.commit_log_path} is used for other files; "
                    "give the commit log a directory of its own"
                )
