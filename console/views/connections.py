"""Who is connected to a broker: producers, and the members of consumer groups, by host and by kind
of client.

A broker tells consumers group by group (203), so the first groups are asked, behind all that pages
wait for; the reader chooses others by how their names begin.

Tested by tests/console/test_broker_pages.py; on a real broker: tests/console/test_topics_view.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from console.kept_answers import Answer
from console.known_groups import known_groups
from console.lanes import BUSY, WAITING, Question
from console.one_broker import one_broker
from console.page import Page, Query, Reader, View
from console.tables import Table, TableCell, link, moment
from console.views.topics import group_url
from remoting.body.client_connection import (
    Connection,
    ConsumerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from remoting.headers.admin import GetConsumerConnectionListRequestHeader
from remoting.mq_version import version_name
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import AdminClient
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
"""Groups that a broker is asked for: each costs it a request."""
MOST_MEMBERS: Final = 10_000
"""Of one group that are looked at."""


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of a group at a broker."""

    group: str
    client_id: str
    address: str
    language: str
    version: str


def connections(reader: Reader, query: Query) -> Page:
    """Who is connected to a broker: its producers, and of thirty consumer groups the members.

    broker: its address; begins: the first groups that begin so.
    """
    begins = query.text("begins")
    one = one_broker(reader, query, "/connections", begins=begins)
    address, title = one.broker.place.address, one.broker.title
    producers = reader.ask(address, PRODUCERS_OF, AGE_MS)
    names = [name for name in known_groups(reader).names if name.startswith(begins)]
    told = [
        (name, reader.ask_later(address, members_of(name), CONSUMERS_AGE_MS))
        for name in names[:COUNTED]
    ]
    members = [member for _, answer in told for member in answer.value or ()]
    waiting = sum(answer.value is None and answer.error in (BUSY, WAITING) for _, answer in told)
    return Page(
        context={
            "one": one,
            "problem": producers.error,
            "begins": begins,
            "counted": len(told),
            "groups": len(names),
            "waiting": waiting,
        },
        tables=[
            Table(
                "producers",
                f"Producers at {title}",
                PRODUCERS,
                _producer_rows(producers),
                "None is connected.",
            ),
            Table(
                "consumers",
                f"Consumers at {title}, by group",
                GROUPS,
                [_group_row(name, answer) for name, answer in told],
                "There is no group.",
                sort="connections",
                descending=True,
            ),
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


def members_of(group: str) -> Question[tuple[Member, ...]]:
    """Who is connected to a broker as a member of this group."""

    def ask(client: AdminClient, address: str) -> tuple[Member, ...]:
        response = client.call(
            address,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            GetConsumerConnectionListRequestHeader(consumer_group=group),
            accept=(ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE),
        )
        if response.code != ResponseCode.SUCCESS:
            return ()
        found = ConsumerConnection.from_json_bytes(response.body).connection_set
        return tuple(_member(group, each) for each in found[:MOST_MEMBERS])

    return Question(("members", group), ask)


def _member(group: str, told: Connection) -> Member:
    version = version_name(told.version)
    return Member(group, told.client_id, told.client_addr, told.language, version)


def _group_row(name: str, answer: Answer[tuple[Member, ...]]) -> list[object]:
    shown = link(name, group_url(name))
    if answer.value is None:
        said = "asked soon" if answer.error in (BUSY, WAITING) else answer.error
        return [shown, TableCell(said or "–", None), None]
    return [
        shown,
        len({member.client_id for member in answer.value}),
        len({member.address for member in answer.value}),
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
