"""TopicQueueMappingManager: the static topics of this broker (config/topicQueueMapping.json).

`table` is what requests look into, without a lock: its rows are frozen and replaced as a whole.
Changed under `_lock` by request 513, by the deletion of a topic, on a slave by what its master has,
and by TopicQueueMappingCleanService. There is no file as long as there was no static topic. Follows
TopicQueueMappingManager of RocketMQ 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broker.json_config_manager import VersionedConfigManager
from ipc.clock import Clock
from remoting.body.data_version import DataVersion
from remoting.body.topic_config import TopicConfigSerializeWrapper
from remoting.body.topic_queue_mapping import (
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    TopicQueueMappingSerializeWrapper,
)
from remoting.errors import RequestError
from remoting.logic_queue import MappingError, check_items, merged_hosted
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)


class TopicQueueMappingManager(VersionedConfigManager):
    """Mappings by topic, and their data version. Owned by: `_lock`; reads need none."""

    def __init__(self, path: Path, broker_name: str, clock: Clock) -> None:
        super().__init__(path, clock, state_version=0)
        self._broker_name = broker_name
        self._mappings: dict[str, TopicQueueMappingDetail] = {}
        self.table: Final[Mapping[str, TopicQueueMappingDetail]] = self._mappings
        """The same object for good: hot paths test whether it is empty."""

    def infos(self, topics: Container[str]) -> dict[str, TopicQueueMappingInfo]:
        """What is registered about those of `topics` that are static."""
        rows = self._mappings.copy()
        return {topic: detail.info() for topic, detail in rows.items() if topic in topics}

    def with_mappings(self, wrapper: TopicConfigSerializeWrapper) -> TopicConfigSerializeWrapper:
        """The answer to 21: `wrapper` with the mappings. Unchanged where there was never one, so
        that it stays what 4.9 sends."""
        with self._lock:
            version = self._data_version
            if not self._mappings and not version.counter:
                return wrapper
            return replace(
                wrapper,
                mapping_data_version=version,
                topic_queue_mapping_detail_map=self._mappings.copy(),
            )

    # -- changes --------------------------------------------------------------------------------

    def update(self, detail: TopicQueueMappingDetail, *, force: bool) -> bool:
        """Take a mapping (513); False if it is in effect but could not be saved.

        Raises RequestError for one that may not replace what is there; nothing is changed then.
        """
        with self._lock:
            old = self._mappings.get(detail.topic)
            try:
                new = self._accepted(old, detail, force=force)
            except MappingError as error:
                raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
            self._mappings[detail.topic] = new
            self._next_version()
        log.info("static topic %s: old %s, new %s, force %s", detail.topic, old, new, force)
        return self.save_if_changed()

    def _accepted(
        self, old: TopicQueueMappingDetail | None, new: TopicQueueMappingDetail, *, force: bool
    ) -> TopicQueueMappingDetail:
        if new.bname != self._broker_name:
            raise MappingError(
                f"The mapping is of broker {new.bname!r}, this is broker {self._broker_name!r}"
            )
        for global_id, items in new.hosted_queues.items():
            if global_id < 0:
                raise MappingError(f"The global queue id {global_id} is negative")
            if not items:
                raise MappingError(f"The global queue id {global_id} has no items")
            check_items(items)
        hosted = new.hosted_queues if old is None else merged_hosted(old, new, force=force)
        return replace(new, hosted_queues={key: list(hosted[key]) for key in sorted(hosted)})

    def replace_items(self, old: TopicQueueMappingDetail, new: TopicQueueMappingDetail) -> bool:
        """Put `new` in the place of `old` (the clean service). False, and no change: it was
        replaced meanwhile."""
        with self._lock:
            if self._mappings.get(old.topic) is not old:
                return False
            self._mappings[old.topic] = new
            self._next_version()
        self.save_if_changed()
        return True

    def delete(self, topic: str) -> bool:
        """Forget a topic's mapping, if it has one; False if that could not be saved."""
        with self._lock:
            old = self._mappings.pop(topic, None)
            if old is None:
                return True
            self._next_version()
        log.info("static topic %s: mapping deleted %s", topic, old)
        return self.save_if_changed()

    def replace_all(
        self, mappings: Mapping[str, TopicQueueMappingDetail], data_version: DataVersion | None
    ) -> None:
        """Take over the master's table (21); None: it has none. The caller saves."""
        with self._lock:
            version = self._data_version if data_version is None else data_version
            if mappings == self._mappings and version == self._data_version:
                return
            for topic in self._mappings.keys() - mappings.keys():
                del self._mappings[topic]
            self._mappings.update(mappings)
            self._data_version = version
            self.mark_changed()
        log.info("static topics: copied from the master: %s", sorted(mappings) or "none")

    def _next_version(self, state_version: int | None = None) -> None:
        super()._next_version(state_version)
        self.mark_changed()

    # -- file -----------------------------------------------------------------------------------

    def decode(self, value: dict[str, Any]) -> None:
        """Replace the table by the file's. Raises ValueError."""
        if value.get("topicQueueMappingInfoMap") is None:
            raise ValueError("has no topicQueueMappingInfoMap")
        wrapper = TopicQueueMappingSerializeWrapper.from_json(value)
        for topic, detail in wrapper.topic_queue_mapping_info_map.items():
            if detail.bname != self._broker_name:
                log.warning("static topic %s: belongs to broker %s", topic, detail.bname)
        with self._lock:
            self._mappings.clear()
            self._mappings.update(wrapper.topic_queue_mapping_info_map)
            self._data_version = wrapper.data_version

    def snapshot(self) -> dict[str, Any]:
        """The file's shape."""
        with self._lock:
            return TopicQueueMappingSerializeWrapper(
                topic_queue_mapping_info_map=self._mappings.copy(), data_version=self._data_version
            ).to_json()
