"""Java's String.hashCode and what the store derives from it: tag codes and index key hashes.

Pure functions, any thread. The bulk form for the index (numpy) lives with the index. Corresponds to
RocketMQ's java.lang.String, MessageExtBrokerInner.tagsString2tagsCode,
IndexFile.indexKeyHashMethod.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import Final

TAG_KEY: Final = "T#"
"""Before the tags of a message, as a key of the index: topic#T#tags (5.5)."""
_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_INT_MIN: Final = -0x80000000
_POWER_COUNT: Final = 256
_POWERS: Final = tuple(pow(31, n, 1 << 32) for n in reversed(range(_POWER_COUNT)))
"""For the texts that are hashed one by one as records are dispatched: half the time of a loop."""


def string_hash(text: str) -> int:
    """String.hashCode: h = 31 * h + unit over the UTF-16 units, as a signed 32-bit number."""
    units = _utf16_units(text)
    count = len(units)
    if count <= _POWER_COUNT:
        value: int = sum(map(mul, units, _POWERS[_POWER_COUNT - count :])) & _MASK
    else:
        value = 0
        for unit in units:
            value = (31 * value + unit) & _MASK
    return value - (1 << 32) if value & _SIGN else value


def tags_code(tags: str | None) -> int:
    """The consumequeue's tagsCode of a TAGS property; the whole text is hashed, 0 without."""
    return string_hash(tags) if tags else 0


def index_key_hash(key: str) -> int:
    """Hash of "topic#key" as index files store it: absolute value, Integer.MIN_VALUE is 0."""
    value = string_hash(key)
    return 0 if value == _INT_MIN else abs(value)


def _utf16_units(text: str) -> Sequence[int]:
    if text.isascii():
        return text.encode("ascii")
    encoded = text.encode("utf-16-be", "surrogatepass")
    return [high << 8 | low for high, low in zip(encoded[::2], encoded[1::2], strict=True)]
