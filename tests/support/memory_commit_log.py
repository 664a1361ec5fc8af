"""A commit log in memory for tests of dispatch: files of one size, records given their places."""

from __future__ import annotations

import struct
from dataclasses import replace

from store.log_fences import LogFences
from store.message import Message
from store.message_codec import (
    BLANK_SIZE,
    MAGIC_V2,
    SYS_FLAG_AT,
    encode_blank,
    encode_record,
    fixed_size,
)

HOST_V4 = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
HOST_V6 = bytes(15) + b"\x01" + struct.pack(">i", 10911)


def message(
    topic: str = "T", queue_id: int = 0, queue_offset: int = 0, **fields: object
) -> Message:
    """A message whose hosts agree with sys_flag; `fields` as in Message."""
    sys_flag = fields.get("sys_flag", 0)
    assert isinstance(sys_flag, int)
    plain = Message(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        born_host=HOST_V6 if sys_flag & 0x10 else HOST_V4,
        store_host=HOST_V6 if sys_flag & 0x20 else HOST_V4,
        store_timestamp=1_795_177_732_448,
        body=b"body",
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def as_v2(record: bytes) -> bytes:
    """The V2 form of a V1 record."""
    (sys_flag,) = struct.unpack_from(">i", record, SYS_FLAG_AT)
    head_size = fixed_size(sys_flag) - 2
    (body_size,) = struct.unpack_from(">i", record, head_size - 4)
    topic_at = head_size + body_size
    size_and_magic = struct.pack(">iI", len(record) + 1, MAGIC_V2)
    topic_size = struct.pack(">h", record[topic_at])
    return size_and_magic + record[8:topic_at] + topic_size + record[topic_at + 1 :]


class MemoryCommitLog:
    """A CommitLogReader over bytes; `publish_up_to` cuts off what readers may see."""

    def __init__(self, file_size: int = 1 << 20, start: int = 0) -> None:
        self.file_size = file_size
        self.start = start
        self.data = bytearray()
        self.min_phy_offset = start
        self.publish_up_to: int | None = None
        self.fences = LogFences()

    @property
    def max_phy_offset(self) -> int:
        """Behind the last published byte."""
        end = self.start + len(self.data)
        return end if self.publish_up_to is None else self.publish_up_to

    def append(self, record: Message, *, v2: bool = False) -> int:
        """Store a message; returns its phy_offset. A file that is too full gets its blank."""
        size = len(encode_record(record)) + v2
        left = self.file_size - len(self.data) % self.file_size
        if size + BLANK_SIZE > left:
            self.data += encode_blank(left).ljust(left, b"\0")
        phy_offset = self.start + len(self.data)
        encoded = encode_record(replace(record, phy_offset=phy_offset))
        self.data += as_v2(encoded) if v2 else encoded
        return phy_offset

    def view_of_file(self, phy_offset: int) -> memoryview | None:
        """The bytes of the file, as long as it is written."""
        at = phy_offset - self.start
        if not 0 <= at < len(self.data):
            return None
        first = at - at % self.file_size
        return memoryview(
            bytes(self.data[first : first + self.file_size]).ljust(self.file_size, b"\0")
        )


class RecordingPublisher:
    """Fulfils QueueTablePublisher and remembers."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], int] = {}
        self.offsets: dict[int, tuple[int, int]] = {}
        self.moves: list[int] = []
        self.resets: list[int] = []
        self.renewals: list[int] = []

    def row(self, topic: str, queue_id: int) -> int:
        """Rows are numbered in order."""
        return self.rows.setdefault((topic, queue_id), len(self.rows))

    def set_offsets(self, row: int, min_offset: int, max_offset: int) -> None:
        """Remember."""
        self.offsets[row] = (min_offset, max_offset)

    def mark_moved(self, row: int) -> None:
        """Remember."""
        self.moves.append(row)

    def renew(self, row: int) -> None:
        """Remember."""
        self.renewals.append(row)

    def reset(self, row: int) -> None:
        """Remember."""
        self.resets.append(row)
        self.offsets[row] = (0, 0)

    def of(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Published (min, max)."""
        return self.offsets[self.rows[topic, queue_id]]
