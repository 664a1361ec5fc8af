"""Groups that pop: setConsumeMode, exportPopRecord.

(Java: SetConsumeModeSubCommand, ExportPopRecordCommand.)
"""

from __future__ import annotations

from typing import Annotated, Any

import click

from remoting.body.message_request_mode import (
    MessageRequestMode,
    SetMessageRequestModeRequestBody,
)
from remoting.errors import RemotingError
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.broker_changes import MASTERS, Change, change
from tools.command_line import command
from tools.errors import AdminError
from tools.properties_text import parse_lines
from tools.report import Report, Reports
from tools.targets import Address, Members, need_one

_EXPORT_TIMEOUT_MS = 30_000


@change("setConsumeMode", MASTERS, "set consume mode to {} success.")
def set_consume_mode(
    topic: Annotated[str, "-t --topicName", "Topic name."],
    group: Annotated[str, "-g --groupName", "Consumer group name."],
    mode: Annotated[
        str,
        "-m --mode",
        "How its members get messages.",
        click.Choice([mode.value for mode in MessageRequestMode]),
    ],
    share: Annotated[
        int,
        "-q --popShareQueueNum",
        "How many other members a popping one shares its queues with [0: all].",
    ] = 0,
) -> Change:
    """Have the members of a group pull queues of their own, or pop."""
    body = SetMessageRequestModeRequestBody(
        topic=topic,
        consumer_group=group,
        mode=MessageRequestMode(mode),
        pop_share_queue_num=share,
    )
    line = f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]"
    code = RequestCode.SET_MESSAGE_REQUEST_MODE
    return Change(code, body=body.to_json_bytes(), data=body.to_json(), lines=(line,))


@command("exportPopRecord")
def export_pop_record(
    admin: AdminClient,
    address: Address,
    cluster: Members,
    dry_run: Annotated[bool, "-d --dryRun", "Only say which."] = False,
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
