"""Templates to HTML: the environment, the filters that all pages share, and a page's live regions.

Pure but for reading the templates; any thread. Everything is escaped: names, keys and bodies come
from strangers. A block of a template whose name begins with `live_` is a live region: the page
marks its place with the same id, and the events of the page bring its new content.

Tested by tests/console/test_render.py.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from console.tables import NO_TIME, utc_text
from tools.commands.ha_status import duration_text, size_text
from tools.report import safe_line, safe_text

LIVE: Final = "live_"
MACROS: Final = ("table", "badge", "when", "size", "plot", "progress")
"""Of macros.html.j2, known to every template without an import: what a template does outside its
blocks, imports too, is not done for its live regions."""


@functools.cache
def environment() -> Environment:
    """Of the templates in console/templates."""
    made = Environment(
        loader=PackageLoader("console", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters |= {
        "when": when,
        "size": lambda size: "–" if size is None else size_text(int(size)),
        "seconds": seconds,
        "span": lambda ms: "–" if ms is None else duration_text(ms / 1000),
        "count": count,
        "line": lambda text: safe_line(str(text)),
        "lines": lambda text: safe_text(str(text)),
    }
    shared = made.get_template("macros.html.j2").module
    made.globals |= {name: getattr(shared, name) for name in MACROS}
    return made


def render(template: str, context: Mapping[str, Any]) -> str:
    """A whole page."""
    return environment().get_template(template).render(**context)


def render_regions(template: str, context: Mapping[str, Any]) -> dict[str, str]:
    """The live regions of a page, by the id of their place."""
    found = environment().get_template(template)
    regions = {}
    for name, block in found.blocks.items():
        if name.startswith(LIVE):
            made = found.new_context(dict(context))
            regions[name] = "".join(block(made))
    return regions


def when(ms: float | None) -> Markup:
    """A time element in UTC; a script shows it in the reader's zone."""
    text = utc_text(ms or 0)
    if not ms or text == NO_TIME:
        return Markup(NO_TIME)
    machine = f"{text.replace(' ', 'T')}.{int(ms) % 1000:03}Z"
    return Markup('<time datetime="{}">{} UTC</time>').format(machine, text)


def seconds(value: float | None) -> str:
    """Seconds with one decimal; a dash for what is not known."""
    return "–" if value is None or not isfinite(value) else f"{value:.1f} s"


def count(value: float | None) -> str:
    """A number with thin spaces between thousands."""
    if value is None or not isfinite(value):
        return "–"
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.2f}"
    return text.replace(",", "\u202f")


def escaped(text: object) -> Markup:
    """A text of a stranger, for HTML."""
    return escape(text)
