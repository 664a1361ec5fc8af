"""Who is connected to a broker: producers, and the members of consumer groups, by host and by kind
of client.

A broker tells consumers group by group (203), so those of the shown page of its groups are asked,
behind all that pages wait for.

Tested by tests/console/test_broker_pages.py; on a real broker: tests/console/test_topics_view.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from console.cells import unanswered_cell
from console.group_answers import Members, members_question
from console.kept_answers import Answer
from console.known_groups import AGE_MS as GROUPS_AGE_MS
from console.known_groups import GROUPS_OF
from console.lanes import NOT_YET, Question
from console.one_broker import one_broker
from console.page import Page, Query, Reader, View
from console.tables import ShownTable, Table, link, moment
from console.views.topics import group_url
from remoting.body.client_connection import (
    Connection,
    ProducerInfo,
    ProducerTableInfo,
)
from remoting.mq_version import version_name
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.commands.export import is_system_group
from tools.report import Column, columns

PRODUCERS: Final = columns(
    "Group producerGroup | Client clientId | Address remoteIP | Language language | "
    "Version version | Last heard of lastUpdateTimestamp"
)
GROUPS: Final = columns("Group group | Members members > | Connections connections >")
HOSTS: Final = columns(
    "Host host | Connections connections > | Clients clients > | Groups groups >"
)
KINDS: Final = columns(
    "Language language | Version version | Connections connections > | Clients clients > | "
    "Groups groups >"
)
AGE_MS: Final = 10_000
CONSUMERS_AGE_MS: Final = 60_000
COUNTED: Final = 30
"""Groups of a page that a broker is asked for: each costs it a request."""


Member = tuple[str, Connection]
"""A consumer at a broker, with one of its groups."""


def connections(reader: Reader, query: Query) -> Page:
    """Who is connected to a broker: its producers, and the members of the shown consumer groups.

    broker: its address; begins: only groups that begin so.
    """
    begins = query.text("begins")
    one = one_broker(reader, query, "/connections", begins=begins)
    address, title = one.broker.place.address, one.broker.title
    producers = reader.ask(address, PRODUCERS_OF, AGE_MS)
    # A broker that was waited for in vain is not waited for again.
    groups = reader.ask(address, GROUPS_OF, GROUPS_AGE_MS, is_later=producers.value is None)
    names = sorted(
        name for name in groups.value or () if name.startswith(begins) and not is_system_group(name)
    )
    shown = ShownTable(_groups_table(title, names, {}), "", query.fields, only=False)
    told = {
        name: reader.ask(address, members_question(name), CONSUMERS_AGE_MS, is_later=True)
        for name in (row[0].value for row in shown.rows)
    }
    members = [(name, each) for name, answer in told.items() for each in _members(answer)]
    return Page(
        context={
            "one": one,
            "problems": [answer.error for answer in (producers, groups) if answer.error],
            "begins": begins,
            "counted": len(told),
            "groups": len(names),
            "waiting": sum(
                answer.value is None and answer.error in NOT_YET for answer in told.values()
            ),
        },
        tables=[
            Table(
                "producers",
                f"Producers at {title}",
                PRODUCERS,
                _producer_rows(producers),
                "None is connected.",
            ),
            _groups_table(title, names, told),
            _counts("hosts", "Consumers by host", HOSTS, members, lambda each: (_host(each),)),
            _counts(
                "kinds",
                "Consumers by client",
                KINDS,
                members,
                lambda each: (each.language, version_name(each.version)),
            ),
        ],
    )


# -- producers -------------------------------------------------------------------------------------


def _producers(client: AdminClient, address: str) -> dict[str, list[ProducerInfo]]:
    response = client.call(address, RequestCode.GET_ALL_PRODUCER_INFO)
    found: dict[str, list[ProducerInfo]] = ProducerTableInfo.from_json_bytes(response.body).data
    return found


PRODUCERS_OF: Final = Question("producers", _producers)


def _producer_rows(answer: Answer[dict[str, list[ProducerInfo]]]) -> list[list[object]]:
    return [
        [
            group,
            member.client_id,
            member.remote_ip,
            member.language,
            version_name(member.version),
            moment(member.last_update_timestamp),
        ]
        for group, members in sorted((answer.value or {}).items())
        for member in members
    ]


# -- consumers -------------------------------------------------------------------------------------


def _members(answer: Answer[Members]) -> list[Connection]:
    """Who is connected to the broker as a member of a group."""
    connection = answer.value.connection if answer.value else None
    return connection.connection_set if connection else []


def _groups_table(title: str, names: Sequence[str], told: Mapping[str, Answer[Members]]) -> Table:
    return Table(
        "consumers",
        f"Consumers at {title}, by group",
        GROUPS,
        [_group_row(name, told.get(name)) for name in names],
        "There is no group.",
        page_rows=COUNTED,
        by_page=frozenset(column.key for column in GROUPS[1:]),
    )


def _group_row(name: str, answer: Answer[Members] | None) -> list[object]:
    shown = link(name, group_url(name))
    if answer is None:
        return [shown, None, None]
    if answer.value is None:
        return [shown, unanswered_cell(answer.error), None]
    members = _members(answer)
    return [
        shown,
        len({member.client_id for member in members}),
        len({member.client_addr for member in members}),
    ]


def _host(member: Connection) -> str:
    """An address without its port."""
    return member.client_addr.removeprefix("/").rpartition(":")[0] or member.client_addr


def _counts(
    name: str,
    caption: str,
    shown: Sequence[Column],
    members: Iterable[Member],
    key_of: Callable[[Connection], tuple[str, ...]],
) -> Table:
    """How many connections, clients and groups each key has. A client has one connection to a
    broker, whatever groups it is in."""
    found: dict[tuple[str, ...], tuple[set[str], set[str], set[str]]] = {}
    for group, member in members:
        addresses, clients, groups = found.setdefault(key_of(member), (set(), set(), set()))
        addresses.add(member.client_addr)
        clients.add(member.client_id)
        groups.add(group)
    rows = [[*key, *map(len, counted)] for key, counted in found.items()]
    return Table(name, caption, shown, rows, "None is known.", sort="connections", descending=True)


VIEWS: Final = [
    View("/connections", "Connections", "Cluster", "connections.html.j2", connections),
]
