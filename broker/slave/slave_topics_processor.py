"""SlaveTopicsProcessor: serves the topic table (21) on the VIP port, for Java slaves.

Runs in the `admin` pool. A slave of 5.3.2 or 5.3.3 parses the attributes of its master's topics as
changes to topics that it has just deleted. If they lack a sign it fails and has no topics, whatever
its master is (apache/rocketmq#9403). So these versions get the attributes as changes, with signs.
Tools use the main port, and later slaves read the table unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from broker.processor.table_pages import TablePages
from broker.processor.table_processor import TableProcessor
from remoting.body.topic_config import TopicConfigSerializeWrapper
from remoting.mq_version import V5_3_1, V5_3_3
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

_READ_AS_CHANGES: Final = range(V5_3_1 + 1, V5_3_3 + 1)


class SlaveTopicsProcessor(TableProcessor):
    """Code 21; the table is thread-safe."""

    def __init__(
        self, whole_table: Callable[[], TopicConfigSerializeWrapper], pages: TablePages
    ) -> None:
        """whole_table: the topic table and its data version (TopicConfigManager.wrapper)."""
        super().__init__({RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all_topic_config})
        self._whole_table = whole_table
        self._pages = pages

    def get_all_topic_config(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """21: the table, or a page of it."""
        wrapper, fields = self._pages.of_topics(self._whole_table(), request.ext_fields)
        if request.version in _READ_AS_CHANGES:
            wrapper = _as_changes(wrapper)
        return request.response(ResponseCode.SUCCESS, None, fields, wrapper.to_json_bytes())


def _as_changes(wrapper: TopicConfigSerializeWrapper) -> TopicConfigSerializeWrapper:
    table = {
        name: config
        if not config.attributes
        else replace(
            config, attributes={f"+{key}": text for key, text in config.attributes.items()}
        )
        for name, config in wrapper.topic_config_table.items()
    }
    return replace(wrapper, topic_config_table=table)
