"""PositionCheckpoint: up to which queue offset each queue is compacted; one small JSON file.

    {"empty": false,
     "queueOffsetMap": {"<topic>_<queueId>": <queue offset of the last record that was looked at>}}

Java reads and writes the same file (CompactionPositionMgr). Without it, or an entry, everything is
looked at again, which changes nothing. Owned by: the thread of CompactionStore.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final

from conf.atomic_file import replace_file
from store.mapped_file import make_directory

log = logging.getLogger(__name__)

NOTHING: Final = -1


class PositionCheckpoint:
    """See the module."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._positions: dict[str, int] = {}

    def load(self) -> None:
        """Read the file, else its .bak. Raises OSError."""
        for path in (self._path, self._path.with_name(self._path.name + ".bak")):
            try:
                table = json.loads(path.read_bytes())["queueOffsetMap"]
                self._positions = {str(name): int(offset) for name, offset in table.items()}
            except FileNotFoundError:
                continue
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("%s: ignored: %s", path, error)
                continue
            return

    def find(self, topic: str, queue_id: int) -> int:
        """Up to where the queue is compacted; -1: nothing is."""
        return self._positions.get(f"{topic}_{queue_id}", NOTHING)

    def put(self, topic: str, queue_id: int, position: int) -> None:
        """Note and write."""
        self._positions[f"{topic}_{queue_id}"] = position
        self._write()

    def forget(self, topic: str, queue_id: int) -> None:
        """The queue's log was deleted."""
        if self._positions.pop(f"{topic}_{queue_id}", None) is not None:
            self._write()

    def _write(self) -> None:
        table = {"empty": not self._positions, "queueOffsetMap": self._positions}
        text = json.dumps(table, indent="\t", separators=(",", ":"), ensure_ascii=False)
        try:
            make_directory(self._path.parent)
            replace_file(self._path, text.encode())
        except OSError as error:
            log.warning(
                "%s: cannot be written, records will be checked again: %s", self._path, error
            )
