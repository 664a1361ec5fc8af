"""TransactionalMessages: the parts of transactions put together, their start and their stop.

Used by BrokerController; no policy. The processor serves on slaves too (it refuses); the checks
run on masters only, and only while the loop runs: they hand to it what is to be appended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.append.append_line import AppendLine
from broker.append.durability_waiters import DurabilityWaiters
from broker.processor.end_transaction_processor import (
    EndTransactionParts,
    EndTransactionProcessor,
    Topics,
    TransactionStats,
)
from broker.settings.startup_options import StartupOptions
from broker.transaction.half_table import HalfTable
from broker.transaction.transactional_message_bridge import (
    BridgeParts,
    StoreReads,
    TransactionalMessageBridge,
    TransactionOffsets,
)
from broker.transaction.transactional_message_check_service import TransactionalMessageCheckService
from broker.transaction.transactional_message_service import (
    CheckSettings,
    CheckTopics,
    LiveProducers,
    ProducerCalls,
    TransactionalMessageService,
)
from ipc.clock import Clock
from ipc.service_thread import FailureHandler
from store.commit_log import CommitLog


class TransactionTopics(CheckTopics, Topics, Protocol):
    """What is needed of TopicConfigManager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionParts:
    """What transactions are made of."""

    options: StartupOptions
    commit_log: CommitLog
    line: AppendLine
    reader: StoreReads
    waiters: DurabilityWaiters
    stats: TransactionStats
    topics: TransactionTopics
    offsets: TransactionOffsets
    producers: LiveProducers
    clock: Clock
    on_loop: Callable[[Callable[[], None]], None]
    """Runs a function on the loop, soon (call_soon_threadsafe)."""
    later: Callable[[int, Callable[[], None]], object]
    """Runs a function on the loop after so many ms (call_later)."""
    flushed_offset: Callable[[], int]
    """Up to where the log is on disk."""
    on_failure: FailureHandler


class TransactionalMessages:
    """See the module. Owned by: the controller's thread."""

    def __init__(self, parts: TransactionParts) -> None:
        self._parts = parts
        self._halves = HalfTable()
        self._checks: TransactionalMessageCheckService | None = None
        self.processor = EndTransactionProcessor(
            EndTransactionParts(
                commit_log=parts.commit_log,
                line=parts.line,
                reader=parts.reader,
                halves=self._halves,
                topics=parts.topics,
                waiters=parts.waiters,
                stats=parts.stats,
                on_loop=parts.on_loop,
                later=parts.later,
                is_slave=parts.options.store.is_slave,
            )
        )
        """Codes 37 and 323."""

    def start(self, calls: ProducerCalls) -> None:
        """Begin to check; the log is open, this is a master. The loop may start a little later."""
        parts, options = self._parts, self._parts.options
        bridge = TransactionalMessageBridge(
            BridgeParts(
                commit_log=parts.commit_log,
                line=parts.line,
                reader=parts.reader,
                halves=self._halves,
                offsets=parts.offsets,
                on_loop=parts.on_loop,
                flushed_offset=parts.flushed_offset,
            )
        )
        service = TransactionalMessageService(
            CheckSettings(
                time_out_ms=options.broker.transaction_time_out,
                check_max=options.broker.transaction_check_max,
                file_reserved_time_hours=options.store.file_reserved_time,
                store_host=parts.commit_log.store_host,
                store_host_flag=parts.commit_log.store_host_flag,
            ),
            bridge,
            self._halves,
            parts.topics,
            parts.producers,
            calls,
            parts.clock,
        )
        self._checks = TransactionalMessageCheckService(
            service,
            options.broker.transaction_check_interval,
            parts.clock,
            on_failure=parts.on_failure,
        )
        self._checks.start()

    def shutdown(self) -> None:
        """No round after this one; idempotent. Another thread than the loop's, before its end."""
        if self._checks is not None:
            self._checks.shutdown()
