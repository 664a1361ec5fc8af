"""Which rows of the stored tables a report takes: those of the plotted replicas."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark.local_frames import local_frame
from spark.report_data import MAX_PLOTTED
from spark.report_rows import is_one_of
from spark.schema import REPLICA

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
