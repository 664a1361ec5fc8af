"""The browser in which pages are opened."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.spark.browser import CHROMIUM, Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI=true, and there is no chromium: install Debian's package chromium")
        pytest.skip("no chromium: install Debian's package chromium")
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
