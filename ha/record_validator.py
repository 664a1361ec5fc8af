"""RecordValidator: how far received bytes are whole records that may be published.

Used by the slave's link before anything is published. Bytes come in pieces that end anywhere: what
is the beginning of a record is judged as far as it is there and waits for the rest, but never for
more than its parts say: a wrong size is seen when the record's own bytes are there. It knows no
socket and publishes nothing. Two questions about each record: are its magic, sizes and place right,
as recovery asks (store/message_codec.check_record; with check_crc the body's CRC, too), and is it
what has to come next (record_expectations.py)? Many records together are looked at in whole
columns; what is not found good there is judged one by one.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from ha.record_columns import read_fields, read_good_records
from ha.record_doubts import RecordDoubts
from ha.record_expectations import (
    QueueEnds,
    RecordExpectations,
    Suspicion,
)
from ipc.clock import Clock
from store.message_codec import (
    BORN_HOST_V6_FLAG,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHY_OFFSET_AT,
    PROPERTIES_LENGTH,
    SIZE_AND_MAGIC,
    STORE_HOST_V6_FLAG,
    SYS_FLAG_AT,
    RecordKind,
    body_crc,
    check_record,
    fixed_size,
    record_head,
)
from store.put_aside import ReadBy, RecordGuard, is_of_record
from store.record_arrays import MIN_RECORD_SIZE

_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_HEAD: Final = record_head(0)
_HEAD_SEEN: Final = SYS_FLAG_AT + _INT32.size
assert PHY_OFFSET_AT + _INT64.size <= _HEAD_SEEN
_LEAST_RECORD: Final = fixed_size(0) + 1
_ANY_V6: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
_MANY: Final = 24
"""From so many records on, columns are faster."""
_MOST_PATIENCE: Final = 4096


class BadRecord(NamedTuple):
    """Why the log cannot go on with what lies at the validator's position."""

    text: str
    is_record: bool
    """Its parts add up; one of its fields is not what has to come next."""
    came_before: bool
    """The same bytes were refused there the last time: it is not the link that damages them."""


class RecordValidators:
    """What outlives a link: what is expected of the log's next records, and what was refused.
    Owned by: HAClient's thread."""

    def __init__(
        self, file_size: int, queue_ends: QueueEnds, clock: Clock, *, check_crc: bool
    ) -> None:
        self._file_size = file_size
        self._expectations: Final = RecordExpectations(queue_ends, clock)
        self._doubts: Final = RecordDoubts(clock)
        self._check_crc = check_crc

    def begin(self, position: int, *, is_checked: bool = False) -> RecordValidator:
        """For a link, or a log that begins at `position`, where a record begins. is_checked:
        frames carry checksums: what comes is what the master has."""
        self._doubts.begin(is_checked=is_checked)
        return RecordValidator(
            self._file_size,
            position,
            self._expectations,
            self._doubts,
            check_crc=self._check_crc,
        )


class RecordValidator:
    """Owned by: the link's thread. `position`: the end of the last good record (or blank)."""

    def __init__(
        self,
        file_size: int,
        position: int,
        expectations: RecordExpectations,
        doubts: RecordDoubts,
        *,
        check_crc: bool,
    ) -> None:
        """position: where a record begins; up to there all is good."""
        self._file_size = file_size
        self._expectations = expectations
        self._doubts = doubts
        self._check_crc = check_crc
        self.position = position
        self._look_again_at = 0
        self._guard = RecordGuard(ReadBy.REPLICA_CHECK)
        self._alone = 0
        """So many records are judged one by one before columns are tried again."""
        self._patience = _MANY
        expectations.resume(position)

    def change_writer(self) -> None:
        """The next record is another master's."""
        self._expectations.resume(self.position, of_other=True)

    def check(self, file: memoryview, received: int) -> BadRecord | None:
        """Move `position` on over the whole good records before `received`.

        file: the whole file that holds `position`; received: in the same file, or its end.
        Returns why what lies at `position` may not be published, None while nothing is wrong.
        """
        if received < self._look_again_at:
            return None
        size = self._file_size
        file_start = self.position - self.position % size
        at, end = self.position - file_start, received - file_start
        bad: BadRecord | None = None
        while at < end:
            suspicion: Suspicion | None = None
            if self._alone <= 0 and end - at >= _MANY * MIN_RECORD_SIZE:
                at, suspicion = self._take_many(file, at, end, file_start)
                if at == end:
                    break
            self._alone -= 1
            if suspicion is None and (taken := self._take_usual(file, at, end, file_start + at)):
                at += taken
                continue
            taken, bad = self._take_one(file, at, end, file_start, suspicion)
            if not taken:
                break
            at += taken
        self.position = file_start + at
        self._expectations.moved_to(self.position)
        return bad

    # -- one record ----------------------------------------------------------------------------

    def _take_usual(self, file: memoryview, at: int, end: int, place: int) -> int:
        """Size of the record at `at` if it is whole, V1 with IPv4 hosts, and surely good; else 0.
        In 2 us, where a judgement with reasons takes 8."""
        if end - at < MIN_RECORD_SIZE:
            return 0
        head = _HEAD.unpack_from(file, at)
        record_end = at + head[0]
        body_at = at + _HEAD.size
        topic_at = body_at + head[14] + 1
        if (
            record_end > end
            or head[1] != MAGIC_V1
            or head[6] != place
            or head[7] & _ANY_V6
            or not body_at < topic_at <= record_end
        ):
            return 0
        topic_end = topic_at + file[topic_at - 1]
        rest = record_end - topic_end - PROPERTIES_LENGTH.size
        if rest < 0 or PROPERTIES_LENGTH.unpack_from(file, topic_end) != (rest,):
            return 0
        if self._check_crc and head[14] and body_crc(file[body_at : topic_at - 1]) != head[2]:
            return 0
        topic = bytes(file[topic_at:topic_end])
        return head[0] if self._expectations.admit_usual(topic, head) else 0

    def _take_one(
        self, file: memoryview, at: int, end: int, file_start: int, suspicion: Suspicion | None
    ) -> tuple[int, BadRecord | None]:
        """Size of the good record or blank at `at`; 0: it is not whole yet, or bad."""
        place = file_start + at
        needed, reason = _needed(file, at, end, self._file_size, place)
        if reason is not None:
            return 0, self._refuse(file[at : at + needed], place, reason)
        if at + needed > end:
            self._look_again_at = place + needed
            return 0, None
        found = check_record(file, at, self._file_size, place, check_crc=self._check_crc)
        if found.kind is RecordKind.BLANK:
            return found.size, None
        record = file[at : at + needed]
        if found.kind is not RecordKind.MESSAGE:
            return 0, self._refuse(record, place, found.reason)
        suspicion = suspicion or self._judge(record, place)
        if suspicion is not None and not self._doubts.is_believed(place, record, suspicion):
            return 0, BadRecord(suspicion.text, is_record=True, came_before=False)
        with self._guard.of(place):
            self._expectations.admit(read_fields(record))
        return found.size, None

    def _judge(self, record: memoryview, place: int) -> Suspicion | None:
        """A record that raises is not judged: its parts add up, and a link that ends for it would
        end for it again."""
        with self._guard.of(place):
            return self._expectations.judge(read_fields(record), self._doubts.muted)
        return None

    def _refuse(self, data: memoryview, place: int, reason: str) -> BadRecord:
        came_before = self._doubts.came_before(place, data)
        return BadRecord(reason, is_record=False, came_before=came_before)

    # -- many records at once ------------------------------------------------------------------

    def _take_many(
        self, file: memoryview, at: int, end: int, file_start: int
    ) -> tuple[int, Suspicion | None]:
        """Admit the records from `at` on that are surely good; where they end, and what of the
        next one is not expected."""
        try:
            return self._take_columns(file, at, end, file_start)
        except Exception as error:
            if not is_of_record(error):
                raise
            self._alone = self._patience  # One by one it is known which one it is.
            return at, None

    def _take_columns(
        self, file: memoryview, at: int, end: int, file_start: int
    ) -> tuple[int, Suspicion | None]:
        records, ends = read_good_records(
            file[at:end], file_start + at, least=_MANY, check_crc=self._check_crc
        )
        count, suspicion = 0, None
        if len(ends):
            count, suspicion = self._expectations.admit_many(records, self._doubts.muted)
        if count < _MANY:
            self._patience = min(self._patience * 2, _MOST_PATIENCE)
            self._alone = self._patience
        else:
            self._patience = _MANY
        return (at + int(ends[count - 1]) if count else at), suspicion


def _needed(
    file: memoryview, at: int, end: int, file_size: int, phy_offset: int
) -> tuple[int, str | None]:
    """How many bytes from `at` on the next judgement needs, or had when there is no record, and
    why there is none."""
    left = file_size - at
    if left < SIZE_AND_MAGIC.size:
        return left, f"only {left} bytes are left in the file"
    if end - at < SIZE_AND_MAGIC.size:
        return SIZE_AND_MAGIC.size, None
    seen = SIZE_AND_MAGIC.size
    total, magic = SIZE_AND_MAGIC.unpack_from(file, at)
    if magic == MAGIC_BLANK:
        wrong = f"a blank of {total} bytes, {left} are left"
        return (left, None) if total == left else (seen, wrong)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return seen, "zero bytes" if magic == total == 0 else f"magic {magic:#x} is not a record's"
    if not _LEAST_RECORD <= total <= left:
        return seen, f"totalSize {total} is impossible, {left} bytes left"
    if end - at >= total:
        return total, None
    return _needed_of_a_part(file, at, end, total, phy_offset)


def _needed_of_a_part(
    file: memoryview, at: int, end: int, total: int, phy_offset: int
) -> tuple[int, str | None]:
    """Like `_needed`, for a record of which less is there than the `total` that it claims."""
    there = end - at
    if there < _HEAD_SEEN:
        return _HEAD_SEEN, None
    (stored,) = _INT64.unpack_from(file, at + PHY_OFFSET_AT)
    if stored != phy_offset:
        return _HEAD_SEEN, f"physicalOffset field says {stored}, the place is {phy_offset}"
    (sys_flag,) = _INT32.unpack_from(file, at + SYS_FLAG_AT)
    seen = record_head(sys_flag).size
    if there < seen:
        return seen, None
    (body_size,) = _INT32.unpack_from(file, at + seen - _INT32.size)
    (magic,) = _INT32.unpack_from(file, at + 4)
    length_size = 1 if magic & 0xFFFFFFFF == MAGIC_V1 else 2
    if not 0 <= body_size <= total - seen - length_size - PROPERTIES_LENGTH.size:
        return seen, f"body size {body_size} is impossible in {total} bytes"
    seen += body_size + length_size
    if there < seen:
        return seen, None
    topic_size = int.from_bytes(file[at + seen - length_size : at + seen], "big", signed=True)
    if not 0 <= topic_size <= total - seen - PROPERTIES_LENGTH.size:
        return seen, f"topic size {topic_size} is impossible in {total} bytes"
    seen += topic_size + PROPERTIES_LENGTH.size
    if there < seen:
        return seen, None
    (properties_size,) = PROPERTIES_LENGTH.unpack_from(file, at + seen - PROPERTIES_LENGTH.size)
    if properties_size != total - seen:
        return seen, f"totalSize {total} is not the sum of its parts"
    return total, None
