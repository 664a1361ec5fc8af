"""Many topics or groups at once: updateTopicList, updateSubGroupList.

(Java: UpdateTopicListSubCommand, UpdateSubGroupListSubCommand.)
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import click

from remoting.body.json_bean import JsonBean
from remoting.body.subscription_group_config import SubscriptionGroupConfig, SubscriptionGroupList
from remoting.body.topic_config import CreateTopicListRequestBody, TopicConfig
from remoting.remoting_serializable import JsonError, loads_lenient
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.errors import AdminError
from tools.report import Report
from tools.targets import ADDRESS_OPTION, master_targets

_Bean = TypeVar("_Bean", bound=JsonBean)

_CLUSTER = click.option("-c", "--clusterName", "cluster", help="All masters of this cluster.")
_FILE = click.option(
    "-f",
    "--filename",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    help="A JSON file: a list of what config/*.json has.",
)


@command("updateTopicList")
@ADDRESS_OPTION
@_CLUSTER
@_FILE
def update_topic_list(
    admin: AdminClient, address: str | None, cluster: str | None, path: Path
) -> Report:
    """Create or change the topics of a file."""
    body = CreateTopicListRequestBody(topic_config_list=_read(path, TopicConfig))
    targets = _send(admin, address, cluster, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
    return _report("topic config", targets, [each.topic_name for each in body.topic_config_list])


@command("updateSubGroupList")
@ADDRESS_OPTION
@_CLUSTER
@_FILE
def update_sub_group_list(
    admin: AdminClient, address: str | None, cluster: str | None, path: Path
) -> Report:
    """Create or change the groups of a file."""
    body = SubscriptionGroupList(group_config_list=_read(path, SubscriptionGroupConfig))
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    targets = _send(admin, address, cluster, code, body)
    return _report("group config", targets, [each.group_name for each in body.group_config_list])


def _read(path: Path, kind: type[_Bean]) -> list[_Bean]:
    """The file's list. AdminError when it is not one, or empty."""
    try:
        rows = loads_lenient(path.read_bytes())
    except (OSError, JsonError) as error:
        raise AdminError(f"{path} cannot be read: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise AdminError(f"{path} holds no list, or an empty one")
    found = []
    for number, row in enumerate(rows, start=1):
        try:
            found.append(kind.from_json(row))
        except ValueError as error:
            raise AdminError(f"{path}, row {number}: {error}") from error
    return found


def _send(
    admin: AdminClient, address: str | None, cluster: str | None, code: RequestCode, body: JsonBean
) -> list[str]:
    targets = master_targets(admin, address, cluster)
    for target in targets:
        admin.call(target, code, body=body.to_json_bytes())
    return targets


def _report(what: str, targets: list[str], names: list[str]) -> Report:
    lines = [
        f"submit batch of {what} to {target} success, please check the result later."
        for target in targets
    ]
    return Report("\n".join(lines), {"brokerAddrs": targets, "names": names})
