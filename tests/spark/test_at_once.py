"""Jobs side by side: results in their order; a failure is raised, and nothing is left running."""

from __future__ import annotations

import threading

import pytest
from pyspark.sql import SparkSession

from spark.at_once import at_once

pytestmark = pytest.mark.slow

WAIT_S = 60


def test_they_run_at_the_same_time_and_come_in_their_order(spark: SparkSession) -> None:
    both_run = threading.Barrier(2)

    def count(rows: int) -> int:
        both_run.wait(WAIT_S)
        return spark.range(rows).count()

    assert at_once(lambda: count(3), lambda: count(5)) == [3, 5]


def test_a_failure_is_raised_when_the_others_have_ended(spark: SparkSession) -> None:
    failed = threading.Event()
    ended: list[int] = []

    def fail() -> None:
        try:
            spark.sql("SELECT assert_true(false)").collect()
        finally:
            failed.set()

    def go_on() -> None:
        assert failed.wait(WAIT_S)
        ended.append(spark.range(4).count())

    with pytest.raises(Exception, match="is not true"):
        at_once(fail, go_on)
    assert ended == [4]
