"""Which of many comes from which, where each names at most one that was before it.

Pure. Each is numbered once, so that a question costs the same however long the row of ancestors is:
who writes a dump decides how many lives are in it. Must not know what the names stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


class Descent:
    """`before`: name -> the one right before it. In a circle each comes from all others."""

    def __init__(self, before: Mapping[str, str]) -> None:
        self._circle_of: Final = _circles(before)
        self._spans: Final[dict[str, tuple[int, int]]] = {}
        """[first, last) of the numbers of a name and of all that come from it."""
        self._root_of: Final[dict[str, str]] = {}
        after: dict[str, list[str]] = {}
        for name, past in before.items():
            after.setdefault(past, [])
            if name not in self._circle_of:
                after[past].append(name)
        for root in {**after, **before}:
            if root in self._circle_of or root not in before:
                self._number(root, after)

    def comes_from(self, young: str, old: str) -> bool:
        """Whether `old` is one of those before `young`, however far back."""
        if young == old or young not in self._spans or old not in self._spans:
            return False
        first, last = self._spans[old]
        if first <= self._spans[young][0] < last:
            return True
        circle = self._circle_of.get(old)
        return circle is not None and circle == self._circle_of.get(self._root_of[young])

    def _number(self, root: str, after: Mapping[str, list[str]]) -> None:
        """Depth first, without recursion."""
        number = len(self._spans)
        firsts: list[tuple[str, int]] = []
        waiting: list[str | None] = [root]
        while waiting:
            name = waiting.pop()
            if name is None:
                done, first = firsts.pop()
                self._spans[done] = first, number
                continue
            firsts.append((name, number))
            self._root_of[name] = root
            number += 1
            waiting.append(None)
            waiting += after.get(name, ())


def _circles(before: Mapping[str, str]) -> dict[str, int]:
    """Of each name in a circle, which one: a number."""
    found: dict[str, int] = {}
    seen_from: dict[str, int] = {}
    for number, start in enumerate(before):
        name: str | None = start
        while name is not None and name not in seen_from:
            seen_from[name] = number
            name = before.get(name)
        if name is None or seen_from[name] != number or name in found:
            continue
        while name not in found:
            found[name] = number
            name = before[name]
    return found
