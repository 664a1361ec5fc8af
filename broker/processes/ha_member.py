"""Composition root of process `ha` in controller mode: a member of a group with a controller.

Takes the place of broker/processes/ha.py where enableControllerMode is set. Runs on the child's
main thread, which serves the commands of process `remoting`; the member, its requests to
controllers, the registrar and the HA connections have threads of their own. The first thing it does
is to order FENCED: a predecessor may have died while `remoting` was the log's writer. A step that
fails ends the process, as a service that fails does; its successor goes on from the member's files.

Tested by tests/interop/test_controller_mode.py.
"""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from typing import Any, Final, NoReturn

from broker.acl.access import Access
from broker.auth.auth import Auth
from broker.failover.ha_events import HaEvents
from broker.failover.link_mark import LinkMark
from broker.failover.member_commands import member_handlers
from broker.failover.member_files import MemberFileError, MemberFiles
from broker.failover.member_host import Actions, BrokerMemberHost, HostSettings
from broker.failover.member_orders import MemberOrders
from broker.failover.member_parts import Member, MemberPlace, build_member
from broker.failover.member_registrar import MemberRegistrar
from broker.failover.process_watch import LOOK_MS, ProcessWatch
from broker.failover.role_log import RoleLog
from broker.metrics.dump_marks import DumpMarks
from broker.metrics.ha_metrics import HaMetrics
from broker.metrics.member_facts import MemberFacts
from broker.out.outgoing_client import outgoing_client
from broker.processes.child import Child, run_child
from broker.processes.ha import BrokerProcesses, own_identity
from broker.processes.records_aside import keep_records_aside
from broker.settings.controller_mode_rules import is_safe, promise_of
from broker.settings.startup_options import StartupOptions
from broker.supervisor.boot_info import EXIT_CANNOT_BOOT, EXIT_FLUSH_FAILED, EXIT_REOPEN
from broker.supervisor.process_end import EXIT_FAILED, service_guard
from ha.autoswitch_ha_service import AutoSwitchHAService, MemberLinks
from ha.control_slots import (
    MASTER_BROKER_ID,
    MASTER_LINKED,
    REPLICA_COUNT,
    REPLICA_FLUSHED_OFFSET,
    REPLICATED_OFFSET,
    SYNC_STATE_SET_SIZE,
)
from ha.ha_environment import HaEnvironment
from ha.ha_service import Bells
from ha.shared_secret import SharedSecretError
from ha.source_files import LogSource
from ha.taken_role import FILE_NAME as ROLES
from ha.transport import HaTlsError
from ipc.clock import SystemClock, process_clock
from ipc.command_channel import CommandServer
from ipc.control_page import ProcessIndex
from ipc.kept_heap import keep_freed_memory
from ipc.queue_table import QueueTableReader
from ipc.scheduled_executor import ScheduledExecutor
from ipc.service_thread import ServiceThread
from ipc.short_slice import ask_for_short_slice
from remoting.remoting_client import RemotingClient
from remoting.selector_seam import new_selector
from store.control_slots import CONFIRM_OFFSET, MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import FlushFailedError, StoreError
from store.log_end import sync_range
from store.message_store_config import BrokerRole, FlushDiskType
from store.resync_request import (
    ResyncAction,
    ResyncRequest,
    find_refused_cut,
    find_request,
    write_request,
)

log = logging.getLogger(__name__)

_NO_EPOCHS: Final = (
    "{path}: the log of this broker has {size} bytes, and there is no list of epochs that says "
    "whose they are, as in a store from before controller mode. If this is the log that the group "
    "shall go on with (one, the most complete), give it a list while the broker is stopped: "
    "python -m broker.failover.adopt_log -c SETTINGS; every other broker of the group starts with "
    "an empty store (docs/failover.md)"
)


def main(child: Child) -> None:
    """Be a member until stopped."""
    ask_for_short_slice()
    options = StartupOptions.from_settings(child.boot.settings)
    keep_records_aside(child, options.store)
    keep_freed_memory()
    clock = process_clock()
    try:
        process = MemberProcess(child, options, clock)
        process.fence()
        if not child.wait_for_store():
            return
        process.build()
    except (HaTlsError, SharedSecretError, ValueError, MemberFileError, OSError) as error:
        log.critical("this broker cannot be a member of its group: %s", error)
        child.say(f"mqbroker: this broker cannot be a member of its group: {error}")
        raise SystemExit(EXIT_CANNOT_BOOT) from error
    process.start()
    process.serve()
    process.shutdown()


class MemberProcess:
    """The parts of the process. Owned by: its main thread."""

    def __init__(self, child: Child, options: StartupOptions, clock: SystemClock) -> None:
        """Raises HaTlsError, SharedSecretError, ValueError: settings that cannot be used."""
        self._child = child
        self._options = options
        self._clock = clock
        self._counters = child.page.counters
        self._guard = service_guard("ha", _exit_code)
        self._others = BrokerProcesses(child, options, clock)
        self._events = HaEvents()
        self._bells = {name: child.bell(name) for name in ("store", "remoting", "ha")}
        self._source = LogSource(
            options.store.log_directories, options.store.mapped_file_size_commit_log, child.page
        )
        self._service = self._build_service()
        self._registrar = MemberRegistrar(
            self._others.remoting,
            self._events.deliver,
            self._service.update_master_address,
            on_failure=self._guard,
        )
        self._role_log = RoleLog(Path(options.store.root, ROLES), self._counters, clock)
        self._host = self._build_host()
        self._client = _client(options, clock)
        self._executor = ScheduledExecutor(clock, threads=1, name="MemberScheduled")
        self._member: Member
        self._watch: ProcessWatch
        self._watching: list[ServiceThread] = []

    # -- construction --------------------------------------------------------------------------

    def _build_service(self) -> AutoSwitchHAService:
        options, child = self._options, self._child
        environment = HaEnvironment(options.ha, self._clock, new_selector, self._guard)
        links = MemberLinks(
            own_identity(options),
            self._others.begin_log,
            QueueTableReader(child.boot.queue_table_fd).offsets,
            async_learner=options.controller_mode.async_learner,
            sync_from_last_file=options.controller_mode.sync_from_last_file,
        )
        bells = Bells(self._bells["ha"], self._bells["remoting"].ring, self._ring_readers)
        listening = child.socket("listen", "ha")
        return AutoSwitchHAService(environment, listening, self._source, bells, links, self._events)

    def _ring_readers(self) -> None:
        """A follower's log has grown: process store dispatches it; this process' links to others
        and its watch sleep on our own bell."""
        self._bells["store"].ring()
        self._bells["ha"].ring()

    def _ring_everybody(self) -> None:
        self._bells["store"].ring()
        self._bells["remoting"].ring()

    def _build_host(self) -> BrokerMemberHost:
        options, mode = self._options, self._options.controller_mode
        root = options.store.root
        orders = MemberOrders(
            self._counters, self._ring_everybody, self._clock, self._child.stopping
        )
        return BrokerMemberHost(
            self._counters,
            orders,
            self._service,
            MemberFiles(mode.identity_file(root), mode.epoch_file(root)),
            HostSettings(
                all_ack_in_sync_state_set=mode.all_ack_in_sync_state_set,
                in_sync_replicas=options.ha.in_sync_replicas,
                sync_flush=options.store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            ),
            Actions(
                ring_store=self._bells["store"].ring,
                ring_remoting=self._bells["remoting"].ring,
                sync_log=functools.partial(
                    sync_range, options.store.log_directories, self._source.file_size
                ),
                request_resync=self._request_resync,
                reopen=_reopen,
                cut_tail=self._cut_tail,
                register=self._registrar.register,
            ),
            self._role_log,
        )

    def _cut_tail(self, offset: int) -> bool:
        # Needs numpy, which takes a third of this process' start; whoever leads does without.
        from store.log_cut import TailCut

        cut = TailCut(
            self._options.store,
            self._child.page,
            self._others.end_log,
            self._service.cut_half_record,
        )
        return cut.cut(offset)

    def _request_resync(self, action: ResyncAction, offset: int, reason: str) -> None:
        log.critical("the log has to be cut (%s at %s): %s", action, offset, reason)
        request = ResyncRequest(action=action, offset=offset, reason=reason)
        write_request(self._options.store.root, request)

    # -- life ----------------------------------------------------------------------------------

    def fence(self) -> None:
        """Nobody writes the log before this process says so; what a predecessor has shown is its
        word no more."""
        self._host.begin()
        replicas = (REPLICA_COUNT, REPLICATED_OFFSET, REPLICA_FLUSHED_OFFSET, MASTER_LINKED)
        for slot in (*replicas, MASTER_BROKER_ID, SYNC_STATE_SET_SIZE):
            self._counters[slot] = 0

    def build(self) -> None:
        """The store is ready. Raises MemberFileError, OSError, ValueError: the files say that this
        broker cannot be a member."""
        options, mode, counters = self._options, self._options.controller_mode, self._counters
        root = options.store.root
        if find_request(root) is not None:
            _reopen()  # This process died between a request and the reopening.
        refused_cut = find_refused_cut(root)
        if refused_cut is not None:
            MemberFiles(mode.identity_file(root), mode.epoch_file(root)).put_back_epochs(
                refused_cut
            )
        end = counters[MAX_PHY_OFFSET]
        self._member = build_member(
            mode,
            options.broker,
            MemberPlace(
                f"{options.broker.broker_ip1}:{options.server.listen_port}",
                root,
                options.ha.in_sync_replicas,
                min(counters[CONFIRM_OFFSET], end),
            ),
            self._host,
            self._client,
            self._clock,
            on_failure=self._guard,
        )
        if end > 0 and not self._member.service.status.epochs.entries:
            raise ValueError(_NO_EPOCHS.format(path=mode.epoch_file(root), size=end))
        self._events.deliver_to(self._member.service)
        self._watch = ProcessWatch(
            self._child.page,
            self._clock,
            mode.controller_heart_beat_timeout_mills,
            self._events.deliver,
        )
        mark = LinkMark(
            counters,
            lambda: self._service.link is not None,
            self._clock,
            on_failure=self._guard,
        )
        self._watching = [mark, self._registrar, self._build_metrics()]

    def _build_metrics(self) -> HaMetrics:
        options, child, counters = self._options, self._child, self._counters
        metrics = HaMetrics(
            child.metrics,
            self._service.new_observer().observe,
            None,
            broker_name=options.broker.broker_name,
            role=BrokerRole.SYNC_MASTER.value,  # Only a leader has replicas.
            marks=DumpMarks(child.metrics, options.supervisor.metrics_dump_interval_seconds * 1000),
            on_failure=self._guard,
        )
        metrics.restore(
            self._service.registry,
            self._clock,
            counters[MIN_PHY_OFFSET],
            counters[MAX_PHY_OFFSET],
            broker_started_ms=child.boot.broker_started_ms,
        )
        return metrics

    def start(self) -> None:
        """Ask the controllers for a role."""
        mode = self._options.controller_mode
        promise = promise_of(mode, in_sync_replicas=self._options.ha.in_sync_replicas)
        log.log(logging.INFO if is_safe(mode) else logging.WARNING, "%s", promise)
        self._service.start()
        for thread in self._watching:
            thread.start()
        self._client.start()
        self._executor.start()
        self._member.start(self._executor)

    def serve(self) -> None:
        """The commands of process `remoting`, until stopped."""
        child, service, member = self._child, self._service, self._member
        watch = self._watch

        def turn() -> None:
            child.page.beat(ProcessIndex.HA)
            watch.look()

        facts = MemberFacts(self._options, self._counters, self._clock)

        def status() -> dict[str, Any]:
            of_group = facts.status(member.service.status.sync_state_set)
            return service.status() | {"groupInfo": of_group}

        handlers = member_handlers(
            self._host,
            member.service,
            status,
            lambda: self._counters[MAX_PHY_OFFSET],
            service.update_master_address,
            cluster_name=self._options.broker.broker_cluster_name,
            broker_name=self._options.broker.broker_name,
        )
        channel = child.socket("channel", "ha<-remoting")
        child.serve(
            CommandServer(channel, handlers, self._clock, refusals=(StoreError,)),
            each_turn=turn,
            turn_ms=LOOK_MS,
        )

    def shutdown(self) -> None:
        """Process remoting has ended. The controllers take this broker for dead as soon as its
        connections end, and elect another one."""
        self._member.shutdown()
        self._service.shutdown()
        for thread in self._watching:
            thread.shutdown(1_000)
        self._executor.shutdown(1_000)
        self._client.shutdown()


def _client(options: StartupOptions, clock: SystemClock) -> RemotingClient:
    """For requests to controllers, signed as those to other brokers are."""
    signer = Access(options.broker, clock, signer=Auth(options).signer).signer
    return outgoing_client(options, signer)


def _reopen() -> NoReturn:
    logging.shutdown()
    os._exit(EXIT_REOPEN)


def _exit_code(error: Exception) -> int:
    return EXIT_FLUSH_FAILED if isinstance(error, FlushFailedError) else EXIT_FAILED


if __name__ == "__main__":
    run_child(main)
