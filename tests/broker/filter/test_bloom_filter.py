"""broker.filter.bloom_filter: positions as a Java broker computes them."""

from __future__ import annotations

import pytest

from broker.filter.bloom_filter import BloomFilter, murmur3_low64


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"", 0),
        (b"hello", 0xCBD8A7B341BD9B02),
        (b"hello, world", 0x342FAC623A5EBC8E),
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_murmur3(text: bytes, value: int) -> None:
    """The published values of MurmurHash3_x64_128, seed 0, first half."""
    assert murmur3_low64(text) == value


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("", [0, 0, 0]),
        ("G#T", [24, 26, 83]),
        ("CID_abc_0#TopicTest0", [50, 88, 28]),
        ("组#主题", [38, 9, 19]),
        ("0123456789abcde", [87, 93, 12]),
        ("0123456789abcdef", [11, 47, 60]),
        ("0123456789abcdefg", [27, 71, 85]),
        ("\ud800x", [78, 93, 108]),
    ],
)
def test_positions_of_java(text: str, positions: list[int]) -> None:
    found = BloomFilter(20, 32).generate(text)
    assert (found.bit_num, found.bit_pos) == (112, positions)


@pytest.mark.parametrize(
    ("error", "expected", "hashes", "bits"),
    [
        (1, 1, 7, 16),
        (1, 32, 7, 312),
        (1, 1000, 7, 9592),
        (5, 32, 5, 200),
        (5, 64, 5, 400),
        (20, 1, 3, 8),
        (20, 64, 3, 216),
        (20, 1000, 3, 3352),
        (50, 32, 1, 48),
        (50, 1000, 1, 1448),
        (70, 64, 1, 48),
        (99, 1000, 1, 24),
    ],
)
def test_sizes_of_java(error: int, expected: int, hashes: int, bits: int) -> None:
    found = BloomFilter(error, expected).generate("G#T")
    assert (len(found.bit_pos), found.bit_num) == (hashes, bits)
