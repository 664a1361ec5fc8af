"""A place that is not proved, and how bad that is.

Plain values for the checks of `mqreport verify` (spark/evidence/verification.py). Must not know
what is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EDITED: Final = 1
UNPROVED: Final = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """A place that is not proved. `code`: EDITED, or UNPROVED where nothing shows an edit."""

    code: int
    text: str
