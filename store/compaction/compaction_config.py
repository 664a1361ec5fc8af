"""CompactionConfig: the settings of compaction topics, a part of MessageStoreConfig.

Plain values, with RocketMQ's names and defaults (MessageStoreConfig there, too).
"""

from __future__ import annotations

from dataclasses import dataclass

from conf.config_fields import AFTER_RESTART, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """See the module."""

    # fmt: off
    enable_compaction: bool = setting(True,
        "topics with cleanup.policy=COMPACTION keep the newest message of each key",
        changeable=AFTER_RESTART)
    compaction_mapped_file_size: int = setting(104_857_600,
        "size of a compaction log file, rounded to whole queue files, at least five; it belongs to "
        "the store's data", unit="bytes", ge=1, le=2147483647)
    compaction_cq_mapped_file_size: int = setting(10_485_760,
        "size of a file of a compaction log's queue, rounded down to whole units of 46 bytes; it "
        "belongs to the store's data", unit="bytes", ge=92, le=104857600)
    compaction_schedule_internal: int = setting(900_000,
        "a compaction log is compacted after this time, and up to as much more, if it has new "
        "closed files", unit="ms", ge=1, changeable=AFTER_RESTART)
    max_offset_map_size: int = setting(104_857_600,
        "memory for the keys of one compaction, 24 bytes each; with more keys the newest records "
        "wait for the next one", unit="bytes", ge=0, changeable=AFTER_RESTART)
    # fmt: on
