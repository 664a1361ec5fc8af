"""PeekMessageProcessor: shows what a group would pop next (200052), and takes nothing.

Runs on the loop thread. No filter, no handles: of the answer's header only restNum is filled, the
rest is 0 as with RocketMQ. Follows PeekMessageProcessor.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from broker.pop.peeking_check import PeekingCheck, queues_from
from broker.pop.pop_message_reader import EVERYTHING, PopMessageReader
from broker.pop.pop_names import MAX_POP_MESSAGES
from broker.pop.pop_stats import PopStats
from broker.processor.table_processor import TableProcessor
from remoting.body.topic_config import TopicConfig
from remoting.command_custom_header import decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.pop import PeekMessageRequestHeader, PopMessageResponseHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.get_message_status import OFFSET_OVERFLOW_BADLY, OFFSET_TOO_SMALL

_RETRY_FIRST: Final = 20
"""% of the requests that look into the retry topic first."""
_WRONG_OFFSET: Final = frozenset({OFFSET_TOO_SMALL, OFFSET_OVERFLOW_BADLY})


class _Peek:
    """One request: what it has got so far."""

    __slots__ = ("group", "limit", "records", "rest")

    def __init__(self, group: str, limit: int) -> None:
        self.group = group
        self.limit = limit
        self.records: list[bytes] = []
        self.rest = 0


class PeekMessageProcessor(TableProcessor):
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        check: PeekingCheck,
        reader: PopMessageReader,
        log_end: Callable[[], int],
        stats: PopStats,
    ) -> None:
        """log_end: of the published log."""
        super().__init__({RequestCode.PEEK_MESSAGE: self.peek})
        self._check = check
        self._reader = reader
        self._log_end = log_end
        self._stats = stats

    def peek(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """200052: SUCCESS with records back to back, or PULL_NOT_FOUND."""
        header = decode_header(PeekMessageRequestHeader, request.ext_fields)
        topic, group = header.topic, header.consumer_group
        config = self._check.check(connection, topic, group, header.queue_id)
        if header.max_msg_nums < 0:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"peek message's num is {header.max_msg_nums}"
            )
        peek = _Peek(group, min(header.max_msg_nums, MAX_POP_MESSAGES))
        chance = random.randrange(100)
        retries = self._check.retry_topics(topic, group)
        if chance < _RETRY_FIRST:
            self._peek_topics(peek, retries, chance)
        if header.queue_id < 0:
            self._peek_topics(peek, [config], chance)
        else:
            self._peek_queue(peek, topic, header.queue_id)
        if chance >= _RETRY_FIRST and len(peek.records) < peek.limit:
            self._peek_topics(peek, retries, chance)
        body = b"".join(peek.records)
        answer = PopMessageResponseHeader(
            pop_time=0, invisible_time=0, revive_qid=0, rest_num=peek.rest
        )
        code, remark = ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE"
        if body:
            code, remark = ResponseCode.SUCCESS, "FOUND"
            self._stats.add_get(group, topic, len(peek.records), len(body))
        return request.response(code, remark, encode_header(answer), body)

    def _peek_topics(self, peek: _Peek, topics: list[TopicConfig], chance: int) -> None:
        for config in topics:
            for queue_id in queues_from(config.read_queue_nums, chance):
                self._peek_queue(peek, config.topic_name or "", queue_id)

    def _peek_queue(self, peek: _Peek, topic: str, queue_id: int) -> None:
        offset, high = self._check.range_left(topic, peek.group, queue_id)
        peek.rest += high - offset
        left = peek.limit - len(peek.records)
        if left <= 0:
            return
        log_end = self._log_end()
        read = self._reader.read(topic, queue_id, offset, left, EVERYTHING, log_end)
        if read.status in _WRONG_OFFSET:
            offset = read.next_offset
            read = self._reader.read(topic, queue_id, offset, left, EVERYTHING, log_end)
        peek.records += map(bytes, read.records)
