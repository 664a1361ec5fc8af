"""What brokers and name servers say to harm the console: cost, secrets. No broker."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from conf.secret_names import HIDDEN
from console.access.account import OPERATOR
from console.access.audit_log import AuditError, AuditLog
from console.kept_answers import Answer
from console.lanes import Question
from console.page import ConsoleError, Query, Reader
from console.replies import MOST_AT_ONCE, ask_all
from console.snapshot import BrokerSeen, ClusterSnapshot
from console.views import changes, settings
from remoting.request_code import RequestCode
from tests.console.served_site import ServedSite
from tools.admin_client import BrokerAddress
from tools.commands.ha_status import duration_text
from tools.errors import AdminError

PLACE = BrokerAddress("c", "b", 0, "192.0.2.1:10911")


class Lane:
    """Answers every question at once."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self.threads: set[str] = set()
        self.asked: list[tuple[str, Any]] = []

    def ask(self, address: str, question: Question[Any], *rest: Any) -> Answer[Any]:
        self.asked.append((address, rest[1] if len(rest) > 1 else None))
        self.threads.add(threading.current_thread().name)
        return Answer(self.values.get(address), 1)


def reader(lane: Lane, *members: BrokerSeen, **more: Any) -> Reader:
    snapshot = ClusterSnapshot(
        brokers=members, _by_address={one.place.address: one for one in members}
    )
    return dataclasses.replace(ServedSite().reader(), snapshot=snapshot, lanes=lane, **more)


@pytest.mark.parametrize("account", [None, OPERATOR])
def test_secrets_among_the_settings_are_shown_to_nobody(account: Any) -> None:
    other = dataclasses.replace(PLACE, broker_name="b2", address="192.0.2.2:10911")
    own = {
        "initAuthenticationUser": '{"username":"a","password":"hunter2"}',
        "innerClientAuthenticationCredentials": "hunter2",
        "tls.server.keyPassword": "hunter2",
        "aclSecretKey": "hunter2",
        "apiToken": "hunter2",
        "emptyPassword": "",
        "flushDiskType": "ASYNC_FLUSH",
    }
    told = {key: value.replace("2", "3") for key, value in own.items()}
    lane = Lane(**{PLACE.address: own, other.address: told})
    asker = reader(lane, BrokerSeen(PLACE), BrokerSeen(other), account=account)
    (table,) = settings.settings(asker, Query({"broker": PLACE.address})).tables
    assert "hunter" not in repr(table.rows)
    values = {row["key"]: row["value"] for row in table.data()}
    assert values["flushDiskType"] == "ASYNC_FLUSH"
    assert values["emptyPassword"] == ""
    assert values["aclSecretKey"] == HIDDEN


def test_an_audit_log_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(tmp_path / "a", lambda: 1)
    asker = reader(Lane(), account=OPERATOR, options={"audit": log})
    odd = {"event": "intends", "fields": "200 fields, too many", "at_ms": "x", "who": None}
    monkeypatch.setattr(log, "newest", lambda _count: [odd])
    assert "too many" in repr(changes.audit(asker, Query({})).tables[0].rows)

    def fails(_count: int) -> list[Any]:
        raise AuditError("no right")

    monkeypatch.setattr(log, "newest", fails)
    with pytest.raises(ConsoleError, match="no right"):
        changes.audit(asker, Query({}))
    log.close()


def test_a_page_has_few_threads_however_many_masters_have_a_name() -> None:
    lane = Lane()
    question: Question[Any] = Question("q", lambda _client, _address: None)
    asked = [(f"192.0.2.1:{n}", question) for n in range(500)]
    assert len(ask_all(reader(lane), asked, 0)) == 500
    assert len(lane.threads) <= MOST_AT_ONCE


def test_looks_of_one_account_wait_for_no_other() -> None:
    lane = Lane()
    question: Question[Any] = Question("q", lambda _client, _address: None)
    for account in (None, OPERATOR):
        with pytest.raises(ConsoleError, match="nothing was answered"):
            reader(lane, account=account).look(question)
    guests, operator = (address for address, _ in lane.asked)
    assert guests != operator


def test_messages_are_seen_only_at_brokers_that_check_accounts() -> None:
    """A broker whose white list has the console's address would show them to any account."""

    class Asks(Lane):
        def ask(self, address: str, question: Question[Any], *rest: Any) -> Answer[Any]:
            try:
                return Answer(question.run(cast(Any, Peer()), address), 1)
            except AdminError as error:
                return Answer(error=str(error))

    class Peer:
        name_servers = now_ms = None

        def call(self, address: str, *_rest: Any, **_more: Any) -> str:
            return f"a message of {address}"

    def check(address: str) -> None:
        if address != "judges:1":
            raise ConsoleError(f"{address} does not check accounts", 403)

    def look(who: Reader, at: str) -> Any:
        code = RequestCode.PULL_MESSAGE
        return who.look(Question("q", lambda client, _address: client.call(at, code)))

    alice = reader(Asks(), account=OPERATOR, check_address=check)
    assert look(alice, "judges:1") == "a message of judges:1"
    with pytest.raises(ConsoleError, match="open:1 does not check accounts"):
        look(alice, "open:1")
    assert look(reader(Asks(), account=OPERATOR), "open:1") == "a message of open:1"


def test_a_time_that_is_no_time_is_a_sentence() -> None:
    assert duration_text(float("inf")) == duration_text(float("nan")) == "an unknown time"
