"""The look and the scripts of the console in a real browser, on a page that has each part of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from console.history import Series
from console.page import Page, Query, Reader, View
from console.plots import Line, plot_data
from console.tables import Table, badge, link, moment
from tests.console.browser import (
    WIDTHS,
    ConsoleBrowser,
    faults_of,
    walk_by_keyboard,
)
from tests.console.served_site import ServedSite, served
from tests.support.deadline import wait_until
from tools.report import columns

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>" + "n" * 272
STATES = ("in_sync", "catching_up", "disconnected", "stale", "unknown", "<b>odd</b>")
COLUMNS = columns("Group group | State state | Since since | Says says | Lag lag >")
AT_MS = 1_795_852_803_004
TEMPLATE = """
{% extends "base.html.j2" %}
{% block content %}
<section id="live_head" data-live>
{% block live_head %}
<p class="verdict {{ verdict }}">Snapshot {{ number }}</p>
<details id="more"><summary>More</summary><p>Inside</p></details>
{% endblock %}
</section>
<section id="live_rows" data-live>
{% block live_rows %}{{ table(tables.rows) }}{% endblock %}
</section>
{{ table(tables.none) }}
<p class="verdict critical">Critical</p><p class="verdict warning">Warning</p>
<p class="verdict note">Note</p><p class="verdict well">Well</p>
<p class="notice">A notice.</p><p class="problem">A problem.</p>
<dl class="facts"><dt>Size</dt><dd>{{ size(123456) }}</dd>
<dt>At</dt><dd>{{ when(1795852803004) }}</dd></dl>
<dl class="tiles"><div><dt>In</dt><dd>1,000/s</dd></div><div><dt>Out</dt><dd>2/s</dd></div></dl>
<ol class="timeline"><li>Sent</li><li class="failed">Refused</li></ol>
<div class="scroll" role="region" tabindex="0" aria-label="Verdicts"><table class="calendar">
<thead><tr><th scope="col">Group</th>
{% for day in range(1, 41) %}<th scope="col">{{ day }}</th>{% endfor %}</tr></thead>
<tbody><tr><th scope="row">a</th>{% for day in range(1, 41) %}
<td><a class="good" href="/parts" aria-label="{{ day }}: met">✓</a></td>
{% endfor %}</tr></tbody></table></div>
{{ progress(3, 10, "Resent") }}
<form method="get"><p><label for="f">Field</label><input id="f" name="f"></p>
<p><label for="s">One of</label><select id="s" name="s"><option>a</option></select></p>
<p class="actions"><button>Look</button><button class="first">Go on</button>
<button class="danger">Delete</button></p></form>
<pre>{"body": "{{ hostile }}"}</pre>
{{ plot("Lag of each replica", "/lag.json") }}
{% endblock %}
"""


def parts(reader: Reader, query: Query) -> Page:
    number = reader.snapshot.number
    rows = [
        [
            link(HOSTILE if at == 0 else f"broker-{at:02}", "/parts"),
            badge(STATES[at % len(STATES)]),
            moment(AT_MS + at),
            HOSTILE if at == 1 else None,
            (at * 5 + number) % 12 * 1_000 + number,
        ]
        for at in range(12)
    ]
    return Page(
        context={"verdict": "well", "number": number, "hostile": HOSTILE},
        tables=[
            Table("rows", "Replicas", COLUMNS, rows, sort="lag"),
            Table("none", "Nothing at all", COLUMNS, [], empty_text="No master has a replica."),
        ],
    )


def lag(reader: Reader, query: Query) -> Page:
    """A minute each five seconds with a gap, a lonely sample in it, and an incident."""
    times = [AT_MS + 5_000 * step for step in range(60)]
    values = [None if 20 <= step < 40 and step != 30 else float(step) for step in range(60)]
    lines = [
        Line(HOSTILE, "s", Series(times, values)),
        Line("b", "bytes", Series(times, [2048.0 * (118 - step) for step in range(60)])),
    ]
    return Page(data=plot_data(lines, [(AT_MS + 100_000, AT_MS + 200_000, "disconnected")]))


@pytest.fixture(scope="module")
def site() -> Iterator[ServedSite]:
    views = [
        View("/", "Overview", "Overview", "parts.html.j2", parts),
        View("/parts", "Parts", "Topics", "parts.html.j2", parts),
        View("/others", "Others", "Topics", "parts.html.j2", parts),
        View("/lag", "Lag", "", "sentence.html.j2", lag),
    ]
    with served(views, {"parts.html.j2": TEMPLATE}) as one:
        one.frame = {"sign_in_url": "/sign-in?next=%2Fparts"}
        yield one


def live(page: BrowserPage) -> None:
    expect(page.locator("#live-state")).to_have_text("Live.")
    expect(page.locator("#live-when")).to_contain_text("Last change")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_part_is_without_fault(
    browser: ConsoleBrowser, site: ServedSite, width: int, dark: bool
) -> None:
    assert faults_of(browser, f"{site.url}/parts", width, dark=dark) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_everything_is_reached_by_keyboard(
    browser: ConsoleBrowser, site: ServedSite, width: int
) -> None:
    page = browser.open(f"{site.url}/parts", width)
    live(page)
    expect(page.locator(".plot-summary")).to_contain_text("now 59 s")
    walk = walk_by_keyboard(page)
    assert walk.faults == []
    assert walk.names[0] == "Skip to the page"
    assert len(walk.names) > 60


def test_it_prints_in_black_on_white(browser: ConsoleBrowser, site: ServedSite) -> None:
    page = browser.open(f"{site.url}/parts", 1039, dark=True)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("header.top").is_visible()
    wide = "t => t.getBoundingClientRect().right > innerWidth + 1"
    assert (
        page.evaluate(f"[...document.querySelectorAll('#table-rows table')].filter({wide})") == []
    )


def test_it_works_without_scripts(browser: ConsoleBrowser, site: ServedSite) -> None:
    page = browser.open(f"{site.url}/parts", scripts=False)
    assert "UTC" in page.locator("time").first.inner_text()
    rows = page.locator("#table-rows tbody")
    page.locator("#table-rows input[type=search]").fill("in_sync")
    page.get_by_role("button", name="Filter").click()
    assert rows.locator("tr").count() == 2
    page.get_by_role("link", name="Lag").click()
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Lag")
    assert "q=in_sync" in page.url
    assert page.get_by_role("link", name="Its figures as JSON").is_visible()


def test_times_are_the_readers(browser: ConsoleBrowser, site: ServedSite) -> None:
    page = browser.open(f"{site.url}/parts", zone="Asia/Kolkata")
    time = page.locator("dl.facts time")
    assert time.inner_text() == "2026-11-28 13:30:03"
    assert (
        "Asia/Calcutta" in page.locator("#zone").inner_text()
        or "Kolkata" in page.locator("#zone").inner_text()
    )
    page.get_by_role("button", name="Show them in UTC").click()
    assert time.inner_text() == "2026-11-28 08:00:03 UTC"
    page.reload()
    assert time.inner_text() == "2026-11-28 08:00:03 UTC", "it is remembered"


def test_a_live_page_leaves_the_reader_alone(browser: ConsoleBrowser, site: ServedSite) -> None:
    """Focus, an opened part, and a typed filter stay while rows change their place around them."""
    page = browser.open(f"{site.url}/parts")
    live(page)
    page.locator("#more summary").click()
    page.locator("#table-rows input[type=search]").fill("typed")
    name = "broker-05"
    row = page.get_by_role("link", name=name)
    row.focus()
    page.evaluate("document.activeElement.mine = 1")
    site.renew()
    expect(page.locator("#live_head .verdict")).to_have_text(f"Snapshot {site.snapshot.number}")
    expect(page.locator("#table-rows tbody tr").nth(5)).to_contain_text(str(site.snapshot.number))
    assert page.evaluate("document.activeElement.textContent") == name
    assert page.evaluate("document.activeElement.mine") == 1, "the very same link"
    assert page.locator("#more").get_attribute("open") is not None
    assert page.locator("#table-rows input[type=search]").input_value() == "typed"


def test_a_selection_makes_its_region_wait(browser: ConsoleBrowser, site: ServedSite) -> None:
    page = browser.open(f"{site.url}/parts")
    live(page)
    before = f"Snapshot {site.snapshot.number}"
    verdict = page.locator("#live_head .verdict")
    verdict.select_text()
    site.renew()
    number = str(site.snapshot.number)
    expect(page.locator("#table-rows tbody tr").nth(3)).to_contain_text(number.rjust(3, "0"))
    assert verdict.inner_text() == before
    page.evaluate("getSelection().removeAllRanges()")
    expect(verdict).to_have_text(f"Snapshot {number}")


def test_a_page_that_lost_its_console_says_so(browser: ConsoleBrowser) -> None:
    views = [View("/", "Overview", "Overview", "parts.html.j2", parts)]
    with served(views, {"parts.html.j2": TEMPLATE}) as one:
        page = browser.open(one.url)
        live(page)
    expect(page.locator("#live-state")).to_contain_text("Not connected since 20", timeout=15_000)
    assert "lost" in (page.locator("#live-state").get_attribute("class") or "")


def test_a_hidden_tab_keeps_no_connection(browser: ConsoleBrowser, site: ServedSite) -> None:
    page = browser.open(f"{site.url}/parts")
    live(page)
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_function("true")
    expect_watchers(page, site, 0)
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    expect_watchers(page, site, 1)


def expect_watchers(page: BrowserPage, site: ServedSite, count: int) -> None:
    """The browser's events need its loop: waited for by it."""
    for _ in range(100):
        if site.watchers == count:
            return
        page.wait_for_timeout(50)
    assert site.watchers == count


def test_keys(browser: ConsoleBrowser, site: ServedSite) -> None:
    page = browser.open(f"{site.url}/parts")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("g/?")
    assert page.locator("#search").input_value() == "g/?", "what is typed is text"
    page.locator("h1").click()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    assert dialog.is_visible()
    page.keyboard.press("Escape")
    names = page.locator("#table-rows tbody a")
    names.nth(3).focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == names.nth(4).inner_text()
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url(f"{site.url}/")
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Keys without Ctrl are on").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") != "search"


PIXELS = """
at => { const canvas = document.querySelector('figure.plot canvas');
  const [left, width] = at, {height} = canvas, found = new Set();
  const x = Math.round(canvas.width * left), across = Math.round(canvas.width * width);
  const data = canvas.getContext('2d').getImageData(x, 0, across, height).data;
  const hex = value => value.toString(16).padStart(2, '0');
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200)
    found.add('#' + hex(data[i]) + hex(data[i + 1]) + hex(data[i + 2]));
  return [...found]; }
"""


def is_near(colours: list[str], wanted: str) -> bool:
    """A thin line has no pixel of its very colour."""

    def parts(colour: str) -> list[int]:
        return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]

    return any(
        sum(abs(a - b) for a, b in zip(parts(one), parts(wanted), strict=True)) < 60
        for one in colours
    )


def test_a_plot_is_drawn_told_and_written(browser: ConsoleBrowser, site: ServedSite) -> None:
    page = browser.open(f"{site.url}/parts")
    summary = page.locator(".plot-summary")
    expect(summary).to_contain_text("now 59 s, highest 59 s at 2026-11-28 09:04:58, 2 gaps.")
    expect(summary).to_contain_text("b: now 118 KiB, highest 236 KiB")
    expect(summary).to_contain_text("1 incident: disconnected.")
    assert page.locator("figure.plot .uplot[role=img]").get_attribute("aria-label")
    before, gap = page.evaluate(PIXELS, [0.2, 0.05]), page.evaluate(PIXELS, [0.44, 0.03])
    assert is_near(before, "#1a5a9c"), "the line"
    assert not is_near(gap, "#1a5a9c"), "a gap is a gap"
    assert "#f6c9c4" in gap, "the incident"
    assert "#f6c9c4" not in before
    page.locator("figure.plot summary").click()
    rows = page.locator("figure.plot tbody tr")
    expect(rows).to_have_count(60)
    assert rows.nth(25).inner_text().split("\t")[1:] == ["–", "168 KiB"]
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function(
        "document.querySelector('figure.plot canvas').getBoundingClientRect().width < 390"
    )
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("getComputedStyle(document.body).backgroundColor === 'rgb(17, 22, 29)'")
    wait_until(lambda: is_near(page.evaluate(PIXELS, [0.2, 0.05]), "#7db3ee"))


def test_strangers_texts_stay_texts(browser: ConsoleBrowser, site: ServedSite) -> None:
    page = browser.open(f"{site.url}/parts")
    live(page)
    site.renew()
    expect(page.locator("#live_head .verdict")).to_have_text(f"Snapshot {site.snapshot.number}")
    assert page.locator("main img").count() == 0
    assert page.evaluate("document.body.innerText.split('<img src=x onerror').length") > 3
