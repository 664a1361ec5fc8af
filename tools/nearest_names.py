"""Which names are most like a text: for a sentence that says what somebody may have meant.

Pure; any thread. Comparing two texts takes time by the square of their lengths, so only the few
names that have most pairs of letters in common with the text are compared, and no long ones: the
time is linear in the number of names.

Tested by tests/tools/test_nearest_names.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

MAX_COMPARED: Final = 127
"""No topic has a longer name."""
COMPARED: Final = 50
MOST_NAMES: Final = 20_000


def nearest_names(text: str, names: Iterable[str], count: int) -> list[str]:
    """The most alike, the best first; none if none is alike."""
    if len(text) > MAX_COMPARED:
        return []
    pairs = _pairs(text)
    short = (name for name in islice(names, MOST_NAMES) if len(name) <= MAX_COMPARED)
    close = heapq.nlargest(COMPARED, short, key=lambda name: len(pairs & _pairs(name)))
    return get_close_matches(text, close, n=count, cutoff=0.6)


def _pairs(text: str) -> set[str]:
    text = text.casefold()
    return {text[at : at + 2] for at in range(len(text) - 1)}
