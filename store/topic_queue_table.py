"""Rebuilds the writer's queue offsets before the first write; claims those of repaired records.

The first runs once in `remoting`, before anything is appended. The truth is in two places: the
queue table covers the log up to dispatched_offset, the log itself holds what came after.
dispatched_offset is read first: whatever lies before it is in the table by then, whatever the
`store` process dispatches meanwhile is only seen twice. Corresponds to
CommitLog.recoverTopicQueueTable of RocketMQ, which covers the consumequeue only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableReader
from store.commit_log import CommitLog
from store.commit_log_reader import CommitLogReader
from store.control_slots import DISPATCHED_OFFSET, MAX_PHY_OFFSET
from store.errors import RecordDamagedError
from store.inner_batch import inner_num
from store.lmq_places import LMQ_QUEUE_ID, lmq_places, topic_allows_lmq
from store.log_fences import FARTHEST_GUESS, LogFences
from store.message import Message
from store.message_codec import (
    SIZE_AND_MAGIC,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NOT,
    decode_record,
    is_blank_at,
)
from store.put_aside import ReadBy, RecordGuard

_COUNTED: Final = (TRANSACTION_NOT, TRANSACTION_COMMIT)


def rebuild_topic_queue_table(
    commit_log: CommitLog,
    page: ControlPage,
    table: QueueTableReader,
    reader: CommitLogReader,
    found: dict[str, int] | None = None,
) -> int:
    """Set the next offset of every queue in `commit_log`; returns the records walked.

    found: gets the topics of those records, each with its highest queue id plus one. Raises
    RecordDamagedError: published bytes are no record.
    """
    start = page.counters[DISPATCHED_OFFSET]
    end = page.counters[MAX_PHY_OFFSET]
    for topic, queue_id, _row in table:
        max_offset = table.offsets(topic, queue_id)[1]
        if max_offset:
            commit_log.next_offsets(topic)[queue_id] = max_offset
    _skip_lost(commit_log, reader.fences)
    walked = 0
    guard = RecordGuard(ReadBy.LOG_START)
    for record in _walk(reader, start, end):
        with guard.of(record.phy_offset):
            _raise_offset(commit_log, record)
        walked += 1
        if found is not None:
            found[record.topic] = max(found.get(record.topic, 0), record.queue_id + 1)
    return walked


def _skip_lost(commit_log: CommitLog, fences: LogFences) -> None:
    """What records inside of fences had, or may have had, is not given again."""
    for fence in fences:
        for topic, queue_id, following in fence.queues:
            offsets = commit_log.next_offsets(topic)
            if 0 < following - offsets.get(queue_id, following) <= FARTHEST_GUESS:
                offsets[queue_id] = following


def claim_queue_offsets(commit_log: CommitLog, data: memoryview) -> int:
    """The whole records in `data`, and blanks, come back into the log: the queue offsets that they
    have are not given to other messages, where they are not yet. Returns the log's end, behind
    which that holds. On the loop.

    An offset that is further ahead than there are records is of a queue that was deleted since.
    """
    records = list(_records_of(data))
    most_ahead = sum(inner_num(record.sys_flag, record.properties) for record in records)
    for record in records:
        if record.sys_flag & TRANSACTION_MASK in _COUNTED:
            offsets = commit_log.next_offsets(record.topic)
            following = offsets.get(record.queue_id, 0)
            if 0 <= record.queue_offset - following < most_ahead:
                offsets[record.queue_id] = _following(record)
            _claim_lmq(commit_log, record, len(records))
    return commit_log.position


def _claim_lmq(commit_log: CommitLog, record: Message, most_ahead: int) -> None:
    if commit_log.lmq is not None and topic_allows_lmq(record.topic):
        for name, offset in lmq_places(record.properties).items():
            following = commit_log.next_offset(name, LMQ_QUEUE_ID) or 0
            if 0 <= offset - following < most_ahead:
                commit_log.lmq.advance({name: offset + 1})


def _records_of(data: memoryview) -> Iterator[Message]:
    at = 0
    while at < len(data):
        if is_blank_at(data, at):
            at += SIZE_AND_MAGIC.unpack_from(data, at)[0]
            continue
        record, size = decode_record(data, at)
        yield record
        at += size


def _walk(reader: CommitLogReader, start: int, end: int) -> Iterator[Message]:
    at = start
    while at < end:
        if (fence := reader.fences.find(at)) is not None:
            at = fence.end
            continue
        view = reader.view_of_file(at)
        if view is None:
            raise RecordDamagedError(f"commit log: no file at {at}, published up to {end}")
        position = at % reader.file_size
        if is_blank_at(view, position):
            at += reader.file_size - position
            continue
        record, size = decode_record(view, position)
        yield record
        at += size


def _following(record: Message) -> int:
    return record.queue_offset + inner_num(record.sys_flag, record.properties)


def _raise_offset(commit_log: CommitLog, record: Message) -> None:
    """A queue offset of 0 means that the queue was deleted and made again."""
    if record.sys_flag & TRANSACTION_MASK not in _COUNTED:
        return
    offsets = commit_log.next_offsets(record.topic)
    following = _following(record)
    if record.queue_offset == 0 or following > offsets.get(record.queue_id, 0):
        offsets[record.queue_id] = following
    if commit_log.lmq is not None and topic_allows_lmq(record.topic):
        for name, offset in lmq_places(record.properties).items():
            if offset == 0 or offset >= (commit_log.next_offset(name, LMQ_QUEUE_ID) or 0):
                commit_log.lmq.advance({name: offset + 1})
