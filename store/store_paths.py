"""StorePaths: what lies where below the root directory of a store, and what it is.

Plain values, any thread. Names that RocketMQ has, too, are its own; the others say so.
"""

from __future__ import annotations

from pathlib import Path


class Below:
    """A path below the root of the store that is asked for it."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, paths: StorePaths, _kind: type) -> Path:
        return paths.root.joinpath(*self._names)


class StorePaths:
    """The paths of whoever knows the root."""

    __slots__ = ()

    @property
    def root(self) -> Path:
        """The root directory of the store."""
        raise NotImplementedError

    consume_queue_path = Below("consumequeue")
    """Directory of the consumequeue: <topic>/<queueId>/<file> below it."""
    batch_consume_queue_path = Below("batchconsumequeue")
    """Directory of the batch consume queues, as `consume_queue_path`."""
    index_path = Below("index")
    """Directory of the index files."""
    config_path = Below("config")
    """Directory of the broker's JSON files."""
    checkpoint_path = Below("checkpoint")
    """The checkpoint file."""
    abort_path = Below("abort")
    """There while the store is open or was not closed orderly."""
    lock_path = Below("lock")
    """The file whose lock says that the store is in use."""
    clean_exit_path = Below("clean.exit")
    """Our own word that the last stop left nothing to recover."""
    fsync_failed_path = Below("fsync_failed.json")
    """Our own: a flush failed, and what it left in the page cache is to be written again."""
    retention_time_path = Below("retention.json")
    """Our own: the time by which files age, for the next start."""
    delay_clock_path = Below("delay_clock.json")
    """Our own: steps of the wall clock that concern delayed messages, for the next start."""
    pop_journal_path = Below("popjournal")
    """Our own: what pops have handed out and not stored yet (broker/pop/pop_journal.py)."""
    pop_revive_progress_path = Below("poprevive")
    """Our own: which check points are handled (broker/pop/revive_progress.py)."""
    emergency_space_path = Below("emergency.space")
    """Our own: room that is kept for when the disk is full (store/emergency_space.py)."""
    queue_states_path = Below("queues.exit")
    """Our own: what the last clean stop remembers of each consume queue."""
    timer_wheel_path = Below("timerwheel")
    """The slots of the timers by time."""
    timer_log_path = Below("timerlog")
    """Directory of the timers' units."""
    timer_checkpoint_path = Below("config", "timercheck")
    """Up to where timers are entered and delivered."""
    timer_progress_path = Below("timerprogress")
    """Our own: which timers are delivered, for after a kill of our processes."""
    timer_early_path = Below("timerearly")
    """Our own: which timers of open slots are delivered, for after a kill of our processes."""
    timer_unpublished_path = Below("timerunpublished")
    """Our own: which timers were put into the log in a turn that a kill has ended."""
    compaction_path = Below("compaction")
    """What compaction topics keep."""
    timer_metrics_path = Below("config", "timermetrics")
    """How many timers wait for each topic."""
