"""What the console costs a cluster's brokers, counted by the brokers themselves."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from console.lanes import BUCKET
from tests.console.scale_cluster import PAGES, scale_console

MAX_PAGE = 300_000


@pytest.mark.slow
def test_a_broker_is_asked_once_a_second_however_many_browsers_look() -> None:
    """Live pages are open, and thirty browsers open one page after the other."""
    with scale_console(brokers=8, topics=2_000, groups=200, clients=800) as (
        cluster,
        console,
        browser,
    ):
        console.watch.poller.watch(30)
        before = Counter({name: sum(p.asked.values()) for name, p in cluster.brokers.items()})
        began = time.monotonic()
        with ThreadPoolExecutor(30) as pool:
            answers = list(pool.map(lambda n: browser.get(PAGES[n % len(PAGES)]), range(300)))
        time.sleep(max(0.0, 8.0 - (time.monotonic() - began)))
        after = Counter({name: sum(p.asked.values()) for name, p in cluster.brokers.items()})
        seconds = time.monotonic() - began
    most = max((after - before).values())
    assert {answer.status_code for answer in answers} == {200}
    assert most <= seconds + BUCKET + 1
    assert most >= 4, "the poller asks, too"


@pytest.mark.slow
def test_pages_stay_small() -> None:
    with scale_console(brokers=20) as (_cluster, _console, browser):
        sizes = {page: len(browser.get(page).content) for page in PAGES}
    assert {page: size for page, size in sizes.items() if size > MAX_PAGE} == {}
