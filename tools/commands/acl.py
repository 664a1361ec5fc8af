"""Accounts and white lists of brokers: updateAclConfig, deleteAclConfig, clusterAclConfigVersion,
updateGlobalWhiteAddr.

A secret key is sent, never shown. (Java: UpdateAccessConfigSubCommand,
DeleteAccessConfigSubCommand, ClusterAclConfigVersionListSubCommand,
UpdateGlobalWhiteAddrSubCommand.)

Tested by tests/tools/test_mqadmin_acl.py.
"""

from __future__ import annotations

from typing import Annotated, Final

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
from tools.broker_changes import MEMBERS, Change, change
from tools.command_line import command
from tools.errors import AdminError
from tools.message_text import second_text
from tools.report import Cell, Report, columns, safe_line, table
from tools.targets import Address, Masters, master_targets

VERSION_COLUMNS: Final = columns(
    "#Cluster Name clusterName | #Broker Name brokerName | #Broker Addr brokerAddr | "
    "#AclFilePath aclFilePath | #AclConfigVersionNum aclConfigVersionNum | "
    "#AclLastUpdateTime aclLastUpdateTimestamp"
)

_WHITE_HELP: Final = "Addresses that may do everything: 10.10.103.*,192.168.0.*"
_AccessKey = Annotated[str, "-a --accessKey", "The account."]


@change("updateAclConfig", MEMBERS, "create or update plain access config to {} success.")
def update_acl_config(
    access_key: _AccessKey,
    secret_key: Annotated[str, "-s --secretKey", "Its secret."],
    white: Annotated[str | None, "-w --whiteRemoteAddress", "Addresses that need no signature."],
    topic_perm: Annotated[str | None, "-i --defaultTopicPerm", "DENY, PUB, SUB or PUB|SUB."],
    group_perm: Annotated[str | None, "-u --defaultGroupPerm", "DENY or SUB."],
    topic_perms: Annotated[str | None, "-t --topicPerms", "topicA=DENY,topicD=SUB"],
    group_perms: Annotated[str | None, "-g --groupPerms", "groupA=DENY,groupD=SUB"],
    is_admin: Annotated[
        bool, "-m --admin", "Whether the account is an administrator (true|false)."
    ] = False,
) -> Change:
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
    shown = {name: text for name, text in encode_header(header).items() if name != "secretKey"}
    facts = ", ".join(f"{name}={text}" for name, text in shown.items())
    return Change(
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        header,
        data={"plainAccessConfig": shown | {"admin": is_admin}},
        lines=(safe_line(f"PlainAccessConfig [{facts}]"),),
    )


@change(
    "deleteAclConfig",
    MEMBERS,
    "delete plain access config account from {} success.",
    asks="Delete account {access_key} from {place}?",
)
def delete_acl_config(access_key: _AccessKey) -> Change:
    """Delete an account at one broker or at all brokers of a cluster."""
    header = DeleteAccessConfigRequestHeader(access_key=access_key)
    lines = (f"account's accesskey is:{access_key}",)
    return Change(
        RequestCode.DELETE_ACL_CONFIG, header, data={"accessKey": access_key}, lines=lines
    )


@change("updateGlobalWhiteAddr", MEMBERS, "update global white remote addresses to {} success.")
def update_global_white_addr(
    addresses: Annotated[str, "-g --globalWhiteRemoteAddresses", _WHITE_HELP],
    path: Annotated[str | None, "-p --aclFileFullPath", "Which of the broker's files."],
) -> Change:
    """Replace the list at one broker or at all brokers of a cluster."""
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(
        global_white_addrs=addresses, acl_file_full_path=path
    )
    data = {"globalWhiteRemoteAddresses": addresses.split(","), "aclFileFullPath": path}
    return Change(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header, data=data)


@command("clusterAclConfigVersion")
def cluster_acl_config_version(admin: AdminClient, address: Address, cluster: Masters) -> Report:
    """Each access control file of each broker with its version."""
    rows = []
    for target in master_targets(admin, address, cluster):
        header = acl_info(admin, target)
        for path, version in file_versions(target, header).items():
            time = Cell(second_text(version.timestamp), version.timestamp)
            where = (header.cluster_name, header.broker_name, header.broker_addr, path)
            rows.append((*where, version.counter, time))
    whose = "cluster's" if address is None else "broker's"
    found = table(VERSION_COLUMNS, rows)
    return Report(f"{found.text}\nget {whose} plain access config version success.", found.data)


def acl_info(admin: AdminClient, target: str) -> GetBrokerAclConfigResponseHeader:
    """The answer to 52. Raises AdminError and RemotingError."""
    try:
        response = admin.call(target, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    except RemotingTimeoutError as error:
        raise AdminError(
            f"{error}: a Java broker with aclEnable=false never answers this"
        ) from error
    return decode_header(GetBrokerAclConfigResponseHeader, response.ext_fields)


def file_versions(target: str, header: GetBrokerAclConfigResponseHeader) -> dict[str, DataVersion]:
    """The version of each file by its path. AdminError for text that is no such table."""
    try:
        tree = loads_lenient((header.all_acl_file_version or "{}").encode())
        return {path: DataVersion.from_json(version) for path, version in tree.items()}
    except (ValueError, AttributeError) as error:
        raise AdminError(
            f"{target} did not answer with a table of file versions: {error}"
        ) from error
