"""Histograms of weighted values: each value in the bucket that it has by itself."""

from __future__ import annotations

from spark.figures.distributions import bucket_of, distribution, histogram
from spark.figures.result_tables import HISTOGRAM_BASE

BUCKETS = 2_206
"""Up to 2^63 - 1."""


def test_every_value_beside_the_ends_of_all_buckets() -> None:
    values = {0, 1, 2**63 - 1}
    for bucket in range(1, BUCKETS):
        end = round(HISTOGRAM_BASE**bucket)
        values |= {end - 1, end, end + 1}
    weights = {value: 1 + value % 7 for value in values if value < 2**63}
    expected: dict[int, int] = {}
    for value in sorted(weights):
        bucket = bucket_of(value)
        expected[bucket] = expected.get(bucket, 0) + weights[value]
    found = histogram(weights)
    assert found == expected
    assert list(found or {}) == sorted(expected)


def test_values_without_weight_are_in_no_bucket() -> None:
    assert histogram({0: 0, 700: 0}) is None
    assert histogram({}) is None
    assert histogram({0: 0, 1: 3, 700: 0}) == {1: 3}


def test_a_distribution_is_made_of_one_order_of_the_values() -> None:
    weights = {9_000: 65, 0: 300, 700: 235}
    assert distribution("lag", weights, {"p50": 500, "p90": 900}) == {
        "lag_p50": 0,
        "lag_p90": 9_000,
        "lag_max": 9_000,
        "lag_hist": {0: 300, bucket_of(700): 235, bucket_of(9_000): 65},
    }
