"""OperatorToken: whoever started the console proves it by what it printed. Immutable; any thread.

256 random bits, made at each start and kept in memory only. It is compared in constant time, taken
out of the URL by a redirect, and good for any number of browsers until the console ends: so it is
worth as much as the console's own account.

Tested by tests/console/access/test_operator_token.py.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from urllib.parse import parse_qsl, urlencode

QUERY = "token"


class OperatorToken:
    """The token of this start."""

    def __init__(self, text: str | None = None) -> None:
        self._text = secrets.token_urlsafe(32) if text is None else text

    def url(self, base: str) -> str:
        """What bin/mqconsole prints. `base`: http://127.0.0.1:8088"""
        return f"{base}/?{QUERY}={self._text}"

    def is_right(self, given: str) -> bool:
        """Whether it is this one. Of equal length by hashing: nothing depends on what was given."""
        digests = [
            hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (given, self._text)
        ]
        return hmac.compare_digest(*digests)


def token_in(query: str) -> str | None:
    """The token of a URL's query; None: it has none."""
    if QUERY not in query:
        return None
    return dict(parse_qsl(query)).get(QUERY)


def without_token(query: str) -> str:
    """The same query without it."""
    pairs = parse_qsl(query, keep_blank_values=True)
    return urlencode([(name, value) for name, value in pairs if name != QUERY])
