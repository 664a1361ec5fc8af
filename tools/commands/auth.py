"""Users and ACLs of RocketMQ 5: createUser, updateUser, deleteUser, getUser, listUser, copyUser,
createAcl, updateAcl, deleteAcl, getAcl, listAcl, copyAcl.

A change goes to all brokers of a cluster, slaves included: each keeps users of its own. Only
getUser and listUser show passwords, as in RocketMQ. (Java: the classes of tools.command.auth.)

Tested by tests/tools/test_mqadmin_of_5x.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

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
from tools.broker_changes import MEMBERS, Change, change
from tools.command_line import command
from tools.errors import AdminError
from tools.report import Report, columns, safe_line, table
from tools.targets import Address, master_targets, place_text

InfoT = TypeVar("InfoT")

USER_COLUMNS: Final = columns(
    "#UserName username | #Password password | #UserType userType | #UserStatus userStatus"
)
ACL_COLUMNS: Final = columns(
    "#Subject subject | #PolicyType policyType | #Resource resource | #Actions actions | "
    "#SourceIp sourceIps | #Decision decision"
)

_Masters = Annotated[str | None, "-c --clusterName", "The masters of this cluster."]
_Username = Annotated[str, "-u --username", "The user."]
_UserType = Annotated[str | None, "-t --userType", "Super or Normal."]
_Subject = Annotated[str, "-s --subject", "User:NAME."]
_Resources = Annotated[str, "-r --resources", "Topic:t*,Group:g"]
_Actions = Annotated[str, "-a --actions", "Pub,Sub,Get… or All."]
_Sources = Annotated[str | None, "-i --sourceIp", "192.168.0.1,10.0.0.0/8; else: from all."]
_Decision = Annotated[str, "-d --decision", "Allow or Deny."]
_From = Annotated[str, "-f --fromBroker", "Copy from, host:port."]
_To = Annotated[str, "-t --toBroker", "Copy to, host:port."]


# -- users -------------------------------------------------------------------------------------


@change("createUser", MEMBERS, "create user to {} success.")
def create_user(
    username: _Username,
    password: Annotated[str, "-p --password", "The user's secret key."],
    user_type: _UserType,
) -> Change:
    """Create a user at one broker or at all brokers of a cluster."""
    info = UserInfo(
        username=username.strip(), password=password.strip(), user_type=_stripped(user_type)
    )
    return _user_change(RequestCode.AUTH_CREATE_USER, info)


@change("updateUser", MEMBERS, "update user to {} success.")
def update_user(
    username: _Username,
    password: Annotated[str | None, "-p --password", "A new secret key."],
    user_type: _UserType,
    user_status: Annotated[str | None, "-s --userStatus", "enable or disable."],
) -> Change:
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
    return _user_change(RequestCode.AUTH_UPDATE_USER, info)


def _user_change(code: RequestCode, info: UserInfo) -> Change:
    header = UserRequestHeader(username=info.username)
    return Change(code, header, info.to_json_bytes(), data={"username": info.username})


@change(
    "deleteUser",
    MEMBERS,
    "delete user to {} success.",
    asks="Delete user {username} with its ACL from {place}?",
)
def delete_user(username: _Username) -> Change:
    """Delete a user and its ACL at one broker or at all brokers of a cluster."""
    header = UserRequestHeader(username=username.strip())
    return Change(RequestCode.AUTH_DELETE_USER, header, data={"username": header.username})


@command("getUser")
def get_user(
    admin: AdminClient, address: Address, cluster: _Masters, username: _Username
) -> Report:
    """Show a user of one broker, or of the first master of a cluster that has it."""
    for target in master_targets(admin, address, cluster):
        info = _find_user(admin, target, username.strip())
        if info is not None:
            return _user_table([info])
    return _user_table([])


@command("listUser")
def list_user(
    admin: AdminClient,
    address: Address,
    cluster: _Masters,
    part: Annotated[str | None, "-f --filter", "A part of the names."],
) -> Report:
    """List the users of one broker, or of the first master of a cluster that has some."""
    for target in master_targets(admin, address, cluster):
        infos = list_users(admin, target, part)
        if infos:
            found = _user_table(infos)
            if address is not None:
                return found
            return Report(f"{found.text}\nget user from {target} success.", found.data)
    return _user_table([])


@command("copyUser")
def copy_user(
    admin: AdminClient,
    source: _From,
    target: _To,
    usernames: Annotated[str | None, "-u --usernames", "Only these, separated by commas."],
) -> Report:
    """Create or update users of one broker at another."""
    if usernames and usernames.strip():
        named = [_find_user(admin, source, name) for name in _words(usernames)]
        infos = [info for info in named if info is not None]
    else:
        infos = list_users(admin, source, None)
    for info in infos:
        known = _find_user(admin, target, info.username or "") is not None
        code = RequestCode.AUTH_UPDATE_USER if known else RequestCode.AUTH_CREATE_USER
        admin.call(target, code, UserRequestHeader(username=info.username), info.to_json_bytes())
    return _copied("user", [info.username or "" for info in infos], source, target)


def _find_user(admin: AdminClient, broker: str, username: str) -> UserInfo | None:
    header = UserRequestHeader(username=username)
    body = admin.call(broker, RequestCode.AUTH_GET_USER, header).body
    return UserInfo.from_json_bytes(body) if body else None


def list_users(admin: AdminClient, broker: str, part: str | None) -> list[UserInfo]:
    header = ListUsersRequestHeader(filter=part)
    return _list(admin, broker, RequestCode.AUTH_LIST_USER, header, UserInfo.from_json)


def _user_table(infos: Sequence[UserInfo]) -> Report:
    rows = [(one.username, one.password, one.user_type, one.user_status) for one in infos]
    return Report(table(USER_COLUMNS, rows).text, [info.to_json() for info in infos])


# -- ACLs --------------------------------------------------------------------------------------


@change("createAcl", MEMBERS, "create acl to {} success.")
def create_acl(
    subject: _Subject,
    resources: _Resources,
    actions: _Actions,
    sources: _Sources,
    decision: _Decision,
) -> Change:
    """Give a user rights, or deny them, at one broker or at all brokers of a cluster."""
    policy = _policy(resources, actions, sources, decision)
    return _acl_change(RequestCode.AUTH_CREATE_ACL, subject, policy)


@change("updateAcl", MEMBERS, "update acl to {} success.")
def update_acl(
    subject: _Subject,
    resources: _Resources,
    actions: _Actions,
    sources: _Sources,
    decision: _Decision,
) -> Change:
    """Change rights of a user at one broker or at all brokers of a cluster."""
    policy = _policy(resources, actions, sources, decision)
    return _acl_change(RequestCode.AUTH_UPDATE_ACL, subject, policy)


def _policy(resources: str, actions: str, sources: str | None, decision: str) -> PolicyInfo:
    source_ips = None if sources is None else _words(sources)
    if source_ips is not None and not source_ips:
        raise click.UsageError("-i names no address; leave it out to allow all")
    entries = [
        PolicyEntryInfo(
            resource=resource,
            actions=_words(actions),
            source_ips=source_ips,
            decision=decision.strip(),
        )
        for resource in _words(resources)
    ]
    return PolicyInfo(entries=entries)


def _acl_change(code: RequestCode, subject: str, policy: PolicyInfo) -> Change:
    info = AclInfo(subject=subject.strip(), policies=[policy])
    header = AclRequestHeader(subject=info.subject)
    return Change(code, header, info.to_json_bytes(), data={"acl": info.to_json()})


def _delete_acl_question(
    address: str | None, cluster: str | None, subject: str, resource: str | None
) -> str:
    what = f"the entry for {resource}" if resource else "all entries"
    return f"Delete {what} of {subject} from {place_text(address, cluster)}?"


@change("deleteAcl", MEMBERS, "delete acl to {} success.", asks=_delete_acl_question)
def delete_acl(
    subject: _Subject,
    resource: Annotated[str | None, "-r --resources", "One resource; else the whole ACL."],
) -> Change:
    """Delete rights of a user at one broker or at all brokers of a cluster."""
    header = DeleteAclRequestHeader(subject=subject.strip(), resource=resource)
    return Change(RequestCode.AUTH_DELETE_ACL, header, data={"subject": header.subject})


@command("getAcl")
def get_acl(admin: AdminClient, address: Address, cluster: _Masters, subject: _Subject) -> Report:
    """Show the ACL of a user at one broker or at the masters of a cluster."""
    targets = master_targets(admin, address, cluster)
    found = [_find_acl(admin, target, subject.strip()) for target in targets]
    return _acl_table([info for info in found if info is not None])


@command("listAcl")
def list_acl(
    admin: AdminClient,
    address: Address,
    cluster: _Masters,
    subject: Annotated[str | None, "-s --subject", "A part of the subjects."],
    resource: Annotated[str | None, "-r --resource", "A part of the resources."],
) -> Report:
    """List the ACLs of one broker or of the masters of a cluster."""
    header = ListAclsRequestHeader(subject_filter=subject, resource_filter=resource)
    infos = []
    for target in master_targets(admin, address, cluster):
        infos += list_acls(admin, target, header)
    return _acl_table(infos)


@command("copyAcl")
def copy_acl(
    admin: AdminClient,
    source: _From,
    target: _To,
    subjects: Annotated[str | None, "-s --subjects", "Only these, separated by commas."],
) -> Report:
    """Merge ACLs of one broker into those of another; their users must be there."""
    if subjects and subjects.strip():
        named = [_find_acl(admin, source, subject) for subject in _words(subjects)]
        infos = [info for info in named if info is not None]
    else:
        infos = list_acls(admin, source, ListAclsRequestHeader())
    for info in infos:
        known = _find_acl(admin, target, info.subject or "") is not None
        code = RequestCode.AUTH_UPDATE_ACL if known else RequestCode.AUTH_CREATE_ACL
        admin.call(target, code, AclRequestHeader(subject=info.subject), info.to_json_bytes())
    return _copied("acl", [info.subject or "" for info in infos], source, target)


def _find_acl(admin: AdminClient, broker: str, subject: str) -> AclInfo | None:
    header = AclRequestHeader(subject=subject)
    body = admin.call(broker, RequestCode.AUTH_GET_ACL, header).body
    return AclInfo.from_json_bytes(body) if body else None


def list_acls(admin: AdminClient, broker: str, header: ListAclsRequestHeader) -> list[AclInfo]:
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
