"""Pages of brokers: changes, settings, accounts, connections, with what brokers tell and do not."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.access.account import OPERATOR
from console.access.audit_log import AuditLog
from console.group_answers import Members
from console.lanes import WAITING
from console.one_broker import LINKS
from console.page import ConsoleError, Query
from console.snapshot import Told
from console.views import accounts, changes, connections, settings
from remoting.body.acl_accounts import AclAccount, AclAccounts
from remoting.body.admin_audit import AdminAuditAnswer, AdminAuditEntry
from remoting.body.client_connection import Connection, ConsumerConnection, ProducerInfo
from remoting.body.data_version import DataVersion
from tests.broker import known_settings_file
from tests.console.pages import (
    HOSTILE,
    NOW,
    Answers,
    java,
    page,
    reader,
    rows,
    seen,
    shown,
    texts,
)
from tools.errors import AdminError

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
        def ask(self, *asked: Any, **more: Any) -> Any:
            address, question = asked[:2]
            self.values[address, question.key] = question.run(Client(), address)
            return super().ask(*asked, **more)

    who = reader(seen(metrics=METRICS), answers=Lane(), account=OPERATOR)
    page(changes.audit, who, count="7")
    assert asked == [("b0:10911", 28914, 7)]


# -- settings --------------------------------------------------------------------------------------

OWN_DEFAULTS = {
    "flushDiskType": "ASYNC_FLUSH",
    "fileReservedTime": "72",
    "brokerName": "b",
    "storePathRootDir": "/data",
}


def test_the_file_of_known_settings_is_as_they_are_declared() -> None:
    assert known_settings_file.FILE.read_text(encoding="utf-8") == known_settings_file.text(), (
        f"write it anew: {known_settings_file.COMMAND}"
    )


def told_settings(**by_address: dict[str, str]) -> Answers:
    return Answers({(f"{name}:10911", "settings"): told for name, told in by_address.items()})


def test_a_setting_has_its_default_and_what_a_change_needs() -> None:
    own = OWN_DEFAULTS | {"listenPort": "10911", "fileReservedTime": "48", "noSuchKey": "x"}
    own["transactionTimeOut"] = "6000"
    who = reader(seen(metrics=METRICS), answers=told_settings(b0=own))
    found = {row["key"]: row for row in rows(page(settings.settings, who), "settings")}
    assert {key: (row["default"], row["changed"]) for key, row in found.items()} == {
        "flushDiskType": ("ASYNC_FLUSH", "default"),
        "fileReservedTime": ("72", "changed"),
        "brokerName": ("depends on the host", None),
        "storePathRootDir": ("depends on the host", None),
        "listenPort": ("10911", "default"),
        "transactionTimeOut": ("6000", "default"),
        "noSuchKey": ("not known", None),
    }
    assert found["fileReservedTime"]["applies"] == "at once"
    assert found["flushDiskType"]["applies"] == "after a restart"
    assert found["listenPort"]["applies"] == "by the settings file, with a restart"
    assert found["noSuchKey"]["applies"] == "not known"
    only = rows(page(settings.settings, who, shown="changed"), "settings")
    assert [row["key"] for row in only] == ["fileReservedTime"]
    with pytest.raises(ConsoleError, match="shown must be one of"):
        page(settings.settings, who, shown="some")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("V4_9_8", {"haTransferBatchSize": "32768", "transactionCheckInterval": "60000"}),
        ("V5_3_3", {"haTransferBatchSize": "32768", "transactionCheckInterval": "30000"}),
        ("V4_2_0", {}),
        ("", {}),
    ],
)
def test_defaults_of_java_brokers(version: str, expected: dict[str, str]) -> None:
    keys = {"haTransferBatchSize", "transactionCheckInterval", "scrubIntervalHours", "brokerIP1"}
    runtime = Told({"brokerVersionDesc": version}, NOW)
    who = reader(java(runtime=runtime), answers=told_settings(j0=dict.fromkeys(keys, "60000")))
    found = rows(page(settings.settings, who), "settings")
    assert {row["key"]: row["default"] for row in found} == (
        dict.fromkeys(keys, "not known") | expected
    )
    assert {row["applies"] for row in found} == {"not known"}


def test_other_brokers_are_asked_side_by_side_and_who_is_silent_is_said() -> None:
    others = [seen(f"o{number}", metrics=METRICS) for number in range(7)]
    together = threading.Barrier(len(others) + 1, timeout=10)

    class Lane(Answers):
        def ask(self, *asked: Any, **more: Any) -> Any:
            together.wait()
            return super().ask(*asked, **more)

    told = {"flushDiskType": "SYNC_FLUSH", "brokerName": "o", "fileReservedTime": "72"}
    lane = Lane({("b0:10911", "settings"): OWN_DEFAULTS, ("o00:10911", "settings"): told})
    # The chosen one and seven others: with one in turn the barrier would break.
    who = reader(seen(metrics=METRICS), *others, answers=lane)
    found = page(settings.settings, who, broker="b0:10911")
    assert {row["key"] for row in rows(found, "settings") if row["others"]} == {"flushDiskType"}
    assert found.context["compared"] == ["o0:0"]
    assert found.context["silent"] == [f"o{number}:0" for number in range(1, 7)]


def test_few_others_are_asked() -> None:
    answers = Answers()
    slave = seen("b", 1, metrics=METRICS)
    many = [seen(f"o{number}", metrics=METRICS) for number in range(30)]
    who = reader(slave, *many, answers=answers)
    page(settings.settings, who, broker="o70:10911")
    assert len(answers.asked) == len({address for address, _ in answers.asked}) == 9
    assert answers.asked[0] == ("o70:10911", "settings")
    assert ("b1:10911", "settings") not in answers.asked, "it has another role"


def test_a_broker_is_found_among_hundreds() -> None:
    many = [seen(f"n{number:03}", metrics=METRICS) for number in range(200)]
    who = reader(*many, answers=told_settings(n1500={}))
    one = page(settings.settings, who, broker="n1500:10911").context["one"]
    assert (one.broker.title, one.matched, one.total) == ("n150:0", 200, 200)
    assert len(one.links) == LINKS
    assert one.previous_url is None
    titles: list[str] = []
    number = 1
    while True:
        one = page(settings.settings, who, brokers=str(number)).context["one"]
        titles += [title for title, _ in one.links]
        if one.next_url is None:
            break
        number += 1
        assert f"brokers={number}" in one.next_url
    assert titles == [broker.title for broker in many]
    one = page(settings.settings, who, find="N15", shown="changed").context["one"]
    assert [title for title, _ in one.links] == [f"n15{number}:0" for number in range(10)]
    assert all("find=N15" in url and "shown=changed" in url for _, url in one.links)
    assert page(settings.settings, who, brokers="99").context["one"].next_url is None
    with pytest.raises(ConsoleError, match="no broker none"):
        page(settings.settings, who, broker="none")


def test_hostile_settings_are_text() -> None:
    evil = {HOSTILE: HOSTILE, "flushDiskType": HOSTILE}
    named = [seen(HOSTILE, number, metrics=METRICS) for number in range(30)]
    address = named[0].place.address
    who = reader(*named, answers=Answers({(address, "settings"): evil}))
    html = shown(settings.VIEWS[0], who, {"find": HOSTILE[:20], "broker": address})
    assert "<img" not in html
    html = shown(settings.VIEWS[0], who, {"broker": address, "shown": "changed"})
    assert "<img" not in html
    assert "&lt;img src=x" in html


def test_a_change_says_when_it_applies() -> None:
    values = dict(OWN_DEFAULTS, listenPort="10911")

    class Client:
        def call(self, _address: str, code: int, *_: Any, body: bytes = b"") -> Any:
            key, value = (body.decode().strip() or "=").split("=", 1)
            if code == 25 and key == "fileReservedTime":
                values[key] = value
            text = "".join(f"{name}={own}\n" for name, own in values.items())
            return type("Response", (), {"body": text.encode()})

    who = reader(seen(metrics=METRICS), java(), client=Client(), may_change=True)
    (action,) = settings.ACTIONS

    def plan(key: str, broker: str = "b0:10911") -> str:
        return action.plan(who, Query({"broker": broker, "key": key, "value": "1"}))[1]

    assert "at once" in plan("fileReservedTime")
    assert "after a restart" in plan("flushDiskType")
    assert "will refuse" in plan("listenPort")
    assert "refuses what it does not let" in plan("flushDiskType", "j0:10911")
    now = action.run(who, Query({"broker": "b0:10911", "key": "fileReservedTime", "value": "1"}))
    assert (now.ok, list(now.sentences)) == (True, ["fileReservedTime is 1 at b0:10911 now."])
    later = action.run(who, Query({"broker": "b0:10911", "key": "flushDiskType", "value": "1"}))
    assert later.ok
    assert later.sentences[1] == "b0:10911 has saved 1 for its next start."
    java_kept = {"broker": "j0:10911", "key": "flushDiskType", "value": "1"}
    assert not action.run(who, Query(java_kept)).ok


# -- connections and accounts ----------------------------------------------------------------------


def test_hostile_producers_and_consumers_are_text() -> None:
    info = ProducerInfo(
        client_id=HOSTILE,
        remote_ip=HOSTILE,
        language=HOSTILE,
        version=-(10**12),
        last_update_timestamp=-(10**18),
    )
    odd = Connection(client_id=HOSTILE, client_addr=HOSTILE, language=HOSTILE, version=-1)
    told = {
        "producers": {HOSTILE: [info]},
        "groups": {HOSTILE},
        ("members", HOSTILE): members(odd, odd),
    }
    answers = Answers({("b0:10911", key): value for key, value in told.items()})
    who = reader(seen(metrics=METRICS), answers=answers)
    html = shown(connections.VIEWS[0], who, {"begins": HOSTILE[:9]})
    assert "<img" not in html
    assert "&lt;img src=x" in html
    assert "None is known." not in html


def members(*found: Connection) -> Members:
    return Members(ConsumerConnection(connection_set=list(found)), total=len(found))


def member(client: str, host: str, port: int, version: int = 479) -> Connection:
    language = "JAVA" if version == 479 else "CPP"
    return Connection(
        client_id=client, client_addr=f"{host}:{port}", language=language, version=version
    )


def test_consumers_by_group_host_and_kind() -> None:
    told: dict[Any, Any] = {
        "groups": {"g4", "g3", "g2", "g1", "TOOLS_CONSUMER"},
        ("members", "g1"): members(
            member("c1", "10.0.0.1", 1),
            member("c2", "10.0.0.1", 2),
            member("c3", "10.0.0.2", 3, 409),
        ),
        # The same client over the same connection, in another group.
        ("members", "g2"): members(member("c1", "10.0.0.1", 1)),
        ("members", "g3"): AdminError("g3 cannot be told"),
        ("members", "g4"): AdminError(WAITING),
    }
    answers = Answers({("b0:10911", key): value for key, value in told.items()})
    who = reader(seen(metrics=METRICS), answers=answers)
    found = page(connections.connections, who)
    assert {tuple(row) for row in texts(found, "consumers")} == {
        ("g1", "3", "3"),
        ("g2", "1", "1"),
        ("g3", "g3 cannot be told", "–"),
        ("g4", "asked soon", "–"),
    }
    assert texts(found, "hosts") == [["10.0.0.1", "2", "2", "2"], ["10.0.0.2", "1", "1", "1"]]
    assert texts(found, "kinds") == [
        ["JAVA", "V5_3_3", "2", "2", "2"],
        ["CPP", "V4_9_8", "1", "1", "1"],
    ]
    assert found.context["waiting"] == 1


def test_a_broker_is_asked_for_thirty_groups_behind_the_pages() -> None:
    later: list[bool] = []

    class Lane(Answers):
        def ask(self, *asked: Any, **more: Any) -> Any:
            if isinstance(asked[1].key, tuple):
                later.append(more["is_later"] and asked[4] == 0)
            return super().ask(*asked, **more)

    names = [f"g{number:03}" for number in range(100)]
    lane = Lane({("b0:10911", "groups"): set(names)})
    who = reader(seen(metrics=METRICS), answers=lane)
    found = page(connections.connections, who)
    assert later == [True] * 30
    assert (found.context["counted"], found.context["groups"]) == (30, 100)
    lane.asked.clear()
    page(connections.connections, who, **{"consumers.page": "4"})
    assert [key for _, key in lane.asked][2:] == [("members", name) for name in names[90:]]
    found = page(connections.connections, who, begins="g09")
    assert [row["group"] for row in rows(found, "consumers")] == names[90:]
    assert all("begins=g09" in url for _, url in found.context["one"].links)
    silent = page(connections.connections, reader(seen(metrics=METRICS), answers=Answers()))
    assert silent.context["problems"] == ["b0:10911 is silent"] * 2


SECRETS = b"""{"globalWhiteAddrs":["10.1.*"],"plainAccessConfigs":[
{"accessKey":"account-1","secretKey":"hunter2-secret","admin":true,"topicPerms":["a=PUB","b=SUB"],
"defaultTopicPerm":"DENY","whiteRemoteAddress":""},
{"accessKey":"account-2","groupPerms":["g=SUB"],"defaultGroupPerm":"SUB","whiteRemoteAddress":"10.2.*"}]}"""


def answered(run: Callable[[Any, str], Any], body: bytes) -> Any:
    """What a question makes of an answer."""
    client = SimpleNamespace(call=lambda *_: SimpleNamespace(body=body))
    return run(client, "b0:10911")


def test_accounts_of_4_9_are_shown_without_secrets() -> None:
    told = answered(accounts.ACCOUNTS_OF.run, SECRETS)
    assert "hunter2" not in repr(told)
    files = {"/conf/plain_acl.yml": DataVersion(timestamp=NOW, counter=7)}
    values = {
        "users": AdminError("it has no users"),
        "acls": [],
        "accounts": told,
        "access files": files,
    }
    answers = Answers({("b0:10911", key): value for key, value in values.items()})
    who = reader(seen(metrics=METRICS), answers=answers, account=OPERATOR)
    found = page(accounts.accounts, who)
    assert texts(found, "accounts") == [
        ["account-1", "yes", "a=PUB, b=SUB", "DENY", "", "–", "–"],
        ["account-2", "no", "", "–", "g=SUB", "SUB", "10.2.*"],
    ]
    assert rows(found, "files") == [{"path": "/conf/plain_acl.yml", "counter": 7, "timestamp": NOW}]
    assert found.context["white"] == ["10.1.*"]
    assert found.context["sentences"] == ["b:0 does not tell its users of 5.x: it has no users"]
    with pytest.raises(ConsoleError, match="Sign in"):
        page(accounts.accounts, reader(seen(metrics=METRICS)))


def test_passwords_of_users_are_not_kept() -> None:
    body = b'[{"username":"u","password":"hunter2","userType":"Normal","userStatus":"enable"}]'
    assert answered(accounts.USERS_OF.run, body) == [("u", "Normal", "enable")]


def test_who_has_no_accounts_is_not_asked_for_their_files() -> None:
    """A Java broker without access control never answers 52."""
    answers = Answers()
    page(accounts.accounts, reader(java(), answers=answers, account=OPERATOR))
    assert {key for _, key in answers.asked} == {"users", "acls", "accounts"}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"plainAccessConfigs":[{"admin":1}]}', b"\xff"])
def test_accounts_that_are_none_are_a_sentence(body: bytes) -> None:
    with pytest.raises(AdminError, match="cannot be read"):
        answered(accounts.ACCOUNTS_OF.run, body)


def test_hostile_users_and_accounts_are_text() -> None:
    user = (HOSTILE, HOSTILE, HOSTILE)
    account = AclAccount(
        access_key=HOSTILE, topic_perms=[HOSTILE] * 1_000, white_remote_address=HOSTILE
    )
    values = {
        "users": [user],
        "accounts": AclAccounts(
            plain_access_configs=[account], global_white_addrs=[HOSTILE] * 1_000
        ),
        "access files": {HOSTILE: DataVersion(timestamp=-1, counter=-1)},
    }
    answers = Answers({("b0:10911", key): value for key, value in values.items()})
    who = reader(seen(metrics=METRICS), answers=answers, account=OPERATOR)
    html = shown(accounts.VIEWS[0], who)
    assert "<img" not in html
    assert html.count("&lt;img src=x") < 200
    assert "900 more" in html
    assert "b0:10911 is silent" in html
