"""What else a slave takes over from its master at the end of a round, besides the four tables."""

from __future__ import annotations

from collections.abc import Callable

from broker.acl.acl_synchronize import AclSynchronize
from broker.acl.plain_permission_manager import PlainPermissionManager
from broker.slave.message_request_mode_synchronize import MessageRequestModeSynchronize
from broker.slave.timer_synchronize import TimerSource, TimerSynchronize
from broker.wiring.broker_tables import BrokerTables
from store.message_store_config import MessageStoreConfig


def follow_ups(
    api: TimerSource,
    counters: memoryview[int],
    tables: BrokerTables,
    acl: PlainPermissionManager | None,
    store: MessageStoreConfig,
    note: Callable[[str], None],
) -> Callable[[str], None]:
    """What else is taken over from a master at the end of a round, once `note` knows of it."""
    modes = MessageRequestModeSynchronize(api, tables.request_modes)
    syncs: list[Callable[[str], None]] = [note, modes.sync]
    if store.timer_wheel_enable:
        syncs.append(TimerSynchronize(api, counters).sync)
    if acl is not None:
        syncs.append(AclSynchronize(api, acl).sync)

    def follow_up(master: str) -> None:
        for sync in syncs:
            sync(master)

    return follow_up
