"""Actions of the test's own behind the real gate: who may, what is announced, what is shown."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from console.access.access import Access, AccessOptions
from console.access.account import Account, Kind
from console.access.audit_log import AuditError, AuditLog
from console.access.client_address import Ways
from console.actions import Actions, ActionSite
from console.app import ConsoleApp, Site
from console.jobs import Job
from console.page import Action, ConsoleError, Done, Field, Query, Reader
from console.views import jobs as jobs_view
from remoting.address_patterns import parse_patterns
from remoting.request_code import RequestCode
from tests.console.served_site import ServedSite
from tests.support.deadline import wait_until
from tools.admin_client import AdminClient
from tools.errors import AdminError

BASE = "http://localhost:8088"
HOSTILE = '"><script>alert(1)</script>'


class Client:
    """What an action asks with."""

    name_servers = ()
    now_ms = None

    def __init__(self) -> None:
        self.asked: list[str] = []

    def call(self, address: str, *_rest: Any, **_more: Any) -> None:
        self.asked.append(address)


class World:
    """The application with one action, and who is signed in."""

    def __init__(self, root: Path, *, is_read_only: bool = False) -> None:
        self.path = root / "audit.log"
        self.client = Client()
        self.ran: list[dict[str, str]] = []
        self.ran_as: list[str] = []
        self.breaks_audit = False
        self.error: Exception | None = None
        self.done = Done(["It is <done>.\x1b[2J"], "/x?a=<")
        self.site = ServedSite()
        self.base = self.site.reader()
        self.audit = AuditLog(self.path, lambda: 1)
        options = AccessOptions(
            8088, Ways(parse_patterns(""), frozenset()), is_read_only, ("ns:1",)
        )
        self.access = Access(options, cast(Any, None), list, self.audit, lambda: 0)
        app = ConsoleApp(
            Site(
                views=jobs_view.VIEWS,
                reader_of=self._reader,
                snapshot=lambda: self.site.snapshot,
                frame=self.access.frame,
            )
        )
        self.access.pages = app
        field = Field("topic", "Topic")
        action = Action(
            "it",
            "Do it",
            [field, Field("pass", "Secret", "password", needed=False)],
            self._plan,
            self._run,
            secret_fields=frozenset({"pass"}),
        )
        plain = Action("plain", "Plain", [field], self._plan, self._run)
        site = ActionSite(self.access, app.page, app.sentence, self._reader, self.base.jobs)
        routes = [*self.access.routes(), *Actions([action, plain], site).routes()]
        self.application = self.access.wrap(app.application(routes))
        self.operator = self.browser()
        self.token = self.access.token.url("").partition("=")[2]
        self.operator.get(f"/jobs?token={self.token}")

    def browser(self) -> TestClient:
        return TestClient(self.application, base_url=BASE, raise_server_exceptions=False)

    def _reader(self, request: Request) -> Reader:
        session = self.access.session_of(request)
        return dataclasses.replace(
            self.base,
            account=None if session is None else session.account,
            client_of=lambda _key: cast(AdminClient, self.client),
        )

    def _plan(self, _reader: Reader, query: Query) -> list[str]:
        return [f"{query.needed('topic')} is <changed>.\x1b[2J"]

    def _run(self, reader: Reader, query: Query) -> Done:
        self.ran.append(dict(query.fields))
        self.ran_as.append("" if reader.account is None else reader.account.name)
        assert self.lines()[-1]["event"] == "intends"
        if query.fields.get("at"):
            reader.client().call(query.fields["at"], RequestCode.UPDATE_BROKER_CONFIG)
        if self.breaks_audit:
            self.path.rename(self.path.with_name("aside"))
            self.path.mkdir()
        if self.error is not None:
            raise self.error
        return self.done

    def csrf(self) -> str:
        page = self.operator.get("/do/it").text
        return page.split('name="csrf_token" value="')[1].split('"')[0]

    def post(self, step: str = "run", **fields: str) -> httpx.Response:
        data = {"csrf_token": self.csrf(), "step": step, "topic": "T", **fields}
        return self.operator.post("/do/it", data=data)

    def lines(self) -> list[dict[str, Any]]:
        path = self.path if self.path.is_file() else self.path.with_name("aside")
        found = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in found if line.get("action") != "signIn"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        made = World(tmp_path)
        stack.callback(made.audit.close)
        yield made


def test_a_form_then_the_plan_then_the_result(world: World) -> None:
    form = world.operator.get("/do/it", params={"topic": HOSTILE, "pass": "hunter2"})
    assert form.status_code == 200
    assert "<script>alert" not in form.text
    assert "hunter2" not in form.text
    plan = world.post("plan", topic=HOSTILE)
    assert "is &lt;changed&gt;." in plan.text
    assert "<script>alert" not in plan.text
    assert "\x1b" not in plan.text
    assert (world.ran, world.lines()) == ([], [])
    done = world.post(**{"pass": "hunter2"})
    assert done.status_code == 200
    assert "It is &lt;done&gt;." in done.text
    assert "\x1b" not in done.text
    assert 'href="/x?a=&lt;"' in done.text
    intends, did = world.lines()
    assert (intends["action"], intends["who"], intends["fields"]) == (
        "it",
        "operator",
        {"topic": "T"},
    )
    assert (did["id"], did["result"]) == (intends["id"], "done")
    assert world.ran[0]["pass"] == "hunter2"


def test_a_link_shows_the_plan_but_never_one_with_secrets(world: World) -> None:
    assert "is &lt;changed&gt;" in world.operator.get("/do/plain?step=plan&topic=T").text
    assert "is &lt;changed&gt;" not in world.operator.get("/do/it?step=plan&topic=T").text
    assert world.operator.get("/do/plain?step=run&topic=T").status_code == 200
    assert world.ran == []


def test_a_plan_that_refuses_is_the_form_with_the_reason(world: World) -> None:
    answer = world.post("plan", topic=" ", **{"pass": "hunter2"})
    assert answer.status_code == 400
    assert "topic is missing" in answer.text
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConsoleError("not <so>", 404), "Not done: not &lt;so&gt;"),
        (AdminError("peer\x1b[2J"), "Not done: peer"),
        (ZeroDivisionError("secret detail"), "It may be half done"),
    ],
)
def test_a_failure_is_said_and_noted(world: World, error: Exception, words: str) -> None:
    world.error = error
    answer = world.post()
    assert answer.status_code == 502
    assert words in answer.text
    assert "secret detail" not in answer.text
    assert [line.get("result") for line in world.lines()] == [None, "failed"]


def test_half_done_is_no_success(world: World) -> None:
    world.done = Done(["a: done", "b: refused"], ok=False)
    assert world.post().status_code == 502
    assert world.lines()[-1]["result"] == "failed"
    assert world.lines()[-1]["why"] == "a: done; b: refused"


def test_nothing_is_done_that_cannot_be_announced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = world.csrf()

    def full(*_any: Any) -> None:
        raise AuditError("No space left on device")

    monkeypatch.setattr(world.audit, "_write", full)
    answer = world.operator.post("/do/it", data={"csrf_token": token, "step": "run", "topic": "T"})
    assert answer.status_code == 503
    assert "Nothing was done: No space left" in answer.text
    assert world.ran == []


def test_a_result_that_cannot_be_written_is_said(world: World) -> None:
    world.breaks_audit = True
    answer = world.post()
    assert "It is &lt;done&gt;." in answer.text
    assert "The audit log lacks this result" in answer.text
    assert [line["event"] for line in world.lines()] == ["intends"]


def test_only_the_reader_of_this_console_changes_anything(world: World) -> None:
    data = {"csrf_token": world.csrf(), "step": "run", "topic": "T"}
    assert world.browser().get("/do/it").status_code == 401
    assert world.browser().post("/do/it", data=data).status_code == 401
    assert world.operator.post("/do/it", data=data | {"csrf_token": "x"}).status_code == 403
    forged = world.operator.post("/do/it", data=data, headers={"Origin": "http://evil"})
    assert forged.status_code == 403
    assert world.operator.post("/do/none", data=data).status_code == 404
    assert (world.ran, world.lines()) == ([], [])


def test_read_only_refuses_forms_and_posts(tmp_path: Path) -> None:
    world = World(tmp_path, is_read_only=True)
    for browser in (world.operator, world.browser()):
        assert browser.get("/do/it").status_code == 403
        assert browser.post("/do/it", data={"topic": "T"}).status_code == 403
        assert browser.post("/jobs/x/stop", data={}).status_code == 403
    assert world.ran == []
    world.audit.close()


def test_an_account_asks_only_brokers_that_check_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judges: list[tuple[str, str]] = []

    def judge(_access: Access, account: Account, address: str) -> bool:
        judges.append((account.name, address))
        return address == "judges:1"

    monkeypatch.setattr(Access, "_judges", judge)
    session = world.access._sessions.sign_in(Account("alice", Kind.USER), "127.0.0.1")
    cookie = world.access._cookie
    alice = world.browser()
    alice.cookies.set(cookie.name(is_tls=False), cookie.text(session))
    data = {"csrf_token": session.csrf_token, "step": "run", "topic": "T"}
    assert alice.post("/do/it", data=data | {"at": "judges:1"}).status_code == 200
    assert alice.post("/do/it", data=data | {"at": "ns:1"}).status_code == 200
    refused = alice.post("/do/it", data=data | {"at": "open:1"})
    assert "does not check accounts" in refused.text
    assert world.client.asked == ["judges:1", "ns:1"]
    assert judges == [("alice", "judges:1"), ("alice", "open:1")]
    assert world.lines()[-1]["result"] == "failed"
    assert world.post(at="open:1").status_code == 200
    assert world.client.asked[-1] == "open:1"


def test_a_session_that_ends_meanwhile_does_not_ask_as_the_console(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []
    session = world.access._sessions.sign_in(Account("alice", Kind.USER), "127.0.0.1")
    looks = iter([session])
    monkeypatch.setattr(Access, "session_of", lambda *_: next(looks, None))
    monkeypatch.setattr(Access, "_judges", lambda _self, account, _at: judged.append(account.name))
    data = {"csrf_token": session.csrf_token, "step": "run", "topic": "T", "at": "open:1"}
    assert "does not check accounts" in world.operator.post("/do/it", data=data).text
    assert (judged, world.client.asked) == (["alice"], [])
    assert world.ran_as == ["alice"]


def test_a_job_is_stopped_by_its_owner_and_that_is_noted(world: World) -> None:
    def work(job: Job) -> None:
        job.say("step <1>")
        job.stop.wait(20)

    job = world.base.jobs.start("A <job>", None, work)
    strange = world.base.jobs.start("Another's", "bob", lambda job: job.stop.wait(20) and None)
    data = {"csrf_token": world.csrf()}
    page = world.operator.get(f"/jobs/{job.id}")
    assert "A &lt;job&gt;" in page.text
    assert "step &lt;1&gt;" in page.text
    assert "Another" not in world.operator.get("/jobs").text
    assert world.operator.post(f"/jobs/{strange.id}/stop", data=data).status_code == 404
    assert world.browser().post(f"/jobs/{job.id}/stop", data=data).status_code == 401
    assert world.operator.post(f"/jobs/{job.id}/stop", data={"x": "y"}).status_code == 403
    assert not job.stop.is_set()
    answer = world.operator.post(f"/jobs/{job.id}/stop", data=data, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job.id}")
    wait_until(lambda: job.state == "stopped")
    assert not strange.stop.is_set()
    assert [line.get("action") for line in world.lines()] == ["stopJob", None]
    strange.stop.set()
