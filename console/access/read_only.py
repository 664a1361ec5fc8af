"""What `--read-only` leaves: pages, signing in and signing out. Pure; any thread.

Tested by tests/console/access/test_access.py.
"""

from __future__ import annotations

from typing import Final

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
READING: Final = frozenset({"GET", "HEAD"})
REFUSAL: Final = "This console was started with --read-only: nothing is changed through it."


def may_pass(method: str, path: str) -> bool:
    """Whether a request changes nothing of the cluster. GETs never do."""
    return method in READING or path in (SIGN_IN, SIGN_OUT)
