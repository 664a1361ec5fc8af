"""How a broker begins in the role that it has at its start: master or slave for life, or none yet.

Called by BrokerController, on the main thread of process `remoting`, before the loop runs, but for
what says otherwise. In controller mode a broker begins without a role, and the loop takes what
process `ha` orders (member_roles.py).

Tested by tests/broker/wiring/test_start_of_role.py.
"""

from __future__ import annotations

from broker.settings.current_role import CurrentRole
from broker.settings.startup_options import StartupOptions
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.message_services import MessageServices
from broker.wiring.outside import Outside
from broker.wiring.pop_services import PopServices
from broker.wiring.store_side import StoreSide
from remoting.selector_loop import SelectorLoop


def open_log(
    role: CurrentRole,
    options: StartupOptions,
    store: StoreSide,
    tables: BrokerTables,
    pop: PopServices,
    messages: MessageServices,
) -> None:
    """A master becomes the log's writer, a slave forgets what it did as one; the tables are loaded,
    the `store` process is ready. Raises StoreError, OSError."""
    if role.changes:
        tables.limit_to_cut(options.store.root, lambda *queue: store.table.offsets(*queue)[1])
        return
    if role.is_slave:
        # At once, also of a broker that is isolated: its master continues the log.
        messages.follow()
    else:
        tables.restore_lacking(store.stored_queues())
        store.open_log()
        messages.timers.log_opened()
        tables.limit_to(store.log.next_offset)
    pop.open()


def start_services(
    role: CurrentRole, messages: MessageServices, pop: PopServices, loop: SelectorLoop
) -> None:
    """What works by itself begins."""
    if not role.changes and not role.is_slave:
        messages.start()
        pop.start(loop)


def await_handover(
    messages: MessageServices, pop: PopServices, loop: SelectorLoop, outside: Outside
) -> None:
    """This broker registers: what its slaves may deliver in its place begins once they do not. Any
    thread."""

    def begin() -> None:
        if messages.handed_over():
            pop.handed_over(loop)

    outside.after_handover(lambda: loop.call_soon_threadsafe(begin))


def come_online(
    role: CurrentRole,
    messages: MessageServices,
    pop: PopServices,
    loop: SelectorLoop,
    outside: Outside,
) -> None:
    """This broker was isolated: what waited for that begins. Thread of PreOnlineService."""
    loop.call_soon_threadsafe(lambda: start_services(role, messages, pop, loop))
    await_handover(messages, pop, loop, outside)
