"""A slave's connection that process `ha` lends to the loop (ha/link_loan.py), and the sends."""

from __future__ import annotations

from broker.store_access.store_follower import StoreFollower
from broker.wiring.process_resources import ProcessResources
from broker.wiring.store_side import StoreSide
from ha.frame_checksum import crc32c
from ha.link_borrower import LinkBorrower
from ha.source_files import LogSource
from remoting.selector_loop import SelectorLoop
from store.message_store_config import BrokerRole


def link_borrower(
    resources: ProcessResources, store: StoreSide, follower: StoreFollower, loop: SelectorLoop
) -> LinkBorrower:
    """What is published goes to the slave first of all while a send waits for it, and else after
    the turn's answers."""
    files = resources.options.store
    source = LogSource(files.log_directories, files.mapped_file_size_commit_log, resources.page)
    if files.broker_role is BrokerRole.SYNC_MASTER:
        crc32c(b"")  # Loads the library, which would take the loop 20 ms with the first loan.
    links = LinkBorrower(
        resources.channels["remoting<-lent"],
        source,
        resources.clock,
        loop,
        acknowledged=follower.acknowledged,
    )

    def before_ring() -> None:
        if links.link is not None and follower.waits_for_peer():
            links.send_awaited()

    store.before_ring = before_ring
    return links
