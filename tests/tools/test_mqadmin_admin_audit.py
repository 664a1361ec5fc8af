"""mqadmin adminAudit: what a broker's audit of changes says, and brokers that have none or lie."""

from __future__ import annotations

import msgspec

from remoting.body.admin_audit import AdminAuditAnswer, AdminAuditEntry
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench

CODE = RequestCode.GET_ADMIN_AUDIT


def entry(number: int, **more: object) -> AdminAuditEntry:
    fields: dict[str, object] = {
        "number": number,
        "time": 1_785_924_000_123,
        "who": None,
        "address": "10.0.0.9:4711",
        "code": 215,
        "name": "DELETE_TOPIC_IN_BROKER",
        "what": {"topic": f"t{number}"},
        "result": 0,
    }
    return msgspec.convert(msgspec.to_builtins(fields | more), AdminAuditEntry)


def answer(cluster: FakeCluster, *entries: AdminAuditEntry, before: int | None = None) -> None:
    body = AdminAuditAnswer(entries=list(entries), before_number=before)
    cluster.always(CODE, body=msgspec.json.encode(body))


def test_the_oldest_comes_first_and_the_next_page_is_named(
    mqadmin: Bench, cluster: FakeCluster
) -> None:
    refused = entry(8, who="eve", result=16, remark="not you", leftOut=3)
    answer(cluster, refused, entry(7), before=7)
    outcome = mqadmin.run("adminAudit", "-b", cluster.address, "-l", "2", "--before", "9")
    head, first, second, more = outcome.out.splitlines()
    assert head.split() == ["#No", "#Time", "#Who", "#From", "#Request", "#What", "#Result"]
    assert first.split()[0] == "7"
    assert first.endswith("DELETE_TOPIC_IN_BROKER  topic=t7  SUCCESS")
    assert "eve" in second
    assert second.endswith("NO_PERMISSION: not you (3 before it have no line)")
    assert more == "older ones: --before 7"
    (request,) = cluster.asked(CODE)
    assert request.ext_fields == {"maxLines": "2", "beforeNumber": "9"}


def test_json_is_the_lines_as_they_are(mqadmin: Bench, cluster: FakeCluster) -> None:
    long = entry(1, what={"topic": "t" * 300, "body": {"a": [1]}})
    answer(cluster, long)
    (found,) = mqadmin.run_json("adminAudit", "-b", cluster.address)
    assert found["what"] == {"topic": "t" * 300, "body": {"a": [1]}}
    assert (found["who"], found["time"], found["leftOut"]) == (None, 1_785_924_000_123, 0)
    assert "t" * 300 not in mqadmin.run("adminAudit", "-b", cluster.address).out


def test_what_a_hostile_line_says_stays_in_its_line(mqadmin: Bench, cluster: FakeCluster) -> None:
    evil = "\x1b[2Jx\nfake"
    answer(cluster, entry(1, who=evil, name=evil, what={evil: evil}, remark=evil, time=10**17))
    outcome = mqadmin.run("adminAudit", "-b", cluster.address)
    assert len(outcome.out.splitlines()) == 2
    assert "\x1b" not in outcome.out


def test_brokers_without_an_audit_and_answers_that_are_none(
    mqadmin: Bench, cluster: FakeCluster
) -> None:
    cluster.always(CODE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    outcome = mqadmin.run("adminAudit", "-b", cluster.address)
    assert outcome.code != 0
    assert "keeps no audit of changes" in outcome.err
    deep = b'{"entries":[{"number":1,"what":{"body":' + b"[" * 100_000
    for body in (b"", b"[]", b'{"entries":[{"number":"x"}]}', b"\xff", deep):
        cluster.always(CODE, body=body)
        outcome = mqadmin.run("adminAudit", "-b", cluster.address)
        assert outcome.code != 0
        assert "its audit cannot be read" in outcome.err
