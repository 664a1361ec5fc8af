"""Which brokers a page asks by itself, and what each cannot tell.

A page asks few brokers, so that its answer comes soon whatever the size of the cluster: those of
the name that the reader chose, else the first few. Any thread.

Tested by tests/console/test_traffic_views.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from console.kept_answers import Answer
from console.lanes import Question
from console.page import Query, Reader
from console.snapshot import BrokerSeen

ASKED: Final = 3
"""Brokers that a page asks when the reader has chosen none."""
MOST_AT_ONCE: Final = 12
"""Threads of one page: a name server may list any number of masters of one name."""
BROKER: Final = "broker"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The masters of which a page shows what only they can tell."""

    brokers: list[BrokerSeen]
    names: list[str]
    """Of all masters, for the reader to choose from."""
    name: str
    """The chosen one; "" when none is."""
    sentences: list[str]


def chosen_masters(reader: Reader, query: Query) -> Chosen:
    """Those that the query names, else the first."""
    masters = reader.snapshot.masters()
    names = sorted({broker.place.broker_name for broker in masters})
    name = query.text(BROKER)
    if name:
        found = [broker for broker in masters if broker.place.broker_name == name]
        said = [] if found else [f"No master is called {name}."]
        return Chosen(found, names, name, said)
    shown = masters[:ASKED]
    said = (
        [f"The first {len(shown)} of {len(masters)} masters are shown; choose one to see it."]
        if len(masters) > len(shown)
        else []
    )
    return Chosen(shown, names, "", said)


def ask_all(
    reader: Reader,
    asked: Sequence[tuple[str, Question[Any]]],
    max_age_ms: int,
    *,
    is_later: bool = False,
) -> list[Answer[Any]]:
    """Ask brokers side by side: a page waits for the slowest, not for all in turn."""
    if is_later:
        return [reader.ask(at, question, max_age_ms, is_later=True) for at, question in asked]
    if len(asked) < 2:
        return [reader.ask(address, question, max_age_ms) for address, question in asked]
    with ThreadPoolExecutor(min(len(asked), MOST_AT_ONCE), "console-page") as pool:
        return list(pool.map(lambda one: reader.ask(one[0], one[1], max_age_ms), asked))


def without_metrics(brokers: list[BrokerSeen], what: str) -> list[str]:
    """Why a master's row lacks what only a broker of this project tells."""
    said = []
    for broker in brokers:
        if broker.metrics.value is not None:
            continue
        version = broker.version or "no version known"
        if broker.is_ours is False:
            said.append(
                f"{broker.title} ({version}) does not tell {what}: it has no "
                "request for its metrics."
            )
        elif broker.metrics.error is not None:
            said.append(f"{broker.title} did not tell {what}: {broker.metrics.error}")
        else:
            said.append(f"{broker.title} has not told {what} yet.")
    return said
