"""What the browser is sent: uPlot as published, one family of colours, and how much it is."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tools.prepare_venv import PROJECT

STATIC = PROJECT / "console" / "static"
REPORT = PROJECT / "spark" / "page" / "templates" / "report.css"
VENDORED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""SHA-256 of the files of uPlot 1.6.32 at the registry of npm."""
MOST_BYTES = 150_000
"""Of scripts and styles together: half of what a page may be."""


def test_uplot_is_as_it_was_published_and_named_in_the_notice() -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (STATIC / "vendor").iterdir()
    }
    assert found == VENDORED
    assert "uPlot 1.6.32" in (PROJECT / "NOTICE").read_text(encoding="utf-8")
    assert b"(v1.6.32)" in (STATIC / "vendor" / "uPlot.iife.min.js").read_bytes()[:100]


def colours(path: Path) -> list[dict[str, str]]:
    """Names and values by scheme: light, dark."""
    blocks = re.findall(r":root \{(.*?)\}", path.read_text(encoding="utf-8"), re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): ([^;]+);", block)) for block in blocks[:2]]


def test_the_console_has_the_colours_of_the_report() -> None:
    own, report = colours(STATIC / "console.css"), colours(REPORT)
    assert len(own) == 2
    for one, other in zip(own, report, strict=True):
        assert one.items() <= other.items()
        assert len(one) > 15


def test_every_colour_that_is_used_exists() -> None:
    texts = [path.read_text(encoding="utf-8") for path in STATIC.glob("*.*s")]
    used = set(re.findall(r"var\(--([\w-]+)\)", "".join(texts)))
    used |= set(re.findall(r'"--([\w-]+)"', "".join(texts)))
    assert used == colours(STATIC / "console.css")[0].keys()


def test_scripts_and_styles_are_small() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*.*s")) < MOST_BYTES
