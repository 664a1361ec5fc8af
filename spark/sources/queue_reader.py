"""RangeReader: the messages of a range of a queue, each once, or an error that says what is gone.

Executors, in the one thread of a task; others fetch what comes next (pulls_ahead.py). What a broker
answers is distrusted: offsets that do not advance, messages of other topics and queues. Holes of
compacted and static topics are no loss; messages that retention removed on the way, or that a
shorter log never had, are (LossRule).

Tested by tests/spark/sources/test_queue_reader.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remoting.response_code import ResponseCode
from spark.sources.cluster import Cluster, Pulled
from spark.sources.errors import UnavailableError
from spark.sources.losses import LossRule
from spark.sources.patience import Patience
from spark.sources.pulled_rows import pulled_batch
from spark.sources.pulls_ahead import PullsAhead
from spark.sources.ranges import Range
from spark.sources.rows import (
    PAIR_END,
    PAIR_SIZE,
    ROW_SIZE,
    BatchMaker,
    StoredMessage,
    damage,
    messages_of,
    split_records,
)
from spark.sources.topic_kind import has_holes
from store.inner_batch import inner_num
from store.message_codec import CheckedRecord
from tools.message_puller import TOOLS_GROUP

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class ReadRules:
    """How a range is read. group: under whose name; expression: tags that the broker selects by
    their hash codes."""

    losses: LossRule
    group: str = TOOLS_GROUP
    expression: str = ALL


class RangeReader:
    """Reads one range. Owned by: one task."""

    def __init__(
        self,
        cluster: Cluster,
        part: Range,
        rules: ReadRules,
        wanted: Callable[[StoredMessage], bool] | None = None,
    ) -> None:
        self._cluster = cluster
        self._part = part
        self._queue = part.queue
        self._topic = part.topic.encode()
        self._rules = rules
        self._wanted = wanted
        self._is_whole = rules.expression == ALL
        self._has_holes: bool | None = None
        self._patience: Patience | None = None

    def messages(self, most_bytes: int = 1) -> Iterator[StoredMessage]:
        """The messages of the range in their order. most_bytes: of a batch, for what is fetched
        before it is wanted."""
        for each in self._pulls(most_bytes):
            yield from self._of_pull(each)
        if not self._is_whole:
            self._check_removed()

    def batches(self, maker: BatchMaker, most_bytes: int) -> Iterator[pa.RecordBatch]:
        """The same as Arrow batches of about `most_bytes`: where nothing is left out, many records
        at once, unless one of them is not ordinary."""
        if not self._is_whole or self._wanted is not None:
            yield from maker.batches(self.messages(most_bytes), most_bytes)
            return
        for pulls in self._collected(most_bytes):
            batch = pulled_batch(self._part, pulls, maker.arrow_schema, is_static=self._is_static())
            if batch is not None:
                yield batch
            else:
                messages = (message for each in pulls for message in self._of_pull(each))
                yield from maker.batches(messages, most_bytes)

    def _collected(self, most_bytes: int) -> Iterator[list[tuple[int, Pulled]]]:
        """Pulls whose rows have about so many bytes together, as BatchMaker counts them."""
        kept: list[tuple[int, Pulled]] = []
        size = 0
        for each in self._pulls(most_bytes):
            kept.append(each)
            size += _weight(each)
            if size >= most_bytes:
                yield kept
                kept, size = [], 0
        if kept:
            yield kept

    def _of_pull(self, each: tuple[int, Pulled]) -> Iterator[StoredMessage]:
        """Nothing that an earlier record had, nor what the next pull asks for: each message once,
        in whatever order a broker says them."""
        offset, pulled = each
        expected, end = offset, min(pulled.next_offset, self._part.end)
        for record in split_records(pulled.records):
            if isinstance(record, str) or (stray := self._stray(record)):
                self._damaged(record if isinstance(record, str) else stray)
                continue
            first = record.queue_offset + pulled.offset_delta
            if self._is_whole:
                self._hole(expected, min(first, end))
            yield from self._messages(record, pulled.offset_delta, expected, end)
            expected = max(expected, first + inner_num(record.sys_flag, record.properties))
        if self._is_whole:
            self._hole(expected, end)

    def _stray(self, record: CheckedRecord) -> str:
        """What is wrong with the place that a record says it is of; nothing: "". Those of a static
        topic have the queue ids that their brokers keep them by."""
        if record.topic != self._topic:
            wrong = f"topic, {str(record.topic, 'utf-8', 'replace')!r}"
        elif record.queue_id != self._part.queue_id and not self._is_static():
            wrong = f"queue, {record.queue_id}"
        else:
            return ""
        return f"the record at queue offset {record.queue_offset} is of another {wrong}"

    def _is_static(self) -> bool:
        """Of the route that the pull has taken, so nothing is asked for."""
        return bool(self._cluster.route(self._part.topic).topic_queue_mapping_by_broker)

    def _messages(
        self, record: CheckedRecord, offset_delta: int, begin: int, end: int
    ) -> Iterator[StoredMessage]:
        """Of an inner batch those from `begin` up to `end`; of a static topic the logic queue's
        id."""
        for message in messages_of(record, self._part.broker_name, offset_delta):
            if begin <= message.queue_offset < end:
                message.queue_id = self._part.queue_id
                if self._wanted is None or self._wanted(message):
                    yield message

    # -- pulls ---------------------------------------------------------------------------------

    def _pulls(self, most_bytes: int) -> Iterator[tuple[int, Pulled]]:
        """Answers that move on, each with the offset that was asked for; those that come next are
        fetched while one is being read."""
        offset, end = self._part.begin, self._part.end
        late_s = self._cluster.connection.timeout_ms / 1000 / 4
        with PullsAhead(
            self._pull, end, most_bytes, is_whole=self._is_whole, late_s=late_s
        ) as ahead:
            while offset < end:
                pulled = ahead.take(offset)
                following = self._following(offset, pulled)
                if following is None:
                    return
                if following > offset:
                    ahead.ask_on(offset, pulled, following)
                    if pulled.code == ResponseCode.SUCCESS:
                        yield offset, pulled
                offset = following

    def _pull(self, offset: int, count: int) -> Pulled:
        return self._cluster.pull(
            self._queue,
            offset,
            count,
            group=self._rules.group,
            expression=self._rules.expression,
        )

    def _following(self, offset: int, pulled: Pulled) -> int | None:
        """The offset of the next pull; None at the end of what there is."""
        code, following, low = pulled.code, pulled.next_offset, pulled.min_offset
        end = self._part.end
        if code == ResponseCode.PULL_OFFSET_MOVED and pulled.is_master and following < offset:
            self._rules.losses.shorter(self._queue, offset, pulled.max_offset)
            return None
        if low > offset and code != ResponseCode.SUCCESS:
            self._rules.losses.retention(self._queue, offset, min(low, end))
            self._patience = None
            return min(low, end)
        if following <= offset or code in _NOTHING:
            return self._stalled(offset, pulled)
        self._patience = None
        if code != ResponseCode.SUCCESS and self._rules.expression == ALL:
            self._hole(offset, min(following, end))
        return min(following, end)

    def _stalled(self, offset: int, pulled: Pulled) -> int | None:
        """Somebody knows less than there is to read: a slave that lags, or a log that became
        shorter. Asks again for `retry_ms`."""
        retry_ms = self._cluster.connection.retry_ms
        if self._patience is None:
            self._patience = Patience(retry_ms, self._cluster.pause)
        if self._patience.wait():
            self._cluster.refresh(self._queue.topic)
            return offset
        if pulled.is_master and pulled.max_offset <= offset:
            self._rules.losses.shorter(self._queue, self._part.end, pulled.max_offset)
            return None
        raise UnavailableError(
            f"topic {self._queue.topic}, queue {self._queue.queue_id}: {pulled.address} of broker "
            f"{self._queue.broker_name} had nothing at offset {offset} for {retry_ms} ms (option "
            f"retryMs), though the queue ends at {self._part.end} or later: does it lag behind?"
        )

    # -- what is missing -----------------------------------------------------------------------

    def _hole(self, first: int, end: int) -> None:
        """No messages at these offsets. Brokers leave out those whose log file was just removed."""
        if first >= end:
            return
        if self._has_holes is None:
            self._has_holes = has_holes(self._cluster, self._queue)
        if not self._has_holes:
            self._rules.losses.retention(self._queue, first, end)

    def _check_removed(self) -> None:
        """Where the broker selects, only this tells that it found no messages because they were
        removed meanwhile."""
        low = self._cluster.min_offset(self._queue)
        if low > self._part.begin:
            self._rules.losses.retention(self._queue, self._part.begin, min(low, self._part.end))

    def _damaged(self, reason: str) -> None:
        error = damage(self._queue.broker_name, self._queue.queue_id, reason)
        if self._rules.losses.fails:
            raise error
        log.warning("%s: left out", error)


def _weight(each: tuple[int, Pulled]) -> int:
    """Of a pull, before anything of it is read: a body's bytes may look like ends of properties."""
    offset, pulled = each
    pairs = pulled.records.count(PAIR_END)
    rows = min(pulled.next_offset - offset, len(pulled.records))
    return len(pulled.records) + ROW_SIZE * rows + PAIR_SIZE * pairs


_NOTHING: Final = frozenset({ResponseCode.PULL_NOT_FOUND})
