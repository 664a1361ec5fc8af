"""axe-core, the rules by which pages are judged in a browser: for the report and the console.

The script comes with axe-playwright-python; whichever browser runs it gets it as text.
"""

from __future__ import annotations

import importlib.resources
from typing import Final

_TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
OPTIONS: Final = {"runOnly": list(_TAGS), "resultTypes": ["violations"]}
"""Of `axe.run`: which rules, and that it writes down the elements that break one, not those of each
rule that hold it."""


def axe_script() -> str:
    """Defines `axe` in a page."""
    place = importlib.resources.files("axe_playwright_python") / "axe.min.js"
    return place.read_text(encoding="utf-8") + ";1"
