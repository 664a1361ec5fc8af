"""QueryMessageProcessor: finds messages by key or unique key (12), or one by its id (33).

Runs in the `query` pool: both read files. Records are returned as stored, concatenated. Follows
QueryMessageProcessor of RocketMQ; the index compares hashes only: other topics
are left out here, and clients leave out other keys.
Knows neither the index's nor the log's layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from broker.processor.stored_rights import StoredRights, everybody, to_read
from broker.processor.table_processor import TableProcessor
from broker.store_access.store_access import StoreAccess
from remoting.command_custom_header import decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.query import (
    UNIQUE_KEY_QUERY,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.java_hash import TAG_KEY
from store.message_codec import decode_record

MAX_ANSWER_SIZE: Final = 12 << 20
"""Java peers reject frames larger than 16 MiB: further messages are left out, but never the
first."""


_TAGS: Final = "T"
"""indexType."""


class QueryMessageProcessor(TableProcessor):
    """Codes 12 and 33."""

    def __init__(
        self,
        store: StoreAccess,
        *,
        default_query_max_num: int,
        max_msgs_num_batch: int,
        reads_index: bool = True,
        rights: StoredRights = everybody,
    ) -> None:
        """reads_index: indexFileReadEnable."""
        self._store = store
        self._reads_index = reads_index
        self._rights = rights
        self._default_query_max_num = default_query_max_num
        self._max_msgs_num_batch = max_msgs_num_batch
        super().__init__(
            {
                RequestCode.QUERY_MESSAGE: self.query_message,
                RequestCode.VIEW_MESSAGE_BY_ID: self.view_message_by_id,
            }
        )

    def query_message(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """12: messages of a topic with a key, or with tags, oldest first; QUERY_NOT_FOUND if there
        are none."""
        header = decode_header(QueryMessageRequestHeader, request.ext_fields)
        key, max_num = header.key, header.max_num
        if request.ext_fields.get(UNIQUE_KEY_QUERY) == "true":
            max_num = self._default_query_max_num
        elif header.index_type == _TAGS:
            key = TAG_KEY + key
        max_num = max(0, min(max_num, self._max_msgs_num_batch))
        times_ms = header.begin_timestamp, header.end_timestamp
        phy_offsets, last_ms, last_phy_offset = (
            self._store.query_index(header.topic, key, max_num, *times_ms)
            if self._reads_index
            else ([], 0, 0)
        )
        if not phy_offsets:
            # The index position is returned only with results.
            last_ms = last_phy_offset = 0
        ext_fields = encode_header(
            QueryMessageResponseHeader(
                index_last_update_timestamp=last_ms, index_last_update_phyoffset=last_phy_offset
            )
        )
        body = b"".join(_up_to(MAX_ANSWER_SIZE, self._records(header.topic, phy_offsets)))
        if body:
            return request.response(ResponseCode.SUCCESS, None, ext_fields, body)
        return request.response(
            ResponseCode.QUERY_NOT_FOUND,
            "can not find message, maybe time range not correct",
            ext_fields,
        )

    def view_message_by_id(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """33: the record at a commit log offset. 4.9 names no topic: the record's own counts."""
        header = decode_header(ViewMessageRequestHeader, request.ext_fields)
        record = self._store.record_at(header.offset)
        if record is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {header.offset}",
            )
        self._rights(connection, request, to_read(decode_record(record, 0)[0]))
        return request.response(ResponseCode.SUCCESS, body=record)

    def _records(self, topic: str, phy_offsets: list[int]) -> Iterator[bytes]:
        """The index holds hashes: a key can be made to match the messages of another topic."""
        for phy_offset in sorted(set(phy_offsets)):
            record = self._store.record_at(phy_offset)
            if record is not None and decode_record(record, 0)[0].topic == topic:
                yield record


def _up_to(limit: int, records: Iterable[bytes]) -> Iterator[bytes]:
    """The first record, then as many as fit into `limit` bytes together."""
    size = 0
    for record in records:
        size += len(record)
        if size > limit and size > len(record):
            return
        yield record
