"""The brokers that a command addresses: -b one address, or -c a cluster.

Runs in the command's main thread. RocketMQ silently prefers the address when both are given;
here both or neither is a usage error. (Java: CommandUtil.)
"""

from __future__ import annotations

from typing import Annotated

import click

from tools.admin_client import MASTER_ID, AdminClient

Address = Annotated[str | None, "-b --brokerAddr", "Broker address, host:port."]
Members = Annotated[str | None, "-c --clusterName", "All brokers of this cluster."]
Masters = Annotated[str | None, "-c --clusterName", "All masters of this cluster."]


def need_one(address: str | None, cluster: str | None) -> None:
    """A usage error unless exactly one is given."""
    if (address is None) == (cluster is None):
        raise click.UsageError("one of -b ADDRESS and -c CLUSTER is needed")


def master_targets(admin: AdminClient, address: str | None, cluster: str | None) -> list[str]:
    """The address given, or all masters of the cluster."""
    need_one(address, cluster)
    if address is not None:
        return [address]
    return [master.address for master in admin.masters(cluster or "")]


def member_targets(admin: AdminClient, address: str | None, cluster: str | None) -> list[str]:
    """The address given, or all masters and slaves of the cluster."""
    need_one(address, cluster)
    return admin.targets(address, cluster)


def headed_targets(admin: AdminClient, address: str | None, cluster: str | None) -> dict[str, str]:
    """The address given, or all brokers of the cluster, a master before its slaves; each with the
    heading of what is printed about it."""
    need_one(address, cluster)
    if address is not None:
        return {address: address}
    headings: dict[str, str] = {}
    masters: dict[str, str] = {}
    for broker in admin.brokers(cluster or ""):
        if broker.broker_id == MASTER_ID:
            masters[broker.broker_name] = broker.address
            headings[broker.address] = f"Master: {broker.address}"
        else:
            master = masters.get(broker.broker_name, "none")
            headings[broker.address] = f"My Master: {master}=====Slave: {broker.address}"
    return headings


def place_text(address: str | None, cluster: str | None) -> str:
    """The target, for a question: one of the two is given."""
    return f"broker {address}" if address is not None else f"cluster {cluster}"
