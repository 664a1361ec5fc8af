"""Why the cost of a message is not flat, where somebody has found it out: docs/growth.md quotes it.

A key is "CURVE KIND", such as "size send"; the sentence is of our broker and says how it was found
(a profile, an experiment). What has no sentence stands on the page as "reason not found yet".
"""

from __future__ import annotations

from typing import Final

REASONS: Final[dict[str, str]] = {}
