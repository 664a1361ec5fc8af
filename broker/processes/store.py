"""Composition root of process `store`, which maintains the mapped files.

Runs on the child's main thread, which serves the commands of other processes; the services have
threads of their own. A failed service ends the process: the supervisor restarts it (a failed
fdatasync stops the whole broker).

Tested by tests/broker/container/test_broker_container.py.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

from broker.metrics import metrics_table as table
from broker.metrics.timer_counts import TimerCounts
from broker.processes.child import Child, ring_nobody, run_child
from broker.processes.records_aside import keep_records_aside
from broker.settings.changeable_keys import CHANGE_RETENTION
from broker.settings.startup_options import StartupOptions
from broker.supervisor.boot_info import EXIT_CANNOT_BOOT, EXIT_FLUSH_FAILED
from broker.supervisor.control_slots import WRITERS_STOPPED
from broker.supervisor.process_end import EXIT_FAILED, end_process, service_guard
from broker.topic.compaction_topics import CompactionTopics
from conf.config_loader import update
from ha.control_slots import MEMBER_ORDER, MemberRole, role_of
from ha.epochs import recovered_bounds
from ha.ha_config import HaAckLevel
from ipc.clock import SystemClock, process_clock
from ipc.command_channel import Arguments, CommandHandler, CommandServer
from ipc.control_page import ControlPage
from ipc.kept_heap import keep_freed_memory
from store.clean_commit_log_service import RetentionRules
from store.controller_mode import ControlledRole, RoleNow
from store.default_message_store import DefaultMessageStore
from store.errors import FlushFailedError, StoreError
from store.message_store_config import FlushDiskType, MessageStoreConfig
from store.rebuild_consume_queue_service import REBUILD_QUEUE
from store.store_progress import StoreBells

log = logging.getLogger(__name__)

_COMMAND_TIME_MS: Final = 3_000


def main(child: Child) -> None:
    """Serve the store until stopped."""
    keep_freed_memory()
    options = StartupOptions.from_settings(child.settings())
    keep_records_aside(child, options.store)
    clock = process_clock()
    readers = child.bell("remoting")
    may_follow = options.store.is_slave or options.controller_mode.enable_controller_mode
    store = DefaultMessageStore(
        store_config(options),
        child.page,
        child.boot.queue_table_fd,
        StoreBells(
            child.bell("store"),
            readers.ring,
            readers.ring_for_moves,
            # On a master for life, process `ha` does not wait for flushes or allocations.
            child.bell("ha").ring if may_follow else ring_nobody,
            _find_role(options, child.page),
        ),
        clock,
        service_guard("store", _exit_code),
        find_compaction_topics=CompactionTopics(options.store.config_path / "topics.json").find,
        count_timers=TimerCounts(child.metrics, table.TIMER_ENQUEUE).add_all,
    )
    try:
        store.open()
    except FlushFailedError as error:
        log.critical("the store cannot be opened: %s", error)
        end_process("store", error, EXIT_FLUSH_FAILED)
    except StoreError as error:
        log.critical("the store cannot be opened: %s", error)
        child.say(f"mqbroker: the store cannot be opened: {error}")
        raise SystemExit(EXIT_CANNOT_BOOT) from error
    store.start()
    commands = (
        ("remoting", _handlers(options, store, clock)),
        ("ha", _replicator_handlers(store, clock)),
    )
    servers = [
        CommandServer(
            child.socket("channel", f"store<-{peer}"), handlers, clock, refusals=(StoreError,)
        )
        for peer, handlers in commands
    ]
    child.serve(*servers)
    try:
        # Its own parent, or a signal, says less: SIGTERM comes while the supervisor is still dying,
        # and may come from anybody.
        store.shutdown(writer_has_stopped=bool(child.page.counters[WRITERS_STOPPED]))
    except FlushFailedError as error:
        log.critical("the store was not closed cleanly; the next start recovers it", exc_info=True)
        end_process("store", error, EXIT_FLUSH_FAILED)


def _find_role(options: StartupOptions, page: ControlPage) -> RoleNow | None:
    """None: that of the settings."""
    if not options.controller_mode.enable_controller_mode:
        return None
    counters = page.counters

    def leads() -> bool:
        return role_of(counters[MEMBER_ORDER]) is MemberRole.LEAD

    return ControlledRole(page, leads, recovered_bounds)


def store_config(options: StartupOptions) -> MessageStoreConfig:
    """A slave that acknowledges what is on disk has its log flushed as with SYNC_FLUSH, whatever
    flushDiskType says."""
    config = options.store
    may_follow = config.is_slave or options.controller_mode.enable_controller_mode
    if may_follow and options.ha.ha_ack_level is HaAckLevel.flushed:
        return replace(config, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    return config


def _handlers(
    options: StartupOptions, store: DefaultMessageStore, clock: SystemClock
) -> dict[str, CommandHandler]:
    def delete_topic(arguments: Arguments) -> Arguments:
        deadline_ms = clock.monotonic_ms() + _COMMAND_TIME_MS
        topic, barrier = arguments["topic"], arguments["barrier"]
        return {"deleted": store.queue_deletion.delete_topic(topic, barrier, deadline_ms)}

    def clean_consume_queue(_arguments: Arguments) -> Arguments:
        return {"deleted": store.queue_deletion.delete_expired()}

    def clean_commit_log(_arguments: Arguments) -> Arguments:
        store.clean_commit_log.execute_delete_files_manually()
        return {}

    def repair_log(arguments: Arguments) -> Arguments:
        start, end, source = arguments["start"], arguments["end"], Path(arguments["source"])
        if (reason := arguments.get("reason")) is None:
            store.log_repair.put_back(start, end, source)
        else:
            store.log_repair.replace(start, end, source, reason)
        return {}

    def write_log_again(arguments: Arguments) -> Arguments:
        store.log_repair.write_again(arguments["start"], arguments["end"])
        store.scrub.recheck(arguments["start"])
        return {}

    def request_scrub(arguments: Arguments) -> Arguments:
        return {"number": store.scrub.request_pass(arguments["bytes_per_second"])}

    def scrub_status(_arguments: Arguments) -> Arguments:
        return store.scrub.status()

    def accept_digest(arguments: Arguments) -> Arguments:
        store.scrubber.accept(arguments["start"], arguments["chunk"], arguments["digest"])
        return {}

    def change_retention(arguments: Arguments) -> Arguments:
        changed = update(options.store, arguments["settings"], CHANGE_RETENTION)
        store.clean_commit_log.use_rules(RetentionRules.of(changed))
        return {}

    def rebuild_queue(arguments: Arguments) -> Arguments:
        store.rebuild.request(arguments["topic"], arguments["queue_id"], arguments["queue_offset"])
        return {}

    return {
        REBUILD_QUEUE: rebuild_queue,
        CHANGE_RETENTION: change_retention,
        "delete_topic": delete_topic,
        "clean_consume_queue": clean_consume_queue,
        "clean_commit_log": clean_commit_log,
        "repair_log": repair_log,
        "write_log_again": write_log_again,
        "request_scrub": request_scrub,
        "scrub_status": scrub_status,
        "accept_digest": accept_digest,
    }


def _replicator_handlers(
    store: DefaultMessageStore, clock: SystemClock
) -> dict[str, CommandHandler]:
    """Handlers of the commands of process `ha` where it writes the log."""

    def begin_log(arguments: Arguments) -> Arguments:
        deadline_ms = clock.monotonic_ms() + _COMMAND_TIME_MS
        store.log_start.start_at(arguments["phy_offset"], deadline_ms)
        return {}

    def end_log(arguments: Arguments) -> Arguments:
        store.flushed_end.end_at(arguments["phy_offset"])
        return {}

    return {"begin_log": begin_log, "end_log": end_log}


def _exit_code(error: Exception) -> int:
    return EXIT_FLUSH_FAILED if isinstance(error, FlushFailedError) else EXIT_FAILED


if __name__ == "__main__":
    run_child(main)
