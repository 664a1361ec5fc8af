"""Brokers: settings and where they differ, who is connected, users and access lists, and who
changed what through this console.

Tested by tests/console/test_topics_view.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from conf.secret_names import is_secret_name
from console.access.audit_log import HIDDEN, AuditError, AuditLog
from console.lanes import Question
from console.page import Action, ConsoleError, Done, Field, Page, Query, Reader, View
from console.snapshot import BrokerSeen
from console.tables import Table, badge, moment
from remoting.body.client_connection import ProducerInfo, ProducerTableInfo
from remoting.headers.auth import ListAclsRequestHeader
from remoting.mq_version import version_name
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.commands.auth import list_acls, list_users
from tools.properties_text import parse_lines, setting_body
from tools.report import columns

SETTINGS: Final = columns("Setting key | Value value | At the others others")
PRODUCERS: Final = columns(
    "Group producerGroup | Client clientId | Address remoteIP | Language language | "
    "Version version | Last heard of lastUpdateTimestamp"
)
USERS: Final = columns("User username | Type userType | Status userStatus")
ACLS: Final = columns("Subject subject | Resource resource | Actions actions | Decision decision")
AUDIT: Final = columns(
    "When at_ms | Who who | From from | What action | With fields | Result result | Why why"
)
AGE_MS: Final = 10_000
MOST_AUDIT: Final = 1_000


def _chosen(reader: Reader, query: Query) -> BrokerSeen:
    """The broker that the URL names, else the first that answers."""
    address = query.text("broker")
    brokers = [broker for broker in reader.snapshot.brokers if broker.registered]
    for broker in brokers:
        if broker.place.address == address:
            return broker
    if address or not brokers:
        raise ConsoleError(f"no broker {address} is listed by the name servers", 404)
    return min(brokers, key=lambda broker: broker.newest_error is not None)


def _links(reader: Reader, path: str) -> list[tuple[str, str]]:
    """Every broker, and the page of it."""
    return [
        (broker.title, f"{path}?{urlencode({'broker': broker.place.address})}")
        for broker in reader.snapshot.brokers
        if broker.registered
    ]


def _settings(client: AdminClient, address: str) -> dict[str, str]:
    return parse_lines(client.call(address, RequestCode.GET_BROKER_CONFIG).body)


def shown_value(key: str, value: str) -> str:
    """A setting's value; of one whose name says that it is a secret only whether there is one."""
    return HIDDEN if value and is_secret_name(key) else value


SETTINGS_OF: Final = Question("settings", _settings)
COMPARED: Final = 8
"""Other brokers that a setting is compared with."""


def settings(reader: Reader, query: Query) -> Page:
    """The settings of a broker that are in force, and where other brokers have another value.

    broker: its address.
    """
    broker = _chosen(reader, query)
    answer = reader.ask(broker.place.address, SETTINGS_OF, AGE_MS)
    own = answer.value or {}
    others = _others(reader, broker)
    rows: list[list[object]] = [
        [key, shown_value(key, value), _elsewhere(key, value, others)]
        for key, value in sorted(own.items())
    ]
    return Page(
        context={
            "broker": broker,
            "brokers": _links(reader, "/settings"),
            "problem": answer.error,
            "compared": sorted(others),
        },
        tables=[Table("settings", f"Settings of {broker.title}", SETTINGS, rows, "None was told.")],
    )


def _others(reader: Reader, broker: BrokerSeen) -> dict[str, Mapping[str, str]]:
    """Settings of other brokers of the cluster that have the same role, by their title."""
    found: dict[str, Mapping[str, str]] = {}
    alike = [
        other
        for other in reader.snapshot.brokers
        if other.registered
        and other.place.cluster == broker.place.cluster
        and other.is_master is broker.is_master
        and other is not broker
    ]
    for other in alike[:COMPARED]:
        answer = reader.ask(other.place.address, SETTINGS_OF, 60_000)
        if answer.value is not None:
            found[other.title] = answer.value
    return found


_OWN: Final = ("brokerName", "brokerId", "brokerIP1", "brokerIP2", "listenPort", "haListenPort")
"""Settings that each broker has a value of its own for."""


def _elsewhere(key: str, value: str, others: dict[str, Mapping[str, str]]) -> object:
    """Which others have another value."""
    if key in _OWN or "ath" in key or key.endswith(("Port", "Dir")):
        return None
    different = [
        f"{name}: {shown_value(key, told[key])}"
        for name, told in others.items()
        if told.get(key, value) != value
    ]
    return badge("warning", "; ".join(different)[:300]) if different else None


def connections(reader: Reader, query: Query) -> Page:
    """The producers that are connected to a broker. Members of consumer groups are on the groups'
    pages.

    broker: its address.
    """
    broker = _chosen(reader, query)
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
            "broker": broker,
            "brokers": _links(reader, "/connections"),
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


def accounts(reader: Reader, query: Query) -> Page:
    """The users of 5.x of a broker and their rights.

    broker: its address.
    """
    reader.must_sign_in("users and access lists")
    broker = _chosen(reader, query)
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
            "broker": broker,
            "brokers": _links(reader, "/accounts"),
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


def audit(reader: Reader, query: Query) -> Page:
    """Who changed what through this console, the newest first.

    count.
    """
    reader.must_sign_in("the audit log")
    kept = reader.options.get("audit")
    entries = (
        _newest(kept, query.number("count", 200, 1, MOST_AUDIT))
        if isinstance(kept, AuditLog)
        else []
    )
    rows: list[list[object]] = [
        [
            moment(entry["at_ms"]) if isinstance(entry.get("at_ms"), int) else None,
            entry.get("who"),
            entry.get("from"),
            entry.get("action"),
            _fields_text(entry.get("fields")),
            badge(str(entry.get("result", "unknown"))),
            entry.get("why"),
        ]
        for entry in entries
    ]
    return Page(
        tables=[Table("audit", "Changes through this console", AUDIT, rows, "There is none.")]
    )


def _newest(kept: AuditLog, count: int) -> list[dict[str, Any]]:
    try:
        return kept.newest(count)
    except AuditError as error:
        raise ConsoleError(str(error), 503) from error


def _fields_text(fields: object) -> str:
    """The audit log says in a sentence when there are too many."""
    if isinstance(fields, dict):
        return ", ".join(f"{key}={value}" for key, value in fields.items())
    return "" if fields is None else str(fields)


def _plan_setting(reader: Reader, query: Query) -> list[str]:
    address, key, value = query.needed("broker"), query.needed("key"), query.text("value")
    broker = _chosen(reader, Query({"broker": address}))
    _refuse_secret(key)
    own = _settings(reader.client(), address)
    if key not in own:
        raise ConsoleError(f"{broker.title} has no setting {key}")
    return [
        f"{broker.title}: {key} is {shown_value(key, own[key])} and becomes "
        f"{shown_value(key, value)}.",
        "The broker refuses a setting that needs a restart, or a value that it does not know.",
    ]


def _refuse_secret(key: str) -> None:
    """Its new value would stand in the form and in the audit log."""
    if is_secret_name(key):
        raise ConsoleError(f"{key} is a secret: change it with bin/mqadmin updateBrokerConfig")


def _change_setting(reader: Reader, query: Query) -> Done:
    address, key, value = query.needed("broker"), query.needed("key"), query.text("value")
    client = reader.client()
    _refuse_secret(key)
    client.call(address, RequestCode.UPDATE_BROKER_CONFIG, body=setting_body(key, value))
    now = _settings(client, address).get(key)
    url = f"/settings?{urlencode({'broker': address})}"
    return Done([f"{key} is {shown_value(key, now or '')} at {address} now."], url, ok=now == value)


VIEWS: Final = [
    View("/settings", "Settings", "Cluster", "settings.html.j2", settings),
    View("/connections", "Producers", "Cluster", "connections.html.j2", connections),
    View("/accounts", "Users and rights", "Cluster", "accounts.html.j2", accounts),
    View("/audit", "Changes", "Cluster", "audit.html.j2", audit),
]
ACTIONS: Final = [
    Action(
        "changeSetting",
        "Change the setting",
        [
            Field("broker", "Broker, host:port"),
            Field("key", "Setting"),
            Field("value", "Value", needed=False),
        ],
        _plan_setting,
        _change_setting,
    )
]
