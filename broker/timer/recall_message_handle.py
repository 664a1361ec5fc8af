"""The handle by which a timer message can be recalled; it is in the answer to its send.

Pure, any thread. URL-safe Base64 of `v1 <topic> <broker name> <TIMER_OUT_MS + 1> <UNIQ_KEY>`.
Corresponds to RocketMQ's RecallMessageHandle.HandleV1.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, NamedTuple

from broker.topic.system_topics import RETRY_GROUP_TOPIC_PREFIX
from store.message_properties import find_property

_UNIQUE_KEY: Final = b"UNIQ_KEY"
_OUT_MS: Final = b"TIMER_OUT_MS"
_VERSION: Final = "v1"
_PARTS: Final = 5
_NOT_URL_SAFE: Final = frozenset("+/")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")


class RecallMessageHandle(NamedTuple):
    """What it says. `deliver_ms` is the text as it was found: it need not be a number."""

    topic: str
    broker_name: str
    deliver_ms: str
    unique_key: str

    def encode(self) -> str:
        """The text for clients."""
        return base64.urlsafe_b64encode(" ".join((_VERSION, *self)).encode()).decode()


def decode_handle(text: str) -> RecallMessageHandle:
    """Raises ValueError: RocketMQ's words for a handle that is none. Padding may be missing.

    Its parts become properties of a record (370): one with a control character, which the
    separators of properties are, was never given out."""
    if not text or _NOT_URL_SAFE & set(text):
        raise ValueError("recall handle is invalid")
    padded = text + "=" * (-len(text) % 4 if not text.endswith("=") else 0)
    try:
        raw = base64.b64decode(padded.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError("recall handle is invalid") from error
    decoded = raw.decode("utf-8", "replace")
    parts = decoded.rstrip(" ").split(" ")
    if parts[0] != _VERSION or len(parts) < _PARTS or _CONTROL.search(decoded):
        raise ValueError("recall handle is invalid")
    return RecallMessageHandle(*parts[1:_PARTS])


def recall_handle_field(topic: str, broker_name: str, properties: bytes) -> dict[str, str]:
    """`recallHandle` of the answer to a send of one timer message with these stored properties; a
    retry, and a message without UNIQ_KEY or with control characters in it, have none."""
    key, out_ms = find_property(properties, _UNIQUE_KEY), find_property(properties, _OUT_MS)
    if not key or not out_ms or topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return {}
    # Within the slot, so that the recall is rounded to the same.
    text = str(int(out_ms) + 1)
    unique_key = str(key, "utf-8", "replace")
    if _CONTROL.search(unique_key):
        return {}
    handle = RecallMessageHandle(topic, broker_name, text, unique_key)
    return {"recallHandle": handle.encode()}
