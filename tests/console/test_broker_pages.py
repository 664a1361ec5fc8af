"""Pages of brokers: changes, settings, accounts, connections, with what brokers tell and do not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from console.access.account import OPERATOR
from console.access.audit_log import AuditLog
from console.lanes import Question
from console.page import ConsoleError
from console.views import changes
from remoting.body.admin_audit import AdminAuditAnswer, AdminAuditEntry
from tests.console.pages import HOSTILE, NOW, Answers, java, page, reader, rows, seen, shown

TOLD = ("changes", 200)
METRICS: dict[str, Any] = {"rocketmq_store_offset_bytes": []}


# -- changes ---------------------------------------------------------------------------------------


def entry(number: int, **more: Any) -> AdminAuditEntry:
    fields: dict[str, Any] = {
        "time": NOW + number,
        "who": "operator",
        "address": "10.0.0.9:4711",
        "code": 17,
        "name": "UPDATE_AND_CREATE_TOPIC",
        "what": {"topic": f"t{number}", "body": {"a": [1]}},
        "result": 0,
    }
    return AdminAuditEntry(number=number, **(fields | more))


def told(*entries: AdminAuditEntry) -> AdminAuditAnswer:
    return AdminAuditAnswer(entries=list(entries))


def test_changes_of_brokers_are_merged_the_newest_first() -> None:
    refused = entry(2, who=None, result=16, remark="not you", left_out=3)
    answers = Answers(
        {
            ("b0:10911", TOLD): told(entry(3), entry(1)),
            ("b1:10911", TOLD): told(refused),
        }
    )
    brokers = (seen(metrics=METRICS), seen(broker_id=1, metrics=METRICS), java())
    who = reader(*brokers, answers=answers, account=OPERATOR)
    found = page(changes.audit, who)
    shown_rows = rows(found, "brokers")
    assert [(row["broker"], row["what"]) for row in shown_rows] == [
        ("b:0", 'topic=t3, body={"a": [1]}'),
        ("b:1", 'topic=t2, body={"a": [1]}'),
        ("b:0", 'topic=t1, body={"a": [1]}'),
    ]
    assert shown_rows[1]["who"] is None
    assert shown_rows[1]["result"] == "NO_PERMISSION: not you"
    assert [row["leftOut"] for row in shown_rows] == [None, 3, None]
    (sentence,) = found.context["sentences"]
    assert sentence.startswith("j:0: Java's brokers keep no audit")
    assert {address for address, _ in answers.asked} == {"b0:10911", "b1:10911"}


def test_few_brokers_are_asked_unless_a_name_is_chosen() -> None:
    brokers = [seen(f"n{number:02}", metrics=METRICS) for number in range(30)]
    brokers += [seen("n07", slave, metrics=METRICS) for slave in range(1, 40)]
    answers = Answers()
    who = reader(*brokers, answers=answers, account=OPERATOR)
    found = page(changes.audit, who)
    assert len(answers.asked) == changes.ASKED
    assert "6 of 69 brokers are asked" in found.context["sentences"][0]
    assert sum("is silent" in sentence for sentence in found.context["sentences"]) == 6
    answers.asked.clear()
    page(changes.audit, who, broker="n07")
    assert len(answers.asked) == changes.MOST_ASKED
    assert {address[:3] for address, _ in answers.asked} == {"n07"}
    none = page(changes.audit, who, broker="none")
    assert none.context["sentences"] == ["No broker is called none."]


def test_changes_are_for_those_who_signed_in() -> None:
    with pytest.raises(ConsoleError, match="Sign in"):
        page(changes.audit, reader(seen(metrics=METRICS)))


def test_hostile_changes_are_text(tmp_path: Path) -> None:
    evil = entry(10**18, who=HOSTILE, address=HOSTILE, name=HOSTILE, what={HOSTILE: HOSTILE})
    worse = entry(1, result=99_999, remark=HOSTILE, time=-(10**30))
    answers = Answers({("b0:10911", TOLD): told(evil, worse)})
    log = AuditLog(tmp_path / "a", lambda: 1)
    options = {"audit": log}
    named = (seen(metrics=METRICS), java(HOSTILE))
    who = reader(*named, answers=answers, account=OPERATOR, options=options)
    html = shown(changes.VIEWS[0], who)
    log.close()
    assert "<img" not in html
    assert "\x1b" not in re.sub('value="[^"]*"', "", html), "but for what a form sends back"
    assert "&lt;img src=x" in html


def test_a_broker_is_asked_for_as_many_lines_as_the_reader_wants() -> None:
    asked: list[tuple[str, int, Any]] = []

    class Client:
        def call(self, address: str, code: int, header: Any) -> Any:
            asked.append((address, code, header.max_lines))
            return type("Response", (), {"body": b'{"entries":[]}'})

    class Lane(Answers):
        def ask(self, address: str, question: Question[Any], *rest: Any) -> Any:
            self.values[address, question.key] = question.run(Client(), address)  # type: ignore[arg-type]
            return super().ask(address, question, *rest)

    who = reader(seen(metrics=METRICS), answers=Lane(), account=OPERATOR)
    page(changes.audit, who, count="7")
    assert asked == [("b0:10911", 28914, 7)]
