"""Headers: bytes to RemotingCommand, and a RemotingCommand to its frame. Sans I/O, any thread.

frame.py determines where a frame begins and ends. FrameError means that the connection must be
closed (Java's NettyDecoder closes it too).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from remoting.errors import EncodeError, FrameError
from remoting.frame import MAX_HEADER, pack_head
from remoting.java_casts import cast_int, cast_string
from remoting.java_text import to_java_escapes
from remoting.language_code import LANGUAGE_NAMES, LanguageCode, language_code, language_name
from remoting.remoting_command import RemotingCommand, SerializeType, next_opaque
from remoting.remoting_serializable import MOST_TOKENS_OF_A_REQUEST, JsonError, loads_exact
from remoting.rocketmq_serializable import decode_rocketmq_header, encode_rocketmq_header

MAX_EXT_FIELDS: Final = 4096
"""Largest number of extFields. Java has no bound; its largest header has 16 fields."""

LENIENT_HEADER_LIMIT: Final = 65536
"""Up to this size, a header that msgspec rejects is read by the slow lenient reader."""

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _ReadHeader(msgspec.Struct, rename={"ext_fields": "extFields"}, gc=False):
    """What every well-behaved peer sends; the lenient reader handles anything else."""

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


def decode_command(
    header: bytes | memoryview, serialize_type: int, body: bytes = b""
) -> RemotingCommand:
    """Decode one header, of a frame that frame.py let pass. Raises FrameError when it cannot be
    read, whatever its bytes."""
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
    """Accept what fastjson accepts: loose syntax, numbers as text, values of any type."""
    if len(header) > LENIENT_HEADER_LIMIT:
        raise FrameError(f"JSON header of {len(header)} bytes: {strict_error}") from strict_error
    try:
        return _command_of(loads_exact(header, MOST_TOKENS_OF_A_REQUEST), body)
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
    """An int32 given as a number, as text, or not at all."""
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
    """Prefix and header of a command: its frame without the body.

    For a body that is sent separately (a view of a file, sendfile) `body_length` gives its size;
    command.body is then ignored.
    """
    size = len(command.body) if body_length is None else body_length
    if command.serialize_type == SerializeType.JSON:
        header: bytes | bytearray = _encode_json_header(command)
    else:
        header = encode_rocketmq_header(command)
    if len(header) > MAX_HEADER:
        raise EncodeError(
            f"header of {len(header)} bytes does not fit 24 bits: code {command.code}"
        )
    return pack_head(command.serialize_type, len(header), size) + header


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
