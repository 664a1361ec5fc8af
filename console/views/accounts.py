"""Users of a broker and their rights.

Tested by tests/console/test_broker_pages.py.
"""

from __future__ import annotations

from typing import Final

from console.lanes import Question
from console.one_broker import one_broker
from console.page import Page, Query, Reader, View
from console.tables import Table
from remoting.headers.auth import ListAclsRequestHeader
from tools.commands.auth import list_acls, list_users
from tools.report import columns

USERS: Final = columns("User username | Type userType | Status userStatus")
ACLS: Final = columns("Subject subject | Resource resource | Actions actions | Decision decision")
AGE_MS: Final = 10_000


def accounts(reader: Reader, query: Query) -> Page:
    """The users of 5.x of a broker and their rights.

    broker: its address.
    """
    reader.must_sign_in("users and access lists")
    one = one_broker(reader, query, "/accounts")
    broker = one.broker
    address = broker.place.address
    users = reader.ask(
        address, Question("users", lambda client, at: list_users(client, at, None)), AGE_MS
    )
    header = ListAclsRequestHeader()
    acls = reader.ask(
        address, Question("acls", lambda client, at: list_acls(client, at, header)), AGE_MS
    )
    rows: list[list[object]] = [
        [info.subject, policy.resource, ", ".join(policy.actions or ()), policy.decision]
        for info in acls.value or ()
        for group in info.policies or ()
        for policy in group.entries or ()
    ]
    return Page(
        context={
            "one": one,
            "problem": users.error or acls.error,
        },
        tables=[
            Table(
                "users",
                f"Users of {broker.title}",
                USERS,
                [[user.username, user.user_type, user.user_status] for user in users.value or ()],
                empty_text="None was told: the broker has no users of 5.x, or may not say.",
            ),
            Table("acls", "Rights", ACLS, rows, empty_text="None was told."),
        ],
    )


VIEWS: Final = [
    View("/accounts", "Users and rights", "Cluster", "accounts.html.j2", accounts),
]
