"""Frames: bytes to RemotingCommand and back. Sans I/O: never sees a socket, thread or clock.

    int32 L   frame length, itself not counted: L = 4 + H + B
    int8  T   serialize type (0 JSON, 1 ROCKETMQ) | uint24 H header length
    H bytes   header
    B bytes   body

All big-endian. A frame is refused as soon as the bytes that condemn it are here, before the rest
is buffered; FrameError means that the connection must be closed (Java: NettyDecoder closes too).
One FrameDecoder belongs to one connection and to the thread that reads it.
"""

from __future__ import annotations

from struct import Struct
from typing import Annotated, Any, Final

import msgspec

from remoting.errors import EncodeError, FrameError
from remoting.java_casts import cast_int, cast_string
from remoting.java_text import to_java_escapes
from remoting.language_code import LANGUAGE_NAMES, LanguageCode, language_code, language_name
from remoting.remoting_command import RemotingCommand, SerializeType, next_opaque
from remoting.remoting_serializable import JsonError, loads_exact
from remoting.rocketmq_serializable import decode_rocketmq_header, encode_rocketmq_header

MAX_FRAME: Final = 16777216
"""Largest L + 4 that is accepted (Java: com.rocketmq.remoting.frameMaxLength)."""

MAX_EXT_FIELDS: Final = 4096
"""Largest number of extFields. Java has no bound; its largest header has 16 fields."""

LENIENT_HEADER_LIMIT: Final = 65536
"""A header that msgspec refuses is read by the slow lenient reader only up to this size."""

PREFIX: Final = Struct(">ii")
assert PREFIX.size == 8
LENGTH: Final = Struct(">i")
assert LENGTH.size == 4
HEADER_LENGTH_MASK: Final = 0xFFFFFF

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _ReadHeader(msgspec.Struct, rename={"ext_fields": "extFields"}, gc=False):
    """What every well-behaved peer sends; anything else goes to the lenient reader."""

    code: _Int32 = 0
    language: str = "JAVA"
    version: _Int32 = 0
    opaque: _Int32 | None = None
    flag: _Int32 = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None


class _WrittenHeader(
    msgspec.Struct,
    rename={"ext_fields": "extFields", "serialize_type": "serializeTypeCurrentRPC"},
    gc=False,
):
    """The header in Java's key order (alphabetical); UNSET keys are left out."""

    code: int
    ext_fields: dict[str, str] | msgspec.UnsetType
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serialize_type: str
    version: int


_decoder: Final = msgspec.json.Decoder(_ReadHeader)
_encoder: Final = msgspec.json.Encoder()


class FrameDecoder:
    """Splits a byte stream into commands. Owned by: the thread that reads the connection.

    feed() only stores; next_command() gives a command, or None when more bytes are needed. After
    a FrameError the stream has no frame boundary any more, so every later call raises it again.
    """

    __slots__ = ("_buffer", "_failure", "_max_frame", "_start")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._buffer = bytearray()
        self._start = 0
        self._failure: str | None = None

    @property
    def buffered(self) -> int:
        """Bytes fed but not yet given back as commands."""
        return len(self._buffer) - self._start

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Store bytes from the peer; after a FrameError they are dropped."""
        if self._failure is None:
            self._buffer += data

    def next_command(self) -> RemotingCommand | None:
        """The next whole frame, decoded; None when it is not all here yet.

        Raises FrameError when the bytes can be no frame.
        """
        if self._failure is not None:
            raise FrameError(self._failure)
        try:
            return self._next_command()
        except FrameError as error:
            self._failure = str(error)
            raise

    def _next_command(self) -> RemotingCommand | None:
        start = self._start
        available = len(self._buffer) - start
        if available < PREFIX.size:
            if available >= LENGTH.size:
                check_frame_length(LENGTH.unpack_from(self._buffer, start)[0], self._max_frame)
            self._compact()
            return None
        length, word = PREFIX.unpack_from(self._buffer, start)
        header_length, serialize_type = check_prefix(length, word, self._max_frame)
        if available < LENGTH.size + length:
            self._compact()
            return None
        with memoryview(self._buffer) as view:
            frame = view[start + PREFIX.size : start + LENGTH.size + length]
            try:
                command = decode_frame(frame, header_length, serialize_type)
            finally:
                frame.release()
        self._start = start + LENGTH.size + length
        return command

    def _compact(self) -> None:
        """Drop what has been given back, once for each run of whole frames."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0


def check_frame_length(length: int, max_frame: int = MAX_FRAME) -> None:
    """Raise FrameError unless L, the first four bytes of a frame, is possible."""
    if length < LENGTH.size:
        raise FrameError(f"frame length {length} is less than 4")
    if length + LENGTH.size > max_frame:
        raise FrameError(f"frame of {length + LENGTH.size} bytes is over the limit of {max_frame}")


def check_prefix(length: int, word: int, max_frame: int = MAX_FRAME) -> tuple[int, int]:
    """(header length, serialize type) of the two int32 before a header.

    Raises FrameError for an impossible L, H > L - 4, or an unknown serialize type.
    """
    check_frame_length(length, max_frame)
    header_length = word & HEADER_LENGTH_MASK
    serialize_type = (word >> 24) & 0xFF
    if serialize_type not in (SerializeType.JSON, SerializeType.ROCKETMQ):
        raise FrameError(f"unknown serialize type {serialize_type}")
    if header_length > length - LENGTH.size:
        raise FrameError(f"header of {header_length} bytes in a frame length of {length}")
    return header_length, serialize_type


def decode_frame(
    frame: bytes | memoryview, header_length: int, serialize_type: int
) -> RemotingCommand:
    """Decode header and body, `frame` being what follows the 8-byte prefix. Copies the body."""
    body = bytes(frame[header_length:])
    return decode_command(frame[:header_length], serialize_type, body)


def decode_command(
    header: bytes | memoryview, serialize_type: int, body: bytes = b""
) -> RemotingCommand:
    """Decode one header. Raises FrameError when it cannot be read, whatever its bytes."""
    if serialize_type == SerializeType.JSON:
        return _decode_json_header(header, body)
    if serialize_type == SerializeType.ROCKETMQ:
        return decode_rocketmq_header(header, body, max_ext_fields=MAX_EXT_FIELDS)
    raise FrameError(f"unknown serialize type {serialize_type}")


def _decode_json_header(header: bytes | memoryview, body: bytes) -> RemotingCommand:
    try:
        read = _decoder.decode(header)
    except msgspec.DecodeError as error:
        return _decode_lenient_header(bytes(header), body, error)
    except (UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"JSON header of {len(header)} bytes: {error}") from error
    ext_fields = read.ext_fields
    if ext_fields is not None and len(ext_fields) > MAX_EXT_FIELDS:
        raise FrameError(f"JSON header: {len(ext_fields)} extFields, limit {MAX_EXT_FIELDS}")
    return RemotingCommand(
        read.code,
        language=language_code(read.language),
        version=read.version,
        opaque=next_opaque() if read.opaque is None else read.opaque,
        flag=read.flag,
        remark=read.remark,
        ext_fields=ext_fields,
        body=body,
    )


def _decode_lenient_header(
    header: bytes, body: bytes, strict_error: msgspec.DecodeError
) -> RemotingCommand:
    """Read what fastjson would read: loose syntax, numbers as text, values of any type."""
    if len(header) > LENIENT_HEADER_LIMIT:
        raise FrameError(f"JSON header of {len(header)} bytes: {strict_error}") from strict_error
    try:
        return _command_of(loads_exact(header), body)
    except JsonError as error:
        raise FrameError(f"JSON header of {len(header)} bytes: {error}") from error


def _command_of(read: Any, body: bytes) -> RemotingCommand:
    """The command of a parsed header. Raises FrameError or JsonError."""
    if not isinstance(read, dict):
        raise FrameError(f"JSON header is a {type(read).__name__}, not an object")
    opaque = read.get("opaque")
    remark = read.get("remark")
    return RemotingCommand(
        _lenient_int(read, "code"),
        language=_lenient_language(read.get("language", "JAVA")),
        version=_lenient_int(read, "version"),
        opaque=next_opaque() if opaque is None else _lenient_int(read, "opaque"),
        flag=_lenient_int(read, "flag"),
        remark=None if remark is None else cast_string(remark),
        ext_fields=_lenient_ext_fields(read.get("extFields")),
        body=body,
    )


def _lenient_int(read: dict[str, Any], key: str) -> int:
    """An int32 given as number, as text, or not at all."""
    value = read.get(key)
    if value is None:
        return 0
    try:
        return cast_int(value, 2**31) or 0
    except ValueError as error:
        raise FrameError(f"JSON header: {key}: {error}") from error


def _lenient_language(value: object) -> int:
    """A language given by name or by number; OTHER when it is neither (Java reads null)."""
    if isinstance(value, str):
        return language_code(value)
    if isinstance(value, int) and 0 <= value < len(LANGUAGE_NAMES):
        return int(value)
    return int(LanguageCode.OTHER)


def _lenient_ext_fields(value: object) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise FrameError(f"JSON header: extFields is a {type(value).__name__}, not an object")
    if len(value) > MAX_EXT_FIELDS:
        raise FrameError(f"JSON header: {len(value)} extFields, limit {MAX_EXT_FIELDS}")
    return {key: cast_string(item) for key, item in value.items() if item is not None}


def encode_command(command: RemotingCommand) -> bytes:
    """The whole frame of a command. Raises EncodeError when the format cannot hold it."""
    return encode_header(command) + command.body


def encode_header(command: RemotingCommand, body_length: int | None = None) -> bytes:
    """Prefix and header of a command: all of its frame but the body.

    For a body that is sent from elsewhere (a view of a file, sendfile) `body_length` says its
    size; command.body is then ignored.
    """
    size = len(command.body) if body_length is None else body_length
    if command.serialize_type == SerializeType.JSON:
        header: bytes | bytearray = _encode_json_header(command)
    else:
        header = encode_rocketmq_header(command)
    if len(header) > HEADER_LENGTH_MASK:
        raise EncodeError(
            f"header of {len(header)} bytes does not fit 24 bits: code {command.code}"
        )
    word = command.serialize_type << 24 | len(header)
    return PREFIX.pack(LENGTH.size + len(header) + size, word) + header


def _encode_json_header(command: RemotingCommand) -> bytes | bytearray:
    remark = command.remark
    fields = command.ext_fields
    header = _WrittenHeader(
        code=command.code,
        ext_fields=fields if fields or command.has_ext_fields else msgspec.UNSET,
        flag=command.flag,
        language=language_name(command.language),
        opaque=command.opaque,
        remark=msgspec.UNSET if remark is None else remark,
        serialize_type="JSON",
        version=command.version,
    )
    try:
        return to_java_escapes(_encoder.encode(header))
    except (UnicodeEncodeError, TypeError) as error:
        raise EncodeError(f"JSON header cannot hold {command!r}: {error}") from error
