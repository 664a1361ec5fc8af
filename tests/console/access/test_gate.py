"""Gate: what every request passes, and what every answer carries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from console.access.account import OPERATOR
from console.access.security_headers import HEADERS
from console.access.sessions import Session
from console.page import ConsoleError
from tests.console.access.console_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, trusted_proxies="10.0.0.1")
    yield made
    made.audit.close()


def test_every_answer_has_the_headers(world: World) -> None:
    browser = world.browser()
    answers = {url: browser.get(url) for url in ("/", "/sign-in", "/none", "/bug", "/?token=x")}
    statuses = {url: answer.status_code for url, answer in answers.items()}
    assert statuses == {"/": 200, "/sign-in": 200, "/none": 404, "/bug": 500, "/?token=x": 303}
    evil = browser.get("/", headers={"Host": "evil.example"})
    foreign = browser.post("/do/it", headers={"Origin": "http://evil.example"})
    for answer in (*answers.values(), evil, foreign):
        for name, text in HEADERS.items():
            assert answer.headers[name] == text
        assert answer.headers["cache-control"] == "no-store"
    assert browser.get("/static/x.css").headers["cache-control"] == "no-cache"


def test_a_name_that_was_turned_to_this_address_is_refused(world: World) -> None:
    browser = world.browser()
    for host in ("evil.example", "evil.example:8088", "localhost.evil.example", "a b", "<script>"):
        answer = browser.get("/", headers={"Host": host})
        assert answer.status_code == 421
        assert "--host-name" in answer.text
        assert answer.headers["content-type"].startswith("text/plain")
    for host in ("console.example", "127.0.0.1:8088", "[::1]:8088"):
        assert browser.get("/", headers={"Host": host}).status_code == 200
    # Nor does the right token help there.
    answer = browser.get(f"/?token={world.token}", headers={"Host": "evil.example"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (421, False)


def test_a_proxy_tells_whence_and_a_stranger_does_not(world: World) -> None:
    headers = {
        "X-Forwarded-For": "1.1.1.1, 192.0.2.9",
        "X-Forwarded-Host": "console.example",
        "X-Forwarded-Proto": "https",
    }
    proxied = world.browser(peer="10.0.0.1").get("/", headers=headers)
    assert "<b>192.0.2.9 console.example True</b>" in proxied.text
    direct = world.browser().get("/", headers=headers)
    assert "<b>192.0.2.7 localhost:8088 False</b>" in direct.text
    headers["X-Forwarded-Host"] = "evil.example"
    assert world.browser(peer="10.0.0.1").get("/", headers=headers).status_code == 421


def test_other_sites_post_nothing(world: World) -> None:
    browser = world.browser()
    browser.sign_in()
    form = {"csrf_token": browser.csrf_token()}
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        for url in ("/do/it", "/sign-in", "/sign-out"):
            assert browser.post_form(url, form, **headers).status_code == 403
    assert world.done == []
    assert browser.reader() == "alice"
    assert browser.get("/", headers={"Origin": "http://evil.example"}).status_code == 200


def test_read_only_leaves_signing_in_and_out(tmp_path: Path) -> None:
    world = World(tmp_path, is_read_only=True)
    browser = world.browser()
    assert browser.sign_in().status_code == 303
    assert browser.reader() == "alice"
    refused = browser.do_it()
    assert (refused.status_code, world.done) == (403, [])
    session = Session(OPERATOR, "192.0.2.7", 0)
    assert not world.access.may_change(session)
    with pytest.raises(ConsoleError, match="--read-only"):  # the GET of an action's form
        world.access.require_change(session)
    assert "--read-only" in refused.text
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert browser.request(method, "/do/it").status_code == 403
    out = browser.post_form("/sign-out", {"csrf_token": browser.csrf_token()})
    assert (out.status_code, browser.reader()) == (303, "")
    world.audit.close()


def test_the_right_token_leaves_the_url_and_signs_in(world: World) -> None:
    browser = world.browser()
    answer = browser.get(f"/topics/a%3Fb%2F%E6%97%A5?q=x+y&token={world.token}&page=2")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/topics/a%3Fb%2F%E6%97%A5?q=x+y&page=2"
    assert world.token not in str(answer.headers)
    assert answer.headers["referrer-policy"] == "same-origin"
    assert browser.reader() == "operator"
    (line,) = world.audit.newest(9)
    assert (line["who"], line["kind"], line["from"]) == ("operator", "operator", "192.0.2.7")
    assert world.token not in str(line)


def test_a_wrong_token_does_not(world: World) -> None:
    browser = world.browser()
    for token in ("x", world.token[:-1], world.token + "x", "%FF", "x" * 10_000):
        answer = browser.get(f"/?token={token}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?why=link")
        assert "set-cookie" not in answer.headers
    assert browser.reader() == ""
    assert "prints a new one" in browser.get("/sign-in?why=link").text
    # A token is for GETs only: a HEAD, which a program may send for a reader, signs nobody in.
    assert "set-cookie" not in browser.head(f"/?token={world.token}").headers


def test_the_token_leads_nowhere_else(world: World) -> None:
    browser = world.browser()
    for path in ("//evil.example/", "/%0d%0aSet-Cookie:x=1", "/%5Cevil.example", "/\\evil.example"):
        answer = browser.get(f"http://localhost:8088{path}?token={world.token}")
        location = answer.headers["location"]
        assert location.startswith("/")
        assert not location.startswith(("//", "/\\"))
        assert "\r" not in location
        assert "x" not in answer.cookies
