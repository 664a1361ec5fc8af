"""Control pages and queue tables for tests, without descriptors left behind."""

from __future__ import annotations

import os

from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableReader, QueueTableWriter


def fresh_page() -> ControlPage:
    """A zeroed page; its mapping outlives the descriptor."""
    fd = ControlPage.create()
    try:
        return ControlPage(fd)
    finally:
        os.close(fd)


def close_page(page: ControlPage) -> None:
    """Unmap it."""
    page.counters.release()
    page._map.close()


def close_table(table: QueueTableReader | QueueTableWriter) -> None:
    """Unmap it."""
    units = table.unwritten
    for view in (
        *(table._head, table._ring, table.rows, table._directory, table._unwritten),
        *(units._words, units._heads, units._entries),
    ):
        view.release()
    table._map.close()
