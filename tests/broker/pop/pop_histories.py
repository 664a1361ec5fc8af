"""Histories run one by one, and a failing one cut down to the steps that it needs."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

Step = tuple[str, int, int, int]


class Runs(Protocol):
    """A world in which one history happens."""

    def run(self, steps: list[Step]) -> None:
        """Raises AssertionError for a promise that is broken."""

    def close(self) -> None:
        """Give everything back."""


MakeWorld = Callable[[Path, int], Runs]
"""Of a directory, with a seed."""


def make_history(seed: int, weights: Mapping[str, int], length: int = 60) -> list[Step]:
    """Always the same for a seed. weights: of the steps' names."""
    draw = random.Random(seed)
    names = draw.choices(list(weights), list(weights.values()), k=length)
    number = 1 << 16
    return [
        (name, draw.randrange(number), draw.randrange(number), draw.randrange(number))
        for name in names
    ]


def fault_of(make: MakeWorld, root: Path, steps: list[Step], seed: int) -> str:
    """Which promise this history breaks; "": none."""
    for path in root.iterdir():
        path.unlink()
    world = make(root, seed)
    try:
        world.run(steps)
    except AssertionError as error:
        return str(error) or repr(error)
    finally:
        world.close()
    return ""


def kind_of(fault: str) -> str:
    """A fault without the names in it."""
    return re.sub(r"b'\d+'|\d+|\b[GH]\b", "", fault)


def cut_down(make: MakeWorld, root: Path, steps: list[Step], seed: int) -> list[Step]:
    """A failing history without the steps that it does not need."""
    kind = kind_of(fault_of(make, root, steps, seed))
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if kind_of(fault_of(make, root, fewer, seed)) == kind:
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


def check(make: MakeWorld, root: Path, steps: list[Step], seed: int) -> None:
    """Raises AssertionError with the shortest history found."""
    if fault_of(make, root, steps, seed):
        steps = cut_down(make, root, steps, seed)
        fault = fault_of(make, root, steps, seed)
        raise AssertionError(f"seed {seed}: {fault}; {steps}")
