"""Frames: where one begins and ends in a byte stream. Sans I/O: no socket, thread or clock.

    int32  L   length of what follows: L = 4 + H + B
    uint8  T   serialize type (0 JSON, 1 ROCKETMQ) | uint24 H  header length
    H bytes    header
    B bytes    body

All big-endian. The server, the client and whoever writes an answer without a RemotingCommand use
this module; nobody else knows the position of a field or the limits. It splits and does not decode:
headers are decoded by remoting_codec. Follows NettyDecoder and RemotingCommand of RocketMQ, but
rejects a frame as soon as the bytes that make it invalid have arrived. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Final, TypeVar

from remoting.errors import FrameError
from remoting.language_code import language_name
from remoting.mq_version import CURRENT_VERSION
from remoting.remoting_command import LOCAL_LANGUAGE, RESPONSE_FLAG, SerializeType
from remoting.rocketmq_serializable import ResponseTemplate

MAX_FRAME: Final = 16777216
"""Largest L + 4 that is accepted (Java: com.rocketmq.remoting.frameMaxLength)."""

MAX_HEADER: Final = 0xFFFFFF
"""Largest H that its 24 bits hold."""

HEADER_LIMIT: Final = 1 << 20
"""Largest H that is accepted, whoever takes the frame. Java has no bound but the frame's, and a
header of 14 MiB with a million extFields takes 0.7 s, on the loop; this one 30 ms. The longest that
RocketMQ's clients send has properties of 32 KiB."""

HEAD: Final = Struct(">iI")
"""L, then T and H in one word."""
assert HEAD.size == 8
HEAD_SIZE: Final = HEAD.size
_pack: Final = HEAD.pack
LENGTH: Final = Struct(">i")
assert LENGTH.size == 4
LENGTH_SIZE: Final = LENGTH.size
TYPE_AT: Final = LENGTH_SIZE
"""The place of T."""
_MAX_LENGTH: Final = MAX_FRAME - LENGTH_SIZE

_TYPE_SHIFT: Final = 24
_END_OF_TYPES: Final = (max(SerializeType) + 1) << _TYPE_SHIFT
assert tuple(SerializeType) == tuple(range(len(SerializeType))), "split_frames compares once"

Peer = TypeVar("Peer")
TakeFrame = Callable[[Peer, int, bytes, memoryview], bool]
"""(peer, serialize type, header, body) -> whether to continue with the next frame. The view is
borrowed and valid only during the call."""


def split_frames(
    view: memoryview, end: int, take: TakeFrame[Peer], peer: Peer, position: int = 0
) -> int:
    """Pass every whole frame of view[position:end] to `take`; returns where the next one begins.

    The rest is the beginning of a frame, or follows the frame at which `take` returned False.
    `peer` is passed to `take`. Raises FrameError for bytes that cannot be a frame, after the frames
    before them were taken; a length is checked once its four bytes have arrived.

    A hot loop: calling `take` costs 52 ns a frame, a generator would cost 114 (Python 3.11).
    """
    unpack = HEAD.unpack_from
    length: int
    word: int
    while end - position >= HEAD_SIZE:
        length, word = unpack(view, position)
        header_length = word & MAX_HEADER
        if (
            header_length > length - LENGTH_SIZE
            or header_length > HEADER_LIMIT
            or length > _MAX_LENGTH
            or word >= _END_OF_TYPES
        ):
            raise _refusal(length, word)
        following = position + LENGTH_SIZE + length
        if following > end:
            return position
        header_start = position + HEAD_SIZE
        body_start = header_start + header_length
        position = following
        header = view[header_start:body_start].tobytes()
        if not take(peer, word >> _TYPE_SHIFT, header, view[body_start:following]):
            return position
    if end - position >= LENGTH_SIZE:
        check_length(LENGTH.unpack_from(view, position)[0])
    return position


def cut_run(
    view: memoryview, end: int, serialize_type: int, prefix: bytes
) -> tuple[list[bytes], list[bytes], int]:
    """The headers and the bodies of the first whole frames of view[:end] whose headers are of this
    type and begin with `prefix` (not empty), copied, and where the next frame begins. It ends where
    anything else begins, be it no frame at all: split_frames judges that.

    A hot loop. Frames that follow each other are mostly of the same sizes; those are taken apart by
    one struct.
    """
    last = HEAD_SIZE + len(prefix) - 1
    if end <= last or view[last] != prefix[-1]:
        return [], [], 0  # Most of what begins otherwise, at the cost of one look.
    unpack = HEAD.unpack_from
    headers: list[bytes] = []
    bodies: list[bytes] = []
    position = before_length = before_word = 0
    length: int
    word: int
    header: bytes
    body: bytes
    while end - position >= HEAD_SIZE:
        length, word = unpack(view, position)
        following = position + LENGTH_SIZE + length
        header_length = word & MAX_HEADER
        if word >> _TYPE_SHIFT != serialize_type or following > end:
            break
        if header_length > length - LENGTH_SIZE or header_length > HEADER_LIMIT:
            break
        body_start = position + HEAD_SIZE + header_length
        header = view[position + HEAD_SIZE : body_start].tobytes()
        if not header.startswith(prefix):
            break
        headers.append(header)
        bodies.append(view[body_start:following].tobytes())
        position = following
        if length != before_length or word != before_word:
            before_length, before_word = length, word
            continue
        size = LENGTH_SIZE + length
        alike = view[position : end - (end - position) % size]
        for found, following_word, header, body in _whole_frame(
            header_length, length - LENGTH_SIZE - header_length
        ).iter_unpack(alike):
            if found != length or following_word != word or not header.startswith(prefix):
                break
            headers.append(header)
            bodies.append(body)
            position += size
    return headers, bodies, position


@lru_cache(maxsize=512)
def _whole_frame(header_length: int, body_length: int) -> Struct:
    """HEAD, header and body of a frame of these sizes."""
    return Struct(f">iI{header_length}s{body_length}s")


def whole_size(header: bytes, body: bytes) -> int:
    """Bytes of a frame."""
    return HEAD_SIZE + len(header) + len(body)


def frame_size(view: memoryview, position: int) -> int:
    """Bytes of the frame that begins at `position`, of which at least four have arrived."""
    return int(LENGTH.unpack_from(view, position)[0]) + LENGTH_SIZE


def check_length(length: int) -> None:
    """Raise FrameError unless L, the first four bytes of a frame, is possible."""
    if length < LENGTH_SIZE:
        raise FrameError(f"frame length {length} is less than 4")
    if length > _MAX_LENGTH:
        raise FrameError(f"frame of {length + LENGTH_SIZE} bytes is over the limit of {MAX_FRAME}")


def _refusal(length: int, word: int) -> FrameError:
    """Why these cannot be the first eight bytes of a frame."""
    try:
        check_length(length)
    except FrameError as error:
        return error
    if word >= _END_OF_TYPES:
        return FrameError(f"unknown serialize type {word >> _TYPE_SHIFT}")
    size = word & MAX_HEADER
    if size > length - LENGTH_SIZE:
        return FrameError(f"header of {size} bytes in a frame length of {length}")
    return FrameError(f"header of {size} bytes is over the limit of {HEADER_LIMIT}")


def pack_head(serialize_type: int, header_length: int, body_length: int) -> bytes:
    """The eight bytes before a header of at most MAX_HEADER bytes."""
    word = serialize_type << _TYPE_SHIFT | header_length
    return _pack(LENGTH_SIZE + header_length + body_length, word)


# -- responses that differ only in numbers ---------------------------------------------------------


_HEADS: Final = tuple(pack_head(SerializeType.JSON, size, 0) for size in range(1024))
"""Of frames with a JSON header of that size and no body: 12 ns instead of 67."""
_BINARY_HEADS: Final = tuple(pack_head(SerializeType.ROCKETMQ, size, 0) for size in range(1024))


class JsonAnswer:
    """The JSON header of a response as a template, rendered without a RemotingCommand, which costs
    four times as much. For the hot request codes; everything else uses remoting_codec.

    Values, in this order: the code, those of the ext fields, the opaque and, with `remark`, its
    text.
    """

    __slots__ = ("_header",)

    def __init__(self, ext_fields: Mapping[str, bytes] | None, *, remark: bool = False) -> None:
        """ext_fields: the names, in the order of the frame, with the JSON value of each: a bytes
        format (b'"%d"', b"%b") or a constant in which every % stands twice. None: the frame has
        not even an empty table of them.

        remark: whether there is one; printable ASCII without quotes and backslashes.
        """
        pairs = (b'"%b":%b' % (name.encode(), text) for name, text in (ext_fields or {}).items())
        self._header = (
            b'{"code":%d,'
            + (b"" if ext_fields is None else b'"extFields":{' + b",".join(pairs) + b"},")
            + b'"flag":'
            + str(RESPONSE_FLAG).encode()
            + b',"language":"'
            + language_name(LOCAL_LANGUAGE).encode()
            + b'","opaque":%d,'
            + (b'"remark":"%b",' if remark else b"")
            + b'"serializeTypeCurrentRPC":"JSON","version":'
            + str(CURRENT_VERSION).encode()
            + b"}"
        )

    def render(self, values: tuple[Any, ...], body_length: int = 0) -> bytes:
        """The frame without its body of `body_length` bytes, which is sent after it."""
        header = self._header % values
        size = len(header)
        if not body_length and size < len(_HEADS):
            return _HEADS[size] + header
        return _pack(LENGTH_SIZE + size + body_length, size) + header


class BinaryAnswer:
    """JsonAnswer's counterpart for a peer whose headers are binary: takes the same values."""

    __slots__ = ("_header",)

    def __init__(self, ext_fields: Mapping[str, bytes], *, remark: bool = False) -> None:
        """ext_fields: the names, in the order of the frame, with the text of each: one bytes format
        (b"%d", b"%b") or a constant in which every % stands twice."""
        self._header = ResponseTemplate(ext_fields, remark=remark)

    def render(self, values: tuple[Any, ...], body_length: int = 0) -> bytes:
        """The frame without its body of `body_length` bytes, which is sent after it."""
        header = self._header.render(values)
        size = len(header)
        if not body_length and size < len(_BINARY_HEADS):
            return _BINARY_HEADS[size] + header
        return pack_head(SerializeType.ROCKETMQ, size, body_length) + header


AnswerTemplate = JsonAnswer | BinaryAnswer
