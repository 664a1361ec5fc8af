"""Accounts and white lists of brokers: updateAclConfig, deleteAclConfig, clusterAclConfigVersion,
updateGlobalWhiteAddr.

A secret key is sent, never shown. (Java: UpdateAccessConfigSubCommand,
DeleteAccessConfigSubCommand, ClusterAclConfigVersionListSubCommand,
UpdateGlobalWhiteAddrSubCommand.)

Tested by tests/tools/test_mqadmin_acl.py.
"""

from __future__ import annotations

from typing import Any, Final

import click

from remoting.body.data_version import DataVersion
from remoting.command_custom_header import decode_header, encode_header
from remoting.errors import RemotingTimeoutError
from remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from remoting.remoting_serializable import loads_lenient
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.errors import AdminError
from tools.message_text import second_text
from tools.report import Column, Report, safe_line, table
from tools.targets import ADDRESS_OPTION, master_targets, member_targets, place_text

VERSION_COLUMNS: Final = (
    Column("#Cluster Name", "clusterName"),
    Column("#Broker Name", "brokerName"),
    Column("#Broker Addr", "brokerAddr"),
    Column("#AclFilePath", "aclFilePath"),
    Column("#AclConfigVersionNum", "aclConfigVersionNum"),
    Column("#AclLastUpdateTime", "aclLastUpdateTime"),
)

_MEMBERS = click.option("-c", "--clusterName", "cluster", help="All brokers of this cluster.")
_ACCESS_KEY = click.option("-a", "--accessKey", "access_key", required=True, help="The account.")


@command("updateAclConfig")
@ADDRESS_OPTION
@_MEMBERS
@_ACCESS_KEY
@click.option("-s", "--secretKey", "secret_key", required=True, help="Its secret.")
@click.option("-w", "--whiteRemoteAddress", "white", help="Addresses that need no signature.")
@click.option("-i", "--defaultTopicPerm", "topic_perm", help="DENY, PUB, SUB or PUB|SUB.")
@click.option("-u", "--defaultGroupPerm", "group_perm", help="DENY or SUB.")
@click.option("-t", "--topicPerms", "topic_perms", help="topicA=DENY,topicD=SUB")
@click.option("-g", "--groupPerms", "group_perms", help="groupA=DENY,groupD=SUB")
@click.option(
    "-m",
    "--admin",
    "is_admin",
    type=bool,
    default=False,
    help="Whether the account is an administrator (true|false).",
)
def update_acl_config(
    admin: AdminClient,
    address: str | None,
    cluster: str | None,
    access_key: str,
    secret_key: str,
    white: str | None,
    topic_perm: str | None,
    group_perm: str | None,
    topic_perms: str | None,
    group_perms: str | None,
    is_admin: bool,
) -> Report:
    """Create or change an account at one broker or at all brokers of a cluster."""
    header = CreateAccessConfigRequestHeader(
        access_key=access_key,
        secret_key=secret_key,
        white_remote_address=white,
        admin=is_admin,
        default_topic_perm=topic_perm,
        default_group_perm=group_perm,
        topic_perms=topic_perms,
        group_perms=group_perms,
    )
    targets = member_targets(admin, address, cluster)
    lines = []
    for target in targets:
        admin.call(target, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)
        lines.append(f"create or update plain access config to {target} success.")
    shown = {name: text for name, text in encode_header(header).items() if name != "secretKey"}
    facts = ", ".join(f"{name}={text}" for name, text in shown.items())
    lines.append(safe_line(f"PlainAccessConfig [{facts}]"))
    data = {"brokerAddrs": targets, "plainAccessConfig": shown | {"admin": is_admin}}
    return Report("\n".join(lines), data)


def _delete_question(address: str | None, cluster: str | None, access_key: str) -> str:
    return f"Delete account {access_key} from {place_text(address, cluster)}?"


@command("deleteAclConfig", asks=_delete_question)
@ADDRESS_OPTION
@_MEMBERS
@_ACCESS_KEY
def delete_acl_config(
    admin: AdminClient, address: str | None, cluster: str | None, access_key: str
) -> Report:
    """Delete an account at one broker or at all brokers of a cluster."""
    header = DeleteAccessConfigRequestHeader(access_key=access_key)
    targets = member_targets(admin, address, cluster)
    lines = []
    for target in targets:
        admin.call(target, RequestCode.DELETE_ACL_CONFIG, header)
        lines.append(f"delete plain access config account from {target} success.")
    lines.append(f"account's accesskey is:{access_key}")
    return Report("\n".join(lines), {"brokerAddrs": targets, "accessKey": access_key})


@command("updateGlobalWhiteAddr")
@ADDRESS_OPTION
@_MEMBERS
@click.option(
    "-g",
    "--globalWhiteRemoteAddresses",
    "addresses",
    required=True,
    help="Addresses that may do everything: 10.10.103.*,192.168.0.*",
)
@click.option("-p", "--aclFileFullPath", "path", help="Which of the broker's files.")
def update_global_white_addr(
    admin: AdminClient, address: str | None, cluster: str | None, addresses: str, path: str | None
) -> Report:
    """Replace the list at one broker or at all brokers of a cluster."""
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(
        global_white_addrs=addresses, acl_file_full_path=path
    )
    targets = member_targets(admin, address, cluster)
    lines = []
    for target in targets:
        admin.call(target, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)
        lines.append(f"update global white remote addresses to {target} success.")
    data = {
        "brokerAddrs": targets,
        "globalWhiteRemoteAddresses": addresses.split(","),
        "aclFileFullPath": path,
    }
    return Report("\n".join(lines), data)


@command("clusterAclConfigVersion")
@ADDRESS_OPTION
@click.option("-c", "--clusterName", "cluster", help="All masters of this cluster.")
def cluster_acl_config_version(
    admin: AdminClient, address: str | None, cluster: str | None
) -> Report:
    """Each access control file of each broker with its version."""
    rows, data = [], []
    for target in master_targets(admin, address, cluster):
        header = _acl_info(admin, target)
        for path, version in _versions(target, header.all_acl_file_version).items():
            facts = [header.cluster_name, header.broker_name, header.broker_addr, path]
            facts.append(str(version.counter))
            rows.append([*facts, second_text(version.timestamp)])
            keys = [column.key for column in VERSION_COLUMNS[:4]]
            item: dict[str, Any] = dict(zip(keys, facts, strict=False))
            item |= {"aclConfigVersionNum": version.counter}
            data.append(item | {"aclLastUpdateTimestamp": version.timestamp})
    whose = "cluster's" if address is None else "broker's"
    text = table(VERSION_COLUMNS, rows).text
    return Report(f"{text}\nget {whose} plain access config version success.", data)


def _acl_info(admin: AdminClient, target: str) -> GetBrokerAclConfigResponseHeader:
    try:
        response = admin.call(target, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    except RemotingTimeoutError as error:
        raise AdminError(
            f"{error}: a Java broker with aclEnable=false never answers this"
        ) from error
    return decode_header(GetBrokerAclConfigResponseHeader, response.ext_fields)


def _versions(target: str, text: str | None) -> dict[str, DataVersion]:
    """The version of each file by its path. AdminError for text that is no such table."""
    try:
        tree = loads_lenient((text or "{}").encode())
        return {path: DataVersion.from_json(version) for path, version in tree.items()}
    except (ValueError, AttributeError) as error:
        raise AdminError(
            f"{target} did not answer with a table of file versions: {error}"
        ) from error
