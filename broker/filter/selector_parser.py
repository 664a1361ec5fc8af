"""SelectorParser: compiles a SQL92 expression into a Selector.

Any thread; knows the grammar but nothing of brokers. The language is that of 4.9.8: literals,
property names, AND OR NOT, = <> < <= > >=, BETWEEN, IN, IS NULL, signs, brackets, `--` and `/* */`
comments; no arithmetic, no LIKE. Text after a complete expression is ignored, but its first token
must be valid: `a > 5 LIKE 'x'` means `a > 5`, and Selector.ignored holds the rest for a warning.
Follows SelectorParser.jj of RocketMQ; the limits of length and depth are added here, where RocketMQ
would run out of stack or time.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from lark import Lark, Token, Transformer, UnexpectedToken, v_args
from lark.lexer import Lexer

from broker.filter import selector_nodes as rules
from broker.filter.selector import InvalidSelectorError, Selector
from broker.filter.selector_nodes import Condition, Node, RuleError
from broker.filter.selector_values import INT_MAX, LONG_MAX, Number, NumberKind

MAX_LENGTH: Final = 16_384
"""Maximum length of an expression in characters."""
_SHOWN: Final = 60
_LONG_DIGITS: Final = 19
_END: Final = "$END"
_KEYWORDS: Final = {
    "NOT": "_NOT",
    "AND": "_AND",
    "OR": "_OR",
    "BETWEEN": "_BETWEEN",
    "IN": "_IN",
    "IS": "_IS",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "NULL": "NULL",
}
"""Reserved words (case-insensitive) to the grammar's terminals."""
_GRAMMAR: Final = r"""
start: alternative
?alternative: conjunction
    | conjunction (_OR conjunction)+ -> any_of
?conjunction: equality
    | equality (_AND equality)+ -> all_of
?equality: comparison
    | equality _EQUAL comparison -> equal
    | equality _NOT_EQUAL comparison -> not_equal
    | equality _IS NULL -> is_null
    | equality _IS _NOT NULL -> is_not_null
?comparison: unary
    | comparison ORDER unary -> in_order
    | comparison _BETWEEN unary _AND unary -> between
    | comparison _NOT _BETWEEN unary _AND unary -> not_between
    | comparison _IN _OPEN STRING (_COMMA STRING)* _CLOSE -> contained
    | comparison _NOT _IN _OPEN STRING (_COMMA STRING)* _CLOSE -> not_contained
?unary: primary
    | _PLUS unary
    | _MINUS unary -> negated
    | _NOT unary -> negation
?primary: STRING -> text
    | DECIMAL -> integer
    | FLOAT -> double
    | TRUE -> true
    | FALSE -> false
    | NULL -> null
    | NAME -> property
    | _OPEN alternative _CLOSE

%declare STRING FLOAT DECIMAL NAME ORDER TRUE FALSE NULL _NOT _AND _OR _BETWEEN _IN _IS
%declare _NOT_EQUAL _EQUAL _PLUS _MINUS _OPEN _CLOSE _COMMA
"""
_LINE_COMMENT: Final = ("LINE_COMMENT", r"--[^\n\r]*[\n\r]")
_TERMINALS: Final = (
    ("BLANKS", r"[ \t\n\r\f]+"),
    ("STRING", r"'(?:''|[^'])*'"),
    ("BLOCK_COMMENT", r"/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/"),
    ("FLOAT", r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"),
    ("DECIMAL", r"0|[1-9][0-9]*[lL]?"),
    ("NAME", r"[A-Za-z_$][A-Za-z0-9_$]*"),
    ("_NOT_EQUAL", r"<>"),
    ("ORDER", r"<=|>=|<|>"),
    ("_EQUAL", r"="),
    ("_PLUS", r"\+"),
    ("_MINUS", r"-"),
    ("_OPEN", r"\("),
    ("_CLOSE", r"\)"),
    ("_COMMA", r","),
)
_SKIPPED: Final = frozenset({"BLANKS", "LINE_COMMENT", "BLOCK_COMMENT"})


def _any_of(terminals: Iterable[tuple[str, str]]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in terminals))


_LAST_LINE: Final = _any_of(_TERMINALS)
_OTHER_LINES: Final = _any_of((_LINE_COMMENT, *_TERMINALS))
"""`--` begins a comment only if a line end follows; otherwise it is two minus signs. Searching for
the line end at every `--` would take quadratic time, so the last line has a lexer of its own."""


def compile_selector(text: str) -> Selector:
    """Compile the expression `text`. Raises InvalidSelectorError."""
    if len(text) > MAX_LENGTH:
        raise InvalidSelectorError(
            f"the expression has {len(text)} characters; the limit is {MAX_LENGTH}"
        )
    parser = _parser().parse_interactive(text)
    read_to = 0
    ignored = ""
    names: dict[str, None] = {}
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):
            read_to = token.start_pos
            try:
                parser.feed_token(token)
            except UnexpectedToken as error:
                if _END not in parser.accepts():
                    place = _place(text, read_to)
                    raise InvalidSelectorError(
                        f"{token.value[:_SHOWN]!r} at {place} is not allowed there"
                    ) from error
                ignored = text[read_to:][:_SHOWN]
                break
            if token.type == "NAME":
                names[token.value] = None
        else:
            read_to = len(text)
        found = parser.feed_eof()
    except UnexpectedToken as error:
        raise InvalidSelectorError("the expression is incomplete") from error
    except RuleError as error:
        where = "at its end" if read_to == len(text) else f"before {_place(text, read_to)}"
        raise InvalidSelectorError(f"{where}: {error}") from error
    return Selector(found.evaluate, ignored, tuple(names))


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"


class _SelectorLexer(Lexer):
    """Yields tokens on demand, since the text after a complete expression may be anything."""

    def __init__(self, _conf: Any) -> None:
        """Lark requires this signature; the configuration is not used."""

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]
        last_line = max(text.rfind("\n"), text.rfind("\r")) + 1
        at = 0
        while at < len(text):
            found = (_OTHER_LINES if at < last_line else _LAST_LINE).match(text, at)
            if found is None:
                raise InvalidSelectorError(_unknown(text, at))
            kind, value = found.lastgroup, found[0]
            if kind == "NAME":
                kind = _KEYWORDS.get(value.upper(), kind)
            if kind is not None and kind not in _SKIPPED:
                yield Token(kind, value, at)
            at = found.end()


def _unknown(text: str, position: int) -> str:
    if text[position] == "'":
        return f"the string starting at {_place(text, position)} has no closing '"
    return f"{text[position]!r} at {_place(text, position)} is not allowed in an expression"


@functools.cache
def _parser() -> Any:
    """Built on first use, since that takes 20 ms."""
    return Lark(_GRAMMAR, parser="lalr", lexer=_SelectorLexer, transformer=_Builder())


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """Calls the functions of selector_nodes as the parser reduces."""

    def start(self, node: Node) -> Condition:
        return rules.as_condition(node)

    def any_of(self, *nodes: Node) -> Node:
        return rules.any_of(nodes)

    def all_of(self, *nodes: Node) -> Node:
        return rules.all_of(nodes)

    def equal(self, left: Node, right: Node) -> Node:
        return rules.equal(left, right)

    def not_equal(self, left: Node, right: Node) -> Node:
        return rules.negation(rules.equal(left, right))

    def is_null(self, node: Node, _null: Token) -> Node:
        return rules.is_null(node)

    def is_not_null(self, node: Node, _null: Token) -> Node:
        return rules.negation(rules.is_null(node))

    def in_order(self, left: Node, sign: Token, right: Node) -> Node:
        return rules.in_order(left, sign.value, right)

    def between(self, value: Node, low: Node, high: Node) -> Node:
        return rules.between(value, low, high)

    def not_between(self, value: Node, low: Node, high: Node) -> Node:
        return rules.not_between(value, low, high)

    def contained(self, node: Node, *texts: Token) -> Node:
        return rules.contained(node, [_unquoted(text) for text in texts], negative=False)

    def not_contained(self, node: Node, *texts: Token) -> Node:
        return rules.contained(node, [_unquoted(text) for text in texts], negative=True)

    def negated(self, node: Node) -> Node:
        return rules.negated(node)

    def negation(self, node: Node) -> Node:
        return rules.negation(node)

    def text(self, token: Token) -> Node:
        return rules.text_node(_unquoted(token))

    def integer(self, token: Token) -> Node:
        return rules.number_node(_integer(token))

    def double(self, token: Token) -> Node:
        return rules.number_node(_double(token))

    def true(self, _token: Token) -> Node:
        return rules.boolean_node(True)

    def false(self, _token: Token) -> Node:
        return rules.boolean_node(False)

    def null(self, _token: Token) -> Node:
        return rules.boolean_node(None)

    def property(self, token: Token) -> Node:
        return rules.property_node(token.value)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _integer(token: Token) -> Number:
    digits = token.rstrip("lL")
    if len(digits) > _LONG_DIGITS or int(digits) > LONG_MAX:
        raise RuleError(f"the number {token[:_SHOWN]} is greater than {LONG_MAX}")
    value = int(digits)
    return Number(NumberKind.INT if value <= INT_MAX else NumberKind.LONG, value)


def _double(token: Token) -> Number:
    value = float(token)
    if value == math.inf:
        raise RuleError(f"the number {token[:_SHOWN]} is greater than 1.7976931348623157E308")
    if value == 0.0:
        # RocketMQ's rule, which mistakes the smallest positive double for the lowest one.
        raise RuleError(f"the number {token[:_SHOWN]} is less than 4.9E-324; write 0 for zero")
    return Number(NumberKind.DOUBLE, value)
