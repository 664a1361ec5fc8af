"""The binary header: its layout, and every length that can lie."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import FrameError
from remoting.language_code import LanguageCode
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.rocketmq_serializable import (
    decode_rocketmq_header,
    encode_rocketmq_header,
    find_plain_header,
)


def header(
    remark: bytes = b"\0\0\0\0", block: bytes = b"", block_length: int | None = None
) -> bytes:
    fixed = struct.pack(">hbhii", 310, 0, 409, 7, 1)
    length = len(block) if block_length is None else block_length
    return fixed + remark + struct.pack(">i", length) + block


def field(key: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value


def test_layout() -> None:
    command = RemotingCommand(
        310,
        language=LanguageCode.GO,
        version=409,
        opaque=-2,
        flag=3,
        remark="né",
        ext_fields={"k": "vä"},
        serialize_type=SerializeType.ROCKETMQ,
    )
    data = encode_rocketmq_header(command)
    assert data.hex(" ", -4) == (
        bytes.fromhex(
            "0136 09 0199 fffffffe 00000003"  # code, language, version, opaque, flag
            "00000003 6ec3a9"  # remark
            "0000000a 0001 6b 00000003 76c3a4"  # ext block
        ).hex(" ", -4)
    )
    assert decode_rocketmq_header(data) == command


def test_last_of_a_key_that_comes_twice() -> None:
    data = header(block=field(b"a", b"1") + field(b"b", b"2") + field(b"a", b"3"))
    assert decode_rocketmq_header(data).ext_fields == {"a": "3", "b": "2"}


def test_empty_keys_and_values_are_dropped() -> None:
    block = field(b"", b"1") + field(b"b", b"") + field(b"c", b"3")
    command = decode_rocketmq_header(header(block=block))
    assert command.ext_fields == {"c": "3"}
    assert command.has_ext_fields
    assert not decode_rocketmq_header(header()).has_ext_fields


@pytest.mark.parametrize("language", [14, 99, -1])
def test_unknown_language(language: int) -> None:
    data = struct.pack(">hbhiiii", 1, language, 409, 7, 0, 0, 0)
    assert decode_rocketmq_header(data).language == LanguageCode.OTHER


@pytest.mark.fault(36)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too few"),
        (header()[:12], "too few"),
        (header()[:16], "too few"),
        (header()[:20], "too few"),
        (header(remark=struct.pack(">i", 100)), "remark claims 100"),
        (header(remark=struct.pack(">i", -1)), "remark claims -1"),
        (header(remark=struct.pack(">i", 2**31 - 1)), "remark claims 2147483647"),
        (header(block=field(b"a", b"b"), block_length=7), "ext block claims 7 bytes, 8 left"),
        (header(block=field(b"a", b"b"), block_length=9), "ext block claims 9 bytes, 8 left"),
        (header(block_length=-1), "ext block claims -1"),
        (header() + b"x", "ext block claims 0 bytes, 1 left"),
        (header(block=b"\0"), "too few"),
        (header(block=b"\x00\x05ab"), "ext key claims 5"),
        (header(block=b"\xff\xffab"), "ext key claims -1"),
        (header(block=b"\x00\x01a\x00\x00"), "too few"),
        (header(block=b"\x00\x01a\x00\x00\x00\x02b"), "ext value claims 2"),
        (header(block=b"\x00\x01a\xff\xff\xff\xffb"), "ext value claims -1"),
        (header(block=field(b"\xff", b"b")), "not UTF-8"),
        (header(block=field(b"a", b"\xed\xa0\x80")), "not UTF-8"),
        (header(remark=b"\0\0\0\x01\xff"), "not UTF-8"),
        (header(block=field(b"a", b"1") * 5000), "more than 4096"),
    ],
)
def test_lying_lengths(data: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        decode_rocketmq_header(data)


@pytest.mark.fault(36)
def test_every_cut_of_a_header_is_refused() -> None:
    data = header(block=field(b"key", b"value"))
    for cut in range(len(data)):
        with pytest.raises(FrameError):
            decode_rocketmq_header(data[:cut])


# -- what fast routes read -------------------------------------------------------------------------


def agrees(data: bytes) -> bool:
    """Whether find_plain_header reads it; then it reads what the other one does."""
    plain = find_plain_header(data)
    if plain is None:
        return False
    command = decode_rocketmq_header(data)
    assert (plain.code, plain.opaque, plain.flag) == (command.code, command.opaque, command.flag)
    assert plain.ext_fields == command.ext_fields
    assert command.remark is None
    return True


_entry = st.builds(
    field,
    st.sampled_from([b"a", b"b", b"topic", b"", b"\xc3\xa9", b"\xff", b"ab"]),
    st.sampled_from([b"1", b"", b"\xc3\xa9", b"\xff", b"x" * 300]),
)


@given(
    block=st.lists(_entry, max_size=6).map(b"".join),
    remark=st.sampled_from([b"\0\0\0\0", b"\0\0\0\0", b"\0\0\0\1r", b"\xff\xff\xff\xff"]),
    wrong=st.sampled_from([0, 0, 0, 1, -1, 2**30]),
    damage=st.tuples(st.integers(0, 60), st.integers(0, 255)),
    is_damaged=st.booleans(),
)
def test_a_plain_header_is_read_as_the_decoder_reads_it(
    block: bytes, remark: bytes, wrong: int, damage: tuple[int, int], is_damaged: bool
) -> None:
    data = bytearray(header(remark, block, len(block) + wrong))
    place, value = damage
    if is_damaged and place < len(data):
        data[place] = value
    agrees(bytes(data))
    agrees(bytes(data[:-1]))


def test_what_is_plain() -> None:
    assert agrees(
        header(block=field(b"a", b"1") + field(b"topic", "é".encode()) + field(b"z", b""))
    )
    assert agrees(header())
    assert agrees(header(block=field(b"a", b"1") * 4096))
    assert agrees(header(block=field(b"a", b"x" * 1_000_000)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        header()[:-1],
        header(b"\0\0\0\1r"),
        header(block=field(b"", b"1")),
        header(block=field(b"a", b"1"), block_length=7),
        header(block=field(b"a", b"1")[:-1]),
        header(block=field(b"a", b"1") * 4097),
        header(block=field(b"a", b"x" * (1 << 20))),
        header(block=field(b"a", b"\xff")),
        header(block=field(b"\xff", b"a")),
        header(block=field(b"abc", b"a")[:4]),
        header(block=b"\0\1a\xff\xff\xff\xff"),
        header(block=b"\xff\xffabcdef"),
    ],
)
def test_what_is_not_plain(data: bytes) -> None:
    assert find_plain_header(data) is None
