"""The notebooks of examples/notebooks, cell by cell, and what they show against the truth.

That of the report runs in every run over a day that a pair of brokers had (test_end_to_end.py);
here, in a long run, over one whose figures are exact.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.config.objectives import ConsumerLag, Objective, SlaConfig
from spark.job.sla_report import ReportRequest, run
from spark.reported_day import Day
from tests.spark.both_ways import QuietProgress
from tests.spark.dump_lines_builder import DATE, replica, write_dump
from tests.spark.figures.test_consumer_lag import W0, lines_of, pausing
from tests.spark.notebooks import NOTEBOOKS, executed
from tests.support.our_broker import OurBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 150


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    """With COUNT messages in two queues, of which `g` has consumed 50 of the first one."""
    with OurBroker(tmp_path_factory.mktemp("notebooks")) as running:
        running.start()
        with running.client() as client:
            for number in range(COUNT):
                fields = {"a": "P", "b": "Orders", "c": "TBW102", "d": 2, "e": number % 2, "f": 0}
                fields |= {"g": 1, "h": 0, "j": 0, "k": "false", "l": 16, "m": "false"}
                body = b"body %04d" % number
                assert client.call(310, fields | {"i": f"KEYS\x01{number}"}, body).code == 0
            for queue_id, offset in ((0, 50), (1, 75)):
                names = {"consumerGroup": "g", "topic": "Orders", "queueId": queue_id}
                assert client.call(15, names | {"commitOffset": offset}).code == 0
        yield running


def test_every_notebook_is_run_here() -> None:
    names = {path.stem for path in NOTEBOOKS.glob("*.ipynb")}
    assert names == {"topic_to_parquet", "lag_of_groups", "log_with_rot", "report_in_sql"}


def test_a_topic_to_parquet_and_delta(
    spark: SparkSession, broker: OurBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:{broker.ports['namesrv']}")
    monkeypatch.setenv("LAKE", str(tmp_path))
    found = executed("topic_to_parquet")
    rows = found["table"].select("keys", "body").collect()
    assert sorted((int(row.keys), bytes(row.body)) for row in rows) == [
        (number, b"body %04d" % number) for number in range(COUNT)
    ]
    assert sum(row.messages for row in found["by_minute"].collect()) == COUNT
    assert len(list((tmp_path / "parquet").glob("batch=*"))) == 2
    if importlib.util.find_spec("deltalake") is not None:
        delta = found["DeltaTable"](f"{tmp_path}/delta").to_pyarrow_table().to_pylist()
        assert sorted(int(row["keys"]) for row in delta) == list(range(COUNT))
        found["write_delta"](found["table"], 1)
        assert len(found["DeltaTable"](f"{tmp_path}/delta").to_pyarrow_table()) == COUNT


def test_the_lag_of_groups(
    spark: SparkSession, broker: OurBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:{broker.ports['namesrv']}")
    monkeypatch.setenv("LAKE", str(tmp_path))
    monkeypatch.setenv("SCANS", "2")
    found = executed("lag_of_groups")
    rows = [row for row in found["worst"].collect() if row.consumer_group == "g"]
    assert {(row.topic, row.messages) for row in rows} == {("Orders", 25)}
    (late,) = [row for row in found["late"].collect() if row.consumer_group == "g"]
    assert late.scans == 4
    assert late.within_a_minute >= 0.5


def test_a_log_with_rot(
    spark: SparkSession, broker: OurBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "commitlog"
    shutil.copytree(broker.store_dir / "commitlog", log)
    (first, *_) = sorted(log.iterdir())
    data = bytearray(first.read_bytes())
    data[data.index(b"body 0042") + 2] ^= 1
    first.write_bytes(data)
    monkeypatch.setenv("COMMITLOG", str(log))
    found = executed("log_with_rot")
    orders = found["messages"].where("topic = 'Orders'")
    assert sorted(int(row.keys) for row in orders.select("keys").collect()) == [
        number for number in range(COUNT) if number != 42
    ]
    assert found["damage"].count() >= 1
    gaps = [row for row in found["gaps"].collect() if row.topic == "Orders"]
    assert [(row.queue_id, row.first_lost, row.last_lost) for row in gaps] == [(0, 21, 21)]


@pytest.mark.long
def test_the_report_in_sql(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rise(line: dict[str, Any]) -> None:
        is_away = W0 + 200_000 <= line["ts"] < W0 + 290_000
        line["replicas"] = [replica("b:1", "disconnected" if is_away else "in_sync")]

    lines = lines_of(pausing((100, 220)), change=rise)
    write_dump(tmp_path / "dumps", _counted(lines))
    promise = ConsumerLag("g", seconds=60, percent=99)
    sla = SlaConfig((Objective("o", consumer_lag=(promise,)),))
    day = Day(DATE, W0, W0 + 600_000)
    out = tmp_path / "out"
    run(spark, ReportRequest(day, [str(tmp_path / "dumps")], str(out), sla), QuietProgress().stage)
    monkeypatch.setenv("REPORTS", str(out))
    monkeypatch.setenv("DATE", str(DATE))
    found = executed("report_in_sql")
    (row,) = found["availability"].collect()
    assert row.bad_s == row.reported_bad_s > 80
    assert row.availability == pytest.approx(row.reported_availability, abs=1e-9)
    (row,) = found["incidents"].collect()
    assert (row.incidents, row.longest_s) == (row.reported, row.reported_longest_s)
    assert row.incidents == 1
    hours = found["hours"].collect()
    assert [row.bad_ms for row in hours] == [row.reported_bad_ms for row in hours] != []
    lags = found["lags"].collect()
    assert {row.all_s for row in lags} == {600.0}
    assert [row.verdict for row in lags] == ["breached"] * len(lags)
    (late_s,) = [row.late_s for row in lags if row.seconds == 60]
    assert 59 <= late_s <= 60


def _counted(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with counters and marks that go with their states."""
    spent, before = {"in_sync": 0, "catching_up": 0, "disconnected": 0}, lines[0]["mono"]
    for line in lines:
        (row,) = line["replicas"]
        spent[row["state"]] += line["mono"] - before
        before = line["mono"]
        row |= {"state_ms": dict(spent), "lag_ms_max": 0}
        row["lag_time"] = [spent["in_sync"], *[0] * len(line["lag_le"])]
    return lines
