"""The page in a real browser: what is drawn, what is asked for, whether it fits and prints.

Chromium headless (Debian's package `chromium`), and the accessibility rules of axe-core in it.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import pytest

from spark.figures.cluster_calendar import cluster_calendar
from spark.figures.report_data import ReportData
from spark.page.report_page import report_html
from spark.vocabulary import REPLICA
from tests.spark.browser import CHROMIUM, FLAGS, Browser, pixels, size_of, with_digest_of_page
from tests.spark.demo_report import demo_report, empty_report, large_report, one_replica_report
from tests.spark.page_reader import read_page
from tests.spark.told_reports import calendar_row
from tests.support.axe import OPTIONS, axe_script

pytestmark = pytest.mark.slow

PICTURES = Path(__file__).parents[3] / "docs" / "images"

# What the eye meets: every text's colour against the nearest ground behind it.
LOWEST_CONTRAST = """
(() => {
  const parse = text => { const n = text.match(/[\\d.]+/g).map(Number);
    return n.length < 4 ? [...n, 1] : n; };
  const light = rgb => { const [r, g, b] = rgb.map(v => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } };
  let lowest = [99, ''];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const e = node.parentElement;
    if (!node.data.trim() || !e.checkVisibility()) continue;
    const style = getComputedStyle(e);
    const ink = parse(e.ownerSVGElement ? style.fill : style.color);
    const [a, b] = [light(ink.slice(0, 3)), light(ground(e).slice(0, 3))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < lowest[0]) lowest = [ratio, e.outerHTML.slice(0, 120)];
  }
  return lowest;
})()
"""
# Drawn shapes with a size, by figure; a plot without any would be an empty frame.
EMPTY_PLOTS = """
[...document.querySelectorAll('svg.plot')].filter(svg =>
  ![...svg.querySelectorAll('path, rect')].some(shape => {
    const box = shape.getBoundingClientRect(); return box.width > 0 || box.height > 0; })
).map(svg => svg.getAttribute('aria-label'))
"""
# Boxes that reach beyond the window although no ancestor of them scrolls or clips.
BEYOND_THE_WINDOW = """
[...document.querySelectorAll('body *')].filter(e =>
  !e.closest('.scroll, .skip, .defs, svg.plot:not(.labelled) text') && e.checkVisibility() &&
  (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1)
).map(e => e.outerHTML.slice(0, 120))
"""
# On a wide screen none has to.
TABLES_THAT_SCROLL = """
[...document.querySelectorAll('main > section > .scroll')]
  .filter(e => e.scrollWidth > e.clientWidth)
  .map(e => e.querySelector('caption').textContent)
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_bytes(report_html(demo_report()))
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_it_is_drawn_and_fits(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width, dark=dark)
    assert browser.requests == [page.as_uri()], "nothing but the page itself"
    assert browser.complaints() == []
    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value(BEYOND_THE_WINDOW) == []
    assert width < 1280 or browser.value(TABLES_THAT_SCROLL) == []
    assert browser.value("document.querySelectorAll('svg.plot').length") == 23
    assert browser.value(EMPTY_PLOTS) == []
    assert browser.value("document.querySelectorAll('.scroll > table').length") == 39
    wide, _, rgb = pixels(browser.screenshot(height=1200))
    assert wide == width
    ground = (0x11, 0x16, 0x1D) if dark else (0xFF, 0xFF, 0xFF)
    assert tuple(rgb[:3]) == ground
    colours = {rgb[i : i + 3] for i in range(0, len(rgb), 3 * 7)}
    assert len(colours) > 50, "a blank page has one"
    banner = bytes((0x3A, 0x1B, 0x1A) if dark else (0xFD, 0xEE, 0xEC))
    assert banner in colours, "the verdict's ground"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_can_be_told_from_its_ground(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, 1280, dark=dark)
    ratio, where = browser.value(LOWEST_CONTRAST)
    assert ratio >= 4.5, where


def test_text_on_a_phone_is_as_large_as_on_a_screen(browser: Browser, page: Path) -> None:
    browser.open(page, 360)
    smallest = browser.value(
        "Math.min(...[...document.querySelectorAll('svg.plot text')]"
        ".filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect().height))"
    )
    assert smallest >= 11


def test_wide_tables_scroll_by_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page, 360)
    browser.value("document.querySelector('[aria-labelledby=replicas-table]').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent", type=kind, key="ArrowRight", windowsVirtualKeyCode=39
        )
    moved = browser.value(
        "new Promise(done => { const box = document.activeElement; const look = () =>"
        " box.scrollLeft > 0 ? done(box.scrollLeft) : requestAnimationFrame(look); look(); })"
    )
    assert moved > 0
    outline = browser.value("getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px", "who has the focus is seen"


@pytest.mark.parametrize("width", [768, 390])
def test_a_table_that_is_cut_shows_it(browser: Browser, page: Path, width: int) -> None:
    """A shadow on the side that has more of it, until there is no more; whose row it is stays in
    sight, and so does the caption."""
    browser.open(page, width)
    box = "document.querySelector('[aria-labelledby=replicas-table]')"

    def is_shaded() -> bool:
        rect = browser.value(
            f"(r => [r.right, r.top + scrollY, r.height])({box}.getBoundingClientRect())"
        )
        right, top, height = (round(number) for number in rect)
        wide, tall, rgb = pixels(browser.screenshot(top=top, height=height))
        edge = [rgb[(row * wide + right - 2) * 3 :][0] for row in range(4, tall - 4)]
        return sum(red < 0xF0 for red in edge) > len(edge) // 2

    assert is_shaded()
    name = f"{box}.querySelector('.who').getBoundingClientRect().left"
    caption = f"{box}.querySelector('caption span').getBoundingClientRect()"
    before = browser.value(name)
    assert browser.value(f"{caption}.right") <= width
    browser.value(f"{box}.scrollLeft = 9999")
    assert not is_shaded()
    assert browser.value(name) == before
    assert browser.value(f"{caption}.left") >= 0


def test_it_prints(browser: Browser, page: Path) -> None:
    browser.open(page, 1280, dark=True)
    pdf = browser.pdf()
    sizes = set(re.findall(rb"/MediaBox ?\[([\d. ]+)\]", pdf))
    assert [[round(float(n)) for n in size.split()] for size in sizes] == [[0, 0, 842, 595]]
    assert 3 <= len(re.findall(rb"/Type ?/Page\b", pdf)) <= 15
    # The paper is 275 mm wide between its margins: 1039 px.
    browser.open(page, 1039)
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    cut = browser.value(
        "[...document.querySelectorAll('main > section table')].filter(t => t.checkVisibility()"
        " && t.getBoundingClientRect().right > innerWidth + 1).map(t => t.caption.textContent)"
    )
    assert cut == []


def test_dark_mode_prints_light(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="print", features=[scheme])
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.call("Emulation.setEmulatedMedia", media="screen", features=[scheme])
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(17, 22, 29)"


@pytest.mark.parametrize(
    "name",
    ["<script>document.title='owned'</script>", "</style><img src=x onerror=alert(1)>", "W" * 9000],
    ids=["script", "image", "long"],
)
def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path, name: str) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(report_html(one_replica_report(name, name)))
    for width in (1280, 360):
        browser.open(path, width)
        assert browser.value("document.title") == "Breached: replication report 2026-03-14"
        assert browser.requests == [path.as_uri()]
        assert browser.complaints() == []
        assert browser.value("document.documentElement.scrollWidth") == width
        assert browser.value(BEYOND_THE_WINDOW) == []


def with_periods() -> ReportData:
    """The demo with a week, a month and a quarter, and a second group, so that there is a table of
    clusters."""
    demo = demo_report()
    rows = [
        calendar_row(name, verdict, final=final)
        | {column: row[column] for column in REPLICA}
        | {"from_ms": 0, "to_ms": length, "window_s": length / 1000, "good_s": 1.0}
        | {"excluded_s": 0.0, "period": period}
        for row in demo.replica_days
        for name, period, length, verdict, final in (
            ("2026-W11", "week", 604_800_000, "met", True),
            ("2026-03", "month", 2_678_400_000, "breached", False),
            ("2026-Q1", "quarter", 7_776_000_000, "insufficient data", False),
        )
    ]
    clusters = [
        {
            **row,
            "calendar": cluster_calendar(row["cluster"], rows, ()) if row["days"] == 1 else None,
        }
        for row in demo.clusters
    ]
    return dataclasses.replace(demo, calendar_windows=rows, clusters=clusters)


@pytest.mark.parametrize("width", [1280, 768, 390, 360])
def test_calendar_periods_fit(browser: Browser, tmp_path: Path, width: int) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(report_html(with_periods()))
    browser.open(path, width)
    assert browser.complaints() == []
    assert browser.value("document.querySelectorAll('.verdicts .verdict').length") == 5
    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value(BEYOND_THE_WINDOW) == []
    assert width < 1280 or browser.value(TABLES_THAT_SCROLL) == []


def test_a_name_that_got_through_would_be_stopped_by_the_policy(
    browser: Browser, tmp_path: Path
) -> None:
    """The second wall: the same page with a script in it, as if nothing had been escaped."""
    path = tmp_path / "report.html"
    evil = (
        b"<h1><script>document.title='owned'</script><img src='http://127.0.0.1:9/x'>"
        b"<style>h1{color:red}</style>"
    )
    path.write_bytes(report_html(demo_report()).replace(b"<h1>", evil, 1))
    browser.open(path, 1280)
    assert browser.value("document.title") == "Breached: replication report 2026-03-14"
    assert (
        browser.value("getComputedStyle(document.querySelector('h1')).color") == "rgb(24, 33, 44)"
    )
    refused = " ".join(browser.complaints())
    assert all(f"{kind}-src" in refused for kind in ("script", "img", "style"))


@pytest.mark.parametrize("groups", [0, 500])
def test_empty_and_large_days_open(browser: Browser, tmp_path: Path, groups: int) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(report_html(large_report(groups) if groups else empty_report()))
    browser.open(path, 360)
    assert browser.complaints() == []
    assert browser.value("document.documentElement.scrollWidth") == 360
    assert browser.value(EMPTY_PLOTS) == []


def test_a_browser_reads_the_same_tree(browser: Browser, page: Path, tmp_path: Path) -> None:
    """--dump-dom: nothing was moved or closed by the browser's forgiving parser."""
    dumped = subprocess.run(
        [str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path}", "--dump-dom", page.as_uri()],
        check=True,
        capture_output=True,
        timeout=60,
    ).stdout
    ours, theirs = (read_page(html) for html in (page.read_bytes(), dumped))
    assert [e.tag for e in theirs.walk()] == [e.tag for e in ours.walk()]


@pytest.mark.parametrize(
    ("width", "dark"),
    [(1280, True), (360, False), pytest.param(1280, False, marks=pytest.mark.long)],
)
def test_axe_finds_nothing(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width, dark=dark)
    browser.value(axe_script())
    found = browser.value(
        f"axe.run({OPTIONS}).then(result => result.violations.map("
        "v => [v.id, v.help, v.nodes.length, v.nodes[0].html.slice(0, 200)]))"
    )
    assert found == []


@pytest.mark.parametrize(
    ("name", "begins_at", "height"),
    [("sla_report", "h1", 1040), ("sla_report_replica", "#replica-1", 1220)],
)
def test_pictures_of_the_documentation(
    browser: Browser, page: Path, name: str, begins_at: str, height: int
) -> None:
    """Drawn anew with UPDATE_PICTURES=1; else of the right size, and small. Whether they show this
    page, test_page.py asks."""
    path = PICTURES / f"{name}.png"
    if os.environ.get("UPDATE_PICTURES") == "1":
        browser.open(page, 1280)
        top = browser.value(
            f"scrollY + document.querySelector('{begins_at}').getBoundingClientRect().top"
        )
        PICTURES.mkdir(exist_ok=True)
        png = browser.screenshot(top=max(top - 24, 0), height=height, is_small=True)
        path.write_bytes(with_digest_of_page(png, page.read_bytes()))
    png = path.read_bytes()
    assert len(png) <= 300_000
    assert size_of(png) == (1280, height)
