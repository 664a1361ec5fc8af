"""Reading dumps: what is a good line, what becomes of the others, damaged files, directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit, raise_error

from spark import dump_lines
from spark.dump_lines import Lines, read_lines
from spark.schema import LINE, NULLABLE, Day, InputError
from tests.spark.dump_lines_builder import (
    DATE,
    T0,
    Life,
    Line,
    directory_of,
    file_name,
    replica,
    write_dump,
    write_file,
)

pytestmark = pytest.mark.slow
DAY = Day.whole(DATE)
HOUR_MS = 3_600_000
Change = Callable[[Line], Any]


def _without(name: str) -> Change:
    return lambda line: {key: value for key, value in line.items() if key != name}


def _with(**fields: Any) -> Change:
    return lambda line: line | fields


def _row_with(**fields: Any) -> Change:
    return _with(replicas=[replica(), replica("b:2") | fields])


WHOLE = ": missing, incomplete or of a wrong type"
BAD: dict[str, tuple[Change, str]] = {
    "torn": (lambda line: json.dumps(line)[:-20], "not one JSON object"),
    "two on one line": (lambda line: json.dumps(line) * 2, "not one JSON object"),
    "something behind": (lambda line: json.dumps(line) + " x", "not one JSON object"),
    "an array": (lambda line: json.dumps([line]), "not one JSON object"),
    "nothing": (lambda _: "", "not one JSON object"),
    "single quotes": (lambda line: json.dumps(line).replace('"', "'"), "not one JSON object"),
    "version 2": (_with(v=2), "version 2, this report reads 1"),
    "no version": (_without("v"), "v: missing or of a wrong type"),
    "text for a number": (_with(max_offset="5"), "max_offset" + WHOLE),
    "fraction for a number": (_with(max_offset=5.5), "max_offset" + WHOLE),
    "number for a flag": (_with(ready=1), "ready" + WHOLE),
    "seq 0": (_with(seq=0), "seq: below 1"),
    "interval 0": (_with(interval_ms=0), "interval_ms: not above 0"),
    "a sync counter is missing": (_with(sync={"ok": 1}), "sync" + WHOLE),
    "counts with a hole": (
        _with(ack_latency={"le": [1.0], "counts": [1, None], "sum": 0.0}),
        "ack_latency" + WHOLE,
    ),
    "too few counts": (
        _with(ack_latency={"le": [1.0], "counts": [1], "sum": 0.0}),
        "ack_latency: needs one count more than bounds",
    ),
    "replicas is no list": (_with(replicas=5), "replicas" + WHOLE),
    "a replica is null": (_with(replicas=[None]), "replicas" + WHOLE),
    "a replica lacks its lag": (_row_with(lag_ms=None), "replicas" + WHOLE),
    "a replica's lag is text": (_row_with(lag_ms="7"), "replicas" + WHOLE),
    "a replica's flag is missing": (_row_with(connected=None), "replicas" + WHOLE),
    "a replica lacks a state's time": (_row_with(state_ms={"in_sync": 1}), "replicas" + WHOLE),
    "a replica lacks all times": (_row_with(state_ms=None), "replicas" + WHOLE),
    "a process without a name": (
        _with(processes=[{"up": True, "restarts": 0}]),
        "processes" + WHOLE,
    ),
    "prev_seq is text": (_with(prev_seq="3"), "prev_seq" + WHOLE),
    "metadata lacks failures": (
        _with(metadata=[{"kind": "topics", "age_ms": None}]),
        "metadata" + WHOLE,
    ),
    "an hour too early": (
        _with(ts=T0 - HOUR_MS - 1),
        "ts: more than an hour away from the date of the directory",
    ),
    "an hour too late": (
        _with(ts=T0 + 25 * HOUR_MS),
        "ts: more than an hour away from the date of the directory",
    ),
} | {
    f"no {name}": (_without(name), name + WHOLE)
    for name in LINE.names
    if name not in NULLABLE and name != "v"
}
GOOD: dict[str, Change] = {
    "plain": _with(),
    "unknown fields": _with(news={"a": [1]}),
    "no replicas": _without("replicas"),
    "replicas null": _with(replicas=None),
    "no slave yet": _with(replicas=[]),
    "prev": _with(prev_boot="ab", prev_seq=7),
    "age unknown": _with(metadata=[{"kind": "topics", "age_ms": None, "failures": 0}]),
    "an hour early": _with(ts=T0 - HOUR_MS),
    "an hour late": _with(ts=T0 + 25 * HOUR_MS - 1),
    "no buckets": _with(ack_latency={"le": [], "counts": [3], "sum": 1.5}),
    "offset -1": _row_with(ack_offset=-1),
}


@pytest.fixture(scope="module")
def read(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One file for each case; reasons of bad files by case, seqs of good ones."""
    root = tmp_path_factory.mktemp("dump")
    names = {}
    for number, (name, change) in enumerate(
        [*((n, c) for n, (c, _) in BAD.items()), *GOOD.items()]
    ):
        line = Life().line(T0 + 5_000)
        path = directory_of(root, line) / f"00{number:02}-0-x.jsonl"
        write_file(path, [change(line)], compress=number % 2 == 0)
        names[path.name] = name
    lines = read_lines(spark, [str(root)], DAY)
    bad = {names[Path(row.file).name.removesuffix(".gz")]: row for row in lines.bad.collect()}
    result = {"bad": bad, "good": lines.good.count()}
    lines.release()
    return result


@pytest.mark.parametrize("case", BAD)
def test_bad_line(read: dict[str, Any], case: str) -> None:
    assert read["bad"][case].reason == BAD[case][1]


def test_good_lines(read: dict[str, Any]) -> None:
    assert set(read["bad"]) == set(BAD)
    assert read["good"] == len(GOOD)


def test_bad_lines_keep_their_words(read: dict[str, Any]) -> None:
    assert read["bad"]["torn"].text.startswith('{"v": 1, "ts": ')
    assert len(read["bad"]["torn"].text) <= 1000
    assert read["bad"]["torn"].file.startswith("/")


def _read(spark: SparkSession, *roots: Path) -> tuple[Lines, list[int], list[tuple[str, str]]]:
    lines = read_lines(spark, [str(root) for root in roots], DAY)
    seqs = sorted(row.seq for row in lines.good.collect())
    bad = [(Path(row.file).name, row.reason) for row in lines.bad.orderBy("file", "text").collect()]
    lines.release()
    return lines, seqs, bad


def test_damaged_files_count_and_give_what_they_can(spark: SparkSession, tmp_path: Path) -> None:
    """A truncated file, a wrong checksum, no gzip at all: told each; the others are read whole."""
    life = Life()
    sound, cut, no_gzip = (life.lines(T0 + i * HOUR_MS + 5_000, 700) for i in range(3))
    write_dump(tmp_path, sound)
    [cut_path] = write_dump(tmp_path, cut)
    cut_path.write_bytes(cut_path.read_bytes()[:-400])
    directory = directory_of(tmp_path, sound[0])
    (directory / f"{file_name(no_gzip[0])}.gz").write_bytes(b"hello\nworld\n")

    other = Life(broker="b%/x")
    [summed] = write_dump(tmp_path, [other.line(T0 + 5_000)])
    content = bytearray(summed.read_bytes())
    content[-6] ^= 1
    summed.write_bytes(content)

    _, seqs, bad = _read(spark, tmp_path)
    broken = {file: reason for file, reason in bad if "breaks off" in reason}
    assert set(broken) == {cut_path.name, f"{file_name(no_gzip[0])}.gz", summed.name}
    assert "Unexpected end" in broken[cut_path.name]
    assert "not a gzip file" in broken[f"{file_name(no_gzip[0])}.gz"]
    assert [seq for seq in seqs if seq <= 700] == list(range(1, 701))
    kept = [seq for seq in seqs if seq > 700]
    assert 0 < len(kept) < 700
    assert kept == list(range(701, 701 + len(kept)))


def test_what_is_not_damage_is_no_bad_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is there and cannot be read; and Spark's own trouble, such as a full disk."""
    line = Life().line(T0 + 5_000)
    path = directory_of(tmp_path, line) / f"{file_name(line)}.gz"
    write_file(path.with_suffix(""), [line])
    path.with_suffix("").rename(path)
    with monkeypatch.context() as patch:
        patch.setattr(dump_lines, "_DECOMPRESSION", "elsewhere.")
        with pytest.raises(InputError, match=f"{path}: cannot be read: IOException: not a gzip"):
            read_lines(spark, [str(tmp_path)], DAY)
    full = raise_error(lit("No space left on device")).isNull()
    monkeypatch.setattr(dump_lines, "_is_good", lambda _: full)
    path.rename(path.with_suffix(""))
    with pytest.raises((Py4JJavaError, PySparkException), match="No space left on device"):
        read_lines(spark, [str(tmp_path)], DAY)


def test_bad_lines_of_more_files_than_a_query_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_lines, "_MANY_FILES", 1)
    line = Life().line(T0 + 5_000)
    for name in ("0000-0-a", "0000-0-b"):
        write_file(directory_of(tmp_path, line) / f"{name}.jsonl", [line, "garbage"])
    _, seqs, bad = _read(spark, tmp_path)
    assert seqs == [1, 1]
    assert [file for file, _ in bad] == ["0000-0-a.jsonl", "0000-0-b.jsonl"]


def test_only_the_end_of_the_day_before(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(start_ms=T0 - 4 * HOUR_MS)
    lines = [life.line(T0 - hours * HOUR_MS) for hours in (3, 2, 1)] + [life.line(T0 + 5_000)]
    write_dump(tmp_path, lines)
    write_file(directory_of(tmp_path, lines[2]) / "2301-0-x.jsonl", ["garbage of yesterday"])
    _, seqs, bad = _read(spark, tmp_path)
    assert seqs == [2, 3, 4]
    assert bad == []


def test_what_is_no_dump_file_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    line = Life(cluster="ü b", broker="a/b").line(T0 + 5_000)
    [path] = write_dump(tmp_path, [line])
    assert "%2F" in str(path)
    write_file(path.with_name(".0100-0-x.jsonl.gz"), ["half compressed"])
    write_file(path.with_name("notes.txt"), ["notes"])
    _, seqs, bad = _read(spark, tmp_path)
    assert (seqs, bad) == ([1], [])


def test_bad_lines_are_found_under_any_name(spark: SparkSession, tmp_path: Path) -> None:
    paths = []
    for cluster, broker in (("ü b", "a/b"), ("100%", "x%20y"), ("c+d", "e&f=#?")):
        line = Life(cluster=cluster, broker=broker).line(T0 + 5_000)
        [path] = write_dump(tmp_path / "dumps of ä%", [line])
        paths.append(str(path.with_name("0100-0-x y+%.jsonl")))
        write_file(Path(paths[-1]), ["garbage", json.dumps(line)[:-9]])
    lines = read_lines(spark, [str(tmp_path / "dumps of ä%")], DAY)
    assert lines.good.count() == 3
    bad = sorted((row.file, row.reason) for row in lines.bad.collect())
    lines.release()
    assert bad == sorted((path, "not one JSON object") for path in paths * 2)


def test_several_directories(spark: SparkSession, tmp_path: Path) -> None:
    life = Life()
    write_dump(tmp_path / "a", [life.line(T0 + 5_000)])
    write_dump(tmp_path / "b", [life.line(T0 + 10_000)], compress=False)
    assert _read(spark, tmp_path / "a", tmp_path / "b")[1:] == ([1, 2], [])


def test_a_date_without_dumps(spark: SparkSession, tmp_path: Path) -> None:
    assert _read(spark, tmp_path)[1:] == ([], [])


def test_a_path_that_spark_would_take_for_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    """It would read `a` instead of `[a]`."""
    for name in ("a", "[a]"):
        write_dump(tmp_path / name, [Life().line(T0 + 5_000)])
    with pytest.raises(
        InputError, match=r"/\[a\]: Spark takes a name with one of .* for a pattern"
    ):
        read_lines(spark, [str(tmp_path / "[a]")], DAY)


def test_a_path_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: there is no such directory; --dumps"):
        read_lines(spark, [str(tmp_path), str(tmp_path / "nowhere")], DAY)
