"""Users and accounts of a broker and their rights: those of 5.x and those of 4.9, without secrets.

A secret never gets into the console's memory from here: an answer is decoded without it, whatever
a broker sends.

Tested by tests/console/test_broker_pages.py.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from console.kept_answers import Answer
from console.lanes import Question
from console.one_broker import one_broker
from console.page import Page, Query, Reader, View
from console.replies import ask_all
from console.tables import Table, moment
from remoting.body.acl_accounts import AclAccount, AclAccounts
from remoting.body.auth import AclInfo
from remoting.body.data_version import DataVersion
from remoting.headers.auth import ListAclsRequestHeader
from remoting.request_code import RequestCode
from remoting.shared_decoders import decoder_of
from tools.admin_client import AdminClient
from tools.commands.acl import acl_info, file_versions
from tools.commands.auth import list_acls, list_users
from tools.errors import AdminError
from tools.report import columns

USERS: Final = columns("User username | Type userType | Status userStatus")
ACLS: Final = columns("Subject subject | Resource resource | Actions actions | Decision decision")
ACCOUNTS: Final = columns(
    "Account accessKey | Administrator admin | Topics topicPerms | Other topics defaultTopicPerm | "
    "Groups groupPerms | Other groups defaultGroupPerm | Needs no signature from whiteRemoteAddress"
)
FILES: Final = columns("File path | Version counter > | Changed timestamp")
AGE_MS: Final = 10_000


def _accounts(client: AdminClient, address: str) -> AclAccounts:
    body = client.call(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG).body
    try:
        return decoder_of(AclAccounts).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AdminError(f"its accounts cannot be read: {error}") from error


def _files(client: AdminClient, address: str) -> dict[str, DataVersion]:
    return file_versions(address, acl_info(client, address))


def _users(client: AdminClient, address: str) -> list[tuple[str | None, str | None, str | None]]:
    """Java's brokers tell passwords, too."""
    found = list_users(client, address, None)
    return [(user.username, user.user_type, user.user_status) for user in found]


USERS_OF: Final = Question("users", _users)
ACLS_OF: Final = Question("acls", lambda client, at: list_acls(client, at, ListAclsRequestHeader()))
ACCOUNTS_OF: Final = Question("accounts", _accounts)
FILES_OF: Final = Question("access files", _files)


def accounts(reader: Reader, query: Query) -> Page:
    """The users of 5.x of a broker, its accounts of 4.9, and their rights.

    broker: its address.
    """
    reader.must_sign_in("users and access lists")
    one = one_broker(reader, query, "/accounts")
    address = one.broker.place.address
    asked: list[tuple[str, Question[Any]]] = [
        (address, question) for question in (USERS_OF, ACLS_OF, ACCOUNTS_OF)
    ]
    users, acls, told = ask_all(reader, asked, AGE_MS)
    kept: AclAccounts = told.value or AclAccounts()
    # Asked only where there are accounts: a Java broker without them never answers.
    files: Answer[dict[str, DataVersion]] = (
        Answer() if told.value is None else reader.ask(address, FILES_OF, AGE_MS)
    )
    problems = (
        ("its users of 5.x", users),
        ("their rights", acls),
        ("its accounts of 4.9", told),
        ("the versions of its access files", files),
    )
    return Page(
        context={
            "one": one,
            "white": kept.global_white_addrs or [],
            "sentences": [
                f"{one.broker.title} does not tell {what}: {answer.error}"
                for what, answer in problems
                if answer.error is not None
            ],
        },
        tables=[
            Table(
                "users",
                f"Users of {one.broker.title} (5.x)",
                USERS,
                users.value or [],
                "None was told.",
            ),
            Table("acls", "Rights of users (5.x)", ACLS, _rights(acls), "None was told."),
            Table(
                "accounts",
                f"Accounts of {one.broker.title} (4.9)",
                ACCOUNTS,
                [_account(each) for each in kept.plain_access_configs or ()],
                "None was told.",
            ),
            Table(
                "files",
                "Files of the accounts",
                FILES,
                [
                    [path, version.counter, moment(version.timestamp)]
                    for path, version in (files.value or {}).items()
                ],
                "None was told.",
            ),
        ],
    )


def _rights(acls: Answer[list[AclInfo]]) -> list[list[object]]:
    return [
        [info.subject, policy.resource, ", ".join(policy.actions or ()), policy.decision]
        for info in acls.value or ()
        for group in info.policies or ()
        for policy in group.entries or ()
    ]


def _account(account: AclAccount) -> list[object]:
    return [
        account.access_key,
        "yes" if account.admin else "no",
        ", ".join(account.topic_perms or ()),
        account.default_topic_perm or None,
        ", ".join(account.group_perms or ()),
        account.default_group_perm or None,
        account.white_remote_address or None,
    ]


VIEWS: Final = [View("/accounts", "Users and rights", "Cluster", "accounts.html.j2", accounts)]
