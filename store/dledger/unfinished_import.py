"""What an import leaves in a store for the broker that starts on it.

    <root>/dledger_import.unfinished   while an import writes, and after one that was interrupted:
                                       no broker starts on half of the messages
    <root>/adoption.unfinished         the same of bin/mqadopt, and its state (adopt/state.py)
    <root>/adoption.json               its report, which stays
    <root>/imported_queues.json        queue offsets that are used up, for the first start: the log
                                       says nothing of a queue whose messages have expired

Written by the import, read by process `store` at a start, which removes the second once the queues
have what it says. Java ignores both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from conf.atomic_file import replace_file
from store.errors import StoreError
from store.mapped_file import sync_directory

UNFINISHED_NAME: Final = "dledger_import.unfinished"
ADOPTION_NAME: Final = "adoption.unfinished"
REPORT_NAME: Final = "adoption.json"
QUEUES_NAME: Final = "imported_queues.json"
QueueEnd = tuple[str, int, int]
"""Topic, queue id, the first queue offset that is free."""
_read_ends: Final = msgspec.json.Decoder(list[QueueEnd]).decode


def mark_unfinished(root: Path, source: Path) -> None:
    """From now on no broker starts here; on disk when it returns. Raises OSError."""
    replace_file(root / UNFINISHED_NAME, f"{source}\n".encode("utf-8", "surrogateescape"))


def is_unfinished(root: Path) -> bool:
    """Whether an import was begun here and not finished."""
    return (root / UNFINISHED_NAME).exists()


def is_adoption_unfinished(root: Path) -> bool:
    """Whether bin/mqadopt has begun here and not finished."""
    return (root / ADOPTION_NAME).exists()


def mark_finished(root: Path) -> None:
    """All is on disk. Raises OSError."""
    (root / UNFINISHED_NAME).unlink()
    sync_directory(root)


def refuse_unfinished(root: Path) -> None:
    """Raises StoreError: the import into this store was not finished."""
    if is_adoption_unfinished(root):
        raise StoreError(
            f"{root / ADOPTION_NAME}: taking over this store was not finished; run bin/mqadopt "
            "again as before: it goes on where it was"
        )
    if is_unfinished(root):
        raise StoreError(
            f"{root / UNFINISHED_NAME}: the import into this store was not finished, and messages "
            "are missing; run it again: python -m store.dledger_import SOURCE TARGET --again"
        )


def write_queue_ends(root: Path, ends: Iterable[QueueEnd]) -> None:
    """On disk when it returns. Raises OSError."""
    replace_file(root / QUEUES_NAME, msgspec.json.encode(list(ends)))


def take_over_queue_ends(
    root: Path, reserve: Callable[[str, int, int], None], flush: Callable[[int], int]
) -> None:
    """At the first start after an import, once the log is dispatched: queues go on where those of
    the source ended, whatever the log has. reserve: ConsumeQueueTable.reserve; flush: brings them
    to disk. Raises StoreError, OSError."""
    path = root / QUEUES_NAME
    if not path.exists():
        return
    for topic, queue_id, following in _load_queue_ends(path):
        reserve(topic, queue_id, following)
    flush(0)
    path.unlink()
    sync_directory(root)


def _load_queue_ends(path: Path) -> list[QueueEnd]:
    try:
        return _read_ends(path.read_bytes())
    except (UnicodeError, RecursionError, msgspec.DecodeError) as error:
        raise StoreError(
            f"{path}: not valid ({error}); import again, or remove it: then queues without "
            "messages begin at 0, and their consumers wait until they are reset"
        ) from error
