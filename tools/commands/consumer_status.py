"""consumerStatus: the running info of the members of a group, and anomalies in it.

(Java: ConsumerStatusSubCommand.)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final

from remoting.body.client_connection import Connection
from remoting.body.consumer_running_info import ConsumerRunningInfo
from remoting.errors import RemotingError, RequestError
from remoting.mq_version import version_name
from remoting.remoting_serializable import JavaDouble
from tools.admin_client import AdminClient
from tools.command_line import command, print_error
from tools.errors import AdminError
from tools.options import FLAG
from tools.report import Report, columns, table
from tools.running_info import format_running_info, queue_problems, same_subscription

STATUS_COLUMNS: Final = columns(
    "#Index index | #ClientId clientId | #Version version | #ConsumerRunningInfoFile file"
)
_UNSAFE_IN_NAME: Final = re.compile(r"[^A-Za-z0-9@#._-]")


@command("consumerStatus")
def consumer_status(
    admin: AdminClient,
    group: Annotated[str, "-g --consumerGroup", "Consumer group name."],
    client_id: Annotated[
        str | None, "-i --clientId", "Only this member, printed instead of written to a file."
    ],
    address: Annotated[str | None, "-b --brokerAddr", "Ask this broker who is online (host:port)."],
    with_jstack: Annotated[bool, "-s --jstack", "With the members' threads.", FLAG],
) -> Report:
    """Write a file of running info for each member, and report anomalies."""
    if client_id is not None:
        info = admin.consumer_running_info(group, client_id, with_jstack=with_jstack)
        return Report(format_running_info(info), running_info_json(info))
    found = admin.find_consumer_connection(group, address)
    if found is None:
        raise AdminError(f"no consumer of group {group} is online")
    clients = sorted(found.connection_set, key=lambda client: client.client_id)
    infos = _ask_members(admin, group, clients, with_jstack=with_jstack)
    return _status_report(clients, infos, admin.now_ms())


def _ask_members(
    admin: AdminClient, group: str, clients: list[Connection], *, with_jstack: bool
) -> dict[str, ConsumerRunningInfo]:
    """By client id; a member that fails to answer gets a line on stderr. AdminError if all do."""
    infos = {}
    for client in clients:
        try:
            infos[client.client_id] = admin.consumer_running_info(
                group, client.client_id, with_jstack=with_jstack
            )
        except (AdminError, RemotingError, RequestError) as error:
            print_error("consumerStatus", error)
    if not infos:
        raise AdminError(f"no member of group {group} returned its running info")
    return infos


def _status_report(
    clients: list[Connection], infos: dict[str, ConsumerRunningInfo], now_ms: int
) -> Report:
    rows: list[tuple[object, ...]] = []
    members: list[dict[str, Any]] = []
    for client in clients:
        if client.client_id not in infos:
            continue
        info = infos[client.client_id]
        version = version_name(client.version)
        path = _save(info, client.client_id, now_ms)
        rows.append((len(rows) + 1, client.client_id, version, path))
        member = {"clientId": client.client_id, "version": version, "file": str(path)}
        members.append(member | {"runningInfo": running_info_json(info)})
    same = same_subscription(infos, now_ms)
    problems = [line for name in infos for line in queue_problems(name, infos[name], now_ms)]
    lines = [table(STATUS_COLUMNS, rows).text, "", ""]
    if same:
        lines += ["Same subscription in the same group of consumer", "", "Rebalance OK", *problems]
    else:
        lines.append("WARN: Different subscription in the same group of consumer!!!")
    data = {"consumers": members, "sameSubscription": same, "problems": problems}
    return Report("\n".join(lines), data)


def _save(info: ConsumerRunningInfo, client_id: str, now_ms: int) -> Path:
    """Write it to <now>/<client id>, as RocketMQ does; an id cannot lead out of the directory."""
    name = _UNSAFE_IN_NAME.sub("_", client_id)[:200]
    path = Path(str(now_ms)) / (f"_{name}" if name[:1] in ("", ".") else name)
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(format_running_info(info) + "\n", encoding="utf-8")
    except OSError as error:
        raise AdminError(
            f"cannot write {path}: {error}; run mqadmin in a writable directory"
        ) from error
    return path


def running_info_json(info: ConsumerRunningInfo) -> dict[str, Any]:
    """For programs: lists of queues instead of Java's maps with objects as keys."""
    tree: dict[str, Any] = {
        "properties": info.properties,
        "subscriptions": [data.to_json() for data in info.subscription_set],
        "queues": [queue.to_json() | state.to_json() for queue, state in info.mq_table.items()],
        "topics": [
            {"topic": topic, **{key: _plain(value) for key, value in rates.to_json().items()}}
            for topic, rates in sorted(info.status_table.items())
        ],
    }
    if info.jstack is not None:
        tree["jstack"] = info.jstack
    return tree


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, JavaDouble) else value
