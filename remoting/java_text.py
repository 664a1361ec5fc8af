"""Formats single JSON values as Java does: escapes of strings, text of doubles.

Pure functions, any thread. The differences between fastjson 1.2 and standard JSON writers; used for
headers and bodies.

    standard writers leave  U+007F..U+009F, U+2028, U+2029 as they are; fastjson escapes them
    msgspec writes          \\u000b with lower-case hex digits; fastjson with upper-case ones
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

import msgspec

_LOWER_HEX_ESCAPE: Final = re.compile(rb"\\u00[01][a-f]")
_ANY_ESCAPE: Final = re.compile(rb"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_RAW_TO_ESCAPE: Final = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")
_BROWSER_SPECIAL: Final = re.compile(r'[\x00-\x1f"/\\]|[^\x00-\x7e]')
_SHORT_ESCAPES: Final = {
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    '"': '\\"',
    "/": "\\/",
    "\\": "\\\\",
}

_encoder: Final = msgspec.json.Encoder()


def to_java_escapes(text: bytes | bytearray) -> bytes | bytearray:
    """Convert the escapes of msgspec's JSON text to those of fastjson.

    Costs a scan of the bytes in C if there is nothing to do, and returns its argument then.
    """
    if b"\\u00" in text and _LOWER_HEX_ESCAPE.search(text):
        text = _ANY_ESCAPE.sub(_upper_hex, text)
    if b"\x7f" in text or not text.isascii():
        text = _RAW_TO_ESCAPE.sub(_escape_raw, text)
    return text


def _upper_hex(match: re.Match[bytes]) -> bytes:
    escape = match.group(1)
    return b"\\u" + escape[1:].upper() if len(escape) == 5 else match.group()


def _escape_raw(match: re.Match[bytes]) -> bytes:
    return b"\\u%04X" % ord(match.group().decode())


def json_characters(text: str) -> bytes:
    """What stands between the quotes when Java writes `text`."""
    return bytes(to_java_escapes(_encoder.encode(text)))[1:-1]


def java_string(text: str) -> str:
    """A string as a quoted JSON string in fastjson's default form."""
    return to_java_escapes(_encoder.encode(text)).decode()


def browser_string(text: str) -> str:
    """A string as a quoted JSON string in fastjson's BrowserCompatible form: pure ASCII."""
    return f'"{_BROWSER_SPECIAL.sub(_browser_escape, text)}"'


def _browser_escape(match: re.Match[str]) -> str:
    char = match.group()
    short = _SHORT_ESCAPES.get(char)
    if short is not None:
        return short
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2))


def java_double(value: float) -> str:
    """A double as Java's Double.toString writes it; NaN and the infinities become null.

    Plain decimal from 1e-3 up to 1e7, else one digit, the fraction and E: 1.0E7.
    """
    value = float(value)
    if not math.isfinite(value):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0")
    magnitude = len(digits) + exponent - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{magnitude}"
