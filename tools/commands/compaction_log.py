"""dumpCompactionLog: the messages in one file of a compaction log, without asking a broker.

The file is on this machine: <storePathRootDir>/compaction/compactionLog/<topic>/<queueId>/<20
digits>, of our brokers or Java ones. (Java: DumpCompactionLogCommand.)
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

from tools.admin_client import AdminClient
from tools.command_line import command
from tools.errors import AdminError, MessageDecodeError
from tools.message_decoder import MessageExt, decode_messages
from tools.message_text import message_ext_text, message_json
from tools.report import Report, Reports

_HEAD: Final = struct.Struct(">iI")
_BLANK_MAGIC: Final = 0xCBD43194
"""Of what fills a file behind its last message; zeros do so, too."""


@command("dumpCompactionLog")
def dump_compaction_log(
    admin: AdminClient, path: Annotated[str | None, "-f --file", "A file of a compaction log."]
) -> Reports:
    """Print the messages of the file."""
    if path is None:
        raise AdminError("miss dump log file name")
    file = Path(path)
    if not file.exists():
        raise AdminError(f"file {path} not exist.")
    if file.is_dir():
        raise AdminError(f"file {path} is a directory.")
    return _messages(file)


def _messages(path: Path) -> Iterator[Report]:
    for message in _decoded(path):
        yield Report(message_ext_text(message, with_body=False), message_json(message))


def _decoded(path: Path) -> Iterator[MessageExt]:
    """Up to where nothing more was written."""
    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                at = 0
                while at + _HEAD.size <= len(content):
                    size, magic = _HEAD.unpack_from(content, at)
                    if size <= 0 or magic == _BLANK_MAGIC:
                        return
                    yield from decode_messages(content[at : at + size], broker_name="null")
                    at += size
    except MessageDecodeError as error:
        raise AdminError(f"{path}: at byte {at}: {error}") from error
    except OSError as error:
        raise AdminError(f"{path}: {error.strerror}") from error
