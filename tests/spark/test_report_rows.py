"""Which rows of the stored tables a report takes: of the plotted replicas, and the first ones."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from spark.dump_words import REPLICA
from spark.local_frames import local_frame
from spark.report_data import MAX_PLOTTED
from spark.report_rows import first_rows, is_one_of

EVERY = [("c", f"b{number}", f"b{number}:{slave}") for number in range(20) for slave in (1, 2)]


@pytest.mark.parametrize("session", ["spark", "compiled"])
@pytest.mark.parametrize("count", [0, 1, MAX_PLOTTED])
def test_rows_of_some_replicas(request: pytest.FixtureRequest, session: str, count: int) -> None:
    """Of each the cluster, the broker and the replica have to be the same."""
    spark: SparkSession = request.getfixturevalue(session)
    wanted = EVERY[-count:] if count else []
    others = [("other", broker, replica) for _, broker, replica in wanted]
    frame = local_frame(spark, dict.fromkeys(REPLICA, "string"), [*EVERY, *others])
    found = [tuple(row) for row in frame.where(is_one_of(wanted)).collect()]
    assert found == wanted


def test_of_too_many_rows_the_worst_are_taken(spark: SparkSession) -> None:
    """In a total order: whatever order they come in, the same ones."""
    rows = [("a", 5, 1.0), ("b", 5, 1.0), ("c", 1, 9.0), ("a", 4, 1.0), ("d", 9, 0.5)]
    for order in (rows, rows[::-1]):
        frame = spark.createDataFrame(order, "replica string, start_ms int, bad_s double")
        worst = first_rows(frame.repartition(3), fn.desc("bad_s"), "start_ms", "replica", count=3)
        assert {tuple(row) for row in worst.collect()} == {rows[2], rows[3], rows[0]}
