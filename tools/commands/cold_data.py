"""Flow control of cold reads, of brokers that have it (5.x, ours): who reads what, and limits.

(Java: UpdateColdDataFlowCtrGroupConfigSubCommand, RemoveColdDataFlowCtrGroupConfigSubCommand,
GetColdDataFlowCtrInfoSubCommand, CommitLogSetReadAheadSubCommand.)
"""

from __future__ import annotations

import json
import time
from typing import Annotated, Any, Final

import click

from remoting.remoting_serializable import JsonError, loads_body
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.broker_changes import MASTERS, Change, change
from tools.command_line import command
from tools.errors import AdminError
from tools.properties_text import setting_body
from tools.report import Report, safe_line
from tools.targets import Address, Members, headed_targets

_LAST_MS: Final = 253_402_300_800_000
"""The year 10000: no date that can be shown."""
_TIMES: Final = {
    "lastColdReadTimeMills": "lastColdReadTimeFormat",
    "createTimeMills": "createTimeFormat",
}
_Group = Annotated[str, "-g --consumerGroup", "Consumer group."]
_MODE_FIELD: Final = "READ_AHEAD_MODE"


@change(
    "updateColdDataFlowCtrGroupConfig",
    MASTERS,
    "updateColdDataFlowCtrGroupConfig success, {}",
    goes_on=True,
)
def update_cold_data_flow_ctr_group_config(
    group: _Group,
    threshold: Annotated[str, "-v --threshold", "Bytes that it may read in 5 seconds."],
) -> Change:
    """Limit how much old data a group reads."""
    code = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
    data = {"consumerGroup": group, "threshold": threshold}
    return Change(code, body=setting_body(group, threshold), data=data)


@change(
    "removeColdDataFlowCtrGroupConfig",
    MASTERS,
    "remove broker cold read threshold success, {}",
    goes_on=True,
)
def remove_cold_data_flow_ctr_group_config(group: _Group) -> Change:
    """Remove a group's own limit; the limit for all groups counts again."""
    code = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
    return Change(code, body=group.strip().encode(), data={"consumerGroup": group})


@command("getColdDataFlowCtrInfo")
def get_cold_data_flow_ctr_info(admin: AdminClient, address: Address, cluster: Members) -> Report:
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
def set_commit_log_read_ahead_mode(
    admin: AdminClient,
    address: Address,
    cluster: Members,
    mode: Annotated[
        str,
        "-m --commitLogReadAheadMode",
        "0: the kernel reads ahead, the default; 1: it does not.",
        click.Choice(["0", "1"]),
    ],
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
