"""MessageRequestModeManager: which groups pop which topics (messageRequestMode.json).

Changed by request 401 and, on a slave, by what its master has; read by pool threads. Rows are
replaced as a whole under one lock. Follows MessageRequestModeManager of RocketMQ 5.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from broker.json_config_manager import JsonConfigManager
from remoting.body.message_request_mode import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)


class MessageRequestModeManager(JsonConfigManager):
    """Rows by topic, then by group. Owned by: `_lock`; single lookups are safe without it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock = threading.Lock()
        self._table: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def find(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """What was set for the group's consumption of `topic`."""
        groups = self._table.get(topic)
        return None if groups is None else groups.get(group)

    def set_mode(self, row: SetMessageRequestModeRequestBody) -> bool:
        """Set a row and save it; False: it is in effect but could not be saved."""
        with self._lock:
            self._table.setdefault(row.topic, {})[row.consumer_group] = row
            self.mark_changed()
        return self.save_if_changed()

    def replace_all(self, wrapper: MessageRequestModeSerializeWrapper) -> None:
        """Take over another broker's table."""
        with self._lock:
            if wrapper.message_request_mode_map != self._table:
                self._table = wrapper.message_request_mode_map
                self.mark_changed()

    def decode(self, value: dict[str, Any]) -> None:
        """Replace the table by the file's. Raises ValueError."""
        table = MessageRequestModeSerializeWrapper.from_json(value).message_request_mode_map
        with self._lock:
            self._table = table

    def snapshot(self) -> dict[str, Any]:
        """The file's shape, and the answer to 402."""
        with self._lock:
            table = {topic: dict(groups) for topic, groups in self._table.items()}
        return MessageRequestModeSerializeWrapper(message_request_mode_map=table).to_json()
