"""Writes stores of DLedger nodes as Java does, from messages that a test knows: the truth of its
tests. tests/store/test_dledger_import.py shows that Java's own bytes are read in the same way."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from store.dledger.entry import (
    BLANK_SIZE,
    ENTRY_HEAD_SIZE,
    UNIT_SIZE,
    EntryHead,
)
from store.mapped_file import file_name
from store.message import Message
from store.message_codec import encode_record
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE

FILE_SIZE = 8192
INDEX_FILE_SIZE = 1024 * UNIT_SIZE
QUEUE_FILE_SIZE = 100 * CQ_UNIT_SIZE
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
START_MS = 1_700_000_000_000


def message(
    number: int,
    topic: str = "T",
    queue_id: int = 0,
    queue_offset: int = 0,
    *,
    body: bytes = b"",
    properties: bytes = b"",
    **fields: int,
) -> Message:
    """Message `number`, stored at START_MS + number."""
    return Message(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        body=body or b"body %d" % number,
        properties=properties or b"UNIQ_KEY\x01K%05d\x02WAIT\x01true\x02" % number,
        born_timestamp=START_MS + number,
        store_timestamp=START_MS + number,
        born_host=HOST,
        store_host=HOST,
        **fields,
    )


def numbered(count: int, queues: int = 2, first: int = 0, **fields: int) -> list[Message]:
    """`count` messages, one queue after the other, whose first queue offset is `first`."""
    return [
        message(n, queue_id=n % queues, queue_offset=first + n // queues, **fields)
        for n in range(count)
    ]


class DledgerStore:
    """One node's root directory. `heads`: of its entries; `end`: where the next one goes."""

    def __init__(
        self, root: Path, *, start: int = 0, first_index: int = 0, node: str = "n0"
    ) -> None:
        self.root = root
        self.directory = root / f"dledger-{node}"
        self.heads: list[EntryHead] = []
        self.end = start
        self.next_index = first_index
        for name in ("data", "index"):
            (self.directory / name).mkdir(parents=True)
        (root / "config").mkdir()

    def append(self, messages: Iterable[Message], term: int = 1) -> list[EntryHead]:
        """Entries of `term`; their heads."""
        return [self.append_record(self._encode(each), term) for each in messages]

    def _encode(self, each: Message) -> bytes:
        size = ENTRY_HEAD_SIZE + len(encode_record(each))
        left = FILE_SIZE - self.end % FILE_SIZE
        if size + BLANK_SIZE > left:
            self.put(self.end, encode_blank(left))
            self.end += left
        return encode_record(dataclasses.replace(each, phy_offset=self.end + ENTRY_HEAD_SIZE))

    def append_record(self, record: bytes, term: int) -> EntryHead:
        """An entry with these bytes, which fit into the file."""
        head = EntryHead(self.next_index, term, self.end, ENTRY_HEAD_SIZE + len(record))
        self.put(self.end, encode_entry(head.index, term, head.pos, record))
        self.put_unit(head)
        self.heads.append(head)
        self.end += head.size
        self.next_index += 1
        return head

    def put(self, pos: int, data: bytes) -> None:
        """Overwrite bytes of the entries."""
        _put(self.directory / "data", FILE_SIZE, pos, data)

    def put_unit(self, head: EntryHead) -> None:
        """An index unit."""
        at = head.index * UNIT_SIZE
        _put(self.directory / "index", INDEX_FILE_SIZE, at, encode_unit(head))

    def clear_unit(self, index: int) -> None:
        """As if it had never been written."""
        _put(self.directory / "index", INDEX_FILE_SIZE, index * UNIT_SIZE, bytes(UNIT_SIZE))

    def flip(self, pos: int) -> None:
        """One byte of the entries is another now."""
        path = self.directory / "data" / file_name(pos - pos % FILE_SIZE)
        raw = bytearray(path.read_bytes())
        raw[pos % FILE_SIZE] ^= 0x20
        path.write_bytes(raw)

    def checkpoint(self, committed: int, end: int = -1) -> None:
        """What Java writes every three seconds."""
        text = f"committedIndex={committed}\nendIndex={end}\n"
        (self.directory / "checkpoint").write_text(text)

    def queue(self, topic: str, queue_id: int, end: int) -> None:
        """A consume queue whose last unit is the one before `end`."""
        directory = self.root / "consumequeue" / topic / str(queue_id)
        at = (end - 1) * CQ_UNIT_SIZE
        start = at - at % QUEUE_FILE_SIZE
        for position in range(start, at + 1, CQ_UNIT_SIZE):
            _put(directory, QUEUE_FILE_SIZE, position, CQ_UNIT.pack(7, 100, 0))


def encode_entry(index: int, term: int, pos: int, record: bytes) -> bytes:
    """An entry as DLedger stores it."""
    size = ENTRY_HEAD_SIZE + len(record)
    return struct.pack(">iiqqqiiii", 1, size, index, term, pos, 0, 0, 0, len(record)) + record


def encode_blank(left: int) -> bytes:
    """The 8 bytes that close a data file with `left` bytes left."""
    return struct.pack(">ii", -1, left)


def encode_unit(head: EntryHead) -> bytes:
    """The index unit of an entry."""
    return struct.pack(">iqiqq", 1, head.pos, head.size, head.index, head.term)


def _put(directory: Path, file_size: int, at: int, data: bytes) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / file_name(at - at % file_size)
    if not path.exists():
        path.write_bytes(bytes(file_size))
    with path.open("r+b") as file:
        file.seek(at % file_size)
        file.write(data)


def group(
    directory: Path, messages: Sequence[Message], count: int = 3, term: int = 1
) -> list[DledgerStore]:
    """Nodes that all have these messages."""
    nodes = [DledgerStore(directory / f"node{n}", node=f"n{n}") for n in range(count)]
    for node in nodes:
        node.append(messages, term)
    return nodes
