"""Access: signing in and out in a browser, and what a signed-in reader may do."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from console.access import access as module
from console.access.audit_log import AuditError
from console.access.rate_limit import BY_ADDRESS
from console.access.sessions import IDLE_MS, Session
from console.access.sign_in import Prover
from remoting.errors import RemotingTimeoutError
from tests.console.access.console_world import World
from tests.console.access.test_sign_in import BUSY, SECRET, USERS, Peers, always


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.audit.close()


def test_signing_in_and_out(world: World) -> None:
    browser = world.browser()
    assert browser.reader() == ""
    answer = browser.sign_in(target="/topics/orders?page=2")
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics/orders?page=2")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie
    assert SECRET not in cookie
    assert browser.reader() == "alice"
    assert world.browser().reader() == ""
    kept = dict(browser.cookies)
    browser.post_form("/sign-out", {"csrf_token": browser.csrf_token()})
    assert dict(browser.cookies) == {}
    # A cookie that somebody copied is worth nothing now.
    browser.cookies.update(kept)
    assert browser.reader() == ""
    assert [(one["action"], one["who"]) for one in world.audit.newest(9)] == [("signIn", "alice")]


def test_under_tls_the_cookie_is_for_this_host_only(world: World) -> None:
    browser = world.browser("https://localhost:8088")
    cookie = browser.sign_in().headers["set-cookie"]
    assert cookie.startswith("__Host-mqconsole-8088=")
    assert "Secure" in cookie
    assert "Path=/" in cookie
    assert "Domain" not in cookie
    assert browser.reader() == "alice"


def test_a_sign_in_takes_no_id_from_outside(world: World) -> None:
    """An id that the browser had before, whoever gave it, does not become the reader's."""
    mallory, alice = world.browser(), world.browser()
    planted = mallory.sign_in().headers["set-cookie"].partition(";")[0]
    form = {"name": "alice", "secret": SECRET}
    given = alice.post_form("/sign-in", form, Cookie=planted).headers["set-cookie"]
    assert given.partition(";")[0] != planted
    assert mallory.reader() == ""  # the planted one has ended
    chosen = alice.post_form("/sign-in", form, Cookie="mqconsole-8088=chosen")
    assert "chosen" not in chosen.headers["set-cookie"]


def test_a_false_secret_gets_a_sentence_that_tells_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    answer = world.browser().sign_in(name="<b>alice\x1b</b>", secret="false")
    unknown = world.browser().sign_in(name="alice", secret="false")
    assert (unknown.status_code, "set-cookie" in unknown.headers) == (401, False)
    assert "The name or the secret is wrong." in unknown.text
    assert "check signature failed" not in unknown.text
    assert "check signature failed" in caplog.text
    assert "192.0.2.7" in caplog.text
    assert "false" not in caplog.text
    assert "\x1b" not in caplog.text
    assert "<b>" not in answer.text


def test_where_accounts_mean_nothing_the_link_is_named(tmp_path: Path) -> None:
    world = World(tmp_path, Peers(a=always(None)))
    browser = world.browser()
    answer = browser.sign_in()
    assert (answer.status_code, browser.reader()) == (403, "")
    assert "bin/mqconsole printed" in answer.text
    assert browser.post_form("/sign-in", {"token": "wrong"}).status_code == 401
    assert browser.post_form("/sign-in", {"token": f" {world.token} "}).status_code == 303
    assert browser.reader() == "operator"
    world.audit.close()


def test_brokers_that_do_not_answer_are_a_sentence(tmp_path: Path) -> None:
    world = World(tmp_path, Peers(a=always(RemotingTimeoutError("a", "no answer in 2 s"))))
    answer = world.browser().sign_in()
    assert answer.status_code == 503
    assert "no answer in 2 s" in answer.text
    world.audit.close()


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_a_sign_in_leads_nowhere_else(world: World, target: str) -> None:
    browser = world.browser()
    assert browser.sign_in(target=target).headers["location"] == "/"
    page = browser.get("/sign-in", params={"next": target})
    assert "evil.example" not in page.text


def test_what_a_link_brings_is_escaped(world: World) -> None:
    page = world.browser().get("/sign-in", params={"next": '/"><script>alert(1)</script>'})
    assert "<script>" not in page.text
    assert "&lt;script&gt;" in page.text


def test_the_frame_leads_back_to_the_page(world: World) -> None:
    frames: list[dict[str, Any]] = []
    frame = world.access.frame
    page = world.access.pages.page

    def noting(request: Any, *arguments: Any) -> Any:
        frames.append(frame(request))
        return page(request, *arguments)

    world.access.pages.page = noting  # type: ignore[method-assign]
    browser = world.browser()
    browser.get("/sign-in?next=%2Ftopics")
    assert frames[0]["sign_in_url"] == "/sign-in?next=%2Fsign-in%3Fnext%3D%252Ftopics"
    assert (frames[0]["reader_name"], frames[0]["may_change"]) == (None, False)
    browser.sign_in()
    browser.get("/sign-in")
    assert (frames[1]["reader_name"], frames[1]["reader_kind"]) == ("alice", "user")
    assert frames[1]["may_change"]
    assert frames[1]["csrf_token"] == browser.csrf_token()


def test_many_sign_ins_of_one_address_wait(world: World) -> None:
    browser = world.browser()
    for _ in range(BY_ADDRESS.burst):
        assert browser.sign_in(secret="false").status_code == 401
    asked = len(world.peers.requests)
    world.clock.ms += 500
    late = browser.sign_in()
    assert late.status_code == 429
    assert "Try again in 12 s" in late.text
    assert len(world.peers.requests) == asked
    assert world.browser(peer="192.0.2.8").sign_in().status_code == 303
    assert browser.post_form("/sign-in", {"token": world.token}).status_code == 303
    world.clock.ms += BY_ADDRESS.every_ms - 500
    assert browser.sign_in().status_code == 303


def test_few_sign_ins_hold_threads_at_once(tmp_path: Path) -> None:
    gate, entered = threading.Event(), threading.Semaphore(0)

    def slow(request: Any) -> Exception | None:
        entered.release()
        assert gate.wait(20)
        return USERS(request)

    world = World(tmp_path, Peers(a=slow))
    browsers = [world.browser(peer=f"192.0.2.{i}") for i in range(module.MAX_PROOFS + 1)]
    with ThreadPoolExecutor(module.MAX_PROOFS) as pool:
        waiting = [pool.submit(browser.sign_in) for browser in browsers[1:]]
        for _ in waiting:
            assert entered.acquire(timeout=20)
        assert browsers[0].sign_in().status_code == 503
        gate.set()
        assert [future.result(20).status_code for future in waiting] == [303] * module.MAX_PROOFS
    assert browsers[0].sign_in().status_code == 303
    world.audit.close()


def test_a_change_needs_the_sessions_own_form(world: World) -> None:
    browser = world.browser()
    assert browser.do_it().status_code == 401
    browser.sign_in()
    assert browser.do_it(topic="t").status_code == 303
    for token in ("", "x", browser.csrf_token()[:-1]):
        assert browser.post_form("/do/it", {"csrf_token": token}).status_code == 403
    assert browser.get("/do/it").status_code == 405
    assert [fields["topic"] for fields in world.done] == ["t"]
    change = world.audit.newest(9)[0]
    assert (change["who"], change["fields"], change["result"]) == ("alice", {"topic": "t"}, "done")
    assert change["console"] == "localhost:8088"


def test_two_tabs(world: World) -> None:
    """A form of before another tab's sign-out, or sign-in, does nothing."""
    browser = world.browser()
    browser.sign_in()
    stale = {"csrf_token": browser.csrf_token()}
    browser.post_form("/sign-out", stale)
    refused = browser.post_form("/do/it", stale)
    assert (refused.status_code, "not signed in" in refused.text) == (401, True)
    assert browser.post_form("/sign-out", stale).status_code == 303
    browser.sign_in()
    refused = browser.post_form("/do/it", stale)
    assert (refused.status_code, "earlier sign-in" in refused.text) == (403, True)
    assert browser.post_form("/sign-out", stale).status_code == 403
    assert (browser.reader(), world.done) == ("alice", [])


def test_without_an_audit_line_nothing_is_done(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = world.browser()
    browser.sign_in()

    def full(*_arguments: Any) -> None:
        raise AuditError("The audit log cannot be used: No space left on device")

    monkeypatch.setattr(world.audit, "intend", full)
    refused = browser.do_it()
    assert (refused.status_code, world.done) == (503, [])
    monkeypatch.setattr(world.audit, "note", full)
    assert browser.sign_in().status_code == 303


def test_where_a_broker_does_not_judge_only_the_operator_changes(tmp_path: Path) -> None:
    world = World(tmp_path, Peers(a=USERS, open=always(None), busy=always(BUSY)))
    browser = world.browser()
    browser.sign_in()
    asked = len(world.peers.requests)
    assert browser.do_it(at="a").status_code == 303
    assert browser.do_it(at="a").status_code == 303
    assert len(world.peers.requests) == asked + 1
    for other in ("open", "busy"):
        refused = browser.do_it(at=other)
        assert refused.status_code == 403
        assert f"{other} does not check accounts" in refused.text
    world.peers.brokers["a"] = always(None)
    assert browser.do_it(at="a").status_code == 303
    world.clock.ms += module.JUDGED_MS
    assert browser.do_it(at="a").status_code == 403
    assert len(world.done) == 3
    browser.get(f"/?token={world.token}")
    assert browser.do_it(at="open").status_code == 303
    world.audit.close()


def test_little_is_remembered_of_brokers_that_judge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_JUDGED", 3)
    world.peers.brokers.update({f"b{i}": USERS for i in range(9)})
    account = Prover(world.peers, world.clock).prove("alice", SECRET, ["a"]).account
    assert account is not None
    session = Session(account, "192.0.2.7", 0)
    for i in (*range(9), 8, 7, 0):
        world.access.require_judge(session, f"b{i}")
    assert [address for address, *_ in world.peers.requests[2:]] == [
        *(f"b{i}" for i in range(9)),
        "b0",
    ]


def test_an_open_live_page_lets_the_session_end(world: World) -> None:
    browser = world.browser()
    browser.sign_in()
    world.clock.ms += IDLE_MS - 1
    assert browser.reader("/live.events") == "alice"
    world.clock.ms += 1
    assert browser.reader("/live.events") == ""


def test_hostile_forms(world: World) -> None:
    browser = world.browser()
    browser.sign_in()
    form = "application/x-www-form-urlencoded"
    token = f"csrf_token={browser.csrf_token()}".encode()
    for content_type, body, status in (
        ("multipart/form-data; boundary=x", b"--x--", 415),
        ("text/plain", token, 415),
        ("application/json", b"{}", 415),
        ("", token, 415),
        (form, token + b"&a=" + b"b" * (16 << 20), 413),
        (form, token + b"&a=b" * 6_000, 413),
        (form, b"\xff\xfe%FF%00=%zz&&&===&csrf_token=%ff", 403),
        (f"{form}; charset=utf-8", token + b"&a=%FF%00&a=2", 303),
    ):
        headers = {"Content-Type": content_type, "Origin": "http://localhost:8088"}
        answer = browser.post("/do/it", content=body, headers=headers)
        assert answer.status_code == status, (content_type, body[:50], answer.text)
    assert [fields["a"] for fields in world.done] == ["2"]


def test_the_forms_of_the_page_are_the_ones_that_are_read(world: World) -> None:
    text = world.browser().get("/sign-in").text
    assert set(re.findall(r'name="(\w+)"', text)) == {"name", "secret", "token", "next"}
    assert text.count('action="/sign-in"') == text.count("<form") == 2
