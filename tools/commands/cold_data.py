"""Flow control of cold reads, of brokers that have it (5.x, ours): who reads what, and limits.

(Java: UpdateColdDataFlowCtrGroupConfigSubCommand, RemoveColdDataFlowCtrGroupConfigSubCommand,
GetColdDataFlowCtrInfoSubCommand, CommitLogSetReadAheadSubCommand.)

Tested by tests/tools/test_mqadmin_every_command.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import click

from remoting.errors import RemotingError
from remoting.remoting_serializable import JsonError, loads_body
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.errors import AdminError
from tools.properties_text import setting_body
from tools.report import Report, safe_line
from tools.targets import ADDRESS_OPTION, headed_targets, master_targets

_LAST_MS: Final = 253_402_300_800_000
"""The year 10000: no date that can be shown."""
_TIMES: Final = {
    "lastColdReadTimeMills": "lastColdReadTimeFormat",
    "createTimeMills": "createTimeFormat",
}
_MODE_FIELD: Final = "READ_AHEAD_MODE"
_CLUSTER_OPTION: Final = click.option(
    "-c", "--clusterName", "cluster", help="All masters of this cluster."
)
_ALL_OPTION: Final = click.option(
    "-c", "--clusterName", "cluster", help="All brokers of this cluster."
)


@command("updateColdDataFlowCtrGroupConfig")
@ADDRESS_OPTION
@_CLUSTER_OPTION
@click.option("-g", "--consumerGroup", "group", required=True, help="Consumer group.")
@click.option("-v", "--threshold", required=True, help="Bytes that it may read in 5 seconds.")
def update_cold_data_flow_ctr_group_config(
    admin: AdminClient, address: str | None, cluster: str | None, group: str, threshold: str
) -> Report:
    """Limit how much old data a group reads."""
    body = setting_body(group, threshold)
    code = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
    done = _each_master(admin, address, cluster, lambda target: admin.call(target, code, body=body))
    lines = [f"updateColdDataFlowCtrGroupConfig success, {target}" for target in done]
    data = {"brokerAddrs": done, "consumerGroup": group, "threshold": threshold}
    return Report("\n".join(lines), data)


@command("removeColdDataFlowCtrGroupConfig")
@ADDRESS_OPTION
@_CLUSTER_OPTION
@click.option("-g", "--consumerGroup", "group", required=True, help="Consumer group.")
def remove_cold_data_flow_ctr_group_config(
    admin: AdminClient, address: str | None, cluster: str | None, group: str
) -> Report:
    """Remove a group's own limit; the limit for all groups counts again."""
    body = group.strip().encode()
    code = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
    done = _each_master(admin, address, cluster, lambda target: admin.call(target, code, body=body))
    lines = [f"remove broker cold read threshold success, {target}" for target in done]
    return Report("\n".join(lines), {"brokerAddrs": done, "consumerGroup": group})


def _each_master(
    admin: AdminClient,
    address: str | None,
    cluster: str | None,
    ask: Callable[[str], object],
) -> list[str]:
    """Ask each; a refusal by one does not stop the others. Raises AdminError at the end."""
    done, failures = [], []
    for target in master_targets(admin, address, cluster):
        try:
            ask(target)
        except (RemotingError, AdminError) as error:
            failures.append(str(error))
        else:
            done.append(target)
    if failures:
        succeeded = f"succeeded at brokers: {', '.join(done)}; failed: " if done else ""
        raise AdminError(succeeded + "; ".join(failures))
    return done


@command("getColdDataFlowCtrInfo")
@ADDRESS_OPTION
@_ALL_OPTION
def get_cold_data_flow_ctr_info(
    admin: AdminClient, address: str | None, cluster: str | None
) -> Report:
    """Show which groups have read old data in the last minute, and the limits."""
    lines, data = [], {}
    for target, heading in headed_targets(admin, address, cluster).items():
        response = admin.call(target, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        lines.append(f" ============{heading}============")
        if not response.body:
            lines.append(f"Broker[{target}] has no cold ctr table !")
            continue
        data[target] = _info(target, bytes(response.body))
        # Fractions are Decimals (loads_body), which json does not know.
        shown = json.dumps(_with_times(data[target]), ensure_ascii=False, indent=2, default=float)
        lines += [safe_line(line) for line in shown.splitlines()]
    return Report("\n".join(lines), data)


def _info(target: str, body: bytes) -> dict[str, Any]:
    try:
        tree = loads_body(body)
    except JsonError as error:
        raise AdminError(f"broker {target}: an answer that is no JSON: {error}") from error
    if not isinstance(tree, dict):
        raise AdminError(f"broker {target}: an answer that is no JSON object")
    return tree


def _with_times(info: dict[str, Any]) -> dict[str, Any]:
    """Its times for people, as RocketMQ shows them."""
    table = info.get("runtimeTable")
    rows = table if isinstance(table, dict) else {}
    return {**info, "runtimeTable": {group: _row(row) for group, row in rows.items()}}


def _row(row: Any) -> Any:
    if not isinstance(row, dict):
        return row
    shown = {key: value for key, value in row.items() if key not in _TIMES}
    for key, name in _TIMES.items():
        if isinstance(row.get(key), int) and 0 <= row[key] < _LAST_MS:
            moment = time.localtime(row[key] / 1000)
            shown[name] = time.strftime("%Y-%m-%d %H:%M:%S", moment)
    return shown


@command("setCommitLogReadAheadMode")
@ADDRESS_OPTION
@_ALL_OPTION
@click.option(
    "-m",
    "--commitLogReadAheadMode",
    "mode",
    required=True,
    type=click.Choice(["0", "1"]),
    help="0: the kernel reads ahead, the default; 1: it does not.",
)
def set_commit_log_read_ahead_mode(
    admin: AdminClient, address: str | None, cluster: str | None, mode: str
) -> Report:
    """Let the kernel read ahead in the commit log, or not."""
    lines, data = [], {}
    for target, heading in headed_targets(admin, address, cluster).items():
        code = RequestCode.SET_COMMITLOG_READ_MODE
        response = admin.call(target, code, extra={_MODE_FIELD: mode})
        data[target] = response.remark
        lines.append(f" ============{heading}============")
        lines.append(f"commitLog set readAhead mode rstStr{safe_line(response.remark or '')}")
    return Report("\n".join(lines), data)
