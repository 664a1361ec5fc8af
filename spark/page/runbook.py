"""What to do about each cause of an incident: the page's own runbook, which needs no network.

Plain data, shown by spark/page/report_page.py. Each entry names the heading of the documentation
that has the whole of it; tests hold that the headings are there, and that no cause is without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Entry:
    """`meaning`: what the dumps show; `steps`: what to look at first; `heading`: (file below docs/,
    heading) with the whole of it."""

    meaning: str
    steps: str
    heading: tuple[str, str]


RUNBOOK: Final[dict[str, Entry]] = {
    "master_restart": Entry(
        "The master was down, or was started again.",
        "The last lines of its broker.log say whether it was stopped or killed. Where nobody "
        "stopped it, look for the kernel's memory killer (dmesg) and for a full disk.",
        ("monitoring.md", "RocketMQBrokerVanished"),
    ),
    "failover": Entry(
        "Another broker became master, or this one lost its dumps.",
        "A group with a controller elects by itself: see the elections. In any other: was a slave "
        "promoted on purpose? Make sure that the old master does not take writes, and that it "
        "comes back as a slave.",
        ("replication.md", "Promotion, when the master is lost"),
    ),
    "ha_restart": Entry(
        "The master's process ha ended and was started again, or was not up.",
        "ha.log says why it ended. Once: keep the log. Repeatedly: the supervisor stops the "
        "broker after six ends within a minute.",
        ("monitoring.md", "RocketMQProcessRestarting"),
    ),
    "disconnected": Entry(
        "The master had no connection to the replica.",
        "Is the slave running? Then its ha.log says why it cannot connect: the master's address, "
        "a firewall, TLS, or a refusal. Else start it: it resumes where it stopped.",
        ("monitoring.md", "RocketMQReplicaDown"),
    ),
    "fell_behind": Entry(
        "The replica was connected, but had to catch up.",
        "After a long absence that is normal: the lag has to fall. If it comes and goes, look at "
        "the reconnects and at ha.log.",
        ("monitoring.md", "RocketMQReplicaNotInSync"),
    ),
    "stalled": Entry(
        "The replica was in sync, but acknowledged nothing for a while.",
        "Bytes that stay constant above 0 mean that it hangs: look at its disk, then restart the "
        "slave.",
        ("monitoring.md", "RocketMQReplicaLagHigh"),
    ),
    "slow": Entry(
        "The replica was in sync, but acknowledged more slowly than producers sent.",
        "Its disk or the network is slower than the producers: compare the throughput with the "
        "lag, and look at what else uses the disk.",
        ("monitoring.md", "RocketMQReplicaLagHigh"),
    ),
}
"""By cause (docs/sla_report.md, "Incidents")."""


def anchor(heading: str) -> str:
    """The fragment that GitHub gives a heading."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def link(cause: str, runbook_url: str | None) -> str | None:
    """Where a cause leads: to the heading of that name of the objective's own runbook, else to the
    entry on the page; None for a cause that has none."""
    if runbook_url is not None:
        return runbook_url if "#" in runbook_url else f"{runbook_url}#{cause}"
    return f"#runbook-{cause}" if cause in RUNBOOK else None
