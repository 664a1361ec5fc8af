"""BloomFilter: the positions of a group's filter in a message's bit map.

Pure, any thread. Bit maps themselves are neither computed nor read. The positions are written to
consumerFilter.json, because a Java broker discards the whole file if they are missing or have
another size. Follows BloomFilter.createByFn / calcBitPositions and Guava's murmur3_128.
"""

from __future__ import annotations

import math
from typing import Final

from remoting.body.consumer_filter import BloomFilterData

_MASK64: Final = 2**64 - 1
_MASK32: Final = 2**32 - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = 16


class BloomFilter:
    """Positions for `expected` members at an error rate of `error_percent` (1..99)."""

    def __init__(self, error_percent: int, expected: int) -> None:
        rate = error_percent / 100.0
        self._hashes = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(expected * (math.log(1 / rate) / math.log(2)) * (1 / math.log(2)))
        self.bit_num = 8 * math.ceil(bits / 8)

    def generate(self, text: str) -> BloomFilterData:
        """The positions of `text`."""
        mixed = murmur3_low64(text.encode("utf-8", "replace"))
        low, high = mixed & _MASK32, mixed >> 32
        positions = []
        for number in range(1, self._hashes + 1):
            combined = (low + number * high) & _MASK32
            if combined & 0x80000000:
                combined = ~combined & _MASK32
            positions.append(combined % self.bit_num)
        return BloomFilterData(bit_pos=positions, bit_num=self.bit_num)


def murmur3_low64(data: bytes) -> int:
    """The first eight bytes of MurmurHash3_x64_128 with seed 0, read little-endian, unsigned."""
    h1 = h2 = 0
    whole = len(data) - len(data) % _BLOCK
    for at in range(0, whole, _BLOCK):
        k1 = int.from_bytes(data[at : at + 8], "little")
        k2 = int.from_bytes(data[at + 8 : at + _BLOCK], "little")
        h1 ^= _mix_k1(k1)
        h1 = (_rotate(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK64
        h2 ^= _mix_k2(k2)
        h2 = (_rotate(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK64
    tail = data[whole:]
    h2 ^= _mix_k2(int.from_bytes(tail[8:], "little"))
    h1 ^= _mix_k1(int.from_bytes(tail[:8], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK64
    h2 = h2 + h1 & _MASK64
    return _finish(h1) + _finish(h2) & _MASK64


def _mix_k1(k1: int) -> int:
    return _rotate(k1 * _C1 & _MASK64, 31) * _C2 & _MASK64


def _mix_k2(k2: int) -> int:
    return _rotate(k2 * _C2 & _MASK64, 33) * _C1 & _MASK64


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK64


def _finish(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK64
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK64
    return value ^ value >> 33
