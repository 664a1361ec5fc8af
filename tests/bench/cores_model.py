"""From two cores to many: what bin/bench cores measured, and what would follow from it.

Arithmetic only; shared by what measures (cores.py) and by the page (performance_page.py). The
figures of one load in one layout are

    msg_per_s   of all groups together
    p50_us, p99_us   the worst group's
    cpu_us      by process: processor time a message, microseconds; of all groups together
    load_us     the load generator's, a message
    cores       by process: how many cores it kept busy while the load ran, "loadgen" among them

The model. With remoting's r and all other processes' s microseconds a message, measured with two
groups at once, N cores with the clients elsewhere would take

    a group on each pair of cores    (N / 2) * e / max(r, s)
    a group on each core             N * e / (r + s)

messages a second. e is measured, too: what two groups took here together, of the 2 / (r1 + s1 + l1)
that one group's own figures, with the load generator's l1, would let two cores take; at most 1 (a
short load may look better, since some of its work is done behind it).

A Java broker is one process for all cores of a host. With its j microseconds a message, measured on
two cores, N cores take at most N / j: as if nothing in it waited for anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

ONE_CORE: Final = "one group, one core"
ONE_GROUP: Final = "one group, two cores"
PINNED_LOAD: Final = "one group, load on one core"
PINNED_GROUP: Final = "one group, remoting has a core"
TWO_GROUPS: Final = "two groups, two cores"
PINNED_GROUPS: Final = "two groups, a core each"
JAVA_ON_ONE: Final = "Java, one core"
JAVA_ON_TWO: Final = "Java, two cores"
GAINS: Final = (
    ("a second core for one group", ONE_GROUP, ONE_CORE),
    ("a second core for Java", JAVA_ON_TWO, JAVA_ON_ONE),
    ("a second group on two cores", TWO_GROUPS, ONE_GROUP),
    ("pinning the load of one group", PINNED_LOAD, ONE_GROUP),
    ("pinning one group's remoting, the rest and the load", PINNED_GROUP, ONE_GROUP),
    ("pinning two groups to a core each", PINNED_GROUPS, TWO_GROUPS),
    ("two groups beside Java, two cores", TWO_GROUPS, JAVA_ON_TWO),
)
"""What is gained by one layout over another, in words."""
HOSTS: Final = (8, 16, 32, 64)
"""Cores that the page shows."""
RECORD_KB: Final = 1.2
"""Of a message of 1 KiB in the log, and about what it is on the wire."""
_US: Final = 1e6


@dataclass(frozen=True, slots=True)
class Model:
    """What one load costs, in microseconds a message, and what two groups lose to each other."""

    remoting_us: float
    others_us: float
    kept: float
    """e: 1.0 when the second group loses nothing."""

    @classmethod
    def of(cls, one: Mapping[str, Any], two: Mapping[str, Any]) -> Model:
        """Of the same load in ONE_GROUP and in TWO_GROUPS."""
        alone_us = sum(one["cpu_us"].values()) + one["load_us"]
        remoting_us = two["cpu_us"]["remoting"]
        return cls(
            remoting_us=remoting_us,
            others_us=sum(two["cpu_us"].values()) - remoting_us,
            kept=min(1.0, two["msg_per_s"] / (2 * _US / alone_us)),
        )

    def on_pairs(self, cores: int) -> float:
        """Messages a second with a group on each pair of cores, as --auto makes them."""
        return cores // 2 * self.kept * _US / max(self.remoting_us, self.others_us)

    def on_each(self, cores: int) -> float:
        """Messages a second with a group on each core."""
        return cores * self.kept * _US / (self.remoting_us + self.others_us)


def models(report: Mapping[str, Any]) -> dict[str, Model]:
    """By load, for those that were measured in both layouts."""
    layouts = {layout["name"]: layout["loads"] for layout in report["layouts"]}
    one, two = (layouts.get(name, {}) for name in (ONE_GROUP, TWO_GROUPS))
    return {load: Model.of(one[load], two[load]) for load in one if load in two}


def java_at_best(report: Mapping[str, Any], load: str) -> float | None:
    """Java's processor time a message of a load, on two cores; None where it was not measured."""
    for layout in report["layouts"]:
        if layout["name"] == JAVA_ON_TWO and load in layout["loads"]:
            return float(sum(layout["loads"][load]["cpu_us"].values()))
    return None
