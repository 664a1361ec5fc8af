"""The lines of one dump's file as the chain by `prev_digest` needs them: by process life.

Pure functions of bytes (msgspec and the standard library), called in the executors by the report's
job, while it reads a file for its figures, and in one process by `mqreport verify`. A file's lines
become *stretches*: the lines of one process life that are in one file. What follows from them is
the business of spark/evidence/dump_chain.py. Must not know where files lie or what lines mean.

Tested by tests/spark/evidence/test_verify.py.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import msgspec

from spark.dumps.dump_text import (
    DEFAULT_BOUNDS,
    Bounds,
    LeftOutError,
    LineReader,
    bad_lines_counted,
)

CHAINED_SINCE: Final = 2
"""The version of a line from which on it names the digest of the line before."""
_LARGEST_SEQ: Final = 2**63 - 1


class Life(NamedTuple):
    """One life of one broker process."""

    cluster: str
    broker: str
    broker_id: int
    boot: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker}:{self.broker_id} boot {self.boot}"


class ChainLine(NamedTuple):
    """What the chain needs of a line. `digest`: SHA-256 of its bytes without the line break, hex.
    `prev_digest` is None where the line names none; `is_chained` is false for version 1."""

    seq: int
    digest: str
    prev_digest: str | None
    is_chained: bool
    boot_ts: int
    prev_boot: str | None
    prev_seq: int | None


class Stretch(NamedTuple):
    """The lines of one life that are in one file, in the file's order."""

    file: str
    lines: list[ChainLine]


class _Head(msgspec.Struct, gc=False):
    v: int
    cluster: str
    broker: str
    broker_id: int
    boot: str
    boot_ts: int
    seq: int
    prev_digest: str | None = None
    prev_boot: str | None = None
    prev_seq: int | None = None


_DECODER: Final = msgspec.json.Decoder(_Head)
_RAW: Final = msgspec.json.Decoder(msgspec.Raw)


def stretches_of_file(
    file: str, content: bytes, bounds: Bounds = DEFAULT_BOUNDS
) -> tuple[dict[Life, Stretch], list[str]]:
    """The lines of a file (gzip or plain) by life, and its problems: see FileChain. A file that the
    report leaves out is a problem and has no lines."""
    reader, chain = LineReader(content, bounds), FileChain(file)
    try:
        for line in reader:
            chain.add(line)
            if chain.left_out:
                break
        else:
            chain.end(reader)
    except LeftOutError as error:
        return {}, [left_out_problem(file, str(error))]
    return chain.found()


def left_out_problem(file: str, why: str) -> str:
    """What the evidence and `mqreport verify` say of a file whose lines do not count at all."""
    return f"{file}: is left out: {why}"


class FileChain:
    """The lines of a file by life, and its problems, taken down while somebody reads it.

    They are those that the report reads, the last one also without a line break; only JSON that
    is not whole is no line yet there, as it is being written. `left_out`: why no more of it has to
    be read, if so.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._number = 0
        self._stretches: dict[Life, Stretch] = {}
        self._problems: list[str] = []
        self.left_out = ""

    def add(self, line: bytes) -> None:
        """The next line, as LineReader gives it."""
        self._number += 1
        try:
            head = _DECODER.decode(line)
            if not 1 <= head.seq <= _LARGEST_SEQ:
                raise ValueError("seq")
        except (msgspec.DecodeError, ValueError, RecursionError):
            self._add_bad()
            return
        life = Life(head.cluster, head.broker, head.broker_id, head.boot)
        stretch = self._stretches.get(life)
        if stretch is None:
            stretch = self._stretches[life] = Stretch(self._file, [])
        stretch.lines.append(
            ChainLine(
                head.seq,
                hashlib.sha256(line).hexdigest(),
                head.prev_digest,
                head.v >= CHAINED_SINCE,
                head.boot_ts,
                head.prev_boot,
                head.prev_seq,
            )
        )

    def _add_bad(self) -> None:
        if self.left_out:
            return
        self._problems.append(f"{self._file} line {self._number}: is no line of a broker")
        try:
            bad_lines_counted(len(self._problems))
        except LeftOutError as error:
            self.left_out = str(error)

    def end(self, reader: LineReader) -> None:
        """The file was read to its end."""
        is_torn = _is_torn(reader)
        if reader.rest and not is_torn:
            self.add(reader.rest)
        if reader.damage:
            self._problems.append(f"{self._file}: breaks off: {reader.damage}")
        elif is_torn and (b"\r" in reader.rest or reader.is_gzip):
            self._problems.append(f"{self._file}: its last line is incomplete")

    def found(self) -> tuple[dict[Life, Stretch], list[str]]:
        """By life, and the problems; of too many lines that are none nothing else."""
        if self.left_out:
            return {}, [left_out_problem(self._file, self.left_out)]
        return self._stretches, self._problems


def _is_torn(reader: LineReader) -> bool:
    return bool(reader.rest) and (bool(reader.damage) or not _is_json(reader.rest))


def _is_json(text: bytes) -> bool:
    try:
        _RAW.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
