"""Result tables on disk: one date replaced and no other, crashes, paths of any kind."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark.command.catch_up import CatchUp
from spark.figures.result_tables import TABLES
from spark.job import results as results_module
from spark.job.hadoop_files import FilesError, HadoopFiles
from spark.job.results import Results, StagedDay
from spark.job.table_schema import schema_of, type_of
from tests.spark.dump_lines_builder import DATE
from tests.spark.local_results import dumps, report

pytestmark = pytest.mark.slow
D, YESTERDAY = str(DATE), str(DATE - datetime.timedelta(days=1))
SOME = ("replica_days", "incidents", "minutes")
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def three_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to see what happens to a table, and quicker than all."""
    monkeypatch.setattr(results_module, "TABLES", {name: TABLES[name] for name in SOME})


def row(replica: str = "b:1", **fields: Any) -> Row:
    return {"cluster": "c", "broker": "b", "replica": replica} | fields


def replace(spark: SparkSession, out: str, date: str, **tables: list[Row]) -> None:
    """One run: stages every table (those not given are empty), commits."""
    results = Results(spark, out)
    results.recover()
    staged = results.begin(date)
    for name in SOME:
        write(spark, staged, name, tables.get(name, []))
    staged.commit()


def write(spark: SparkSession, staged: StagedDay, table: str, rows: list[Row]) -> None:
    whole = [tuple((dict.fromkeys(TABLES[table]) | row).values()) for row in rows]
    frame = spark.createDataFrame(whole, schema_of(table, with_date=False)) if rows else None
    staged.write(table, frame)


def read(spark: SparkSession, out: str, table: str, *dates: str) -> list[Any]:
    frame = Results(spark, out).read(table, dates)
    assert frame is not None
    return frame.collect()


def stored(spark: SparkSession, out: str, table: str = "incidents") -> list[tuple[Any, ...]]:
    found = read(spark, out, table, D, YESTERDAY)
    return sorted((r.dt, r.replica, r.asDict().get("number")) for r in found)


def incident(number: int, **fields: Any) -> Row:
    return row(number=number, **fields)


def test_what_is_written_is_read_with_its_date(spark: SparkSession, tmp_path: Path) -> None:
    minute = row(minute=60_000, good_ms=1, bad_ms=2, unknown_ms=3, written=True)
    replace(spark, str(tmp_path), D, minutes=[minute, minute | {"minute": 0}], incidents=[])
    found = read(spark, str(tmp_path), "minutes", D)
    (first, second) = sorted(found, key=lambda each: each.minute)
    assert second.asDict() == dict.fromkeys(TABLES["minutes"]) | minute | {"dt": D}
    assert (first.minute, first.dt) == (0, D)
    assert (tmp_path / "parquet" / "minutes" / f"dt={D}").is_dir()


def test_a_run_replaces_its_date_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path)
    replace(spark, out, YESTERDAY, incidents=[incident(1), incident(2)])
    replace(spark, out, D, incidents=[incident(1)])
    before = sorted((tmp_path / "parquet/incidents" / f"dt={YESTERDAY}").iterdir())
    replace(spark, out, D, incidents=[incident(7), incident(8)])
    assert stored(spark, out) == [
        (YESTERDAY, "b:1", 1),
        (YESTERDAY, "b:1", 2),
        (D, "b:1", 7),
        (D, "b:1", 8),
    ]
    assert sorted((tmp_path / "parquet/incidents" / f"dt={YESTERDAY}").iterdir()) == before
    assert not any((tmp_path / "parquet/_staging").iterdir())


def test_an_empty_result_removes_what_was_there(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path)
    replace(spark, out, YESTERDAY, incidents=[incident(1)])
    replace(spark, out, D, incidents=[incident(1)], replica_days=[row()])
    replace(spark, out, D, replica_days=[row()])
    assert stored(spark, out) == [(YESTERDAY, "b:1", 1)]
    assert Results(spark, out).dates("incidents") == [YESTERDAY]
    assert Results(spark, out).dates("replica_days") == [D]
    assert not (tmp_path / "parquet/incidents" / f"dt={D}").exists()


def test_nothing_is_stored_yet(spark: SparkSession, tmp_path: Path) -> None:
    results = Results(spark, f"{tmp_path}/none")
    results.recover()
    assert results.dates("incidents") == []
    assert results.read("incidents", [D]) is None


def test_columns_that_an_earlier_version_did_not_write_are_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    old = spark.createDataFrame(
        [("c", "b", "b:1", 5.0)], "cluster string, broker string, replica string, bad_s double"
    )
    old.write.parquet(f"{tmp_path}/parquet/replica_days/dt={D}")
    (found,) = read(spark, str(tmp_path), "replica_days", D)
    assert (found.bad_s, found.incidents_ended, found.dt) == (5.0, None, D)


def test_a_table_that_was_forgotten_keeps_the_old_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = str(tmp_path)
    replace(spark, out, D, incidents=[incident(1)])
    staged = Results(spark, out).begin(D)
    staged.write("minutes", None)
    with pytest.raises(ValueError, match="not written: incidents, replica_days"):
        staged.commit()
    assert stored(spark, out) == [(D, "b:1", 1)]


def test_a_crash_while_tables_are_written_leaves_the_old_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = str(tmp_path)
    replace(spark, out, D, incidents=[incident(1)])
    staged = Results(spark, out).begin(D)
    write(spark, staged, "incidents", [incident(2)])
    assert stored(spark, out) == [(D, "b:1", 1)]
    Results(spark, out).recover()
    assert stored(spark, out) == [(D, "b:1", 1)]
    assert not any((tmp_path / "parquet/_staging").iterdir())


def test_what_was_given_up_is_gone_and_what_was_committed_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = str(tmp_path)
    staged = Results(spark, out).begin(D)
    write(spark, staged, "incidents", [incident(1)])
    staged.discard()
    assert not any((tmp_path / "parquet/_staging").iterdir())
    replace(spark, out, D, incidents=[incident(2)])
    staged = Results(spark, out).begin(D)
    for name in SOME:
        write(spark, staged, name, [row()])
    staged.commit()
    staged.discard()
    assert not any((tmp_path / "parquet/_staging").iterdir())
    assert stored(spark, out) == [(D, "b:1", None)]


@pytest.mark.parametrize(
    "operation",
    [1, 2, 4, 7, *(pytest.param(number, marks=pytest.mark.long) for number in (0, 3, 5, 6))],
)
def test_a_crash_while_tables_are_put_in_place(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: int
) -> None:
    """Whichever file operation of the commit is the first that does not happen: one run later all
    tables are the old ones, or all are the new ones; D-1 is never touched."""
    out = str(tmp_path)
    old = {"incidents": [incident(1)], "minutes": [row(minute=0)], "replica_days": [row("old")]}
    replace(spark, out, D, **old)
    replace(spark, out, YESTERDAY, **old)
    staged = Results(spark, out).begin(D)
    write(spark, staged, "incidents", [incident(2)])
    write(spark, staged, "minutes", [])
    write(spark, staged, "replica_days", [row("new")])

    left = operation
    with monkeypatch.context() as patch:
        for name in ("rename", "delete"):
            whole = getattr(HadoopFiles, name)

            def dying(self: HadoopFiles, *paths: str, _whole: Any = whole) -> None:
                nonlocal left
                if left == 0:
                    raise KeyboardInterrupt("the power went")
                left -= 1
                _whole(self, *paths)

            patch.setattr(HadoopFiles, name, dying)
        with pytest.raises(KeyboardInterrupt):
            staged.commit()
    Results(spark, out).recover()
    today = {name: [r for r in stored(spark, out, name) if r[0] == D] for name in SOME}
    is_new = operation >= 2  # the marker is there once its file has its name
    assert today == {
        "incidents": [(D, "b:1", 2 if is_new else 1)],
        "minutes": [] if is_new else [(D, "b:1", None)],
        "replica_days": [(D, "new" if is_new else "old", None)],
    }
    assert (YESTERDAY, "old", None) in stored(spark, out, "replica_days")
    assert not any((tmp_path / "parquet/_staging").iterdir())


def test_paths_with_a_scheme_and_names_that_need_care(spark: SparkSession, tmp_path: Path) -> None:
    out = f"file://{tmp_path}/with space/"
    replace(spark, out, D, incidents=[incident(1)])
    assert stored(spark, out) == [(D, "b:1", 1)]
    assert (tmp_path / "with space/parquet/incidents" / f"dt={D}").is_dir()


def test_trouble_names_the_path(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "parquet").write_text("a file where a directory belongs")
    with pytest.raises(FilesError, match=f"{tmp_path}/parquet/"):
        HadoopFiles(spark).write(f"{tmp_path}/parquet/x", b"")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nosuch://place/x", 'No FileSystem for scheme "nosuch"; give a local path, hdfs:'),
        ("s3a://bucket/x", "S3AFileSystem not found; Spark needs an S3 client: docs/nightly.md"),
        ("hdfs://nowhere.invalid:8020/x", "there is no such host: check the name"),
        ("", "empty string"),
    ],
)
def test_a_place_that_spark_cannot_reach(spark: SparkSession, path: str, reason: str) -> None:
    with pytest.raises(FilesError) as caught:
        HadoopFiles(spark).local_directory(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)


def test_which_paths_are_local(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark)
    assert files.local_directory(f"file://{tmp_path}/a b") == tmp_path / "a b"
    assert files.local_directory("relative") == Path.cwd() / "relative"


def test_what_is_there_to_catch_up(spark: SparkSession, tmp_path: Path) -> None:
    """The other cases, with files of this machine: tests/spark/command/test_catch_up.py."""
    paths, out, last = [dumps(tmp_path / "d", "2026-03-08")], tmp_path / "o", DATE

    def look() -> tuple[CatchUp, list[str], dict[str, int]]:
        found = CatchUp(HadoopFiles(spark), paths, str(out), last, 30)
        untold = {str(date): code for date, code in found.untold.items()}
        return found, [str(date) for date in found.missing], untold

    report(out, "2026-03-08")
    first, missing, untold = look()
    assert (missing, untold) == (["2026-03-09", "2026-03-10"], {})
    first.begin()
    report(out, "2026-03-09", exit_code=1)
    second, missing, untold = look()
    assert (missing, untold) == (["2026-03-10"], {"2026-03-09": 1})
    report(out, "2026-03-10")
    second.end()
    assert look()[1:] == ([], {})


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "x")]
)
def test_a_jvm_that_died(spark: SparkSession, tmp_path: Path, error: Exception) -> None:
    files = HadoopFiles(spark)

    def dead(*_path: str) -> None:
        raise error

    files._path = dead
    with pytest.raises(FilesError, match=f"{tmp_path}: Spark's JVM does not answer"):
        files.exists(str(tmp_path))


@pytest.mark.parametrize("table", TABLES)
def test_the_schema_is_what_spark_makes_of_the_types(spark: SparkSession, table: str) -> None:
    text = ", ".join(f"`{name}` {kind}" for name, kind in TABLES[table].items())
    assert schema_of(table, with_date=False) == StructType.fromDDL(text)
    assert schema_of(table, with_date=True) == StructType.fromDDL(f"{text}, dt string")


@pytest.mark.parametrize("kind", ["text", "array<text>", "map<int>", "array<int,int>"])
def test_types_that_no_table_has(kind: str) -> None:
    with pytest.raises(ValueError, match="no type of a table"):
        type_of(kind)
