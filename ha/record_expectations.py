"""RecordExpectations: whether the next records of a master's log are what has to come next.

A record whose parts add up may still be another one than the master wrote: RocketMQ's link has no
checksum, and a record's CRC covers its body. Here its fields are compared with what is known: the
next offset of its queue, the store host, and the times and bounds that a broker keeps to. What
differs is a suspicion, not a proof: record_doubts.py decides. Owned by: HAClient's thread; it
outlives a link, since it follows the log. It knows no files.

Of what a client chooses (CHOSEN_BY_CLIENTS) a master stores any number, as RocketMQ does: that few
are usual is a reason to ask once more on a link without checksums, and none on a checked one.

Fields that nothing can be compared with (flag, born address, keys and properties, the low bits of
times) are not judged. Each rule is there twice, for columns and for one; tests hold them equal.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ha.record_columns import RecordColumns, RecordFields, host_bytes
from ipc.clock import Clock
from store.inner_batch import INNER_BATCH_FLAG
from store.message_codec import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_PREPARED
from store.record_arrays import Int64Array

_UNUSUAL_FLAGS: Final = TRANSACTION_PREPARED | INNER_BATCH_FLAG
_DAY_MS: Final = 86_400_000
_MOST_STEP_MS: Final = 60_000
"""A master's clock may be set back, or be ahead of ours, this far."""
_MOST_UNBORN_MS: Final = _DAY_MS
"""A client's clock may be ahead of the master's this far."""
_OLDEST_BIRTH_MS: Final = 32 * _DAY_MS
"""A message that was sent back, or delayed, keeps the time of its birth."""
_MOST_IN_16_BITS: Final = 65_535
"""Queue ids, ports, times of a redelivery: none is larger in practice."""
_KNOWN_SYS_FLAGS: Final = 0x7FF
"""4.9 and 5.x: compression and its kind, tags, transaction, IPv6 hosts, batches."""
_TOPIC_NAME: Final = re.compile(rb"[%|a-zA-Z0-9_-]+(?:\+[%|a-zA-Z0-9_-]+)?")
"""With one "+" it is a retry topic of pops that has the V2 form."""
_RADIX_LIMIT: Final = 1 << 16
"""Sort keys below this fit uint16, which numpy sorts by radix, ten times as fast."""


class Field(enum.StrEnum):
    """What a record may be suspected for."""

    TOPIC = "topic"
    QUEUE_ID = "queueId"
    QUEUE_OFFSET = "queueOffset"
    SYS_FLAG = "sysFlag"
    BODY_CRC = "bodyCRC"
    BORN_TIMESTAMP = "bornTimestamp"
    BORN_PORT = "bornHost"
    STORE_TIMESTAMP = "storeTimestamp"
    STORE_HOST = "storeHost"
    RECONSUME_TIMES = "reconsumeTimes"
    PREPARED_TRANSACTION_OFFSET = "preparedTransactionOffset"


CHOSEN_BY_CLIENTS: Final = frozenset(
    {Field.QUEUE_ID, Field.SYS_FLAG, Field.BORN_TIMESTAMP, Field.RECONSUME_TIMES}
)
"""A master's append takes any number in these; the others are its own, and are never odd."""


class Suspicion(NamedTuple):
    """One field of one record is not what has to come next. `text`: for people."""

    field: Field
    text: str


class QueueEnd(NamedTuple):
    """The next offset of a queue is in [least, most]."""

    least: int
    most: int


QueueEnds = Callable[[str, int, int], QueueEnd]
"""(topic, queueId, phy_offset): what the consume queues, which may be behind the log, say of the
queue's next offset at `phy_offset`."""


class RecordExpectations:
    """See the module. Only what was admitted changes what is expected."""

    def __init__(self, queue_ends: QueueEnds, clock: Clock) -> None:
        self._queue_ends = queue_ends
        self._clock = clock
        self._began = self._end = -1
        """Everything that was admitted since is known here."""
        self._next: dict[tuple[bytes, int], int] = {}
        """The next offset of each queue that had a record since `_began`."""
        self._good_topics: set[bytes] = set()
        self._store_host = b""
        """The last record's; the first one of all is believed."""
        self._timestamp = 0
        """The last record's storeTimestamp; 0: not known."""
        self._ahead_ms = 0
        """So far the master's clock was seen ahead of ours."""

    def resume(self, phy_offset: int, *, of_other: bool = False) -> None:
        """What comes next, of another master perhaps, is at `phy_offset`: forget what is over."""
        if of_other or phy_offset != self._end:
            self._store_host, self._timestamp = b"", 0
        if phy_offset != self._end:
            self._next.clear()
            self._began = self._end = phy_offset

    def moved_to(self, phy_offset: int) -> None:
        """Everything before `phy_offset` was admitted, or is a blank."""
        self._end = phy_offset

    # -- one record ----------------------------------------------------------------------------

    def admit_usual(self, topic: bytes, head: tuple[Any, ...]) -> bool:
        """Admit a record that surely is what comes next, which nearly all are: quick. False,
        without any change, for all others. head: its fields up to the body's size."""
        _, _, crc, queue_id, _, offset, _, sys_flag, born_ms, born_host, stored_ms, *rest = head
        store_host, reconsume_times, prepared, _ = rest
        queue = topic, queue_id
        if not (
            offset == self._next.get(queue)
            and store_host == self._store_host
            and 0 <= stored_ms - self._timestamp <= _MOST_STEP_MS
            and -_MOST_UNBORN_MS <= stored_ms - born_ms <= _OLDEST_BIRTH_MS
            and 0 <= sys_flag <= _KNOWN_SYS_FLAGS
            and not sys_flag & _UNUSUAL_FLAGS
            and prepared == 0
            and born_host[4:6] == b"\0\0"
            and 0 <= reconsume_times <= _MOST_IN_16_BITS
            and 0 <= queue_id <= _MOST_IN_16_BITS
            and crc >= 0
        ):
            return False
        self._next[queue] = offset + 1
        self._timestamp = stored_ms
        return True

    def judge(self, record: RecordFields, muted: Collection[Field]) -> Suspicion | None:
        """What of `record` is not expected, but for the fields in `muted`; None: nothing."""
        for found in self._odd_fields(record):
            if found.field not in muted:
                return found
        return None

    def admit(self, record: RecordFields) -> None:
        """The record is part of the log: what follows it is expected now."""
        if not record.sys_flag & TRANSACTION_PREPARED:
            following = record.queue_offset + record.messages
            self._next[record.topic, record.queue_id] = following
        self._store_host = record.store_host
        self._set_time(record.store_timestamp)

    def _odd_fields(self, record: RecordFields) -> Iterator[Suspicion]:
        topic, stored_ms = record.topic, record.store_timestamp
        if topic not in self._good_topics and not self._learn_topic(topic):
            yield Suspicion(Field.TOPIC, f"{topic!r} is not a topic name")
        for field, value, most in (
            (Field.QUEUE_ID, record.queue_id, _MOST_IN_16_BITS),
            (Field.SYS_FLAG, record.sys_flag, _KNOWN_SYS_FLAGS),
            (Field.BORN_PORT, record.born_port, _MOST_IN_16_BITS),
            (Field.RECONSUME_TIMES, record.reconsume_times, _MOST_IN_16_BITS),
        ):
            if not 0 <= value <= most:
                yield Suspicion(field, f"{field} says {value} (0 to {most} are usual)")
        if record.body_crc < 0:
            yield Suspicion(Field.BODY_CRC, f"bodyCRC says {record.body_crc}: it is never negative")
        yield from self._odd_offsets(record)
        if record.store_host != self._store_host and self._store_host:
            text = f"storeHost {record.store_host.hex()} is new, before it was "
            yield Suspicion(Field.STORE_HOST, text + self._store_host.hex())
        if not self._least_ms <= stored_ms <= self._most_ms():
            text = f"storeTimestamp says {stored_ms}, the record before {self._timestamp}"
            yield Suspicion(Field.STORE_TIMESTAMP, text)
        if not -_MOST_UNBORN_MS <= stored_ms - record.born_timestamp <= _OLDEST_BIRTH_MS:
            text = f"bornTimestamp says {record.born_timestamp}, storeTimestamp {stored_ms}"
            yield Suspicion(Field.BORN_TIMESTAMP, text)

    def _odd_offsets(self, record: RecordFields) -> Iterator[Suspicion]:
        kind, offset = record.sys_flag & TRANSACTION_MASK, record.queue_offset
        if kind & TRANSACTION_PREPARED:
            if offset:
                text = f"queueOffset says {offset}, a prepared or rolled back record has none"
                yield Suspicion(Field.QUEUE_OFFSET, text)
        elif (expected := self._unexpected(record)) is not None:
            queue = f"{record.topic.decode(errors='replace')}/{record.queue_id}"
            text = f"queueOffset says {offset}, queue {queue} continues at {expected}"
            yield Suspicion(Field.QUEUE_OFFSET, text)
        prepared = record.prepared_transaction_offset
        if prepared and not (kind == TRANSACTION_COMMIT and 0 < prepared < record.phy_offset):
            text = f"preparedTransactionOffset says {prepared}, sysFlag {record.sys_flag:#x}"
            yield Suspicion(Field.PREPARED_TRANSACTION_OFFSET, text)

    def _unexpected(self, record: RecordFields) -> str | None:
        """Where the record's queue goes on, if not at its queueOffset."""
        offset = record.queue_offset
        following = self._next.get((record.topic, record.queue_id))
        if following is None:
            end = self._find_end(record.topic, record.queue_id)
            if end.least <= offset <= end.most:
                return None
            return f"{end.least}" if end.least == end.most else f"{end.least} to {end.most}"
        if offset == following:
            return None
        # Nothing of the queue is left: its topic was deleted, and perhaps made again.
        topic = record.topic.decode(errors="replace")
        if offset == 0 and self._queue_ends(topic, record.queue_id, record.phy_offset).most == 0:
            return None
        return f"{following}"

    def _find_end(self, topic: bytes, queue_id: int) -> QueueEnd:
        return self._queue_ends(topic.decode(errors="replace"), queue_id, self._began)

    def _learn_topic(self, topic: bytes) -> bool:
        if _TOPIC_NAME.fullmatch(topic) is None:
            return False
        self._good_topics.add(topic)
        return True

    @property
    def _least_ms(self) -> int:
        """No record that follows now was stored earlier."""
        return max(self._timestamp - _MOST_STEP_MS, 0)

    def _most_ms(self) -> int:
        return max(self._timestamp, self._clock.now_ms() + self._ahead_ms) + _MOST_STEP_MS

    def _set_time(self, timestamp: int) -> None:
        """A record of this time was admitted."""
        self._timestamp = timestamp
        self._ahead_ms = max(self._ahead_ms, timestamp - self._clock.now_ms())

    # -- many records --------------------------------------------------------------------------

    def admit_many(
        self, records: RecordColumns, muted: Collection[Field]
    ) -> tuple[int, Suspicion | None]:
        """Admit the records up to the first that is not expected; how many, and what of it."""
        heads = records.heads
        kinds = heads["sys_flag"] & TRANSACTION_MASK
        is_odd = np.zeros(len(heads), np.bool_)
        for field, found in self._odd_columns(records, kinds):
            if field not in muted:
                is_odd |= found
        queues = _QueueOrder(records, kinds)
        if Field.QUEUE_OFFSET not in muted:
            is_odd[self._out_of_order(records, queues)] = True
        jump = None
        if Field.STORE_TIMESTAMP not in muted:
            jump = self._find_jump(heads["store_timestamp"].astype(np.int64))
            if jump is not None:
                is_odd[jump[0]] = True
        count, suspicion = len(heads), None
        if is_odd.any():
            count = int(is_odd.argmax())
        if count:
            self._admit_rows(records, queues, count)
        if count < len(heads):
            suspicion = self.judge(records.row(count), muted)
            if suspicion is None and jump is not None and jump[0] == count:
                suspicion = Suspicion(Field.STORE_TIMESTAMP, jump[1])
        return count, suspicion

    def _odd_columns(
        self, records: RecordColumns, kinds: NDArray[Any]
    ) -> Iterator[tuple[Field, NDArray[np.bool_]]]:
        heads = records.heads
        unknown = [n for n, topic in enumerate(records.topics) if topic not in self._good_topics]
        for number in unknown:
            if not self._learn_topic(records.topics[number]):
                yield Field.TOPIC, records.topic_ids == number
        for field, name, most in (
            (Field.QUEUE_ID, "queue_id", _MOST_IN_16_BITS),
            (Field.SYS_FLAG, "sys_flag", _KNOWN_SYS_FLAGS),
            (Field.BORN_PORT, "born_port", _MOST_IN_16_BITS),
            (Field.RECONSUME_TIMES, "reconsume_times", _MOST_IN_16_BITS),
        ):
            # As a number without a sign, a negative one is larger than any.
            yield field, heads[name].view(">u4") > most
        yield Field.BODY_CRC, heads["body_crc"] < 0
        hosts = heads["store_host"]
        known = np.frombuffer(self._store_host, ">i8") if len(self._store_host) == 8 else hosts[:1]
        if not self._store_host or len(self._store_host) == 8:
            yield Field.STORE_HOST, hosts != known
        else:
            yield Field.STORE_HOST, np.ones(len(hosts), np.bool_)
        prepared = heads["prepared_transaction_offset"]
        if prepared.any():
            is_end = (kinds == TRANSACTION_COMMIT) & (prepared > 0)
            is_end &= prepared < heads["phy_offset"]
            yield Field.PREPARED_TRANSACTION_OFFSET, (prepared != 0) & ~is_end
        age_ms = heads["store_timestamp"].astype(np.int64) - heads["born_timestamp"]
        yield Field.BORN_TIMESTAMP, (age_ms < -_MOST_UNBORN_MS) | (age_ms > _OLDEST_BIRTH_MS)

    def _out_of_order(self, records: RecordColumns, queues: _QueueOrder) -> NDArray[np.intp]:
        """Rows whose queueOffset is not the next one of its queue."""
        order, starts = queues.order, queues.starts
        heads = records.heads
        has_offset = heads["queue_offset"][queues.without_offset] != 0
        kinds_odd: NDArray[np.intp] = queues.without_offset[has_offset]
        if not len(order):
            return kinds_odd
        offsets = heads["queue_offset"][order].astype(np.int64)
        is_next = np.empty(len(order), np.bool_)
        is_next[1:] = offsets[1:] - offsets[:-1] == 1
        is_next[starts] = [
            self._is_next(records.topics[topic_id], queue_id, offset)
            for topic_id, queue_id, offset in zip(
                records.topic_ids[order[starts]].tolist(),
                heads["queue_id"][order[starts]].tolist(),
                offsets[starts].tolist(),
                strict=True,
            )
        ]
        odd: NDArray[np.intp] = np.concatenate((kinds_odd, order[~is_next]))
        return odd

    def _is_next(self, topic: bytes, queue_id: int, offset: int) -> bool:
        following = self._next.get((topic, queue_id))
        if following is not None:
            return offset == following
        end = self._find_end(topic, queue_id)
        return end.least <= offset <= end.most

    def _find_jump(self, timestamps: Int64Array) -> tuple[int, str] | None:
        """The first row that was stored at an unlikely time, and why."""
        before = np.empty_like(timestamps)
        before[0] = self._timestamp
        before[1:] = timestamps[:-1]
        is_back = timestamps < before - _MOST_STEP_MS
        most_ms = self._most_ms()
        is_ahead = timestamps > np.maximum(before + _MOST_STEP_MS, most_ms)
        odd = is_back | is_ahead
        if not odd.any():
            return None
        row = int(odd.argmax())
        if is_back[row] and row and timestamps[row] >= before[row - 1] - _MOST_STEP_MS:
            row -= 1  # The one before it is too late, rather than this one too early.
        text = f"storeTimestamp says {timestamps[row]}, the records beside it "
        beside = before[row], timestamps[min(row + 1, len(timestamps) - 1)]
        return row, f"{text}{beside[0]} and {beside[1]}"

    def _admit_rows(self, records: RecordColumns, queues: _QueueOrder, count: int) -> None:
        """The first `count` rows are part of the log."""
        heads, order = records.heads, queues.order
        if count < len(heads):
            order = order[order < count]
            starts = _starts(queues.keys[order])
        else:
            starts = queues.starts
        lasts = order[np.append(starts[1:], len(order)) - 1] if len(order) else order
        for topic_id, queue_id, offset in zip(
            records.topic_ids[lasts].tolist(),
            heads["queue_id"][lasts].tolist(),
            heads["queue_offset"][lasts].tolist(),
            strict=True,
        ):
            self._next[records.topics[topic_id], queue_id] = offset + 1
        last = heads[count - 1]
        self._store_host = host_bytes(last)
        self._set_time(int(last["store_timestamp"]))


class _QueueOrder:
    """Rows by queue, in log order within each. `starts`: where in `order` each queue begins."""

    __slots__ = ("keys", "order", "starts", "without_offset")

    def __init__(self, records: RecordColumns, kinds: NDArray[Any]) -> None:
        queue_ids = records.heads["queue_id"].astype(np.int64)
        lowest = int(queue_ids.min())
        span = int(queue_ids.max()) - lowest + 1
        keys = records.topic_ids * span + (queue_ids - lowest)
        if len(records.topics) * span <= _RADIX_LIMIT:
            keys = keys.astype(np.uint16)
        order = np.argsort(keys, kind="stable")
        self.without_offset: NDArray[np.intp] = np.empty(0, np.intp)
        is_half = kinds & TRANSACTION_PREPARED != 0
        if is_half.any():
            self.without_offset = np.flatnonzero(is_half)
            order = order[~is_half[order]]
        self.keys = keys
        self.order = order
        self.starts = _starts(keys[order])


def _starts(ordered: NDArray[Any]) -> Int64Array:
    """Where a new value begins in sorted values."""
    if not len(ordered):
        return np.empty(0, np.int64)
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    return np.array(np.flatnonzero(is_first), np.int64)
