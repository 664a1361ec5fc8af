"""Cross-site requests: whether a POST comes from a page of this console. Pure; any thread.

Two locks. `is_foreign`: browsers tell where a POST comes from, which is all there is to check at
the sign-in, where nobody has a session yet. `is_right`: every form of a signed-in reader carries
the token of their session, which another site cannot read. And `safe_next`: where a form may lead
afterwards.

Tested by tests/console/access/test_csrf.py.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from console.access.sessions import Session
from remoting.control_characters import holds_control

FIELD: Final = "csrf_token"
MAX_NEXT: Final = 1_000


def is_foreign(headers: Mapping[str, str], host: str) -> bool:
    """Whether a browser says that a POST to `host` (as the reader knows it) comes from elsewhere.

    A program that is no browser says nothing, and has no cookie that another could misuse.
    """
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    return origin.partition("://")[2].lower() != host.lower()


def is_right(session: Session, fields: Mapping[str, str]) -> bool:
    """Whether a form carries the session's token; compares in constant time."""
    given = fields.get(FIELD, "").encode("utf-8", "replace")
    return hmac.compare_digest(given, session.csrf_token.encode("ascii"))


def safe_next(url: str) -> str:
    """A path of this console, else "/": browsers read //host, /\\host and a tab in between as
    another site's address."""
    if not url.startswith("/") or url.startswith("//") or len(url) > MAX_NEXT:
        return "/"
    return "/" if "\\" in url or holds_control(url) or not url.isprintable() else url
