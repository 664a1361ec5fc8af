"""Changes of a message's property text before it is stored.

Pure string functions on the request path, each one pass over the text, whatever is in it. Pairs are
`name U+0001 value`, separated by U+0002 (some clients add one at the end). WAIT is an option of the
sender and is not stored for single sends; CLUSTER names the cluster for the client that replies to
the message.
"""

from __future__ import annotations

from typing import Final

from store.message_properties import find_property as find_raw_property

NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"
LATER_UNIQUE_KEY: Final = f"{PAIR_END}UNIQ_KEY{NAME_END}"
"""Where it is not the first pair."""
_WAIT: Final = "WAIT" + NAME_END


def find_property(text: str, name: str) -> str | None:
    """The value of `name` in a property text; the last one counts, as in RocketMQ's map."""
    mark = name + NAME_END
    at = text.rfind(mark)
    if at > 0 and text[at - 1] != PAIR_END:
        # With the separator now: a text may hold the name thousands of times within values.
        at = text.rfind(PAIR_END + mark, 0, at) + 1
        if not at and not text.startswith(mark):
            return None
    if at < 0:
        return None
    start = at + len(mark)
    end = text.find(PAIR_END, start)
    return text[start:] if end < 0 else text[start:end]


def find_unique_key(text: str) -> str | None:
    """The client's id of the message (UNIQ_KEY); used for every send."""
    _, mark, after = text.rpartition(LATER_UNIQUE_KEY)
    if mark:
        return after.partition(PAIR_END)[0]
    return find_property(text, "UNIQ_KEY")


def asks_to_wait(text: str) -> bool:
    """Whether the sender's answer waits until the message is as safe as the broker makes it (flush,
    replicas): all but those with WAIT=false."""
    return "WAIT\x01false" not in text or find_property(text, "WAIT") != "false"


def record_asks_to_wait(properties: bytes) -> bool:
    """The same of a record's properties."""
    return find_raw_property(properties, b"WAIT") != b"false"


def without_property(text: str, name: str) -> str:
    """`text` without any pair named `name`."""
    mark = name + NAME_END
    at = text.find(mark)
    kept: list[str] = []
    start = 0
    while at >= 0:
        if at and text[at - 1] != PAIR_END:
            at = text.find(mark, at + 1)
            continue
        kept.append(text[start:at])
        end = text.find(PAIR_END, at)
        if end < 0:
            # The last pair goes with the separator before it.
            return "".join(kept)[:-1]
        start = end + 1
        at = text.find(mark, start)
    return "".join(kept) + text[start:] if kept else text


def append_pairs(text: str, pairs: str) -> str:
    """`text` followed by `pairs`, with exactly one separator in between."""
    if not text:
        return pairs
    if text.endswith(PAIR_END):
        return text + pairs
    return text + PAIR_END + pairs


def stored_properties(text: str, cluster_pair: str) -> str:
    """The text to store for a single send: WAIT removed, CLUSTER set to this cluster."""
    if "CLUSTER\x01" in text:
        text = without_property(text, "CLUSTER")
    # The form that Java's clients send; this takes a quarter of the time.
    text = text.replace("\x02WAIT\x01true\x02", PAIR_END, 1)
    if _WAIT in text:
        text = without_property(text, "WAIT")
    return append_pairs(text, cluster_pair)


def common_properties(text: str, cluster_pair: str) -> str:
    """What each message of a batch gets behind its own, of the batch's text: not its UNIQ_KEY, by
    which all of them would be one message."""
    if "UNIQ_KEY\x01" in text:
        text = without_property(text, "UNIQ_KEY")
    return append_pairs(text, cluster_pair)
