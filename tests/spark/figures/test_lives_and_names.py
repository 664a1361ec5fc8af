"""Which rows become a name's, and how much time is hidden between lives: each rule by few lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark.dumps.dump_line import FileLines
from spark.figures.replica_names import join_names
from spark.figures.sample_stream import Sample, read_samples
from spark.reported_day import Day
from spark.vocabulary import DAY_MS, HOUR_MS
from tests.spark.dump_lines_builder import DATE, T0, Life, Line, replica

GROUP = ("c", "b")
BEGIN = T0 + HOUR_MS


def samples_of(lines: list[Line]) -> Any:
    texts = [json.dumps(line).encode() for line in lines]
    return read_samples([FileLines("f", DATE, texts)], Day.whole(DATE)).masters


def rows(*names: str, ms: int = 5_000, state: str = "in_sync") -> list[dict[str, Any]]:
    return [replica(name, state, state_ms={"in_sync": ms}, transferred=ms) for name in names]


def joined(*of_lines: list[dict[str, Any]]) -> tuple[dict[str, str], list[set[str]]]:
    life = Life(BEGIN)
    lines = [life.line(BEGIN + 5_000 * n, replicas=some) for n, some in enumerate(of_lines, 1)]
    stream = samples_of(lines)
    return join_names(GROUP, stream), [set(sample.rows) for sample in stream.samples]


def test_the_rows_of_an_ip_become_those_of_its_name() -> None:
    found = joined(rows("1.1.1.1"), rows("1.1.1.1", ms=9_000), rows("b:1", ms=9_000))
    assert found == ({"1.1.1.1": "b:1"}, [{"b:1"}] * 3)


def test_of_two_that_are_gone_nobody_knows_which_was_named() -> None:
    assert joined(rows("1.1.1.1", "1.1.1.2"), rows("b:1"))[0] == {}
    assert joined(rows("1.1.1.1"), rows("b:1", "b:2"))[0] == {}


def test_a_name_with_less_in_its_counters_is_another_ones() -> None:
    assert joined(rows("1.1.1.1", ms=9_000), rows("b:1", ms=8_999))[0] == {}


def test_a_line_that_has_both_keeps_both() -> None:
    """The name was there, disconnected, when somebody else had the ip."""
    away = rows("b:1", state="disconnected")
    found = joined([*rows("1.1.1.1"), *away], rows("1.1.1.1"), rows("b:1"))
    assert found[1] == [{"1.1.1.1", "b:1"}, {"b:1"}, {"b:1"}]


# -- lives ------------------------------------------------------------------------------------


def a_life(number: int, minute: int, host: str, machine: str | None, **fields: Any) -> list[Line]:
    """Two lines; its machine's uptime goes with the wall clock."""
    start = BEGIN + minute * 60_000
    life = Life(start, boot=f"{number:08x}" * 2, marks=True, **fields)
    found = [life.line(start + 5_000), life.line(start + 10_000)]
    for line in found:
        line |= {"host": host, "machine_boot": machine, "uptime": line["ts"] - T0}
    return found


def first_of(lines: list[Line], number: int) -> Sample:
    boot = f"{number:08x}" * 2
    found: Sample = next(s for s in samples_of(lines).samples if s.line.boot == boot)
    return found


@pytest.mark.parametrize(("host", "hidden_ms"), [("x:1", DAY_MS), ("y:1", 0)])
def test_without_a_proof_a_day_is_hidden_of_one_broker_alone(host: str, hidden_ms: int) -> None:
    """Life 3 names life 1; between them is life 2, which comes from life 3 as its clock was set
    back, or is another host's."""
    one, three = f"{1:08x}" * 2, f"{3:08x}" * 2
    lines = [
        *a_life(1, 0, "x:1", "m"),
        *a_life(2, 10, host, "n", prev_boot=three if host == "x:1" else None),
        *a_life(3, 20, "x:1", "n", prev_boot=one, prev_seq=2),
    ]
    assert first_of(lines, 3).hidden_down_ms == hidden_ms


@pytest.mark.parametrize("forks", [True, False])
def test_two_that_come_from_the_same_life_are_two_brokers(forks: bool) -> None:
    """What the second shows twice the first told of: of two brokers it is no hidden time."""
    one, two = f"{1:08x}" * 2, f"{2:08x}" * 2
    lines = [
        *a_life(1, 0, "x:1", "m"),
        *a_life(2, 10, "x:1", "m", prev_boot=one, prev_seq=2),
        *a_life(3, 20, "x:1", "m", prev_boot=one if forks else two, prev_seq=2),
    ]
    lines[-1]["ts"] = lines[3]["ts"] - 1_000
    last = samples_of(lines).samples[-1]
    assert bool(last.hidden_ms) != forks
