"""The ROCKETMQ binary header: decoding and encoding. Sans I/O, any thread.

Used by peers started with rocketmq.serialize.type=ROCKETMQ (Java: RocketMQSerializable).

    int16 code | int8 language | int16 version | int32 opaque | int32 flag
    int32 remark length (0: none) | remark | int32 length of the ext block | ext block
    ext block: repeated int16 key length | key | int32 value length | value

All big-endian, text in UTF-8. Every length is checked against the remaining bytes before it is
used. Knows nothing of frames and bodies.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final

from remoting.errors import EncodeError, FrameError
from remoting.language_code import LanguageCode
from remoting.remoting_command import RemotingCommand, SerializeType

FIXED: Final = Struct(">hbhii")
assert FIXED.size == 13
INT32: Final = Struct(">i")
assert INT32.size == 4
INT16: Final = Struct(">h")
assert INT16.size == 2

_LAST_LANGUAGE: Final = max(LanguageCode)


def decode_rocketmq_header(
    header: bytes | memoryview, body: bytes = b"", *, max_ext_fields: int = 4096
) -> RemotingCommand:
    """Decode a whole binary header.

    Empty keys and values are dropped, as Java turns them into null; if a key is repeated the last
    one wins. Raises FrameError for an invalid length, invalid UTF-8, more than `max_ext_fields`
    entries, or trailing bytes.
    """
    data = bytes(header)
    try:
        code, language, version, opaque, flag = FIXED.unpack_from(data, 0)
        remark_bytes, position = _take(data, FIXED.size, "remark")
        block_length = INT32.unpack_from(data, position)[0]
        position += INT32.size
        if block_length != len(data) - position:
            raise FrameError(
                f"ROCKETMQ header: ext block claims {block_length} bytes, {len(data) - position} "
                "left"
            )
        ext_fields = _decode_ext_block(data, position, max_ext_fields)
        remark = str(remark_bytes, "utf-8") if remark_bytes else None
    except struct.error as error:
        raise FrameError(f"ROCKETMQ header: {len(data)} bytes are too few: {error}") from error
    except UnicodeDecodeError as error:
        raise FrameError(f"ROCKETMQ header: text is not UTF-8: {error}") from error
    return RemotingCommand(
        code,
        language=language if 0 <= language <= _LAST_LANGUAGE else int(LanguageCode.OTHER),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark,
        ext_fields=ext_fields if block_length else None,
        body=body,
        serialize_type=SerializeType.ROCKETMQ,
    )


def _take(data: bytes, position: int, what: str) -> tuple[bytes, int]:
    """The int32-prefixed bytes at `position`, and the position after them."""
    length = INT32.unpack_from(data, position)[0]
    start = position + INT32.size
    if length < 0 or length > len(data) - start:
        raise FrameError(
            f"ROCKETMQ header: {what} claims {length} bytes, {len(data) - start} are left"
        )
    return data[start : start + length], start + length


def _decode_ext_block(data: bytes, position: int, max_ext_fields: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    end = len(data)
    count = 0
    while position < end:
        count += 1
        if count > max_ext_fields:
            raise FrameError(f"ROCKETMQ header: more than {max_ext_fields} ext fields")
        key_length = INT16.unpack_from(data, position)[0]
        position += INT16.size
        if key_length < 0 or key_length > end - position:
            raise FrameError(
                f"ROCKETMQ header: ext key claims {key_length} bytes, {end - position} are left"
            )
        key = data[position : position + key_length]
        value, position = _take(data, position + key_length, "ext value")
        if key and value:
            fields[str(key, "utf-8")] = str(value, "utf-8")
    return fields


def encode_rocketmq_header(command: RemotingCommand) -> bytes:
    """Encode the binary header of a command.

    Raises EncodeError if a number does not fit its field: the pop codes (200050 and up) are larger
    than int16 and need a JSON header.
    """
    try:
        remark = b"" if command.remark is None else command.remark.encode()
        fixed = FIXED.pack(
            command.code, command.language, command.version, command.opaque, command.flag
        )
        block = _encode_ext_block(command.ext_fields)
        return b"".join(
            (fixed, INT32.pack(len(remark)), remark, INT32.pack(len(block)), block),
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise EncodeError(f"ROCKETMQ header cannot hold {command!r}: {error}") from error


def _encode_ext_block(fields: dict[str, str]) -> bytes:
    parts: list[bytes] = []
    for key, value in fields.items():
        key_bytes = key.encode()
        value_bytes = value.encode()
        parts += (INT16.pack(len(key_bytes)), key_bytes, INT32.pack(len(value_bytes)), value_bytes)
    return b"".join(parts)
