"""Cold reads put together: what brings old records into memory; flow control with its counters, the
look at the page cache, and pulls that are slowed.

Built once on the main thread, also where it is off: a request may turn it on (25).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.coldctr.cold_ctr_strategy import (
    ColdCtrStrategy,
    PIDAdaptiveColdCtrStrategy,
    SimpleColdCtrStrategy,
)
from broker.coldctr.cold_data_cg_ctr_service import ROUND_MS, ColdDataCgCtrService
from broker.coldctr.cold_data_check_service import ColdDataCheckService
from broker.pull.cold_pulls import ColdPulls
from broker.settings.broker_config import BrokerConfig
from broker.settings.memory_limit import memory_limit_bytes
from broker.settings.startup_options import StartupOptions
from broker.store_access.pages_ahead import PagesAhead
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.process_resources import ProcessResources
from broker.wiring.store_side import StoreSide
from remoting.body.heartbeat import ConsumeType
from remoting.selector_loop import SelectorLoop
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.mapped_file_queue import list_store_files

_SCAN_MS: Final = 1_000
_PID_AIM: Final = 0.8


class ColdData:
    """See the module. Owned by: BrokerController."""

    def __init__(
        self,
        resources: ProcessResources,
        store: StoreSide,
        tables: BrokerTables,
        *,
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """call_soon: runs a function on the loop; any thread."""
        options, clock = resources.options, resources.clock
        config = options.store
        self._clock: Final = clock
        self._reader: Final = store.loop_reader
        self._check: Final = ColdDataCheckService(
            config,
            memory_limit_bytes(config.access_message_in_memory_hot_ratio),
            lambda: list_store_files(config.log_directories),
            on_failure=resources.on_failure,
        )

        counters = resources.page.counters
        self.pages: Final = PagesAhead(
            config.log_directories.path_of,
            config.mapped_file_size_commit_log,
            lambda: (counters[MIN_PHY_OFFSET], counters[MAX_PHY_OFFSET]),
            call_soon,
            reads_on=config.data_read_ahead_enable,
        )

        def consume_type(group: str) -> ConsumeType | None:
            info = tables.consumers.find_group(group)
            return None if info is None else info.consume_type

        self.pulls: Final = ColdPulls(
            ColdDataCgCtrService(
                options.broker,
                _strategy(options.broker),
                clock.now_ms,
                enabled=config.cold_data_flow_control_enable,
            ),
            self._check,
            resources.page,
            store.table,
            store.loop_units,
            consume_type,
            clock.monotonic_ms,
            enabled=config.cold_data_flow_control_enable,
        )

    def start(self, loop: SelectorLoop) -> None:
        """Begin the rounds, and look at the page cache where that is wanted."""
        loop.call_every(ROUND_MS, self.pulls.ctr.end_round)
        loop.call_every(_SCAN_MS, self._scan)
        self._check.start()

    def _scan(self) -> None:
        """Serve the pulls that have been held for long enough."""
        self.pulls.hold_service.scan(self._clock.monotonic_ms())

    def use(self, options: StartupOptions) -> None:
        """Settings were changed. Loop thread."""
        self.pulls.use(options.broker, enabled=options.store.cold_data_flow_control_enable)
        self._check.use(options.store)
        self._reader.read_ahead(options.store.data_read_ahead_enable)
        self.pages.reads_on = options.store.data_read_ahead_enable

    def shutdown(self) -> None:
        """Stop looking at the page cache, and bringing pages into it."""
        self._check.shutdown()
        self.pages.shutdown()


def _strategy(broker: BrokerConfig) -> ColdCtrStrategy:
    if broker.use_pid_cold_ctr_strategy:
        return PIDAdaptiveColdCtrStrategy(int(broker.global_cold_read_threshold * _PID_AIM))
    return SimpleColdCtrStrategy()
