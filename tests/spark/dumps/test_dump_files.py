"""Bytes of a dump's file: its lines, what is damaged, and whose each line is."""

from __future__ import annotations

import datetime
import gzip
import json
from typing import Any

import pytest

from spark.dumps.dump_files import read_lines, split_by_group
from spark.reported_day import Day
from tests.spark.dump_lines_builder import DATE, T0, Life

DAY = Day.whole(DATE)
HOUR_MS = 3_600_000
BEFORE, AFTER = (DATE + datetime.timedelta(days=days) for days in (-1, 1))
FILE = "/d/x.jsonl.gz"


def gzipped(content: bytes) -> bytes:
    """Gzip, the same in every process: names of tests are made of it."""
    return gzip.compress(content, mtime=0)


def text(*lines: Any) -> bytes:
    words = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    return "".join(f"{line}\n" for line in words).encode()


def packed(*lines: Any) -> bytes:
    return gzipped(text(*lines))


def seqs(
    content: bytes, date: datetime.date = DATE, day: Day = DAY
) -> dict[tuple[str, str], list[int]]:
    groups, _ = split_by_group(FILE, date, content, day)
    return {
        group: [json.loads(line)["seq"] for line in some.unpacked().lines]
        for group, some in groups.items()
    }


def bad(content: bytes, date: datetime.date = DATE) -> list[tuple[str, str]]:
    _, lines = split_by_group(FILE, date, content, DAY)
    assert {line.file for line in lines} <= {FILE}
    return [(line.reason, line.text) for line in lines]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (gzipped(b""), []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\rc", [b"a", b"b\rc"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (gzipped(b"a\nb"), [b"a", b"b"]),
        (gzipped(b"a\nb\n") + gzipped(b"") + gzipped(b"c\n"), [b"a", b"b", b"c"]),
        (gzipped(b"a\n") + b"\0" * 9, [b"a"]),
        (gzipped(b"a") + gzipped(b"b\n"), [b"ab"]),
        (b"\xff\xfe\n\x00", [b"\xff\xfe", b"\x00"]),
    ],
)
def test_whole_files(content: bytes, lines: list[bytes]) -> None:
    """gzip of any number of members, also one that ends within a line, or plain text."""
    assert read_lines(content) == (lines, "")


LONG = [b"%06d" % (number * 7919 % 999_983) for number in range(50_000)]


@pytest.mark.parametrize("left", [2, 9, 10, 5_000, 100_000, -9, -1])
def test_a_file_that_was_cut_off_has_its_lines_before_the_cut(left: int) -> None:
    found, damage = read_lines(gzipped(b"\n".join(LONG) + b"\n")[:left])
    assert damage == "unexpected end of the gzip stream"
    assert found == LONG[: len(found)]
    assert bool(found) == (left in {5_000, 100_000, -9, -1})


@pytest.mark.parametrize("at", [20_000, 100_000])
def test_a_flipped_byte_leaves_what_comes_before_it(at: int) -> None:
    content = bytearray(gzipped(b"\n".join(LONG) + b"\n"))
    clean = len(read_lines(bytes(content[:at]))[0])
    content[at] ^= 0xFF
    found, damage = read_lines(bytes(content))
    assert damage
    assert found[:clean] == LONG[:clean]


def test_a_wrong_checksum_keeps_every_line() -> None:
    content = bytearray(gzipped(b"a\nb\n"))
    content[-6] ^= 1
    assert read_lines(bytes(content)) == ([b"a", b"b"], "incorrect data check")


def test_what_follows_a_member_and_is_none() -> None:
    assert read_lines(gzipped(b"a\n") + b"hello\n") == ([b"a"], "incorrect header check")


def test_each_line_goes_to_its_group() -> None:
    """Whatever the file is called, and in whatever order they lie there."""
    one, other = Life(), Life(cluster="ü", broker="x/y")
    lines = [one.line(T0), other.line(T0), one.line(T0 + 1), other.line(T0 + 2), one.line(T0 + 3)]
    for content in (text(*lines), packed(*lines)):
        assert seqs(content) == {("c", "b"): [1, 2, 3], ("ü", "x/y"): [1, 2]}


def test_a_file_of_one_group_travels_as_it_is() -> None:
    life = Life()
    content = packed(life.line(T0), life.line(T0 + 1))
    groups, _ = split_by_group(FILE, DATE, content, DAY)
    assert groups["c", "b"] == (FILE, DATE, content, True)
    mixed = packed(life.line(T0), "garbage")
    groups, _ = split_by_group(FILE, DATE, mixed, DAY)
    assert not groups["c", "b"].is_file
    assert len(groups["c", "b"].unpacked().lines) == 1


def test_lines_of_no_group_are_bad_and_told_with_their_words() -> None:
    line = Life().line(T0)
    torn = json.dumps(line)[:-20]
    assert bad(packed(line, torn, "", [line], line | {"broker": 5}, {"v": 3})) == [
        ("not one JSON object", torn[:1000]),
        ("not one JSON object", ""),
        ("not one JSON object", json.dumps([line])[:1000]),
        ("broker: missing, incomplete or of a wrong type", json.dumps(line | {"broker": 5})[:1000]),
        ("version 3, this report reads 1 and 2", '{"v": 3}'),
    ]
    assert bad(b"\xff\xfe\n")[0] == ("not one JSON object", "\ufffd\ufffd")
    assert bad(b"hello\nworld\n") == [
        ("not one JSON object", "hello"),
        ("not one JSON object", "world"),
    ]


def test_a_damaged_file_is_one_bad_line_and_gives_what_it_can() -> None:
    life = Life()
    content = packed(*(life.line(T0 + number) for number in range(700)))[:-300]
    (reason, words), *others = bad(content)
    assert (reason, words, others) == (
        "the file breaks off: unexpected end of the gzip stream",
        "",
        [],
    )
    found = seqs(content)["c", "b"]
    assert 0 < len(found) < 700
    assert found == list(range(1, len(found) + 1))


def test_a_torn_last_line_of_plain_text_is_a_bad_one() -> None:
    life = Life()
    content = text(life.line(T0), life.line(T0 + 1))[:-9]
    assert [reason for reason, _ in bad(content)] == ["not one JSON object"]
    assert seqs(content) == {("c", "b"): [1]}


def test_all_of_the_date_and_what_it_needs_of_those_beside() -> None:
    """Bad lines of the other days belong to their own reports."""
    life = Life(start_ms=T0 - 5 * HOUR_MS)
    line = life.line
    early = [line(T0 - 2 * HOUR_MS - 1), line(T0 - 2 * HOUR_MS), line(T0 - 1)]
    # What is long before the window: where each life began, and its last lines.
    assert seqs(packed(*early), BEFORE) == {("c", "b"): [2, 3, 1]}
    longer = Life(start_ms=T0 - 5 * HOUR_MS)
    long_ago = [longer.line(T0 - 4 * HOUR_MS, skip=100 * (n == 0)) for n in range(9)]
    of_another = Life(boot="ab" * 8).line(T0 - 4 * HOUR_MS, skip=7)
    ends = seqs(packed(*long_ago, of_another, line(T0 - 1)), BEFORE)
    kept = [4, 8, *range(101, 105), *range(106, 110)]
    assert sorted(ends["c", "b"]) == kept, "a life's first four, and its last"
    own = [line(T0 + 30 * HOUR_MS), line(T0) | {"ts": "soon"}]
    assert seqs(packed(*own)) == {("c", "b"): [5, 6]}
    late = [line(T0 + 26 * HOUR_MS - 1), line(T0 + 26 * HOUR_MS), line(T0 + 40 * HOUR_MS)]
    late += [Life().line(T0 + 40 * HOUR_MS), line(T0 + 25 * HOUR_MS) | {"seq": None}]
    assert seqs(packed(*late), AFTER) == {("c", "b"): [7, 1]}
    for date in (BEFORE, AFTER):
        assert bad(packed("garbage")[:-3], date) == []
