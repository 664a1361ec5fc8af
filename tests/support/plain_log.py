"""Writes a commit log plainly, record after record, as the model for store tests."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from store.mapped_file import file_name
from store.message import Message
from store.message_codec import BLANK_SIZE, encode_blank, encode_record

FILE_SIZE = 4096
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


class PlainLog:
    """`records`: (phy_offset, bytes) of all that was appended; files are written at once."""

    def __init__(self, directory: Path, file_size: int = FILE_SIZE, start: int = 0) -> None:
        self.directory = directory
        self.file_size = file_size
        self.end = start
        self.records: list[tuple[int, bytes]] = []
        self._queue_offsets: dict[tuple[str, int], int] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self.allocate(start - start % file_size)

    def allocate(self, start: int) -> Path:
        """A full-size zero file."""
        path = self.path(start)
        path.write_bytes(bytes(self.file_size))
        return path

    def path(self, offset: int) -> Path:
        return self.directory / file_name(offset - offset % self.file_size)

    def append(
        self,
        body: bytes,
        *,
        topic: str = "T",
        queue_id: int = 0,
        store_timestamp: int = 1,
        born_timestamp: int | None = None,
    ) -> int:
        """Returns the record's phy_offset. born_timestamp: the store timestamp unless said."""
        key = (topic, queue_id)
        queue_offset = self._queue_offsets.get(key, 0)
        message = Message(
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            body=body,
            born_host=HOST,
            store_host=HOST,
            born_timestamp=store_timestamp if born_timestamp is None else born_timestamp,
            store_timestamp=store_timestamp,
            properties=b"KEYS\x01k",
        )
        size = len(encode_record(message))
        left = self.file_size - self.end % self.file_size
        if size + BLANK_SIZE > left:
            self.put(self.end, encode_blank(left))
            self.end += left
            self.allocate(self.end)
        self._queue_offsets[key] = queue_offset + 1
        raw = encode_record(dataclasses.replace(message, phy_offset=self.end))
        self.records.append((self.end, raw))
        self.put(self.end, raw)
        self.end += size
        return self.records[-1][0]

    def put(self, offset: int, data: bytes) -> None:
        """Overwrite bytes of the log."""
        with self.path(offset).open("r+b") as file:
            file.seek(offset % self.file_size)
            file.write(data)

    def bytes_at(self, offset: int, size: int) -> bytes:
        with self.path(offset).open("rb") as file:
            file.seek(offset % self.file_size)
            return file.read(size)
