"""The harness finds what is wrong with a page: each fault below is planted, and each is told."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.console.browser import (
    ConsoleBrowser,
    axe_findings,
    beyond_the_window,
    faults_of,
    walk_by_keyboard,
)

pytestmark = pytest.mark.slow

HEAD = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<style>:focus-visible { outline: 3px solid #00f }</style></head><body><main><h1>A page</h1>"""
END = "</main></body></html>"
GOOD = f"{HEAD}<p><a href='#a'>one</a> <button>two</button> <label>three <input></label></p>{END}"
AXE_FAULTS = f"""{HEAD}<img src="data:,"><p><input></p><h4>deep</h4>
<p style="color: #aaa; background: #fff">pale</p>
<p><a href="#" style="display: inline-block; width: 9px; height: 9px; font-size: 7px"><b>x</b></a>
<a href="#" style="display: inline-block; width: 9px; height: 9px; font-size: 7px"><b>y</b></a></p>
{END}"""
WALK_FAULTS = f"""{HEAD}<p><a href="#a">first</a>
<a href="#b" style="outline: none">unseen</a> <a href="#c" tabindex="3">too early</a>
<button id="trap">trap</button> <a href="#d">behind the trap</a></p>{END}
<script>document.getElementById('trap').onkeydown = event => event.preventDefault()</script>
"""
WIDE = f"""{HEAD}<div style="width: 700px">wide</div>
<div class="scroll" style="overflow-x: auto"><p style="width: 2000px">may be wide</p></div>{END}"""
NOISY = f"""{HEAD}<script>throw new Error('a fault in a script')</script>
<script src="http://127.0.0.1:9/elsewhere.js"></script>{END}"""
PAGES = {
    "good": GOOD, "axe": AXE_FAULTS, "walk": WALK_FAULTS, "wide": WIDE, "noisy": NOISY
}  # fmt: skip


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("pages")
    for name, text in PAGES.items():
        (directory / f"{name}.html").write_text(text, encoding="utf-8")
    handler = partial(_Quiet, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_good_page_has_no_fault(browser: ConsoleBrowser, pages: str) -> None:
    assert faults_of(browser, f"{pages}/good.html", 390) == []
    walk = walk_by_keyboard(browser.open(f"{pages}/good.html"))
    assert walk.faults == []
    assert len(walk.names) == 3


def test_axe_is_of_today_and_finds_faults(browser: ConsoleBrowser, pages: str) -> None:
    page = browser.open(f"{pages}/axe.html")
    rules = {found.partition(":")[0] for found in axe_findings(page)}
    wanted = {"image-alt", "label", "color-contrast", "heading-order", "target-size"}
    assert wanted <= rules
    version = page.evaluate("axe.version")
    assert tuple(map(int, version.split(".")[:2])) >= (4, 12)


def test_the_walk_finds_what_a_keyboard_cannot_do(browser: ConsoleBrowser, pages: str) -> None:
    walk = walk_by_keyboard(browser.open(f"{pages}/walk.html"))
    assert walk.names[0] == "too early"
    assert walk.unseen == ("unseen",)
    assert walk.unreached == ("behind the trap",)
    assert walk.out_of_order == ("first",)


def test_what_is_wider_than_the_window_is_found(browser: ConsoleBrowser, pages: str) -> None:
    found = beyond_the_window(browser.open(f"{pages}/wide.html", 390))
    assert any("wide</div>" in each for each in found)
    assert not any("may be wide" in each for each in found)
    assert beyond_the_window(browser.open(f"{pages}/wide.html", 1440)) == []


def test_nothing_of_a_page_is_in_the_next(browser: ConsoleBrowser, pages: str) -> None:
    kept = "document.cookie + localStorage.length + matchMedia('print').matches"
    page = browser.open(f"{pages}/good.html", 390, dark=True)
    page.evaluate("document.cookie = 'a=b', localStorage.setItem('c', 'd')")
    page.emulate_media(media="print")
    assert page.evaluate(kept) == "a=b1true"
    page = browser.open(f"{pages}/good.html")
    assert page.evaluate(kept) == "0false"
    assert page.evaluate("innerWidth") == 1440
    assert not page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")


def test_errors_and_requests_elsewhere_are_told(browser: ConsoleBrowser, pages: str) -> None:
    found = "\n".join(faults_of(browser, f"{pages}/noisy.html", 1440))
    assert "a fault in a script" in found
    assert "http://127.0.0.1:9/elsewhere.js" in found
