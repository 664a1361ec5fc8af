"""Sends: their answers by second and status, how long acknowledgements took, what is exposed now.

All of it is the difference of two answers of a broker's metrics (console/rates.py); a Java broker
tells only how many messages it stores each second.

Tested by tests/console/test_traffic_views.py.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from console import metric_names as names
from console import rates
from console.cells import milliseconds_cell, newest, rate_cell, whole
from console.health import group_url
from console.page import Page, Query, Reader, View
from console.plots import Line, plot_data
from console.replies import without_metrics
from console.snapshot import BrokerSeen
from console.tables import Table, TableCell, link
from tools.broker_numbers import first_number
from tools.commands.ha_status import size_text
from tools.report import columns

SENDS: Final = columns(
    "Broker brokerName | Stored/s inTps > | OK/s ok > | "
    "FLUSH_SLAVE_TIMEOUT/s flushSlaveTimeout > | "
    "SLAVE_NOT_AVAILABLE/s slaveNotAvailable > | FLUSH_DISK_TIMEOUT/s flushDiskTimeout > | "
    "Refused/s refused > | Ack p50(ms) ackP50 > | Ack p99(ms) ackP99 > | "
    "Exposed exposedBytes > | Exposed for(s) exposedSeconds >"
)
TOTALS: Final = columns("Broker brokerName | Answer answer | Sends count >")


def sends(reader: Reader, query: Query) -> Page:
    """A row a master, and plots of one of them or of the first."""
    masters = reader.snapshot.masters()
    chosen = _chosen(masters, query)
    return Page(
        context={
            "sentences": without_metrics(masters[:20], "answers to sends by status"),
            "plots": [] if chosen is None else _plots(chosen),
            "chosen": "" if chosen is None else chosen.title,
        },
        tables=[
            Table(
                "sends",
                "Sends now",
                SENDS,
                [_row(reader, broker) for broker in masters],
                empty_text="There is no master.",
            ),
            Table(
                "totals",
                "Answers since the broker's start",
                TOTALS,
                [row for broker in masters for row in _totals(broker)],
                empty_text="No master tells them.",
            ),
        ],
    )


def sends_plot(reader: Reader, query: Query) -> Page:
    """Sends by status of one broker: JSON only."""
    return Page(
        data=plot_data(
            [_line(reader, query, rates.sends_figure(s), s, "sends/s") for s in rates.STATUSES]
        )
    )


def latency_plot(reader: Reader, query: Query) -> Page:
    """Acknowledgement latency of one broker: JSON only."""
    wanted = {rates.ACK_P50: "p50", rates.ACK_P99: "p99"}
    return Page(
        data=plot_data([_line(reader, query, figure, name, "s") for figure, name in wanted.items()])
    )


def exposure_plot(reader: Reader, query: Query) -> Page:
    """What would be lost if the master failed now: JSON only."""
    wanted = {rates.EXPOSED_BYTES: ("exposed", "bytes"), rates.EXPOSED_SECONDS: ("oldest", "s")}
    return Page(
        data=plot_data(
            [_line(reader, query, figure, name, unit) for figure, (name, unit) in wanted.items()]
        )
    )


def _chosen(masters: list[BrokerSeen], query: Query) -> BrokerSeen | None:
    name = query.text("broker")
    found = [broker for broker in masters if not name or broker.place.broker_name == name]
    return found[0] if found else None


def _plots(broker: BrokerSeen) -> list[tuple[str, str]]:
    own = f"address={quote(broker.place.address, safe='')}"
    return [
        (f"Answers to sends of {broker.title}", f"/sends/statuses.json?{own}"),
        (f"Acknowledgement latency of {broker.title}", f"/sends/latency.json?{own}"),
        (f"Exposure of {broker.title}", f"/sends/exposure.json?{own}"),
    ]


def _line(reader: Reader, query: Query, figure: str, name: str, unit: str) -> Line:
    minutes = query.number("minutes", 15, 1, 360)
    first_ms = reader.now_ms - minutes * 60_000
    read = reader.history.read((query.needed("address"), figure), first_ms, reader.now_ms)
    return Line(name, unit, read)


def _row(reader: Reader, broker: BrokerSeen) -> list[object]:
    place, runtime = broker.place, broker.runtime.value
    stored = None if runtime is None else first_number(runtime.get("putTps"))
    by_status = [newest(reader, place.address, rates.sends_figure(s)) for s in rates.STATUSES]
    acks = [newest(reader, place.address, figure) for figure in (rates.ACK_P50, rates.ACK_P99)]
    return [
        link(place.broker_name, group_url(place.cluster, place.broker_name)),
        stored,
        *(rate_cell(value) for value in by_status),
        *(milliseconds_cell(value) for value in acks),
        *_exposure(broker),
    ]


def _exposure(broker: BrokerSeen) -> list[object]:
    metrics = broker.metrics.value
    if metrics is None:
        return [None, None]
    size = whole(metrics.total(names.UNREPLICATED_BYTES))
    age = metrics.total(names.UNREPLICATED_SECONDS)
    at_most = "≤ " if metrics.total(names.UNREPLICATED_EXACT) == 0 else ""
    return [
        None if size is None else TableCell(at_most + size_text(size), size),
        None if age is None else TableCell(f"{at_most}{age:.1f}", age),
    ]


def _totals(broker: BrokerSeen) -> list[list[object]]:
    metrics = broker.metrics.value
    counts = {} if metrics is None else rates.send_counts(metrics)
    return [
        [broker.place.broker_name, status, whole(counts[status])]
        for status in rates.STATUSES
        if status in counts
    ]


VIEWS: Final = [
    View("/sends", "Sends", "Traffic", "sends.html.j2", sends),
    View("/sends/statuses", "Plot", "", "", sends_plot),
    View("/sends/latency", "Plot", "", "", latency_plot),
    View("/sends/exposure", "Plot", "", "", exposure_plot),
]
