"""Single brokers: brokerStatus, getBrokerConfig, and cleaning up.

(Java: BrokerStatusSubCommand, GetBrokerConfigCommand, CleanExpiredCQSubCommand,
CleanUnusedTopicCommand, DeleteExpiredCommitLogSubCommand.)
"""

from __future__ import annotations

from collections.abc import Callable

import click

from remoting.request_code import RequestCode
from tools.admin_client import MASTER_ID, AdminClient
from tools.command_line import command
from tools.properties_text import parse_lines, properties_lines
from tools.report import Report, Reports, safe_line

_ADDRESS = click.option("-b", "--brokerAddr", "address", help="Broker address, host:port.")


@command("brokerStatus", repeat="-i")
@_ADDRESS
@click.option("-c", "--clusterName", "cluster", help="All brokers of this cluster.")
def broker_status(admin: AdminClient, address: str | None, cluster: str | None) -> Report:
    """Every runtime number of one broker or of all brokers of a cluster."""
    _need_one(address, cluster)
    tables = {target: admin.runtime_info(target) for target in admin.targets(address, cluster)}
    lines = []
    for target, info in tables.items():
        prefix = f"{target:<24} " if address is None else ""
        lines += [f"{prefix}{key:<32}: {safe_line(info[key])}" for key in sorted(info)]
    return Report("\n".join(lines), tables)


def _need_one(address: str | None, cluster: str | None) -> None:
    if (address is None) == (cluster is None):
        raise click.UsageError("one of -b ADDRESS and -c CLUSTER is needed")


@command("getBrokerConfig", repeat="-i")
@_ADDRESS
@click.option("-c", "--clusterName", "cluster", help="All brokers of this cluster.")
def get_broker_config(admin: AdminClient, address: str | None, cluster: str | None) -> Report:
    """The settings that are in force."""
    _need_one(address, cluster)
    headings = {} if cluster is None else _headings(admin, cluster)
    if address is not None:
        headings = {address: address}
    lines, data = [], {}
    for target, heading in headings.items():
        response = admin.call(target, RequestCode.GET_BROKER_CONFIG)
        data[target] = parse_lines(response.body)
        lines += [f"============{heading}============", *properties_lines(data[target]), ""]
    return Report("\n".join(lines), data)


def _headings(admin: AdminClient, cluster: str) -> dict[str, str]:
    """What stands above each broker of a cluster, by address; a master before its slaves."""
    headings: dict[str, str] = {}
    masters: dict[str, str] = {}
    for broker in admin.brokers(cluster):
        if broker.broker_id == MASTER_ID:
            masters[broker.broker_name] = broker.address
            headings[broker.address] = f"Master: {broker.address}"
        else:
            master = masters.get(broker.broker_name, "none")
            headings[broker.address] = f"My Master: {master}=====Slave: {broker.address}"
    return headings


def _question(what: str) -> Callable[..., str]:
    def question(address: str | None, cluster: str | None) -> str:
        if address is not None:
            return f"{what} at broker {address}?"
        return f"{what} at {'every cluster' if cluster is None else f'cluster {cluster}'}?"

    return question


def _clean(name: str, code: RequestCode, what: str) -> click.Command:
    """A command that tells one broker, a cluster, or everybody to clean up."""

    @command(name, asks=_question(what))
    @_ADDRESS
    @click.option("-c", "--cluster", "cluster", help="Cluster name; all clusters without -b, -c.")
    def clean(admin: AdminClient, address: str | None, cluster: str | None) -> Reports:
        targets = admin.targets(address, cluster)
        for target in targets:
            admin.call(target, code)
        return Report("success" if targets else "false", {"brokerAddrs": targets})

    return clean


clean_expired_cq = _clean(
    "cleanExpiredCQ",
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "Delete consume queue files whose messages are gone",
)
clean_unused_topic = _clean(
    "cleanUnusedTopic",
    RequestCode.CLEAN_UNUSED_TOPIC,
    "Delete the queue files of topics that no longer exist",
)
delete_expired_commit_log = _clean(
    "deleteExpiredCommitLog",
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    "Delete commit log files older than the time they are kept",
)
