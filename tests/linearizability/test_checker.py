"""The checker of histories: it takes a history that an append-only log explains, and notices each
seeded corruption of it.

The histories are made here, by a generator that knows nothing of a broker: overlapping appends with
and without answers, readers behind them, a final read.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.linearizability.checker import checker, find_go, judge

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_go() is None, reason="no Go"),
]
Line = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _built() -> Iterator[None]:
    yield
    shutil.rmtree(checker().parent)
    checker.cache_clear()


def made(seed: int, count: int = 400) -> list[Line]:
    """A history of two queues: each append takes its place at some moment between its call and its
    return; one in eight is never answered, and half of those never happen."""
    rng, lines = random.Random(seed), []
    for queue in (0, 1):
        events: list[tuple[float, str]] = []
        times = {}
        for number in range(count):
            call = number * 10 + rng.random() * 40
            moment = call + rng.random() * 60
            times[f"{queue}:{number}"] = call, moment, moment + rng.random() * 60
            events.append((moment, f"{queue}:{number}"))
        silent = [value for value in times if rng.random() < 0.125]
        lost = [value for value in silent if rng.random() < 0.5]
        log = [value for _moment, value in sorted(events) if value not in lost]
        for value, (call, _moment, answered) in times.items():
            known = value not in silent
            line = {"op": "append", "client": int(value[-1]), "queue": queue, "call": int(call)}
            line |= {"value": value, "return": int(answered) + 1 if known else None}
            lines.append({**line, "offset": log.index(value) if known else None})
        at = 0
        while at < len(log):
            values = log[at : at + rng.randrange(1, 20)]
            seen = int(max(times[value][1] for value in values)) + 1
            line = {"op": "read", "client": 100, "queue": queue, "call": seen, "return": seen + 3}
            lines.append({**line, "offset": at, "values": values})
            at += len(values)
        end = {"op": "final", "client": 0, "queue": queue, "call": 10**6, "return": 10**6 + 1}
        lines.append({**end, "offset": 0, "values": log})
    return lines


def verdict(tmp_path: Path, lines: list[Line]) -> tuple[int, str]:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ended = judge([path])
    return ended.returncode, ended.stdout


def answered(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["op"] == "append" and line["return"] is not None]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_a_log_explains_is_linearizable(tmp_path: Path, seed: int) -> None:
    code, text = verdict(tmp_path, made(seed))
    assert code == 0, text
    assert "linearizable, 2 queues" in text


def lose_an_acknowledged_message(lines: list[Line]) -> None:
    gone = answered(lines)[200]["value"]
    for line in lines:
        if line["op"] != "append":
            line["values"] = [value for value in line["values"] if value != gone]


def lose_the_last_acknowledged_message(lines: list[Line]) -> None:
    """Nobody read it, and nothing came behind it: only its own answer speaks for it."""
    lines[:] = [line for line in lines if line["queue"] == 0 and line["op"] != "read"]
    final = lines[-1]
    while final["values"][-1] not in {line["value"] for line in answered(lines)}:
        final["values"].pop()
    final["values"].pop()


def give_an_offset_twice(lines: list[Line]) -> None:
    first, second = answered(lines)[100:102]
    second["offset"] = first["offset"]


def read_what_is_there_no_more(lines: list[Line]) -> None:
    """A consumer saw another record at an offset than the log has there in the end."""
    read = next(line for line in lines if line["op"] == "read" and len(line["values"]) > 1)
    read["values"][0], read["values"][1] = read["values"][1], read["values"][0]


def read_before_it_was_sent(lines: list[Line]) -> None:
    read = [line for line in lines if line["op"] == "read"][10]
    read["call"], read["return"] = 0, 1


def answer_out_of_order(lines: list[Line]) -> None:
    """The second of two appends is answered with the earlier place, though it was sent after the
    first had its answer."""
    (queue,) = {line["queue"] for line in lines if line["queue"] == 0}
    of_queue = [line for line in answered(lines) if line["queue"] == queue]
    early, late = of_queue[10], of_queue[60]
    early["offset"], late["offset"] = late["offset"], early["offset"]
    for line in lines:
        if line["queue"] == queue and line["op"] != "append":
            swap = {early["value"]: late["value"], late["value"]: early["value"]}
            line["values"] = [swap.get(value, value) for value in line["values"]]
    lines[:] = [line for line in lines if line["op"] != "read"]


def store_what_nobody_sent(lines: list[Line]) -> None:
    lines[-1]["values"].append("9:9")


@pytest.mark.parametrize(
    "corrupt",
    [
        lose_an_acknowledged_message,
        lose_the_last_acknowledged_message,
        give_an_offset_twice,
        read_what_is_there_no_more,
        read_before_it_was_sent,
        answer_out_of_order,
        store_what_nobody_sent,
    ],
)
def test_a_corruption_is_noticed(tmp_path: Path, corrupt: Any) -> None:
    lines = made(7)
    corrupt(lines)
    code, text = verdict(tmp_path, lines)
    assert code == 1, text
    assert "is not linearizable: no place for" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines.pop(), "queue 1: 0 final reads, not one"),
        (lambda lines: lines.append(dict(lines[0])), "is appended twice: values are unique"),
        (lambda lines: lines[0].update(op="pop"), 'unknown operation "pop"'),
        (lambda lines: lines[0].update(offset=None), "an answer has a return and an offset"),
        (lambda lines: lines.clear(), "no operations"),
    ],
)
def test_what_is_no_history(tmp_path: Path, change: Any, words: str) -> None:
    lines = sorted(made(1, 20), key=lambda line: (line["op"] == "final", line["return"] is None))
    change(lines)
    code, text = verdict(tmp_path, lines)
    assert (code, words in text) == (2, True), text
