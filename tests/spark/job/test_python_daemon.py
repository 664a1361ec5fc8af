"""Where the Python workers of a local report import from, and that it is for every worker once."""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from spark.job.python_daemon import prefer_installed

ZIPS = ("pyspark.zip", "py4j-0.10.9.9-src.zip")


@pytest.fixture
def zips(tmp_path: Path) -> list[str]:
    """What Spark puts before a worker's module path."""
    for name in ZIPS:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(f"{name.partition('.')[0].partition('-')[0]}/__init__.py", "")
    return [str(tmp_path / name) for name in ZIPS]


def test_the_installed_pyspark_is_preferred_to_sparks_zip(zips: list[str]) -> None:
    installed = ["/somewhere/mqreport-modules.zip", str(Path(pyspark.__file__).parents[1])]
    assert prefer_installed([*zips, *installed]) == installed


def test_without_an_installed_pyspark_the_zips_stay(zips: list[str], tmp_path: Path) -> None:
    """PySpark of a Spark that was unpacked somewhere: there is no other."""
    (tmp_path / "site" / "py4j").mkdir(parents=True)
    (tmp_path / "site" / "py4j" / "__init__.py").touch()
    path = [*zips, str(tmp_path / "site")]
    assert prefer_installed(path) == path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_have_what_they_need_from_the_start(spark: SparkSession) -> None:
    """Otherwise each worker would compile PySpark from the zip: half a second of processor time."""
    path, preloaded, parents = spark.sparkContext.parallelize([0], 1).mapPartitions(look).first()
    assert Path(path) == Path(pyspark.__file__)
    assert preloaded
    assert "spark.job.python_daemon" in parents


def look(_: Iterable[int]) -> Iterator[tuple[str, bool, str]]:
    """Within a worker: PySpark's file, whether our modules came with the fork, who forked it."""
    found = importlib.import_module("pyspark").__file__ or ""
    command = Path(f"/proc/{os.getppid()}/cmdline").read_text(encoding="utf-8")
    yield found, "spark.job.report_tasks" in sys.modules, command
