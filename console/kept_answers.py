"""The answers that the lanes keep, within bounds of number and bytes, of which each address has a
share: no broker's large answers push out those of others.

No thread of its own: the lanes' lock guards it. It asks nobody and knows no time.

Tested by tests/console/test_lanes.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

KEPT_ANSWERS: Final = 2_000
KEPT_BYTES: Final = 32 << 20
"""Of all kept answers, as they were received; in memory they are up to twenty times as large."""
SHARE_BYTES: Final = 8 << 20
"""Of those of one address: beyond it its oldest go, not those of others."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The newest answer there is, and why there is no newer one."""

    value: T | None = None
    at_ms: int = 0
    """When it was asked (monotonic); 0: never answered."""
    error: str | None = None
    """Why the last attempt failed, or why there is no answer yet."""
    tried_ms: int = 0
    """When the last attempt began; a failure is asked again two seconds later at the earliest."""
    size: int = 0
    """Bytes in which the value was received."""
    is_refusal: bool = False
    """Whether the error is the peer's own answer."""

    def age_ms(self, now_ms: int) -> int | None:
        """How old the value is; None when there is none."""
        return None if not self.at_ms else max(now_ms - self.at_ms, 0)


CacheKey = tuple[str, Hashable, Hashable]
"""Address, account, and the question's key."""


class KeptAnswers:
    """The answers, the least recently used first; bounded by number and by bytes."""

    def __init__(self) -> None:
        self._answers: OrderedDict[CacheKey, Answer[Any]] = OrderedDict()
        self._bytes = 0
        self._bytes_of: dict[str, int] = {}

    def get(self, key: CacheKey) -> Answer[Any] | None:
        """The newest answer."""
        return self._answers.get(key)

    def use(self, key: CacheKey) -> None:
        """It is of use: others go before it."""
        self._answers.move_to_end(key)

    def put(self, key: CacheKey, answer: Answer[Any]) -> None:
        """Remember it. One that is larger than the share alone stays while it is the newest."""
        self._drop(key)
        self._answers[key] = answer
        self._count(key[0], answer.size)
        if self._bytes_of.get(key[0], 0) > SHARE_BYTES:
            for other in [one for one in self._answers if one[0] == key[0] and one != key]:
                self._drop(other)
                if self._bytes_of.get(key[0], 0) <= SHARE_BYTES:
                    break
        while len(self._answers) > KEPT_ANSWERS or self._bytes > KEPT_BYTES:
            self._drop(next(iter(self._answers)))

    def known(self, kind: str, account: Hashable) -> list[tuple[Hashable, Any]]:
        """What was answered to an account's questions whose keys begin so."""
        return [
            (key[2], answer.value)
            for key, answer in self._answers.items()
            if key[1] == account and isinstance(key[2], tuple) and key[2][0] == kind
        ]

    def forget(self, question: Hashable) -> None:
        """Every peer's answer to a question of this key."""
        for key in [key for key in self._answers if key[2] == question]:
            self._drop(key)

    def _drop(self, key: CacheKey) -> None:
        known = self._answers.pop(key, None)
        if known is not None:
            self._count(key[0], -known.size)

    def _count(self, address: str, size: int) -> None:
        self._bytes += size
        held = self._bytes_of.pop(address, 0) + size
        if held:
            self._bytes_of[address] = held
