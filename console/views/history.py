"""History: lag and state of a group's replicas over an hour, a day or forty days, incidents marked.

From the brokers' dumps: of the directory that `--dumps` names, else as the brokers tell them. Where
neither is, as for Java brokers, from what this console has seen since it was started, six hours at
most. A gap is shown as a gap.

Tested by tests/console/test_history_view.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from console.broker_history import ask_group
from console.dumps import Dumps, Spell, Stretch, joined
from console.figures import REPLICA_STATES, STATE
from console.health import group_url
from console.history import FINE_MS, STEPS, Series
from console.page import ConsoleError, Page, Query, Reader, View
from console.plots import Line, plot_data
from console.snapshot import BrokerSeen
from console.tables import Table, TableCell, link, moment
from console.views.replication import group_query, lag_lines
from tools.commands.ha_status import duration_text
from tools.report import columns

MINUTE_MS: Final = 60_000
SPANS: Final = {
    "hour": (3_600_000, 5_000),
    "day": (86_400_000, MINUTE_MS),
    "40days": (40 * 86_400_000, 30 * MINUTE_MS),
}
"""How long, and the step of the plot."""
TITLES: Final = {"hour": "the last hour", "day": "the last day", "40days": "the last 40 days"}
MARKS: Final = 200
"""Incidents that a plot marks; the table has all."""
INCIDENTS: Final = columns("From from | To to | Lasted lasted > | Who who | What what")
GROUPS: Final = columns("Group brokerName | Cluster cluster | History history")
DUMPS: Final = "dumps"
"""Of Reader.options: a console.dumps.Dumps."""


def history(reader: Reader, query: Query) -> Page:
    """One group over a span, or which groups there are."""
    name = query.text("name")
    if not name:
        return _groups(reader)
    cluster = query.needed("cluster")
    span = query.choice("span", tuple(SPANS))
    spells, sentences = _past(reader, cluster, name, span)
    own = group_query(cluster, name)
    return Page(
        title=f"{name}: {TITLES[span]}",
        context={
            "crumbs": [("Replication now", "/replication"), (name, group_url(cluster, name))],
            "plot_title": f"Lag of its replicas, {TITLES[span]}",
            "plot_url": f"/replication/history/plot.json?{own}&span={span}",
            "spans": [
                (TITLES[one], f"/replication/history?{own}&span={one}", one == span)
                for one in SPANS
            ],
            "sentences": sentences,
        },
        tables=[
            Table(
                "incidents",
                "Incidents",
                INCIDENTS,
                [_row(spell) for spell in spells],
                empty_text="None that is known.",
                sort="from",
                descending=True,
            )
        ],
    )


def history_plot(reader: Reader, query: Query) -> Page:
    """The figures of the plot: JSON only."""
    cluster, name = query.needed("cluster"), query.needed("name")
    span = query.choice("span", tuple(SPANS))
    length_ms, _ = SPANS[span]
    stretch = _stretch(reader, cluster, name, span)
    lines: list[Line] = []
    if stretch is not None:
        lines = [Line(who, "s", series) for who, series in stretch.lag_s.items()]
        lines += [Line(who, "bytes", series) for who, series in stretch.lag_bytes.items()]
    if not lines:
        members = reader.snapshot.groups().get((cluster, name), [])
        lines = lag_lines(reader, members, reader.now_ms - length_ms, reader.now_ms)
    spells, _ = _past(reader, cluster, name, span)
    marks = [(spell.from_ms, spell.to_ms, f"{spell.who} {spell.what}") for spell in spells]
    return Page(data=plot_data(lines, marks[-MARKS:]))


def _groups(reader: Reader) -> Page:
    rows = [
        [
            link(name, group_url(cluster, name)),
            cluster,
            link("hour, day, 40 days", f"/replication/history?{group_query(cluster, name)}"),
        ]
        for cluster, name in reader.snapshot.groups()
    ]
    return Page(
        context={"crumbs": [], "plot_url": "", "plot_title": "", "spans": [], "sentences": []},
        tables=[Table("incidents", "Broker groups", GROUPS, rows, empty_text="None is known.")],
    )


def _row(spell: Spell) -> list[object]:
    length_ms = spell.to_ms - spell.from_ms
    lasted = TableCell(duration_text(length_ms / 1000), length_ms) if length_ms else None
    return [moment(spell.from_ms), moment(spell.to_ms), lasted, spell.who, spell.what]


def _stretch(reader: Reader, cluster: str, name: str, span: str) -> Stretch | None:
    """Of the dumps: of a directory, else as the brokers tell them; None when nobody does."""
    dumps = reader.options.get(DUMPS)
    length_ms, step_ms = SPANS[span]
    if not isinstance(dumps, Dumps):
        return ask_group(reader, reader.snapshot.groups().get((cluster, name), []), length_ms)
    return dumps.read((cluster, name), reader.now_ms - length_ms, reader.now_ms, step_ms)


def _past(reader: Reader, cluster: str, name: str, span: str) -> tuple[list[Spell], list[str]]:
    """Incidents, and what the reader should know of where the figures are from."""
    members = reader.snapshot.groups().get((cluster, name), [])
    stretch = _stretch(reader, cluster, name, span)
    if stretch is None or not stretch.files:
        if not members and stretch is None:
            raise ConsoleError(f"there is no broker group {name} in cluster {cluster}", 404)
        return own_spells(reader, members, SPANS[span][0]), _own_sentences(stretch, members, span)
    if not isinstance(reader.options.get(DUMPS), Dumps):
        said = f"From the own dumps of {stretch.files} of {stretch.files + stretch.unread} brokers."
        return stretch.spells, [said, *stretch.problems]
    sentences = [f"From {stretch.files} files of the brokers' own dumps."]
    if stretch.unread:
        sentences = [
            f"{stretch.files - stretch.unread} of {stretch.files} files of the brokers' own dumps "
            "are read so far, the newest first; the plot goes on reading, and so does this page "
            "when it is loaded again."
        ]
    return stretch.spells, sentences + stretch.problems


def _own_sentences(stretch: Stretch | None, members: Sequence[BrokerSeen], span: str) -> list[str]:
    said = ["What this console has seen since it was started, six hours at most."]
    if any(broker.is_ours is False for broker in members):
        said.append("Brokers of another make keep no history of their replication.")
    elif stretch is None and span != "hour":
        said.append(
            "The brokers keep 40 days on their disks: start the console with --dumps and that "
            "directory to see them here."
        )
    elif stretch is not None:
        said.append("The directory of --dumps has no file of this group and time.")
    return said + (stretch.problems if stretch is not None else [])


def own_spells(reader: Reader, members: Sequence[BrokerSeen], length_ms: int) -> list[Spell]:
    """Incidents of the group's replicas that the console has seen itself."""
    addresses = {broker.place.address for broker in members}
    found: list[Spell] = []
    for owner, figure in reader.history.names():
        address, _, replica = owner.partition(" ")
        if figure == STATE and address in addresses:
            length_ms = min(length_ms, reader.now_ms)
            read = reader.history.read((owner, STATE), reader.now_ms - length_ms, reader.now_ms)
            found += _spells_of(replica, read)
    return joined(found, gap_ms=0)


def _spells_of(replica: str, read: Series) -> list[Spell]:
    """A step without an answer ends what was: nobody knows it."""
    found: list[Spell] = []
    step_ms = read.times_ms[1] - read.times_ms[0] if len(read.times_ms) > 1 else FINE_MS
    for at_ms, value in zip(read.times_ms, read.values, strict=True):
        if value is None or not 0 < value < len(REPLICA_STATES):
            continue
        found.append(Spell(replica, REPLICA_STATES[int(value)], at_ms, at_ms + step_ms))
    return found


VIEWS: Final = [
    View("/replication/history", "History", "Replication", "history.html.j2", history),
    View("/replication/history/plot", "Plot", "", "", history_plot),
]
assert SPANS["hour"][0] == FINE_MS * STEPS
