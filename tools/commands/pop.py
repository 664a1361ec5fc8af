"""Groups that pop: setConsumeMode, exportPopRecord.

(Java: SetConsumeModeSubCommand, ExportPopRecordCommand.)
"""

from __future__ import annotations

from typing import Any

import click

from remoting.body.message_request_mode import (
    MessageRequestMode,
    SetMessageRequestModeRequestBody,
)
from remoting.errors import RemotingError
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.errors import AdminError
from tools.properties_text import parse_lines
from tools.report import Report, Reports
from tools.targets import ADDRESS_OPTION, master_targets, need_one

_EXPORT_TIMEOUT_MS = 30_000


@command("setConsumeMode")
@ADDRESS_OPTION
@click.option("-c", "--clusterName", "cluster", help="All masters of this cluster.")
@click.option("-t", "--topicName", "topic", required=True, help="Topic name.")
@click.option("-g", "--groupName", "group", required=True, help="Consumer group name.")
@click.option(
    "-m",
    "--mode",
    type=click.Choice([mode.value for mode in MessageRequestMode]),
    required=True,
    help="How its members get messages.",
)
@click.option(
    "-q",
    "--popShareQueueNum",
    "share",
    type=int,
    default=0,
    help="How many other members a popping one shares its queues with [0: all].",
)
def set_consume_mode(
    admin: AdminClient,
    address: str | None,
    cluster: str | None,
    topic: str,
    group: str,
    mode: str,
    share: int,
) -> Report:
    """Have the members of a group pull queues of their own, or pop."""
    body = SetMessageRequestModeRequestBody(
        topic=topic,
        consumer_group=group,
        mode=MessageRequestMode(mode),
        pop_share_queue_num=share,
    )
    targets = master_targets(admin, address, cluster)
    lines = []
    for target in targets:
        admin.call(target, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.to_json_bytes())
        lines.append(f"set consume mode to {target} success.")
    lines.append(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]")
    return Report("\n".join(lines), {"brokerAddrs": targets, **body.to_json()})


@command("exportPopRecord")
@ADDRESS_OPTION
@click.option("-c", "--clusterName", "cluster", help="All brokers of this cluster.")
@click.option("-d", "--dryRun", "dry_run", type=bool, default=False, help="Only say which.")
def export_pop_record(
    admin: AdminClient, address: str | None, cluster: str | None, dry_run: bool
) -> Reports:
    """Have brokers move the records of pop from their KV store back into the revive topic."""
    need_one(address, cluster)
    if address is not None:
        settings = parse_lines(admin.call(address, RequestCode.GET_BROKER_CONFIG).body)
        brokers = [(settings.get("brokerName", ""), address)]
    else:
        brokers = [(broker.broker_name, broker.address) for broker in admin.brokers(cluster)]
    lines, failures = [], []
    data: list[dict[str, Any]] = []
    for name, target in brokers:
        try:
            if not dry_run:
                admin.call(target, RequestCode.POP_ROLLBACK, timeout_ms=_EXPORT_TIMEOUT_MS)
        except (RemotingError, AdminError) as error:
            failures.append(str(error))
            continue
        dry = str(dry_run).lower()
        lines.append(f"Export broker records, brokerName={name}, brokerAddr={target}, dryRun={dry}")
        data.append({"brokerName": name, "brokerAddr": target, "dryRun": dry_run})
    if failures:
        done = ", ".join(each["brokerAddr"] for each in data) or "none"
        raise AdminError(f"succeeded at brokers: {done}; failed: {'; '.join(failures)}")
    return Report("\n".join(lines), data)
