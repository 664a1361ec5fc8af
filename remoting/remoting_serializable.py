"""JSON as written and read by Java's fastjson: bodies and config files. Sans I/O, any thread.

fastjson writes a map key that is not a string without quotes: a bare integer, or a whole object.
Standard JSON parsers reject that, so this module has its own small parser, bounded in depth and
linear in time; the writers produce the same bytes as Java. remoting/body defines what a body means.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from remoting.java_text import browser_string, java_double, java_string, to_java_escapes

MAX_DEPTH: Final = 128
"""Maximum nesting depth of objects and lists."""

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The standard format writes larger integers as strings, for readers that only have doubles."""


class JsonError(ValueError):
    """Text that even the lenient parser rejects; names the problem and the character.

    position: characters before the problem, if it has a place.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.position = position


class UndecodableError(JsonError):
    """Bytes that are not UTF-8."""


class IntKeyMap:
    """A map with integer keys, written bare: {0:5,1:6}. Wraps, does not copy."""

    __slots__ = ("items",)

    def __init__(self, items: Mapping[int, Any]) -> None:
        self.items = items


class ObjectKeyMap:
    """A map whose keys are objects (MessageQueue), written as {{...}:value}. A list of pairs (key
    as a plain dict in Java's field order, value), since a dict cannot be a key."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[dict[str, Any], Any]]) -> None:
        self.items = items


class JavaDouble:
    """A double to be formatted as in Java: 0.0, 1.0E7, null for NaN."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value


def _enc_hook(value: object) -> msgspec.Raw:
    """Encodes marker types inside a tree written by msgspec."""
    if isinstance(value, IntKeyMap):
        pairs = (b"%d:%b" % (key, _encoder.encode(item)) for key, item in value.items.items())
        return msgspec.Raw(b"{%b}" % b",".join(pairs))
    if isinstance(value, ObjectKeyMap):
        pairs = (
            b"%b:%b" % (_encoder.encode(key), _encoder.encode(item)) for key, item in value.items
        )
        return msgspec.Raw(b"{%b}" % b",".join(pairs))
    if isinstance(value, JavaDouble):
        return msgspec.Raw(java_double(value.value).encode())
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _exact_fraction(text: str) -> Decimal:
    """A number with a fraction or an exponent, keeping its digits: 1.50 stays 1.50."""
    try:
        return Decimal(text)
    except ArithmeticError as error:
        raise JsonError(f"number {text!r:.40} is out of range") from error


_encoder: Final = msgspec.json.Encoder(enc_hook=_enc_hook, decimal_format="number")
_sorting_encoder: Final = msgspec.json.Encoder(order="sorted", decimal_format="number")
_decoder: Final = msgspec.json.Decoder()
_exact_decoder: Final = msgspec.json.Decoder(float_hook=_exact_fraction)


def dumps_java(value: Any) -> bytes:
    """Compact text as fastjson's toJSONString: dicts in their own order, marker maps bare.

    The caller omits None. Raises TypeError for a value without a JSON form.
    """
    return bytes(to_java_escapes(_encoder.encode(value)))


def dumps_java_pretty(value: Any) -> bytes:
    """The form of config/*.json: tabs, a newline before each member, no space after a colon."""
    parts: list[str] = []
    _write_pretty(value, "\n", parts)
    return "".join(parts).encode()


def _write_pretty(value: Any, newline: str, parts: list[str]) -> None:
    deeper = newline + "\t"
    if isinstance(value, dict):
        _write_pretty_dict(value, newline, parts)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            parts.append(("," if index else "[") + deeper)
            _write_pretty(item, deeper, parts)
        parts.append(newline + "]" if value else "[]")
    elif isinstance(value, IntKeyMap | ObjectKeyMap):
        # fastjson breaks the line only before a key that is a string.
        pairs = value.items.items() if isinstance(value, IntKeyMap) else value.items
        for index, (key, item) in enumerate(pairs):
            parts.append("," if index else "{")
            parts.append(dumps_java(key).decode() + ":")
            _write_pretty(item, deeper, parts)
        parts.append(newline + "}" if pairs else "{}")
    else:
        parts.append(dumps_java(value).decode())


def _write_pretty_dict(value: dict[str, Any], newline: str, parts: list[str]) -> None:
    deeper = newline + "\t"
    for index, (key, item) in enumerate(value.items()):
        parts.append(f"{',' if index else '{'}{deeper}{java_string(key)}:")
        _write_pretty(item, deeper, parts)
    parts.append(newline + "}" if value else "{}")


def dumps_standard(value: Any) -> bytes:
    """The standard form of a route (105, requester version >= 401): pure ASCII, keys quoted.

    fastjson's BrowserCompatible, QuoteFieldNames, MapSortField: `/` as `\\/`, maps sorted by key,
    integers beyond 2^53 as strings.
    """
    parts: list[str] = []
    _write_standard(value, parts)
    return "".join(parts).encode("ascii")


def _write_standard(value: Any, parts: list[str]) -> None:
    if isinstance(value, str):
        parts.append(browser_string(value))
    elif isinstance(value, IntKeyMap):
        for index, number in enumerate(sorted(value.items)):
            parts.append(f'{"," if index else "{"}"{number}":')
            _write_standard(value.items[number], parts)
        parts.append("}" if value.items else "{}")
    elif isinstance(value, ObjectKeyMap):
        _write_standard({canonical_text(key): item for key, item in value.items}, parts)
    elif isinstance(value, dict):
        for index, key in enumerate(sorted(value, key=_utf16_order)):
            parts.append(f"{',' if index else '{'}{browser_string(key)}:")
            _write_standard(value[key], parts)
        parts.append("}" if value else "{}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            parts.append("," if index else "[")
            _write_standard(item, parts)
        parts.append("]" if value else "[]")
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_SAFE_INTEGER:
        parts.append(f'"{value}"')
    else:
        parts.append(dumps_java(value).decode())


def _utf16_order(key: str) -> bytes:
    """Sort key for Java's order of strings."""
    return key.encode("utf-16-be")


def canonical_text(value: Any) -> str:
    """Compact JSON text with sorted keys: how an object key of a map is named in our dicts."""
    return _sorting_encoder.encode(value).decode()


def loads_lenient(text: bytes | bytearray | memoryview | str) -> Any:
    """Parse JSON as fastjson does; fractions are floats.

    Beyond standard JSON it accepts: a byte order mark, comments, bare words and integers as keys
    (they become strings), objects as keys (they become their canonical_text), single quotes,
    superfluous commas, fastjson's extra escapes, numbers as Java writes them (+1, 01, 1., 5L), NaN
    and undefined (null), zero bytes at the end; a lone surrogate becomes "?", which is what Java
    writes for it. Raises JsonError for anything else, for bad UTF-8, and nesting deeper than
    MAX_DEPTH. Strict JSON is parsed by msgspec, the rest by LenientReader.
    """
    return _loads(text, _decoder, _finite_float)


def loads_exact(text: bytes | bytearray | memoryview | str, most_tokens: int | None = None) -> Any:
    """Like loads_lenient, but fractions are Decimals, so that a later cast loses nothing.
    most_tokens: of what is no strict JSON, None for any number."""
    return _loads(text, _exact_decoder, _exact_fraction, most_tokens)


def loads_body(data: bytes | memoryview, most_tokens: int | None = None) -> Any:
    """Parse a body: like loads_exact, but invalid UTF-8 becomes U+FFFD, as in 4.9.8. most_tokens:
    of what is no strict JSON, None for any number. Raises JsonError."""
    try:
        return loads_exact(data, most_tokens)
    except UndecodableError:
        text = bytes(data).decode(errors="replace")
        return LenientReader(text, _exact_fraction, most_tokens).read()


def _loads(
    text: bytes | bytearray | memoryview | str,
    decoder: msgspec.json.Decoder[Any],
    read_fraction: Callable[[str], Any],
    most_tokens: int | None = None,
) -> Any:
    try:
        return decoder.decode(text)
    except RecursionError as error:
        raise JsonError("nested too deep") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        decoded = text if isinstance(text, str) else bytes(text).decode()
    except UnicodeDecodeError as error:
        position = len(error.object[: error.start].decode())
        raise UndecodableError(f"not UTF-8: {error}", position) from error
    return LenientReader(decoded, read_fraction, most_tokens).read()


def _finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JsonError(f"number {text!r:.40} is out of range")
    return number


_TOKEN: Final = re.compile(
    r"""(?:[ \t\r\n\f\b]++ | /\*[^*]*+\*++(?:[^/*][^*]*+\*++)*/ | //[^\n]*+)*(?:
        (?P<punctuation>[{}\[\]:,])
      | "(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*)"
      | '(?P<single>[^'\\]*+(?:\\.[^'\\]*+)*)'
      | (?P<number>[+-]?[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?)[LSBFD]?(?![\w.])
      | (?P<word>[A-Za-z_$][\w$]*+)
      | (?P<end>\0*+\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
"""Each character has one way to match, so time is linear for any text. Possessive quantifiers stand
behind single characters only: Python before 3.11.5 (Debian 12) misreads those behind groups."""

_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED: Final = {
    "b": "\b",
    "f": "\f",
    "F": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{str(digit): chr(digit) for digit in range(8)},
    **{char: char for char in "\"'/\\"},
}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_WORDS: Final[dict[str, bool | None]] = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "NaN": None,
}


MOST_TOKENS_OF_A_REQUEST: Final = 100_000
"""What a request may have of the lenient form, 0.4 us each on the loop: fastjson writes at most a
few keys in it, of maps with numbers as keys."""


class LenientReader:
    """Parses one text once; recursion is bounded by MAX_DEPTH. Owned by: its caller."""

    __slots__ = ("_left", "_most_tokens", "_position", "_read_fraction", "_text")

    def __init__(
        self,
        text: str,
        read_fraction: Callable[[str], Any] = _finite_float,
        most_tokens: int | None = None,
    ) -> None:
        """`read_fraction`: makes a value of a number that is not an integer; raises JsonError.
        `most_tokens`: more are refused; None: any number is read."""
        self._most_tokens = most_tokens
        self._left = len(text) + 2 if most_tokens is None else most_tokens
        self._text = text
        self._position = 1 if text.startswith("\ufeff") else 0
        self._read_fraction = read_fraction

    def read(self) -> Any:
        """Parse the single value of the text. Raises JsonError."""
        try:
            value = self._value(*self._next(), depth=0)
        except RecursionError as error:
            raise JsonError("nested too deep") from error
        kind, token = self._next()
        if kind != "end":
            raise self._error(f"{token!r:.40} after the value")
        return value

    def _next(self) -> tuple[str, str]:
        """The next token: its kind (a group of _TOKEN) and its text."""
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise self._error("invalid JSON")
        self._position = match.end()
        self._left -= 1
        if self._left < 0:
            raise self._error(
                f"no strict JSON, with more than {self._most_tokens} words, numbers and marks "
                "(strict JSON has no such limit)"
            )
        kind = match.lastgroup
        assert kind is not None
        return kind, match[kind]

    def _error(self, reason: str) -> JsonError:
        place = f"at character {self._position} of {len(self._text)}"
        return JsonError(f"{reason}, {place}", self._position)

    def _value(self, kind: str, token: str, depth: int) -> Any:
        if kind == "punctuation":
            if depth >= MAX_DEPTH:
                raise self._error("nested too deep")
            if token == "{":
                return self._object(depth + 1)
            if token == "[":
                return self._list(depth + 1)
        elif kind == "number":
            return self._number(token)
        elif kind in ("double", "single"):
            return self._string(token)
        elif kind == "word" and token in _WORDS:
            return _WORDS[token]
        raise self._error(f"expected a value, not {token!r:.40}")

    def _object(self, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        kind, token = self._next()
        while (kind, token) != ("punctuation", "}"):
            if (kind, token) == ("punctuation", ","):
                kind, token = self._next()
                continue
            key = self._key(kind, token, depth)
            if self._next() != ("punctuation", ":"):
                raise self._error("expected a colon")
            result[key] = self._value(*self._next(), depth)
            kind, token = self._after_member("}")
        return result

    def _list(self, depth: int) -> list[Any]:
        result: list[Any] = []
        kind, token = self._next()
        while (kind, token) != ("punctuation", "]"):
            if (kind, token) == ("punctuation", ","):
                kind, token = self._next()
                continue
            result.append(self._value(kind, token, depth))
            kind, token = self._after_member("]")
        return result

    def _after_member(self, closing: str) -> tuple[str, str]:
        kind, token = self._next()
        if kind != "punctuation" or token not in (",", closing):
            raise self._error(f"expected a comma or {closing}")
        return kind, token

    def _key(self, kind: str, token: str, depth: int) -> str:
        if kind in ("double", "single"):
            return self._string(token)
        if kind in ("number", "word"):
            return token
        if (kind, token) == ("punctuation", "{"):
            return canonical_text(self._value(kind, token, depth))
        raise self._error(f"expected a key, not {token!r:.40}")

    def _number(self, token: str) -> Any:
        try:
            if token.lstrip("+-").isdigit():
                return int(token)
            return self._read_fraction(token)
        except JsonError as error:
            raise self._error(str(error)) from error
        except ValueError as error:  # More digits than Python converts.
            raise self._error(f"number {token!r:.40}: {error}") from error

    def _string(self, token: str) -> str:
        if "\\" in token:
            token = _ESCAPE.sub(self._unescape, token)
        if _SURROGATE.search(token):
            paired = token.encode("utf-16-le", "surrogatepass")
            token = _SURROGATE.sub("?", paired.decode("utf-16-le", "surrogatepass"))
        return token

    def _unescape(self, match: re.Match[str]) -> str:
        escape = match.group(1)
        if len(escape) > 1:
            return chr(int(escape[1:], 16))
        if escape not in _ESCAPED:
            raise self._error(f"unknown escape \\{escape}")
        return _ESCAPED[escape]
