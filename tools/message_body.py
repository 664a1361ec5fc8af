"""decode_body: what a page or a terminal shows of a message's body.

Pure; any thread. A body is a client's bytes: UTF-8 text, JSON, or anything, of any size. Only its
beginning is looked at, the result has a limit, and control characters are escaped. Knows nothing of
messages: compressed bodies are inflated, within a limit, where a message is decoded
(tools/message_decoder.py).

Tested by tests/tools/test_message_body.py.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from tools.report import safe_text

SHOWN_CHARS: Final = 64 << 10
"""A page with one body stays below 300 KB."""

_HEX_LINE_CHARS: Final = 79
_HEX_LINE_BYTES: Final = 16
_DEEPEST: Final = 32
"""JSON that is nested deeper is shown as it came: indented, it could be larger by any factor."""
_BRACKETS: Final = re.compile(r"[\[\]{}]")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TEXT_PER_CONTROL: Final = 16
"""Text may have an escape sequence; bytes with more control characters than this are no text, even
if they happen to be UTF-8, as short numbers of binary formats do."""


@dataclass(frozen=True, slots=True)
class DecodedBody:
    """What is shown of a body."""

    kind: Literal["text", "json", "hex"]
    text: str
    """Of at most the number of characters that was asked for; control characters as \\xNN."""
    is_cut: bool
    """There is more of the body than is shown."""
    size: int
    """Bytes that there were to decode."""


def decode_body(
    body: bytes, *, is_whole: bool = True, shown_chars: int = SHOWN_CHARS
) -> DecodedBody:
    """JSON indented, other UTF-8 as it is, anything else as a hex dump.

    is_whole: False for a body that was cut already. shown_chars: the result has at most so many.
    """
    head = body[:shown_chars]
    is_whole = is_whole and len(head) == len(body)
    text = _utf8(head, is_whole=is_whole)
    if text is None:
        return _hex_dump(body, shown_chars, is_whole=is_whole)
    pretty = _indented(text) if is_whole else None
    if pretty is not None:
        shown = safe_text(pretty)
        if len(shown) <= shown_chars:
            return DecodedBody("json", shown, is_cut=False, size=len(body))
    shown = safe_text(text)
    kind: Literal["text", "json"] = "text" if pretty is None else "json"
    return DecodedBody(
        kind, shown[:shown_chars], not is_whole or len(shown) > shown_chars, len(body)
    )


def _utf8(head: bytes, *, is_whole: bool) -> str | None:
    """None: not UTF-8, or not meant as text. A character that is cut off at the end is left out."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(head, final=is_whole)
    except UnicodeDecodeError:
        return None
    if "\0" in text or len(_CONTROLS.findall(text)) * _TEXT_PER_CONTROL > len(text):
        return None
    return text


def _indented(text: str) -> str | None:
    """JSON with line breaks, its numbers and keys as they came; None: it is no object or list."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        msgspec.json.decode(text)
        return msgspec.json.format(text, indent=2) if _depth(text) <= _DEEPEST else text
    except (msgspec.DecodeError, RecursionError):
        return None


def _depth(text: str) -> int:
    """How deep it is nested, at most: brackets in texts count, too."""
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        depth += 1 if match.group() in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _hex_dump(body: bytes, shown_chars: int, *, is_whole: bool) -> DecodedBody:
    """As hexdump -C: offset, 16 bytes, their ASCII."""
    shown = body[: max(shown_chars // _HEX_LINE_CHARS, 1) * _HEX_LINE_BYTES]
    lines = []
    for start in range(0, len(shown), _HEX_LINE_BYTES):
        row = shown[start : start + _HEX_LINE_BYTES]
        halves = f"{row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}"
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {halves}  |{letters}|")
    is_cut = not is_whole or len(shown) < len(body)
    return DecodedBody("hex", "\n".join(lines), is_cut, len(body))
