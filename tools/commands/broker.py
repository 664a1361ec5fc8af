"""Single brokers: brokerStatus, their settings, and cleaning up.

(Java: BrokerStatusSubCommand, GetBrokerConfigCommand, UpdateBrokerConfigSubCommand,
CleanExpiredCQSubCommand, CleanUnusedTopicCommand, DeleteExpiredCommitLogSubCommand.)
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import click

from remoting.errors import RemotingError
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.errors import AdminError
from tools.options import SettingKey, SettingValue
from tools.properties_text import parse_lines, properties_lines, setting_body
from tools.report import Report, safe_line
from tools.targets import (
    Address,
    Masters,
    Members,
    headed_targets,
    master_targets,
    member_targets,
    place_text,
)

_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


@command("brokerStatus")
def broker_status(admin: AdminClient, address: Address, cluster: Members) -> Report:
    """All runtime statistics of one broker or of all brokers of a cluster."""
    targets = member_targets(admin, address, cluster)
    tables = {target: admin.runtime_info(target) for target in targets}
    lines = []
    for target, info in tables.items():
        prefix = f"{target:<24} " if address is None else ""
        lines += [f"{prefix}{key:<32}: {safe_line(info[key])}" for key in sorted(info)]
    data = {
        target: {key: _json_value(key, value) for key, value in info.items()}
        for target, info in tables.items()
    }
    return Report("\n".join(lines), data)


def _json_value(key: str, text: str) -> Any:
    """A runtime number as a number, the rates of several spans as a list; the rest as text."""
    if key.endswith("Tps"):
        return [float(part) for part in text.split() if _NUMBER.fullmatch(part)]
    if _NUMBER.fullmatch(text) is None:
        return text
    return float(text) if "." in text else int(text)


@command("getBrokerConfig")
def get_broker_config(admin: AdminClient, address: Address, cluster: Members) -> Report:
    """The settings that are in force."""
    lines, data = [], {}
    for target, heading in headed_targets(admin, address, cluster).items():
        response = admin.call(target, RequestCode.GET_BROKER_CONFIG)
        data[target] = parse_lines(response.body)
        lines += [f"============{heading}============", *properties_lines(data[target]), ""]
    return Report("\n".join(lines), data)


@command("updateBrokerConfig")
def update_broker_config(
    admin: AdminClient,
    address: Address,
    cluster: Masters,
    key: SettingKey,
    value: SettingValue,
    with_slaves: Annotated[bool, "-a --updateAllBroker", "Slaves, too."] = False,
) -> Report:
    """Change a setting; a refusal by one broker of a cluster does not stop the others."""
    body = setting_body(key, value)
    lines, failures = [], []
    done: dict[str, str | None] = {}
    targets = member_targets if with_slaves else master_targets
    for target in targets(admin, address, cluster):
        try:
            response = admin.call(target, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        except (RemotingError, AdminError) as error:
            failures.append(str(error))
            continue
        done[target] = response.remark
        lines.append(f"update broker config success, {target}")
        if response.remark:
            lines.append(safe_line(response.remark))
    if failures and not done:
        raise AdminError("; ".join(failures))
    if failures:
        raise AdminError(f"succeeded at brokers: {', '.join(done)}; failed: {'; '.join(failures)}")
    data = {"brokerAddrs": list(done), "key": key, "value": value, "remarks": done}
    return Report("\n".join(lines), data)


def _clean(name: str, code: RequestCode, what: str) -> click.Command:
    """A command that has one broker, a cluster, or all clusters clean up."""

    def question(address: str | None, cluster: str | None) -> str:
        where = "every cluster" if address is cluster is None else place_text(address, cluster)
        return f"{what} at {where}?"

    @command(name, asks=question)
    def clean(
        admin: AdminClient,
        address: Address,
        cluster: Annotated[
            str | None, "-c --cluster", "Cluster name; all clusters without -b, -c."
        ],
    ) -> Report:
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
