"""What a broker has noted of its log, beside it: parts that it passes over, or will cut off.

Driver, while a DataFrame is planned; reads small files of ours, and those that both brokers have.
The broker's judgement goes before the scan's: it knew the records before a damaged file, and what
its group has.

    <commitlog>-fences.json     damage that a broker of ours has found (store.log_fences)
    <store>/resync.json         where the log of a former master will be cut (store.resync_request)
    <store>/epochFileCheckpoint the broker is of a group with a controller: its checkpoint says how
                                far its replicas have the log

Tested by tests/spark/sources/test_log_notes.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spark.sources.errors import OptionError
from spark.sources.log_scan import NotedPart
from store.errors import StoreError
from store.log_fences import fences_path, load_fences
from store.resync_request import REQUEST_NAME, ResyncAction, find_request
from store.store_checkpoint import StoreCheckpoint

EPOCHS: Final = "epochFileCheckpoint"
CHECKPOINT: Final = "checkpoint"
END: Final = 1 << 63
"""Of all logs."""
CUT_REASON: Final = "the broker's group does not have it: its next start cuts it off"


def noted_parts(directory: Path, *, is_live: bool) -> list[NotedPart]:
    """Of the log in `directory`. OptionError, which names the file that cannot be
    understood."""
    try:
        return list(_noted(directory, is_live))
    except (StoreError, OSError) as error:
        raise OptionError(
            f"{error}; what a broker has noted beside {directory} decides what of it is read: to "
            "read all that is whole, move that file away, or name the log's files themselves"
        ) from None


def _noted(directory: Path, is_live: bool) -> Iterator[NotedPart]:
    for fence in load_fences(fences_path(directory)):
        yield NotedPart("fenced", fence.start, fence.end, fence.reason)
    store = directory.parent
    request = find_request(store) if (store / REQUEST_NAME).is_file() else None
    if request is not None and request.action is ResyncAction.TRUNCATE:
        yield NotedPart("cut", request.offset, END, f"{CUT_REASON} ({request.reason})")
    if is_live and (store / EPOCHS).is_file():
        checkpoint = StoreCheckpoint.load(store / CHECKPOINT)
        # A member has no units of what is not confirmed. Those of a broker that has left its group
        # go on, and its checkpoint keeps what was confirmed last.
        confirmed = checkpoint.confirm_offset
        if confirmed and checkpoint.logics_physical_offset <= confirmed:
            yield NotedPart(None, confirmed, END, "")
