"""The arithmetic of bin/bench spark-source; nothing is measured."""

from __future__ import annotations

import pytest

from store.message_properties import parse_properties
from tests.bench.spark_memory import many_properties, resident
from tests.bench.spark_topics import Cost, best, flatness, ticks


def test_megabytes_by_the_clock_and_by_the_processor() -> None:
    cost = Cost(megabytes=300, seconds=2, cpu_s=1.5)
    assert (cost.mb_per_s, cost.mb_per_core) == (150, 200)


def test_the_best_of_rounds_has_the_least_of_both() -> None:
    rounds = [Cost(10, 2, 0.3), Cost(10, 1, 0.5), Cost(10, 3, 0.4)]
    assert best(rounds) == Cost(10, 1, 0.3)


def test_flatness_is_processor_time_beside_the_fewest_queues() -> None:
    costs = {8: Cost(10, 9, 3.0), 1: Cost(10, 1, 2.0), 64: Cost(10, 1, 2.5)}
    assert flatness(costs) == {8: 1.5, 1: 1.0, 64: 1.25}


def test_processor_time_counts_ended_children() -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    assert ticks(f"17 (a (b) c) S {fields}") == 14 + 15 + 16 + 17


def test_memory_of_a_status_file() -> None:
    status = "Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t 1024 kB\n"
    assert (resident(status, "VmRSS"), resident(status, "VmHWM")) == (1 << 20, 2 << 20)
    with pytest.raises(ValueError, match="no VmSwap"):
        resident(status, "VmSwap")


def test_many_properties_have_as_many_names() -> None:
    assert len(parse_properties(many_properties(4_000))) == 4_000
