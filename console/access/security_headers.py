"""What every answer tells the browser: run only our own scripts, frame nothing, keep nothing.

Pure. A page may bring a header of its own, which stays (a report's page has its style inside). No
Strict-Transport-Security: it would hold for all other ports of the host, too; that is for the proxy
that owns the name.

Tested by tests/console/access/test_security_headers.py.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders

_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
STATIC: Final = "/static/"


def add_security_headers(headers: MutableHeaders, path: str) -> None:
    """Those that the answer does not have. Only the console's own files may be kept, and are asked
    for again; a page is the reader's own."""
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("Cache-Control", "no-cache" if path.startswith(STATIC) else "no-store")
