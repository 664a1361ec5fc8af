"""index.html in a real browser, from a file and without a network: by keyboard, on a phone, in the
dark, on paper, and by the accessibility rules of axe-core."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark.page.calendar_page import calendar_html
from spark.page.report_page import report_html
from tests.spark.browser import Browser, pixels
from tests.spark.calendar_days import GROUP, days_of, with_periods
from tests.spark.demo_report import demo_report
from tests.spark.page.test_page_in_browser import (
    BEYOND_THE_WINDOW,
    LOWEST_CONTRAST,
    TABLES_THAT_SCROLL,
)
from tests.support.axe import OPTIONS, axe_script

pytestmark = pytest.mark.slow

LETTERS = "mmmmmmbmmmmmimmmmmmmmm-mmmmmbbmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm"
FIRST, LAST = "2026-01-05", "2026-03-14"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As below --out: the calendar, with a contract's weeks, months and quarters, and the report of
    its last day."""
    out = tmp_path_factory.mktemp("out")
    groups = [GROUP, (GROUP[0], "broker-b"), ("Other", "a-broker-with-a-rather-long-name")]
    (out / "index.html").write_bytes(calendar_html(with_periods(days_of(FIRST, LETTERS, groups))))
    directory = out / "report" / f"dt={LAST}"
    directory.mkdir(parents=True)
    (directory / "report.html").write_bytes(report_html(demo_report()))
    return out / "index.html"


def press(browser: Browser, key: str, code: int) -> None:
    for kind in ("keyDown", "keyUp"):
        text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
        browser.call(
            "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
            **text,
        )  # fmt: skip


def wait_for(browser: Browser, condition: str) -> None:
    browser.value(
        f"new Promise(done => {{ const look = () => ({condition}) ? done(1) :"
        " setTimeout(look, 20); look(); })"
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 1280, 768, 390])
def test_it_is_drawn_and_fits(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width, dark=dark)
    assert browser.requests == [page.as_uri()], "nothing but the page itself"
    assert browser.complaints() == []
    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value(BEYOND_THE_WINDOW) == []
    assert browser.value("document.querySelectorAll('.verdicts .verdict').length") == 5
    assert width < 1280 or browser.value(TABLES_THAT_SCROLL) == []
    # The days of a month never have to be scrolled for.
    assert browser.value(
        "[...document.querySelectorAll('table.month')].filter(t => t.offsetWidth >"
        " t.parentElement.clientWidth).length"
    ) == 0  # fmt: skip
    day = "document.querySelector('.month td.day > a').getBoundingClientRect()"
    assert browser.value(f"{day}.width") >= 36, "a finger finds it"
    assert browser.value(f"{day}.height") >= 40
    ratio, where = browser.value(LOWEST_CONTRAST)
    assert ratio >= 4.5, where
    wide, _, rgb = pixels(browser.screenshot(height=1200))
    assert wide == width
    ground = (0x11, 0x16, 0x1D) if dark else (0xFF, 0xFF, 0xFF)
    assert tuple(rgb[:3]) == ground
    breached = bytes((0x3A, 0x1B, 0x1A) if dark else (0xFD, 0xEE, 0xEC))
    met = bytes((0x14, 0x30, 0x1F) if dark else (0xE9, 0xF5, 0xED))
    browser.value(f"document.getElementById('m-{FIRST[:7]}').scrollIntoView()")
    top = browser.value("scrollY")
    _, _, rgb = pixels(browser.screenshot(top=top, height=700))
    colours = {rgb[i : i + 3] for i in range(0, len(rgb), 3)}
    assert {breached, met} <= colours


def test_by_keyboard_to_a_month_and_to_a_days_report(browser: Browser, page: Path) -> None:
    browser.open(page, 1280)
    press(browser, "Tab", 9)
    assert browser.value("document.activeElement.textContent") == "Skip to the calendar"
    press(browser, "Enter", 13)
    wait_for(browser, "location.hash === '#main'")
    press(browser, "Tab", 9)
    assert browser.value("document.activeElement.textContent") == "← Previous: February 2026"
    assert browser.value("getComputedStyle(document.activeElement).outlineWidth") == "3px"
    press(browser, "Enter", 13)
    wait_for(browser, "location.hash === '#m-2026-02'")
    heading = "document.getElementById('m-2026-02').getBoundingClientRect().top"
    wait_for(browser, f"Math.abs({heading}) < innerHeight / 2")
    press(browser, "Tab", 9)
    assert browser.value("document.activeElement.textContent") == "← Previous: January 2026"
    press(browser, "Tab", 9)
    assert browser.value("document.activeElement.textContent") == "Next: March 2026 →"
    press(browser, "Enter", 13)
    wait_for(browser, "location.hash === '#m-2026-03'")
    # Over the box of the contract's quarter to its table, and back.
    browser.value("document.querySelector('.verdict a[href=\"#contract-quarter\"]').focus()")
    press(browser, "Enter", 13)
    wait_for(browser, "location.hash === '#contract-quarter'")
    table = "document.getElementById('contract-quarter').getBoundingClientRect().top"
    wait_for(browser, f"Math.abs({table}) < innerHeight / 2")
    browser.value("document.querySelector('nav a[href=\"#m-2026-03\"]').focus()")
    press(browser, "Enter", 13)
    wait_for(browser, "location.hash === '#m-2026-03'")
    # Tab to the last day of it, and into its report.
    for _ in range(40):
        press(browser, "Tab", 9)
        if browser.value("document.activeElement.textContent").startswith("14"):
            break
    press(browser, "Enter", 13)
    wait_for(browser, "document.title === 'Breached: replication report 2026-03-14'")


def test_it_prints(browser: Browser, page: Path) -> None:
    browser.open(page, 1280, dark=True)
    pdf = browser.pdf()
    assert 1 <= len(re.findall(rb"/Type ?/Page\b", pdf)) <= 7
    browser.open(page, 1039)
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.value(
        "[...document.querySelectorAll('table')].filter(t => t.checkVisibility()"
        " && t.getBoundingClientRect().right > innerWidth + 1).map(t => t.caption.textContent)"
    ) == []  # fmt: skip


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_axe_finds_nothing(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width, dark=dark)
    browser.value(axe_script())
    found = browser.value(
        f"axe.run({OPTIONS}).then(result => result.violations.map("
        "v => [v.id, v.help, v.nodes.length, v.nodes[0].html.slice(0, 200)]))"
    )
    assert found == []
