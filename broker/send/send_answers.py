"""SendAnswers: what a stored send is answered, in every form: the one place for its fields.

Used on the loop thread of `remoting`: by the hot loops as templates with values, for both kinds of
headers, and by the general path as fields. A field that all answers have is one of `region`. One
that depends on the message is a name and a format in `__init__`, a value in `of`, and a text in
`fields`; tests/broker/send compares the forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.append.send_properties import LATER_UNIQUE_KEY, PAIR_END, find_property
from remoting.frame import AnswerTemplate, BinaryAnswer, JsonAnswer
from remoting.java_text import json_characters

_KEY: Final = "transactionId"
Answer = tuple[AnswerTemplate, tuple[int | bytes, ...]]
"""A template, and the values for it: code, queueId, msgId, queueOffset, the unique key if there is
one, opaque."""


class SendAnswers:
    """See the module. Immutable."""

    __slots__ = ("_binary", "_json", "_region")

    def __init__(self, region: Mapping[str, str], message_id: bytes) -> None:
        """region: fields that every answer has. message_id: the bytes format of msgId."""
        self._region: Final = dict(region)
        first, last = {"queueId": b"%d"}, {"msgId": message_id, "queueOffset": b"%d"}
        quoted = {name: _constant(json_characters(text)) for name, text in region.items()}
        in_json = {name: b'"' + form + b'"' for name, form in {**first, **quoted, **last}.items()}
        plain = {name: _constant(text.encode()) for name, text in region.items()}
        in_binary = {**first, **plain, **last}
        self._json: Final = JsonAnswer(in_json), JsonAnswer({**in_json, _KEY: b'"%b"'})
        self._binary: Final = BinaryAnswer(in_binary), BinaryAnswer({**in_binary, _KEY: b"%b"})

    def of(
        self,
        text: str,
        queue_id: int,
        place: int | bytes,
        queue_offset: int,
        opaque: int,
        is_binary: bool,
    ) -> Answer:
        """Of a send with the properties `text`. place: for the format of msgId. is_binary: the
        request's header was; the key is in UTF-8 then, and as json_characters writes it otherwise.

        Written plainly: called for every send, it finds the key itself (find_unique_key).
        """
        templates = self._binary if is_binary else self._json
        at = text.rfind(LATER_UNIQUE_KEY)
        if at < 0:
            key = find_property(text, "UNIQ_KEY")
        else:
            start = at + len(LATER_UNIQUE_KEY)
            end = text.find(PAIR_END, start)
            key = text[start:] if end < 0 else text[start:end]
        if not key:
            return templates[0], (0, queue_id, place, queue_offset, opaque)
        raw = key.encode()
        if not raw.isalnum() and not is_binary:
            raw = json_characters(key)
        return templates[1], (0, queue_id, place, queue_offset, raw, opaque)

    def fields(
        self, queue_id: int, message_id: str, queue_offset: int, unique_key: str | None
    ) -> dict[str, str]:
        """The same as fields of an answer's header, in the same order."""
        fields = {
            "queueId": str(queue_id),
            **self._region,
            "msgId": message_id,
            "queueOffset": str(queue_offset),
        }
        if unique_key:
            fields[_KEY] = unique_key
        return fields


def _constant(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")
