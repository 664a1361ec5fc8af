"""What the report and the calendar share: their templates' environment, and how a page is made.

Called on the driver. A page is one file whose policy allows no style but its own. Must not know
what pages show.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spark.figures import wording
from spark.figures.report_data import BREACHED, INSUFFICIENT, MET

WORDS = {BREACHED: "Breached", INSUFFICIENT: "Insufficient data", MET: "Met"}
SIGNS = {BREACHED: "✕", INSUFFICIENT: "?", MET: "✓"}
STYLES = {BREACHED: "breached", INSUFFICIENT: "insufficient", MET: "met"}


def page_environment(
    filters: Mapping[str, Callable[..., Any]], words: Mapping[str, Any]
) -> Environment:
    """Of the templates, with these filters and globals beside those of all pages."""
    environment = Environment(
        loader=PackageLoader("spark.page", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "duration": wording.duration,
        "share": wording.share,
        "count": wording.count,
        "name": wording.name,
        **filters,
    }
    environment.globals |= {
        "WORDS": WORDS,
        "SIGNS": SIGNS,
        "STYLES": STYLES,
        "NOTHING": wording.NOTHING,
        **words,
    }
    return environment


def page_bytes(
    environment: Environment, template: str, sheets: tuple[str, ...], view: Mapping[str, Any]
) -> bytes:
    """The page, UTF-8. `sheets`: names of its style sheets, one behind the other."""
    style = _style(sheets)
    html = environment.get_template(template).render(
        # The only style that counts is the one with this digest.
        style=Markup(style),
        style_digest=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        **view,
    )
    return html.encode("utf-8", errors="replace")


@functools.cache
def _style(sheets: tuple[str, ...]) -> str:
    environment = page_environment({}, {})
    loader = PackageLoader("spark.page", "templates")
    return "".join(loader.get_source(environment, name)[0] for name in sheets)
