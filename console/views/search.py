"""Search: topics, groups, brokers by a part of their name, and messages by their id.

Asks nobody: what is known is searched. Without a hit the nearest names are shown.

Tested by tests/console/test_topics_view.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final
from urllib.parse import urlencode

from console.health import group_url as broker_group_url
from console.known_groups import known_groups
from console.page import Page, Query, Reader, View
from console.tables import Table, link
from console.views.topics import group_url, topic_kind, topic_url
from tools.report import columns

HITS: Final = columns("Kind kind | Name name")
MOST: Final = 200
MAX_COMPARED: Final = 127
"""No topic has a longer name."""
COMPARED: Final = 50
_ID_LENGTHS: Final = (32, 36, 40, 56)
_HEX: Final = frozenset("0123456789abcdefABCDEF")


def search(reader: Reader, query: Query) -> Page:
    """What has a text in its name.

    q: the text, or a message id.
    """
    text = query.text("q")
    rows = _rows(reader, text) if text else []
    if text and not rows:
        near = nearest_names(text, _names(reader))
        rows = [["the nearest", link(name, topic_url(name))] for name in near]
    return Page(
        context={"text": text},
        tables=[
            Table("hits", "Found", HITS, rows[:MOST], empty_text="Nothing has that in its name."),
        ],
    )


def nearest_names(text: str, names: Sequence[str]) -> list[str]:
    """The three that are most like a text. Comparing takes time by the square of their lengths:
    only the few that have most pairs of letters in common with it are compared."""
    if len(text) > MAX_COMPARED:
        return []
    pairs = _pairs(text)
    close = heapq.nlargest(COMPARED, names, key=lambda name: len(pairs & _pairs(name)))
    return get_close_matches(text, close, n=3, cutoff=0.6)


def _pairs(text: str) -> set[str]:
    text = text[:MAX_COMPARED].casefold()
    return {text[at : at + 2] for at in range(len(text) - 1)}


def _names(reader: Reader) -> list[str]:
    names = (reader.snapshot.topics.value or ())[:20_000]
    return [name for name in names if len(name) <= MAX_COMPARED]


def _rows(reader: Reader, text: str) -> list[list[object]]:
    rows: list[list[object]] = []
    if len(text) in _ID_LENGTHS and set(text) <= _HEX:
        rows.append(["message", link(text, "/message?" + urlencode({"id": text}))])
    wanted = text.casefold()
    for topic in reader.snapshot.topics.value or ():
        if wanted in topic.casefold() and topic_kind(topic) != "retry":
            rows.append(["topic", link(topic, topic_url(topic))])
    for group in known_groups(reader, with_system=True, is_later=True).names:
        if wanted in group.casefold():
            rows.append(["group", link(group, group_url(group))])
    for broker in reader.snapshot.brokers:
        place = broker.place
        if wanted in f"{place.broker_name}:{place.broker_id} {place.address}".casefold():
            url = broker_group_url(place.cluster, place.broker_name)
            rows.append(["broker", link(f"{broker.title} {place.address}", url)])
    return rows


VIEWS: Final = [View("/search", "Search", "", "search.html.j2", search)]
