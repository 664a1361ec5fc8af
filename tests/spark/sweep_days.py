"""Generated days, one seed after the other: `python -m tests.spark.sweep_days FIRST COUNT`.

Each day's report is made by the report's core and by the plain program, in one process without
Spark; said is where they differ, and what neither may say of the day's events. Ends with 1 then.
What a seed found belongs into a directed test (tests/spark/test_lost_lives.py). By hand, before
rules of the report are changed and after.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.spark.both_ways import core_tables_of, differences, plain_tables
from tests.spark.day_events import DATE
from tests.spark.day_generator import random_day
from tests.spark.plain_samples import Window
from tests.spark.test_generated_days import question_of, wrong


def look_at(seed: int, verdicts: Counter[str]) -> list[str]:
    """What is wrong with the reports of a seed's day; counts its replicas' verdicts."""
    day = random_day(seed)
    with tempfile.TemporaryDirectory() as root:
        day.write(Path(root))
        window = Window(DATE, day.story.w0, day.story.w1)
        question = question_of([day], Path(root), window)
        plain, core = plain_tables(question), core_tables_of(question)
    verdicts.update(row["verdict"] for row in core["replica_days"])
    return [*differences(core, plain), *wrong(day, core), *wrong(day, plain)]


def main(first: int, count: int) -> int:
    """The exit code."""
    verdicts: Counter[str] = Counter()
    bad = 0
    for seed in range(first, first + count):
        found = look_at(seed, verdicts)
        bad += bool(found)
        for line in found:
            print(f"seed {seed}: {line}", flush=True)
    print(f"{count - bad} of {count} days without a fault; replicas: {dict(verdicts)}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
