"""A target of the fuzzer: something that takes bytes from outside, and how to make such bytes.

Values and protocols only; the table of all targets is tests/fuzz/table.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.fuzz.mutation import mutate_bytes


class World(Protocol):
    """What the bytes are given to; lives for many inputs."""

    def run(self, data: bytes) -> None:
        """Take one input. Whatever it raises is a finding: the room's own errors are caught
        within."""

    def check(self) -> None:
        """Neighbours are unaffected: a good request is served. Raises otherwise."""

    def close(self) -> None:
        """Give everything back."""


Mutate = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
"""(random, data, tokens) -> another input."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One row of the table.

    seeds: inputs to begin with. tokens: words that mean something to it. rooms: what is traced for
    coverage. lives: inputs that one world takes; then there is a new one, in an empty directory.
    """

    name: str
    what: str
    world: Callable[[Path], World]
    seeds: Callable[[], Sequence[bytes]]
    rooms: tuple[str, ...]
    mutate: Mutate = mutate_bytes
    tokens: Callable[[], Sequence[bytes]] = lambda: ()
    largest: int = 4096
    lives: int = 2_000


class Stateless:
    """A world of one function; `refusals` are its own errors."""

    def __init__(
        self, function: Callable[[bytes], object], refusals: tuple[type[Exception], ...] = ()
    ) -> None:
        self._function = function
        self._refusals = refusals

    def run(self, data: bytes) -> None:
        """Call the function."""
        try:
            self._function(data)
        except self._refusals:
            return

    def check(self) -> None:
        """It keeps nothing."""

    def close(self) -> None:
        """It holds nothing."""
