"""Every view of the console in a real browser, before a replicated pair of ours with messages of
many kinds; and what a live page shows while the slave stands still.

The truth is what the test has sent and stopped. Each page: no axe finding at 1,440 px light and
390 px dark, nothing beyond the window, no error of a script or of the policy, no dead link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import quote, urlsplit

import httpx
import pytest
from playwright.sync_api import Page, expect

from console.site import VIEWS
from tests.console.browser import ConsoleBrowser, faults_of
from tests.console.console_on_broker import ConsoleWorld
from tests.console.served_site import running
from tests.support.broker_group import SLAVE, SYNC_MASTER, Group
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HOSTILE = "<script>alert(1)</script>'\"&\u202e"
TOPIC, GROUP = "Walked", "WalkedGroup"
PAGES = {
    "/replication/group": "?cluster={cluster}&name={broker}",
    "/replication/history": "?cluster={cluster}&name={broker}&span=hour",
    "/topic": f"?name={TOPIC}",
    "/group": f"?name={GROUP}",
    "/messages": f"?topic={TOPIC}",
    "/message": f"?topic={TOPIC}&broker={{broker}}&queue=0&offset=0",
    "/dead-letters/group": f"?name={GROUP}",
    "/search": f"?q={TOPIC[:4]}",
}
"""The query with which a page shows something."""


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
        made = WalkedWorld(root, master, stack)
        made.slave = slave
        made.url = stack.enter_context(running(made.console.application))
        wait_until(lambda: _in_sync(made), 60)
        _fill(made)
        yield made


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


def url_of(world: WalkedWorld, path: str) -> str:
    place = world.console.watch.snapshot().brokers[0].place
    names = {"cluster": quote(place.cluster), "broker": quote(place.broker_name)}
    return world.signed(path + PAGES.get(path, "").format(**names))


LAG_CELL = 5
SEEN: set[str] = set()
"""Links that a page before has led to."""
WALKED = [view.path for view in VIEWS if view.template and "{" not in view.path]


@pytest.mark.parametrize("path", WALKED)
def test_a_page(world: WalkedWorld, browser: ConsoleBrowser, path: str) -> None:
    url = url_of(world, path)
    assert faults_of(browser, url, 1440) == []
    assert faults_of(browser, url, 390, dark=True) == []
    page = browser.open(url)
    assert "The console itself failed" not in page.content()
    links = {
        urlsplit(href)._replace(fragment="").geturl()
        for href in page.eval_on_selector_all("a[href]", "all => all.map(a => a.href)")
        if href.startswith(world.url)
    }
    links -= SEEN
    SEEN.update(links)
    cookies = {each["name"]: each["value"] for each in page.context.cookies()}
    with httpx.Client(cookies=cookies, timeout=60) as client:
        dead = {link: client.get(link).status_code for link in sorted(links)[:40]}
    assert {link: code for link, code in dead.items() if code not in (200, 401)} == {}


def test_a_message_is_shown_and_nothing_of_it_runs(
    world: WalkedWorld, browser: ConsoleBrowser
) -> None:
    page = browser.open(world.signed(f"/messages?topic={TOPIC}"))
    expect(page.locator("#table-messages tbody tr")).to_have_count(3)
    page.locator("#table-messages tbody tr th a").nth(1).click()
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
