"""The queries that a Prometheus server is asked for an import: all that lines are made of.

Plain Python, no Spark. Knows the metrics' names, not how answers are fetched or read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark.prometheus_import.metrics import (
    DOWN_AT,
    OF_BROKER,
    PER_TOPIC,
    PROCESS_START,
    READY,
    SCRAPED_AT,
)


def queries(matchers: Sequence[str] = ()) -> dict[str, str]:
    """File name to query: all that a line is made of. `matchers` narrow each that asks for the
    broker's metrics."""

    def select(*conditions: str) -> str:
        return "{" + ",".join((*conditions, *matchers)) + "}" if conditions or matchers else ""

    def one_of(names: Iterable[str]) -> str:
        return select(f'__name__=~"{"|".join(names)}"')

    ready = f"{READY}{select()}"
    of_brokers = f"and on (instance, job) {ready}"
    return {
        "broker": one_of(OF_BROKER),
        "topics": f"{one_of(PER_TOPIC)} {of_brokers}",
        "starts": f"{PROCESS_START}{select()} {of_brokers}",
        "scrapes": f'label_replace(timestamp({ready}), "__name__", "{SCRAPED_AT}", "", "")',
        # Not narrowed: matchers may be for labels that `up` does not have.
        "downs": f'label_replace(timestamp(up) and up == 0, "__name__", "{DOWN_AT}", "", "")',
    }
