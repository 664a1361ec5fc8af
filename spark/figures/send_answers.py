"""How the answers to all sends of a group's day came out: from lines of version 2.

Runs in the executors, over a group's samples. Unlike the results of sends that waited (`sync` of
each line), these count every send, and those that were refused. Must not know objectives or pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark.figures.sample_stream import Sample
from spark.vocabulary import SEND_ANSWERS


def send_columns(inside: Sequence[Sample], rises: Any) -> dict[str, int | None]:
    """`sends_<answer>` of the window's samples; None where one of them is of version 1, which does
    not tell. `rises(sample, now, before)`: what a counter counted."""
    sums: dict[str, int | None] = {f"sends_{name}": None for name in SEND_ANSWERS}
    if not inside or any(sample.line.sends is None for sample in inside):
        return sums
    for name in SEND_ANSWERS:
        total = 0
        for sample in inside:
            before = sample.boot_predecessor
            past = before.line.sends if before is not None else None
            now = getattr(sample.line.sends, name)
            total += rises(sample, now, None if past is None else getattr(past, name))
        sums[f"sends_{name}"] = total
    return sums
