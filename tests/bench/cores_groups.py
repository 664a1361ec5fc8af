"""How broker groups of one container disturb each other: `bin/bench cores --groups 1,2,4,8`.

What two cores can tell of many groups. All groups on one core, their load generators on the other,
where they take nothing from them: were it not for the switches among more processes and the caches
that these share, any number of groups would take as many messages a second there as one. Then the
same on both cores, the load generators among them, as on a host with too many groups. The messages
are the same in all layouts, divided among the groups; "in all" has 64 connections of all groups
together, as from the same clients, so each group finds fewer requests in a turn.

Arithmetic and lists; cores.py measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.bench.cores import Group, Layout, Loads

CONNECTIONS: Final = 64
IN_FLIGHT: Final = 4
_ON_ONE: Final = "one core"
_ON_TWO: Final = "two cores"


def group_layouts(text: str) -> tuple[Layout, ...]:
    """Of "1,2,4,8": on one core and on two. Raises SystemExit for what cannot be measured."""
    try:
        counts = [int(each) for each in text.split(",")]
    except ValueError:
        raise SystemExit(f"cores: --groups {text}: numbers are needed, such as 1,2,4,8") from None
    if not all(0 < count <= CONNECTIONS and CONNECTIONS % count == 0 for count in counts):
        raise SystemExit(f"cores: --groups {text}: each must divide {CONNECTIONS} connections")
    places = {_ON_ONE: Group((0,), (0,), (1,)), _ON_TWO: Group()}
    return tuple(
        Layout(f"{count} on {name}", (group,) * count, loads=_loads(count), parts=count)
        for name, group in places.items()
        for count in counts
    )


def _loads(groups: int) -> Loads:
    return {
        f"send {CONNECTIONS}x{IN_FLIGHT} in all": (CONNECTIONS // groups, IN_FLIGHT),
        f"send {CONNECTIONS}x{IN_FLIGHT} a group": (CONNECTIONS, IN_FLIGHT),
        "pull 32": None,
    }


def group_rows(data: Mapping[str, Any]) -> Iterator[list[str]]:
    """One for each layout and load, ratios to the first layout on the same cores beside each."""
    first: dict[tuple[str, str], Mapping[str, Any]] = {}
    for layout in data["layouts"]:
        groups, _, cores = layout["name"].partition(" on ")
        for load, one in layout["loads"].items():
            than = first.setdefault((cores, load), one)
            spent, before = (sum(each["cpu_us"].values()) for each in (one, than))
            yield [
                cores,
                load,
                groups,
                f"{one['msg_per_s']:,.0f}",
                f"{one['msg_per_s'] / than['msg_per_s']:.2f}",
                f"{one['cpu_us']['remoting']:.1f}",
                f"{spent - one['cpu_us']['remoting']:.1f}",
                f"{spent / before:.2f}",
                f"{one['p99_us']:,.0f}" if one["p99_us"] else "–",
            ]


HEAD: Final = (
    "on",
    "load",
    "groups",
    "messages/s",
    "of the first",
    "remoting, µs",
    "others, µs",
    "of the first",
    "p99, µs",
)


def group_lines(data: Mapping[str, Any]) -> list[str]:
    """The table, for people."""
    rows = [list(HEAD), *sorted(group_rows(data), key=lambda row: row[:2])]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
