"""KnownBinaryHeaders: reads the binary headers of sends, most of them by comparing.

Owned by the loop thread of `remoting`. What a client says of its sends is the same each time but
for the opaque, the queue, the time of birth and the properties. A header like one before it, byte
for byte but for these, needs no reading of fields by name (1 us instead of 6); every other is read
by `decode_binary_frame`, whose results these are. Knows no topic.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, cast

from broker.send.send_header import (
    V1_NAMES,
    BinarySendFrame,
    SendFrame,
    SendHeader,
    decode_binary_frame,
)
from remoting.header_cut import cut_of
from remoting.request_code import RequestCode
from remoting.rocketmq_serializable import BLOCK_AT, code_bytes

_VARYING: Final = "egi"
"""The letters of queueId, bornTimestamp and properties."""
_LONG_NAMES: Final = {letter: name for name, letter in V1_NAMES.items()}
_SHORT: Final = tuple(letter.encode() for letter in _VARYING)
_LONG: Final = tuple(_LONG_NAMES[letter].encode() for letter in _VARYING)
_LONG_CODE: Final = code_bytes(RequestCode.SEND_MESSAGE)
_MOST_DIGITS: Final = 18
"""Of a number that is an int64 whatever its digits are."""
_ZERO: Final = ord("0")
_LARGEST: Final = 1 << 10
"""Longer headers are read."""
_KEY_SIZE: Final = 32
"""So much of the ext block, where Java's clients have the group, is looked up together with the
size: clients whose headers happen to be of one size do not drive each other out."""
_MOST_KNOWN: Final = 1_024
"""Some 2 MiB, whatever clients send. When there are more, those of the size that was seen first
are forgotten: of one size are a client's topics whose names are equally long."""
_LEARN_EVERY: Final = 8
"""So many headers are read until one of them is learned, which takes as long as reading it: where
all of them are different, that is next to nothing."""

_Same = tuple[bytes, bytes, bytes, bytes, bytes]


class _Alike:
    """Headers that are cut in the same places."""

    __slots__ = ("cut", "format", "known")

    def __init__(self, cut: Struct) -> None:
        self.format = cut.format
        self.cut: Callable[[bytes], tuple[Any, ...]] = cut.unpack
        self.known: dict[_Same, SendFrame] = {}
        """What is the same for some of them, and a frame that says it."""


class KnownBinaryHeaders:
    """See the module."""

    __slots__ = ("_alike", "_known", "_read")

    def __init__(self) -> None:
        self._alike: dict[tuple[int, bytes], _Alike] = {}
        self._known = 0
        """How many there are."""
        self._read = 0
        """How many were read and not known, without longer ones: where a client sends them in turns
        with short ones, it would be their turn each time that one is learned."""

    def decode(self, header: bytes) -> SendFrame:
        """What decode_binary_frame reads; raises what it raises, or UnicodeError."""
        alike = self._alike.get((len(header), header[BLOCK_AT : BLOCK_AT + _KEY_SIZE]))
        if alike is not None:
            opaque: int
            queue: bytes
            born: bytes
            text: bytes
            start, opaque, first, queue, second, born, third, text, last = alike.cut(header)
            if born.isdigit() and born[0] != _ZERO:
                known = alike.known.get((start, first, second, third, last))
                if known is not None:
                    return _like(known, opaque, queue.decode(), int(born), text.decode())
        frame = decode_binary_frame(header)
        if len(header) <= _LARGEST:
            if self._read % _LEARN_EVERY == 0:
                self._learn(header, frame)
            self._read += 1
        return frame

    def _learn(self, header: bytes, frame: SendFrame) -> None:
        cut = cut_of(header, _LONG if header.startswith(_LONG_CODE) else _SHORT)
        if cut is None:
            return
        start, _, first, _, second, born, third, _, last = cut.unpack(header)
        if len(born) > _MOST_DIGITS:
            return
        key = len(header), header[BLOCK_AT : BLOCK_AT + _KEY_SIZE]
        alike = self._alike.get(key)
        if alike is not None and alike.format != cut.format:
            self._forget(key)
            alike = None
        if self._known >= _MOST_KNOWN:
            oldest = next(iter(self._alike))
            alike = None if oldest == key else alike
            self._forget(oldest)
        if alike is None:
            alike = self._alike[key] = _Alike(cut)
        same = start, first, second, third, last
        self._known += same not in alike.known
        alike.known[same] = frame

    def _forget(self, key: tuple[int, bytes]) -> None:
        self._known -= len(self._alike.pop(key).known)


def _like(frame: SendFrame, opaque: int, queue: str, born_ms: int, text: str) -> SendFrame:
    """The same with another opaque and other values."""
    fields: SendHeader = cast("Any", frame.extFields).__copy__()
    fields.e, fields.g, fields.i = queue, born_ms, text
    return BinarySendFrame(frame.code, opaque, fields, frame.flag)
