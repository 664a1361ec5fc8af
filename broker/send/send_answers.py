"""SendAnswers: the templates of what a stored send is answered, for both kinds of headers.

Used on the loop thread of `remoting` by the fast paths of single sends and of batches. Values, in
this order: code, queueId, msgId, queueOffset, the unique key if there is one, opaque. The general
path answers the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from remoting.frame import AnswerTemplate, BinaryAnswer, JsonAnswer
from remoting.java_text import json_characters

_KEY: Final = "transactionId"


class SendAnswers:
    """See the module. Immutable."""

    __slots__ = ("_binary", "_json")

    def __init__(self, region: Mapping[str, str], message_id: bytes) -> None:
        """region: fields that every answer has. message_id: the bytes format of msgId."""
        first, last = {"queueId": b"%d"}, {"msgId": message_id, "queueOffset": b"%d"}
        quoted = {name: _constant(json_characters(text)) for name, text in region.items()}
        in_json = {name: b'"' + form + b'"' for name, form in {**first, **quoted, **last}.items()}
        plain = {name: _constant(text.encode()) for name, text in region.items()}
        in_binary = {**first, **plain, **last}
        self._json: Final = JsonAnswer(in_json), JsonAnswer({**in_json, _KEY: b'"%b"'})
        self._binary: Final = BinaryAnswer(in_binary), BinaryAnswer({**in_binary, _KEY: b"%b"})

    def templates(self, *, is_binary: bool) -> tuple[AnswerTemplate, AnswerTemplate]:
        """Without and with a unique key: in JSON as json_characters writes it, in a binary header
        as it is, in UTF-8."""
        return self._binary if is_binary else self._json


def _constant(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")
