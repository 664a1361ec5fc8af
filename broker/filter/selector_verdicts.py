"""SelectorVerdicts: what an expression says of records whose properties lie in a row of the log.

Runs on the loop thread, for pulls that scan many messages. An expression sees nothing of a message
but the properties that it names, so only these are looked for, in the record's bytes, and what it
says of their values is remembered: a message whose values were seen before costs a look in a table.
Says the same as ExpressionMessageFilter of each record; it must be told where properties begin and
end. It knows no record and no unit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from broker.filter.selector import Selector
from store.message_properties import NAME_END, PAIR_END, find_property

_EXPRESSIONS: Final = 16
"""Whose verdicts are kept."""
_VERDICTS: Final = 1_024
"""Of one expression."""
_KEPT_NAMES: Final = 8
_KEPT_SIZE: Final = 256
"""Bytes of values: what is longer, or of more properties, is not kept."""
_MESSAGES: Final = 64
"""Looked at before the time is looked at, if the expression names one property."""

Values = bytes | tuple[bytes | None, ...] | None
"""Of the property that an expression names, or of all of them; None: the message lacks it."""


class VerdictTable:
    """The verdicts of the expressions that were asked last. Owned by: the loop thread."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._known: OrderedDict[Selector, SelectorVerdicts] = OrderedDict()

    def of(self, selector: Selector) -> SelectorVerdicts:
        """Those of `selector`."""
        found = self._known.get(selector)
        if found is not None:
            self._known.move_to_end(selector)
            return found
        if len(self._known) >= _EXPRESSIONS:
            self._known.popitem(last=False)
        found = self._known[selector] = SelectorVerdicts(selector, self._monotonic_ms)
        return found


class SelectorVerdicts:
    """The verdicts of one expression. Owned by: the loop thread."""

    def __init__(self, selector: Selector, monotonic_ms: Callable[[], int]) -> None:
        self._selector = selector
        self._monotonic_ms = monotonic_ms
        names = [name.encode() for name in selector.names]
        self._marks = tuple((PAIR_END + name + NAME_END, name) for name in names)
        self._known: dict[Values, bool] = {}
        self.most: Final = max(_MESSAGES // max(len(names), 1), 1)
        """How many messages take no long time if nothing has to be evaluated."""

    def find_matches(
        self,
        view: memoryview,
        begins: Sequence[int],
        ends: Sequence[int],
        limit: int,
        stop_at_ms: int,
    ) -> tuple[list[int], int]:
        """Which of the properties view[begin:end] match, by their numbers, and how many were looked
        at: it ends behind the match number `limit`, and at the time `stop_at_ms` (monotonic; asked
        where an expression is evaluated, which may take long)."""
        find = self._find_by_one if len(self._marks) == 1 else self._find_by_all
        return find(view, begins, ends, limit, stop_at_ms)

    def _find_by_one(
        self,
        view: memoryview,
        begins: Sequence[int],
        ends: Sequence[int],
        limit: int,
        stop_at_ms: int,
    ) -> tuple[list[int], int]:
        """Of an expression that names one property: most do. Written out: 0.4 us a message."""
        known = self._known
        ((mark, name),) = self._marks
        found: list[int] = []
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            raw = view[begin:end].tobytes()
            _, is_there, rest = raw.rpartition(mark)
            value = rest.partition(PAIR_END)[0] if is_there else b""
            one = value or find_property(raw, name)
            verdict = known.get(one)
            if verdict is None:
                verdict = self._judge(one, (one,))
                if self._monotonic_ms() >= stop_at_ms:
                    return [*found, number] if verdict else found, number + 1
            if verdict:
                found.append(number)
                if len(found) >= limit:
                    return found, number + 1
        return found, len(begins)

    def _find_by_all(
        self,
        view: memoryview,
        begins: Sequence[int],
        ends: Sequence[int],
        limit: int,
        stop_at_ms: int,
    ) -> tuple[list[int], int]:
        known, marks = self._known, self._marks
        found: list[int] = []
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            raw = view[begin:end].tobytes()
            values = tuple([_find_value(raw, mark, name) for mark, name in marks])
            verdict = known.get(values)
            if verdict is None:
                verdict = self._judge(values, values)
                if self._monotonic_ms() >= stop_at_ms:
                    return [*found, number] if verdict else found, number + 1
            if verdict:
                found.append(number)
                if len(found) >= limit:
                    return found, number + 1
        return found, len(begins)

    def _judge(self, key: Values, values: tuple[bytes | None, ...]) -> bool:
        properties = {
            name: value.decode("utf-8", "replace")
            for name, value in zip(self._selector.names, values, strict=True)
            if value is not None
        }
        verdict = self._selector.matches(properties)
        size = sum(len(value) for value in values if value is not None)
        if len(values) <= _KEPT_NAMES and size <= _KEPT_SIZE:
            if len(self._known) >= _VERDICTS:
                self._known.clear()
            self._known[key] = verdict
        return verdict


def _find_value(raw: bytes, mark: bytes, name: bytes) -> bytes | None:
    """What find_property finds, in two thirds of the time where the property is not the first."""
    _, is_there, rest = raw.rpartition(mark)
    value = rest.partition(PAIR_END)[0] if is_there else b""
    return value or find_property(raw, name)
