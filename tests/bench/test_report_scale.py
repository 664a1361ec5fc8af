"""The nightly report of 200 brokers with two replicas over a day, by the command itself.

bin/bench report's dumps and its way to run them: two cores, 1 GB of heap. What it takes in seconds
is the benchmark's to say (docs/sla_at_scale.md) and is only printed here; asserted is what is the
same on every machine: that every row is counted, that the memory was enough, in few jobs, no more
shuffled for a row than the page says, and in a long run no more read, shuffled and written for a
row than with a tenth of the rows.
Two hundred brokers take minutes: they run in bin/test --long, and three in CI.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark.job.java_home import JavaError, find_java
from tests.bench import report
from tests.bench.report import FIRST_DATE, START, Command, heap_limit, stages
from tests.spark.both_ways import ONLY_SPARK, same
from tests.spark.generate_dumps import Shape
from tests.spark.plain_report import plain_report
from tests.spark.plain_samples import whole_day
from tests.spark.plain_verdicts import PlainQuestion

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "sla_at_scale.md"
REPLICAS = 2
HEAP_BYTES = 1 << 30
RECOMPUTED = ("broker-00000", "broker-00001")
"""Groups whose figures the plain program computes, too; it takes seconds for each."""
# Not the records: Python sends them in batches that grow.
COUNTERS = (
    "input_bytes",
    "shuffle_write_bytes",
    "shuffle_read_bytes",
    "output_bytes",
)
TOLERANCE = 1.1
MOST_JOBS, MOST_TASKS = 20, 1_000
"""Of the larger run; a table without rows is no job, so how many there are depends on the dumps."""
MANY = 200
MOST_SPILLED = 0.2
"""Of what is shuffled; ten times the rows spilled a tenth (docs/sla_at_scale.md)."""


@pytest.fixture(scope="module")
def java() -> None:
    """Skips without a Java, but in CI that is a failure."""
    try:
        find_java(os.environ)
    except JavaError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true, and Spark has no Java: {error}")
        pytest.skip(f"Spark has no Java: {error}")


class Night:
    """The dumps of some groups, and one run of the report over them."""

    def __init__(self, directory: Path, groups: int) -> None:
        self._directory = directory
        shape = Shape(self.dumps, FIRST_DATE, groups, REPLICAS, days=1, interval_s=5, seed=1)
        command = Command(cache=directory / "cache")
        name = f"{groups} groups"
        self.run = report.measure(directory, report.dumps(shape), FIRST_DATE, command, name)
        report.show(self.run)
        assert self.run.exit_code in (0, 1, 2), self.words()

    @property
    def dumps(self) -> Path:
        return self._directory / "dumps"

    def summary(self) -> dict[str, Any]:
        path = self._directory / "out" / "report" / f"dt={FIRST_DATE}" / "summary.json"
        return dict(json.loads(path.read_text(encoding="utf-8")))

    def words(self) -> str:
        """What the command said on stderr."""
        return (self._directory / "report.log").read_text(encoding="utf-8")

    def for_each_row(self, counter: str) -> float:
        return float(getattr(self.run.events, counter)) / self.run.written.rows


def recomputed(night: Night, scratch: Path) -> dict[str, dict[str, Any]]:
    """Replica -> its row by the plain program, of a few groups."""
    for name in RECOMPUTED:
        for folder in night.dumps.glob(f"dt=*/cluster=*/broker={name}"):
            shutil.copytree(folder, scratch / folder.relative_to(night.dumps))
    tables = plain_report(PlainQuestion([scratch], whole_day(str(FIRST_DATE))))
    return {str(row["replica"]): row for row in tables["replica_days"]}


def on_the_page(label: str) -> float:
    """The figure of the smaller run in the page's first table."""
    (cells,) = re.findall(rf"^\| {label} \| ([\d,.]+)", PAGE.read_text(encoding="utf-8"), re.M)
    return float(cells.replace(",", ""))


def allowed_memory() -> int:
    """Of the nightly pod, whose limit is also the systemd unit's."""
    nightly = ROOT / "packaging" / "nightly"
    unit = (nightly / "mqreport.service").read_text(encoding="utf-8")
    (gigabytes,) = re.findall(r"^MemoryMax=(\d+)G$", unit, re.MULTILINE)
    documents = yaml.safe_load_all((nightly / "cronjob.yaml").read_text(encoding="utf-8"))
    (job,) = (document for document in documents if document["kind"] == "CronJob")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == f"{gigabytes}Gi"
    return int(gigabytes) << 30


@pytest.mark.long
@pytest.mark.parametrize("groups", [3, MANY])
@pytest.mark.timeout(2400)
@pytest.mark.usefixtures("java")
def test_many_brokers_on_two_cores_with_one_gigabyte_of_heap(
    tmp_path: Path, groups: int, proved: Callable[[str], None]
) -> None:
    """In a long run also a tenth of them, for what a row may cost."""
    large = Night(tmp_path / "large", groups)
    check_counts(large, groups)
    check_figures(large, tmp_path / "some")
    check_memory(large)
    check_cost(large)
    if groups >= MANY:
        small = Night(tmp_path / "small", groups // 10)
        check_memory(small)
        check_growth(small, large)
    rows = large.run.written.rows
    proved(f"the report of {groups} brokers, {rows:,} rows: complete, right, within 1 GB of heap")


def check_counts(night: Night, groups: int) -> None:
    """Every line and row that was written, once."""
    told, written = night.summary(), night.run.written
    assert sum(row["received"] for row in told["replicas"]) == written.rows
    assert sum(row["samples"] for row in told["groups"]) == written.lines
    assert told["counts"]["replicas"] == groups * REPLICAS


def check_figures(night: Night, scratch: Path) -> None:
    """Those of a few groups are the plain program's; one of them is breached: so is the night."""
    told, plain = night.summary(), recomputed(night, scratch)
    rows = {row["replica"]: row for row in told["replicas"] if row["replica"] in plain}
    assert len(plain) == len(rows) == len(RECOMPUTED) * REPLICAS
    differing = [
        f"{name} {column}: {row[column]!r}, plain {plain[name][column]!r}"
        for name, row in rows.items()
        for column in row.keys() & plain[name].keys() - ONLY_SPARK["replica_days"]
        if not same(row[column], plain[name][column])
    ]
    assert differing == []
    assert "breached" in {row["verdict"] for row in plain.values()}
    assert night.run.exit_code == told["exit_code"] == 1


def check_memory(night: Night) -> None:
    """What the report gives itself was enough at the first try, and is what the pod may have."""
    run = night.run
    assert run.heap_bytes == HEAP_BYTES
    assert run.events.failed_tasks == 0
    assert "OutOfMemory" not in night.words()
    assert 0 < run.jvm_peak < run.peak < allowed_memory()


def check_cost(large: Night) -> None:
    """Few jobs, and no more shuffled for a row than the page says."""
    assert large.run.events.jobs <= MOST_JOBS
    assert large.run.events.tasks <= MOST_TASKS
    shuffled = on_the_page("shuffled, bytes a row")
    assert large.for_each_row("shuffle_write_bytes") <= TOLERANCE * shuffled
    assert large.for_each_row("spilled_bytes") <= MOST_SPILLED * shuffled


def check_growth(small: Night, large: Night) -> None:
    """Ten times the rows cost no more for each row."""
    assert 9 < large.run.written.rows / small.run.written.rows < 11
    for counter in COUNTERS:
        assert 0 < large.for_each_row(counter) <= TOLERANCE * small.for_each_row(counter), counter


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("java -cp jars/* -Xmx2g -XX:+UseParallelGC org.apache.spark.deploy.SparkSubmit", 2 << 30),
        ("java -Xmx1g -Xmx512M x", 512 << 20),
        ("java -Xms2g x-Xmx1g", 0),
    ],
)
def test_the_limit_of_the_heap_is_read_from_the_command(command: str, expected: int) -> None:
    assert heap_limit(command) == expected


def test_the_stages_are_the_whole_time() -> None:
    told = [
        (3.0, "mqreport: starting Spark on Java 17 (PATH)\n"),
        (7.5, "mqreport: 2026-01-15: 1/2 reading the dumps\n"),
        (8.0, "mqreport: one file was passed over\n"),
        (20.0, "mqreport: 2026-01-15: 2/2 verdicts\n"),
        (21.0, "mqreport: a note\n"),
    ]
    assert stages(1.0, told, 24.0) == [
        (6.5, START),
        (12.5, "mqreport: 2026-01-15: 1/2 reading the dumps"),
        (4.0, "mqreport: 2026-01-15: 2/2 verdicts"),
    ]
    assert stages(1.0, told[:1], 4.0) == [(3.0, START)]
