"""Pages that are about one broker: which one, and how a reader finds another among hundreds.

`broker` of the URL is its address; `find` and `brokers` (a page's number) choose what the list of
links shows. Any thread. The template's part is one_broker.html.j2.

Tested by tests/console/test_broker_pages.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from console.page import ConsoleError, Query, Reader
from console.snapshot import BrokerSeen

LINKS: Final = 24
"""Brokers on a page of the list."""
_MOST_PAGES: Final = 100_000


@dataclass(frozen=True, slots=True)
class OneBroker:
    """The chosen one, and a page of links to others."""

    broker: BrokerSeen
    links: list[tuple[str, str]]
    """Title and URL."""
    find: str
    matched: int
    total: int
    previous_url: str | None
    next_url: str | None
    kept: list[tuple[str, str]]
    """What the search form carries along."""


def one_broker(reader: Reader, query: Query, path: str, **more: str) -> OneBroker:
    """The broker that the URL names, else the first that answers. more: of the page's own URL, for
    the links to other brokers."""
    address, find = query.text("broker"), query.text("find")
    brokers = reader.snapshot.registered()
    named = [broker for broker in brokers if broker.place.address == address]
    if not brokers or (address and not named):
        raise ConsoleError(f"no broker {address} is listed by the name servers", 404)
    broker = named[0] if named else min(brokers, key=lambda each: each.newest_error is not None)
    matching = [each for each in brokers if _matches(each, find)]
    pages = max(1, -(-len(matching) // LINKS))
    page = min(query.number("brokers", 1, 1, _MOST_PAGES), pages)
    own = {key: value for key, value in more.items() if value}

    def url(**parts: str) -> str:
        return f"{path}?{urlencode(own | {k: v for k, v in parts.items() if v})}"

    def page_url(number: int) -> str | None:
        if not 1 <= number <= pages:
            return None
        return url(broker=broker.place.address, find=find, brokers=str(number))

    shown = matching[(page - 1) * LINKS : page * LINKS]
    return OneBroker(
        broker,
        [(each.title, url(broker=each.place.address, find=find)) for each in shown],
        find,
        len(matching),
        len(brokers),
        page_url(page - 1),
        page_url(page + 1),
        list((own | {"broker": broker.place.address}).items()),
    )


def _matches(broker: BrokerSeen, find: str) -> bool:
    """By name and id, or address, whatever the capitals."""
    wanted = find.casefold()
    return wanted in broker.title.casefold() or wanted in broker.place.address.casefold()
