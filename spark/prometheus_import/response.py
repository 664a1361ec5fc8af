"""Reads what a Prometheus server answered to range queries: series on one grid of moments.

Plain Python, no Spark; knows the JSON of /api/v1/query_range and no metric of ours. Whatever could
be misread is refused: a response of another kind, an error, NaN, moments of different steps.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_RANGE_QUERY: Final = "ask /api/v1/query_range with start, end and step"
_YEAR_9999_S: Final = 253_370_764_800
_NO_NUMBER_OF_OURS: Final = 2**63
_SHOWN_BYTES: Final = 80
"""Of an answer that is not one: what a proxy or a server that starts says."""


class ResponseError(Exception):
    """A file that is no usable answer; the text names the file, what is wrong, and the way out."""


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
        answer = _answer(path)
        notes += _warnings(path, answer)
        moments[path] = set()
        for series in _series(path, answer["data"]["result"]):
            key = (series.name, frozenset(series.labels.items()))
            _merge(path, together.setdefault(key, Series(series.name, series.labels, path)), series)
            moments[path].update(series.points)
    if not together:
        names = ", ".join(str(path) for path in paths)
        raise ResponseError(f"{names}: no series at all; was anything scraped in that time?")
    return Grid(_step_ms(moments), tuple(together.values()), tuple(notes))


def _answer(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        answer = json.loads(content)
    except OSError as error:
        raise ResponseError(f"{path}: cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        begin = content[:_SHOWN_BYTES].decode(errors="replace")
        raise ResponseError(
            f"{path}:{error.lineno}: is not JSON: {error.msg}; it begins with {begin!r}"
        ) from error
    except UnicodeDecodeError as error:
        raise ResponseError(f"{path}: is not JSON: {error.reason} at byte {error.start}") from error
    except (ValueError, RecursionError) as error:  # thousands of digits, thousands of brackets
        raise ResponseError(f"{path}: is no answer of a Prometheus server: {error}") from error
    if not isinstance(answer, dict) or "status" not in answer:
        raise ResponseError(f"{path}: is no answer of a Prometheus server; {_RANGE_QUERY}")
    if answer["status"] != "success":
        reason = f"{answer.get('errorType', 'error')}: {answer.get('error', 'no reason given')}"
        raise ResponseError(f"{path}: Prometheus refused the query: {reason}")
    data = answer.get("data")
    kind = data.get("resultType") if isinstance(data, dict) else None
    if data is None or kind != "matrix" or not isinstance(data.get("result"), list):
        raise ResponseError(f"{path}: holds a {kind or 'text'}, not a matrix; {_RANGE_QUERY}")
    return answer


def _warnings(path: Path, answer: dict[str, Any]) -> list[str]:
    warnings = answer.get("warnings") or []
    if not isinstance(warnings, list):
        raise ResponseError(f"{path}: its warnings are no list; {_RANGE_QUERY}")
    return [f"{path}: Prometheus warns: {text}" for text in warnings]


def _series(path: Path, result: list[Any]) -> Iterator[Series]:
    for number, item in enumerate(result):
        where = f"{path}: series {number}"
        if not isinstance(item, dict) or not isinstance(item.get("metric"), dict):
            raise ResponseError(f"{where}: has no labels; {_RANGE_QUERY}")
        labels = dict(item["metric"])
        if not all(_is_text(text) for pair in labels.items() for text in pair):
            raise ResponseError(f"{where}: has a label that is no text in UTF-8")
        name = labels.pop("__name__", "")
        if not name:
            raise ResponseError(
                f"{where} {labels}: has no name: a function took it; use the queries of"
                " `mqreport import --print-queries`"
            )
        if item.get("histograms"):
            raise ResponseError(f"{path}: {name}: native histograms are not understood")
        # Taken out, and let go: an answer may have millions of points.
        points = _points(f"{path}: {name}{labels}", item.pop("values", None))
        yield Series(name, labels, path, points)


def _is_text(label: Any) -> bool:
    """JSON may hold half a character (a lone surrogate), of which no UTF-8 can be made."""
    return isinstance(label, str) and not any("\ud800" <= char <= "\udfff" for char in label)


def _points(where: str, values: Any) -> dict[int, float]:
    points: dict[int, float] = {}
    try:
        for moment_s, text in values:
            moment, value = float(moment_s), float(text)
            if not 0 <= moment < _YEAR_9999_S:
                raise ResponseError(f"{where}: {moment_s} is no moment in seconds since 1970")
            if not abs(value) < _NO_NUMBER_OF_OURS:  # nor is NaN
                raise ResponseError(
                    f"{where}: is {text} at {moment_s}: no broker writes that; leave this series"
                    " out of the query, or the time around it"
                )
            points[round(moment * 1000)] = value
    except (TypeError, ValueError, OverflowError) as error:
        raise ResponseError(f"{where}: values are no [moment, text] pairs: {error}") from error
    return points


def _merge(path: Path, known: Series, more: Series) -> None:
    for moment, value in more.points.items():
        if known.points.setdefault(moment, value) != value:
            raise ResponseError(
                f"{path}: {more.name}{dict(more.labels)} at {moment / 1000} is {value}, another"
                f" file says {known.points[moment]}: the files are of different servers or times"
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
