"""The browser in which the console's pages are opened."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.console.browser import CHROMIUM, ConsoleBrowser, console_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[ConsoleBrowser]:
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI=true, and there is no chromium: install Debian's package chromium")
        pytest.skip("no chromium: install Debian's package chromium")
    with console_browser() as started:
        yield started
