"""TransactionalMessages: the parts of transactions put together, their start and their stop.

Used by BrokerController; no policy. The processor serves on slaves too (it refuses); the checks
run on masters only, and only while the loop runs: they hand to it what is to be appended.
"""

from __future__ import annotations

import threading

from broker.append.writable_log import WritableLog
from broker.client.broker2client import Broker2Client
from broker.metrics.hot_path_stats import HotPathStats
from broker.processor.stored_rights import StoredRights, judge_of_ends
from broker.transaction.askable_producers import AskableProducers
from broker.transaction.earlier_ends import EarlierEnds
from broker.transaction.end_transaction_processor import (
    EndTransactionParts,
    EndTransactionProcessor,
)
from broker.transaction.end_transaction_route import EndTransactionRoute
from broker.transaction.half_message_states import HalfMessageStates
from broker.transaction.transactional_message_bridge import (
    BridgeParts,
    TransactionalMessageBridge,
)
from broker.transaction.transactional_message_check_service import TransactionalMessageCheckService
from broker.transaction.transactional_message_service import (
    CheckSettings,
    TransactionalMessageService,
)
from broker.transaction.young_halves import YoungHalves
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.process_resources import ProcessResources
from broker.wiring.store_side import StoreSide
from broker.wiring.timers import Timers
from remoting.selector_loop import SelectorLoop
from store.control_slots import FLUSHED_OFFSET


class TransactionalMessages:
    """See the module. Owned by: the controller's thread."""

    def __init__(
        self,
        resources: ProcessResources,
        loop: SelectorLoop,
        store: StoreSide,
        tables: BrokerTables,
        log: WritableLog,
        stats: HotPathStats,
        rights: StoredRights,
        timers: Timers,
    ) -> None:
        """rights: of an account on the message that it ends."""
        self._resources = resources
        self._rights = rights
        self._loop = loop
        self._store = store
        self._tables = tables
        self._log = log
        self._stats = stats
        self._halves = HalfMessageStates()
        self._earlier = EarlierEnds(store.access)
        self._checks: TransactionalMessageCheckService | None = None
        self._young: YoungHalves | None = None
        self.processor = EndTransactionProcessor(
            EndTransactionParts(
                log=log,
                reader=store.access,
                halves=self._halves,
                earlier=self._earlier,
                timers=timers.hook,
                put_back_topic=timers.put_back_topic,
                stats=stats,
                on_loop=loop.call_soon_threadsafe,
                later=loop.call_later,
                is_slave=store.is_slave,
                rights=rights,
            )
        )
        """Codes 37 and 323."""

    def route(self, young_halves: YoungHalves) -> EndTransactionRoute:
        """The fast route of 37, without access control. Once."""
        self._young = young_halves
        return EndTransactionRoute(
            self._log,
            young_halves,
            self._halves,
            self._tables.topics.find,
            self._stats,
            self.processor.append_op,
        )

    def start(self, calls: Broker2Client) -> None:
        """Begin to check; the log is open, this is a master. The loop may start a little later.
        Again after `cease`."""
        options, log = self._resources.options, self._log.commit_log
        bridge = TransactionalMessageBridge(
            BridgeParts(
                commit_log=log,
                append=self._log.append_queue.append,
                reader=self._store.access,
                halves=self._halves,
                waiting=self._stats.transactions.waiting,
                earlier=self._earlier,
                offsets=self._tables.offsets,
                on_loop=self._loop.call_soon_threadsafe,
                flushed_offset=lambda: self._store.page.counters[FLUSHED_OFFSET],
            )
        )
        service = TransactionalMessageService(
            CheckSettings(
                time_out_ms=options.broker.transaction_time_out,
                check_max=options.broker.transaction_check_max,
                check_interval_ms=options.broker.transaction_check_interval,
                file_reserved_time_hours=options.store.file_reserved_time,
                retention_time_path=options.store.retention_time_path,
                store_host=log.store_host,
                store_host_flag=log.store_host_flag,
            ),
            bridge,
            self._halves,
            self._tables.topics,
            AskableProducers(self._tables.producers, judge_of_ends(self._rights)),
            calls,
            self._stats.transactions,
            self._resources.clock,
        )
        self._checks = TransactionalMessageCheckService(
            service,
            options.broker.transaction_check_interval,
            self._resources.clock,
            predecessor=self._checks,
            on_failure=self._resources.on_failure,
        )
        self._checks.start()

    def cease(self) -> None:
        """This broker leads no more: ends wait for the next `start`. Does not wait for the thread,
        which may wait for this one, the loop's."""
        if self._young is not None:
            self._young.clear()
        self._stats.transactions.waiting.clear()
        self._halves.known = threading.Event()
        if self._checks is not None:
            self._checks.abandon()

    def shutdown(self) -> None:
        """No round after this one; idempotent. Another thread than the loop's, before its end."""
        if self._checks is not None:
            self._checks.shutdown()
