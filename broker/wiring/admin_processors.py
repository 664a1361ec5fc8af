"""AdminProcessors: what answers operators, put together. Wiring only, for BrokerController.

Tested by tests/broker/wiring/test_routes.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from broker.acl.access import Access
from broker.admin.admin_acl_processor import AdminAclProcessor
from broker.admin.admin_audit import AdminAudit
from broker.admin.admin_audit_processor import AdminAuditProcessor
from broker.admin.admin_consume_stats_processor import AdminConsumeStatsProcessor
from broker.admin.admin_group_processor import AdminGroupProcessor
from broker.admin.admin_metrics_processor import AdminMetricsProcessor
from broker.admin.admin_mode_processor import AdminModeProcessor
from broker.admin.admin_offset_processor import AdminOffsetProcessor, OffsetLimits
from broker.admin.admin_queue_processor import AdminQueueProcessor
from broker.admin.admin_relay_processor import AdminRelayProcessor
from broker.admin.admin_reset_processor import AdminResetProcessor
from broker.admin.admin_runtime_processor import AdminRuntimeProcessor
from broker.admin.admin_topic_processor import AdminTopicProcessor
from broker.admin.consume_progress import ConsumeProgress
from broker.client.broker2client import Broker2Client
from broker.metrics.member_facts import find_member_facts
from broker.metrics.metrics_answers import MetricsAnswers
from broker.metrics.metrics_dump import dump_settings
from broker.metrics.metrics_dump_files import DumpSettings
from broker.processor.table_processor import TableProcessor
from broker.settings.config_update import BrokerConfigUpdate
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.outside import Outside
from broker.wiring.process_resources import ProcessResources
from broker.wiring.runtime_source import RuntimeSource
from broker.wiring.statistics import Statistics
from broker.wiring.store_side import StoreSide


@dataclass(frozen=True, slots=True)
class AdminProcessors:
    """See the module."""

    resources: ProcessResources
    store: StoreSide
    tables: BrokerTables
    statistics: Statistics
    access: Access
    outside: Outside
    audit: AdminAudit
    serves: Callable[[], bool]
    """Whether the broker is not stopping."""
    end_lite_group: Callable[[str, str], None]
    """(group, parent): a lite group was deleted."""

    def build(
        self, clients: Broker2Client, configs: BrokerConfigUpdate, runtime: RuntimeSource
    ) -> tuple[TableProcessor, ...]:
        """clients: calls of admin requests to clients."""
        identity, replication = self.outside.identity, self.outside.replication
        store, stats = self.store.access, self.statistics.manager
        return (
            *self._of_tables(),
            *self._of_groups(clients),
            AdminRelayProcessor(
                identity.broker_name, clients, store, self.access.gate.check_resources
            ),
            AdminRuntimeProcessor(
                configs=configs,
                runtime=runtime.runtime_info,
                totals=self.statistics.totals,
                stats=stats,
                commands=self.store.store_commands,
            ),
            AdminAclProcessor(self.access.manager, identity),
            AdminModeProcessor(
                self.resources.clock.monotonic_ms,
                self.outside.member_commands,
                has_timers=self.resources.options.store.timer_wheel_enable,
            ),
            replication.processor,
            replication.damage_repair.processor,
            self._of_metrics(),
            AdminAuditProcessor(self.audit),
        )

    def _of_metrics(self) -> AdminMetricsProcessor:
        resources = self.resources
        page, clock = resources.page, resources.clock
        member = find_member_facts(resources.options, page.counters, clock)

        def dump() -> DumpSettings | None:
            found = dump_settings(resources.options)
            if found is None or member is None:
                return found
            # The id that the controller gave, which is the dump's whatever the role.
            return dataclasses.replace(found, broker_id=member.broker_id)

        answers = MetricsAnswers(resources.metrics_fd, page, clock)
        return AdminMetricsProcessor(answers, dump, clock)

    def _of_tables(self) -> tuple[TableProcessor, ...]:
        tables, store = self.tables, self.store.access
        clock, identity = self.resources.clock, self.outside.identity
        progress = ConsumeProgress(
            clock, tables.consumers, tables.offsets, store, tables.mappings.table
        )
        topics = AdminTopicProcessor(
            self.resources.options.broker,
            topics=tables.topics,
            mappings=tables.mappings,
            consumer_offsets=tables.offsets,
            store=store,
            commands=self.store.store_commands,
            stats=self.statistics.manager,
            is_slave=self._is_slave,
        )
        topics.serves = self.serves
        return (
            topics,
            AdminQueueProcessor(store, tables.consumers, tables.filters.find),
            AdminOffsetProcessor(
                identity.broker_addr,
                topics=tables.topics,
                groups=tables.groups,
                consumer_offsets=tables.offsets,
                schedule_offsets=tables.schedule_offsets,
                store=store,
                progress=progress,
                limits=OffsetLimits(
                    self.outside.replication.find_offsets_objection, self._is_slave
                ),
            ),
            AdminConsumeStatsProcessor(
                identity, tables.topics, tables.groups, progress, self.statistics.manager
            ),
        )

    def _of_groups(self, clients: Broker2Client) -> tuple[TableProcessor, ...]:
        broker, tables = self.resources.options.broker, self.tables
        groups = AdminGroupProcessor(
            broker,
            groups=tables.groups,
            consumers=tables.consumers,
            producers=tables.producers,
            consumer_offsets=tables.offsets,
            stats=self.statistics.manager,
            is_slave=self._is_slave,
        )
        groups.serves = self.serves
        groups.end_lite_group = self.end_lite_group
        return (
            groups,
            AdminResetProcessor(
                broker.broker_name,
                clients,
                topics=tables.topics,
                groups=tables.groups,
                consumers=tables.consumers,
                consumer_offsets=tables.offsets,
                store=self.store.access,
                is_slave=self._is_slave,
            ),
        )

    def _is_slave(self) -> bool:
        return self.resources.role.is_slave
