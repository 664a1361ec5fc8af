"""Search: topics, groups, brokers, clients by a part of their name, and messages by their id.

Asks nobody: what is known is searched. Without a hit the nearest names are shown.

Tested by tests/console/test_topics_view.py.
"""

from __future__ import annotations

from itertools import islice
from typing import Final
from urllib.parse import urlencode

from console.group_answers import MEMBERS, Members
from console.health import group_url as broker_group_url
from console.known_groups import known_groups
from console.page import Page, Query, Reader, View
from console.tables import Table, link
from console.views.groups import client_url
from console.views.topics import group_url, topic_kind, topic_url
from tools.nearest_names import nearest_names
from tools.report import columns

HITS: Final = columns("Kind kind | Name name")
MOST: Final = 200
MOST_CLIENTS: Final = 20_000
"""Of those that pages have seen, looked through by one search."""
_ID_LENGTHS: Final = (32, 36, 40, 56)
_HEX: Final = frozenset("0123456789abcdefABCDEF")


def search(reader: Reader, query: Query) -> Page:
    """What has a text in its name.

    q: the text, or a message id.
    """
    text = query.text("q")
    rows = _rows(reader, text) if text else []
    if text and not rows:
        near = nearest_names(text, reader.snapshot.topics.value or (), 3)
        rows = [["the nearest", link(name, topic_url(name))] for name in near]
    return Page(
        context={"text": text},
        tables=[
            Table("hits", "Found", HITS, rows[:MOST], empty_text="Nothing has that in its name."),
        ],
    )


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
    rows += _clients(reader, wanted)
    for broker in reader.snapshot.brokers:
        place = broker.place
        if wanted in f"{place.broker_name}:{place.broker_id} {place.address}".casefold():
            url = broker_group_url(place.cluster, place.broker_name)
            rows.append(["broker", link(f"{broker.title} {place.address}", url)])
    return rows


def _clients(reader: Reader, wanted: str) -> list[list[object]]:
    """Members of groups whose list of members a page has asked for of late."""
    seen = (
        (found.group, member)
        for _, found in reader.lanes.known(MEMBERS, reader.account_key)
        if isinstance(found, Members) and found.connection is not None
        for member in found.connection.connection_set
    )
    hits = {
        (member.client_id, group): member.client_addr
        for group, member in islice(seen, MOST_CLIENTS)
        if wanted in f"{member.client_id} {member.client_addr}".casefold()
    }
    return [
        ["client", link(f"{client_id} {address}", client_url(group, client_id))]
        for (client_id, group), address in sorted(hits.items())
    ]


VIEWS: Final = [View("/search", "Search", "", "search.html.j2", search)]
