"""Why the cost of a message is not flat, where somebody has found it out: docs/growth.md quotes it.

A key is "CURVE KIND", such as "size send"; the sentence is of our broker and says how it was found
(a profile, an experiment). What has no sentence stands on the page as "reason not found yet".
"""

from __future__ import annotations

from typing import Final

_BYTES: Final = (
    "A message of 1 MiB has 65,536 times the bytes of one of 16, and costs by its bytes: 2.4 ns "
    "each from 64 KiB on"
)
REASONS: Final[dict[str, str]] = {
    "topics send": (
        "Each message goes to another queue, whose unit is a write to a file of its own: 5.7 µs "
        "of store more than in one write with others. Beyond 17,400 files (20,000 descriptors) "
        "a file is opened and another closed for it: 4 µs more (a profile of store, and an "
        "experiment with 2,000, 14,000 and 20,000 topics and both numbers of files)."
    ),
    "size send": f"{_BYTES} (the table's figures divided).",
    "size pull": f"{_BYTES.replace('2.4 ns', '0.4 to 1 ns')} (the table's figures divided).",
}
