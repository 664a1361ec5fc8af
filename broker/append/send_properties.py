"""What the broker changes in a message's property text before it is stored.

Pure text work on the request path. Pairs are `name U+0001 value`, separated by U+0002 (some
clients end the text with one more). WAIT is a wish of the sender and is not stored for single
sends; CLUSTER names the cluster for whoever answers the message.
"""

from __future__ import annotations

from typing import Final

NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"
_UNIQUE_KEY: Final = "UNIQ_KEY" + NAME_END
_UNIQUE_KEY_SIZE: Final = len(_UNIQUE_KEY)


def find_property(text: str, name: str) -> str | None:
    """The value of `name` in a property text; the last one counts, as in the original's map."""
    mark = name + NAME_END
    at = text.rfind(mark)
    while at > 0 and text[at - 1] != PAIR_END:
        at = text.rfind(mark, 0, at)
    if at < 0:
        return None
    start = at + len(mark)
    end = text.find(PAIR_END, start)
    return text[start:] if end < 0 else text[start:end]


def find_unique_key(text: str) -> str | None:
    """The id that a client gave its message (UNIQ_KEY); every send looks for it."""
    at = text.rfind(_UNIQUE_KEY)
    if at < 0:
        return None
    if at and text[at - 1] != PAIR_END:
        return find_property(text, "UNIQ_KEY")
    end = text.find(PAIR_END, at)
    return text[at + _UNIQUE_KEY_SIZE :] if end < 0 else text[at + _UNIQUE_KEY_SIZE : end]


def without_property(text: str, name: str) -> str:
    """`text` without every pair called `name`."""
    mark = name + NAME_END
    at = text.find(mark)
    while at >= 0:
        if at and text[at - 1] != PAIR_END:
            at = text.find(mark, at + 1)
            continue
        end = text.find(PAIR_END, at)
        text = text[: max(at - 1, 0)] if end < 0 else text[:at] + text[end + 1 :]
        at = text.find(mark, at)
    return text


def append_pairs(text: str, pairs: str) -> str:
    """`text` with `pairs` after it; one separator between, none doubled."""
    if not text:
        return pairs
    if text.endswith(PAIR_END):
        return text + pairs
    return text + PAIR_END + pairs


def stored_properties(text: str, cluster_pair: str) -> str:
    """The text to store for a single send: WAIT dropped, CLUSTER set to ours."""
    if "WAIT\x01" in text:
        # What Java's clients send, in a third of the time.
        text = text.replace("\x02WAIT\x01true\x02", "\x02")
        if "WAIT\x01" in text:
            text = without_property(text, "WAIT")
    if "CLUSTER\x01" in text:
        text = without_property(text, "CLUSTER")
    return append_pairs(text, cluster_pair)
