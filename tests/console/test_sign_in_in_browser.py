"""Who signs in with an account of the cluster, in a real browser: what that account may do at its
broker is what the console does for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser import ConsoleBrowser
from tests.console.console_on_broker import ConsoleWorld
from tests.console.served_site import running
from tests.support.our_broker import OurBroker

pytestmark = pytest.mark.slow

ACCOUNTS = """
accounts:
- accessKey: the-reader
  secretKey: reader-secret
  defaultTopicPerm: SUB
- accessKey: the-operator
  secretKey: operator-secret
  admin: true
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root: Path = tmp_path_factory.mktemp("accounts")
    conf = root / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    broker = OurBroker(
        root / "b", brokerName="vm", rocketmqHome=conf.parent, aclEnable="true"
    ).start()
    try:
        with ExitStack() as stack:
            world = ConsoleWorld(root, broker, stack)
            yield stack.enter_context(running(world.console.application, world.console.close_pages))
    finally:
        broker.terminate()


def test_an_account_may_what_its_broker_lets_it(url: str, browser: ConsoleBrowser) -> None:
    page = browser.open(f"{url}/sign-in?next=/accounts")

    def sign_in(name: str, secret: str) -> None:
        page.get_by_label("Access key or user").fill(name)
        page.get_by_label("Secret key or password").fill(secret)
        page.get_by_role("button", name="Sign in", exact=True).click()

    sign_in("the-reader", "another-secret")
    expect(page.get_by_role("alert")).to_contain_text("is wrong")
    sign_in("the-reader", "reader-secret")
    expect(page.locator("header")).to_contain_text("the-reader")
    assert "reader-secret" not in page.content()
    create = f"{url}/do/updateTopic?topic=Mine&cluster=DefaultCluster"
    assert "Need admin permission for request code=17, but accessKey=the-reader" in _do(
        page, create
    )
    page.get_by_role("button", name="Sign out").click()
    page.goto(f"{url}/sign-in")
    sign_in("the-operator", "operator-secret")
    expect(page.locator("header")).to_contain_text("the-operator")
    assert "Topic Mine: done at vm." in _do(page, create)


def _do(page: Page, url: str) -> str:
    """What the page says when the action is done."""
    page.goto(url)
    page.get_by_role("button", name="Show what will happen").click()
    page.get_by_role("main").get_by_role("button").last.click()
    expect(page.get_by_role("link", name="Go on")).to_be_visible()
    return page.locator("main").inner_text()
