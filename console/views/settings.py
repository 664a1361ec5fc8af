"""Settings of a broker: the values in force, their defaults, what a change needs, and where other
brokers differ.

Tested by tests/console/test_broker_pages.py; on a real broker: tests/console/test_topics_view.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from conf.secret_names import is_secret_name, without_secret
from console.known_settings import find_default, find_known
from console.lanes import Question
from console.one_broker import one_broker
from console.page import Action, ConsoleError, Done, Field, Page, Query, Reader, View
from console.replies import ask_all
from console.snapshot import BrokerSeen
from console.tables import Table, badge
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.properties_text import parse_lines, setting_body
from tools.report import columns

SETTINGS: Final = columns(
    "Setting key | Value value | Default default | Changed changed | A change applies applies | "
    "At the others others"
)
AGE_MS: Final = 10_000
COMPARED: Final = 8
"""Other brokers that a setting is compared with."""
COMPARED_AGE_MS: Final = 60_000
SHOWN: Final = ("all", "changed")
NOT_KNOWN: Final = "not known"
_APPLIES: Final = {
    "now": "at once",
    "after a restart": "after a restart",
    None: "by the settings file, with a restart",
}
_OWN: Final = ("brokerName", "brokerId", "brokerIP1", "brokerIP2", "listenPort", "haListenPort")
"""Settings that each broker has a value of its own for."""


def _settings(client: AdminClient, address: str) -> dict[str, str]:
    return parse_lines(client.call(address, RequestCode.GET_BROKER_CONFIG).body)


SETTINGS_OF: Final = Question("settings", _settings)


def settings(reader: Reader, query: Query) -> Page:
    """The settings of a broker that are in force, their defaults, and where other brokers have
    another value.

    broker: its address; shown: all, or changed: only those that differ from their defaults.
    """
    shown = query.choice("shown", SHOWN)
    one = one_broker(reader, query, "/settings", shown=query.text("shown"))
    broker = one.broker
    alike = _alike(reader, broker)
    answers = ask_all(
        reader,
        [(each.place.address, SETTINGS_OF) for each in (broker, *alike)],
        AGE_MS,
    )
    own = answers[0].value or {}
    others = {
        other.title: answer.value
        for other, answer in zip(alike, answers[1:], strict=True)
        if answer.value is not None
    }
    rows = [
        _row(broker, key, value, others)
        for key, value in sorted(own.items())
        if shown == "all" or find_default(broker, key) not in (None, value)
    ]
    return Page(
        context={
            "one": one,
            "problem": answers[0].error,
            "shown": shown,
            "urls": {
                each: f"/settings?{urlencode({'broker': broker.place.address, 'shown': each})}"
                for each in SHOWN
            },
            "compared": sorted(others),
            "silent": [other.title for other in alike if other.title not in others],
            "is_java": broker.is_ours is False,
            "may_change": reader.may_change,
        },
        tables=[
            Table(
                "settings",
                f"Settings of {broker.title}",
                SETTINGS,
                rows,
                "None was told." if not own else "None differs from its default.",
            )
        ],
    )


def _alike(reader: Reader, broker: BrokerSeen) -> list[BrokerSeen]:
    """Some other brokers of the cluster that have the same role."""
    return [
        other
        for other in reader.snapshot.registered()
        if other.place.cluster == broker.place.cluster
        and other.is_master is broker.is_master
        and other is not broker
    ][:COMPARED]


def _row(
    broker: BrokerSeen, key: str, value: str, others: Mapping[str, Mapping[str, str]]
) -> list[object]:
    default, known = find_default(broker, key), find_known(broker, key)
    if default is None:
        changed: object = None
        shown = "depends on the host" if known else NOT_KNOWN
    else:
        changed = badge("default" if value == default else "changed")
        shown = without_secret(key, default)
    return [
        key,
        without_secret(key, value),
        shown,
        changed,
        NOT_KNOWN if known is None else _APPLIES[known.changeable],
        _elsewhere(key, value, others),
    ]


def _elsewhere(key: str, value: str, others: Mapping[str, Mapping[str, str]]) -> object:
    """Which others have another value."""
    if key in _OWN or "ath" in key or key.endswith(("Port", "Dir")):
        return None
    different = [
        f"{name}: {without_secret(key, told[key])}"
        for name, told in others.items()
        if told.get(key, value) != value
    ]
    return badge("warning", "; ".join(different)[:300]) if different else None


# -- the action ------------------------------------------------------------------------------------

_PLANNED: Final = {
    "now": "The broker uses it at once, and saves it for its next start.",
    "after a restart": "The broker saves it, and uses it after a restart.",
    None: "The broker will refuse: it can only be changed in the settings file before a start.",
}
_PLANNED_ELSEWHERE: Final = "The broker refuses what it does not let requests change."


def _plan_setting(reader: Reader, query: Query) -> list[str]:
    address, key, value = query.needed("broker"), query.needed("key"), query.text("value")
    broker = one_broker(reader, Query({"broker": address}), "/settings").broker
    _refuse_secret(key)
    own = _settings(reader.client(), address)
    if key not in own:
        raise ConsoleError(f"{broker.title} has no setting {key}")
    known = find_known(broker, key)
    return [
        f"{broker.title}: {key} is {without_secret(key, own[key])} and becomes "
        f"{without_secret(key, value)}.",
        _PLANNED[known.changeable] if known else _PLANNED_ELSEWHERE,
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
    seen = reader.snapshot.broker(address)
    known = None if seen is None else find_known(seen, key)
    said = [f"{key} is {without_secret(key, now or '')} at {address} now."]
    if now != value and known is not None and known.changeable == "after a restart":
        return Done([*said, f"{address} has saved {value} for its next start."], url)
    return Done(said, url, ok=now == value)


VIEWS: Final = [View("/settings", "Settings", "Cluster", "settings.html.j2", settings)]
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
