"""CompactionTopics: which topics are compaction topics, as process `store` learns it.

It reads config/topics.json, which `remoting` saves before it answers that a topic was created, and
which a store that Java made has, too. The file is read again when it has changed. Used by one
thread at a time.
"""

from __future__ import annotations

import logging
from pathlib import Path

from broker.json_config_manager import parse_object
from broker.topic.topic_attributes import is_compaction
from remoting.body.topic_config import TopicConfigSerializeWrapper

log = logging.getLogger(__name__)

_MARK = b"COMPACTION"


class CompactionTopics:
    """See the module."""

    def __init__(self, path: Path) -> None:
        """path: of topics.json."""
        self._paths = (path, path.with_name(path.name + ".bak"))
        self._seen: tuple[int, int, int] | None = None
        self._topics: frozenset[str] = frozenset()

    def find(self) -> frozenset[str]:
        """Their names. A file that cannot be read changes nothing: what was known stays."""
        state = _state_of(self._paths[0])
        if state is None or state != self._seen:
            for path in self._paths:
                found = _read(path)
                if found is not None:
                    self._topics = found
                    break
            self._seen = state
        return self._topics


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: Path) -> frozenset[str] | None:
    """None: there is no file, or no valid one."""
    try:
        text = path.read_bytes()
        if _MARK not in text and text.strip(b" \t\r\n\0"):
            return frozenset()
        table = TopicConfigSerializeWrapper.from_json(parse_object(text)).topic_config_table
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s: compaction topics not read: %s", path, error)
        return None
    return frozenset(name for name, config in table.items() if is_compaction(config.attributes))
