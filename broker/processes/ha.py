"""Composition root of process `ha`: replication, to the slaves and from the master.

Runs on the child's main thread, which answers the commands of process `remoting`; the services
have threads of their own. `ha` speaks no remoting protocol: what must be asked of a master or a
name server goes through `remoting`, what changes files through `store`. A failed service ends the
process: the supervisor restarts it, slaves reconnect.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Final

from broker.metrics.ha_metrics import HaMetrics
from broker.processes.child import EXIT_CANNOT_BOOT, EXIT_REOPEN, Child, ring_nobody, run_child
from broker.settings.startup_options import StartupOptions
from broker.supervisor.process_end import service_guard
from ha.control_slots import REPLICA_COUNT, REPLICATED_OFFSET
from ha.ha_service import HAService, Surroundings
from ha.inspection import Inspection, Verdict
from ha.known_members import FILE_NAME as MEMBERS_NAME
from ha.replica_memory import FILE_NAME as MEMORY_NAME
from ha.replica_memory import ReplicaMemory
from ha.transport import HaTlsError
from ipc.clock import SystemClock
from ipc.command_channel import Arguments, CommandClient, CommandError, CommandServer
from ipc.control_page import ProcessIndex
from ipc.service_thread import ServiceThread
from remoting.selector_seam import new_selector
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import StoreError
from store.message_store_config import BrokerRole
from store.resync_request import ResyncAction, ResyncRequest, write_request

log = logging.getLogger(__name__)

_ASK_TIMEOUT_MS: Final = 20_000
"""An inspection may bisect a log with a master that is slow to answer."""
_MEMBERS_TIMEOUT_MS: Final = 8_000
_VERIFY_TIMEOUT_MS: Final = 10_000
"""The name servers have 2 s of it."""
_STORE_TIMEOUT_MS: Final = 10_000
_LOOK_AGAIN_MS: Final = 1_000
_FAILED: Final = service_guard("ha")


class NotAskedError(StoreError):
    """Another process of this broker could not be asked: the text says which one and why."""


class OtherProcesses:
    """What `ha` asks of the others, over its two channels. Any thread."""

    def __init__(self, child: Child, options: StartupOptions, clock: SystemClock) -> None:
        self._remoting = CommandClient(child.socket("channel", "ha->remoting"), "remoting", clock)
        self._store = CommandClient(child.socket("channel", "ha->store"), "store", clock)
        self._options = options

    def inspect_master(self, max_phy_offset: int, min_phy_offset: int) -> Inspection:
        """MasterInspection: by process remoting."""
        try:
            found = self._remoting.call(
                "inspect_master",
                _ASK_TIMEOUT_MS,
                max_phy_offset=max_phy_offset,
                min_phy_offset=min_phy_offset,
                ha_master_address=self._options.ha.ha_master_address,
            )
        except CommandError as error:
            raise NotAskedError(str(error)) from error
        return Inspection(**{**found, "verdict": Verdict(found["verdict"])})

    def fetch_members(self) -> dict[int, str] | None:
        """Broker id to ip of the group's registered brokers; None when nobody knows."""
        try:
            found = self._remoting.call("group_members", _MEMBERS_TIMEOUT_MS)
        except CommandError as error:
            log.warning("the members of this broker's group are not known: %s", error)
            return None
        members = found["members"]
        return None if members is None else {int(key): ip for key, ip in members.items()}

    def verify_replica(self, ip: str, offset: int) -> bool | None:
        """Whether the registered slave at `ip` holds our bytes up to `offset`; None: it could not
        be asked. Never raises."""
        try:
            found = self._remoting.call("verify_replica", _VERIFY_TIMEOUT_MS, ip=ip, offset=offset)
        except CommandError as error:
            log.warning("slave %s: its log at %s was not compared: %s", ip, offset, error)
            return None
        verified = found.get("verified")
        return None if verified is None else bool(verified)

    def begin_log(self, phy_offset: int) -> None:
        """LogBeginner: by process store."""
        try:
            self._store.call("begin_log", _STORE_TIMEOUT_MS, phy_offset=phy_offset)
        except CommandError as error:
            raise NotAskedError(str(error)) from error

    def request_resync(self, action: str, offset: int, reason: str) -> None:
        """ResyncRequester: written down, then the whole broker is opened anew."""
        request = ResyncRequest(action=ResyncAction(action), offset=offset, reason=reason)
        root = self._options.store.root
        try:
            write_request(root, request)
        except OSError as error:
            raise StoreError(
                f"{root}: the request for it cannot be written there ({error.strerror or error}); "
                "free space on that partition and let this user write there: it is tried again"
            ) from error
        log.critical("the broker is opened anew: %s: %s", action, reason)
        logging.shutdown()
        os._exit(EXIT_REOPEN)

    def tell_link(self, local: str | None) -> None:
        """Our end of the link to the master, for its announcement. Raises CommandError."""
        self._remoting.call("ha_link", _MEMBERS_TIMEOUT_MS, local=local)


class LinkReporter(ServiceThread):
    """Tells process `remoting` of the link to the master, so that nobody else waits for that."""

    def __init__(self, tell: Callable[[str | None], None]) -> None:
        super().__init__("LinkReporter", on_failure=_FAILED)
        self._tell = tell
        self._told: str | None = None
        self.link: Callable[[], str | None] = lambda: None
        """Our end of the open link, "ip:port". Set before the start."""

    def step(self) -> None:
        """Tell what changed; what could not be told is told later."""
        link = self.link()
        if link != self._told:
            try:
                self._tell(link)
                self._told = link
            except CommandError as error:
                log.warning("link %s: not announced yet: %s", link, error)
        self.wait_for_running(_LOOK_AGAIN_MS)


def main(child: Child) -> None:
    """Replicate until stopped."""
    options = StartupOptions.from_settings(child.boot.settings)
    clock = SystemClock()
    counters = child.page.counters
    counters[REPLICA_COUNT] = counters[REPLICATED_OFFSET] = 0  # A predecessor's word.
    others = OtherProcesses(child, options, clock)
    if not child.wait_for_store():
        return
    try:
        reporter = LinkReporter(others.tell_link)
        service = _build(child, options, others, reporter, clock)
    except (HaTlsError, ValueError) as error:
        log.critical("replication cannot start: %s", error)
        child.say(f"mqbroker: replication cannot start: {error}")
        raise SystemExit(EXIT_CANNOT_BOOT) from error
    reporter.link = lambda: service.link
    # Before anybody is served: it tells the registry who is missed.
    watching = [reporter, *_build_metrics(child, options, service, clock)]
    service.start()
    for thread in watching:
        thread.start()
    channel = child.socket("channel", "ha<-remoting")
    child.serve(
        CommandServer(channel, _handlers(service), clock),
        each_turn=lambda: child.page.beat(ProcessIndex.HA),
    )
    service.shutdown()
    for thread in watching:
        thread.shutdown(1_000)


def _build_metrics(
    child: Child, options: StartupOptions, service: HAService, clock: SystemClock
) -> list[ServiceThread]:
    """HaMetrics, and on a master what remembers the replicas for the next start."""
    memory = ReplicaMemory(options.store.root / MEMORY_NAME, clock, on_failure=_FAILED)
    if options.store.is_slave:
        memory.load()  # Whatever it was the last word on goes on without this broker.
    counters = child.page.counters
    metrics = HaMetrics(
        child.metrics,
        service.new_observer().observe,
        None if options.store.is_slave else memory,
        broker_name=options.broker.broker_name,
        role=options.store.broker_role.value,
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
    others: OtherProcesses,
    reporter: LinkReporter,
    clock: SystemClock,
) -> HAService:
    store, own = child.bell("store"), child.bell("ha")

    # Only a SYNC_MASTER's answers wait for what the slaves acknowledge.
    waits = options.store.broker_role is BrokerRole.SYNC_MASTER

    def ring_readers() -> None:
        # `remoting` follows the queues, not the log; a slave of this slave sleeps on our own bell.
        store.ring()
        own.ring()

    around = Surroundings(
        listening=child.socket("listen", "ha"),
        page=child.page,
        commit_log_path=options.store.commit_log_path,
        file_size=options.store.mapped_file_size_commit_log,
        bell=own,
        ring_remoting=child.bell("remoting").ring if waits else ring_nobody,
        ring_readers=ring_readers,
        broker_name=options.broker.broker_name,
        known_members_path=options.store.root / MEMBERS_NAME,
        fetch_members=others.fetch_members,
        verify_replica=others.verify_replica,
        inspect_master=others.inspect_master,
        begin_log=others.begin_log,
        request_resync=others.request_resync,
        link_changed=reporter.wakeup,
    )
    return HAService(
        around,
        options.ha,
        clock,
        is_slave=options.store.is_slave,
        new_selector=new_selector,
        on_failure=_FAILED,
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
