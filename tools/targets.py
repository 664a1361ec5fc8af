"""The brokers that a command addresses: -b one address, or -c a cluster.

Runs in the command's main thread. RocketMQ silently prefers the address when both are given;
here both or neither is a usage error. (Java: CommandUtil.)
"""

from __future__ import annotations

import click

from tools.admin_client import AdminClient

ADDRESS_OPTION = click.option("-b", "--brokerAddr", "address", help="Broker address, host:port.")


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


def place_text(address: str | None, cluster: str | None) -> str:
    """The target, for a question: one of the two is given."""
    return f"broker {address}" if address is not None else f"cluster {cluster}"
