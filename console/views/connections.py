"""Producers that are connected to a broker. Members of consumer groups are on the groups' pages.

Tested by tests/console/test_broker_pages.py; on a real broker: tests/console/test_topics_view.py.
"""

from __future__ import annotations

from typing import Final

from console.lanes import Question
from console.one_broker import one_broker
from console.page import Page, Query, Reader, View
from console.tables import Table, moment
from remoting.body.client_connection import ProducerInfo, ProducerTableInfo
from remoting.mq_version import version_name
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.report import columns

PRODUCERS: Final = columns(
    "Group producerGroup | Client clientId | Address remoteIP | Language language | "
    "Version version | Last heard of lastUpdateTimestamp"
)
AGE_MS: Final = 10_000


def connections(reader: Reader, query: Query) -> Page:
    """The producers that are connected to a broker. Members of consumer groups are on the groups'
    pages.

    broker: its address.
    """
    one = one_broker(reader, query, "/connections")
    broker = one.broker
    answer = reader.ask(broker.place.address, PRODUCERS_OF, AGE_MS)
    rows: list[list[object]] = [
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
    return Page(
        context={
            "one": one,
            "problem": answer.error,
        },
        tables=[
            Table(
                "producers", f"Producers at {broker.title}", PRODUCERS, rows, "None is connected."
            )
        ],
    )


def _producers(client: AdminClient, address: str) -> dict[str, list[ProducerInfo]]:
    response = client.call(address, RequestCode.GET_ALL_PRODUCER_INFO)
    found: dict[str, list[ProducerInfo]] = ProducerTableInfo.from_json_bytes(response.body).data
    return found


PRODUCERS_OF: Final = Question("producers", _producers)


VIEWS: Final = [
    View("/connections", "Producers", "Cluster", "connections.html.j2", connections),
]
