"""The application with views of the test's own: forms of a page, errors, live pages. No broker."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from console import app as app_module
from console.access.account import OPERATOR
from console.app import MAX_OF_ADDRESS, MAX_STREAMS, ConsoleApp, Site
from console.page import ConsoleError, Page, Query, Reader, View
from console.tables import Table, link
from tests.console.served_site import ServedSite, more_templates, running
from tests.support.deadline import wait_until
from tools.errors import AdminError
from tools.report import columns

PAIRS = columns("Name name | Count count >")
TEMPLATES = {
    "t.html.j2": "{% extends 'base.html.j2' %}{% block content %}"
    "{% for name, t in tables.items() %}{{ table(t) }}{% endfor %}{% endblock %}",
    "live.html.j2": "{% extends 'base.html.j2' %}{% block content %}<div id='live_x' data-live>"
    "{% block live_x %}{{ text }}{% endblock %}</div>{% endblock %}",
}
HOSTILE = "<script>alert(1)</script>\x1b[2J\ud800=1"


def plain(_reader: Reader, query: Query) -> Page:
    count = query.number("count", 3, 0, 1_000)
    rows = [[link(f"{HOSTILE}{n}", "/x?a=1&b=<"), n] for n in range(count)]
    return Page(tables=[Table("pairs", "Pairs", PAIRS, rows)])


def two(_reader: Reader, _query: Query) -> Page:
    return Page(tables=[Table(name, name, PAIRS, [["a", 1], ["b", 2]]) for name in ("p", "q")])


def refuses(_reader: Reader, query: Query) -> Page:
    raise {
        "console": ConsoleError("Sign in to see <this>.", 401),
        "peer": AdminError("broker <b>\x1b[2J: no"),
    }.get(query.text("what"), ZeroDivisionError("secret detail"))


def nothing(_reader: Reader, _query: Query) -> Page:
    return Page(data={"half": "\ud800", "not a number": float("nan")})


VIEWS = [
    View("/", "Home", "Overview", "t.html.j2", plain),
    View("/two", "Two", "Topics", "t.html.j2", two),
    View("/named/{count}", "Named", "", "t.html.j2", plain),
    View("/refuses", "Refuses", "", "t.html.j2", refuses),
    View("/data", "Data", "", "", nothing),
]


class Served:
    """A site with these views; whoever sends the header `who` is signed in."""

    def __init__(self, views: list[View], stack: ExitStack) -> None:
        self.site = ServedSite()
        self.may_change = True
        self.app = ConsoleApp(
            Site(
                views=views,
                reader_of=self._reader,
                snapshot=lambda: self.site.snapshot,
                watch=self.site.watch,
                frame=lambda _request: {"reader_name": None, "sign_in_url": "/sign-in"},
            )
        )
        stack.enter_context(more_templates(TEMPLATES))

    def _reader(self, request: Request) -> Reader:
        reader = dataclasses.replace(self.site.reader(), address=request.headers.get("from", ""))
        if "who" not in request.headers:
            return reader
        return dataclasses.replace(reader, account=OPERATOR, may_change=self.may_change)


@pytest.fixture(scope="module")
def browser() -> Iterator[TestClient]:
    with ExitStack() as stack:
        made = Served(VIEWS, stack).app.application()
        yield TestClient(made, raise_server_exceptions=False)


def test_a_view_is_html_json_and_csv(browser: TestClient) -> None:
    page = browser.get("/")
    assert page.status_code == 200
    assert "&lt;script&gt;" in page.text
    assert "<script>alert" not in page.text
    assert "/x?a=1&amp;b=&lt;" in page.text
    assert [row["count"] for row in browser.get("/index.json").json()] == [0, 1, 2]
    answer = browser.get("/index.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="pairs.csv"'
    assert answer.text.splitlines()[0] == "name,count"


def test_a_parameter_of_the_path_goes_before_the_query(browser: TestClient) -> None:
    assert len(browser.get("/named/2.json?count=9").json()) == 2


def test_a_table_is_exported_as_the_url_has_it(browser: TestClient) -> None:
    assert browser.get("/two.json").json().keys() == {"p", "q"}
    asked = browser.get("/two.json?table=q&q.sort=count&q.desc=1&p.q=nothing").json()
    assert [row["count"] for row in asked] == [2, 1]
    assert browser.get("/two.csv?table=q&q.q=a").text.splitlines()[1:] == ["a,1"]
    assert browser.get("/two.csv?table=none").status_code == 404
    assert browser.get("/data.csv").status_code == 404


def test_what_json_does_not_have_is_null_or_escaped(browser: TestClient) -> None:
    assert browser.get("/data").json() == {"half": "\ud800", "not a number": None}


@pytest.mark.parametrize(
    ("what", "status", "words"),
    [("console", 401, "Sign in to see"), ("peer", 502, "broker"), ("bug", 500, "its log says")],
)
def test_errors_are_sentences(
    browser: TestClient, what: str, status: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    for form in ("", ".json", ".csv"):
        answer = browser.get(f"/refuses{form}?what={what}")
        assert answer.status_code == status
        assert words in (answer.json()["error"] if form else answer.text)
        assert "secret detail" not in answer.text
        assert "\x1b" not in answer.text
        assert form or ("<this>" not in answer.text and "<b>" not in answer.text)
    assert ("secret detail" in caplog.text) == (what == "bug")


def test_what_is_no_page_is_said_in_the_frame(browser: TestClient) -> None:
    answer = browser.get("/none/<script>alert(1)</script>")
    assert answer.status_code == 404
    assert "There is no page" in answer.text
    assert "<script>alert" not in answer.text
    assert browser.get("/none.json").json()["error"].startswith("There is no page")
    assert browser.get("/static/../app.py").status_code == 404
    assert browser.get("/static/%2e%2e/app.py").status_code == 404


def test_a_strange_query_is_a_page(browser: TestClient) -> None:
    for query in (
        "sort=none",
        "page=" + "9" * 400,
        "q=" + "(a+)+" * 200,
        "desc=x&page=-1",
        "q=%ff",
    ):
        assert browser.get("/?" + query).status_code == 200, query


# -- live pages ------------------------------------------------------------------------------------


class Live:
    """A live page whose text the test chooses, served on a port."""

    def __init__(self, stack: ExitStack) -> None:
        self.made = 0
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        views = [
            View("/live", "Live", "", "live.html.j2", self._page),
            View("/slow", "Slow", "", "live.html.j2", self._slow),
        ]
        self.served = Served(views, stack)
        application = self.served.app.application()
        self.url = stack.enter_context(running(application, self.served.app.close))
        stack.callback(self.gate.set)
        self.http = stack.enter_context(httpx.Client(base_url=self.url, timeout=20))

    def _page(self, reader: Reader, query: Query) -> Page:
        self.made += 1
        if query.text("secret"):
            reader.must_sign_in("secrets")
        return Page(context={"text": f"number {reader.snapshot.number}"})

    def _slow(self, _reader: Reader, query: Query) -> Page:
        self.entered.release()
        assert self.gate.wait(20)
        raise AdminError("it <never> came")

    @contextmanager
    def opened(self, **headers: str) -> Iterator[Iterator[str]]:
        """A live page that is open: its lines from the second on."""
        with self.http.stream("GET", "/live.events", headers=headers, timeout=QUIET_S) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            next(lines)
            yield lines

    def first(self, path: str, **headers: str) -> dict[str, Any]:
        """The first regions that a stream brings."""
        with self.http.stream("GET", path, headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    found: dict[str, Any] = json.loads(line.removeprefix("data: "))
                    return found
        raise AssertionError("the stream ended")


@pytest.fixture
def live() -> Iterator[Live]:
    with ExitStack() as stack:
        yield Live(stack)


def test_live_regions_are_made_once_for_all_who_look(live: Live) -> None:
    with ThreadPoolExecutor(5) as pool:
        asked = list(pool.map(lambda _: live.first("/live.events"), range(5)))
    assert asked == [{"live_x": "number 1"}] * 5
    assert live.made == 1
    live.served.site.renew()
    assert live.first("/live.events") == {"live_x": "number 2"}
    assert live.made == 2
    wait_until(lambda: live.served.site.watchers == 0)


def test_a_guest_does_not_get_what_was_made_for_the_operator(live: Live) -> None:
    """With --read-only neither may change anything, and the operator's key is that of nobody."""
    live.served.may_change = False
    url = "/live.events?secret=1"
    assert live.first(url, who="operator") == {"live_x": "number 1"}
    assert live.first(url) == {"live_error": "Sign in to see secrets."}


def test_a_slow_page_stops_no_other_live_page(live: Live) -> None:
    live.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(live.first, "/slow.events")
        assert live.entered.acquire(timeout=20)
        assert live.first("/live.events") == {"live_x": "number 1"}
        live.gate.set()
        assert slow.result(20) == {"live_error": "it <never> came"}


def test_slow_live_pages_leave_threads_to_other_pages(live: Live) -> None:
    """As many as Starlette's pool has threads, each of another URL."""
    live.gate.clear()
    with ThreadPoolExecutor(45) as pool:
        slow = [pool.submit(live.first, f"/slow.events?n={n}") for n in range(45)]
        wait_until(lambda: live.served.site.watchers == 45)
        assert live.entered.acquire(timeout=20)
        assert live.http.get("/live").status_code == 200
        live.gate.set()
        assert all(one.result(20) for one in slow)


def test_a_failing_live_page_is_asked_once_a_snapshot(live: Live) -> None:
    assert live.first("/slow.events") == live.first("/slow.events")
    assert live.entered.acquire(timeout=20)
    assert not live.entered.acquire(blocking=False)


QUIET_S = 3
"""Less than between two beats: a stream that should not be there fails a test, and holds it not."""


def refusal(live: Live, **headers: str) -> str:
    """The sentence with which a live page is refused."""
    with live.http.stream("GET", "/live.events", headers=headers) as answer:
        assert answer.status_code == 503
        answer.read()
        return str(answer.json()["error"])


def test_live_pages_are_limited_and_those_that_leave_are_counted_out(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_STREAMS >= 100
    monkeypatch.setattr(app_module, "MAX_STREAMS", 2)
    with ExitStack() as stack:
        opened = [stack.enter_context(live.opened()) for _ in range(2)]
        assert refusal(live) == "2 live pages are open already"
        assert live.served.site.watchers == len(opened)
    wait_until(lambda: live.served.site.watchers == 0)
    assert live.first("/live.events")


def test_one_address_has_its_share_of_the_live_pages(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All addresses of a /64 are one."""
    assert MAX_OF_ADDRESS <= MAX_STREAMS // 4
    monkeypatch.setattr(app_module, "MAX_OF_ADDRESS", 2)
    with ExitStack() as stack:
        opened = [stack.enter_context(live.opened(**{"from": f"2001:db8::{n}"})) for n in (1, 2)]
        said = refusal(live, **{"from": "2001:db8::3"})
        assert said == "2 live pages are open already from your address"
        assert live.first("/live.events", **{"from": "192.0.2.7"})
        assert len(opened) == 2
    wait_until(lambda: live.served.site.watchers == 0)
    assert live.first("/live.events", **{"from": "2001:db8::3"})


def test_the_end_of_the_console_ends_live_pages(live: Live) -> None:
    with live.opened() as lines:
        live.served.app.close()
        assert list(lines)[-1] == ""
    with live.opened() as lines:
        assert list(lines)[-1] == ""
