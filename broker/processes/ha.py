"""Composition root of process `ha`: replication, to the slaves and from the master.

Runs on the child's main thread, which serves the commands of process `remoting`; the services have
threads of their own. `ha` does not use the remoting protocol: requests to a master or a name server
go through `remoting`, changes of files through `store`. A failed service ends the process; the
supervisor restarts it, and slaves reconnect.

Tested by tests/broker/test_ha_process.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from broker.metrics.dump_marks import DumpMarks
from broker.metrics.ha_metrics import HaMetrics
from broker.processes.child import Child, ring_nobody, run_child
from broker.processes.records_aside import keep_records_aside
from broker.settings.startup_options import StartupOptions
from broker.supervisor.boot_info import EXIT_CANNOT_BOOT, EXIT_REOPEN
from broker.supervisor.process_end import service_guard
from ha.control_slots import (
    MASTER_LINKED,
    REPLICA_COUNT,
    REPLICA_FLUSHED_OFFSET,
    REPLICATED_OFFSET,
)
from ha.ha_config import HaAckLevel
from ha.ha_environment import HaEnvironment
from ha.ha_service import Bells, HAService, SlaveSide
from ha.handshake import OwnIdentity
from ha.inspection import Inspection, Verdict
from ha.replica_memory import FILE_NAME as MEMORY_NAME
from ha.replica_memory import ReplicaMemory
from ha.shared_secret import SharedSecretError, read_shared_secret
from ha.source_files import LogSource
from ha.transport import HaTlsError
from ipc.clock import SystemClock, process_clock
from ipc.command_channel import Arguments, CommandClient, CommandError, CommandServer
from ipc.control_page import BEAT_MS, ProcessIndex
from ipc.kept_heap import keep_freed_memory
from ipc.queue_table import QueueTableReader
from ipc.service_thread import ServiceThread
from ipc.short_slice import ask_for_short_slice
from remoting.selector_seam import new_selector
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import StoreError
from store.message_store_config import BrokerRole
from store.resync_request import ResyncAction, ResyncRequest, write_request

log = logging.getLogger(__name__)

_ASK_TIMEOUT_MS: Final = 20_000
"""An inspection may do a binary search in the log of a slow master."""
_MEMBERS_TIMEOUT_MS: Final = 8_000
_VERIFY_TIMEOUT_MS: Final = 10_000
"""Includes the 2 s for the name servers."""
_STORE_TIMEOUT_MS: Final = 10_000
_LOOK_AGAIN_MS: Final = 1_000
_FAILED: Final = service_guard("ha")


class ProcessUnreachableError(StoreError):
    """A command to another process of this broker failed: the text says which process and why."""


class MasterLinkReport(NamedTuple):
    """What process `remoting` of a slave is told of the link to the master."""

    local: str | None
    """Our end, "ip:port"; None: there is none."""
    named_broker: str | None
    """HAClient.named_broker."""


class BrokerProcesses:
    """OtherProcesses of room `ha`, over its two command channels. Any thread."""

    def __init__(self, child: Child, options: StartupOptions, clock: SystemClock) -> None:
        self.remoting: Final = CommandClient(
            child.socket("channel", "ha->remoting"), "remoting", clock
        )
        self._store = CommandClient(child.socket("channel", "ha->store"), "store", clock)
        self._options = options

    def inspect_master(self, max_phy_offset: int, min_phy_offset: int) -> Inspection:
        """By process remoting."""
        try:
            found = self.remoting.call(
                "inspect_master",
                _ASK_TIMEOUT_MS,
                max_phy_offset=max_phy_offset,
                min_phy_offset=min_phy_offset,
                ha_master_address=self._options.ha.ha_master_address,
            )
        except CommandError as error:
            raise ProcessUnreachableError(str(error)) from error
        return Inspection(**{**found, "verdict": Verdict(found["verdict"])})

    def fetch_members(self) -> dict[int, str] | None:
        """Broker id to IP of the group's registered brokers; None if unknown."""
        try:
            found = self.remoting.call("group_members", _MEMBERS_TIMEOUT_MS)
        except CommandError as error:
            log.warning("cannot get the members of this broker's group: %s", error)
            return None
        members = found["members"]
        return None if members is None else {int(key): ip for key, ip in members.items()}

    def verify_replica(self, ip: str, offset: int) -> bool | None:
        """Whether the registered slave at `ip` has the same log up to `offset`; None if that could
        not be verified. Never raises."""
        try:
            found = self.remoting.call("verify_replica", _VERIFY_TIMEOUT_MS, ip=ip, offset=offset)
        except CommandError as error:
            log.warning("slave %s: could not compare its log at %s: %s", ip, offset, error)
            return None
        verified = found.get("verified")
        return None if verified is None else bool(verified)

    def begin_log(self, phy_offset: int) -> None:
        """By process store."""
        try:
            self._store.call("begin_log", _STORE_TIMEOUT_MS, phy_offset=phy_offset)
        except CommandError as error:
            raise ProcessUnreachableError(str(error)) from error

    def end_log(self, phy_offset: int) -> None:
        """By process store: what was flushed behind `phy_offset` is gone (FlushedEnd)."""
        try:
            self._store.call("end_log", _STORE_TIMEOUT_MS, phy_offset=phy_offset)
        except CommandError as error:
            raise ProcessUnreachableError(str(error)) from error

    def request_resync(self, action: str, offset: int, reason: str) -> None:
        """Store the request, then reopen the store."""
        request = ResyncRequest(action=ResyncAction(action), offset=offset, reason=reason)
        root = self._options.store.root
        try:
            write_request(root, request)
        except OSError as error:
            raise StoreError(
                f"{root}: cannot write the resync request ({error.strerror or error}); free "
                "space on that partition and make it writable for this user; will retry"
            ) from error
        log.critical("requesting a store reopen: %s: %s", action, reason)
        logging.shutdown()
        os._exit(EXIT_REOPEN)

    def report_link(self, link: MasterLinkReport) -> None:
        """Report the link to the master, for its announcement, and whose word counts. Raises
        CommandError."""
        local, broker = link
        self.remoting.call("ha_link", _MEMBERS_TIMEOUT_MS, local=local, named_broker=broker)


class LinkReporter(ServiceThread):
    """Reports the link to the master to process `remoting` from a thread of its own, and notes in
    the control page whether there is one."""

    def __init__(
        self, report: Callable[[MasterLinkReport], None], counters: memoryview[int]
    ) -> None:
        super().__init__("LinkReporter", on_failure=_FAILED)
        self._report = report
        self._counters = counters
        self._reported = MasterLinkReport(None, None)
        self.link: Callable[[], MasterLinkReport] = lambda: MasterLinkReport(None, None)
        """The link now. Set before the start."""

    def step(self) -> None:
        """Report a change; retried later if it fails."""
        link = self.link()
        self._counters[MASTER_LINKED] = int(link.local is not None)
        if link != self._reported:
            try:
                self._report(link)
                self._reported = link
            except CommandError as error:
                log.warning("link %s: not announced yet: %s", link.local, error)
        self.wait_for_running(_LOOK_AGAIN_MS)


def main(child: Child) -> None:
    """Replicate until stopped."""
    ask_for_short_slice()
    options = StartupOptions.from_settings(child.boot.settings)
    keep_records_aside(child, options.store)
    clock = process_clock()
    if options.store.is_slave:
        keep_freed_memory()
    counters = child.page.counters
    for slot in (REPLICA_COUNT, REPLICATED_OFFSET, REPLICA_FLUSHED_OFFSET, MASTER_LINKED):
        counters[slot] = 0  # A predecessor's word.
    others = BrokerProcesses(child, options, clock)
    if not child.wait_for_store():
        return
    try:
        reporter = LinkReporter(others.report_link, counters)
        service = _build(child, options, others, reporter, clock)
    except (HaTlsError, SharedSecretError, ValueError) as error:
        log.critical("replication cannot start: %s", error)
        child.say(f"mqbroker: replication cannot start: {error}")
        raise SystemExit(EXIT_CANNOT_BOOT) from error
    reporter.link = lambda: MasterLinkReport(service.link, service.named_broker)
    # Before any replica is served: this restores the known replicas into the registry.
    watching = [reporter, *_build_metrics(child, options, service, clock)]
    service.start()
    for thread in watching:
        thread.start()
    channel = child.socket("channel", "ha<-remoting")
    child.serve(
        CommandServer(channel, _handlers(service), clock, refusals=(StoreError,)),
        each_turn=lambda: child.page.beat(ProcessIndex.HA),
        turn_ms=BEAT_MS,
    )
    service.shutdown()
    for thread in watching:
        thread.shutdown(1_000)


def _build_metrics(
    child: Child, options: StartupOptions, service: HAService, clock: SystemClock
) -> list[ServiceThread]:
    """HaMetrics, and on a master the ReplicaMemory for the next start."""
    memory = ReplicaMemory(options.store.root / MEMORY_NAME, clock, on_failure=_FAILED)
    if options.store.is_slave:
        memory.load()  # Withdraws recorded ack limits: the log may go on without this broker.
    counters = child.page.counters
    metrics = HaMetrics(
        child.metrics,
        service.new_observer().observe,
        None if options.store.is_slave else memory,
        broker_name=options.broker.broker_name,
        role=options.store.broker_role.value,
        marks=None
        if options.store.is_slave
        else DumpMarks(child.metrics, options.supervisor.metrics_dump_interval_seconds * 1000),
        on_failure=_FAILED,
    )
    metrics.restore(
        service.registry,
        clock,
        counters[MIN_PHY_OFFSET],
        counters[MAX_PHY_OFFSET],
        broker_started_ms=child.boot.broker_started_ms,
    )
    return [metrics] if options.store.is_slave else [metrics, memory]


def _build(
    child: Child,
    options: StartupOptions,
    others: BrokerProcesses,
    reporter: LinkReporter,
    clock: SystemClock,
) -> HAService:
    store, own = child.bell("store"), child.bell("ha")

    # Only the responses of a SYNC_MASTER wait for acknowledgements of slaves.
    waits = options.store.broker_role is BrokerRole.SYNC_MASTER

    def ring_readers() -> None:
        # `remoting` watches the queues, not the log; the links to slaves of this slave wait on our
        # own bell.
        store.ring()
        own.ring()

    log_files = options.store
    environment = HaEnvironment(options.ha, clock, new_selector, _FAILED)
    slave = SlaveSide(reporter.wakeup, QueueTableReader(child.boot.queue_table_fd).offsets)
    return HAService(
        environment,
        child.socket("listen", "ha"),
        LogSource(log_files.log_directories, log_files.mapped_file_size_commit_log, child.page),
        Bells(own, child.bell("remoting").ring if waits else ring_nobody, ring_readers),
        own_identity(options),
        others,
        slave if log_files.is_slave else None,
        loans=child.socket("channel", "ha->lent") if waits else None,
    )


def own_identity(options: StartupOptions) -> OwnIdentity:
    """Raises SharedSecretError."""
    broker = options.broker
    return OwnIdentity(
        broker.broker_name,
        broker.broker_id,
        f"{broker.broker_ip1}:{options.server.listen_port}",
        read_shared_secret(options.ha.ha_shared_secret_file),
        reports_flushed=options.ha.ha_ack_level is HaAckLevel.flushed,
    )


def _handlers(service: HAService) -> dict[str, Any]:
    def ha_status(_arguments: Arguments) -> Arguments:
        return service.status()

    def master_address(arguments: Arguments) -> Arguments:
        service.update_master_address(arguments["ha_address"])
        return {}

    def announced(arguments: Arguments) -> Arguments:
        found = service.registry.announce(
            arguments["link"], arguments["broker_name"], arguments["broker_id"]
        )
        return {"connected": found}

    return {"ha_status": ha_status, "master_address": master_address, "announce_ha_link": announced}


if __name__ == "__main__":
    run_child(main)
