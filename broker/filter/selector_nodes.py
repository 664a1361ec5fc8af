"""The rules of the selector language: nodes that selector_parser puts together, each a closure.

Pure, any thread; knows neither grammar nor messages. A node is made once and called for each
message with the lookup of its properties; it gives a value, None for NULL and "unknown", or raises
NotComparable. Logic has three values. Two absent operands are equal, an absent left one makes `=`
unknown, an absent right one makes it false: so it is in the original, whose expression package
(made from ActiveMQ's) this follows, its order of evaluation included.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker.filter.selector_values import (
    Number,
    NumberKind,
    Value,
    compare,
    compare_in_order,
    compare_numbers,
)

MAX_DEPTH: Final = 100
"""Most levels of nesting. The original has no limit but its threads' stacks."""

Lookup = Callable[[str], str | None]
"""A property's name to its text, None when the message lacks it."""
Evaluate = Callable[[Lookup], Value]
OrderTest = Callable[[float, float], bool]

ORDER_TESTS: Final[dict[str, OrderTest]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class RuleError(Exception):
    """The expression can be parsed but breaks a rule of the language; the text says which."""


@dataclass(frozen=True, slots=True)
class Node:
    """Anything with a value. `depth`: levels of nesting below, itself included."""

    evaluate: Evaluate
    depth: int


@dataclass(frozen=True, slots=True)
class Property(Node):
    """A message's property."""

    name: str


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A literal in quotes."""

    text: str


@dataclass(frozen=True, slots=True)
class Numeric(Node):
    """A number. One behind a minus counts as computed, not as a literal."""

    number: Number
    is_literal: bool


@dataclass(frozen=True, slots=True)
class Condition(Node):
    """True, false or unknown."""


@dataclass(frozen=True, slots=True)
class BooleanLiteral(Condition):
    """TRUE, FALSE or NULL."""

    value: bool | None


# -- leaves ------------------------------------------------------------------------------------


def property_node(name: str) -> Property:
    """A property by its name; names are case-sensitive."""
    return Property(lambda get: get(name), 1, name)


def text_node(text: str) -> Text:
    """A text."""
    return Text(lambda _get: text, 1, text)


def number_node(number: Number) -> Numeric:
    """A literal number."""
    return Numeric(lambda _get: number, 1, number, is_literal=True)


def boolean_node(value: bool | None) -> BooleanLiteral:
    """TRUE, FALSE, or NULL for None."""
    return BooleanLiteral(lambda _get: value, 1, value)


# -- logic -------------------------------------------------------------------------------------


def as_condition(node: Node) -> Condition:
    """`node` where a condition must stand.

    A bare property is false when it is there, whatever its text, else unknown.
    """
    if isinstance(node, Condition):
        return node
    if isinstance(node, Property):
        name = node.name
        return Condition(lambda get: None if get(name) is None else False, node.depth)
    raise RuleError("a text or number is no condition, compare it with something")


def all_of(nodes: Sequence[Node]) -> Condition:
    """AND of two or more: false as soon as one is, else unknown if one is."""
    return _series(nodes, decides=False)


def any_of(nodes: Sequence[Node]) -> Condition:
    """OR of two or more: true as soon as one is, else unknown if one is."""
    return _series(nodes, decides=True)


def _series(nodes: Sequence[Node], *, decides: bool) -> Condition:
    parts = tuple(as_condition(node).evaluate for node in nodes)

    def evaluate(get: Lookup) -> Value:
        unknown = False
        for part in parts:
            value = part(get)
            if value is decides:
                return decides
            if value is None:
                unknown = True
        return None if unknown else not decides

    return Condition(evaluate, _depth(*nodes))


def negation(node: Node) -> Condition:
    """NOT; unknown stays unknown."""
    inner = as_condition(node).evaluate

    def evaluate(get: Lookup) -> Value:
        value = inner(get)
        return None if value is None else not value

    return Condition(evaluate, _depth(node))


# -- arithmetic: signs only --------------------------------------------------------------------


def negated(node: Node) -> Node:
    """A minus before a number; before anything else it gives NULL, as in the original."""
    if isinstance(node, Numeric):
        number = replace(node.number, value=-node.number.value)
        return Numeric(lambda _get: number, _depth(node), number, is_literal=False)
    inner = node.evaluate

    def evaluate(get: Lookup) -> Value:
        inner(get)  # What cannot be compared inside counts all the same.
        return None

    return Node(evaluate, _depth(node))


# -- comparisons -------------------------------------------------------------------------------


def equal(left: Node, right: Node) -> Condition:
    """`=`. Raises RuleError for NULL, and for TRUE or FALSE before a literal of another kind."""
    for node in (left, right):
        if isinstance(node, BooleanLiteral) and node.value is None:
            raise RuleError("NULL cannot be compared, use IS NULL or IS NOT NULL")
    if isinstance(left, BooleanLiteral) and _is_text_or_number(right):
        raise RuleError("TRUE and FALSE cannot be compared with a text or number behind them")
    return Condition(_equality(left, right), _depth(left, right))


def _is_text_or_number(node: Node) -> bool:
    """Whether it is a literal of these, as it stands."""
    return isinstance(node, Text) or (isinstance(node, Numeric) and node.is_literal)


def _equality(left: Node, right: Node) -> Evaluate:
    if isinstance(left, Property) and isinstance(right, Text):
        return _equals_text(left.name, right.text)
    if isinstance(left, Property) and isinstance(right, Numeric):
        return _compares_number(left.name, right.number, operator.eq)
    first, second = left.evaluate, right.evaluate

    def evaluate(get: Lookup) -> Value:
        one, other = first(get), second(get)
        if one is None:
            return True if other is None else None
        return False if other is None else compare(one, other) == 0

    return evaluate


def _equals_text(name: str, text: str) -> Evaluate:
    def evaluate(get: Lookup) -> Value:
        found = get(name)
        return None if found is None else found == text

    return evaluate


def _compares_number(name: str, number: Number, test: OrderTest) -> Evaluate:
    read, value = number.read, number.value

    def evaluate_double(get: Lookup) -> Value:
        text = get(name)
        return None if text is None else test(compare_numbers(read(text), value), 0)

    def evaluate_integer(get: Lookup) -> Value:
        text = get(name)
        return None if text is None else test(read(text), value)

    return evaluate_double if number.kind is NumberKind.DOUBLE else evaluate_integer


def in_order(left: Node, sign: str, right: Node) -> Condition:
    """`<`, `<=`, `>` or `>=`: unknown when one side is absent. Raises RuleError for a text, a
    boolean, NULL or a condition on either side: only numbers and properties have an order."""
    for node in (left, right):
        if isinstance(node, Text | Condition):
            raise RuleError(
                f"{sign} compares numbers and properties only; texts, TRUE, FALSE and conditions "
                "can be compared with = and <>"
            )
    return Condition(_order(left, right, ORDER_TESTS[sign]), _depth(left, right))


def _order(left: Node, right: Node, test: OrderTest) -> Evaluate:
    if isinstance(left, Property) and isinstance(right, Numeric):
        return _compares_number(left.name, right.number, test)
    first, second = left.evaluate, right.evaluate

    def evaluate(get: Lookup) -> Value:
        one = first(get)
        if one is None:
            return None
        other = second(get)
        if other is None:
            return None
        # A condition never gets here, and what else is no text or number is None.
        assert not isinstance(one, bool)
        assert not isinstance(other, bool)
        return test(compare_in_order(one, other), 0)

    return evaluate


def between(value: Node, low: Node, high: Node) -> Condition:
    """BETWEEN, both ends included. Raises RuleError when two literals are the wrong way round."""
    found = all_of((in_order(value, ">=", low), in_order(value, "<=", high)))
    if (
        isinstance(low, Numeric)
        and isinstance(high, Numeric)
        and low.is_literal
        and high.is_literal
        and compare_numbers(low.number.value, high.number.value) > 0
    ):
        raise RuleError(
            f"BETWEEN needs the smaller number first, {low.number.value} is greater than "
            f"{high.number.value}"
        )
    return found


def not_between(value: Node, low: Node, high: Node) -> Condition:
    """NOT BETWEEN: below the one or above the other; the ends are not compared."""
    return any_of((in_order(value, "<", low), in_order(value, ">", high)))


def is_null(node: Node) -> Condition:
    """IS NULL: never unknown."""
    inner = node.evaluate
    return Condition(lambda get: inner(get) is None, _depth(node))


def contained(node: Node, texts: Sequence[str], *, negative: bool) -> Condition:
    """IN and NOT IN: unknown when the property is absent. Raises RuleError without a property."""
    if not isinstance(node, Property):
        raise RuleError("IN needs a property before it")
    name, wanted = node.name, frozenset(texts)

    def evaluate(get: Lookup) -> Value:
        text = get(name)
        return None if text is None else (text in wanted) is not negative

    return Condition(evaluate, _depth(node))


def _depth(*nodes: Node) -> int:
    """One level above `nodes`. Raises RuleError when that is too many."""
    depth = 1 + max(node.depth for node in nodes)
    if depth > MAX_DEPTH:
        raise RuleError(f"conditions are nested deeper than {MAX_DEPTH} levels, write it flatter")
    return depth
