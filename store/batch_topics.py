"""BatchTopics: which topics have batch consume queues, as config/topics.json says.

Used by the dispatch thread of process `store`: a record does not say what its topic is. Process
`remoting` saves the file before it answers whoever makes such a topic, so that a look at the file's
time tells whether there is news; a slave has its master's table some seconds later. It must not
know queues. Corresponds to RocketMQ's QueueTypeUtils.getCQType.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, Final

log = logging.getLogger(__name__)

_ATTRIBUTE: Final = "queue.type"
_BATCH: Final = "BatchCQ"


class BatchTopics:
    """See the module. Owned by: whoever dispatches."""

    def __init__(self, path: Path) -> None:
        """path: of topics.json; it is not read yet."""
        self._path = path
        self._mark: tuple[int, ...] = ()
        self._text = b""
        self._all: frozenset[str] | None = frozenset()
        """Every topic in `_text`; None: not asked for since it was read."""
        self.names: frozenset[str] = frozenset()
        """The topics with queue.type=BatchCQ."""

    def refresh(self) -> bool:
        """Read the file if it is another one than before; True when `names` changed."""
        try:
            found = os.stat(self._path)
            mark: tuple[int, ...] = (found.st_mtime_ns, found.st_size, found.st_ino)
            if mark == self._mark:
                return False
            data = self._path.read_bytes()
        except FileNotFoundError:
            mark, data = (), b""
        except OSError as error:
            log.warning("%s: %s: keeping the known queue types", self._path, error)
            return False
        self._mark, self._text, self._all = mark, data, None
        before, self.names = self.names, self._parse(data)
        return self.names != before

    def says_simple(self, topic: str) -> bool:
        """Whether the file has `topic`, as one with simple consume queues. Parsed when first asked
        for: few stores have to know."""
        if self._all is None:
            table = self._table(self._text)
            self._all, self._text = frozenset(table or ()), b""
        return topic in self._all and topic not in self.names

    def _parse(self, data: bytes) -> frozenset[str]:
        if _BATCH.encode() not in data:
            return frozenset()
        table = self._table(data)
        if table is None:
            return self.names
        return frozenset(name for name, config in table.items() if _is_batch(config))

    def _table(self, data: bytes) -> dict[str, Any] | None:
        if not data:
            return {}
        try:
            table = json.loads(data)["topicConfigTable"]
            return dict(table.items())
        except (ValueError, KeyError, AttributeError, RecursionError) as error:
            log.warning("%s: %r: keeping the known queue types", self._path, error)
            return None


def _is_batch(config: Any) -> bool:
    attributes = config.get("attributes") if isinstance(config, dict) else None
    return isinstance(attributes, dict) and attributes.get(_ATTRIBUTE) == _BATCH
