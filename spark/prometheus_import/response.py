"""Reads what a Prometheus server answered to range queries: series on one grid of moments.

Plain Python, no Spark; knows the JSON of /api/v1/query_range and no metric of the broker. What
could be misread is refused: a response of another kind, an error, NaN, timestamps of different
steps.

Tested by tests/spark/prometheus_import/test_targets.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

_RANGE_QUERY: Final = "ask /api/v1/query_range with start, end and step"
_YEAR_9999_S: Final = 253_370_764_800
_NO_NUMBER_OF_OURS: Final = 2**63
_SHOWN_BYTES: Final = 80
"""Of a file that is not an answer: what a proxy or a starting server says."""


class _Data(msgspec.Struct):
    resultType: str = "text"  # noqa: N815 - Prometheus' name
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct):
    """What /api/v1/query_range gives, also when it refuses a query."""

    status: str
    data: _Data = msgspec.field(default_factory=_Data)
    errorType: str = "error"  # noqa: N815 - Prometheus' name
    error: str = "no reason given"
    warnings: list[str] | None = None


class _Item(msgspec.Struct):
    """One series of a matrix: labels, then moments in seconds with values as text."""

    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    histograms: list[msgspec.Raw] = []


_ANSWER: Final = msgspec.json.Decoder(_Answer)
_ITEMS: Final = msgspec.json.Decoder(list[_Item])


class ResponseError(Exception):
    """A file that cannot be used as an answer; names the file, what is wrong, and the way out."""


@dataclass(frozen=True, slots=True)
class Series:
    """One time series: value by moment (epoch ms). `labels` without the name; `file` is the first
    that has it."""

    name: str
    labels: Mapping[str, str]
    file: Path
    points: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grid:
    """Series whose moments are all whole steps apart. `notes`: what the server warned of."""

    step_ms: int
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()


def read_responses(paths: Sequence[Path]) -> Grid:
    """The series of all files, those of equal labels put together. Raises ResponseError."""
    together: dict[tuple[str, frozenset[tuple[str, str]]], Series] = {}
    moments: dict[Path, set[int]] = {}
    notes: list[str] = []
    for path in paths:
        items, warnings = _answer(path)
        notes += warnings
        moments[path] = set()
        for series in _series(path, items):
            key = (series.name, frozenset(series.labels.items()))
            _merge(path, together.setdefault(key, Series(series.name, series.labels, path)), series)
            moments[path].update(series.points)
    if not together:
        names = ", ".join(str(path) for path in paths)
        raise ResponseError(f"{names}: no series at all; was anything scraped in that time?")
    return Grid(_step_ms(moments), tuple(together.values()), tuple(notes))


def _answer(path: Path) -> tuple[list[_Item], list[str]]:
    """The series of a file, and what the server warned of."""
    content = b""
    try:
        content = path.read_bytes()
        answer = _ANSWER.decode(content)
        if answer.status != "success":
            raise ResponseError(
                f"{path}: Prometheus refused the query: {answer.errorType}: {answer.error}"
            )
        kind = answer.data.resultType
        if kind != "matrix":
            raise ResponseError(f"{path}: holds a {kind}, not a matrix; {_RANGE_QUERY}")
        warnings = [f"{path}: Prometheus warns: {text}" for text in answer.warnings or ()]
        return _ITEMS.decode(answer.data.result), warnings
    except OSError as error:
        raise ResponseError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        begin = content[:_SHOWN_BYTES].decode(errors="replace")
        raise ResponseError(
            f"{path}: is not an answer of a Prometheus server: {error}; it begins with {begin!r};"
            f" {_RANGE_QUERY}"
        ) from error


def _series(path: Path, items: list[_Item]) -> Iterator[Series]:
    for number, item in enumerate(items):
        name = item.metric.pop("__name__", "")
        if not name:
            raise ResponseError(
                f"{path}: series {number} {item.metric}: has no name: a function removed it; use"
                " the queries of `mqreport import --print-queries`"
            )
        if item.histograms:
            raise ResponseError(f"{path}: {name}: native histograms are not supported")
        points = _points(f"{path}: {name}{item.metric}", item.values)
        item.values = []  # an answer may have millions of points
        yield Series(name, item.metric, path, points)


def _points(where: str, values: list[tuple[float, str]]) -> dict[int, float]:
    points: dict[int, float] = {}
    for moment, text in values:
        if not 0 <= moment < _YEAR_9999_S:
            raise ResponseError(f"{where}: {moment:.15g} is not a time in seconds since 1970")
        try:
            value = float(text)
        except ValueError as error:
            raise ResponseError(f"{where}: is {text!r} at {moment:.15g}: not a number") from error
        if not abs(value) < _NO_NUMBER_OF_OURS:  # nor is NaN
            raise ResponseError(
                f"{where}: is {text} at {moment:.15g}: no broker writes that; leave this series"
                " out of the query, or the time around it"
            )
        points[round(moment * 1000)] = value
    return points


def _merge(path: Path, known: Series, more: Series) -> None:
    for moment, value in more.points.items():
        if known.points.setdefault(moment, value) != value:
            raise ResponseError(
                f"{path}: {more.name}{dict(more.labels)} at {moment / 1000} is {value}, another"
                f" file says {known.points[moment]}: the files come from different servers or times"
            )


def _step_ms(moments: Mapping[Path, set[int]]) -> int:
    """The one step of all files. Raises ResponseError where there is none."""
    steps: dict[int, Path] = {}
    for path, found in moments.items():
        ordered = sorted(found)
        if len(ordered) > 1:
            step = min(b - a for a, b in itertools.pairwise(ordered))
            steps.setdefault(step, path)
    if not steps:
        raise ResponseError(f"{next(iter(moments))}: holds one moment only; {_RANGE_QUERY}")
    if len(steps) > 1:
        found_steps = ", ".join(f"{step / 1000:g} s in {path}" for step, path in steps.items())
        raise ResponseError(f"different steps: {found_steps}; ask all queries with the same step")
    (step,) = steps
    origin = min(min(found) for found in moments.values() if found)
    for path, found in moments.items():
        if any((moment - origin) % step for moment in found):
            raise ResponseError(
                f"{path}: its moments lie between those of the other files; ask with starts that"
                f" are whole steps ({step / 1000:g} s) apart"
            )
    return step
