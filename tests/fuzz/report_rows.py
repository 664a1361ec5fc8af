"""Row: files of metrics dumps as the nightly report reads them."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from spark.dumps.dump_files import split_by_group
from spark.dumps.dump_line import BadLineError, decode_line
from spark.reported_day import midnight_ms
from tests.fuzz.mutation import mutate_json
from tests.fuzz.target import Stateless, Target
from tests.spark.dump_lines_builder import DATE, T0, Life, replica
from tests.spark.dumps.test_dump_line import version_2

_DAY: Any = SimpleNamespace(date=DATE, needs=lambda _ts, _seq: True)


def _read(data: bytes) -> None:
    """Each line is a good one of its group, or a bad one; none is lost."""
    for text in data.splitlines():
        try:
            decode_line(text, midnight_ms(DATE))
        except BadLineError:
            continue
    packed, bad = split_by_group("f", DATE, data, _DAY)
    for each in packed.values():
        each.unpacked()
    assert all(isinstance(line.reason, str) for line in bad)


@functools.cache
def _seeds() -> Sequence[bytes]:
    life = Life(start_ms=T0)
    lines = [
        life.line(T0 + 5_000),
        life.line(T0 + 10_000, replicas=[replica(lag_ms=20_000)]),
        life.restarted(T0 + 30_000).line(T0 + 31_000),
    ]
    lines += [version_2(line) for line in lines]
    texts = [json.dumps(line).encode() for line in lines]
    return [*texts, b"\n".join(texts), gzip.compress(b"\n".join(texts)), b"", b"\x1f\x8b"]


ROWS = (
    Target(
        name="dump-lines",
        what="the report's input: dump files, plain and gzip, line by line",
        world=lambda _root: Stateless(_read),
        seeds=_seeds,
        rooms=("spark",),
        mutate=mutate_json,
        tokens=lambda: [b'"in_sync"', b'"v":1', b'"v":2', b"null", b"\n", b"\x1f\x8b\x08"],
    ),
)
