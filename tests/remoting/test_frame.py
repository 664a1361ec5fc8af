"""Frames: every way eight bytes can lie, every chunking, and the answers that are templates."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import FrameError
from remoting.frame import (
    HEAD_SIZE,
    HEADER_LIMIT,
    MAX_FRAME,
    MAX_HEADER,
    BinaryAnswer,
    JsonAnswer,
    cut_run,
    frame_size,
    pack_head,
    split_frames,
    whole_size,
)
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RESPONSE_FLAG, RemotingCommand, SerializeType
from remoting.rocketmq_serializable import _MOST_FORMS, ResponseTemplate

Taken = tuple[int, bytes, bytes]


@dataclass
class Sink:
    """What was taken; stops after `wanted` frames."""

    wanted: int = 1 << 30
    frames: list[Taken] = field(default_factory=list)

    @staticmethod
    def take(sink: Sink, serialize_type: int, header: bytes, body: memoryview) -> bool:
        sink.frames.append((serialize_type, header, bytes(body)))
        return len(sink.frames) < sink.wanted


def split(data: bytes, end: int | None = None, wanted: int = 1 << 30) -> tuple[int, list[Taken]]:
    """(bytes taken, frames) of data[:end]."""
    sink = Sink(wanted)
    view = memoryview(data)
    return split_frames(view, len(data) if end is None else end, Sink.take, sink), sink.frames


def refusal(data: bytes) -> str:
    with pytest.raises(FrameError) as caught:
        split(data)
    return str(caught.value)


def frame(header: bytes, body: bytes = b"", serialize_type: int = 0) -> bytes:
    """Written down here once more: the product's own packing is not asked."""
    length = 4 + len(header) + len(body)
    return (
        struct.pack(">iB", length, serialize_type)
        + struct.pack(">I", len(header))[1:]
        + (header + body)
    )


# -- frames that are none ------------------------------------------------------------------------


@pytest.mark.fault(35)
@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\0\0\4", bytes(20)])
@pytest.mark.parametrize("length", [0, 1, 3, -1, -(2**31)])
def test_a_length_below_four(length: int, rest: bytes) -> None:
    assert refusal(struct.pack(">i", length) + rest) == f"frame length {length} is less than 4"


@pytest.mark.fault(35)
@pytest.mark.parametrize("rest", [b"", b"\0\0\0", b"\0\0\0\4", bytes(20)])
@pytest.mark.parametrize("length", [MAX_FRAME - 3, 2**31 - 1])
def test_a_length_over_the_limit(length: int, rest: bytes) -> None:
    expected = f"frame of {length + 4} bytes is over the limit of 16777216"
    assert refusal(struct.pack(">i", length) + rest) == expected


@pytest.mark.parametrize("have", range(4))
def test_a_length_is_not_judged_before_it_is_there(have: int) -> None:
    assert split(struct.pack(">i", -1)[:have]) == (0, [])


@pytest.mark.parametrize("length", [4, 5, MAX_FRAME - 4])
def test_a_length_that_may_come_true_is_waited_for(length: int) -> None:
    data = struct.pack(">i", length)
    assert split(data) == (0, [])
    assert frame_size(memoryview(data), 0) == length + 4


def test_the_largest_frame_is_taken() -> None:
    data = frame(b"h", bytes(MAX_FRAME - 9))
    assert len(data) == MAX_FRAME
    assert split(data) == (MAX_FRAME, [(0, b"h", bytes(MAX_FRAME - 9))])


@pytest.mark.fault(35)
@pytest.mark.parametrize(
    ("length", "header_length"), [(4, 1), (10, 7), (10, MAX_HEADER), (MAX_FRAME - 4, MAX_HEADER)]
)
@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_header_longer_than_its_frame(
    length: int, header_length: int, serialize_type: int
) -> None:
    data = struct.pack(">ii", length, serialize_type << 24 | header_length)
    expected = f"header of {header_length} bytes in a frame length of {length}"
    assert refusal(data) == expected
    assert refusal(data + bytes(64)) == expected


@pytest.mark.fault(35)
@pytest.mark.parametrize("kind", SerializeType)
def test_a_header_may_be_as_long_as_its_limit(kind: SerializeType) -> None:
    """Whoever takes it: one of a run, too."""
    largest = frame(_PREFIX.ljust(HEADER_LIMIT), b"body", kind)
    over = frame(_PREFIX.ljust(HEADER_LIMIT + 1), b"body", kind)
    assert split(largest)[0] == len(largest)
    expected = f"header of {HEADER_LIMIT + 1} bytes is over the limit of 1048576"
    assert refusal(over) == refusal(over[:8]) == expected
    for data in (largest * 3, largest * 2 + over, over * 3, frame(_PREFIX, b"", kind) + over * 2):
        check_runs(data)


@pytest.mark.fault(35)
@pytest.mark.parametrize("serialize_type", [2, 3, 127, 128, 255])
@pytest.mark.parametrize("rest", [b"", bytes(96)])
def test_an_unknown_serialize_type_is_refused_before_its_frame_is_there(
    serialize_type: int, rest: bytes
) -> None:
    data = struct.pack(">iI", 100, serialize_type << 24 | 10)
    assert refusal(data + rest) == f"unknown serialize type {serialize_type}"


def test_the_length_is_judged_before_the_word_behind_it() -> None:
    assert "less than 4" in refusal(struct.pack(">iI", -5, 0xFFFFFFFF))
    assert "over the limit" in refusal(struct.pack(">iI", MAX_FRAME, 0xFFFFFFFF))


def test_frames_before_a_bad_one_are_taken() -> None:
    sink = Sink()
    data = frame(b"one") + frame(b"two", b"body", 1) + struct.pack(">i", 3)
    with pytest.raises(FrameError):
        split_frames(memoryview(data), len(data), Sink.take, sink)
    assert sink.frames == [(0, b"one", b""), (1, b"two", b"body")]


@given(data=st.binary(max_size=40))
def test_any_bytes_are_frames_a_begin_or_refused(data: bytes) -> None:
    """What was taken are frames that give the same bytes again; the rest cannot be told yet."""
    try:
        used, frames = split(data)
    except FrameError:
        return
    assert b"".join(frame(header, body, kind) for kind, header, body in frames) == data[:used]
    rest = data[used:]
    if len(rest) >= 4:
        length = int.from_bytes(rest[:4], "big", signed=True)
        assert 4 <= length <= MAX_FRAME - 4
        assert len(rest) < length + 4
    if len(rest) >= HEAD_SIZE:
        assert rest[4] in (0, 1)
        assert int.from_bytes(rest[5:8], "big") <= length - 4


# -- frames --------------------------------------------------------------------------------------

_frames = st.lists(
    st.tuples(st.sampled_from([0, 1]), st.binary(max_size=20), st.binary(max_size=20)), max_size=5
)


@pytest.mark.fault(37)
@given(frames=_frames, data=st.data())
def test_a_stream_may_be_cut_anywhere(frames: list[Taken], data: st.DataObject) -> None:
    stream = b"".join(frame(header, body, kind) for kind, header, body in frames)
    end = data.draw(st.integers(0, len(stream)))
    used, first = split(stream, end)
    assert used <= end
    assert first + split(stream[used:])[1] == frames
    assert sum(HEAD_SIZE + len(header) + len(body) for _, header, body in first) == used


def test_only_what_is_there_is_looked_at() -> None:
    """The receive buffer is longer than what was read into it."""
    first = frame(b"header", b"body")
    stale = first + struct.pack(">i", -1)
    assert split(stale, len(first)) == (len(first), [(0, b"header", b"body")])
    assert split(stale, len(first) - 1) == (0, [])


@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_it_stops_when_it_is_told_to(wanted: int) -> None:
    first = frame(b"a", b"b")
    assert split(first * 3 + b"rubbish that nobody judges", wanted=wanted) == (
        wanted * len(first),
        [(0, b"a", b"b")] * wanted,
    )


def test_the_body_is_lent_and_the_header_is_kept() -> None:
    buffer = bytearray(frame(b"header", b"body"))
    seen: list[tuple[bytes, memoryview]] = []

    def take(_: None, _type: int, header: bytes, body: memoryview) -> bool:
        seen.append((header, body))
        return True

    split_frames(memoryview(buffer), len(buffer), take, None)
    buffer[:] = bytes(len(buffer))
    ((header, body),) = seen
    assert (header, bytes(body)) == (b"header", bytes(4))


_PREFIX = b'{"code":310,'
_run_frames = st.builds(
    frame,
    st.sampled_from([_PREFIX, _PREFIX + b"a", _PREFIX + b"b", _PREFIX + b"ab", b"other", b""]),
    st.sampled_from([b"", b"x", b"y", b"xy"]),
    st.sampled_from([0, 0, 0, 0, 0, 0, 1]),
)


@given(
    frames=st.lists(st.one_of(_run_frames, _run_frames.map(lambda one: one * 5)), max_size=8),
    cut=st.integers(0, 9),
    rest=st.sampled_from([b"", b"\xff" * 9, b"\0\0\0\4\xff\0\0\0", bytes(20)]),
)
def test_a_run_is_the_first_frames_that_begin_alike(
    frames: list[bytes], cut: int, rest: bytes
) -> None:
    whole = b"".join(frames)
    check_runs(whole[: max(len(whole) - cut, 0)] + (b"" if cut else rest))


@pytest.mark.parametrize("kind", SerializeType)
def test_a_run_ends_where_the_bytes_end(kind: SerializeType) -> None:
    data = frame(_PREFIX + b"a", b"body", kind) * 3 + frame(_PREFIX, b"other", kind)
    for end in range(len(data) + 1):
        check_runs(data[:end])
        check_runs(data[:end] + b"\0\0\0\4\1\0\0\0")


@pytest.mark.parametrize("kind", SerializeType)
@pytest.mark.parametrize("lie", [-1, 1, 5, 1 << 20])
def test_a_header_that_claims_more_than_its_frame(kind: SerializeType, lie: int) -> None:
    data = bytearray(frame(_PREFIX + b"a", b"", kind) * 3)
    size = len(data) // 3
    for first in (0, size):
        damaged = data[:]
        length = int.from_bytes(damaged[first + 5 : first + 8]) + lie
        damaged[first + 5 : first + 8] = length.to_bytes(3)
        check_runs(bytes(damaged))


def check_runs(data: bytes) -> None:
    """Of both types: they are the first of what split_frames splits."""
    taken: list[Taken] = []

    def take(_: None, serialize_type: int, header: bytes, body: memoryview) -> bool:
        taken.append((serialize_type, header, bytes(body)))
        return True

    with suppress(FrameError):
        split_frames(memoryview(data), len(data), take, None)
    for kind in SerializeType:
        alike = (one[0] == kind and one[1].startswith(_PREFIX) for one in taken)
        run = [one for one, _ in zip(taken, takewhile(bool, alike), strict=False)]
        headers, bodies, position = cut_run(memoryview(data), len(data), kind, _PREFIX)
        assert [(kind, header, body) for header, body in zip(headers, bodies, strict=True)] == run
        assert position == sum(map(whole_size, headers, bodies))


def test_frames_are_split_from_a_place_on() -> None:
    data = frame(b"a", b"b") + frame(b"c", b"d")
    sink = Sink()
    assert split_frames(memoryview(data), len(data), Sink.take, sink, 10) == len(data)
    assert sink.frames == [(0, b"c", b"d")]


@given(
    kind=st.sampled_from([0, 1]),
    header=st.integers(0, MAX_HEADER),
    body=st.integers(0, 2**31 - 1 - 4 - MAX_HEADER),
)
def test_a_head_packs_what_it_is_told(kind: int, header: int, body: int) -> None:
    head = pack_head(kind, header, body)
    assert int.from_bytes(head[:4], "big") == 4 + header + body
    assert head[4] == kind
    assert int.from_bytes(head[5:], "big") == header


# -- answers that are templates ------------------------------------------------------------------


@pytest.mark.parametrize("remark", [None, "FOUND"])
@given(
    code=st.integers(0, 400),
    number=st.integers(0, 2**63 - 1),
    text=st.text(st.characters(exclude_characters="\x7f", max_codepoint=0x7E), max_size=9),
    opaque=st.integers(-(2**31), 2**31 - 1),
)
def test_a_template_renders_what_the_codec_encodes(
    remark: str | None, code: int, number: int, text: str, opaque: int
) -> None:
    fixed = json.dumps("100 %").encode().replace(b"%", b"%%")
    template = JsonAnswer({"n": b'"%d"', "f": fixed, "t": b"%b"}, remark=remark is not None)
    command = RemotingCommand(
        code,
        opaque=opaque,
        flag=RESPONSE_FLAG,
        remark=remark,
        ext_fields={"n": str(number), "f": "100 %", "t": text},
        body=b"12345",
    )
    values: tuple[int | bytes, ...] = (code, number, json.dumps(text).encode(), opaque)
    if remark is not None:
        values += (remark.encode(),)
    rendered, encoded = template.render(values, 5) + b"12345", encode_command(command)
    assert as_data(rendered) == as_data(encoded)
    if text.isalnum():
        assert rendered == encoded


_FORMS = {"first": b"100 %%", "n": b"%d", "empty": b"", "id": b"7F%016X", "t": b"%b", "z": b"z"}
_BINARY = [BinaryAnswer(_FORMS, remark=has_remark) for has_remark in (False, True)]


@pytest.mark.parametrize("remark", [None, "FOUND", "", "x" * ord("%")])
@given(
    code=st.integers(0, 400),
    number=st.integers(-1, 2**63 - 1),
    text=st.one_of(
        st.text(max_size=9).filter(lambda text: text.isascii() or text.isprintable()),
        st.just("x" * ord("%")),
    ),
    opaque=st.integers(-(2**31), 2**31 - 1),
    body=st.sampled_from([b"", b"12345"]),
)
def test_a_binary_template_renders_what_the_codec_encodes(
    remark: str | None, code: int, number: int, text: str, opaque: int, body: bytes
) -> None:
    """Again and again, with values of the same and of other sizes."""
    template = _BINARY[remark is not None]
    fields = {"first": "100 %", "n": str(number), "empty": "", "id": f"7F{5:016X}", "t": text}
    command = RemotingCommand(
        code,
        opaque=opaque,
        flag=RESPONSE_FLAG,
        remark=remark,
        ext_fields={**fields, "z": "z"},
        body=body,
        serialize_type=SerializeType.ROCKETMQ,
    )
    values: tuple[int | bytes, ...] = (code, number, 5, text.encode(), opaque)
    if remark is not None:
        values += (remark.encode(),)
    assert template.render(values, len(body)) + body == encode_command(command)


def test_a_binary_template_remembers_few_sizes() -> None:
    """Of a text that a client chooses."""
    template = ResponseTemplate({"t": b"%b"}, remark=False)
    for size in range(2 * _MOST_FORMS):
        template.render((0, bytes(size), 1))
    assert len(template._by_sizes) <= _MOST_FORMS


def as_data(data: bytes) -> tuple[object, bytes]:
    (used, ((_, header, body),)) = split(data)
    assert used == len(data)
    return json.loads(header), body


def test_a_template_without_a_table_of_fields() -> None:
    command = RemotingCommand(7, opaque=8, flag=RESPONSE_FLAG)
    assert JsonAnswer(None).render((7, 8)) == encode_command(command)


def test_a_template_without_fields() -> None:
    assert as_data(JsonAnswer({}).render((7, 8))) == (
        {
            "code": 7,
            "extFields": {},
            "flag": 1,
            "language": "PYTHON",
            "opaque": 8,
            "serializeTypeCurrentRPC": "JSON",
            "version": 409,
        },
        b"",
    )
