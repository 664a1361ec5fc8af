"""Debian's Chromium driven by Playwright, and what is asked of every page of the console in it.

Playwright is installed without its own browsers (`pip install playwright` brings its driver only).
While one is started its thread has a running event loop: no `asyncio.run` in the same test module.

Proved by tests/console/test_browser.py, on a page with faults.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.axe import OPTIONS, axe_script

CHROMIUM: Final = shutil.which("chromium")
FLAGS: Final = ("--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking")
WIDTHS: Final = (390, 1440)
PICTURES: Final = Path(__file__).parents[2] / "docs" / "images"
MOST_STOPS: Final = 500

_AXE: Final = """
options => axe.run(options).then(result => result.violations.flatMap(rule =>
  rule.nodes.map(node => `${rule.id}: ${rule.help}: ${node.html.slice(0, 160)}`)))
"""
# Boxes that reach beyond the window although no ancestor of them scrolls, clips, or hides them.
_BEYOND: Final = """
() => [...document.querySelectorAll('body *')].filter(e => {
  if (e.closest('.scroll, .skip, .hidden, pre, dialog:not([open])')) return false;
  if (!e.checkVisibility()) return false;
  const box = e.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map(e => e.outerHTML.slice(0, 160))
"""
_FOCUSABLE: Final = """
() => [...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [tabindex]')]
  .filter(e => !e.disabled && e.type !== 'hidden' && e.tabIndex >= 0 && e.checkVisibility() &&
    !e.closest('dialog:not([open])')).map((e, at) => { e.dataset.walk = at; return NAME(e); })
""".replace(
    "NAME(e)",
    "(e.getAttribute('aria-label') || e.innerText || e.name || e.id || e.tagName).slice(0, 80)",
)
_FOCUSED: Final = """
() => { const e = document.activeElement;
  if (e === null || e === document.body || e === document.documentElement) return null;
  const style = getComputedStyle(e), box = e.getBoundingClientRect();
  const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
  const inside = box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 &&
    box.left < innerWidth;
  return [Number(e.dataset.walk ?? -1), outlined && inside]; }
"""


@dataclass(frozen=True, slots=True)
class Walk:
    """What Tab reached, from the top of a page to its end: names, and what was wrong with them."""

    names: tuple[str, ...]
    unseen: tuple[str, ...]
    """Had the focus, and nothing showed it."""
    unreached: tuple[str, ...]
    """Can be used with a mouse, but Tab never came there: after a trap, or skipped."""
    out_of_order: tuple[str, ...]
    """Came before what stands before them in the page."""

    @property
    def faults(self) -> list[str]:
        """All of them, in words."""
        return [
            *(f"focus is not seen: {name}" for name in self.unseen),
            *(f"not reached by Tab: {name}" for name in self.unreached),
            *(f"out of order: {name}" for name in self.out_of_order),
        ]


class ConsoleBrowser:
    """One browser with one page. Where no context of another kind is asked for, the page stays, and
    with it the browser's process: cookies and what scripts have kept are forgotten first."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._page: Page | None = None
        self._kind: object = None
        self.complaints: list[str] = []
        """What the page's scripts and the browser said against it since `open`."""
        self.requests: list[str] = []

    def open(
        self,
        url: str,
        width: int = 1440,
        *,
        dark: bool = False,
        scripts: bool = True,
        zone: str = "Europe/Berlin",
        **options: Any,
    ) -> Page:
        """A page in a window of that size, instead of the one before."""
        kind = (scripts, zone, options)
        if self._page is None or kind != self._kind or not scripts:
            self.close_page()
            context = self._browser.new_context(
                java_script_enabled=scripts, timezone_id=zone, **options
            )
            context.set_default_timeout(20_000)
            self._page, self._kind = self._new_page(context), kind
        else:
            self._forget(self._page)
        page = self._page
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media="null", color_scheme="dark" if dark else "light")
        self.complaints, self.requests = [], []
        page.goto(url)
        return page

    def _new_page(self, context: BrowserContext) -> Page:
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note)
        page.on("request", lambda request: self.requests.append(request.url))
        return page

    @staticmethod
    def _forget(page: Page) -> None:
        page.evaluate("() => { try { localStorage.clear() } catch { /* a page of an error */ } }")
        page.goto("about:blank")  # before the cookies: it may be asking for something just now
        page.context.clear_cookies()

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def close_page(self) -> None:
        """With its context."""
        if self._page is not None:
            self._page.context.close()
            self._page = None


@contextmanager
def console_browser() -> Iterator[ConsoleBrowser]:
    """A started browser; needs CHROMIUM."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        browser = ConsoleBrowser(started)
        yield browser
        browser.close_page()
        started.close()


def axe_findings(page: Page) -> list[str]:
    """What the rules of axe-core say against a page."""
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(axe_script())
    found: list[str] = page.evaluate(_AXE, OPTIONS)
    return found


def beyond_the_window(page: Page) -> list[str]:
    """What a reader would have to scroll the whole page sideways for."""
    found: list[str] = page.evaluate(_BEYOND)
    width: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return found if width <= 0 else [*found, f"the page is {width} px wider than the window"]


def walk_by_keyboard(page: Page) -> Walk:
    """Press Tab from the top of the page until the focus leaves it, or goes in circles."""
    names: list[str] = page.evaluate(_FOCUSABLE)
    page.evaluate("() => { document.activeElement?.blur(); getSelection().removeAllRanges();"
                  " scrollTo(0, 0); }")  # fmt: skip
    reached: list[int] = []
    unseen: list[str] = []
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        stop = page.evaluate(_FOCUSED)
        if stop is not None and reached and stop[0] == reached[-1]:
            continue  # the next part of a date
        if stop is None or stop[0] in reached:
            break
        reached.append(stop[0])
        if not stop[1]:
            unseen.append(names[stop[0]])
    pairs = itertools.pairwise(reached)
    return Walk(
        names=tuple(names[at] for at in reached),
        unseen=tuple(unseen),
        unreached=tuple(name for at, name in enumerate(names) if at not in reached),
        out_of_order=tuple(names[after] for before, after in pairs if after < before),
    )


def faults_of(browser: ConsoleBrowser, url: str, width: int, *, dark: bool = False) -> list[str]:
    """What is asked of every page of the console: by axe, whether it fits, and that it has no error
    in its scripts and asks nobody else for anything."""
    return faults_shown(browser, browser.open(url, width, dark=dark))


def faults_shown(browser: ConsoleBrowser, page: Page) -> list[str]:
    """The same of the page that is open, as it is shown now."""
    page.wait_for_load_state("load")
    origin = "/".join(page.url.split("/")[:3])
    return [
        *axe_findings(page),
        *beyond_the_window(page),
        *browser.complaints,
        *(asked for asked in browser.requests if not asked.startswith(origin)),
    ]


def picture(page: Page, name: str, *, height: int | None = None) -> Path:
    """The page as docs/images/NAME.png, whole unless `height` says how much of it."""
    path = PICTURES / f"{name}.png"
    if height is None:
        page.screenshot(path=path, full_page=True, animations="disabled")
    else:
        width = page.viewport_size["width"] if page.viewport_size else 1440
        clip = {"x": 0, "y": 0, "width": width, "height": height}
        page.screenshot(path=path, clip=clip, full_page=True, animations="disabled")  # type: ignore[arg-type]
    return path
