"""Every view of the console in a real browser, before a replicated pair of ours with messages of
many kinds; and what a live page shows while the slave stands still.

The truth is what the test has sent and stopped. Each page: no axe finding at 1,440 px light and
390 px dark, nothing beyond the window, no error of a script or of the policy, no dead link; all of
it is reached by keyboard, and fits on paper.

CONSOLE_SCREENSHOTS=DIR writes the pictures of docs/console.md into DIR.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest
from playwright.sync_api import Page, expect

from console.site import VIEWS
from remoting.body.consumer_running_info import ConsumerRunningInfo, ProcessQueueInfo
from remoting.body.message_queue import MessageQueue
from spark.page.report_page import report_html
from spark.page.summary import summary_json
from tests.broker.client.test_consumer_manager import data_of
from tests.console.browser import (
    ConsoleBrowser,
    beyond_the_window,
    faults_of,
    faults_shown,
    walk_by_keyboard,
)
from tests.console.console_on_broker import ConsoleWorld
from tests.console.served_site import running
from tests.console.walked_member import online
from tests.spark.demo_report import DATE, demo_report
from tests.support.broker_group import SLAVE, SYNC_MASTER, Group
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker
from tests.support.pop_client import PopClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HOSTILE = "<script>alert(1)</script>'\"&\u202e"
ODD_NAME = HOSTILE + "\x1b[2J" + "n" * 250
TOPIC, GROUP, POP_GROUP = "Walked", "WalkedGroup", "WalkedPops"
MEMBER = "10.0.0.1@walked"
POPPED = "WalkedPopped"
PAGES = {
    "/replication/group": "?cluster={cluster}&name={broker}",
    "/replication/history": "?cluster={cluster}&name={broker}&span=hour",
    "/topic": f"?name={TOPIC}",
    "/group": f"?name={GROUP}",
    "/messages": f"?topic={TOPIC}",
    "/message": f"?topic={TOPIC}&broker={{broker}}&queue=0&offset=0",
    "/dead-letters/group": f"?name={GROUP}",
    "/search": f"?q={TOPIC[:4]}",
    "/client": f"?group={GROUP}&id={MEMBER}",
    "/client/stack": f"?group={GROUP}&id={MEMBER}",
}
"""The query with which a page shows something."""


RUNNING = ConsumerRunningInfo(
    properties={ODD_NAME: ODD_NAME, "PROP_CLIENT_VERSION": "V5_3_3"},
    mq_table={MessageQueue(topic=TOPIC, broker_name="b", queue_id=0): ProcessQueueInfo()},
    jstack=HOSTILE * 50,
)


class WalkedWorld(ConsoleWorld):
    """With a slave, and an address for the browser."""

    slave: OurBroker
    url: str

    def signed(self, path: str) -> str:
        """A page for a browser that signs in with the link's token."""
        token = urlsplit(self.console.url()).query
        return f"{self.url}{path}{'&' if '?' in path else '?'}{token}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalkedWorld]:
    root = tmp_path_factory.mktemp("walk")
    with Group(root).running() as pair, ExitStack() as stack:
        master = pair.start(pair.first, SYNC_MASTER)
        slave = pair.start(pair.second, SLAVE)
        made = WalkedWorld(root, master, stack, reports=_night(root / "nightly"))
        made.slave = slave
        made.url = stack.enter_context(running(made.console.application, made.console.close_pages))
        wait_until(lambda: _in_sync(made), 60)
        _fill(made)
        stack.enter_context(online(master.ports["main"], MEMBER, data_of(GROUP, TOPIC), RUNNING))
        yield made


def _night(root: Path) -> Path:
    """What mqreport has left of one date."""
    place = root / "report" / f"dt={DATE}"
    place.mkdir(parents=True)
    data = demo_report()
    (place / "summary.json").write_bytes(summary_json(data))
    (place / "report.html").write_bytes(report_html(data))
    return root


def _in_sync(world: WalkedWorld) -> bool:
    told = [broker.ha.value for broker in world.console.watch.snapshot().masters()]
    return any(one is not None and one.info.in_sync_slave_nums == 1 for one in told)


def _fill(world: WalkedWorld) -> None:
    form = {"topic": TOPIC, "cluster": "DefaultCluster", "readQueues": "1", "writeQueues": "1"}
    assert world.post("updateTopic", **form).status_code == 200
    for body in ('{"a": [1, 2]}', HOSTILE, "x" * 5_000):
        answer = world.post("sendMessage", topic=TOPIC, keys="k" * 200, tags="TagA", body=body)
        assert answer.status_code == 200, answer.text
    assert world.post("sendMessage", topic=f"%DLQ%{GROUP}", body=HOSTILE).status_code == 200
    with FrameClient(("127.0.0.1", world.broker.ports["main"])) as client:
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1}
        client.call(15, fields)
        _put(client, "WalkedTimer", {"TIMER_DELAY_SEC": "3600"})
        _put(client, "WalkedLevel", {"DELAY": "18"})
        _put(client, "WalkedHalf", {"TRAN_MSG": "true", "PGROUP": "P"}, sys_flag=4)
        _put(client, TOPIC, {"KEYS": ODD_NAME, "TAGS": ODD_NAME}, body=b"\xff\x00\x1b[2J")
        _put(client, POPPED, {})
        wait_until(lambda: _pop(client, world))


def _put(
    client: FrameClient,
    topic: str,
    properties: dict[str, str],
    *,
    sys_flag: int = 0,
    body: bytes = b"kept",
) -> None:
    fields = {"a": "P", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": sys_flag, "h": 0, "j": 0}
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    answer = client.call(310, {**fields, "g": int(time.time() * 1000), "i": text}, body)
    assert answer.code == 0, answer.remark


def _pop(client: FrameClient, world: WalkedWorld) -> bool:
    name = world.console.watch.snapshot().brokers[0].place.broker_name
    return bool(PopClient(client, POP_GROUP, name).pop(POPPED, invisibleTime=3_600_000).messages)


def url_of(world: WalkedWorld, path: str) -> str:
    place = world.console.watch.snapshot().brokers[0].place
    names = {"cluster": quote(place.cluster), "broker": quote(place.broker_name)}
    return world.signed(path + PAGES.get(path, "").format(**names))


LAG_CELL = 5
SEEN: set[str] = set()
"""Links that a page before has led to."""
BY_KEYBOARD = ("/", "/replication", "/messages")
"""Plots, tables, a form with dates. The others in a long run: their parts are the same macros."""
WALKED = [view.path for view in VIEWS if view.template and "{" not in view.path]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path in BY_KEYBOARD else pytest.mark.long) for path in WALKED],
)
def test_a_page_by_keyboard(world: WalkedWorld, browser: ConsoleBrowser, path: str) -> None:
    page = browser.open(url_of(world, path))
    expect(page.get_by_role("button", name="Keys")).to_be_visible()
    expect(page.locator(".plot-summary a")).to_have_count(0)
    _pause_live(page)
    assert walk_by_keyboard(page).faults == []
    page.locator("h1").click()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


@pytest.mark.parametrize("path", WALKED)
def test_a_page(world: WalkedWorld, browser: ConsoleBrowser, path: str) -> None:
    url = url_of(world, path)
    page = browser.open(url, 1440)
    assert faults_shown(browser, page) == []
    assert "The console itself failed" not in page.content()
    page.emulate_media(media="print")
    assert not page.locator("header.top").is_visible()
    for table in page.locator("main .table table").all():
        assert table.is_visible()
    assert beyond_the_window(page) == []
    page.emulate_media(media="screen", color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 900})
    assert faults_shown(browser, page) == []
    links = {
        urlsplit(href)._replace(fragment="").geturl()
        for href in page.eval_on_selector_all("a[href]", "all => all.map(a => a.href)")
        if href.startswith(world.url)
    }
    links -= SEEN
    SEEN.update(links)
    cookies = {each["name"]: each["value"] for each in page.context.cookies()}
    with httpx.Client(cookies=cookies, timeout=60) as client:
        dead = {link: client.get(link).status_code for link in _some(links)}
    assert {link: code for link, code in dead.items() if code not in (200, 401)} == {}


def _some(links: set[str]) -> list[str]:
    """Three of those to one view, the longest: each may wait for its broker's turn."""
    by_view: dict[str, list[str]] = {}
    for link in sorted(links, key=len, reverse=True):
        by_view.setdefault(urlsplit(link).path, []).append(link)
    return [link for some in by_view.values() for link in some[:3]]


def _pause_live(page: Page) -> None:
    """As in a hidden tab: no element is renewed under the keyboard."""
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


@pytest.mark.parametrize(
    ("path", "table", "row"),
    [
        ("/timers", "topics", ("WalkedTimer", "1")),
        ("/pop", "inflight", (POP_GROUP, POPPED, "1")),
        ("/topics", "topics", ("WalkedLevel", "normal")),
        ("/dead-letters", "groups", (GROUP, "1")),
    ],
)
def test_a_page_shows_what_was_sent(
    world: WalkedWorld, browser: ConsoleBrowser, path: str, table: str, row: tuple[str, ...]
) -> None:
    """Until the brokers' figures are asked again: ten seconds at quiet times."""
    page = browser.open(world.signed(path))
    deadline = time.monotonic() + 60
    rows = page.locator(f"#table-{table} tbody tr")
    while not any(_has_cells(found.inner_text(), row) for found in rows.all()):
        assert time.monotonic() < deadline, rows.all_inner_texts()
        page.wait_for_timeout(1_000)
        page.reload()


def _has_cells(text: str, cells: tuple[str, ...]) -> bool:
    return set(cells) <= {cell.strip() for cell in text.split("\t")}


def test_a_half_is_counted(world: WalkedWorld, browser: ConsoleBrowser) -> None:
    page = browser.open(world.signed("/transactions"))
    expect(page.locator("#table-halves tbody tr td").nth(2)).to_have_text(
        re.compile("[1-9]"), timeout=60_000
    )


def test_a_guest_sees_no_body(world: WalkedWorld, browser: ConsoleBrowser) -> None:
    for path in ("/messages", "/message", "/dead-letters/group"):
        page = browser.open(world.url + urlsplit(url_of(world, path))._replace(
            scheme="", netloc="").geturl().partition("&token=")[0])  # fmt: skip
        assert "alert(1)" not in page.content()
        expect(page.locator("main")).to_contain_text("Sign in")


def test_a_send_through_the_form(world: WalkedWorld, browser: ConsoleBrowser) -> None:
    page = browser.open(world.signed("/do/sendMessage"))
    page.get_by_label("Topic", exact=True).fill("WalkedForm")
    page.get_by_label("Body").fill(HOSTILE)
    page.get_by_role("button", name="Show what will happen").click()
    expect(page.locator("ul.plan")).to_contain_text("to topic WalkedForm")
    page.get_by_role("button", name="Send the message").click()
    expect(page.get_by_role("status").last).to_contain_text("SEND_OK")
    page.get_by_role("link", name="Go on").click()
    expect(page.locator("pre.body")).to_have_text(HOSTILE.replace("\u202e", "\\u202e"))
    assert browser.complaints == []


def test_dead_letters_are_sent_again_as_a_job(world: WalkedWorld, browser: ConsoleBrowser) -> None:
    page = browser.open(world.signed(f"/dead-letters/group?name={GROUP}"))
    page.get_by_role("link", name="Resend all").click()
    page.get_by_label("To another topic").fill(TOPIC)
    page.get_by_role("button", name="Show what will happen").click()
    expect(page.locator("ul.plan")).to_contain_text("all 1 dead letters")
    page.get_by_role("button", name="Resend dead letters").click()
    page.get_by_role("link", name="Go on").click()
    job = page.locator("#live_job")
    expect(job).to_contain_text("1 of 1", timeout=30_000)
    expect(job.locator("ol.log")).to_contain_text("SEND_OK")
    assert faults_of(browser, world.signed(urlsplit(page.url).path), 390, dark=True) == []


def test_the_verdicts_lead_to_the_report(world: WalkedWorld, browser: ConsoleBrowser) -> None:
    page = browser.open(world.signed("/verdicts"))
    expect(page.locator("#table-calendar tbody")).to_contain_text("breached")
    page.get_by_role("link", name="breached").first.click()
    expect(page.locator("h1")).to_contain_text(str(DATE))
    assert browser.complaints == [], "the report's own style is allowed, and no script"


def test_a_group_s_logs_are_verified_as_a_job(world: WalkedWorld, browser: ConsoleBrowser) -> None:
    name = world.console.watch.snapshot().brokers[0].place.broker_name
    page = browser.open(world.signed(f"/do/verifyReplica?broker={quote(name)}"))
    page.get_by_role("button", name="Show what will happen").click()
    page.get_by_role("main").get_by_role("button").last.click()
    page.get_by_role("link", name="Go on").click()
    expect(page.locator("#live_job")).to_contain_text("done", timeout=60_000)


def test_a_member_tells_its_stack(world: WalkedWorld, browser: ConsoleBrowser) -> None:
    page = browser.open(world.signed(f"/group?name={GROUP}"))
    page.get_by_role("link", name=MEMBER).first.click()
    expect(page.locator("#table-queues tbody")).to_contain_text(TOPIC)
    page.get_by_role("link", name="stack").click()
    expect(page.locator("main")).to_contain_text("<script>alert(1)</script>")


@pytest.mark.skipif("CONSOLE_SCREENSHOTS" not in os.environ, reason="no directory for pictures")
@pytest.mark.parametrize(
    ("path", "name"), [("/replication", "replication"), ("/message", "message")]
)
def test_a_picture(world: WalkedWorld, browser: ConsoleBrowser, path: str, name: str) -> None:
    page = browser.open(url_of(world, path), 1280)
    page.set_viewport_size({"width": 1280, "height": 800})
    place = Path(os.environ["CONSOLE_SCREENSHOTS"]) / f"console_{name}.png"
    page.screenshot(path=place, animations="disabled")
    assert place.stat().st_size < 120_000


def test_a_message_is_shown_and_nothing_of_it_runs(
    world: WalkedWorld, browser: ConsoleBrowser
) -> None:
    page = browser.open(world.signed(f"/messages?topic={TOPIC}"))
    assert page.locator("main script").count() == 0
    row = page.locator("#table-messages tbody tr", has_text="TagA").filter(has_text="alert(1)")
    row.get_by_role("link").click()
    expect(page.locator("pre.body")).to_contain_text("<script>alert(1)</script>")


def test_a_slave_that_stands_still_is_seen_without_a_reload(
    world: WalkedWorld, browser: ConsoleBrowser, capsys: pytest.CaptureFixture[str]
) -> None:
    page = browser.open(world.signed("/replication"))
    expect(page.locator("#table-replicas tbody")).to_contain_text("in sync", timeout=30_000)
    world.slave.stop("ha")
    began = time.monotonic()
    try:
        _send_until(world, page, lambda: _lag_kib(page) > 5)
    finally:
        world.slave.kill("ha", 18)
    with capsys.disabled():
        print(f"\na slave that stands still: seen after {time.monotonic() - began:.1f} s")
    expect(page.locator("#table-replicas tbody")).to_contain_text("in sync", timeout=60_000)


def _replicas(page: Page) -> str:
    return page.locator("#table-replicas tbody").inner_text()


def _lag_kib(page: Page) -> float:
    """Of the one replica, as the page shows it; 0 below 1 KiB."""
    cell = page.locator("#table-replicas tbody tr > *").nth(LAG_CELL).inner_text()
    value, unit = cell.split()[-2:]
    return float(value) if unit == "KiB" else 0.0


def _send_until(world: WalkedWorld, page: Page, is_seen: Callable[[], bool]) -> None:
    """Messages that nobody waits for, until the page shows something."""
    deadline = time.monotonic() + 30
    with FrameClient(("127.0.0.1", world.broker.ports["main"])) as client:
        while not is_seen():
            assert time.monotonic() < deadline, _replicas(page)
            client.post_send(TOPIC, 0, b"x" * 1_000, waits=False)
            page.wait_for_timeout(100)
