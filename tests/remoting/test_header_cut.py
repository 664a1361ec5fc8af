"""cut_of: where a binary header has the values that are asked for."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.header_cut import cut_of
from remoting.rocketmq_serializable import find_plain_header


def header(*fields: tuple[bytes, bytes], opaque: int = 7) -> bytes:
    block = b"".join(
        struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value
        for key, value in fields
    )
    return struct.pack(">hbhiiii", 310, 0, 409, opaque, 0, 0, len(block)) + block


def test_pieces() -> None:
    data = header((b"a", b"12"), (b"x", b"one"), (b"b", b"3"), (b"yz", b"two"), (b"c", b""))
    cut = cut_of(data, (b"x", b"yz"))
    assert cut is not None
    start, opaque, first, one, second, two, last = cut.unpack(data)
    assert (opaque, one, two) == (7, b"one", b"two")
    assert start == data[:5]
    assert start + data[5:9] + first + one + second + two + last == data


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ((b"x", b"1"),),
        ((b"y", b"1"), (b"x", b"1")),
        ((b"x", b""), (b"y", b"1")),
        ((b"x", b"1"), (b"x", b"1"), (b"y", b"1")),
        ((b"x", b"1"), (b"y", b"1"), (b"x", b"1")),
        ((b"x", b"1"), (b"y", b"1"), (b"y", b"")),
    ],
)
def test_a_name_that_does_not_come_once_and_in_order(fields: tuple[tuple[bytes, bytes]]) -> None:
    assert cut_of(header(*fields), (b"x", b"y")) is None


_values = st.sampled_from([b"", b"1", b"12", b"\xc3\xa9", b"\xff"])
_fields = st.lists(st.tuples(st.sampled_from([b"x", b"y", b"a", b"xy"]), _values), max_size=6)


@given(
    fields=st.one_of(_fields, _fields.map(lambda more: [(b"x", b"1"), (b"y", b"12"), *more])),
    changes=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3),
)
def test_what_is_cut_out_is_what_reading_finds(
    fields: list[tuple[bytes, bytes]], changes: list[tuple[int, int]]
) -> None:
    """Also from another header, if all between the cuts is the same."""
    known = header(*fields)
    if find_plain_header(known) is None or (cut := cut_of(known, (b"x", b"y"))) is None:
        return
    found = bytearray(known)
    for place, value in changes:
        found[place % len(found)] = value
    pieces, others = cut.unpack(known), cut.unpack(found)
    if pieces[0::2] != others[0::2]:
        return
    read = find_plain_header(bytes(found))
    if read is None:
        with pytest.raises(UnicodeDecodeError):
            (others[3] + b" " + others[5]).decode()
        return
    assert (read.opaque, read.ext_fields["x"]) == (others[1], others[3].decode())
    assert read.ext_fields["y"] == others[5].decode()
