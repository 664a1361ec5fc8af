"""The semantics of the selector language: the nodes that selector_parser combines, each a closure.

Pure, any thread; knows neither grammar nor messages. A node is built once and called for each
message with a function that looks up its properties; it returns a value, None for NULL and
"unknown", or raises NotComparable. Logic is three-valued. Two missing operands are equal, a missing
left operand makes `=` unknown, a missing right operand makes it false. This, and the order of
evaluation, follows RocketMQ's expression package (derived from ActiveMQ's).

Tested by tests/broker/filter/test_selector_parser.py.
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
"""Maximum nesting depth. In RocketMQ only the thread's stack limits it."""

Lookup = Callable[[str], str | None]
"""Property name to text; None if the message lacks the property."""
Evaluate = Callable[[Lookup], Value]
OrderTest = Callable[[float, float], bool]

ORDER_TESTS: Final[dict[str, OrderTest]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class RuleError(Exception):
    """The expression parses but violates a rule of the language; the text says which."""


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
    """A number. A negated one counts as computed, not as a literal."""

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
    """`node` as a condition.

    A bare property is false if present, whatever its text, else unknown.
    """
    if isinstance(node, Condition):
        return node
    if isinstance(node, Property):
        name = node.name
        return Condition(lambda get: None if get(name) is None else False, node.depth)
    raise RuleError("a string or number is not a condition; compare it with something")


def all_of(nodes: Sequence[Node]) -> Condition:
    """AND of two or more: false if any is false, else unknown if any is unknown."""
    return _series(nodes, decides=False)


def any_of(nodes: Sequence[Node]) -> Condition:
    """OR of two or more: true if any is true, else unknown if any is unknown."""
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
    """Unary minus; for anything but a number it yields NULL, as in RocketMQ."""
    if isinstance(node, Numeric):
        number = replace(node.number, value=-node.number.value)
        return Numeric(lambda _get: number, _depth(node), number, is_literal=False)
    inner = node.evaluate

    def evaluate(get: Lookup) -> Value:
        inner(get)  # Evaluated because it may raise NotComparable.
        return None

    return Node(evaluate, _depth(node))


# -- comparisons -------------------------------------------------------------------------------


def equal(left: Node, right: Node) -> Condition:
    """`=`. Raises RuleError for NULL, and for TRUE or FALSE before a literal of another kind."""
    for node in (left, right):
        if isinstance(node, BooleanLiteral) and node.value is None:
            raise RuleError("NULL cannot be compared, use IS NULL or IS NOT NULL")
    if isinstance(left, BooleanLiteral) and _is_text_or_number(right):
        raise RuleError("TRUE and FALSE cannot be compared with a string or number on their right")
    return Condition(_equality(left, right), _depth(left, right))


def _is_text_or_number(node: Node) -> bool:
    """Whether the node is a string or number literal."""
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
    """`<`, `<=`, `>` or `>=`: unknown if one side is missing. Raises RuleError for a text, a
    boolean, NULL or a condition on either side: only numbers and properties have an order."""
    for node in (left, right):
        if isinstance(node, Text | Condition):
            raise RuleError(
                f"{sign} compares numbers and properties only; compare strings, TRUE, FALSE and "
                "conditions with = and <>"
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
        # Never a condition; anything other than a string or number is None.
        assert not isinstance(one, bool)
        assert not isinstance(other, bool)
        return test(compare_in_order(one, other), 0)

    return evaluate


def between(value: Node, low: Node, high: Node) -> Condition:
    """BETWEEN, both ends included. Raises RuleError if two literals are in the wrong order."""
    found = all_of((in_order(value, ">=", low), in_order(value, "<=", high)))
    if (
        isinstance(low, Numeric)
        and isinstance(high, Numeric)
        and low.is_literal
        and high.is_literal
        and compare_numbers(low.number.value, high.number.value) > 0
    ):
        raise RuleError(
            f"BETWEEN needs the smaller number first: {low.number.value} is greater than "
            f"{high.number.value}"
        )
    return found


def not_between(value: Node, low: Node, high: Node) -> Condition:
    """NOT BETWEEN: below the lower or above the upper bound."""
    return any_of((in_order(value, "<", low), in_order(value, ">", high)))


def is_null(node: Node) -> Condition:
    """IS NULL: never unknown."""
    inner = node.evaluate
    return Condition(lambda get: inner(get) is None, _depth(node))


def contained(node: Node, texts: Sequence[str], *, negative: bool) -> Condition:
    """IN and NOT IN: unknown if the property is missing. Raises RuleError without a property."""
    if not isinstance(node, Property):
        raise RuleError("IN needs a property on its left")
    name, wanted = node.name, frozenset(texts)

    def evaluate(get: Lookup) -> Value:
        text = get(name)
        return None if text is None else (text in wanted) is not negative

    return Condition(evaluate, _depth(node))


def _depth(*nodes: Node) -> int:
    """One level above `nodes`. Raises RuleError if that is too deep."""
    depth = 1 + max(node.depth for node in nodes)
    if depth > MAX_DEPTH:
        raise RuleError(
            f"conditions are nested deeper than {MAX_DEPTH} levels; flatten the expression"
        )
    return depth
