"""Changes: who changed what through this console, and beside it what brokers of ours have noted
themselves, whoever asked them (request 28914).

The console's lines say who was signed in here; a broker's say whose signature it has checked, also
of mqadmin's and other tools' requests.

Tested by tests/console/test_broker_pages.py.
"""

from __future__ import annotations

from typing import Any, Final

from console.access.audit_log import AuditError, AuditLog
from console.kept_answers import Answer
from console.lanes import Question
from console.page import ConsoleError, Page, Query, Reader, View
from console.replies import BROKER, ask_all
from console.snapshot import BrokerSeen
from console.tables import Table, TableCell, badge, moment
from remoting.body.admin_audit import AdminAuditAnswer, AdminAuditEntry
from tools.admin_audit import newest_changes, result_text, what_text
from tools.report import columns

AUDIT: Final = columns(
    "When at_ms | Who who | From from | What action | With fields | Result result | Why why"
)
AT_BROKERS: Final = columns(
    "When time | Broker broker | Who who | From address | Request name | With what | "
    "Result result | No line before it leftOut >"
)
AGE_MS: Final = 10_000
MOST_AUDIT: Final = 1_000
ASKED: Final = 6
"""Brokers that are asked when the reader has named none."""
MOST_ASKED: Final = 24
"""Of one name: a name server may list any number."""


def audit(reader: Reader, query: Query) -> Page:
    """Who changed what, the newest first: through this console, and at brokers by whatever way.

    count; broker: the brokers of this name.
    """
    reader.must_sign_in("the audit log")
    count = query.number("count", 200, 1, MOST_AUDIT)
    kept = reader.options.get("audit")
    entries = _newest(kept, count) if isinstance(kept, AuditLog) else []
    brokers, sentences = _chosen(reader, query)
    return Page(
        context={
            "names": sorted({each.place.broker_name for each in reader.snapshot.registered()}),
            "chosen": query.text(BROKER),
            "sentences": sentences,
        },
        tables=[
            Table("audit", "Through this console", AUDIT, _rows(entries), "There is none."),
            Table(
                "brokers",
                "At brokers",
                AT_BROKERS,
                _broker_rows(reader, brokers, count, sentences),
                "No broker tells of any.",
            ),
        ],
    )


# -- the console's own -----------------------------------------------------------------------------


def _newest(kept: AuditLog, count: int) -> list[dict[str, Any]]:
    try:
        return kept.newest(count)
    except AuditError as error:
        raise ConsoleError(str(error), 503) from error


def _rows(entries: list[dict[str, Any]]) -> list[list[object]]:
    return [
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


def _fields_text(fields: object) -> str:
    """The audit log says in a sentence when there are too many."""
    if isinstance(fields, dict):
        return ", ".join(f"{key}={value}" for key, value in fields.items())
    return "" if fields is None else str(fields)


# -- the brokers' ----------------------------------------------------------------------------------


def _chosen(reader: Reader, query: Query) -> tuple[list[BrokerSeen], list[str]]:
    """Masters and slaves of the name that the query has, else the first that may tell; and what
    that leaves out, in sentences."""
    name = query.text(BROKER)
    brokers = reader.snapshot.registered()
    if name:
        brokers = [broker for broker in brokers if broker.place.broker_name == name]
        if not brokers:
            return [], [f"No broker is called {name}."]
    telling = [broker for broker in brokers if broker.is_ours is not False]
    said = []
    if javas := [broker.title for broker in brokers if broker.is_ours is False]:
        more = f" and {len(javas) - ASKED} more" if len(javas) > ASKED else ""
        said.append(
            f"{', '.join(javas[:ASKED])}{more}: Java's brokers keep no audit of changes; what "
            "was changed through this console is above."
        )
    asked = telling[: MOST_ASKED if name else ASKED]
    if len(telling) > len(asked):
        said.append(f"{len(asked)} of {len(telling)} brokers are asked; choose a name for others.")
    return asked, said


def _broker_rows(
    reader: Reader, brokers: list[BrokerSeen], count: int, sentences: list[str]
) -> list[list[object]]:
    question = Question(
        ("changes", count), lambda client, address: newest_changes(client, address, count)
    )
    asked = [(broker.place.address, question) for broker in brokers]
    found: list[tuple[AdminAuditEntry, BrokerSeen]] = []
    for broker, answer in zip(brokers, ask_all(reader, asked, AGE_MS), strict=True):
        sentences += _why_not(broker, answer)
        if answer.value is not None:
            found += [(entry, broker) for entry in answer.value.entries]
    found.sort(key=lambda each: each[0].time, reverse=True)
    return [_broker_row(entry, broker) for entry, broker in found[:count]]


def _why_not(broker: BrokerSeen, answer: Answer[AdminAuditAnswer]) -> list[str]:
    return [] if answer.error is None else [f"{broker.title} does not tell: {answer.error}"]


def _broker_row(entry: AdminAuditEntry, broker: BrokerSeen) -> list[object]:
    result = result_text(entry)
    return [
        moment(entry.time),
        broker.title,
        entry.who,
        entry.address,
        entry.name,
        what_text(entry),
        result if entry.result == 0 else TableCell(result, result, badge="warning"),
        entry.left_out or None,
    ]


VIEWS: Final = [View("/audit", "Changes", "Cluster", "audit.html.j2", audit)]
