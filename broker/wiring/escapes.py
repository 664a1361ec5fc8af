"""What an acting slave delivers to other brokers (enableRemoteEscape), put together.

Main thread of process `remoting`; no policy. Each service has a thread, and so an EscapeBridge, of
its own.

Tested by tests/broker/test_acting_master.py.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.append.role_append_queues import NOT_THE_MASTER
from broker.metrics.waiting_halves import WaitingHalves
from broker.out.broker_outer_api import BrokerIdentity, BrokerOuterAPI
from broker.out.escape_bridge import EscapeBridge
from broker.pop.pop_escape import PopEscape, PopEscapeParts
from broker.slave.delayed_escape_service import DelayedEscapeService
from broker.timer.timer_escape_service import TimerEscapeParts, TimerEscapeService
from broker.timer.timer_records import TimerRecords
from broker.topic.system_topics import revive_topic
from broker.transaction.earlier_ends import EarlierEnds
from broker.transaction.half_message_states import HalfMessageStates
from broker.transaction.transaction_escape_service import TransactionEscapeService
from broker.transaction.transactional_message_bridge import (
    BridgeParts,
    TransactionalMessageBridge,
)
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.process_resources import ProcessResources
from broker.wiring.store_side import StoreSide
from ipc.service_thread import ServiceThread
from store.commit_log_reader import CommitLogReader
from store.timer.timer_log import TimerLogReader
from store.timer.timer_wheel import TimerWheelReader


def escape_services(
    resources: ProcessResources,
    store: StoreSide,
    tables: BrokerTables,
    identity: BrokerIdentity,
    api: BrokerOuterAPI,
    may_deliver: Callable[[], bool],
) -> list[ServiceThread]:
    """None unless this is a slave for life that lets messages escape. may_deliver: ActingMaster."""
    options, clock = resources.options, resources.clock
    if resources.role.changes or not options.store.is_slave:
        return []
    if not options.broker.enable_remote_escape:
        return []

    def bridge() -> EscapeBridge:
        return EscapeBridge(identity, api, api.client, clock)

    services: list[ServiceThread] = [
        DelayedEscapeService(
            may_deliver,
            options.store.delay_level_ms,
            store.access,
            tables.schedule_offsets,
            bridge(),
            clock,
            on_failure=resources.on_failure,
        ),
        TransactionEscapeService(
            may_deliver,
            lambda halves: _half_queue(store, tables, halves),
            bridge(),
            resources.page.counters,
            options.broker.transaction_time_out,
            clock,
            on_failure=resources.on_failure,
        ),
    ]
    if options.store.timer_wheel_enable:
        services.append(
            TimerEscapeService(
                may_deliver,
                _timer_parts(resources, store, tables, bridge()),
                on_failure=resources.on_failure,
            )
        )
    return services


def _half_queue(
    store: StoreSide, tables: BrokerTables, halves: HalfMessageStates
) -> TransactionalMessageBridge:
    return TransactionalMessageBridge(
        BridgeParts(
            commit_log=store.log,
            append=lambda append: append.refused(*NOT_THE_MASTER),
            reader=store.access,
            halves=halves,
            waiting=WaitingHalves(),
            earlier=EarlierEnds(store.access),
            offsets=tables.offsets,
            on_loop=lambda function: function(),
            flushed_offset=lambda: 0,
        )
    )


def _timer_parts(
    resources: ProcessResources, store: StoreSide, tables: BrokerTables, bridge: EscapeBridge
) -> TimerEscapeParts:
    options = resources.options
    precision_ms = options.store.timer_precision_ms
    reader = CommitLogReader(
        options.store.log_directories, options.store.mapped_file_size_commit_log, resources.page
    )
    pops = PopEscapeParts(
        topic=revive_topic(options.broker.broker_cluster_name),
        messages=store.access,
        offsets=tables.offsets,
        find_topic=tables.topics.find,
        find_group=tables.groups.find_or_put_back,
        bridge=bridge,
        broker_name=options.broker.broker_name,
        uses_retry_topic_v2=options.broker.enable_retry_topic_v2,
    )
    return TimerEscapeParts(
        wheel=TimerWheelReader(options.store.timer_wheel_path, precision_ms),
        units=TimerLogReader(
            options.store.timer_log_path, options.store.mapped_file_size_timer_log
        ),
        records=TimerRecords(reader, precision_ms),
        table=store.table,
        counters=resources.page.counters,
        bridge=bridge,
        pops=PopEscape(pops),
    )
