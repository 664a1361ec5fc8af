"""Files that are made to be large: left out with a reason, without the memory that they ask for.

What a file unpacks to is known from how it was made; memory is what the kernel counted of a process
of its own."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.dumps import dump_text
from spark.dumps.dump_files import read_lines, split_by_group
from spark.dumps.dump_text import MB, Bounds, LeftOutError, LineReader
from spark.evidence.file_chain import stretches_of_file
from spark.reported_day import Day
from tests.spark.dump_lines_builder import DATE, T0, Life
from tests.spark.dumps.test_dump_files import FILE, LONG, packed

DAY = Day.whole(DATE)
SMALL = Bounds(40)


def zipped(pieces: Iterator[bytes]) -> bytes:
    packer = zlib.compressobj(6, wbits=31)
    return b"".join(map(packer.compress, pieces)) + packer.flush()


def of_mb(count: int, line: bytes) -> bytes:
    """Gzip of so many MB of one line."""
    piece = (line * (MB // len(line) + 1))[:MB]
    return zipped(piece for _ in range(count))


NOISE = b"".join(b"%08x" % zlib.crc32(b"%d" % n) for n in range(1_400)) + b"\n"
"""To half of it at best, alone; repeated it is 11 KB apart."""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (of_mb(60, b"\0"), "has a line of more than 16 MB, which no broker writes; remove it"),
        (
            of_mb(60, b"y" * 5_000 + b"\n"),
            "unpacks to more than 300 times its size, as no dump does; remove it, or unpack it"
            " where it lies",
        ),
        (
            of_mb(41, NOISE),
            "unpacks to more than 40 MB; --max-dump-file-mb 80 reads twice as much",
        ),
        (
            b"x" * 10 * MB + b"\n",
            "has 11 MB, and at most 10 are read; --max-dump-file-mb 41 reads it",
        ),
        (b"\n" * 100_001, "has more than 100,000 lines that are not of a dump; remove it"),
    ],
    ids=["zeros", "ratio", "size", "plain", "no lines"],
)
def test_a_file_that_is_left_out_says_why_and_the_way_out(content: bytes, why: str) -> None:
    for date in (DATE, DATE.replace(day=DATE.day + 1)):
        groups, bad = split_by_group(FILE, date, content, DAY, SMALL)
        assert (groups, bad) == ({}, [(FILE, f"the file is left out: {why}", "")])
    assert stretches_of_file(FILE, content, SMALL) == ({}, [f"{FILE}: is left out: {why}"])


def test_no_line_of_a_file_that_is_left_out_counts() -> None:
    content = packed(Life().line(T0)) + of_mb(41, NOISE)
    assert split_by_group(FILE, DATE, content, DAY, SMALL)[0] == {}
    assert stretches_of_file(FILE, content, SMALL)[0] == {}


def test_what_is_just_within_the_bounds_is_read() -> None:
    lines = [b"%d " % n + NOISE for n in range(39 * MB // (len(NOISE) + 7))]
    content = zipped(iter(lines))
    assert sum(map(len, lines)) > 38 * MB
    found, damage = read_lines(content, SMALL)
    assert (damage, len(found)) == ("", len(lines))
    assert [line + b"\n" for line in found] == lines


def test_the_setting_that_is_named_reads_it() -> None:
    content = of_mb(41, NOISE)
    with pytest.raises(LeftOutError, match="--max-dump-file-mb 80"):
        read_lines(content, SMALL)
    assert read_lines(content, Bounds(80))[1] == ""
    plain = b"".join(LONG[:30] * 60_000)
    with pytest.raises(LeftOutError, match="--max-dump-file-mb 44 "):
        read_lines(plain, SMALL)
    assert len(b"\n".join(read_lines(plain, Bounds(44))[0])) == len(plain)


def test_a_group_is_not_bounded_a_second_time() -> None:
    """What travels is compressed anew, and may be smaller than the file was by any factor."""
    line = Life().line(T0)
    content = packed(*([line] * 20_000), *([line | {"broker": "other"}] * 2))
    groups, bad = split_by_group(FILE, DATE, content, DAY)
    assert bad == []
    assert {key: len(some.unpacked().lines) for key, some in groups.items()} == {
        ("c", "b"): 20_000,
        ("c", "other"): 2,
    }


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("chunk", [1, 9, 1 << 16])
def test_pieces_of_any_size_are_the_same_lines(
    piece: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_text, "_PIECE", piece)
    monkeypatch.setattr(dump_text, "_FIRST_CHUNK", min(chunk, 3))
    monkeypatch.setattr(dump_text, "_CHUNK", chunk)
    text = b"\n".join([*LONG[:400], b"", b"\r", b"end"])
    whole = gzip.compress(text, mtime=0)
    padded = gzip.compress(b"", mtime=0) * 3 + whole + b"\0" * 20
    for content in (text, whole, padded):
        reader = LineReader(content, None)
        assert (list(reader), reader.rest, reader.damage) == (text.split(b"\n")[:-1], b"end", "")
    reader = LineReader(whole[:-9], None)
    assert list(reader) == text.split(b"\n")[: len(list(LineReader(whole[:-9], None)))]
    assert reader.damage == "unexpected end of the gzip stream"


MEASURED = """
import resource, sys
from pathlib import Path
from spark.dumps.dump_files import split_by_group
from spark.evidence.file_chain import stretches_of_file
from spark.reported_day import Day
from tests.spark.dump_lines_builder import DATE
content = Path(sys.argv[1]).read_bytes()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = split_by_group("f", DATE, content, Day.whole(DATE))
chain = stretches_of_file("f", content)
assert found[0] == chain[0] == {}, "is not left out"
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize("line", [b"\0", b"\n", b'{"v":2}\n'], ids=["zeros", "breaks", "lines"])
def test_a_bomb_of_gigabytes_takes_no_more_than_its_pieces(line: bytes, tmp_path: Path) -> None:
    content = of_mb(100, line) * 30
    assert len(content) < 12 * MB
    path = tmp_path / "bomb"
    path.write_bytes(content)
    command = [sys.executable, "-c", MEASURED, str(path)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    # 100,000 bad lines are kept with their words; everything else is a piece and a line.
    assert int(found.stdout) < 150 * MB
