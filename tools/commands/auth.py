"""Users and ACLs of RocketMQ 5: createUser, updateUser, deleteUser, getUser, listUser, copyUser,
createAcl, updateAcl, deleteAcl, getAcl, listAcl, copyAcl.

A change goes to all brokers of a cluster, slaves included: each keeps users of its own. Only
getUser and listUser show passwords, as in RocketMQ. (Java: the classes of tools.command.auth.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from remoting.body.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.command_custom_header import CommandCustomHeader
from remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from remoting.remoting_serializable import loads_lenient
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.errors import AdminError
from tools.report import Column, Report, safe_line, table
from tools.targets import ADDRESS_OPTION, master_targets, member_targets, place_text

InfoT = TypeVar("InfoT")

USER_COLUMNS: Final = (
    Column("#UserName", "username"),
    Column("#Password", "password"),
    Column("#UserType", "userType"),
    Column("#UserStatus", "userStatus"),
)
ACL_COLUMNS: Final = (
    Column("#Subject", "subject"),
    Column("#PolicyType", "policyType"),
    Column("#Resource", "resource"),
    Column("#Actions", "actions"),
    Column("#SourceIp", "sourceIps"),
    Column("#Decision", "decision"),
)

_MEMBERS = click.option("-c", "--clusterName", "cluster", help="All brokers of this cluster.")
_MASTERS = click.option("-c", "--clusterName", "cluster", help="The masters of this cluster.")
_USERNAME = click.option("-u", "--username", "username", required=True, help="The user.")
_USER_TYPE = click.option("-t", "--userType", "user_type", help="Super or Normal.")
_SUBJECT = click.option("-s", "--subject", "subject", required=True, help="User:NAME.")
_FROM = click.option("-f", "--fromBroker", "source", required=True, help="Copy from, host:port.")
_TO = click.option("-t", "--toBroker", "target", required=True, help="Copy to, host:port.")


# -- users -------------------------------------------------------------------------------------


@command("createUser")
@ADDRESS_OPTION
@_MEMBERS
@_USERNAME
@click.option("-p", "--password", "password", required=True, help="The user's secret key.")
@_USER_TYPE
def create_user(
    admin: AdminClient,
    address: str | None,
    cluster: str | None,
    username: str,
    password: str,
    user_type: str | None,
) -> Report:
    """Create a user at one broker or at all brokers of a cluster."""
    info = UserInfo(
        username=username.strip(), password=password.strip(), user_type=_stripped(user_type)
    )
    return _change_user(admin, RequestCode.AUTH_CREATE_USER, "create", address, cluster, info)


@command("updateUser")
@ADDRESS_OPTION
@_MEMBERS
@_USERNAME
@click.option("-p", "--password", "password", help="A new secret key.")
@_USER_TYPE
@click.option("-s", "--userStatus", "user_status", help="enable or disable.")
def update_user(
    admin: AdminClient,
    address: str | None,
    cluster: str | None,
    username: str,
    password: str | None,
    user_type: str | None,
    user_status: str | None,
) -> Report:
    """Change password, type or status of a user at one broker or at all brokers of a cluster."""
    if password is None and user_type is None and user_status is None:
        raise click.UsageError("one of -p PASSWORD, -t TYPE and -s STATUS is needed")
    if password is not None and not password.strip():
        raise click.UsageError("-p is blank; leave it out to keep the password")
    info = UserInfo(
        username=username.strip(),
        password=_stripped(password),
        user_type=_stripped(user_type),
        user_status=_stripped(user_status),
    )
    return _change_user(admin, RequestCode.AUTH_UPDATE_USER, "update", address, cluster, info)


def _change_user(
    admin: AdminClient,
    code: RequestCode,
    verb: str,
    address: str | None,
    cluster: str | None,
    info: UserInfo,
) -> Report:
    header = UserRequestHeader(username=info.username)
    targets = member_targets(admin, address, cluster)
    lines = []
    for target in targets:
        admin.call(target, code, header, info.to_json_bytes())
        lines.append(f"{verb} user to {target} success.")
    return Report("\n".join(lines), {"brokerAddrs": targets, "username": info.username})


def _delete_user_question(address: str | None, cluster: str | None, username: str) -> str:
    return f"Delete user {username} with its ACL from {place_text(address, cluster)}?"


@command("deleteUser", asks=_delete_user_question)
@ADDRESS_OPTION
@_MEMBERS
@_USERNAME
def delete_user(
    admin: AdminClient, address: str | None, cluster: str | None, username: str
) -> Report:
    """Delete a user and its ACL at one broker or at all brokers of a cluster."""
    header = UserRequestHeader(username=username.strip())
    targets = member_targets(admin, address, cluster)
    lines = []
    for target in targets:
        admin.call(target, RequestCode.AUTH_DELETE_USER, header)
        lines.append(f"delete user to {target} success.")
    return Report("\n".join(lines), {"brokerAddrs": targets, "username": username.strip()})


@command("getUser")
@ADDRESS_OPTION
@_MASTERS
@_USERNAME
def get_user(admin: AdminClient, address: str | None, cluster: str | None, username: str) -> Report:
    """Show a user of one broker, or of the first master of a cluster that has it."""
    for target in master_targets(admin, address, cluster):
        info = _find_user(admin, target, username.strip())
        if info is not None:
            return _user_table([info])
    return _user_table([])


@command("listUser")
@ADDRESS_OPTION
@_MASTERS
@click.option("-f", "--filter", "part", help="A part of the names.")
def list_user(
    admin: AdminClient, address: str | None, cluster: str | None, part: str | None
) -> Report:
    """List the users of one broker, or of the first master of a cluster that has some."""
    for target in master_targets(admin, address, cluster):
        infos = _list_users(admin, target, part)
        if infos:
            found = _user_table(infos)
            if address is not None:
                return found
            return Report(f"{found.text}\nget user from {target} success.", found.data)
    return _user_table([])


@command("copyUser")
@_FROM
@_TO
@click.option("-u", "--usernames", "usernames", help="Only these, separated by commas.")
def copy_user(admin: AdminClient, source: str, target: str, usernames: str | None) -> Report:
    """Create or update users of one broker at another."""
    if usernames and usernames.strip():
        named = [_find_user(admin, source, name) for name in _words(usernames)]
        infos = [info for info in named if info is not None]
    else:
        infos = _list_users(admin, source, None)
    for info in infos:
        known = _find_user(admin, target, info.username or "") is not None
        code = RequestCode.AUTH_UPDATE_USER if known else RequestCode.AUTH_CREATE_USER
        admin.call(target, code, UserRequestHeader(username=info.username), info.to_json_bytes())
    return _copied("user", [info.username or "" for info in infos], source, target)


def _find_user(admin: AdminClient, broker: str, username: str) -> UserInfo | None:
    header = UserRequestHeader(username=username)
    body = admin.call(broker, RequestCode.AUTH_GET_USER, header).body
    return UserInfo.from_json_bytes(body) if body else None


def _list_users(admin: AdminClient, broker: str, part: str | None) -> list[UserInfo]:
    header = ListUsersRequestHeader(filter=part)
    return _list(admin, broker, RequestCode.AUTH_LIST_USER, header, UserInfo.from_json)


def _user_table(infos: Sequence[UserInfo]) -> Report:
    rows = [(one.username, one.password, one.user_type, one.user_status) for one in infos]
    return Report(table(USER_COLUMNS, rows).text, [info.to_json() for info in infos])


# -- ACLs --------------------------------------------------------------------------------------


def _acl_options(function: Callable[..., Report]) -> Callable[..., Report]:
    """Of createAcl and updateAcl."""
    for option in (
        click.option("-d", "--decision", "decision", required=True, help="Allow or Deny."),
        click.option("-i", "--sourceIp", "sources", help="192.168.0.1,10.0.0.0/8; else: from all."),
        click.option("-a", "--actions", "actions", required=True, help="Pub,Sub,Get… or All."),
        click.option("-r", "--resources", "resources", required=True, help="Topic:t*,Group:g"),
        _SUBJECT,
        _MEMBERS,
        ADDRESS_OPTION,
    ):
        function = option(function)
    return function


@command("createAcl")
@_acl_options
def create_acl(admin: AdminClient, **options: Any) -> Report:
    """Give a user rights, or deny them, at one broker or at all brokers of a cluster."""
    return _change_acl(admin, RequestCode.AUTH_CREATE_ACL, "create", options)


@command("updateAcl")
@_acl_options
def update_acl(admin: AdminClient, **options: Any) -> Report:
    """Change rights of a user at one broker or at all brokers of a cluster."""
    return _change_acl(admin, RequestCode.AUTH_UPDATE_ACL, "update", options)


def _change_acl(
    admin: AdminClient, code: RequestCode, verb: str, options: dict[str, Any]
) -> Report:
    sources = None if options["sources"] is None else _words(options["sources"])
    if sources is not None and not sources:
        raise click.UsageError("-i names no address; leave it out to allow all")
    entries = [
        PolicyEntryInfo(
            resource=resource,
            actions=_words(options["actions"]),
            source_ips=sources,
            decision=options["decision"].strip(),
        )
        for resource in _words(options["resources"])
    ]
    info = AclInfo(subject=options["subject"].strip(), policies=[PolicyInfo(entries=entries)])
    targets = member_targets(admin, options["address"], options["cluster"])
    lines = []
    for target in targets:
        admin.call(target, code, AclRequestHeader(subject=info.subject), info.to_json_bytes())
        lines.append(f"{verb} acl to {target} success.")
    return Report("\n".join(lines), {"brokerAddrs": targets, "acl": info.to_json()})


def _delete_acl_question(
    address: str | None, cluster: str | None, subject: str, resource: str | None
) -> str:
    what = f"the entry for {resource}" if resource else "all entries"
    return f"Delete {what} of {subject} from {place_text(address, cluster)}?"


@command("deleteAcl", asks=_delete_acl_question)
@ADDRESS_OPTION
@_MEMBERS
@_SUBJECT
@click.option("-r", "--resources", "resource", help="One resource; else the whole ACL.")
def delete_acl(
    admin: AdminClient,
    address: str | None,
    cluster: str | None,
    subject: str,
    resource: str | None,
) -> Report:
    """Delete rights of a user at one broker or at all brokers of a cluster."""
    header = DeleteAclRequestHeader(subject=subject.strip(), resource=resource)
    targets = member_targets(admin, address, cluster)
    lines = []
    for target in targets:
        admin.call(target, RequestCode.AUTH_DELETE_ACL, header)
        lines.append(f"delete acl to {target} success.")
    return Report("\n".join(lines), {"brokerAddrs": targets, "subject": header.subject})


@command("getAcl")
@ADDRESS_OPTION
@_MASTERS
@_SUBJECT
def get_acl(admin: AdminClient, address: str | None, cluster: str | None, subject: str) -> Report:
    """Show the ACL of a user at one broker or at the masters of a cluster."""
    targets = master_targets(admin, address, cluster)
    found = [_find_acl(admin, target, subject.strip()) for target in targets]
    return _acl_table([info for info in found if info is not None])


@command("listAcl")
@ADDRESS_OPTION
@_MASTERS
@click.option("-s", "--subject", "subject", help="A part of the subjects.")
@click.option("-r", "--resource", "resource", help="A part of the resources.")
def list_acl(
    admin: AdminClient,
    address: str | None,
    cluster: str | None,
    subject: str | None,
    resource: str | None,
) -> Report:
    """List the ACLs of one broker or of the masters of a cluster."""
    header = ListAclsRequestHeader(subject_filter=subject, resource_filter=resource)
    infos = []
    for target in master_targets(admin, address, cluster):
        infos += _list_acls(admin, target, header)
    return _acl_table(infos)


@command("copyAcl")
@_FROM
@_TO
@click.option("-s", "--subjects", "subjects", help="Only these, separated by commas.")
def copy_acl(admin: AdminClient, source: str, target: str, subjects: str | None) -> Report:
    """Merge ACLs of one broker into those of another; their users must be there."""
    if subjects and subjects.strip():
        named = [_find_acl(admin, source, subject) for subject in _words(subjects)]
        infos = [info for info in named if info is not None]
    else:
        infos = _list_acls(admin, source, ListAclsRequestHeader())
    for info in infos:
        known = _find_acl(admin, target, info.subject or "") is not None
        code = RequestCode.AUTH_UPDATE_ACL if known else RequestCode.AUTH_CREATE_ACL
        admin.call(target, code, AclRequestHeader(subject=info.subject), info.to_json_bytes())
    return _copied("acl", [info.subject or "" for info in infos], source, target)


def _find_acl(admin: AdminClient, broker: str, subject: str) -> AclInfo | None:
    header = AclRequestHeader(subject=subject)
    body = admin.call(broker, RequestCode.AUTH_GET_ACL, header).body
    return AclInfo.from_json_bytes(body) if body else None


def _list_acls(admin: AdminClient, broker: str, header: ListAclsRequestHeader) -> list[AclInfo]:
    return _list(admin, broker, RequestCode.AUTH_LIST_ACL, header, AclInfo.from_json)


def _acl_table(infos: Sequence[AclInfo]) -> Report:
    """One row for each entry, lists as Java prints them."""
    rows = [
        (
            info.subject,
            policy.policy_type,
            entry.resource,
            f"[{', '.join(entry.actions or ())}]",
            "null" if entry.source_ips is None else f"[{', '.join(entry.source_ips)}]",
            entry.decision,
        )
        for info in infos
        for policy in info.policies or ()
        for entry in policy.entries or ()
    ]
    return Report(table(ACL_COLUMNS, rows).text, [info.to_json() for info in infos])


# -- both --------------------------------------------------------------------------------------


def _list(
    admin: AdminClient,
    broker: str,
    code: RequestCode,
    header: CommandCustomHeader,
    read: Callable[[Any], InfoT],
) -> list[InfoT]:
    """A body that is a list; none stands for an empty one. Raises AdminError."""
    body = admin.call(broker, code, header).body
    if not body:
        return []
    try:
        tree = loads_lenient(body)
        return [read(item) for item in tree if item is not None]
    except (ValueError, TypeError) as error:
        raise AdminError(f"{broker} did not answer with a list: {error}") from error


def _copied(what: str, names: Sequence[str], source: str, target: str) -> Report:
    lines = [
        safe_line(f"copy {what} of {name} from {source} to {target} success.") for name in names
    ]
    return Report("\n".join(lines or [f"no {what} to copy"]), {"copied": list(names)})


def _stripped(text: str | None) -> str | None:
    return None if text is None else text.strip()


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
