"""Overview: one screen that says "all well", or what is not.

Tested by tests/console/test_overview.py.
"""

from __future__ import annotations

from typing import Final

from console import metric_names as names
from console.cells import whole
from console.figures import CLUSTER, IN_TPS, OUT_TPS
from console.health import disk_ratio, findings, group_url, restarts, verdict
from console.page import Page, Query, Reader, View
from console.plots import Line, plot_data
from console.snapshot import BrokerSeen
from console.tables import Table, TableCell, badge, link
from tools.broker_numbers import first_number, out_tps_key
from tools.report import columns

FINDINGS: Final = columns("Severity severity | What what | Sentence sentence")
BROKERS: Final = columns(
    "Cluster clusterName | Broker brokerName | Id brokerId > | Address brokerAddr | "
    "State state | Version version | In/s inTps > | Out/s outTps > | Disk space > | "
    "Ready ready | Process restarts restarts >"
)


def overview(reader: Reader, query: Query) -> Page:
    """What is not well, and every broker with its rates."""
    found = findings(reader.snapshot, reader.clock_ms)
    return Page(
        context={"verdict": verdict(found, reader.snapshot), "findings": found},
        tables=[
            Table(
                "findings",
                "What is not well",
                FINDINGS,
                [[badge(f.severity), link(f.what, f.url), f.sentence] for f in found],
                empty_text="Nothing.",
            ),
            Table(
                "brokers",
                "Brokers",
                BROKERS,
                [_row(broker, reader.now_ms) for broker in reader.snapshot.brokers],
                empty_text="The name servers know no broker.",
            ),
        ],
    )


def rates(reader: Reader, query: Query) -> Page:
    """Messages into and out of all masters, a second; of the last minutes.

    minutes.
    """
    minutes = query.number("minutes", 15, 1, 360)
    first_ms = reader.now_ms - minutes * 60_000
    lines = [
        Line(name, "msg/s", reader.history.read((CLUSTER, figure), first_ms, reader.now_ms))
        for name, figure in (("in", IN_TPS), ("out", OUT_TPS))
    ]
    return Page(data=plot_data(lines))


def _row(broker: BrokerSeen, now_ms: int) -> list[object]:
    place, runtime = broker.place, broker.runtime.value or {}
    known = bool(runtime)
    return [
        place.cluster,
        link(place.broker_name, group_url(place.cluster, place.broker_name)),
        place.broker_id,
        place.address,
        badge(broker_state(broker)),
        broker.version,
        _number(first_number(runtime.get("putTps")), known=known),
        _number(first_number(runtime.get(out_tps_key(runtime))), known=known),
        _disk(broker),
        _ready(broker),
        None if (count := restarts(broker)) is None else whole(count),
    ]


def _disk(broker: BrokerSeen) -> TableCell | None:
    """The fullest partition, of one of ours; of another broker that of its commit log."""
    used = disk_ratio(broker)
    return None if used is None else _share(used)


def _ready(broker: BrokerSeen) -> TableCell | None:
    is_ready = (
        None if broker.metrics.value is None else broker.metrics.value.total(names.BROKER_READY)
    )
    if is_ready is None:
        return None
    state, text = ("well", "ready") if is_ready else ("critical", "not ready")
    return TableCell(text, text, badge=state)


def _number(value: float, *, known: bool) -> TableCell | None:
    return TableCell(f"{value:.1f}", value) if known else None


def _share(value: float) -> TableCell:
    return TableCell(f"{value:.0%}", value)


def broker_state(broker: BrokerSeen) -> str:
    """In one word, for a badge."""
    if not broker.registered:
        return "gone"
    if broker.newest_error is not None:
        return "silent"
    if not broker.newest_ms:
        return "unknown"
    return "master" if broker.is_master else "slave"


VIEWS: Final = [
    View("/", "Overview", "Overview", "overview.html.j2", overview),
    View("/rates", "Rates", "", "", rates),
]
