"""The whole console on a real broker: pages, actions, audit, jobs, dead letters, bad input."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from console.access.account import Kind, proved
from console.site import VIEWS
from remoting.request_code import RequestCode
from tests.console.console_on_broker import ConsoleWorld, console_world
from tests.support.deadline import wait_until
from tools.admin_client import AdminClient, NameServers
from tools.errors import AdminError
from tools.message_puller import MessagePuller
from tools.mqadmin import main as mqadmin


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleWorld]:
    with console_world(tmp_path_factory.mktemp("console")) as made:
        yield made


@pytest.fixture(scope="module")
def sent(world: ConsoleWorld) -> str:
    """The unique key of a message that was sent through the console."""
    answer = world.post("sendMessage", topic="Hello", keys="k1 k2", tags="T", body='{"a": "<b>"}')
    assert answer.status_code == 200
    found = re.search(r"SEND_OK: message ([0-9A-F]+)", answer.text)
    assert found is not None, answer.text
    wait_until(lambda: world.operator.get("/messages.json?topic=Hello&key=k2").json())
    return found[1]


def test_a_message_that_was_sent_is_found_by_every_way(world: ConsoleWorld, sent: str) -> None:
    (by_key,) = world.operator.get("/messages.json?topic=Hello&key=k1").json()
    (newest,) = world.operator.get("/messages.json?topic=Hello").json()
    by_unique = world.operator.get(f"/message.json?topic=Hello&id={sent}").json()
    by_offset_id = world.operator.get(f"/message.json?id={by_unique['offsetMsgId']}").json()
    assert {by_key["msgId"], newest["msgId"], by_unique["msgId"], by_offset_id["msgId"]} == {sent}
    assert by_offset_id["body"] == '{"a": "<b>"}'
    assert by_offset_id["timeline"][0]["what"] == "stored"
    page = world.operator.get(f"/message?topic=Hello&id={sent}").text
    assert "&lt;b&gt;" in page
    assert "<b>" not in page.split('class="body"')[1].split("</pre>")[0]


def test_a_peek_moves_no_offset(world: ConsoleWorld, sent: str) -> None:
    name_server = f"127.0.0.1:{world.broker.ports['namesrv']}"
    with AdminClient(NameServers.parse(name_server), lambda: 0) as client:
        puller = MessagePuller(client, "Hello")
        before = [puller.max_offset(queue) for queue in puller.queues()]
        world.operator.get("/messages?topic=Hello")
        assert [puller.max_offset(queue) for queue in puller.queues()] == before
        address = world.console.watch.snapshot().brokers[0].place.address
        offsets = client.call(address, RequestCode.GET_ALL_CONSUMER_OFFSET).body
    assert b"Hello" not in offsets


def test_bodies_are_for_those_who_signed_in(world: ConsoleWorld, sent: str) -> None:
    for url in (
        "/messages?topic=Hello",
        f"/message.json?topic=Hello&id={sent}",
        "/dead-letters/group?name=g",
        "/dead-letters/export?name=g",
        "/jobs",
        "/do/sendMessage",
    ):
        answer = world.guest.get(url)
        assert answer.status_code == 401, url
        assert sent not in answer.text


def test_every_page_answers_in_each_form(world: ConsoleWorld, sent: str) -> None:
    """Whatever a view does, a page without its query is a page or a sentence."""
    for view in VIEWS:
        base = "/index" if view.path == "/" else re.sub(r"\{\w+\}", "x", view.path)
        for url in (re.sub(r"\{\w+\}", "x", view.path), base + ".json"):
            answer = world.operator.get(url)
            assert answer.status_code in (200, 400, 404, 502), (url, answer.text)
            if url.endswith(".json"):
                json.loads(answer.text)
            else:
                assert answer.text.startswith("<!DOCTYPE html>") or not view.template


@pytest.mark.parametrize(
    ("url", "status", "words"),
    [
        ("/messages?topic=none", 502, "does not exist"),
        ("/messages?topic=Hello&count=0", 400, "between 1 and 1000"),
        ("/messages?topic=Hello&from=yesterday", 400, "is no time"),
        ("/message?id=x", 400, "within a topic"),
        ("/message?topic=Hello&broker=x&queue=0&offset=0", 502, "x"),
        ("/message?topic=" + "x" * 1_001, 400, "longer than"),
        ("/nothing/here", 404, "no page"),
        ("/replication/no/such", 404, ""),
        ("/jobs/none", 404, "no such job"),
        ("/do/none", 404, "no such action"),
        ("/dead-letters/group?name=%00%1b[2J%3Cscript%3E", 502, "does not exist"),
    ],
)
def test_bad_input_is_a_sentence(world: ConsoleWorld, url: str, status: int, words: str) -> None:
    answer = world.operator.get(url)
    assert answer.status_code == status
    assert words in answer.text
    assert "Traceback" not in answer.text
    assert "<script>" not in answer.text.replace('<script type="module"', "")


def test_a_readers_account_asks_only_brokers_that_answered(world: ConsoleWorld) -> None:
    """A name server may list any address."""
    console = world.console
    (broker,) = console.watch.snapshot().brokers
    assert console._proving_brokers() == [broker.place.address]
    client = console._clients.of(proved("alice", "secret", Kind.ACL, b"key").key)
    assert client.runtime_info(broker.place.address)["brokerVersionDesc"]
    with pytest.raises(AdminError, match="has not answered this console"):
        client.runtime_info("127.0.0.1:9")


def test_an_account_sees_no_messages_where_accounts_are_not_checked(
    world: ConsoleWorld, sent: str
) -> None:
    access = world.console.access
    account = proved("alice", "secret", Kind.ACL, b"key")
    alice = TestClient(world.console.application, base_url=str(world.guest.base_url))
    cookie = access._cookie
    alice.cookies.set(
        cookie.name(is_tls=False), cookie.text(access._sessions.sign_in(account, "127.0.0.1"))
    )
    answer = alice.get("/messages?topic=Hello")
    assert answer.status_code == 502
    assert "does not check accounts" in answer.text
    assert sent not in answer.text
    assert alice.get("/topics").status_code == 200


def test_a_change_leaves_two_lines(world: ConsoleWorld, sent: str) -> None:
    intends, did = [line for line in world.audit() if line.get("action") != "signIn"][:2]
    assert (intends["event"], intends["action"], intends["who"]) == (
        "intends",
        "sendMessage",
        "operator",
    )
    assert intends["fields"]["topic"] == "Hello"
    assert (did["id"], did["result"]) == (intends["id"], "done")


def test_the_plan_changes_nothing(world: ConsoleWorld, sent: str) -> None:
    before = len(world.audit())
    answer = world.post("sendMessage", step="plan", topic="Fresh", body="x")
    assert "The topic does not exist" in answer.text
    assert len(world.audit()) == before
    assert "Fresh" not in (world.console.watch.snapshot().topics.value or ())


def test_what_fails_is_said_and_noted(world: ConsoleWorld) -> None:
    answer = world.post("sendMessage", topic="no spaces allowed", body="x")
    assert answer.status_code == 502
    assert "Not done" in answer.text
    assert world.audit()[-1]["result"] == "failed"


def test_another_site_changes_nothing(world: ConsoleWorld) -> None:
    before = len(world.audit())
    for data in ({"topic": "Hello"}, {"topic": "Hello", "csrf_token": "x" * 43}):
        assert world.operator.post("/do/sendMessage", data=data).status_code == 403
    token = re.findall(r'csrf_token" value="([^"]+)', world.operator.get("/do/sendMessage").text)[0]
    data = {"topic": "Hello", "csrf_token": token, "step": "run"}
    headers = {"Origin": "http://evil.example"}
    assert world.operator.post("/do/sendMessage", data=data, headers=headers).status_code == 403
    assert world.guest.post("/do/sendMessage", data=data).status_code == 401
    assert len(world.audit()) == before


def test_dead_letters_are_resent_by_a_job(world: ConsoleWorld) -> None:
    """They lie in the group's topic, as a broker writes them there."""
    group, topic = "DeadGroup", "%DLQ%DeadGroup"
    for n in range(3):
        assert (
            world.post("sendMessage", topic=topic, keys=f"d{n}", body=f"body {n}").status_code
            == 200
        )
    url = f"/dead-letters/group.json?name={group}"
    wait_until(lambda: len(world.operator.get(url).json()) == 3)
    wait_until(lambda: topic in (world.console.watch.snapshot().topics.value or ()))
    letters = world.operator.get(url).json()
    assert {letter["resentTimestamp"] for letter in letters} == {None}
    assert group in world.guest.get("/dead-letters").text
    plan = world.post("resendDeadLetters", step="plan", group=group, toTopic="Again")
    assert "all 3 dead letters" in plan.text
    assert world.post("sendMessage", topic="Again", body="first").status_code == 200
    done = world.post("resendDeadLetters", group=group, toTopic="Again")
    job_url = re.findall(r'href="(/jobs/[0-9a-f]+)"', done.text)[0]
    wait_until(lambda: world.operator.get(job_url + ".json").json()["state"] != "running")
    job = world.operator.get(job_url + ".json").json()
    assert (job["state"], job["done"], job["total"]) == ("done", 3, 3)
    assert job["lines"][-1] == "3 resent"
    wait_until(lambda: len(world.operator.get("/messages.json?topic=Again").json()) == 4)
    assert len(world.resend_audit.read_text().splitlines()) == 2 * 3

    def resent() -> list[Any]:
        return [letter["resentTimestamp"] for letter in world.operator.get(url).json()]

    wait_until(lambda: all(resent()))
    first, *_ = world.resend_audit.read_text().splitlines(keepends=True)
    world.resend_audit.write_text(first)  # as if it had been killed then
    page = world.operator.get(f"/dead-letters/group?name={group}").text
    assert page.count("unknown: sent perhaps") == 1
    lines = world.operator.get(f"/dead-letters/export?name={group}").text.splitlines()
    assert sorted(json.loads(line)["body"] for line in lines) == ["body 0", "body 1", "body 2"]
    assert world.guest.get(job_url).status_code == 401


def test_a_broker_that_stops_is_said_within_seconds(tmp_path: Path) -> None:
    with console_world(tmp_path) as own:
        wait_until(lambda: "All well" in own.guest.get("/").text)
        own.broker.terminate()
        wait_until(lambda: "does not answer" in own.guest.get("/").text, 20)
        assert "All well" not in own.guest.get("/").text
        own.broker.start()


def test_read_only(tmp_path: Path) -> None:
    with console_world(tmp_path, is_read_only=True) as own:
        assert own.operator.get("/do/sendMessage").status_code == 403
        assert own.operator.post("/do/sendMessage", data={"topic": "x"}).status_code == 403
        assert own.operator.get("/messages?topic=x").status_code == 502
        assert "read-only" in own.operator.get("/").text


def test_sign_out_ends_it(world: ConsoleWorld, sent: str) -> None:
    browser: TestClient = world.browser()
    browser.get(world.console.url().removeprefix("http://127.0.0.1:8088"))
    page = browser.get("/messages?topic=Hello")
    assert page.status_code == 200
    token = re.findall(r'csrf_token" value="([^"]+)', page.text)[0]
    browser.post("/sign-out", data={"csrf_token": token})
    assert browser.get("/messages?topic=Hello").status_code == 401


# -- what brokers prove ------------------------------------------------------------------------


def test_replication_is_what_mqadmin_prints(world: ConsoleWorld) -> None:
    """But for what changes from one question to the next."""
    name_server = f"127.0.0.1:{world.broker.ports['namesrv']}"
    wait_until(lambda: all(broker.ha.value for broker in world.console.watch.snapshot().brokers))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert mqadmin(["haStatus", "--json", "-n", name_server]) == 0
    printed, shown = json.loads(out.getvalue()), world.guest.get("/replication.json").json()
    for one in (printed[0], shown[0]):
        one["status"].pop("timestamp")
        one["status"].pop("masterCommitLogMaxOffset")
    assert shown == printed
    assert shown[0]["status"]["master"] is True


def test_a_real_broker_tells_of_timers_pops_halves_and_its_log(world: ConsoleWorld) -> None:
    title = world.console.watch.snapshot().brokers[0].title

    def wheel() -> dict[str, Any]:
        found: dict[str, Any] = world.guest.get("/timers.json").json()["wheels"][0]
        return found

    # Its wheel is opened after its start.
    wait_until(lambda: isinstance(wheel()["readTime"], int), 30)
    assert wheel()["broker"] == title

    def halves() -> dict[str, Any]:
        found: dict[str, Any] = world.guest.get("/transactions.json").json()["halves"][0]
        return found

    wait_until(lambda: halves()["givenUp"] == 0, 30)
    assert halves()["broker"] == title
    wait_until(lambda: world.guest.get("/scrub.json").json()["passes"], 30)
    (passed,) = world.guest.get("/scrub.json").json()["passes"]
    assert passed["broker"] == title
    waiting = world.guest.get("/pop.json?group=nobody&topic=Hello").json()["waiting"]
    assert waiting == [] or waiting[0]["pops"] == 0


def test_a_log_is_verified_by_a_job(world: ConsoleWorld) -> None:
    name = world.console.watch.snapshot().brokers[0].place.broker_name
    answer = world.post("verifyReplica", broker=name)
    assert answer.status_code == 200, answer.text
    found = re.search(r"/jobs/[0-9a-f]+", answer.text)
    assert found is not None
    job = found[0]
    wait_until(lambda: world.operator.get(job + ".json").json()["state"] != "running")
    told = world.operator.get(job + ".json").json()
    assert told["state"] == "done", told
    assert any("no other broker of the group to compare with" in line for line in told["lines"])


def test_a_recall_of_a_timer_that_waits(world: ConsoleWorld) -> None:
    """recallMessageEnable is false by default: the broker's refusal is the answer."""
    name = world.console.watch.snapshot().brokers[0].place.broker_name
    text = f"v1 Hello {name} {4_000_000_000_000} KEY"
    handle = base64.urlsafe_b64encode(text.encode()).decode()
    plan = world.post("recallTimer", step="plan", recallHandle=handle)
    assert "due 2096-10-02 07:06:40 UTC, will not be delivered" in plan.text
    answer = world.post("recallTimer", recallHandle=handle)
    assert answer.status_code == 502
    assert "Not done" in answer.text
    assert world.audit()[-1]["result"] == "failed"
