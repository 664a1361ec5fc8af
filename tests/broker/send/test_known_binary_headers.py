"""KnownBinaryHeaders: reads what decode_binary_frame reads, whatever it was asked before."""

from __future__ import annotations

import struct
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from broker.send import known_binary_headers
from broker.send.known_binary_headers import KnownBinaryHeaders
from broker.send.send_header import SendFrame, decode_binary_frame
from remoting.request_code import RequestCode as Code
from tests.broker.twin_requests import SEND, named

CODES = (Code.SEND_MESSAGE_V2, Code.SEND_MESSAGE, Code.SEND_BATCH_MESSAGE)


def header(code: int, fields: dict[str, str], opaque: int = 7, flag: int = 0) -> bytes:
    block = b"".join(
        struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value
        for key, value in ((key.encode(), value.encode()) for key, value in fields.items())
    )
    return struct.pack(">hbhiiii", code, 0, 409, opaque, flag, 0, len(block)) + block


def outcome(decode: Any, data: bytes) -> object:
    """What it says, or that it says nothing."""
    try:
        frame: SendFrame = decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return frame.code, frame.opaque, frame.flag, type(frame), asdict(frame.extFields)


_digits = st.sampled_from(["0", "3", "03", "12", "+1", " 1", "\u0661", "x", "1" * 18, "9" * 19])
_texts = st.sampled_from(["KEYS\x01k", "KEYS\x01l", "DELAY\x013", "", "\u00e9", "x" * 900])
_fields = st.fixed_dictionaries(
    {
        "b": st.sampled_from(["T", "U", "Tags"]),
        "e": _digits,
        "f": st.sampled_from(["0", "4"]),
        "g": st.one_of(st.just("1700000000123"), st.just("1700000000124"), _digits),
        "i": _texts,
        "m": st.sampled_from(["false", "false", "true", "TRUE"]),
    }
)
_asked = st.tuples(
    st.sampled_from([*CODES, Code.SEND_MESSAGE_V2]),
    st.one_of(st.just({}), _fields),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([0, 0, 0, 2]),
    st.sampled_from(["plain", "plain", "plain", "back", "twice"]),
    st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), max_size=2),
)


def bytes_of(
    code: int,
    fields: dict[str, str],
    opaque: int,
    flag: int,
    order: str,
    damage: list[tuple[int, int]],
) -> bytes:
    names = named(code, SEND | fields)
    if order == "back":
        names = dict(reversed(names.items()))
    data = bytearray(header(code, names, opaque, flag))
    if order == "twice":
        block = data[21:] + data[21:]
        data[17:] = struct.pack(">i", len(block)) + block
    for place, value in damage:
        data[place % len(data)] = value
    return bytes(data)


@pytest.mark.interpreted
@given(asked=st.lists(_asked, max_size=12), learn_every=st.sampled_from([1, 1, 1, 3]))
def test_whatever_was_asked_before(asked: list[Any], learn_every: int) -> None:
    with mock.patch.object(known_binary_headers, "_LEARN_EVERY", learn_every):
        known = KnownBinaryHeaders()
        for one in asked:
            data = bytes_of(*one)
            for read in (data, data[:-1], data):
                assert outcome(known.decode, read) == outcome(decode_binary_frame, read)


@given(asked=st.lists(_asked, max_size=12))
def test_as_it_comes(asked: list[Any]) -> None:
    known = KnownBinaryHeaders()
    for one in asked:
        data = bytes_of(*one)
        assert outcome(known.decode, data) == outcome(decode_binary_frame, data)


@pytest.mark.parametrize("code", CODES)
def test_every_byte_of_a_known_header_counts(code: int) -> None:
    data = header(code, named(code, SEND | {"l": "3"}))
    for place in range(len(data)):
        for byte in {0, 1, *b"02T\x7f\xff", data[place] ^ 1, data[place] ^ 2}:
            known = KnownBinaryHeaders()
            known.decode(data)
            other = data[:place] + bytes([byte]) + data[place + 1 :]
            assert outcome(known.decode, other) == outcome(decode_binary_frame, other), place


@pytest.mark.parametrize(
    ("before", "then"),
    [
        *[("12", odd) for odd in ("03", "00", "+1", "-1", " 1", "1 ", "1L", "\u0663", "x1", "1_")],
        *[("5", odd) for odd in ("0", "x", " ", "\n")],
        ("1" * 19, "9" * 19),
        ("1" * 18, "9" * 18),
        ("1700000000123", "1.70000000012"),
        ("1700000000123", "1e00000000012"),
        ("1700000000123", "1_00000000012"),
    ],
)
def test_a_time_of_birth_is_read_as_ever(before: str, then: str) -> None:
    known = KnownBinaryHeaders()
    known.decode(header(310, SEND | {"g": before}))
    odd = header(310, SEND | {"g": then})
    assert outcome(known.decode, odd) == outcome(decode_binary_frame, odd)


@pytest.mark.interpreted
def test_other_places_in_a_header_of_the_same_size() -> None:
    known, fields = KnownBinaryHeaders(), SEND | {"a": "P" * known_binary_headers._KEY_SIZE}
    pair = [
        header(310, fields | own)
        for own in ({"e": "3", "i": "K\x01kk"}, {"e": "12", "i": "K\x01k"})
    ]
    with mock.patch.object(known_binary_headers, "_LEARN_EVERY", 1):
        read = [outcome(known.decode, data) for data in pair]
    with mock.patch.object(known_binary_headers, "decode_binary_frame") as general:
        assert outcome(known.decode, pair[1]) == read[1]
    assert not general.called


@pytest.mark.interpreted
@pytest.mark.parametrize("code", CODES)
def test_what_is_like_one_before_it_is_not_read(code: int) -> None:
    known = KnownBinaryHeaders()
    first = known.decode(header(code, named(code, SEND)))
    others = {"e": "3", "g": "1700000000999", "i": "KEYS\x01o"}
    with mock.patch.object(known_binary_headers, "decode_binary_frame") as read:
        found = known.decode(header(code, named(code, SEND | others), opaque=-5))
    assert not read.called
    assert (found.opaque, found.extFields.e, found.extFields.g) == (-5, "3", 1_700_000_000_999)
    assert (found.extFields.i, found.extFields.b) == ("KEYS\x01o", "T")
    assert (first.extFields.e, first.extFields.i) == (SEND["e"], SEND["i"]), "not the same object"


@pytest.mark.interpreted
def test_what_is_kept_is_limited() -> None:
    """Whatever a client sends."""
    known, fields = KnownBinaryHeaders(), SEND | {"a": "P" * known_binary_headers._KEY_SIZE}
    with mock.patch.object(known_binary_headers, "_LEARN_EVERY", 1):
        for number in range(known_binary_headers._MOST_KNOWN // 6 + 50):
            text = "k" * (1 + number)
            for topic in "TUVWXY":
                known.decode(header(310, fields | {"b": topic, "i": text}))
                assert known._known == sum(len(alike.known) for alike in known._alike.values())
                assert known._known <= known_binary_headers._MOST_KNOWN
        known.decode(header(310, fields | {"i": "k" * known_binary_headers._LARGEST}))
    assert known._known > known_binary_headers._MOST_KNOWN - 6
    assert max(size for size, _ in known._alike) <= known_binary_headers._LARGEST
    newest = header(310, fields | {"b": "Y", "i": text})
    with mock.patch.object(known_binary_headers, "decode_binary_frame") as read:
        known.decode(newest)
    assert not read.called


@pytest.mark.interpreted
def test_more_alike_than_are_kept() -> None:
    """Of one size, as many as a peer likes: the newest is known."""
    known, fields = KnownBinaryHeaders(), SEND | {"a": "P" * known_binary_headers._KEY_SIZE}
    with mock.patch.object(known_binary_headers, "_LEARN_EVERY", 1):
        for number in range(known_binary_headers._MOST_KNOWN + 3):
            known.decode(header(310, fields | {"b": f"{number:08}"}))
    assert known._known == 3
    with mock.patch.object(known_binary_headers, "decode_binary_frame") as read:
        known.decode(header(310, fields | {"b": f"{number:08}"}))
    assert not read.called


@pytest.mark.interpreted
def test_topics_with_equally_long_names_take_turns() -> None:
    known = KnownBinaryHeaders()
    turn = [header(310, SEND | {"b": f"topic-{number:02}"}) for number in range(16)]
    for _ in range(known_binary_headers._LEARN_EVERY * len(turn)):
        for data in turn:
            known.decode(data)
    with mock.patch.object(known_binary_headers, "decode_binary_frame") as read:
        for data in turn:
            known.decode(data)
    assert not read.called


@pytest.mark.interpreted
def test_what_is_sent_in_turns_with_long_headers_is_learned() -> None:
    known, fields = KnownBinaryHeaders(), SEND | {"i": "k" * known_binary_headers._LARGEST}
    for _ in range(known_binary_headers._LEARN_EVERY):
        known.decode(header(310, fields))
        known.decode(header(310, SEND))
    with mock.patch.object(known_binary_headers, "decode_binary_frame") as read:
        known.decode(header(310, SEND))
    assert not read.called
