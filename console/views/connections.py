"""Who is connected to a broker: producers, and the members of consumer groups, by host and by kind
of client.

A broker tells consumers group by group (203), so those of the shown page of its groups are asked,
behind all that pages wait for.

Tested by tests/console/test_broker_pages.py; on a real broker: tests/console/test_topics_view.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from console.group_answers import Members, members_question
from console.kept_answers import Answer
from console.known_groups import AGE_MS as GROUPS_AGE_MS
from console.known_groups import GROUPS_OF
from console.lanes import BUSY, WAITING, Question
from console.one_broker import one_broker
from console.page import Page, Query, Reader, View
from console.tables import ShownTable, Table, TableCell, link, moment
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


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of a group at a broker."""

    group: str
    client_id: str
    address: str
    language: str
    version: str


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
    members = [member for name, answer in told.items() for member in _members(name, answer)]
    return Page(
        context={
            "one": one,
            "problems": [answer.error for answer in (producers, groups) if answer.error],
            "begins": begins,
            "counted": len(told),
            "groups": len(names),
            "waiting": sum(_is_waiting(answer) for answer in told.values()),
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
                lambda each: (each.language, each.version),
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


def _members(group: str, answer: Answer[Members]) -> list[Member]:
    """Who is connected to the broker as a member of this group."""
    connection = answer.value.connection if answer.value else None
    return [_member(group, each) for each in connection.connection_set] if connection else []


def _member(group: str, told: Connection) -> Member:
    version = version_name(told.version)
    return Member(group, told.client_id, told.client_addr, told.language, version)


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


def _is_waiting(answer: Answer[Members]) -> bool:
    return answer.value is None and answer.error in (BUSY, WAITING)


def _group_row(name: str, answer: Answer[Members] | None) -> list[object]:
    shown = link(name, group_url(name))
    if answer is None:
        return [shown, None, None]
    if answer.value is None:
        said = "asked soon" if _is_waiting(answer) else answer.error
        return [shown, TableCell(said or "–", None), None]
    members = _members(name, answer)
    return [
        shown,
        len({member.client_id for member in members}),
        len({member.address for member in members}),
    ]


def _host(member: Member) -> str:
    """An address without its port."""
    return member.address.removeprefix("/").rpartition(":")[0] or member.address


def _counts(
    name: str,
    caption: str,
    shown: Sequence[Column],
    members: Iterable[Member],
    key_of: Callable[[Member], tuple[str, ...]],
) -> Table:
    """How many connections, clients and groups each key has. A client has one connection to a
    broker, whatever groups it is in."""
    found: dict[tuple[str, ...], tuple[set[str], set[str], set[str]]] = {}
    for member in members:
        addresses, clients, groups = found.setdefault(key_of(member), (set(), set(), set()))
        addresses.add(member.address)
        clients.add(member.client_id)
        groups.add(member.group)
    rows = [[*key, *map(len, counted)] for key, counted in found.items()]
    return Table(name, caption, shown, rows, "None is known.", sort="connections", descending=True)


VIEWS: Final = [
    View("/connections", "Connections", "Cluster", "connections.html.j2", connections),
]
